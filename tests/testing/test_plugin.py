"""The fixtures for users: what the page shows works as it stands, and nothing heavy comes along."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run_tests(folder: Path, content: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a file of tests as a user does."""
    (folder / "test_people.py").write_text(content)
    command = [sys.executable, "-m", "pytest", "-p", "airflow_tds.testing", "-q", "--rootdir", str(folder), str(folder)]
    environment = {**os.environ, **variables}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=folder)


@pytest.mark.timeout(900)  # Airflow makes its database and runs three DAGs, on a machine that may be busy
def test_the_pages_example_passes(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "testing.md").read_text()
    example = "\n\n".join(re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    folder = tmp_path / "dags"
    folder.mkdir()
    airflow = {"AIRFLOW_HOME": str(tmp_path / "airflow"), "AIRFLOW__CORE__DAGS_FOLDER": str(folder)}
    migrate = [sys.executable, "-m", "airflow", "db", "migrate"]
    subprocess.run(migrate, check=True, capture_output=True, env={**os.environ, **airflow})
    done = run_tests(folder, example, **airflow)
    assert "3 passed" in done.stdout, done.stdout[-4000:]


@pytest.fixture
def outcome(tmp_path: Path) -> str:
    """What became of tests that use the fixtures in each way."""
    content = """
import pytest
from airflow_tds.client.client import TableClient

def test_one(tds_service):
    tds_service.create_table("t")

def test_each_has_a_service_of_its_own(tds_service):
    with TableClient(tds_service.url, token=tds_service.token) as client, pytest.raises(Exception, match="not exist"):
        client.info("t")

def test_forgotten(tds_service):
    tds_service.fault("append", status=503, times=2)

def test_connection(tds_connection, tds_service):
    from airflow_tds.hooks import TdsHook
    tds_service.create_table("t")
    with TdsHook(tds_connection).get_conn() as client:
        assert client.info("t").row_count == 0

@pytest.mark.parametrize("tds_wire", [{"info": "GET /stats/{table_id}"}])
def test_other_forms(tds_connection, tds_service, tds_wire):
    from airflow_tds.hooks import TdsHook
    tds_service.create_table("t")
    with TdsHook(tds_connection).get_conn() as client:
        assert client.info("t").row_count == 0
    assert tds_service.requests[-1].path == "/stats/t"
"""
    return run_tests(tmp_path, content).stdout


def test_services_are_separate_and_forgotten_faults_are_told(outcome: str) -> None:
    assert "5 passed, 1 error" in outcome
    assert "scripted faults that never happened: append (2 of 2)" in outcome


def test_the_plugin_is_registered_under_its_own_name() -> None:
    """Under another one, `-p airflow_tds.testing` would register it twice."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["entry-points"]["pytest11"] == {"airflow_tds.testing": "airflow_tds.testing"}


def test_the_plugin_imports_nothing_heavy() -> None:
    script = (
        "import pytest, sys; before = set(sys.modules); import airflow_tds.testing; print(*set(sys.modules) - before)"
    )
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert sorted(loaded) == ["airflow_tds", "airflow_tds.testing"]
