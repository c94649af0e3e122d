"""What the user of the example sees: progress while it works, and what it did.

What lives here: words and numbers on the terminal. What must not: starting, waiting and deciding (example.py, run.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import processes

GIB = 1 << 30


class Show:
    """What the user sees while it works, and what was seen meanwhile."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.peak = 0  # bytes
        self.deferred: set[str] = set()
        self._states: dict[str, str] = {}
        self._measured = 0.0

    def say(self, text: str) -> None:
        """Print a line with the seconds since the start."""
        print(f"{self.seconds():6.1f} s  {text}", flush=True)

    def seconds(self) -> float:
        """Say how long it has taken so far."""
        return time.monotonic() - self.started

    def state(self, task_id: str, state: str | None) -> None:
        """Print a task's state if it is another than before."""
        if state is None or self._states.get(task_id) == state:
            return
        self._states[task_id] = state
        if state == "deferred":
            self.deferred.add(task_id)
        if state not in {"scheduled", "queued"}:
            self.say(f"{task_id:<22} {state}")

    def measure(self, find: Callable[[], list[processes.Process]]) -> None:
        """Take the memory of processes into account, at most once a second: to look for them takes time too."""
        if time.monotonic() - self._measured >= 1:
            self.peak = max(self.peak, processes.memory(process.pid for process in find()))
            self._measured = time.monotonic()

    def summary(self, tasks: int) -> str:
        """Say how many tasks deferred, and what it took."""
        deferred = f"{len(self.deferred)} of {tasks} tasks were seen deferred; " if self.deferred else ""
        return f"{deferred}{self.seconds():.0f} s, at most {self.peak / GIB:.1f} GiB of memory."


def table(tasks: dict[str, dict[str, Any]]) -> str:
    """Lay out what each task did, in the order in which they ended.

    Args:
        tasks: Airflow's task instances by id, each with its `result`.

    Returns:
        Lines of text.
    """
    lines = [f"{'task':<22} {'table':<10} {'rows after':>10} {'seconds':>8}"]
    for name, task in sorted(tasks.items(), key=lambda item: str(item[1]["end_date"])):
        result = task["result"]
        rows = f"{result['row_count']:,}" if "row_count" in result else ""
        tries = f"  in {task['try_number']} tries" if task["try_number"] > 1 else ""
        lines.append(f"{name:<22} {result.get('table_id', ''):<10} {rows:>10} {_seconds(task):>8.1f}{tries}")
    return "\n".join(lines)


def _seconds(task: dict[str, Any]) -> float:
    start, end = (datetime.fromisoformat(task[key]) for key in ("start_date", "end_date"))
    return (end - start).total_seconds()


def joined(rows: int, columns: int, busiest: list[list[Any]], path: Path) -> str:
    """Describe the joined file.

    Args:
        rows: in it.
        columns: in it.
        busiest: airline, flights, mean delay at arrival in minutes.
        path: where it is.

    Returns:
        Lines of text.
    """
    lines = [f"Flights with their airlines, airports and planes: {rows:,} rows, {columns} columns, in", f"  {path}"]
    lines += [f"  {name}: {flights:,} flights, {delay} min late on average" for name, flights, delay in busiest]
    return "\n".join(lines)
