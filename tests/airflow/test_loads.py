"""A load: the first one by upload, later ones in the mode that is named, whichever try they are made in."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from harness import TaskRun, needs_store

from airflow_tds.client import errors
from airflow_tds.hooks import TdsHook
from airflow_tds.local import Service
from airflow_tds.operators import TdsLoadOperator

ROWS = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
CHANGES = [{"id": 2, "name": "x"}, {"id": 3, "name": "c"}]


@pytest.fixture
def pace(deferrable: bool) -> dict[str, Any]:
    """Mode and pace of a load under test."""
    return {"task_id": "it", "deferrable": deferrable, "poll_interval": 0.05}


def writes(service: Service, table: str) -> list[str]:
    """The writes that were initiated on a table, in order."""
    changing = ("upload", "append", "overwrite", "upsert", "truncate")
    return [r.operation for r in service.requests if r.operation in changing and f"/{table}/" in r.path]


def clear(task: TaskRun) -> None:
    """Do what a person's clear does to a task instance."""
    task.max_tries += 2
    task.clear_number += 1


@pytest.mark.parametrize(("mode", "rows"), [("append", 4), ("overwrite", 2), ("upsert", 3)])
def test_the_first_load_uploads_and_later_ones_do_as_named(
    service: Service, table: str, pace: dict[str, Any], mode: Any, rows: int
) -> None:
    first = TaskRun().execute(TdsLoadOperator(table_id=table, rows=ROWS, mode=mode, key_columns="id", **pace))
    second = TaskRun().execute(TdsLoadOperator(table_id=table, rows=CHANGES, mode=mode, key_columns="id", **pace))

    assert (first["row_count"], second["row_count"]) == (2, rows)
    assert writes(service, table) == ["upload", mode]


def test_a_table_that_was_truncated_is_not_uploaded_again(service: Service, table: str, pace: dict[str, Any]) -> None:
    TdsHook().upload(table, ROWS, poll_interval=0.05)
    TdsHook().truncate(table)
    TdsHook().wait_until_truncated(table, poll_interval=0.05)

    result = TaskRun().execute(TdsLoadOperator(table_id=table, rows=ROWS, mode="append", **pace))

    assert result["row_count"] == 2
    assert writes(service, table) == ["upload", "truncate", "append"]


@needs_store
def test_a_retry_goes_on_with_the_upload_that_an_earlier_try_began(
    service: Service, table: str, task: TaskRun, pace: dict[str, Any]
) -> None:
    load = TdsLoadOperator(table_id=table, rows=ROWS, mode="append", **pace)
    task.execute(load)

    assert task.execute(load)["row_count"] == 2
    assert writes(service, table) == ["upload"]


@needs_store
def test_a_clear_of_a_finished_load_loads_in_the_mode(
    service: Service, table: str, task: TaskRun, pace: dict[str, Any]
) -> None:
    load = TdsLoadOperator(table_id=table, rows=ROWS, mode="append", **pace)
    task.execute(load)
    clear(task)

    assert task.execute(load)["row_count"] == 4
    assert writes(service, table) == ["upload", "append"]


@needs_store
def test_a_clear_that_asks_for_a_new_load_of_an_unfinished_upload_gets_one_in_the_mode(
    service: Service, table: str, task: TaskRun
) -> None:
    load = TdsLoadOperator(
        task_id="it", table_id=table, rows=ROWS, mode="append", on_clear="new", deferrable=True, poll_interval=0.05
    )
    task.leave(load, service)
    clear(task)

    assert task.execute(load)["row_count"] == 4
    assert writes(service, table) == ["upload", "append"]


@needs_store
def test_a_conflict_leads_to_the_mode_where_no_upload_of_ours_is_open(
    service: Service, table: str, task: TaskRun, pace: dict[str, Any]
) -> None:
    service.fault("upload", status=409)

    assert task.execute(TdsLoadOperator(table_id=table, rows=ROWS, mode="append", **pace))["row_count"] == 2
    assert writes(service, table) == ["upload", "append"]


def test_a_conflict_without_a_record_is_a_conflict(
    service: Service, table: str, task: TaskRun, pace: dict[str, Any]
) -> None:
    service.fault("upload", status=409)

    with pytest.raises(
        errors.Conflict, match="perhaps by an earlier try of this task, of which there is no record"
    ) as r:
        task.execute(TdsLoadOperator(table_id=table, rows=ROWS, mode="append", durable=False, **pace))
    assert isinstance(r.value, AirflowFailException)
    assert writes(service, table) == ["upload"]


@needs_store
def test_another_mode_in_a_retry_is_another_write(service: Service, table: str, task: TaskRun) -> None:
    load = TdsLoadOperator(task_id="it", table_id=table, rows=ROWS, mode="append", deferrable=True)
    task.leave(load, service)

    with pytest.raises(errors.DifferentWrite):
        task.execute(TdsLoadOperator(task_id="it", table_id=table, rows=ROWS, mode="overwrite"))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"mode": "merge"}, "mode is append, overwrite or upsert, not 'merge'"),
        ({"mode": "upsert"}, "upsert needs key_columns"),
    ],
)
def test_a_wrong_mode_is_refused_even_where_the_first_load_needs_none(
    service: Service, table: str, task: TaskRun, given: dict[str, Any], text: str
) -> None:
    before = len(service.requests)

    with pytest.raises(errors.ValidationFailed, match=text):
        task.execute(TdsLoadOperator(task_id="it", table_id=table, rows=ROWS, **given))
    assert len(service.requests) == before


def test_there_is_no_default_mode() -> None:
    with pytest.raises(Exception, match="mode"):
        TdsLoadOperator(task_id="it", table_id="t", rows=ROWS)  # type: ignore[call-arg]  # that is the point
