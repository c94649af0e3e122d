"""The example's data and DAG fit together, and the DAG folder holds nothing that breaks when it is parsed."""

import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import example
import flight_data
import pytest
import report
import run

LOOK = """
import json, socket, sys

def refuse(*arguments):
    raise AssertionError("parsing a DAG must not connect")

socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse

from airflow.dag_processing.dagbag import DagBag
bag = DagBag(sys.argv[1])
dags = {dag.dag_id: {t.task_id: getattr(t, "deferrable", None) for t in dag.tasks} for dag in bag.dags.values()}
print(json.dumps([{str(k): str(v) for k, v in bag.import_errors.items()}, dags]))
"""


def test_na_is_written_as_empty_and_nothing_else_changes() -> None:
    target = io.StringIO()
    lines = ["name,speed\n", '"NASA, Inc.",NA\n', "NA,NAN\n", "'NA',12\n"]
    assert flight_data.write_table(lines, target) == 3
    assert target.getvalue() == "name,speed\n\"NASA, Inc.\",\n,NAN\n'NA',12\n"


def test_tables_are_read_plain_or_zipped_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flight_data, "ROWS", {"airlines": 1, "flights": 2})
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    (source / "airlines.csv").write_text("carrier,name\nNA,x\n")
    with zipfile.ZipFile(source / "flights.csv.zip", "w") as archive:
        archive.writestr("flights.csv", "a,b\n1,NA\n2,3\n")
    flight_data.write_tables(source, target)
    assert (target / "airlines.csv").read_text() == "carrier,name\n,x\n"
    assert (target / "flights.csv").read_text() == "a,b\n1,\n2,3\n"
    monkeypatch.setitem(flight_data.ROWS, "flights", 3)
    with pytest.raises(flight_data.DataError, match=r"flights of .* has 2 rows, expected 3"):
        flight_data.write_tables(source, target)


def test_the_rows_expected_after_each_task_follow_from_the_data() -> None:
    for table, rows in flight_data.ROWS.items():
        assert example.ROWS_AFTER[f"upload_{table}"] == rows
    added = flight_data.MISSING_AIRPORTS.count("\n") - 1
    assert example.ROWS_AFTER["add_missing_airports"] == flight_data.ROWS["airports"] + added


def test_other_rows_than_expected_are_a_failure() -> None:
    tasks = {name: {"result": {"row_count": rows}} for name, rows in example.ROWS_AFTER.items()}
    example.check_rows(tasks)
    tasks["reload_weather"]["result"]["row_count"] = 52_230
    with pytest.raises(example.RunError, match="reload_weather: 52230, expected 26115"):
        example.check_rows(tasks)


def test_the_table_tells_rows_seconds_and_tries_in_the_order_in_which_tasks_ended() -> None:
    start = {"start_date": "2026-01-01T00:00:00Z"}
    late = {**start, "end_date": "2026-01-01T00:00:09.5Z", "result": {"uri": "x"}, "try_number": 2}
    result = {"table_id": "flights", "row_count": 336776}
    early = {**start, "end_date": "2026-01-01T00:00:02Z", "result": result, "try_number": 1}

    assert report.table({"join_flights": late, "upload_flights": early}).splitlines()[1:] == [
        "upload_flights         flights       336,776      2.0",
        "join_flights                                      9.5  in 2 tries",
    ]


def test_keep_and_fast_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run.parse(["--keep", "--fast"])
    assert "--fast starts no Airflow that --keep could leave up" in capsys.readouterr().err


def test_the_dag_folder_holds_the_examples_and_needs_no_network(root: Path, tmp_path: Path) -> None:
    env = {**os.environ, "AIRFLOW_HOME": str(tmp_path), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", LOOK, str(root / "example_dags")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=True)
    import_errors, dags = json.loads(done.stdout.splitlines()[-1])
    assert import_errors == {}
    assert set(dags) == {"flights", "daily_load", "mapped_loads", "conditional_read", "object_storage"}
    assert dags["flights"] == dict.fromkeys([*example.ROWS_AFTER, "join_flights"], True)
