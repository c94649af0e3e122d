"""What there is beside a try: the service and its jobs, Airflow and its tries, people, other writers; and the laws.

Fields marked hidden are for the laws only: no decision sees them. One move is one step that nothing divides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

__all__ = ["AWAITING", "Broken", "Budget", "Job", "Move", "Rec", "Service", "State", "Try", "World"]

Gen = tuple[int, int]  # max_tries, clear_number

#: Steps at which a try that is no longer Airflow's can still do something: elsewhere its next set is refused.
HARMFUL = ("PUT", "SEND")
#: How the service calls a job without data, where a status tells (A6).
AWAITING = "AWAITING"


@dataclass(frozen=True)
class Service:
    """What is assumed of the service, and of Airflow (A8); False takes an assumption away."""

    a1: bool = True  # a job whose data never came changes nothing
    a2: bool = True  # a FAILED job changed nothing
    a3: bool = True  # after the lease no PUT lands
    a4: bool = True  # a job applies its data at most once
    a5: bool = True  # a write that changes the table changes its snapshot
    a6: bool = True  # a job that has data is not shown as one without, once the lease is over
    a7: bool = True  # a job that FAILED for want of data stays FAILED
    a8: bool = True  # every clear raises the DAG run's clear number
    tells: bool = True  # a status exists that means that no data has arrived
    forgets: Literal["", "ended", "any"] = ""  # which jobs may be unknown later on
    prompt: bool = True  # data is noticed at once; else before the lease is over, as its margin allows


@dataclass(frozen=True)
class Budget:
    """How much of everything there is: the bounds of the world."""

    tries: int = 1  # after the first, and again after a clear
    clears: int = 1  # that raise max_tries
    kept: int = 0  # clears that keep max_tries: the DAG was not resolved, or the task was running
    others: int = 0  # writes of somebody else
    other_clears: int = 0  # clears of another task of the run
    stale: int = 1  # paused workers that go on
    changes: int = 0  # of the source
    persons: int = 0  # people who follow the text of an AmbiguousWriteError
    resubmits: int = 1
    jobs: int = 4


class Job(NamedTuple):
    """A job of the service.

    W: its request is on its way; A: no data; L: data landed, the status still says no data; Q: queued; R: running;
    C: COMPLETED; F: FAILED. `url`: V valid, X expired (a PUT in flight may land), D dead (the lease is over).
    """

    st: str
    url: str = "V"
    fly: int = 0  # hidden: PUTs in flight
    intent: int = 0  # hidden: which of the writes that were asked for
    gone: bool = False


class Rec(NamedTuple):
    """The stored record, as far as it varies."""

    phase: str
    job: int
    same: bool  # the table has the snapshot of before
    gen: Gen
    content: int


class Try(NamedTuple):
    """A try, current or stale; what was not read yet is None or -1."""

    pc: str = "START"
    job: int = -1
    phase: str = ""
    same: bool = True
    gen: Gen | None = None
    content: int = -1
    written: int = 0  # content of the record that it goes by
    intent: int = 0  # hidden
    attach: str = ""
    dead: bool = False  # the lease was over when the clock was read
    saw: str | None = None


class State(NamedTuple):
    """All there is."""

    jobs: tuple[Job, ...] = ()
    rec: Rec | None = None
    air: str = "run"  # run, ok, failed
    left: int = 1
    cur: Try | None = Try()
    stale: tuple[Try, ...] = ()
    gen: Gen = (0, 0)
    src: int = 0
    err: str = ""  # "", open, settled: the last AmbiguousWriteError, by whether the write may still be applied
    intent: int = 0  # hidden: the write that is asked for now
    applied: tuple[int, ...] = (0,)  # hidden: how often each was applied
    want: int = 0  # hidden: the source's content at the last clear
    guard: int = -1  # hidden: writes up to this one must not be applied any more: another writer came after
    clears: int = 0
    kept: int = 0
    others: int = 0
    other_clears: int = 0
    changes: int = 0
    persons: int = 0
    resubmits: int = 0


Move = tuple[str, State]


class Broken(Exception):  # a verdict, told in its text
    """What must never happen has happened."""


class World:
    """The moves of everybody but the tries.

    Args:
        service: What is assumed.
        budget: The bounds.
        destructive: Whether a late write destroys what came later (overwrite, delete), or doubles rows.
        on_clear: The task's choice.
        fence: Whether the store refuses a stale try.
        rash: Whether people delete the record although the error says that the write may still be applied.
    """

    def __init__(
        self, service: Service, budget: Budget, *, destructive: bool, on_clear: str, fence: bool, rash: bool
    ) -> None:
        self.service, self.budget = service, budget
        self._destructive, self._on_clear, self._fence, self._rash = destructive, on_clear, fence, rash

    def start(self) -> State:
        b = self.budget
        return State(
            left=b.tries,
            clears=b.clears,
            kept=b.kept,
            others=b.others,
            other_clears=b.other_clears,
            changes=b.changes,
            persons=b.persons,
            resubmits=b.resubmits,
        )

    # ---- the laws

    def apply(self, s: State, intent: int) -> State:
        """Apply the rows of a write that was asked for."""
        if not self._destructive and s.applied[intent]:
            raise Broken("rows are applied twice")
        if self._destructive and intent <= s.guard:
            raise Broken("a late write destroys another writer's rows")
        if self._destructive and any(s.applied[intent + 1 :]):
            raise Broken("an older write replaces a newer one")
        s = s._replace(applied=(*s.applied[:intent], 1, *s.applied[intent + 1 :]))
        return self.new_snapshot(s) if self.service.a5 else s

    def new_snapshot(self, s: State) -> State:
        return s._replace(
            rec=s.rec and s.rec._replace(same=False),
            cur=s.cur and s.cur._replace(same=False),
            stale=tuple(t._replace(same=False) for t in s.stale),
        )

    def fail(self, s: State) -> State:
        """End the try with an error, or dead; Airflow starts another while there are tries left."""
        if s.left:
            return s._replace(cur=Try(intent=s.intent), left=s.left - 1)
        return s._replace(cur=None, air="failed", err="")

    # ---- the service

    def service_moves(self, s: State) -> Iterator[Move]:
        for number, job in enumerate(s.jobs):
            if job.st == "W":
                yield "the delayed request arrives", change(s, number, job._replace(st="Q"))
                yield "the delayed request is lost", change(s, number, job._replace(st="F"))
            if job.fly:
                yield from self._landing(s, number, job)
            yield from self._aging(s, number, job)
            yield from self._working(s, number, job)
            forgettable = {"": "", "ended": "CF", "any": "ALQRCF"}[self.service.forgets]
            if job.st in forgettable and not job.gone:
                yield "the service forgets the job", change(s, number, job._replace(gone=True))
        if s.others:
            newest = max((i for i, times in enumerate(s.applied) if times), default=-1)
            yield "another writer changes the table", self.new_snapshot(s._replace(others=s.others - 1, guard=newest))

    def _landing(self, s: State, number: int, job: Job) -> Iterator[Move]:
        if job.url != "D" or not self.service.a3:
            yield "data in flight lands", self.land(change(s, number, job._replace(fly=0)), number)
        yield "data in flight is lost", change(s, number, job._replace(fly=0))

    def land(self, s: State, number: int) -> State:
        """Let a PUT's data reach its job; a job that has data already ignores it (A4)."""
        job = s.jobs[number]
        if job.st == "A" or (job.st == "F" and not self.service.a7):
            noticed = self.service.a6 and self.service.prompt
            return change(s, number, job._replace(st="Q" if noticed else "L"))
        if job.st == "C" and not self.service.a4:
            return self.apply(s, job.intent)
        return s

    def _aging(self, s: State, number: int, job: Job) -> Iterator[Move]:
        if job.url == "V":
            yield "the upload URL expires", change(s, number, job._replace(url="X"))
        elif job.url == "X" and (not job.fly or not self.service.a3) and not (job.st == "L" and self.service.a6):
            yield "the lease ends", change(s, number, job._replace(url="D"))

    def _working(self, s: State, number: int, job: Job) -> Iterator[Move]:
        if job.st == "A":
            if job.url != "V" or not self.service.a7:
                yield "the job FAILED: no data came", change(s, number, job._replace(st="F"))
            if not self.service.a1:
                done = change(s, number, job._replace(st="C"))
                yield "a job without data is applied", self.apply(done, job.intent)
        elif job.st == "L":
            yield "the service notices the data", change(s, number, job._replace(st="Q"))
        elif job.st == "Q" and not self.service.tells:
            yield "the job starts", change(s, number, job._replace(st="R"))
        elif job.st in "QR":
            done, failed = change(s, number, job._replace(st="C")), change(s, number, job._replace(st="F"))
            yield "the job COMPLETED", self.apply(done, job.intent)
            yield "the job FAILED", failed
            if not self.service.a2:
                yield "the job FAILED, although its rows were applied", self.apply(failed, job.intent)

    def status(self, job: Job, *, answered: bool) -> str | None:
        """Say what a client reads; None when the service does not know the job."""
        if job.gone:
            return None
        if job.st in "CF":
            return "COMPLETED" if job.st == "C" else "FAILED"
        if job.st in "AL":
            return AWAITING if self.service.tells else "QUEUED"
        return "RUNNING" if job.st == "R" or (answered and not self.service.tells) else "QUEUED"

    # ---- Airflow and people

    def airflow_moves(self, s: State) -> Iterator[Move]:
        if s.cur is not None:
            yield f"kill -9 at {s.cur.pc}", self.fail(s)
            if self._may_go_on(s, s.cur):
                yield f"the worker is paused at {s.cur.pc} and given up", self.fail(s._replace(stale=(*s.stale, s.cur)))
        for number in range(len(s.stale)):
            yield "the paused worker dies", s._replace(stale=s.stale[:number] + s.stale[number + 1 :])
        if s.changes and s.rec is not None:
            yield "the source changes", s._replace(changes=0, src=1)
        if s.other_clears and s.air != "ok":
            raised = (s.gen[0], s.gen[1] + 1)
            yield "another task of the run is cleared", s._replace(other_clears=s.other_clears - 1, gen=raised)
        if s.clears and not self._is_documented_limit(s):
            raised, text = (s.gen[0] + 1, s.gen[1] + 1), "a person clears the task"
            yield text, self._cleared(s._replace(clears=s.clears - 1), raised, asks=self._on_clear == "new")
        if s.kept:
            raised = (s.gen[0], s.gen[1] + (1 if self.service.a8 else 0))
            text = "a person clears the task; max_tries stays"
            yield text, self._cleared(s._replace(kept=s.kept - 1), raised, asks=False)
        if s.persons and s.err:
            yield from self._person_moves(s)

    def _may_go_on(self, s: State, one: Try) -> bool:
        return (one.pc in HARMFUL or not self._fence) and len(s.stale) < self.budget.stale

    def _is_documented_limit(self, s: State) -> bool:
        """`done` is stored, its success is not recorded, and the task is cleared: "auto" writes again."""
        done = s.rec is not None and s.rec.phase == "done" and not s.err
        return self._on_clear == "auto" and s.air != "ok" and done

    def _cleared(self, s: State, gen: Gen, *, asks: bool) -> State:
        if s.cur is not None and self._may_go_on(s, s.cur):
            s = s._replace(stale=(*s.stale, s.cur))
        if asks or (s.air == "ok" and self._on_clear != "resume"):
            s = s._replace(intent=s.intent + 1, applied=(*s.applied[: s.intent + 1], 0))
        left = self.budget.tries if gen[0] != s.gen[0] else s.left
        return s._replace(gen=gen, air="run", cur=Try(intent=s.intent), want=s.src, left=left, err="")

    def _person_moves(self, s: State) -> Iterator[Move]:
        """Follow the text: look whether it was applied; if not, and if it can not be any more, write again."""
        s, settled = s._replace(persons=s.persons - 1), s.err == "settled"
        if s.applied[s.intent]:
            yield "a person finds the rows and marks success", s._replace(rec=None, air="ok", err="")
        elif settled or self._rash:
            text = "a person finds no rows, deletes the record and clears"
            yield text, self._cleared(s._replace(rec=None), (s.gen[0] + 1, s.gen[1] + 1), asks=False)


def change(s: State, number: int, job: Job) -> State:
    return s._replace(jobs=(*s.jobs[:number], job, *s.jobs[number + 1 :]))
