"""Operators against a service that does everything otherwise, told by a connection alone, in both modes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from harness import TaskRun, needs_store
from other_service import KEY, KEY_HEADER, OtherService, Sheet, other_service

from airflow_tds.client import errors
from airflow_tds.operators import (
    TdsAppendOperator,
    TdsCrossQueryOperator,
    TdsOverwriteOperator,
    TdsTruncateOperator,
    TdsUploadOperator,
    TdsUpsertOperator,
)

WIRE = json.loads((Path(__file__).parents[1] / "support" / "other_wire.json").read_text())


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> Iterator[OtherService]:
    """Serve, and point `tds_default` there."""
    with other_service(u=Sheet(["id", "city"], [["1", "x"], ["2", "y"]], 1)) as service:
        extra = {"auth": "api_key", "api_key_header": KEY_HEADER, "wire": WIRE}
        values = {"conn_type": "tds", "host": service.url, "password": KEY, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_TDS_DEFAULT", json.dumps(values))
        yield service


@pytest.fixture
def pace(deferrable: bool) -> dict[str, Any]:
    """Mode and pace of an operator under test."""
    return {"task_id": "it", "table_id": "u", "deferrable": deferrable, "poll_interval": 0.05}


def test_writes_whose_job_is_known_beforehand_are_done(other: OtherService, pace: dict[str, Any]) -> None:
    TaskRun().execute(TdsOverwriteOperator(data="id,city\n7,z\n", **pace))
    TaskRun().execute(TdsUpsertOperator(data="id,city\n8,w\n", key_columns=["id"], **pace))

    assert other.sheets["u"].rows == [["7", "z"], ["8", "w"]]


def test_a_table_is_emptied(other: OtherService, pace: dict[str, Any]) -> None:
    assert TaskRun().execute(TdsTruncateOperator(**pace))["row_count"] == 0
    assert other.sheets["u"].rows == []


def test_a_query_becomes_a_file(other: OtherService, pace: dict[str, Any], tmp_path: Path) -> None:
    del pace["table_id"]
    request = {"table_id": "u", "select": ["city"], "format": "csv"}

    TaskRun().execute(TdsCrossQueryOperator(request=request, destination=str(tmp_path / "r.csv"), **pace))

    assert (tmp_path / "r.csv").read_text() == "city\nx\ny\n"


def test_a_write_whose_job_the_commit_names_is_done(other: OtherService, pace: dict[str, Any]) -> None:
    TaskRun().execute(TdsAppendOperator(data="id,city\n7,z\n", **pace))

    assert other.sheets["u"].rows == [["1", "x"], ["2", "y"], ["7", "z"]]
    assert [line.split("?")[0].rpartition("/")[2] for line in other.lines if line.startswith("POST")] == [
        "staging",
        "ops",
    ]


def test_a_write_whose_data_is_in_its_request_is_done(other: OtherService, pace: dict[str, Any]) -> None:
    other.sheets["u"] = Sheet()

    TaskRun().execute(TdsUploadOperator(data="id,city\n7,z\n", **pace))

    assert other.sheets["u"].rows == [["7", "z"]]
    assert not any("/store/" in line for line in other.lines)


@needs_store
@pytest.mark.parametrize(("operator", "line"), [(TdsUploadOperator, "/first/"), (TdsAppendOperator, "/ops")])
def test_a_write_whose_answer_was_lost_is_not_sent_again(
    other: OtherService, pace: dict[str, Any], operator: Any, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if operator is TdsUploadOperator:
        other.sheets["u"] = Sheet()
    monkeypatch.setattr(other, "open_ticket", lambda *_: {"an answer": "without a job"})
    task = TaskRun()

    for _ in range(2):
        with pytest.raises(errors.AmbiguousWriteError, match="may still be applied") as raised:
            task.execute(operator(data="id,city\n7,z\n", **pace))
        assert isinstance(raised.value, AirflowFailException)
    assert sum(line in sent for sent in other.lines) == 1
