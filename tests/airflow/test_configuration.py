"""What is said where: an argument goes before the connection, the connection before [tds], that before the defaults."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from harness import TaskRun, connect

from airflow_tds.client.errors import ValidationFailed
from airflow_tds.hooks import TdsHook, async_settings
from airflow_tds.local import Service
from airflow_tds.operators import TdsAppendOperator
from airflow_tds.provider_info import get_provider_info
from airflow_tds.settings import CONFIGURABLE

ROWS = "id,name\n1,a\n"


@pytest.fixture
def loaded(table: str) -> str:
    """A table with a row."""
    TdsHook().upload(table, ROWS, "csv", poll_interval=0.05)
    return table


def waits(service: Service, table: str, **given: Any) -> tuple[float, float]:
    """Give pace and length of a deferred wait, seconds."""
    append = TdsAppendOperator(task_id="it", table_id=table, data=ROWS, deferrable=True, **given)
    watch = TaskRun().leave(append, service).trigger.serialize()[1]
    return watch["poll_interval"], watch["deadline"] - watch["started"]


def test_each_goes_before_the_next(service: Service, loaded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = [waits(service, loaded)]
    monkeypatch.setenv("AIRFLOW__TDS__POLL_INTERVAL", "20")
    monkeypatch.setenv("AIRFLOW__TDS__TIMEOUT", "2000")
    seen.append(waits(service, loaded))
    connect(service, monkeypatch, poll_interval=10, timeout="1000")
    seen.append(waits(service, loaded))
    seen.append(waits(service, loaded, poll_interval=5, timeout=500))

    assert seen == [(30, 7 * 24 * 3600), (20, 2000), (10, 1000), (5, 500)]


def test_a_wait_in_a_tasks_own_code_is_as_configured(
    service: Service, loaded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__TDS__TIMEOUT", "0")

    with pytest.raises(ValidationFailed, match="timeout and poll_interval are seconds above zero"):
        TdsHook().durable_write(TaskRun().context(), "append", loaded, data=ROWS)


def test_the_place_of_records_is_as_configured(
    service: Service, loaded: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AIRFLOW__TDS__STORE", str(tmp_path / "by-configuration"))
    TaskRun().execute(TdsAppendOperator(task_id="it", table_id=loaded, data=ROWS, poll_interval=0.05))
    TdsHook().durable_write(TaskRun().context(), "append", loaded, data=ROWS, poll_interval=0.05)
    records = sorted(path.name for path in (tmp_path / "by-configuration").rglob("*.json"))
    TaskRun().execute(
        TdsAppendOperator(task_id="it", table_id=loaded, data=ROWS, store=str(tmp_path / "own"), poll_interval=0.05)
    )

    assert len(records) == 2
    assert len(list((tmp_path / "own").rglob("*.json"))) == 1


def test_the_client_is_as_patient_as_configured(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__TDS__READ_TIMEOUT", "7")
    monkeypatch.setenv("AIRFLOW__TDS__TRANSFER_TIMEOUT", "70")  # the connection says 60

    timeouts = [TdsHook().settings().timeouts(), asyncio.run(async_settings("tds_default")).timeouts()]

    assert [(one.read, one.transfer) for one in timeouts] == [(7, 60), (7, 60)]


@pytest.mark.parametrize("name", ["poll_interval", "timeout", "read_timeout"])
def test_what_is_no_number_is_named(service: Service, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(f"AIRFLOW__TDS__{name.upper()}", "soon")

    with pytest.raises(
        ValidationFailed, match=rf"'{name}' is a number of seconds, not 'soon' \(it may stand in \[tds\]\)"
    ):
        TdsHook().get_conn()


def test_airflow_is_told_every_option() -> None:
    section = get_provider_info()["config"]["tds"]

    assert sorted(section["options"]) == sorted(CONFIGURABLE)
    assert {option["type"] for option in section["options"].values()} == {"float", "string"}
