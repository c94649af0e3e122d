"""An embedded service behind an Airflow connection, and a task instance whose store survives its tries."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import TaskRun, connect

from airflow_tds.local import Service


@pytest.fixture(scope="module")
def running() -> Iterator[Service]:
    """One service for a file's tests; each test takes tables of its own."""
    with Service() as service:
        yield service


@pytest.fixture
def service(running: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """The service as the connection `tds_default`; what a test held or scripted ends with it."""
    connect(running, monkeypatch)
    yield running
    running.release()
    running.clear_faults()


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


@pytest.fixture(scope="session")
def airflow_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home of Airflow's with a database that is made and empty; made once, so copy it to write to it."""
    home = tmp_path_factory.mktemp("airflow-home")
    others = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "airflow", "db", "migrate"],
        env=others | {"AIRFLOW_HOME": str(home), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"},
        capture_output=True,
        text=True,
        check=False,
        timeout=800,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return home


@pytest.fixture(params=[False, True], ids=["blocking", "deferred"])
def deferrable(request: pytest.FixtureRequest) -> bool:
    """Each test runs in both modes."""
    return bool(request.param)
