"""An embedded service behind an Airflow connection, and a task instance whose store survives its tries."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from harness import TaskRun, connect

from airflow_tds.local import Service


@pytest.fixture(scope="module")
def running() -> Iterator[Service]:
    """One service for a file's tests; each test takes tables of its own."""
    with Service() as service:
        yield service


@pytest.fixture
def service(running: Service, monkeypatch: pytest.MonkeyPatch) -> Service:
    """The service as the connection `tds_default`."""
    connect(running, monkeypatch)
    return running


@pytest.fixture
def table(service: Service, request: pytest.FixtureRequest) -> str:
    """A table that never had data, named after the test."""
    name = re.sub(r"\W+", "_", str(request.node.name))
    service.create_table(name)
    return name


@pytest.fixture
def task() -> TaskRun:
    """A fresh task instance."""
    return TaskRun()


@pytest.fixture(params=[False, True], ids=["blocking", "deferred"])
def deferrable(request: pytest.FixtureRequest) -> bool:
    """Each test runs in both modes."""
    return bool(request.param)
