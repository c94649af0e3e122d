"""What a deferred task costs around its trigger: from submit to defer in its worker, and from its job's end to its own.

    python tests/benchmarks/worker.py

First, in this process: `execute` of a deferrable operator until it defers, without Airflow's own start of a task (its
imports alone take seconds). Then a real Airflow with all its processes: eight appends whose jobs take three seconds and
are polled each second; told is how long after the job's end the trigger fired, and how long after that the task went
on.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / part) for part in ("tests/support", "example_dags", "requirements")]
HOME = tempfile.TemporaryDirectory(prefix="airflow-tds-worker-")
os.environ["AIRFLOW_HOME"] = HOME.name
os.environ["AIRFLOW__LOGGING__LOGGING_LEVEL"] = "ERROR"

from airflow.providers.common.compat.sdk import TaskDeferred  # noqa: E402  # Airflow's home is set before
from service_process import ServiceProcess  # noqa: E402  # found by the line above
from stack import Run, Stack  # noqa: E402  # as above

from airflow_tds.local import Service  # noqa: E402
from airflow_tds.operators import TdsAppendOperator  # noqa: E402

ROUNDS = 30
JOB_SECONDS = 3.0
#: What a task's log says when its trigger has heard.
FIRED = "Trigger fired event"


def connection(url: str, token: str) -> str:
    """Write a connection as JSON."""
    host, port = url.removeprefix("http://").split(":")
    fields = {"conn_type": "tds", "schema": "http", "host": host, "port": int(port), "password": token}
    return json.dumps(fields)


@contextmanager
def serving() -> Iterator[None]:
    """Start the embedded service in a process of its own; its jobs take longer than this lasts."""
    with (
        tempfile.TemporaryDirectory() as folder,
        ServiceProcess(Path(folder), "--table", "t", "--job-delay", "3600") as service,
    ):
        os.environ["AIRFLOW_CONN_TDS_DEFAULT"] = connection(service.told["url"], service.told["token"])
        yield


def deferred(make: Callable[[int], Any]) -> tuple[list[float], list[float]]:
    """Execute operators until they defer; give the milliseconds of CPU and of time that each took."""
    from harness import TaskRun

    work, wall = [], []
    for number in range(ROUNDS + 1):
        operator, context = make(number), TaskRun().context()
        began = time.process_time(), time.perf_counter()
        try:
            operator.execute(context)
        except TaskDeferred:
            work.append((time.process_time() - began[0]) * 1e3)
            wall.append((time.perf_counter() - began[1]) * 1e3)
    return work[1:], wall[1:]  # the first one imports


def appending(count: int, number: int) -> TdsAppendOperator:
    """Make an operator that appends so many rows."""
    rows = [{"id": row} for row in range(count)]
    return TdsAppendOperator(task_id=f"append_{count}_{number}", table_id="t", rows=rows, deferrable=True)


def print_deferrals() -> None:
    """Print what it takes to submit and defer."""
    kinds: dict[str, Callable[[int], Any]] = {
        f"append of {count:,} rows, with its record": partial(appending, count) for count in (1, 1000)
    }
    print(f"| from `execute` to the deferral (median of {ROUNDS}) | CPU ms | ms | spread ms |")
    print("|---|---:|---:|---:|")
    with serving():
        for name, make in kinds.items():
            work, wall = deferred(make)
            spread = f"{min(wall):.1f} - {max(wall):.1f}"
            print(f"| {name} | {statistics.median(work):.1f} | {statistics.median(wall):.1f} | {spread} |")
    print()


def moments(run: Run, index: int) -> list[tuple[float, str]]:
    """Give the lines of a task's log, each with its moment."""
    reply = run.stack.get(f"{run.path}/taskInstances/append/logs/1?map_index={index}")
    found = []
    for event in reply["content"]:
        if event.get("timestamp"):
            moment = dt.datetime.fromisoformat(event["timestamp"]).timestamp()
            found.append((moment, str(event.get("event", ""))))
    return sorted(found)


def print_resumptions() -> None:
    """Print how long after their job's end tasks go on, in a real Airflow."""
    fired, resumed = [], []
    home, dags = Path(HOME.name) / "stack", Path(__file__).parent / "parts" / "dags"
    with Service(tables=["t"], job_delay=JOB_SECONDS) as service:
        env = {"AIRFLOW_CONN_TDS_DEFAULT": connection(service.url, service.token)}
        with Stack(Path(sys.executable), home, dags, env=env) as stack:
            run = stack.trigger("resumed")
            state = run.wait(600)
            if state != "success":
                sys.exit(f"the run is {state}: {run.task_log('append')}")
            for index in range(8):
                lines = moments(run, index)
                text = "\n".join(line for _, line in lines)
                job_id = re.search(r"append is job (\S+)", text)
                assert job_id, text
                ended = service._store.job(job_id[1]).finished_at
                assert ended is not None
                event = next(moment for moment, line in lines if FIRED in line)
                after = next(moment for moment, line in lines if moment > event and f"job {job_id[1]}" in line)
                fired.append(event - ended)
                resumed.append(after - event)
    print("| in a real Airflow, a poll a second (eight tasks) | median s | spread s |")
    print("|---|---:|---:|")
    for name, column in (("from the job's end to its trigger's event", fired), ("from there to the task", resumed)):
        print(f"| {name} | {statistics.median(column):.2f} | {min(column):.2f} - {max(column):.2f} |")


if __name__ == "__main__":
    print_deferrals()
    print_resumptions()
