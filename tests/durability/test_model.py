"""Every order of every step of a small world, decided by the real `begin` and `weigh`.

The service takes data late, runs and fails jobs; a try dies, or is paused and goes on when it is stale; a
person clears; another writer changes the table. In no reachable state are the rows applied twice, and success
is reported only once they are applied. A rule that is taken away (the lease, the fence) gives a
counterexample, so the model sees what it is for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from airflow_tds.client.models import DataJobResponse
from airflow_tds.durability.decisions import (
    Adopt,
    Ambiguous,
    Attached,
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


class Job(NamedTuple):
    status: str = "AWAITING"
    dead: bool = False  # the lease is over
    in_flight: bool = False  # data on its way, from whoever


class Try(NamedTuple):
    at: str = "begin"
    job: int = -1
    snapshot: int = 0
    first: bool | str = ""  # what was read first: whether the lease was over, or the job's status
    phase: str = ""
    own: int = 0  # snapshot before the write, as its record says


class State(NamedTuple):
    jobs: tuple[Job, ...] = ()
    record: tuple[str, int, int, int] | None = None  # phase, job, snapshot before, max_tries
    current: Try | None = Try()
    stale: Try | None = None
    snapshot: int = 0
    applied: int = 0
    max_tries: int = 0
    tries: int = 2
    clears: int = 1
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
            if job.status == "QUEUED":
                yield apply(change(s, number, job._replace(status="COMPLETED")))
                yield change(s, number, job._replace(status="FAILED"))
            if job.status == "AWAITING" and job.dead:
                yield change(s, number, job._replace(status="FAILED"))

    # ---- Airflow, people, other writers

    def _world(self, s: State) -> Iterator[State]:
        if s.others:
            yield s._replace(others=0, snapshot=s.snapshot + 1)
        if s.current is not None and s.tries:
            yield s._replace(current=Try(), tries=s.tries - 1)
            if s.stale is None:
                yield s._replace(current=Try(), stale=s.current, tries=s.tries - 1)
        unfinished = s.record is None or s.record[0] != "done"
        if s.clears and unfinished:
            yield s._replace(current=Try(), clears=0, max_tries=s.max_tries + 2)

    # ---- a try

    def _step(self, s: State, one: Try, put: Put, *, fresh: bool) -> Iterator[State]:
        yield from getattr(self, f"_at_{one.at}")(s, one, put, fresh)

    def _at_begin(self, s: State, one: Try, put: Put, fresh: bool) -> Iterator[State]:
        record = as_record(s.record) if fresh and s.record else None
        step = begin(record, Generation(s.max_tries, 0), "this", "c")
        if isinstance(step, Start):
            yield put(s, Try("initiate"))
        elif isinstance(step, Adopt):
            yield self._succeed(s, put)
        elif isinstance(step, Ambiguous):
            yield put(s, None)
        elif s.record is not None:
            yield put(s, Try("clock", s.record[1], phase=s.record[0], own=s.record[2]))

    def _at_initiate(self, s: State, one: Try, put: Put, fresh: bool) -> Iterator[State]:
        if len(s.jobs) < 3:
            made = s._replace(jobs=(*s.jobs, Job()))
            then = "store_initiated" if self._rules.stored_before_sent else "send"
            yield put(made, Try(then, len(s.jobs), own=s.snapshot))

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
        read = Attached(now, DataJobResponse(status=status), s.snapshot == one.own)
        record = as_record((one.phase or "initiated", one.job, one.own, s.max_tries))
        step = weigh(record, read, settle=False, policy=Policy(), no_data_statuses=("AWAITING",))
        if isinstance(step, Hold):
            yield put(s, one._replace(at="clock", first=""))
        elif isinstance(step, Ambiguous):
            yield put(s, None)
        elif isinstance(step, Adopt):
            yield from self._store(s, one._replace(phase="done"), put, fresh, Try("report"))
        else:
            then = Try("begin") if isinstance(step, Clean) else Try("initiate")
            yield from self._store(s, one._replace(phase="failed_clean"), put, fresh, then)

    def _at_report(self, s: State, one: Try, put: Put, fresh: bool) -> Iterator[State]:
        yield self._succeed(s, put)

    def _store(self, s: State, one: Try, put: Put, fresh: bool, then: Try) -> Iterator[State]:
        if not fresh:
            yield put(s, None)  # the fence
            return
        stored = s._replace(record=(one.phase, one.job, one.own, s.max_tries))
        yield put(stored, then)

    def _succeed(self, s: State, put: Put) -> State:
        if not s.applied:
            raise Broken("success without the rows")
        return put(s, None)


def as_record(values: tuple[str, int, int, int]) -> Record:
    phase, job, snapshot, max_tries = values
    return Record(
        "append",
        "t",
        "this",
        "c",
        phase,  # type: ignore[arg-type]  # one of the phases
        job_id=str(job),
        snapshot=f"s{snapshot}",
        lease=LEASE,
        seen="AWAITING",
        max_tries=max_tries,
    )


def change(s: State, number: int, job: Job) -> State:
    return s._replace(jobs=(*s.jobs[:number], job, *s.jobs[number + 1 :]))


def apply(s: State) -> State:
    if s.applied:
        raise Broken("applied twice")
    return s._replace(applied=1, snapshot=s.snapshot + 1)


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


@pytest.mark.parametrize(
    "start", [State(), State(tries=1, others=1)], ids=["two retries and a clear", "one retry, a clear, another writer"]
)
def test_no_order_of_steps_applies_the_rows_twice(start: State) -> None:
    assert explore(Rules(), start) > 1000


@pytest.mark.parametrize("rule", ["lease", "fence", "stored_before_sent", "clock_first"])
def test_without_one_of_the_rules_some_order_breaks_a_promise(rule: str) -> None:
    with pytest.raises(Broken):
        explore(Rules()._replace(**{rule: False}))
