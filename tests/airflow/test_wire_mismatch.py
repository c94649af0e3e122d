"""A route that the service does not have ends a task at once and names its setting, in both modes."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from harness import TaskRun, connect

from airflow_tds.client import errors
from airflow_tds.local import Service
from airflow_tds.operators import TdsTruncateOperator, TdsUploadOperator, TdsUpsertOperator

ROWS = "id,name\n1,a\n"


@pytest.mark.parametrize("operation", ["upsert", "truncate"])
def test_a_missing_route_ends_the_task_and_changes_nothing(
    service: Service, table: str, monkeypatch: pytest.MonkeyPatch, deferrable: bool, operation: str
) -> None:
    pace: dict[str, Any] = {"task_id": "it", "table_id": table, "deferrable": deferrable, "poll_interval": 0.05}
    TaskRun().execute(TdsUploadOperator(data=ROWS, **pace))
    connect(service, monkeypatch, wire={operation: "POST /elsewhere/{table_id}"})
    upsert = TdsUpsertOperator(data="id,name\n1,z\n", key_columns=["id"], **pace)

    with pytest.raises(errors.WireMismatch, match=f"wire setting '{operation}'") as raised:
        TaskRun().execute(upsert if operation == "upsert" else TdsTruncateOperator(**pace))

    assert isinstance(raised.value, AirflowFailException)
    assert service._store.table(table).row_count == 1
