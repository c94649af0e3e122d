"""What a DAG pays for importing the operators, beyond what Airflow itself costs; parsed again and again, it adds up."""

import statistics
import subprocess
import sys

RUNS = 7
TIMED = """
import time
started = time.perf_counter()
from airflow.providers.common.compat.sdk import DAG, BaseOperator, conf
airflow = time.perf_counter()
import airflow_tds.operators
print(airflow - started, time.perf_counter() - airflow)
"""


def measure() -> tuple[float, float]:
    """Time both imports in a fresh process: seconds of Airflow's, of ours after it."""
    done = subprocess.run([sys.executable, "-c", TIMED], capture_output=True, text=True, check=True)
    airflow, ours = done.stdout.splitlines()[-1].split()
    return float(airflow), float(ours)


measure()  # compiles, and fills the disk cache
pairs = [measure() for _ in range(RUNS)]
airflow, ours = (statistics.median(column) for column in zip(*pairs, strict=True))
spread = max(pair[1] for pair in pairs) - min(pair[1] for pair in pairs)
print(
    f"import airflow_tds.operators: {ours * 1000:.0f} ms beyond Airflow's own {airflow * 1000:.0f} ms, "
    f"ratio {(airflow + ours) / airflow:.3f} (median of {RUNS}, spread {spread * 1000:.0f} ms)"
)
