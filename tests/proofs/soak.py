"""A triggerer's event loop for a long time, with 1,000 triggers and all that can happen to them.

    python tests/proofs/soak.py                          some ten minutes
    python tests/proofs/soak.py --rounds 3 --count 200   a quick look

What happens stands in tests/support/soak.py. After each round nothing may be left but the process itself: the same
number of open files, and from the second round on no more memory than a few MiB beyond the first one's.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
HOME = tempfile.TemporaryDirectory(prefix="airflow-tds-soak-")
os.environ["AIRFLOW_HOME"] = HOME.name
os.environ["AIRFLOW__LOGGING__LOGGING_LEVEL"] = "ERROR"

from soak import Soak, descriptors, resident  # noqa: E402  # Airflow is imported once it has a home

from airflow_tds import polling  # noqa: E402  # as above

MIB = 1 << 20
#: MiB: an allocator keeps some.
SLACK = 8


async def rounds(count: int, events: int, number: int, seed: int) -> int:
    """Go through the rounds, each with the other transport; give how much was wrong."""
    wrong, memories, files = 0, [], 0
    for turn in range(number):
        transport = "aiohttp" if turn % 2 else "httpx"
        tally = await Soak(count, events, seed + turn, transport).run()
        memories.append(resident())
        files = files or descriptors()
        print(
            f"round {turn + 1}, {transport}: {tally}; {memories[-1] / MIB:.0f} MiB, {descriptors()} files", flush=True
        )
        for text in tally.wrong[:10]:
            print(f"  ! {text}", flush=True)
        wrong += len(tally.wrong) + (descriptors() != files)
    grown = (memories[-1] - max(memories[:2])) / MIB
    print(f"memory after the last round: {grown:+.1f} MiB; {wrong} not as expected", flush=True)
    return wrong + (grown > SLACK)


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description="Wait with many triggers while everything happens.")
    parser.add_argument("--count", type=int, default=1000, help="triggers at a time (%(default)s)")
    parser.add_argument("--events", type=int, default=100, help="things that happen in a round (%(default)s)")
    parser.add_argument("--rounds", type=int, default=8, help="(%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the first round (%(default)s)")
    options = parser.parse_args()
    polling.LINGER = 2.0  # not half a minute a round
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    return 1 if asyncio.run(rounds(options.count, options.events, options.rounds, options.seed)) else 0


if __name__ == "__main__":
    sys.exit(main())
