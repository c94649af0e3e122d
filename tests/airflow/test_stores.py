"""Records in places of the user's, on the Airflow that this runs on: its real Variables, its real object storage."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from typing import Any
from uuid import uuid4

import airflow
import pytest
from fsspec.implementations.memory import MemoryFileSystem  # type: ignore[import-untyped]
from harness import TaskRun

from airflow_tds.client import errors
from airflow_tds.compat import variables
from airflow_tds.local import Service
from airflow_tds.operators import TdsAppendOperator, TdsUploadOperator

#: Airflow 2.11's own path of an object, with the UPath of its time.
pytestmark = pytest.mark.filterwarnings("ignore:in a future version of UPath:PendingDeprecationWarning")
ROWS = "id,name\n1,a\n2,b\n"
VERSION = tuple(map(int, airflow.__version__.split(".")[:2]))
#: From 3.0 on a Variable is the API server's, which tests of one process do not have; tests/system has.
needs_own_database = pytest.mark.skipif(VERSION >= (3, 0), reason="Variables are behind the API server")


@pytest.fixture
def old(task: TaskRun) -> TaskRun:
    """A task instance without a task state store."""
    task.has_store = False
    return task


@pytest.fixture
def loaded(table: str) -> str:
    TaskRun().execute(TdsUploadOperator(task_id="load", table_id=table, data=ROWS, poll_interval=0.05))
    return table


@pytest.fixture
def memory() -> str:
    """Objects in memory; below 3.2 Airflow knows a file system only once it is attached."""
    if VERSION < (3, 2):
        place = import_module("airflow.io.store" if VERSION < (3, 0) else "airflow.sdk.io")
        place.attach("memory", fs=MemoryFileSystem())
    return f"memory://records/{uuid4().hex}"


@pytest.fixture
def database() -> Iterator[None]:
    """The one table that Variables need."""
    from airflow import settings

    table: Any = variables().__table__
    table.create(settings.engine, checkfirst=True)
    yield
    table.drop(settings.engine)


def append(table: str, store: str, *, deferrable: bool = False, **more: Any) -> TdsAppendOperator:
    pace = {"poll_interval": 0.05, "deferrable": deferrable}
    return TdsAppendOperator(task_id="it", table_id=table, data=ROWS, store=store, **(pace | more))


def appends(service: Service, table: str) -> int:
    return sum(r.operation == "append" and f"/{table}/" in r.path for r in service.requests)


def test_a_record_in_an_object_store_outlives_its_try(
    service: Service, loaded: str, old: TaskRun, memory: str, deferrable: bool
) -> None:
    old.execute(append(loaded, memory, deferrable=deferrable))

    assert old.execute(append(loaded, memory, deferrable=deferrable))["row_count"] == 4
    assert appends(service, loaded) == 1
    found = MemoryFileSystem().find(memory.removeprefix("memory:/"))
    assert [path.rpartition("records/")[2].partition("/")[2] for path in found] == ["dag/run/it/-1/tds.write.v1.json"]


def test_an_unfinished_record_in_an_object_store_is_gone_on_with(
    service: Service, loaded: str, old: TaskRun, memory: str
) -> None:
    service.hold()
    try:
        with pytest.raises(errors.WaitTimedOut):
            old.execute(append(loaded, memory, timeout=0.3))
    finally:
        service.release()

    assert old.execute(append(loaded, memory))["row_count"] == 4
    assert appends(service, loaded) == 1


@needs_own_database
def test_a_record_in_a_variable_outlives_its_try(
    service: Service, loaded: str, old: TaskRun, database: None, deferrable: bool
) -> None:
    old.execute(append(loaded, "variable", deferrable=deferrable))

    assert old.execute(append(loaded, "variable", deferrable=deferrable))["row_count"] == 4
    assert appends(service, loaded) == 1
    assert json.loads(variables().get("dag__run__it__-1__tds.write.v1"))["phase"] == "done"
