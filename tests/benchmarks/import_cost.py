"""What a DAG pays for importing operators, beyond what Airflow itself costs; parsed again and again, it adds up.

    python tests/benchmarks/import_cost.py

Ours and each peer in a fresh process, in turn, in one run: milliseconds of CPU beyond Airflow's own, and how many
modules they add. Peers are providers that submit jobs to a service as well; those that are not installed are left out
(`pip install apache-airflow-providers-airbyte` and so on, in an environment to throw away).
"""

from __future__ import annotations

import json
import subprocess
import sys

RUNS = 5
OURS = "airflow_tds.operators"
PEERS = (
    "airflow.providers.airbyte.operators.airbyte",
    "airflow.providers.http.operators.http",
    "airflow.providers.dbt.cloud.operators.dbt",
    "airflow.providers.amazon.aws.operators.s3",
    "airflow.providers.databricks.operators.databricks",
)
TIMED = """
import importlib, json, sys, time
from airflow.providers.common.compat.sdk import DAG, BaseOperator, conf
began, had = time.process_time(), len(sys.modules)
importlib.import_module(sys.argv[1])
print(json.dumps([(time.process_time() - began) * 1000, len(sys.modules) - had]))
"""


def measure(module: str) -> tuple[float, int] | None:
    """Import a module in a fresh process: milliseconds of CPU and modules beyond Airflow's own; None: not installed."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", TIMED, module], capture_output=True, text=True, check=False
    )
    if "ModuleNotFoundError" in done.stderr:
        return None
    assert done.returncode == 0, done.stderr
    milliseconds, modules = json.loads(done.stdout.splitlines()[-1])
    return milliseconds, modules


def main() -> None:
    """Measure in rounds, so that what else the machine does falls on all alike; the least of each counts."""
    first = {module: measure(module) for module in (OURS, *PEERS)}  # compiles, and fills the disk's cache
    there = [module for module, found in first.items() if found is not None]
    least: dict[str, float] = {}
    for _ in range(RUNS):
        for module in there:
            milliseconds, _modules = measure(module) or (float("inf"), 0)
            least[module] = min(least.get(module, float("inf")), milliseconds)
    for module, found in first.items():
        if found is None:
            print(f"{module}: not installed", flush=True)
        else:
            print(
                f"{module}: {least[module]:.0f} ms of CPU and {found[1]} modules beyond Airflow's own,"
                f" {least[module] / least[OURS]:.1f} times ours (least of {RUNS})"
            )


if __name__ == "__main__":
    main()
