"""Writes from a task's own code: what the operators promise, by one call of the hook."""

from __future__ import annotations

from typing import Any

import pytest
from harness import TaskRun, needs_store

from airflow_tds.client import errors
from airflow_tds.hooks import TdsHook
from airflow_tds.local import Service

ROWS = "id,name\n1,a\n2,b\n"


def write(task: TaskRun, op: Any, table: str, **arguments: Any) -> dict[str, Any]:
    """Write as a task's code does."""
    given: dict[str, Any] = {"data": ROWS, "poll_interval": 0.05} | arguments
    return TdsHook().durable_write(task.context(), op, table, **given)


def retried(task: TaskRun) -> TaskRun:
    """Give the task instance its next try."""
    task.tries = TaskRun().tries
    return task


@pytest.mark.parametrize(("op", "rows"), [("append", 4), ("overwrite", 2), ("upsert", 2)])
def test_rows_are_written_and_the_table_is_referred_to(service: Service, table: str, op: str, rows: int) -> None:
    write(TaskRun(), "upload", table)
    result = write(TaskRun(), op, table, key_columns="id" if op == "upsert" else ())

    assert (result["table_id"], result["row_count"]) == (table, rows)
    assert result["job_id"]


@needs_store
def test_a_retry_writes_nothing(service: Service, table: str, task: TaskRun) -> None:
    first = write(task, "append", table)

    assert write(retried(task), "append", table) == first
    assert first["row_count"] == 2


@needs_store
def test_two_writes_of_a_task_have_slots_of_their_own(service: Service, table: str, task: TaskRun) -> None:
    write(task, "append", table, slot="one")

    assert write(task, "append", table, slot="two")["row_count"] == 4
    assert write(retried(task), "append", table, slot="two")["row_count"] == 4


def test_one_slot_twice_is_refused_before_anything_is_sent(service: Service, table: str, task: TaskRun) -> None:
    write(task, "append", table)
    before = len(service.requests)

    with pytest.raises(errors.ValidationFailed, match=f"slot 'append:{table}' already: give each of its writes"):
        write(task, "append", table)
    assert len(service.requests) == before


@pytest.mark.parametrize("arguments", [{"data": None}, {"on_clear": "never"}, {"timeout": 0}, {"source": "s3://b/k"}])
def test_bad_input_is_refused_before_anything_is_sent(
    service: Service, table: str, task: TaskRun, arguments: dict[str, Any]
) -> None:
    before = len(service.requests)

    with pytest.raises(errors.ValidationFailed):
        write(task, "append", table, **arguments)
    assert len(service.requests) == before


def test_the_plain_error_is_raised(service: Service, table: str, task: TaskRun) -> None:
    with pytest.raises(errors.JobFailed) as raised:
        write(task, "append", table, data="id\n1\n", format="json")
    assert type(raised.value) is errors.JobFailed
