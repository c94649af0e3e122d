"""No secret and no row is found where nobody looks for it: canaries are planted, and everything is searched.

Two searches: real DAG runs with a database of their own, everything at DEBUG; and tries of a task whose deferrals,
XComs and records are kept as Airflow keeps them.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import shutil
import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote

import canaries
import pytest
from harness import TaskRun

from airflow_tds.client.errors import TableServiceError
from airflow_tds.client.messages import SecretUrl
from airflow_tds.local import Service
from airflow_tds.operators import TdsAppendOperator, TdsCrossQueryOperator

#: Two DAG runs in a process of their own, on a busy machine.
pytestmark = pytest.mark.timeout(900)
AIRFLOW = tuple(map(int, version("apache-airflow").split(".")[:2]))
SUPPORT = Path(__file__).parents[1] / "support"


@dataclass(frozen=True)
class Searched:
    """What two DAG runs left behind."""

    states: dict[str, dict[str, str]]
    secrets: list[str]
    signatures: list[str]
    places: dict[str, bytes]
    database: Path

    def holding(self, *canaries: str) -> dict[str, list[str]]:
        """Name the places that hold a canary, quoted or not."""
        forms = {canary: {canary, quote(canary, safe=""), json.dumps(canary)[1:-1]} for canary in canaries}
        found = {
            canary: [place for place, content in self.places.items() if any(f.encode() in content for f in those)]
            for canary, those in forms.items()
        }
        return {canary: places for canary, places in found.items() if places}


@pytest.fixture(scope="module")
def searched(airflow_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Searched:
    home, out = tmp_path_factory.mktemp("homes") / "home", tmp_path_factory.mktemp("out")
    shutil.copytree(airflow_home, home)
    dags = home / "dags"
    dags.mkdir()
    script = shutil.copy(SUPPORT / "canaries.py", dags / "canaries.py")
    own = {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "DEBUG",
        "CANARY_OUT": str(out),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(SUPPORT)))),
    }
    said = {"runs": run("-W", "ignore", script, **own)}
    found = json.loads((out / "found.json").read_text())
    files = [*home.rglob("*"), *(out / "searched").rglob("*")]
    places = {str(file): file.read_bytes() for file in files if file.is_file() and file.suffix != ".py"}
    return Searched(found["states"], found["secrets"], found["signatures"], places | said, home / "airflow.db")


def run(*arguments: str | Path, **own: str) -> bytes:
    """Run Python with an Airflow of its own; give all that it said."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    done = subprocess.run(
        [sys.executable, *arguments], env=environment | own, capture_output=True, check=False, timeout=800
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said.decode()[-4000:]
    # dag.test() alone shows, at DEBUG, what Airflow asks to be hidden, a connection's password first of all.
    return b"\n".join(line for line in said.splitlines() if b"MaskSecret(" not in line)


GOOD = ["upload", "append", "rows", "query", "delete", "truncate"]
BAD = ["unauthorized", "missing", "failing"]


@pytest.mark.parametrize("mode", ["blocking", "deferred"])
def test_the_runs_went_as_they_should(searched: Searched, mode: str) -> None:
    states = searched.states[mode]

    assert {task: states[task] for task in GOOD} == dict.fromkeys(GOOD, "success")
    assert {task: states[task] for task in BAD} == dict.fromkeys(BAD, "failed")


def test_the_search_finds_what_is_there(searched: Searched) -> None:
    text = b"".join(searched.places.values())

    assert b"DEBUG" in text or b"debug" in text
    assert b"Unauthorized" in text
    assert len(searched.signatures) >= 8
    known_to_call_back = AIRFLOW < (3, 0) or AIRFLOW >= (3, 3)  # not the dag.test() of 3.0 and 3.1
    kept = {".db", ".pickle"} if known_to_call_back else {".db"}
    assert {Path(place).suffix for place in searched.places} >= kept


def test_no_credential_is_found(searched: Searched) -> None:
    assert searched.holding(*searched.secrets) == {}


def test_no_signature_is_found(searched: Searched) -> None:
    assert searched.holding(*searched.signatures) == {}


def test_no_row_of_a_source_or_of_data_is_found(searched: Searched) -> None:
    held = searched.holding(canaries.IN_SOURCE, canaries.IN_DATA)

    assert {Path(place).name for places in held.values() for place in places} <= {"airflow.db"}
    assert held.get(canaries.IN_SOURCE) is None


def test_rows_are_found_in_the_serialized_dag_only(searched: Searched) -> None:
    assert {Path(place).name for places in searched.holding(canaries.IN_ROWS).values() for place in places} <= {
        "airflow.db"
    }
    with sqlite3.connect(searched.database) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        holding = {
            table
            for table in tables
            for row in database.execute(f'SELECT * FROM "{table}"')  # noqa: S608  # Airflow's own names
            if canaries.IN_ROWS in repr(row)
        }
    assert holding <= {"serialized_dag", "xcom"}


@pytest.fixture
def everything(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> tuple[pytest.LogCaptureFixture, set[str]]:
    """Log all there is, and note the secrets of every presigned URL."""
    caplog.set_level(logging.DEBUG)
    signatures: set[str] = set()
    monkeypatch.setattr(SecretUrl, "__init__", SecretUrl.__init__)  # put back in the end
    canaries.observe_signatures(signatures)
    return caplog, signatures


def test_what_airflow_keeps_of_a_task_holds_nothing(
    running: Service, everything: Any, table: str, deferrable: bool, tmp_path: Path
) -> None:
    caplog, signatures = everything
    how: dict[str, Any] = {"deferrable": deferrable, "poll_interval": 0.05}
    append = TdsAppendOperator(task_id="it", table_id=table, data=f"id,name\n1,{canaries.IN_DATA}\n", **how)
    query = TdsCrossQueryOperator(
        task_id="it", request={"table_id": table, "format": "csv"}, destination=str(tmp_path / "out.csv"), **how
    )
    task, other = TaskRun(), TaskRun()
    if deferrable:
        results = [
            task.come_back(append, task.leave(append, running)),
            other.come_back(query, other.leave(query, running)),
        ]
    else:
        results = [task.execute(append), other.execute(query)]
    deferrals = json.dumps([task.deferrals, other.deferrals])
    kept = json.dumps([results, task.values, task.xcoms, other.values, other.xcoms]) + deferrals + caplog.text

    assert signatures
    assert bool(task.deferrals and other.deferrals) == deferrable
    assert "://" not in deferrals  # ids and times only: a worker that defers leaves them in the database in clear
    for canary in (running.token, canaries.IN_DATA, *signatures):
        assert canary not in kept


def test_an_exception_holds_nothing_and_travels(
    running: Service, everything: Any, table: str, task: TaskRun, deferrable: bool
) -> None:
    caplog, signatures = everything
    running.fault("put_payload", status=403, times=5)
    operator = TdsAppendOperator(task_id="it", table_id=table, data=f"id\n{canaries.IN_DATA}\n", deferrable=deferrable)
    with pytest.raises(TableServiceError) as raised:
        task.execute(operator)
    running.clear_faults()
    pickled = pickle.dumps(raised.value)
    told = f"{raised.value} {raised.value!r} {raised.value.args} {vars(raised.value)} {caplog.text}".encode() + pickled

    assert str(pickle.loads(pickled)) == str(raised.value)  # noqa: S301  # pickled just now
    for canary in (running.token, canaries.IN_DATA, *signatures):
        assert canary.encode() not in told
