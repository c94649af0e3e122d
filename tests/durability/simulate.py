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
import sys
import tempfile
import textwrap
import time
from collections import Counter
from collections.abc import Sequence
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
LEAST = 20


def main(arguments: Sequence[str]) -> int:
    """Run the command; the exit code is 1 if a promise broke or a fault was too rare."""
    parser = argparse.ArgumentParser(prog="python3 tests/run.py simulate --", description="Live many seeded worlds.")
    parser.add_argument("--seeds", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, help="only this one, line by line")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        return show(options.seed)
    began = time.monotonic()
    slices = [
        range(n, min(n + SLICE, options.first + options.seeds))
        for n in range(options.first, options.first + options.seeds, SLICE)
    ]
    hits: Counter[Cell] = Counter()
    ends: Counter[str] = Counter()
    broken: list[Story] = []
    with multiprocessing.get_context("fork").Pool(options.processes, quiet) as pool:
        crashes = pool.map_async(crash, LIVES, chunksize=1)
        for some in pool.imap_unordered(live, slices):
            for told in some:
                hits.update(told.hits)
                ends[told.outcomes[-1] if told.outcomes and told.state == "failed" else told.state] += 1
                broken += [told] if told.broken else []
        crashed = crashes.get()
    print(table(hits))
    print(f"\n{options.seeds} seeds, {sum(hits.values())} faults happened, {time.monotonic() - began:.0f} s")
    print("ended: " + ", ".join(f"{end} {number}" for end, number in ends.most_common()))
    rare = [cell for cell in CELLS if hits[cell] < LEAST] if options.seeds >= 20_000 else []
    print(f"{len(CELLS)} faults at phases, the rarest happened {min(hits[cell] for cell in CELLS)} times")
    for cell in rare:
        print(f"TOO RARE: {cell.fault} at {cell.phase}: {hits[cell]}")
    for told in broken:
        print(f"BROKEN: {told.broken[:400]}: {COMMAND} --seed {told.seed}")
    lived, wrong = (sum(one[part] for one in crashed) for part in (0, 1))
    print(f"{lived} crash schedules over {len(LIVES)} kinds of lives, {wrong} promises broken")
    print(f"{options.seeds} seeds, {len(broken)} promises broken")
    return 1 if broken or rare or wrong else 0


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
