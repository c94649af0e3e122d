"""What is asked of a table's statistics: looked at, and checked, by one request without a scan."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from harness import TaskRun

from airflow_tds.client import errors
from airflow_tds.client.models import DatasetInfoResponse
from airflow_tds.hooks import TdsHook
from airflow_tds.local import Service
from airflow_tds.operators import TdsCheckOperator, TdsTableInfoOperator
from airflow_tds.operators.tables import statistics

ROWS = "id,name\n1,a\n2,b\n"


@pytest.fixture
def loaded(table: str) -> str:
    """A table with two rows."""
    TdsHook().upload(table, ROWS, "csv", poll_interval=0.05)
    return table


def test_the_statistics_are_returned(service: Service, loaded: str, task: TaskRun) -> None:
    before = len(service.requests)

    found = task.execute(TdsTableInfoOperator(task_id="it", table_id=loaded))

    assert found["row_count"] == 2
    assert found["snapshot_id"] == TdsHook().info(loaded).snapshot_id
    assert datetime.fromisoformat(found["last_updated"]).tzinfo is not None
    assert [request.operation for request in service.requests[before : before + 1]] == ["info"]


@pytest.mark.parametrize(("files", "count"), [(["a", "b"], 2), (7, 7), (None, None)])
def test_data_files_are_counted_so_that_an_xcom_stays_small(files: Any, count: int | None) -> None:
    found = statistics("t", DatasetInfoResponse(data_files=files, last_updated=datetime(2026, 1, 31, tzinfo=UTC)))

    assert found["data_files"] == count
    assert json.loads(json.dumps(found)) == found
    assert found["last_updated"] == "2026-01-31T00:00:00+00:00"


def test_a_table_that_never_had_data_has_statistics(table: str, task: TaskRun) -> None:
    found = task.execute(TdsTableInfoOperator(task_id="it", table_id=table))

    assert (found["row_count"], found["snapshot_id"]) == (0, None)


def test_a_missing_table_is_not_found(service: Service, task: TaskRun) -> None:
    with pytest.raises(errors.TableNotFound, match="nowhere"):
        task.execute(TdsTableInfoOperator(task_id="it", table_id="nowhere"))


def test_a_check_that_holds_returns_the_statistics(loaded: str, task: TaskRun) -> None:
    check = TdsCheckOperator(task_id="it", table_id=loaded, min_rows="2", max_age=3600, min_bytes=1)

    assert task.execute(check)["row_count"] == 2


def test_a_check_names_everything_that_does_not_hold_and_follows_the_retries(loaded: str, task: TaskRun) -> None:
    check = TdsCheckOperator(task_id="it", table_id=loaded, min_rows=3, updated_after="2100-01-01")

    with pytest.raises(errors.CheckFailed, match=r"row_count is 2, wanted at least 3; last_updated is") as raised:
        task.execute(check)
    assert str(raised.value).startswith(f"table {loaded}: ")
    assert not isinstance(raised.value, AirflowFailException)


def test_a_check_without_a_condition_ends_the_task_at_once(service: Service, loaded: str, task: TaskRun) -> None:
    before = len(service.requests)

    with pytest.raises(errors.ValidationFailed, match="no condition: give one of") as raised:
        task.execute(TdsCheckOperator(task_id="it", table_id=loaded))
    assert isinstance(raised.value, AirflowFailException)
    assert len(service.requests) == before
