"""What Airflow's Stats is told: counts with tags, the same in both modes, and no ids."""

from __future__ import annotations

import inspect
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from harness import TaskRun

from airflow_tds import metrics
from airflow_tds.client import errors
from airflow_tds.compat import stats as airflows_stats
from airflow_tds.local import Service
from airflow_tds.operators import TdsAppendOperator, TdsQueryOperator, TdsUploadOperator

ROWS = "id,name\n1,a\n2,b\n"


class Stats:
    """What Airflow keeps metrics with, written down."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.timed: dict[str, timedelta] = {}

    def incr(self, name: str, count: int = 1, *, tags: dict[str, str]) -> None:
        self.counts[" ".join([name, *tags.values()])] += count

    def timing(self, name: str, lasted: timedelta, *, tags: dict[str, str]) -> None:
        self.timed[" ".join([name, *tags.values()])] = lasted


@pytest.fixture
def stats(monkeypatch: pytest.MonkeyPatch) -> Stats:
    """Airflow's Stats, listening."""
    found = Stats()
    monkeypatch.setattr(metrics, "stats", lambda: found)
    return found


@pytest.fixture
def pace(deferrable: bool) -> dict[str, Any]:
    return {"task_id": "it", "deferrable": deferrable, "poll_interval": 0.05}


def test_a_write_is_submitted_waited_for_and_completed(
    stats: Stats, table: str, task: TaskRun, pace: dict[str, Any]
) -> None:
    task.execute(TdsUploadOperator(table_id=table, data=ROWS, **pace))

    assert stats.counts["tds.submitted TdsUploadOperator upload"] == 1
    assert stats.counts["tds.completed TdsUploadOperator"] == 1
    assert stats.counts["tds.bytes_sent TdsUploadOperator"] == len(ROWS)
    assert stats.timed["tds.waited TdsUploadOperator"] > timedelta(0)
    assert not [name for name in stats.counts if "failed" in name]


def test_a_result_counts_the_bytes_that_came(
    stats: Stats, table: str, task: TaskRun, pace: dict[str, Any], tmp_path: Path
) -> None:
    task.execute(TdsUploadOperator(table_id=table, data=ROWS, **pace))
    query = TdsQueryOperator(table_id=table, format="csv", destination=tmp_path / "r.csv", **pace)
    TaskRun().execute(query)

    assert stats.counts["tds.submitted TdsQueryOperator submit_cross_query"] == 1
    assert stats.counts["tds.bytes_received TdsQueryOperator"] >= (tmp_path / "r.csv").stat().st_size


def test_a_try_that_failed_is_counted_by_its_error(
    stats: Stats, table: str, task: TaskRun, pace: dict[str, Any]
) -> None:
    TaskRun().execute(TdsUploadOperator(table_id=table, data=ROWS, **pace))
    with pytest.raises(errors.JobFailed):
        task.execute(TdsAppendOperator(table_id=table, data="id,name\nx,y\n", **pace))

    assert stats.counts["tds.failed TdsAppendOperator JobFailed"] == 1
    assert stats.counts["tds.completed TdsAppendOperator"] == 0


def test_a_request_that_was_sent_again_is_counted(
    stats: Stats, service: Service, table: str, task: TaskRun, pace: dict[str, Any]
) -> None:
    service.fault("info", status=503)
    task.execute(TdsUploadOperator(table_id=table, data=ROWS, **pace))

    assert stats.counts["tds.retries TdsUploadOperator"] >= 1
    assert stats.counts["tds.submitted TdsUploadOperator upload"] == 1


def test_metrics_that_cannot_be_told_end_no_task(
    monkeypatch: pytest.MonkeyPatch, table: str, task: TaskRun, pace: dict[str, Any]
) -> None:
    def broken() -> Any:
        raise RuntimeError("no metrics")

    monkeypatch.setattr(metrics, "stats", broken)

    assert task.execute(TdsUploadOperator(table_id=table, data=ROWS, **pace))["row_count"] == 2


def test_airflows_own_stats_take_what_is_told() -> None:
    own = airflows_stats()

    inspect.signature(own.incr).bind("tds.submitted", 1, tags={"operator": "x"})
    inspect.signature(own.timing).bind("tds.waited", timedelta(seconds=1), tags={"operator": "x"})


def test_the_page_names_each_with_what_it_means() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operators.md").read_text()

    assert [name for name, means in metrics.METRICS.items() if f"| `{name}` | {means} |" not in page] == []
