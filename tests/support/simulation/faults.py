"""What goes wrong, as data: cells of a phase and a fault, and the plan of one story.

The phases are the rows of a write's life, the faults the columns: what the network does, what the store does, what
happens to the process. What a fault does is done where it happens (tries.py, world.py).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["CELLS", "PHASES", "WRITES", "Cell", "Life", "Plan", "Planned"]

#: What the network and the service do to a request.
NETWORK = (
    "unreachable",
    "untrusted",
    "stalled",
    "reset",
    "late",
    "answer lost",
    "answer cut",
    "busy",
    "unavailable",
    "failed after all",
    "unauthorized",
    "forbidden",
    "not found",
    "refused",
    "redirected",
    "malformed",
)
#: What happens to the process that is there.
PROCESS = ("killed before", "killed after", "paused before", "paused after")
STORE = ("store away", "store answer lost")
WITHIN = ("killed within", "paused within")
WRITES = ("upload", "append", "overwrite", "upsert")
ANY = (*WRITES, "truncate", "delete_rows")
#: How a payload gets to the service.
FIRST, SECOND, THIRD = ("initiate_put",), ("put_commit",), ("direct",)
STRATEGIES = (*FIRST, *SECOND, *THIRD)


class Life(NamedTuple):
    """What a task does.

    Attributes:
        op: the operation.
        deferred: whether it waits in the triggerer.
        strategy: how a payload gets to the service.
    """

    op: str
    deferred: bool
    strategy: str = "initiate_put"


class Phase(NamedTuple):
    """One step of a life.

    Attributes:
        row: its name in the matrix of steps and faults.
        faults: what may happen there.
        ops: in whose life it is.
        modes: whether it is there when deferred, when blocking.
        strategies: by which of them a payload travels there; the others do not matter.
        needs: what must be so in the world for a life to come here.
    """

    row: str
    faults: tuple[str, ...]
    ops: tuple[str, ...] = ANY
    modes: tuple[bool, ...] = (True, False)
    strategies: tuple[str, ...] = STRATEGIES
    needs: str = ""

    def is_in(self, life: Life) -> bool:
        """Say whether it is in a life."""
        fits = life.op in self.ops and life.deferred in self.modes
        return fits and (life.strategy in self.strategies or (life.op not in WRITES and "direct" in self.strategies))

    def draw(self, rng: random.Random) -> Life:
        """Draw a life that it is in."""
        return Life(rng.choice(self.ops), rng.choice(self.modes), rng.choice(self.strategies))


PHASES: dict[str, Phase] = {
    "load": Phase("W0", ("store away", *PROCESS)),
    "info": Phase("W1", (*NETWORK, *PROCESS)),
    "initiate": Phase("W2", (*NETWORK, *PROCESS), WRITES, strategies=FIRST),
    "presign": Phase("W2", (*NETWORK, *PROCESS), WRITES, strategies=SECOND),
    "store initiated": Phase("W3", (*STORE, *PROCESS), WRITES, strategies=FIRST),
    "seen": Phase("W4", (*NETWORK, "odd status", *PROCESS), WRITES, strategies=FIRST),
    "source": Phase("W5", ("source broken", "disk full", *PROCESS), WRITES),
    "put": Phase("W6", (*NETWORK, *PROCESS, *WITHIN), WRITES, strategies=(*FIRST, *SECOND)),
    "store committing": Phase("W3", (*STORE, *PROCESS), WRITES, strategies=SECOND),
    "commit": Phase("W6", (*NETWORK, *PROCESS), WRITES, strategies=SECOND),
    "direct": Phase("W6", (*NETWORK, *PROCESS, *WITHIN), WRITES, strategies=THIRD),
    "store sent": Phase("W7", (*STORE, *PROCESS)),
    "poll": Phase("W8", (*NETWORK, "odd status", *PROCESS), WRITES),
    "defer": Phase("W9", ("report lost", "killed before", "paused before"), (*WRITES, "truncate"), (True,)),
    "trigger": Phase(
        "W10", (*NETWORK, "odd status", "triggerer killed", "triggerer paused"), (*WRITES, "truncate"), (True,)
    ),
    "event": Phase(
        "W11", ("event lost", "event twice", "event garbled", "trigger failed"), (*WRITES, "truncate"), (True,)
    ),
    "resume": Phase(
        "W12", ("dag unloadable", "killed before", "paused before"), (*WRITES, "truncate"), (True,)
    ),
    "store failed_clean": Phase("W13", (*STORE, *PROCESS), WRITES, needs="job fails"),
    "store doubt": Phase("W13", (*STORE, *PROCESS), needs="clear, unresolved"),
    "store done": Phase("W13", (*STORE, *PROCESS)),
    "result": Phase("W14", (*NETWORK, *PROCESS)),
    "report": Phase("W14", ("report lost", "killed before", "paused before")),
    "store intent": Phase("W3", (*STORE, *PROCESS), strategies=THIRD),
    "delete": Phase("D1", (*NETWORK, *PROCESS), ("delete_rows",)),
    "truncate": Phase("T1", (*NETWORK, *PROCESS), ("truncate",)),
    "truncated": Phase("T2", (*NETWORK, *PROCESS), ("truncate",)),
    "world": Phase(
        "-",
        ("clear", "clear, unresolved", "clear of another task", "job fails", "job forgotten", "another writer",
         "clock skew", "no no-data status"),
    ),
}  # fmt: skip


class Cell(NamedTuple):
    """A fault at a phase."""

    phase: str
    fault: str


CELLS: tuple[Cell, ...] = tuple(Cell(name, fault) for name, phase in PHASES.items() for fault in phase.faults)


@dataclass
class Planned:
    """A fault that is to come.

    Attributes:
        cell: which.
        passing: at which passing of its phase, from 1.
        happened: whether it came.
    """

    cell: Cell
    passing: int = 1
    happened: bool = False


@dataclass
class Plan:
    """The faults of one story, in no order."""

    faults: Sequence[Planned] = ()
    passed: Counter[str] = field(default_factory=lambda: Counter(world=3))

    @classmethod
    def of(cls, rng: random.Random, first: Cell, life: Life, more: int) -> Plan:
        """Plan a first fault, and some more that may happen in such a life."""
        fitting = [cell for cell in CELLS if PHASES[cell.phase].is_in(life)]
        needed = [Cell("world", PHASES[first.phase].needs)] if PHASES[first.phase].needs else []
        drawn = [first, *needed, *rng.choices(fitting, k=more)]
        return cls(
            [Planned(cell, 1 if not number else rng.choice((1, 1, 1, 2, 3))) for number, cell in enumerate(drawn)]
        )

    def take(self, phase: str, kinds: Iterable[str]) -> str:
        """Take the fault that is due at this passing of a phase, if it is one of these kinds; empty for none."""
        for planned in self.faults:
            due = planned.cell.phase == phase and planned.passing <= self.passed[phase]
            if due and not planned.happened and planned.cell.fault in kinds:
                planned.happened = True
                return planned.cell.fault
        return ""

    def has(self, fault: str) -> bool:
        """Say whether the world is so, and note that it was."""
        return bool(self.take("world", (fault,)))
