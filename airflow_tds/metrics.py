"""What Airflow's Stats is told of a task's work: how much was asked of the service, and how it went.

Counts, seconds, and the names of operators, operations and errors: no table, no job, no text. A process tells what it
has asked itself, so a wait in the triggerer counts once its task goes on. Where Airflow has no metrics switched on,
nothing is sent.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from airflow_tds.client.errors import TableServiceError
from airflow_tds.compat import stats

if TYPE_CHECKING:
    from airflow_tds.client.calls import Tally

__all__ = ["METRICS", "told"]

#: What is told, and what it means.
METRICS = {
    "tds.submitted": "writes, truncations, deletions and queries that the service has accepted, by `operation`",
    "tds.completed": "tasks whose work was done, by `operator`",
    "tds.failed": "tries that an error of the service, the network or the input ended, by `operator` and `error`",
    "tds.waited": "time from a task's start, or its first deferral's, to its work being done, by `operator`",
    "tds.bytes_sent": "bytes of payloads, by `operator`",
    "tds.bytes_received": "bytes of answers and results, by `operator`",
    "tds.retries": "requests that were sent again, by `operator`",
}
#: The operations that start something.
STARTS = ("upload", "append", "overwrite", "upsert", "truncate", "delete_rows", "submit_cross_query")


@contextmanager
def told(operator: str, tally: Tally, started: float) -> Iterator[None]:
    """Tell of what is done within, whatever its end.

    Args:
        operator: The operator's class.
        tally: What the client counts.
        started: When the work began, POSIX seconds.
    """
    tags = {"operator": operator}
    try:
        yield
    except TableServiceError as error:
        _count("tds.failed", 1, tags | {"error": type(error).__name__})
        raise
    else:
        _count("tds.completed", 1, tags)
        with suppress(Exception):  # no metric is worth a task
            stats().timing("tds.waited", timedelta(seconds=max(0.0, time.time() - started)), tags=tags)
    finally:
        for operation in STARTS:
            _count("tds.submitted", tally.answered[operation], tags | {"operation": operation})
        _count("tds.retries", tally.repeated, tags)
        _count("tds.bytes_sent", tally.sent, tags)
        _count("tds.bytes_received", tally.received, tags)


def _count(name: str, count: int, tags: dict[str, str]) -> None:
    if count:
        with suppress(Exception):  # no metric is worth a task
            stats().incr(name, count, tags=tags)
