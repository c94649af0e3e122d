"""Crash schedules: where tries die, and where a person clears, enumerated over a life's own boundaries.

A life is lived once for every boundary that it passes, counted and not listed, so that a boundary that the provider
gains or loses is one here too. Nothing else goes wrong.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import count
from typing import NamedTuple

from simulation.faults import WRITES, Life, Plan
from simulation.tries import Died
from simulation.world import Broken, Try, World, in_time_of

__all__ = ["LIVES", "TWICE", "Lived", "schedules"]

LIVES = (
    *(Life(op, deferred) for op in (*WRITES, "truncate", "delete_rows") for deferred in (True, False)),
    *(Life("append", deferred, strategy) for deferred in (True, False) for strategy in ("put_commit", "direct")),
)
#: Lives in which two tries die, at all pairs of boundaries.
TWICE = (Life("append", deferred=True),)

Act = Callable[[Try], None]


class Lived(NamedTuple):
    """What came of one schedule.

    Attributes:
        name: where what happened.
        state: how the task ended.
        outcome: how its last try ended.
        done: how often the table was changed.
        broken: which promise does not hold; empty if all do.
    """

    name: str
    state: str
    outcome: str
    done: int
    broken: str


def die(one: Try) -> None:
    """End the process."""
    raise Died


def clear(one: Try) -> None:
    """Clear the task, whose process goes on for a while."""
    one.world.clear()


def die_and_clear(one: Try) -> None:
    """Clear the task as soon as its process has ended."""
    one.world.later(0.5, one.world.clear)
    raise Died


class Schedule:
    """Does something at chosen boundaries of a life."""

    def __init__(self, acts: dict[int, Act]) -> None:
        self._acts = acts
        self.passed = 0
        self.where: list[str] = []

    def __call__(self, one: Try, phase: str, where: str) -> None:
        """Pass one boundary."""
        self.passed += 1
        if act := self._acts.get(self.passed):
            self.where.append(f"{act.__name__} {where} {phase}")
            act(one)

    @property
    def reached(self) -> bool:
        """Whether all of it happened."""
        return len(self.where) == len(self._acts)


def live(life: Life, acts: dict[int, Act]) -> Lived | None:
    """Live a life by a schedule; None if it has fewer boundaries."""
    schedule = Schedule(acts)
    world = World(random.Random(1), life, Plan(), at_boundary=schedule)  # noqa: S311  # repeatable, and no secret
    broken = ""
    try:
        with in_time_of(world):
            world.run()
    except Broken as promise:
        broken = str(promise)
    outcome = world.outcomes[-1] if world.outcomes else ""
    return Lived(", ".join(schedule.where), world.state, outcome, world.done, broken) if schedule.reached else None


def schedules(life: Life) -> Iterator[Lived]:
    """Live a life by every schedule: one death, one clear, one death and a clear; and for `TWICE` two deaths."""
    for act in (die, clear, die_and_clear):
        for number in count(1):
            lived = live(life, {number: act})
            if lived is None:
                break
            yield lived
            if act is die and life in TWICE:
                yield from _second(life, number)


def _second(life: Life, first: int) -> Iterator[Lived]:
    for number in count(first + 1):
        lived = live(life, {first: die, number: die})
        if lived is None:
            return
        yield lived
