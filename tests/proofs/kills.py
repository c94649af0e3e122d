"""The embedded service against a plain-Python model, over all operations, with kill -9.

    python tests/proofs/kills.py            2,000 steps, some 200 kills, half an hour
    python tests/proofs/kills.py --steps 200
    python tests/proofs/kills.py --wire put_commit --auth oauth2 --s3

Each step does something to the service and to the model and compares the two: rows, statistics, snapshots, errors,
results of queries. The steps are those of tests/support/model_machine.py.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from model_machine import COUNTS, ServiceAgainstModel
from service_forms import add_arguments, chosen

PER_SERVICE = 40


class Told(ServiceAgainstModel):
    """Tells how far it is after each service."""

    def teardown(self) -> None:
        """Add a line."""
        super().teardown()
        print(counted(), file=sys.stderr, flush=True)


def counted() -> str:
    """Say what was done so far."""
    return ", ".join(f"{what} {count:,}" for what, count in sorted(COUNTS.items()))


def main() -> None:
    """Run the steps, and print what was done."""
    parser = argparse.ArgumentParser(description="Compare the embedded service with a model, killing it on the way.")
    parser.add_argument("--steps", type=int, default=2000, help="in all (%(default)s)")
    add_arguments(parser)
    options = parser.parse_args()
    logging.getLogger("airflow_tds.client").setLevel(logging.ERROR)  # it warns of each connection that a kill cuts
    begun = time.monotonic()
    with chosen(options) as Told.form:
        run_state_machine_as_test(
            Told,
            settings=settings(
                max_examples=max(1, options.steps // PER_SERVICE),
                stateful_step_count=PER_SERVICE,
                deadline=None,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            ),
        )
    print(f"service against model: no difference in {time.monotonic() - begun:.0f} s; {counted()}", flush=True)


if __name__ == "__main__":
    main()
