"""Every order of every step of a small world, decided by the real `begin` and `weigh`.

The service takes data late, runs and fails jobs, forgets them; a try dies, or is paused and goes on when it is
stale; a person clears this task or another one of the run; another writer changes the table. In no reachable
state are the rows applied more often than was asked for, no older overwrite lands on a newer one, and success
is reported only once the rows are applied. What was asked for: one write, one more per clear that asks for it
(`on_clear`), one more per `on_unknown="resubmit"`. A rule that is taken away (the lease, the fence) gives a
counterexample, so the model sees what it is for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from airflow_tds.client.models import DataJobResponse
from airflow_tds.durability.decisions import (
    Adopt,
    Ambiguous,
    Attach,
    Attached,
    Choices,
    Clean,
    Hold,
    Policy,
    Start,
    begin,
    weigh,
)
from airflow_tds.durability.records import Generation, Record

LEASE = 1000.0


class Rules(NamedTuple):
    """What can be taken away."""

    lease: bool = True
    fence: bool = True
    stored_before_sent: bool = True
    clock_first: bool = True
    op: str = "append"
    choices: Choices = Choices()
    no_data: tuple[str, ...] = ("AWAITING",)


class Job(NamedTuple):
    status: str = "AWAITING"
    dead: bool = False  # the lease is over
    in_flight: bool = False  # data on its way, from whoever
    wanted: int = 0  # which of the writes that were asked for


class Try(NamedTuple):
    at: str = "begin"
    job: int = -1
    snapshot: int = 0
    first: bool | str = ""  # what was read first: whether the lease was over, or the job's status
    phase: str = ""
    own: int = 0  # snapshot before the write, as its record says
    generation: tuple[int, int] = (0, 0)
    attach: Attach | None = None


class State(NamedTuple):
    jobs: tuple[Job, ...] = ()
    record: tuple[str, int, int, tuple[int, int]] | None = None  # phase, job, snapshot before, generation
    current: Try | None = Try()
    stale: Try | None = None
    snapshot: int = 0
    applied: tuple[int, ...] = (0,)  # how often, per write that was asked for
    asked: int = 0  # the write that the latest clear asks for
    generation: tuple[int, int] = (0, 0)  # max_tries, clear_number
    succeeded: bool = False
    tries: int = 2
    clears: int = 1
    unresolved: int = 0  # clears that raise the clear number only
    forgets: int = 0
    others: int = 0


class Broken(Exception):  # a verdict, told in its text
    """A promise does not hold."""


Put = Callable[[State, Try | None], State]


class Model:
    """The moves of the world."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    def moves(self, s: State) -> Iterator[State]:
        yield from self._service(s)
        yield from self._world(s)
        if s.current is not None:
            yield from self._step(s, s.current, lambda t, one: t._replace(current=one), fresh=True)
        if s.stale is not None:
            yield from self._step(s, s.stale, lambda t, one: t._replace(stale=one), fresh=not self._rules.fence)

    # ---- the service

    def _service(self, s: State) -> Iterator[State]:
        for number, job in enumerate(s.jobs):
            if job.in_flight:
                arrived = "QUEUED" if job.status == "AWAITING" else job.status
                yield change(s, number, job._replace(status=arrived, in_flight=False))
                yield change(s, number, job._replace(in_flight=False))
            elif not job.dead:
                yield change(s, number, job._replace(dead=True))
            if s.forgets and job.status != "GONE":
                yield change(s, number, job._replace(status="GONE"))._replace(forgets=0)
            if job.status == "QUEUED":
                yield self._apply(change(s, number, job._replace(status="COMPLETED")), job.wanted)
                yield change(s, number, job._replace(status="FAILED"))
            if job.status == "AWAITING" and job.dead:
                yield change(s, number, job._replace(status="FAILED"))

    def _apply(self, s: State, wanted: int) -> State:
        if s.applied[wanted]:
            raise Broken("applied twice")
        if self._rules.op == "overwrite" and any(s.applied[wanted + 1 :]):
            raise Broken("an older overwrite replaces a newer one")
        once = (*s.applied[:wanted], 1, *s.applied[wanted + 1 :])
        return s._replace(applied=once, snapshot=s.snapshot + 1)

    # ---- Airflow, people, other writers

    def _world(self, s: State) -> Iterator[State]:
        if s.others:
            yield s._replace(others=0, snapshot=s.snapshot + 1)
        again = Try(generation=s.generation)
        if s.current is not None and s.tries:
            yield s._replace(current=again, tries=s.tries - 1)
            if s.stale is None:
                yield s._replace(current=again, stale=s.current, tries=s.tries - 1)
        if s.clears:
            yield from self._clear(s._replace(clears=s.clears - 1))
        if s.unresolved:
            max_tries, clear_number = s.generation
            raised = s._replace(generation=(max_tries, clear_number + 1), unresolved=0)
            yield raised  # another task of the run was cleared
            yield raised._replace(current=Try(generation=raised.generation), succeeded=False)

    def _clear(self, s: State) -> Iterator[State]:
        """Clear the task; what that asks for is `on_clear`'s.

        A clear of a write that is stored as done, before its success is recorded, is the documented limit of
        "auto" and "new": it writes again.
        """
        generation = (s.generation[0] + 2, s.generation[1] + 1)
        cleared = s._replace(current=Try(generation=generation), generation=generation, succeeded=False)
        done = s.record is not None and s.record[0] == "done"
        if self._rules.choices.on_clear == "resume" or not (done or self._rules.choices.on_clear == "new"):
            yield cleared
        elif s.succeeded or not done:
            yield want_another(cleared)._replace(asked=len(s.applied))

    # ---- a try

    def _step(self, s: State, one: Try, put: Put, *, fresh: bool) -> Iterator[State]:
        yield from getattr(self, f"_at_{one.at}")(s, one, put, fresh)

    def _at_begin(self, s: State, one: Try, put: Put, fresh: bool) -> Iterator[State]:
        record = self._record(*s.record) if fresh and s.record else None
        step = begin(record, Generation(*one.generation), "this", "c", self._rules.choices)
        if isinstance(step, Start):
            yield put(self._another(s, step), one._replace(at="initiate"))
        elif isinstance(step, Ambiguous):
            if step.doubt and s.record is not None:
                known = one._replace(phase="doubt", job=s.record[1], own=s.record[2])
                yield from self._store(s, known, put, fresh, None)
            else:
                yield put(s, None)
        elif s.record is not None:
            followed = one._replace(job=s.record[1], phase=s.record[0], own=s.record[2])
            if isinstance(step, Attach):
                yield put(s, followed._replace(at="clock", attach=step))
            elif s.record[0] == "done" and s.record[3] == one.generation:
                yield self._succeed(s, put, fresh=fresh)
            else:
                yield from self._adopt(s, followed, put, fresh, step)

    def _another(self, s: State, step: Start) -> State:
        return want_another(s) if "as on_unknown says" in step.why else s

    def _adopt(self, s: State, one: Try, put: Put, fresh: bool, step: Adopt) -> Iterator[State]:
        then = "report_assumed" if "as on_unknown says" in step.why else "report"
        yield from self._store(s, one._replace(phase="done"), put, fresh, one._replace(at=then))

    def _at_initiate(self, s: State, one: Try, put: Put, fresh: bool) -> Iterator[State]:
        if len(s.jobs) < 3:
            made = s._replace(jobs=(*s.jobs, Job(wanted=len(s.applied) - 1)))
            then = "store_initiated" if self._rules.stored_before_sent else "send"
            new = one._replace(at=then, job=len(s.jobs), own=s.snapshot, first="", phase="", attach=None)
            yield put(made, new)

    def _at_store_initiated(self, s: State, one: Try, put: Put, fresh: bool) -> Iterator[State]:
        then = "send" if self._rules.stored_before_sent else "store_sent"
        yield from self._store(s, one._replace(phase="initiated"), put, fresh, one._replace(at=then, phase="initiated"))

    def _at_send(self, s: State, one: Try, put: Put, fresh: bool) -> Iterator[State]:
        then = "store_sent" if self._rules.stored_before_sent else "store_initiated"
        job = s.jobs[one.job]
        if job.dead and self._rules.lease:
            yield put(s, None)  # the URL has expired: refused
            return
        landed = job._replace(status="QUEUED") if job.status == "AWAITING" else job
        yield put(change(s, one.job, landed), one._replace(at=then))
        for unanswered in (landed, job._replace(in_flight=True), job):
            yield put(change(s, one.job, unanswered), one._replace(at="clock"))

    def _at_store_sent(self, s: State, one: Try, put: Put, fresh: bool) -> Iterator[State]:
        then = one._replace(at="clock", phase="sent")
        yield from self._store(s, one._replace(phase="sent"), put, fresh, then)

    def _at_clock(self, s: State, one: Try, put: Put, fresh: bool) -> Iterator[State]:
        job = s.jobs[one.job]
        yield put(s, one._replace(at="read", first=job.dead if self._rules.clock_first else job.status))

    def _at_read(self, s: State, one: Try, put: Put, fresh: bool) -> Iterator[State]:
        job = s.jobs[one.job]
        dead, status = (one.first, job.status) if self._rules.clock_first else (job.dead, str(one.first))
        now = LEASE if dead or not self._rules.lease else LEASE - 1
        read = Attached(now, None if status == "GONE" else DataJobResponse(status=status), s.snapshot == one.own)
        record = self._record(one.phase or "initiated", one.job, one.own, one.generation)
        known: dict[str, Any] = {"attach": one.attach, "choices": self._rules.choices}
        step = weigh(record, read, policy=Policy(), no_data_statuses=self._rules.no_data, **known)
        if isinstance(step, Hold):
            yield put(s, one._replace(at="clock", first=""))
        elif isinstance(step, Ambiguous):
            yield put(s, None)
        elif isinstance(step, Adopt):
            yield from self._adopt(s, one, put, fresh, step)
        elif isinstance(step, Clean):
            yield from self._store(s, one._replace(phase="failed_clean"), put, fresh, Try(generation=one.generation))
        elif step.clean:
            yield from self._store(s, one._replace(phase="failed_clean"), put, fresh, one._replace(at="initiate"))
        else:
            yield put(self._another(s, step), one._replace(at="initiate"))

    def _at_report(self, s: State, one: Try, put: Put, fresh: bool) -> Iterator[State]:
        yield self._succeed(s, put, fresh=fresh)

    def _at_report_assumed(self, s: State, one: Try, put: Put, fresh: bool) -> Iterator[State]:
        yield self._succeed(s, put, fresh=fresh, assumed=True)

    def _store(self, s: State, one: Try, put: Put, fresh: bool, then: Try | None) -> Iterator[State]:
        if not fresh:
            yield put(s, None)  # the fence
            return
        stored = s._replace(record=(one.phase, one.job, one.own, one.generation))
        yield put(stored, then)

    def _succeed(self, s: State, put: Put, *, fresh: bool, assumed: bool = False) -> State:
        """Check what success means; a person who assumes that a write is done is not told otherwise later."""
        if not fresh:
            return put(s, None)  # Airflow refuses the report of a stale try
        if self._rules.choices.on_unknown != "assume_done" and not assumed and s.record is not None:
            wanted = s.jobs[s.record[1]].wanted
            if not s.applied[wanted]:
                raise Broken("success without the rows")
            if wanted < s.asked:
                raise Broken("success without the rows that the clear asked for")
        return put(s._replace(succeeded=True), None)

    def _record(self, phase: str, job: int, snapshot: int, generation: tuple[int, int]) -> Record:
        return Record(
            self._rules.op,
            "t",
            "this",
            "c",
            phase,  # type: ignore[arg-type]  # one of the phases
            job_id=str(job),
            snapshot=f"s{snapshot}",
            lease=LEASE,
            seen="AWAITING",
            max_tries=generation[0],
            clear_number=generation[1],
        )


def want_another(s: State) -> State:
    """Ask for another write beside those before it."""
    return s._replace(applied=(*s.applied, 0))


def change(s: State, number: int, job: Job) -> State:
    return s._replace(jobs=(*s.jobs[:number], job, *s.jobs[number + 1 :]))


def replaced(rules: Rules, taken_away: str) -> Rules:
    return Rules(**(rules._asdict() | {taken_away: False}))


def explore(rules: Rules, start: State = State()) -> int:  # noqa: B008  # frozen
    """Visit every state that can be reached; give their number."""
    model = Model(rules)
    seen, todo = {start}, [start]
    while todo:
        for after in model.moves(todo.pop()):
            if after not in seen:
                seen.add(after)
                todo.append(after)
    return len(seen)


#: Small enough to be tried under every choice.
WORLDS = {
    "a retry and a clear": State(tries=1),
    "two clears": State(tries=0, clears=2),
    "a clear and one that only the run's number tells": State(tries=0, unresolved=1),
    "a clear and a job that is forgotten": State(tries=0, forgets=1),
    "a clear and another writer": State(tries=0, others=1),
}
CHOICES = {
    "defaults": Choices(),
    "on_clear=resume": Choices(on_clear="resume"),
    "on_clear=new": Choices(on_clear="new"),
    "on_unknown=resubmit": Choices(on_unknown="resubmit"),
    "on_unknown=assume_done": Choices(on_unknown="assume_done"),
    "new and resubmit": Choices(on_clear="new", on_unknown="resubmit"),
}


@pytest.mark.parametrize("op", ["append", "overwrite"])
@pytest.mark.parametrize("choices", CHOICES.values(), ids=CHOICES)
@pytest.mark.parametrize("start", WORLDS.values(), ids=WORLDS)
def test_no_order_of_steps_applies_more_than_was_asked_for(start: State, choices: Choices, op: str) -> None:
    assert explore(Rules(op=op, choices=choices), start) > 100


@pytest.mark.parametrize(
    "start", [State(), State(others=1, tries=1)], ids=["two retries and a clear", "a retry, a clear, another writer"]
)
def test_no_order_does_in_a_larger_world(start: State) -> None:
    assert explore(Rules(), start) > 1000


@pytest.mark.parametrize("op", ["append", "overwrite"])
@pytest.mark.parametrize("choices", CHOICES.values(), ids=CHOICES)
def test_no_order_does_where_no_status_tells_that_no_data_came(choices: Choices, op: str) -> None:
    assert explore(Rules(op=op, choices=choices, no_data=()), State(tries=0)) > 100


@pytest.mark.parametrize("op", ["append", "overwrite"])
@pytest.mark.parametrize("rule", ["lease", "fence", "stored_before_sent", "clock_first"])
def test_without_one_of_the_rules_some_order_breaks_a_promise(rule: str, op: str) -> None:
    with pytest.raises(Broken):
        explore(replaced(Rules(op=op), rule))
