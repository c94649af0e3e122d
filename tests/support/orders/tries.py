"""The steps of a try, in their order, deciding by the real `begin`, `weigh` and `unanswered`.

    initiate_put   START -> NEW -> SET1 -> PUT -> SET2 -> START ...
    put_commit, direct, delete_rows
                   START -> NEW -> SET1 -> SEND -> SET2 -> START ... (delete_rows: -> SET3)
    then           START (record, clock) -> READ (job, snapshot) -> SET3 -> RET, or another way on

A wait ends in START, blocking as well as deferred, as `advance` begins with the record each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

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
    unanswered,
    weigh,
)
from airflow_tds.durability.records import Generation, Record
from orders.world import AWAITING, Broken, Gen, Job, Move, Rec, State, Try, World, change

__all__ = ["Order", "Tries"]

LEASE = 1000.0
FIRST_PHASE = {"initiate_put": "initiated", "put_commit": "committing", "direct": "intent", "request": "intent"}
Put = Callable[[State, Try | None], State]
Decision = Start | Adopt | Attach | Hold | Clean | Ambiguous


@dataclass(frozen=True)
class Order:
    """What a try does beside deciding; False takes a rule away.

    `begin` and `weigh` are the provider's; a rule that is theirs is taken away by wrapping them.
    """

    op: str = "append"
    strategy: str = "initiate_put"
    choices: Choices = Choices()  # noqa: RUF009  # frozen
    policy: Policy = Policy()  # noqa: RUF009  # frozen
    no_data: tuple[str, ...] = (AWAITING,)
    begin: Callable[..., Decision] = field(default=begin)
    weigh: Callable[..., Decision] = field(default=weigh)
    fence: bool = True
    stored_before_sent: bool = True
    failed_set_ends: bool = True
    clock_first: bool = True
    own_generation: bool = True
    unknown_keeps_phase: bool = True
    refused_is_clean: bool = True
    doubt_is_stored: bool = True


class Tries:
    """The moves of the current try and of stale ones.

    Args:
        order: What a try does.
        world: Where.
    """

    def __init__(self, order: Order, world: World) -> None:
        self._order, self._world = order, world
        self._first = FIRST_PHASE[order.strategy]
        self._known: dict[tuple[Any, ...], Decision] = {}

    def moves(self, s: State) -> Iterator[Move]:
        if s.cur is not None:
            yield from self._step(s, s.cur, True, lambda t, one: t._replace(cur=one))
        for number, one in enumerate(s.stale):

            def put(t: State, after: Try | None, number: int = number) -> State:
                kept = () if after is None else (after,)
                return t._replace(stale=t.stale[:number] + kept + t.stale[number + 1 :])

            for text, after in self._step(s, one, False, put):
                yield f"stale try: {text}", after

    def _step(self, s: State, one: Try, current: bool, put: Put) -> Iterator[Move]:
        step: Callable[..., Iterator[Move]] = getattr(self, f"_at_{one.pc}")
        return step(s, one, current, put)

    # ---- decisions

    def _record(self, rec: Rec) -> Record:
        seen = AWAITING if self._world.service.tells else "QUEUED"
        phase: Any = rec.phase
        job = "" if rec.job < 0 else str(rec.job)
        told: dict[str, Any] = {"max_tries": rec.gen[0], "clear_number": rec.gen[1], "job_id": job, "seen": seen}
        return Record(self._order.op, "t", "this", f"c{rec.content}", phase, snapshot="s", lease=LEASE, **told)

    def _begin(self, rec: Rec | None, gen: Gen, content: int) -> Decision:
        key = (rec and (rec.phase, rec.gen, rec.content), gen, content)
        if key not in self._known:
            record = None if rec is None else self._record(rec)
            known = self._order.begin(record, Generation(*gen), "this", f"c{content}", self._order.choices)
            self._known[key] = known
        return self._known[key]

    def _weigh(self, phase: str, status: str | None, unchanged: bool, dead: bool, attach: str) -> Decision:
        key = (phase, status, unchanged, dead, attach)
        if key not in self._known:
            job = None if status is None else DataJobResponse(status=status)
            read = Attached(LEASE if dead else LEASE - 1, job, unchanged)
            how = Attach("", settle=attach == "settle", renew=attach == "renew")
            record = self._record(Rec(phase, 0, unchanged, (0, 0), 0))
            given: dict[str, Any] = {"policy": self._order.policy, "no_data_statuses": self._order.no_data}
            self._known[key] = self._order.weigh(record, read, attach=how, choices=self._order.choices, **given)
        return self._known[key]

    # ---- the beginning, and what follows from a decision

    def _at_START(self, s: State, one: Try, current: bool, put: Put) -> Iterator[Move]:  # noqa: N802
        gen, content = one.gen or s.gen, s.src if one.content < 0 else one.content
        one = one._replace(gen=gen, content=content, attach="")
        rec = s.rec if current or not self._order.fence else None
        step = self._begin(rec, gen, content)
        if rec is not None:
            one = one._replace(job=rec.job, phase=rec.phase, same=rec.same, written=rec.content)
        if isinstance(step, Attach):
            if self._order.strategy == "request":
                yield "re-attaches to what was answered", put(s, one._replace(pc="SET3"))
                return
            attach = "settle" if step.settle else "renew" if step.renew else ""
            yield from self._look(s, one._replace(attach=attach), put)
        elif isinstance(step, Adopt) and rec is not None and rec.phase == "done" and rec.gen == gen:
            yield "returns what was done", put(s, one._replace(pc="RET"))
        else:
            yield from self._follow(s, one, current, put, step)

    def _look(self, s: State, one: Try, put: Put) -> Iterator[Move]:
        """Read the clock; the job is read later, and both may change in between."""
        job = s.jobs[one.job]
        if self._order.clock_first:
            yield "reads record and clock", put(s, one._replace(pc="READ", dead=job.url == "D"))
        else:
            saw = self._world.status(job, answered=one.phase == "sent")
            yield "reads record and job", put(s, one._replace(pc="READ", saw=saw or "GONE"))

    def _at_READ(self, s: State, one: Try, current: bool, put: Put) -> Iterator[Move]:  # noqa: N802
        job = s.jobs[one.job]
        status, dead = self._world.status(job, answered=one.phase == "sent"), one.dead
        if one.saw is not None:
            status, dead = None if one.saw == "GONE" else one.saw, job.url == "D"
        step = self._weigh(one.phase, status, one.same, dead, one.attach)
        one = one._replace(saw=None, dead=False)
        if isinstance(step, Hold):
            yield "waits in the worker", put(s, one._replace(pc="START", job=-1, attach=""))
            yield "defers, and is resumed", put(s, Try(intent=one.intent))
        else:
            yield from self._follow(s, one, current, put, step)

    def _follow(self, s: State, one: Try, current: bool, put: Put, step: Decision) -> Iterator[Move]:
        if isinstance(step, Start):
            yield from self._start(s, one, put, step)
        elif isinstance(step, Adopt):
            if "as on_unknown says" not in step.why:
                yield "adopts", put(s, one._replace(pc="SET3"))
            else:  # what a person assumes may be wrong; what a later clear makes of that is a documented limit
                yield "assumes", put(s._replace(clears=0, kept=0), one._replace(pc="ASSUMED"))
        elif isinstance(step, Clean):
            yield "the job failed and changed nothing", put(s, one._replace(pc="SETC"))
        elif isinstance(step, Ambiguous) and step.doubt and self._order.doubt_is_stored:
            yield "is in doubt about what was done", put(s, one._replace(pc="SETD"))
        elif isinstance(step, Ambiguous):
            yield "AmbiguousWriteError", self._ambiguous(s, current, put, step)

    def _start(self, s: State, one: Try, put: Put, step: Start) -> Iterator[Move]:
        fresh = one._replace(pc="SETN" if step.clean else "NEW")
        if "as on_unknown says" not in step.why:
            yield "starts a new write", put(s, fresh)
        elif s.resubmits:  # a person accepts both writes: another one is asked for
            more = s._replace(resubmits=s.resubmits - 1, applied=(*s.applied[: s.intent + 1], 0))
            yield "resubmits", put(more, fresh._replace(intent=s.intent + 1))

    def _ambiguous(self, s: State, current: bool, put: Put, step: Ambiguous) -> State:
        if not current:
            return put(s, None)
        return s._replace(cur=None, air="failed", err="open" if step.may_still_apply else "settled")

    # ---- a new write

    def _at_NEW(self, s: State, one: Try, current: bool, put: Put) -> Iterator[Move]:  # noqa: N802
        before = "SET1" if self._order.stored_before_sent else "SENT" if self._first != "initiated" else "PUT"
        new = one._replace(pc=before, job=-1, same=True, written=one.content, attach="")
        if self._order.strategy != "initiate_put":
            yield "sends what has no effect yet", put(s, new._replace(pc="SEND" if before == "SENT" else before))
        elif len(s.jobs) < self._world.budget.jobs:
            made = s._replace(jobs=(*s.jobs, Job("A", intent=one.intent)))
            yield "initiates", put(made, new._replace(job=len(s.jobs), phase=""))

    def _at_SET1(self, s: State, one: Try, current: bool, put: Put) -> Iterator[Move]:  # noqa: N802
        then = one._replace(pc="PUT" if self._first == "initiated" else "SEND")
        earlier = then if self._order.refused_is_clean else then._replace(phase=one.phase)
        yield from self._set(s, one, current, put, phase=self._first, then=earlier)
        if not self._order.failed_set_ends:
            yield "storing fails and is ignored", put(s, then._replace(phase=self._first))

    def _at_PUT(self, s: State, one: Try, current: bool, put: Put) -> Iterator[Move]:  # noqa: N802
        job = s.jobs[one.job]
        if job.url != "V":
            yield "the store refuses: expired", self._end(s, current, put)
            return
        landed = self._world.land(s, one.job)
        after, watching = one._replace(pc="SET2"), one._replace(pc="START", job=-1, phase="")
        yield "PUT", put(landed, after)
        yield "PUT lands, its answer is lost; sends again", put(landed, one)
        yield "PUT lands, its answer is lost; watches the job", put(landed, watching)
        if not job.fly:
            flying = change(s, one.job, job._replace(fly=1))
            yield "PUT stays in flight; watches the job", put(flying, watching)
        yield "PUT: nothing was sent", self._end(s, current, put)

    def _at_SEND(self, s: State, one: Try, current: bool, put: Put) -> Iterator[Move]:  # noqa: N802
        if len(s.jobs) >= self._world.budget.jobs:
            return
        number, job = len(s.jobs), Job("Q", "D", intent=one.intent)
        accepted, under_way = s._replace(jobs=(*s.jobs, job)), s._replace(jobs=(*s.jobs, job._replace(st="W")))
        if self._order.strategy == "request":
            accepted = self._world.apply(s._replace(jobs=(*s.jobs, job._replace(st="C"))), one.intent)
        yield "sends the request", put(accepted, one._replace(pc="SET2", job=number))
        lost = one._replace(pc="LOST" if self._order.unknown_keeps_phase else "SETC")
        yield "sends the request, its answer is lost", put(accepted, lost)
        yield "the request is under way, nobody answers", put(under_way, lost)
        yield "the request is refused", put(s, one._replace(pc="SETC"))

    def _at_LOST(self, s: State, one: Try, current: bool, put: Put) -> Iterator[Move]:  # noqa: N802
        record = self._record(Rec(self._first, -1, one.same, one.gen or s.gen, one.written))
        step = unanswered(record, self._order.choices)
        yield from self._follow(s, one, current, put, step)

    # ---- sets

    def _set(self, s: State, one: Try, current: bool, put: Put, *, phase: str, then: Try) -> Iterator[Move]:
        if not current and self._order.fence:
            yield "storing is refused", put(s, None)
            return
        gen, known = one.gen or s.gen, s.rec
        if not self._order.own_generation and known is not None and phase in ("done", "failed_clean"):
            gen = known.gen
        stored = s._replace(rec=Rec(phase, one.job, one.same, gen, one.written), intent=max(s.intent, one.intent))
        yield f"stores {phase}", put(stored, then._replace(phase=then.phase or phase))

    def _at_SET2(self, s: State, one: Try, current: bool, put: Put) -> Iterator[Move]:  # noqa: N802
        then = one._replace(pc="SET3" if self._order.strategy == "request" else "START", phase="sent")
        yield from self._set(s, one, current, put, phase="sent", then=then)

    def _at_SET3(self, s: State, one: Try, current: bool, put: Put) -> Iterator[Move]:  # noqa: N802
        yield from self._set(s, one, current, put, phase="done", then=one._replace(pc="RET"))

    def _at_ASSUMED(self, s: State, one: Try, current: bool, put: Put) -> Iterator[Move]:  # noqa: N802
        yield from self._set(s, one, current, put, phase="done", then=one._replace(pc="TOLD"))

    def _at_SETN(self, s: State, one: Try, current: bool, put: Put) -> Iterator[Move]:  # noqa: N802
        yield from self._set(s, one, current, put, phase="failed_clean", then=one._replace(pc="NEW", phase=""))

    def _at_SETC(self, s: State, one: Try, current: bool, put: Put) -> Iterator[Move]:  # noqa: N802
        back = "done" if one.phase == "done" and not self._order.refused_is_clean else "failed_clean"
        yield from self._set(s, one, current, put, phase=back, then=one._replace(pc="END"))

    def _at_SETD(self, s: State, one: Try, current: bool, put: Put) -> Iterator[Move]:  # noqa: N802
        yield from self._set(s, one, current, put, phase="doubt", then=one._replace(pc="DOUBT"))

    # ---- the end

    def _end(self, s: State, current: bool, put: Put) -> State:
        return self._world.fail(s) if current else put(s, None)

    def _at_END(self, s: State, one: Try, current: bool, put: Put) -> Iterator[Move]:  # noqa: N802
        yield "fails", self._end(s, current, put)

    def _at_DOUBT(self, s: State, one: Try, current: bool, put: Put) -> Iterator[Move]:  # noqa: N802
        yield "AmbiguousWriteError", self._ambiguous(s, current, put, Ambiguous("", may_still_apply=False))

    def _at_RET(self, s: State, one: Try, current: bool, put: Put) -> Iterator[Move]:  # noqa: N802
        if not current:
            yield "its report is refused", put(s, None)
            return
        if self._order.choices.on_unknown != "assume_done":  # otherwise an earlier assumption is not told otherwise
            self._check(s, one)
        yield "success is recorded", s._replace(cur=None, air="ok", err="")

    def _check(self, s: State, one: Try) -> None:
        if not s.applied[s.intent]:
            raise Broken("success is recorded, and the rows are not there")
        if one.written < s.want and self._order.choices.on_clear != "resume":
            raise Broken("success is recorded for other content than the clear asked for")

    def _at_TOLD(self, s: State, one: Try, current: bool, put: Put) -> Iterator[Move]:  # noqa: N802
        yield "success is recorded, as a person has said", s._replace(cur=None, air="ok", err="")
