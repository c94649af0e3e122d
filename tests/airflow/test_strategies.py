"""Writes whose job is known once they are submitted, by operators and hook, against the embedded service."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
from harness import TaskRun, connect, needs_store

from airflow_tds.client import errors
from airflow_tds.client.client import TableClient
from airflow_tds.client.wire import Wire
from airflow_tds.hooks import TdsHook
from airflow_tds.local import Service
from airflow_tds.operators import TdsAppendOperator, TdsOverwriteOperator, TdsUploadOperator, TdsUpsertOperator

FIRST, OURS = "id,name\n1,a\n2,b\n", "id,name\n2,z\n3,c\n"
OPERATORS: dict[str, Any] = {
    "upload": TdsUploadOperator,
    "append": TdsAppendOperator,
    "overwrite": TdsOverwriteOperator,
    "upsert": TdsUpsertOperator,
}
AFTER = {"upload": ["c", "z"], "append": ["a", "b", "c", "z"], "overwrite": ["c", "z"], "upsert": ["a", "c", "z"]}


def setting(strategy: str) -> dict[str, Any]:
    return {op: {"strategy": strategy} for op in OPERATORS} | {"no_data_statuses": ["AWAITING"]}


@pytest.fixture(scope="module", params=["put_commit", "direct"])
def served(request: pytest.FixtureRequest) -> Iterator[tuple[Service, Wire]]:
    """A service for each strategy; `initiate_put`, the default, is every other test's."""
    wire = Wire.from_setting(setting(request.param))
    with Service(wire=wire) as service:
        yield service, wire


@dataclass(frozen=True)
class Target:
    """One write to come: its operation, and a table that has two rows, or never had any where it is uploaded."""

    service: Service
    reader: TableClient
    op: str
    table: str

    def operator(self, *, deferrable: bool) -> Any:
        keys = {"key_columns": "id"} if self.op == "upsert" else {}
        pace = {"task_id": "it", "deferrable": deferrable, "poll_interval": 0.05}
        return OPERATORS[self.op](table_id=self.table, data=OURS, **pace, **keys)

    def sent(self) -> int:
        return sum(r.operation == self.op and f"/{self.table}/" in r.path for r in self.service.requests)

    def names(self) -> list[str]:
        """Give the rows once no write is under way any more."""
        store = self.service._store
        with store.changed:
            assert store.changed.wait_for(lambda: not any(j.status == "queued" for j in store.newest_jobs(10_000)), 60)
        return sorted(row["name"] for row in self.reader.iter_rows(self.table))


@pytest.fixture(params=OPERATORS)
def target(
    served: tuple[Service, Wire], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Target]:
    service, wire = served
    connect(service, monkeypatch, wire=setting(wire.strategy("append")))
    table = f"t{uuid4().hex}"
    service.create_table(table)
    with TableClient(service.url, token=service.token, wire=wire) as reader:
        if request.param != "upload":
            reader.upload(table, FIRST, poll_interval=0.05)
        service._log.clear()
        yield Target(service, reader, request.param, table)


def test_rows_are_written_once_and_a_retry_writes_nothing(target: Target, task: TaskRun, deferrable: bool) -> None:
    task.execute(target.operator(deferrable=deferrable))
    if task.has_store:
        task.execute(target.operator(deferrable=deferrable))

    assert target.names() == AFTER[target.op]
    assert target.sent() == 1


@needs_store
def test_a_request_that_lost_its_answer_is_ambiguous_for_every_later_try(target: Target, task: TaskRun) -> None:
    target.service.fault(target.op, cut=True, applied=True)

    for _ in range(2):
        with pytest.raises(errors.AmbiguousWriteError, match="may still be applied"):
            task.execute(target.operator(deferrable=False))

    assert target.names() == AFTER[target.op]
    assert target.sent() == 1


def test_a_hook_writes_by_the_strategy_of_its_connection(target: Target, task: TaskRun) -> None:
    op: Any = target.op
    keys = ("id",) if op == "upsert" else ()
    TdsHook().durable_write(task.context(), op, target.table, data=OURS, key_columns=keys, poll_interval=0.05)

    assert target.names() == AFTER[op]
