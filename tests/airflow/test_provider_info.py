"""What Airflow makes of the provider: discovery, documentation of the form, no heavy import."""

from __future__ import annotations

import importlib
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from airflow_tds.hooks import TdsHook
from airflow_tds.local import Service
from airflow_tds.provider_info import get_provider_info
from airflow_tds.settings import EXTRA

ROOT = Path(__file__).parents[2]
AIRFLOW = tuple(map(int, version("apache-airflow").split(".")[:2]))


def airflow(*arguments: str) -> str:
    """Run an airflow command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "airflow", *arguments], check=True, capture_output=True, text=True
    ).stdout


def test_airflow_finds_the_provider() -> None:
    assert "airflow_tds.hooks.TdsHook" not in airflow("providers", "get", "airflow-tds")
    assert "Table Data Service" in airflow("providers", "get", "airflow-tds", "--full", "-o", "json")


def test_airflow_finds_the_hook() -> None:
    assert "TdsHook" in airflow("providers", "hooks", "-o", "json")


needs_commands = pytest.mark.skipif(AIRFLOW < (3, 2), reason="Airflow takes commands of providers from 3.2 on")


@needs_commands
def test_the_doctor_is_a_command_of_airflows(running: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_TDS_DEFAULT", running.connection_json)

    assert f"{running.url} lets us in" in airflow("tds", "doctor")


def test_every_module_that_is_named_exists() -> None:
    info = get_provider_info()
    modules = [
        name
        for kind in ("hooks", "operators", "sensors", "triggers")
        for one in info[kind]
        for name in one["python-modules"]
    ]

    assert [importlib.import_module(name).__name__ for name in modules] == modules


def test_the_form_offers_exactly_what_a_connection_may_hold() -> None:
    form = get_provider_info()["connection-types"][0]

    assert sorted(form["conn-fields"]) == sorted(EXTRA)
    assert form["connection-type"] == TdsHook.conn_type


def test_the_example_dag_parses_without_network() -> None:
    script = (
        "import socket, sys\n"
        "def refuse(*a, **k): raise AssertionError('network while parsing')\n"
        "socket.socket.connect = socket.getaddrinfo = refuse\n"
        "import runpy\n"
        "dag = runpy.run_path(sys.argv[1])['dag']\n"
        "print(dag.dag_id, len(dag.tasks))\n"
        "heavy = {'httpx_aiohttp', 'duckdb'} & set(sys.modules)\n"
        "ours = {m for m in sys.modules if m.startswith('airflow_tds.')}\n"
        "ours -= {m for m in ours if m.startswith('airflow_tds.operators.')}\n"
        "assert not heavy, heavy\n"
        "assert ours <= {'airflow_tds.client', 'airflow_tds.client.errors', 'airflow_tds.compat', "
        "'airflow_tds.operators', 'airflow_tds.provider_info'}, ours\n"
    )
    parsed = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, str(ROOT / "example_dags" / "flights.py")],
        capture_output=True,
        text=True,
        check=False,
    )

    assert parsed.returncode == 0, parsed.stderr
    assert parsed.stdout.startswith("flights ")
