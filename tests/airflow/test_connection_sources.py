"""A connection is read from wherever Airflow keeps it: environment, metadata database, secrets backend."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_tds.local import Service

#: Processes of Airflow on a busy machine.
pytestmark = pytest.mark.timeout(900)

SCRIPT = """
import asyncio, json, os, sys
from airflow.models import Connection
from airflow.utils.session import create_session
from airflow_tds.doctor.command import main
from airflow_tds.hooks import TdsHook, async_settings

fields = json.loads(os.environ["FIELDS"])
with create_session() as session:
    session.add(Connection(conn_id="of_database", **fields))
names = ["of_environment", "of_database", "of_backend"]
said = {name: TdsHook(name).test_connection() for name in names}
said["async"] = [asyncio.run(async_settings(name)).base_url for name in names]
del os.environ["_AIRFLOW_PROCESS_CONTEXT"]  # as a command in a shell
said["doctor"] = [main(["doctor", name]) for name in names]
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said(running: Service, airflow_home: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[object]]:
    """What trying each connection says, in a process with a database of its own."""
    address, _, port = running.url.removeprefix("http://").partition(":")
    extra = json.dumps({"connect_timeout": 5})
    fields = {"conn_type": "tds", "schema": "http", "host": address, "port": int(port), "extra": extra}
    fields["password"] = running.token
    kept = tmp_path_factory.mktemp("backend") / "connections.json"
    kept.write_text(json.dumps({"of_backend": fields}))
    own = {
        "AIRFLOW_HOME": str(airflow_home),
        "AIRFLOW_CONN_OF_ENVIRONMENT": json.dumps(fields),
        "AIRFLOW__SECRETS__BACKEND": "airflow.secrets.local_filesystem.LocalFilesystemBackend",
        "AIRFLOW__SECRETS__BACKEND_KWARGS": json.dumps({"connections_file_path": str(kept)}),
        "FIELDS": json.dumps(fields),
        "_AIRFLOW_PROCESS_CONTEXT": "server",  # as the server that tries a connection; a worker asks the server
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT],
        env={name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")} | own,
        capture_output=True,
        text=True,
        check=False,
        timeout=800,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, list[object]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("source", ["of_environment", "of_database", "of_backend"])
def test_a_connection_is_found_and_lets_in(said: dict[str, list[object]], source: str, running: Service) -> None:
    assert said[source] == [True, f"{running.url} lets us in as whoever has the token"]


def test_the_triggerer_finds_them_too(said: dict[str, list[object]], running: Service) -> None:
    assert said["async"] == [running.url] * 3


def test_the_doctor_finds_them_too(said: dict[str, list[object]]) -> None:
    assert said["doctor"] == [0, 0, 0]
