"""One run in a real triggerer: Airflow's own supervisor and runner, its database, a log for each trigger.

    python triggerer.py '{"kind": "ours-httpx", "count": 500, ...}'

The triggerer is started, has one trigger to warm up, and is left alone until it is idle; then the triggers are put into
its database. What is told is the CPU time of its two processes from then until the last task may go on, and the memory
that the runner added. No scheduler and no worker run.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(ROOT / "example_dags"), str(ROOT / "requirements")]

from processes import Child, surroundings  # noqa: E402  # found by the line above
from stack import airflow_environment  # noqa: E402

GIVEN: dict[str, Any] = json.loads(sys.argv[1])
PATIENCE = 600.0
TICK = os.sysconf("SC_CLK_TCK")


def asked(database: Path, question: str) -> int:
    """Read one number from Airflow's database; it may be busy, or not there yet."""
    with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=60)) as connection:
        return int(connection.execute(question).fetchone()[0])


def until(condition: Any, what: str) -> None:
    """Wait until something has come about."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"after {PATIENCE:.0f} s: {what}")
        time.sleep(0.05)


def worked(pid: int) -> float:
    """Give the CPU seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def memory(pid: int, line: str) -> int:
    """Give a process's resident KiB: now (`VmRSS`), or the most (`VmHWM`)."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(one.split()[1]) for one in status if one.startswith(line))


def runner_of(triggerer: Child) -> int:
    """Find the process that runs the triggers; 0: not yet."""
    return next((one.pid for one in triggerer.family() if one.parent == triggerer.pid), 0)


def settled(pids: list[int]) -> bool:
    """Say whether processes did next to nothing for two seconds."""
    before = sum(map(worked, pids))
    time.sleep(2)
    return sum(map(worked, pids)) - before < 0.5


@contextlib.contextmanager
def rows_of(env: dict[str, str]) -> Iterator[tuple[dict[str, str], subprocess.Popen[str]]]:
    """Prepare the rows; give the triggers' connection, and the process that writes them when it is given a line."""
    command = [sys.executable, str(HERE / "rows.py"), sys.argv[1]]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=env, **pipes) as writer:
        assert writer.stdout is not None
        line = next(one for one in writer.stdout if one.startswith("{"))
        yield json.loads(line), writer


def let(writer: subprocess.Popen[str], database: Path, count: int) -> None:
    """Let rows be written, and wait until so many tasks may go on."""
    print(file=writer.stdin, flush=True)

    def ended() -> bool:
        if writer.poll():
            sys.exit("the rows cannot be written")
        return asked(database, "select count(*) from task_instance where state = 'scheduled'") == count

    until(ended, f"not all of {count} tasks may go on")


def measured(triggerer: Child, database: Path, writer: subprocess.Popen[str]) -> dict[str, float]:
    """Let the triggers come once the triggerer is idle, and measure until the last one has ended."""
    until(lambda: runner_of(triggerer), "no runner")
    pids = [triggerer.pid, runner_of(triggerer)]
    let(writer, database, 1)
    until(lambda: settled(pids), "the triggerer does not come to rest")
    before, rss, begun = [worked(pid) for pid in pids], memory(pids[1], "VmRSS"), time.monotonic()
    let(writer, database, GIVEN["count"] + 1)
    wall = time.monotonic() - begun
    supervisor, runner = (worked(pid) - base for pid, base in zip(pids, before, strict=True))
    kib = (memory(pids[1], "VmHWM") - rss) / GIVEN["count"]
    figures = {"cpu_s": supervisor + runner, "runner_s": runner, "supervisor_s": supervisor}
    return figures | {"kib_per_trigger": kib, "wall_s": wall}


def main() -> None:
    """Measure, and print one line of JSON."""
    with tempfile.TemporaryDirectory(prefix="airflow-tds-triggerer-") as folder:
        home = Path(folder)
        (home / "dags").mkdir()
        airflow = airflow_environment(home, home / "dags", 1, {"triggerer.capacity": str(GIVEN["count"])})
        env = surroundings(os.environ, network=False) | airflow | {"PYTHONPATH": os.environ["PYTHONPATH"]}
        words = (sys.executable, "-m", "airflow")
        subprocess.run([*words, "db", "migrate"], env=env, check=True, capture_output=True)
        with rows_of(env) as (connection, writer):
            triggerer = Child(
                (*words, "triggerer", "--skip-serve-logs"), env=env | connection, log=home / "triggerer.log", cwd=home
            )
            try:
                figures = measured(triggerer, home / "airflow.db", writer)
            except BaseException:
                print(triggerer.tail(), file=sys.stderr)
                raise
            finally:
                triggerer.kill()
        with urllib.request.urlopen(f"http://127.0.0.1:{GIVEN['control']}/counts") as reply:
            print(json.dumps(figures | json.load(reply)), flush=True)


if __name__ == "__main__":
    main()
