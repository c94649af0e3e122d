"""Live many seeded worlds and all crash schedules; count the faults, and name each seed in which a promise broke.

    python3 tests/run.py simulate                          20,000 seeds in two processes
    python3 tests/run.py simulate -- --seeds 1000000       as many as you like
    python3 tests/run.py simulate -- --seed 4711           one seed again, everything that happened line by line

What lives here: the command. The world itself is tests/support/simulation.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import resource
import sys
import tempfile
import textwrap
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent.parent / "support"), str(Path(__file__).parent.parent.parent)]
os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="airflow-tds-simulation-"))

from simulation.faults import CELLS, PHASES, Cell, Life  # noqa: E402  # found by the line above
from simulation.schedules import LIVES, schedules  # noqa: E402
from simulation.world import Story, story  # noqa: E402

COMMAND = "python3 tests/run.py simulate --"
#: Seeds that a process takes at once.
SLICE = 250
#: Every fault at every phase happens at least so often in 20,000 seeds.
LEAST, ENOUGH = 20, 20_000


@dataclass
class Sum:
    """What came of all lives.

    Attributes:
        seeds: how many seeds.
        hits: how often each fault happened.
        ends: how often tasks ended so.
        broken: the stories in which a promise broke.
        crashed: crash schedules, and those in which a promise broke.
    """

    seeds: int = 0
    hits: Counter[Cell] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    broken: list[Story] = field(default_factory=list)
    crashed: tuple[int, int] = (0, 0)

    def add(self, told: Story) -> None:
        """Count a story."""
        self.seeds += 1
        self.hits.update(told.hits)
        self.ends[told.outcomes[-1] if told.outcomes and told.state == "failed" else told.state] += 1
        self.broken += [told] if told.broken else []

    @property
    def rare(self) -> list[Cell]:
        """The faults that happened too seldom for so many seeds."""
        return [cell for cell in CELLS if self.hits[cell] < LEAST] if self.seeds >= ENOUGH else []

    @property
    def good(self) -> bool:
        """Whether all promises held, and everything was tried."""
        return not (self.broken or self.rare or self.crashed[1])

    def lines(self, cost: str) -> Iterator[str]:
        """Tell it."""
        yield table(self.hits)
        yield f"\n{self.seeds} seeds, {self.hits.total()} faults happened, {cost}"
        yield "ended: " + ", ".join(f"{end} {number}" for end, number in self.ends.most_common())
        yield f"{len(CELLS)} faults at phases, the rarest happened {min(self.hits[cell] for cell in CELLS)} times"
        yield from (f"TOO RARE: {cell.fault} at {cell.phase}: {self.hits[cell]}" for cell in self.rare)
        yield from (f"BROKEN: {told.broken[:400]}: {COMMAND} --seed {told.seed}" for told in self.broken)
        lived, wrong = self.crashed
        yield f"{lived} crash schedules over {len(LIVES)} kinds of lives, {wrong} promises broken"
        yield f"{self.seeds} seeds, {len(self.broken)} promises broken"


def main(arguments: Sequence[str]) -> int:
    """Run the command; the exit code is 1 if a promise broke or a fault was too rare."""
    parser = argparse.ArgumentParser(prog=COMMAND, description="Live many seeded worlds.")
    parser.add_argument("--seeds", type=int, default=ENOUGH)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, help="only this one, line by line")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        return show(options.seed)
    began = time.monotonic()
    found = live_all(range(options.first, options.first + options.seeds), options.processes)
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    cost = f"{time.monotonic() - began:.0f} s ({spent.ru_utime + spent.ru_stime:.0f} s of CPU)"
    print("\n".join(found.lines(cost)))
    return 0 if found.good else 1


def live_all(seeds: range, processes: int) -> Sum:
    """Live seeds and crash schedules in several processes."""
    found = Sum()
    slices = [seeds[at : at + SLICE] for at in range(0, len(seeds), SLICE)]
    with multiprocessing.get_context("fork").Pool(processes, quiet) as pool:
        crashes = pool.map_async(crash, LIVES, chunksize=1)
        for some in pool.imap_unordered(live, slices):
            for told in some:
                found.add(told)
        lived, wrong = zip(*crashes.get(), strict=True)
        pool.close()
        pool.join()
    found.crashed = (sum(lived), sum(wrong))
    return found


def quiet() -> None:
    """Say nothing of what is meant to go wrong."""
    logging.disable(logging.CRITICAL)


def live(seeds: range) -> list[Story]:
    """Live some seeds."""
    return [story(seed) for seed in seeds]


def crash(life: Life) -> tuple[int, int]:
    """Live a life by all its crash schedules; give their number, and that of those in which a promise broke."""
    lived = list(schedules(life))
    return len(lived), sum(bool(one.broken) for one in lived)


def show(seed: int) -> int:
    """Live one seed and print what happens."""
    quiet()
    told = story(seed, trace=True)
    print(f"{told.life.op}, {told.life.strategy}, {'deferred' if told.life.deferred else 'blocking'}")
    print("\n".join(told.lines))
    print(f"BROKEN: {told.broken}" if told.broken else f"{told.state}; all promises hold")
    return 1 if told.broken else 0


def table(hits: Counter[Cell]) -> str:
    """Lay out how often each fault happened at each phase."""
    lines = []
    for name, phase in PHASES.items():
        counts = ", ".join(f"{fault} {hits[Cell(name, fault)]}" for fault in phase.faults)
        lines += textwrap.wrap(counts, 118, initial_indent=f"{phase.row:<7}{name:<20}", subsequent_indent=" " * 27)
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
