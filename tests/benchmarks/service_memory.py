"""Memory of the embedded service for one large payload and its result: `python tests/benchmarks/service_memory.py`.

    --mib 1024          size of the payload

Transfers must not take more with a larger file. The engine takes what it is allowed (1 GB) to load and to query.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from service_memory import measured


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mib", type=int, default=1024, help="size of the payload (%(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        phases = measured(Path(folder), options.mib << 20)
    print(f"payload {options.mib} MiB; resident MiB of the service")
    for phase in phases:
        rate = f"{options.mib / phase.seconds:.0f} MiB/s" if phase.name in ("PUT", "GET") else ""
        memory = f"before {phase.before:5.0f}  peak {phase.peak:5.0f}  growth {phase.growth:4.0f}"
        print(f"{phase.name:6} {phase.seconds:6.1f} s {rate:>11}  {memory}")


if __name__ == "__main__":
    main()
