"""Every order of every move, breadth first: so the first way to what must not happen is a shortest one."""

from __future__ import annotations

from dataclasses import dataclass

from orders.tries import Order, Tries
from orders.world import Broken, Budget, Job, Rec, Service, State, Try, World

__all__ = ["Found", "search"]

ENDED = ("done", "failed_clean", "doubt")


@dataclass(frozen=True)
class Found:
    """What the search found.

    Attributes:
        states: How many states there are, or were visited until a law was broken.
        broken: Which law; empty when none can be.
        trace: The moves that lead there.
        ends: How a task can end: `ok`, `failed`, and `open` or `settled` after an AmbiguousWriteError.
    """

    states: int
    broken: str = ""
    trace: tuple[str, ...] = ()
    ends: frozenset[str] = frozenset()

    def __str__(self) -> str:
        steps = "".join(f"\n  {number:2d}. {text}" for number, text in enumerate(self.trace, 1))
        return f"{self.states:,} states: {self.broken or 'safe'}{steps}"


def search(order: Order, service: Service = Service(), budget: Budget = Budget(), *, rash: bool = False) -> Found:  # noqa: B008  # frozen
    """Visit every state that can be reached, until a law is broken.

    Args:
        order: What tries do.
        service: What is assumed.
        budget: The bounds.
        rash: See `World`.
    """
    destructive, on_clear = order.op in ("overwrite", "delete_rows"), order.choices.on_clear
    world = World(service, budget, destructive=destructive, on_clear=on_clear, fence=order.fence, rash=rash)
    tries, first = Tries(order, world), world.start()
    seen: dict[State, tuple[State | None, str]] = {first: (None, "")}
    queue, met = [first], {first}
    for s in queue:
        for family in (world.service_moves(s), world.airflow_moves(s), tries.moves(s)):
            try:
                for text, after in family:
                    if after in met:
                        continue
                    met.add(after)
                    state = canonical(after, service, order)
                    if state not in seen:
                        seen[state] = (s, text)
                        queue.append(state)
            except Broken as broken:
                return Found(len(seen), str(broken), (*_way(seen, s), "and then"))
    return Found(len(seen), ends=frozenset(s.err or s.air for s in seen if s.cur is None))


def _way(seen: dict[State, tuple[State | None, str]], s: State) -> tuple[str, ...]:
    way: list[str] = []
    before: State | None = s
    while before is not None:
        before, text = seen[before]
        way.append(text)
    return tuple(reversed(way[:-1]))


def canonical(s: State, service: Service, order: Order) -> State:
    """Drop what can no longer matter, and number alike what is alike."""
    rec, cur, stale = s.rec, s.cur, s.stale
    if rec is not None and rec.phase in ENDED:
        rec = rec._replace(job=-1, same=True, gen=rec.gen if rec.phase == "done" else s.gen)
    if stale and order.fence:
        stale = tuple(sorted((t for t in stale if t.pc in ("PUT", "SEND")), key=repr))
    jobs, rec, cur, stale = _jobs(s.jobs, rec, cur, stale, service) if s.jobs else (s.jobs, rec, cur, stale)
    gen, rec, cur, stale = _generations(s.gen, rec, cur, stale)
    s = s._replace(jobs=jobs, rec=rec, cur=cur, stale=stale, gen=gen)
    return _intents(s) if s.intent else s


def _intents(s: State) -> State:
    """Forget writes that nobody asks for any more."""
    low = min([s.intent, *(j.intent for j in s.jobs), *(t.intent for t in s.stale)])
    if not low:
        return s
    return s._replace(
        intent=s.intent - low,
        applied=s.applied[low:],
        guard=max(s.guard - low, -1),
        jobs=tuple(j._replace(intent=j.intent - low) for j in s.jobs),
        stale=tuple(t._replace(intent=t.intent - low) for t in s.stale),
        cur=s.cur and s.cur._replace(intent=max(0, s.cur.intent - low)),
    )


Parts = tuple[tuple[Job, ...], Rec | None, Try | None, tuple[Try, ...]]


def _jobs(jobs: tuple[Job, ...], rec: Rec | None, cur: Try | None, stale: tuple[Try, ...], service: Service) -> Parts:
    """Forget jobs that nobody speaks of and that can do nothing any more."""
    used = {t.job for t in stale} | ({rec.job} if rec else set()) | ({cur.job} if cur else set())
    kept: dict[int, Job] = {}
    for number, old in enumerate(jobs):
        job = old._replace(fly=0) if old.fly and old.st in "QRC" and service.a4 else old  # it would be ignored
        if job.st == "C" and service.a3 and service.a4 and not service.forgets:
            job = job._replace(url="D")  # no lease matters to it
        alive = job.fly or job.st in "WLQR" or (job.st == "A" and not service.a1)
        if number in used or alive:
            kept[number] = job
    if len(kept) == len(jobs):
        return tuple(kept.values()), rec, cur, stale
    number_of = {old: new for new, old in enumerate(kept)} | {-1: -1}
    rec = rec and rec._replace(job=number_of[rec.job])
    cur = cur and cur._replace(job=number_of[cur.job])
    return tuple(kept.values()), rec, cur, tuple(t._replace(job=number_of[t.job]) for t in stale)


def _generations(
    gen: tuple[int, int], rec: Rec | None, cur: Try | None, stale: tuple[Try, ...]
) -> tuple[tuple[int, int], Rec | None, Try | None, tuple[Try, ...]]:
    """Number generations by rank: only whether they are equal matters."""
    found = {gen, *([rec.gen] if rec else []), *(t.gen for t in (cur, *stale) if t and t.gen)}
    if len(found) == 1 and gen == (0, 0):
        return gen, rec, cur, stale
    ranks = [{value: rank for rank, value in enumerate(sorted({g[axis] for g in found}))} for axis in (0, 1)]
    if all(old == new for rank in ranks for old, new in rank.items()):
        return gen, rec, cur, stale

    def ranked(old: tuple[int, int]) -> tuple[int, int]:
        return ranks[0][old[0]], ranks[1][old[1]]

    rec = rec and rec._replace(gen=ranked(rec.gen))
    cur = cur and cur._replace(gen=cur.gen and ranked(cur.gen))
    return ranked(gen), rec, cur, tuple(t._replace(gen=t.gen and ranked(t.gen)) for t in stale)
