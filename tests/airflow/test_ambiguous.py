"""An AmbiguousWriteError is read as an operator reads it, and what its text says is done: in both modes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from harness import TaskRun, needs_store

from airflow_tds.client import errors
from airflow_tds.client.client import TableClient
from airflow_tds.local import Service
from airflow_tds.operators import TdsAppendOperator, TdsDeleteRowsOperator, TdsUploadOperator

pytestmark = needs_store

FIRST, OURS, THEIRS = "id,name\n1,a\n", "id,name\n2,b\n", b"id,name\n7,g\n"


@pytest.fixture
def reader(service: Service) -> Iterator[TableClient]:
    """What a person looks at the table with."""
    with TableClient(service.url, token=service.token) as client:
        yield client


@pytest.fixture
def loaded(table: str) -> str:
    """A table with one row."""
    TaskRun().execute(TdsUploadOperator(task_id="load", table_id=table, data=FIRST, poll_interval=0.05))
    return table


@pytest.fixture
def pace(deferrable: bool, loaded: str) -> dict[str, Any]:
    """Mode, table and pace of an operator under test."""
    return {"task_id": "it", "table_id": loaded, "deferrable": deferrable, "poll_interval": 0.05}


def text_of(task: TaskRun, operator: Any) -> str:
    """Run into an AmbiguousWriteError; give its text. Airflow does not retry it."""
    with pytest.raises(errors.AmbiguousWriteError) as raised:
        task.execute(operator)
    assert isinstance(raised.value, AirflowFailException)
    return str(raised.value)


def delete_record(task: TaskRun, text: str) -> None:
    """Delete the record where the text says that it is."""
    found = re.search(r"The record is in the task's state store, key ([\w.]+)\. ", text)
    assert found
    del task.values[found[1]]


def clear(task: TaskRun) -> None:
    task.max_tries += 2
    task.clear_number += 1


def names(reader: TableClient, table: str) -> list[str]:
    return sorted(row["name"] for row in reader.iter_rows(table))


def test_what_was_applied_is_marked_as_success_and_stays_once(
    service: Service, reader: TableClient, task: TaskRun, pace: dict[str, Any]
) -> None:
    append = TdsAppendOperator(data=OURS, **pace)
    service.fault("append", job="fails_after_applying")

    text = text_of(task, append)

    assert f"append on table {append.table_id}" in text
    assert "last status: FAILED" in text
    assert "can not be applied any more" in text
    assert "if it was applied, delete the record and mark the task as success" in text
    assert names(reader, append.table_id) == ["a", "b"]
    delete_record(task, text)
    assert task.values == {}


def test_what_was_not_applied_is_cleared_and_written_once(
    service: Service, reader: TableClient, task: TaskRun, pace: dict[str, Any]
) -> None:
    service.hold()
    with pytest.raises(errors.WaitTimedOut):
        task.execute(TdsAppendOperator(data="id,name\nx,b\n", timeout=0.3, **pace))
    theirs = reader.submit_append(pace["table_id"], THEIRS)
    service.release()
    reader.wait(theirs, poll_interval=0.05)

    text = text_of(task, TdsAppendOperator(data="id,name\nx,b\n", **pace))

    assert "can not be applied any more" in text
    assert "if it was not, and can not be any more, delete the record and clear the task" in text
    assert names(reader, pace["table_id"]) == ["a", "g"]
    delete_record(task, text)
    clear(task)
    task.execute(TdsAppendOperator(data=OURS, **pace))
    assert names(reader, pace["table_id"]) == ["a", "b", "g"]


@pytest.mark.parametrize("applied", [True, False])
def test_what_may_still_be_applied_is_not_cleared_until_that_is_settled(
    service: Service, reader: TableClient, task: TaskRun, pace: dict[str, Any], applied: bool
) -> None:
    delete = TdsDeleteRowsOperator(filters="id:eq:1", **pace)
    service.fault("delete_rows", cut=True, applied=applied)

    text = text_of(task, delete)

    assert "may still be applied: until that is settled, clearing without the record can write it twice" in text
    assert "snapshot before: " in text
    assert f"now: {reader.info(delete.table_id).snapshot_id} ({0 if applied else 1} rows)" in text
    clear(task)
    assert text_of(task, delete).startswith("It cannot be known whether delete_rows")
    if not applied:  # the service has no such request under way: its log says so
        delete_record(task, text)
        clear(task)
        task.execute(delete)
    assert names(reader, delete.table_id) == []


def test_the_text_of_a_doubt_about_a_finished_write_leads_to_one_write(
    reader: TableClient, task: TaskRun, pace: dict[str, Any]
) -> None:
    append = TdsAppendOperator(data=OURS, **pace)
    task.execute(append)
    task.clear_number += 1

    text = text_of(task, append)

    assert "phase: doubt" in text
    assert "a task of this DAG run was cleared since, perhaps this one" in text
    clear(task)
    assert text_of(task, append).startswith("It cannot be known")
    assert names(reader, append.table_id) == ["a", "b"]
    delete_record(task, text)
