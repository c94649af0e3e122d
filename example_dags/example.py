"""The example, piece by piece: service, Airflow, run, and the check that the tables hold what they should.

What lives here: what is started with which settings, and what must come out.
What must not: how components are controlled (stack.py), how it is told (report.py), in which order (run.py).
It changes with flights.py and with the service's command line.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import environment
import flight_data
import processes
import stack
from report import Show

ROOT = Path(__file__).resolve().parent.parent
DAG_FILE = ROOT / "example_dags" / "flights.py"
SERVICE_TIMEOUT = 60.0  # s; it takes less than one
RUN_TIMEOUT = 1200.0  # s; a killed upload is repeated only when its first URL is dead
ROWS_AFTER = {  # in the task's table
    "upload_airlines": 16,
    "upload_airports": 1_458,
    "upload_planes": 3_322,
    "upload_weather": 26_115,
    "upload_flights": 336_776,
    "add_missing_airports": 1_462,  # four more
    "change_airlines": 17,  # three changed, one new
    "empty_weather": 0,
    "reload_weather": 26_115,
}
JOINED_ROWS = 336_776  # every flight has its airline and, since the four are there, its airport
QUERY = """
import duckdb, json, sys
rows = duckdb.read_parquet(sys.argv[1])
top = "SELECT name, count(*), round(avg(arr_delay), 1) FROM rows GROUP BY name ORDER BY 2 DESC LIMIT 3"
print(json.dumps([len(rows), len(rows.columns), duckdb.sql(top).fetchall()]))
"""


class RunError(Exception):
    """The example did not do what it should; the text says what, and where the log is."""


def check_rows(tasks: dict[str, dict[str, Any]]) -> None:
    """Check that the tables held what they should after each task.

    Args:
        tasks: Airflow's task instances by id, each with its `result`.

    Raises:
        RunError: one did not.
    """
    rows = {name: tasks[name]["result"]["row_count"] for name in ROWS_AFTER}
    wrong = [f"{name}: {rows[name]}, expected {wanted}" for name, wanted in ROWS_AFTER.items() if rows[name] != wanted]
    if wrong:
        raise RunError("Rows are not what they should be after " + "; ".join(wrong))


class Example:
    """One run of the example, in a temporary folder of its own.

    Args:
        scratch: the folder.
        data: the folder of the CSV files.
        show: what the user sees.
    """

    def __init__(self, scratch: Path, data: Path, show: Show) -> None:
        self.scratch = scratch
        self.show = show
        self.output = scratch / "flights.parquet"
        self.conf = {"data": str(data), "destination": str(self.output)}
        self.python = environment.interpreter(ROOT)
        self.children: list[processes.Child] = []
        self.airflow: stack.Stack | None = None
        self._starts: dict[str, str] = {}  # of tasks under dag.test()

    def start_service(self, job_delay: float) -> dict[str, str]:
        """Start the embedded service with the tables, and wait until it serves.

        Args:
            job_delay: seconds from a job's data to its start, as in a busy service.

        Returns:
            Its url and token.

        Raises:
            RunError: it does not serve.
        """
        self.show.say("starting the embedded service")
        ready = self.scratch / "service.json"
        options = {
            "--host": processes.LOOPBACK,
            "--port": "0",
            "--data-dir": str(self.scratch / "service"),
            "--upload-url-lifetime": "60",  # s: a killed upload is known to be dead after that
            "--job-delay": str(job_delay),
            "--ready-file": str(ready),
        }
        tables = [text for table in flight_data.ROWS for text in ("--table", table)]
        child = self._child("service", "-m", "airflow_tds.local", *sum(options.items(), ()), *tables)
        deadline = time.monotonic() + SERVICE_TIMEOUT
        while not ready.exists():
            if child.exit_code() is not None or time.monotonic() > deadline:
                raise RunError(f"The embedded service does not serve:\n{child.tail()}")
            processes.pause(0.1)
        return dict(json.loads(ready.read_text(encoding="utf-8")))

    def _child(self, name: str, *arguments: str, env: dict[str, str] | None = None) -> processes.Child:
        child = processes.Child(
            (str(self.python), *arguments),
            env=env or processes.surroundings(os.environ, network=False),
            log=self.scratch / f"{name}.log",
            cwd=self.scratch,
        )
        self.children.append(child)
        return child

    def prepare_airflow(self, service: dict[str, str]) -> stack.Stack:
        """Configure a private Airflow that knows the service and the DAG."""
        dags = self.scratch / "dags"
        dags.mkdir()
        shutil.copy(DAG_FILE, dags)
        port = int(service["url"].rpartition(":")[2])
        connection = {"conn_type": "tds", "schema": "http", "host": processes.LOOPBACK, "port": port}
        # What this service promises: a job in this state has no data, so a killed upload is repeated within minutes.
        extra = {"wire": {"no_data_statuses": ["AWAITING"]}, "transfer_timeout": 60}
        secrets = {"password": service["token"], "extra": extra}
        env = {"AIRFLOW_CONN_TDS_DEFAULT": json.dumps({**connection, **secrets})}
        self.airflow = stack.Stack(self.python, self.scratch / "airflow", dags, env=env)
        return self.airflow

    def run(self, airflow: stack.Stack) -> dict[str, dict[str, Any]]:
        """Run the DAG on Airflow's components.

        Returns:
            Its task instances by id, each with its `result`.

        Raises:
            RunError: the run failed.
        """
        self.show.say("starting Airflow: API server, scheduler, DAG processor, triggerer")
        airflow.start()
        run = airflow.trigger("flights", self.conf)
        self.show.say(f"run {run.run_id} of the DAG flights")
        deadline = time.monotonic() + RUN_TIMEOUT
        while (state := self._look(airflow, run)) not in stack.FINAL:
            if time.monotonic() > deadline:
                raise RunError(f"The run has not ended after {RUN_TIMEOUT:.0f} s, its tasks are {self._states(run)}")
            processes.pause(0.3)
        if state != "success":
            raise RunError(self._why(airflow, run))
        return {name: {**task, "result": run.xcom(name)} for name, task in run.tasks().items()}

    def _look(self, airflow: stack.Stack, run: stack.Run) -> str:
        state = run.state()  # before the tasks: a final state is read with the tasks' final states
        for name, task in run.tasks().items():
            self.show.state(name, task["state"])
        self.show.measure(self.processes)
        airflow.assert_alive()
        return state

    def processes(self) -> list[processes.Process]:
        """List our living processes."""
        ours = [process for child in self.children for process in child.family()]
        return ours + (self.airflow.processes() if self.airflow else [])

    @staticmethod
    def _states(run: stack.Run) -> dict[str, str]:
        return {name: task["state"] for name, task in run.tasks().items()}

    def _why(self, airflow: stack.Stack, run: stack.Run) -> str:
        failed = {name: task for name, task in run.tasks().items() if task["state"] == "failed"}
        if not failed:
            return f"The run failed, its tasks are {self._states(run)}"
        name, task = min(failed.items(), key=lambda item: str(item[1]["end_date"]))
        lines = run.task_log(name, task["try_number"]).splitlines()[-25:]
        logs = airflow.home / "logs" / "dag_id=flights" / f"run_id={run.run_id}" / f"task_id={name}"
        return "\n".join([f"Task {name} failed. The end of its log:", *lines, f"Its logs: {logs}"])

    def run_fast(self, airflow: stack.Stack) -> dict[str, dict[str, Any]]:
        """Run the DAG by `dag.test()`, in one process.

        Returns:
            Its task instances by id, each with its `result`.

        Raises:
            RunError: the run failed.
        """
        self.show.say("making Airflow's database")
        airflow.migrate()
        result = self.scratch / "fast.json"
        script, dag = ROOT / "example_dags" / "fast.py", self.scratch / "dags" / DAG_FILE.name
        child = self._child("fast", str(script), str(dag), json.dumps(self.conf), str(result), env=airflow.env)
        with child.open_log() as log:
            while child.exit_code() is None:
                self._relay(log.read())
                self.show.measure(self.processes)
                processes.pause(0.3)
            self._relay(log.read())
        tasks = json.loads(result.read_text(encoding="utf-8")) if result.exists() else []
        if child.exit_code() != 0:
            failed = [task["task_id"] for task in tasks if task["state"] == "failed"]
            what = f"Task {' and '.join(failed)} failed" if failed else "The run failed"
            raise RunError(f"{what}. The end of its log:\n{child.tail(25)}\nIts log: {child.log}")
        # Airflow's own start is that of a task's last part; ours is that of its first, before it deferred.
        return {task["task_id"]: {**task, "start_date": self._starts[task["task_id"]]} for task in tasks}

    def _relay(self, told: str) -> None:
        """Show what `dag.test()` writes to its log when a task starts, or goes on after it deferred."""
        for when, name in re.findall(r"(\S+) \[[^\n]*\[DAG TEST\] starting task_id=(\w+)", told):
            self.show.state(name, "resumed" if name in self._starts else "running")
            self._starts.setdefault(name, when)

    def look_at_result(self) -> tuple[int, int, list[list[Any]]]:
        """Read the joined file.

        Returns:
            Its number of rows and of columns; airline, flights and mean delay in minutes of the three busiest.

        Raises:
            RunError: it has another number of rows than there are flights.
        """
        command = (str(self.python), "-c", QUERY, str(self.output))
        done = subprocess.run(
            command, env=processes.surroundings(os.environ, network=False), capture_output=True, check=True
        )
        rows, columns, busiest = json.loads(done.stdout)
        if rows != JOINED_ROWS:
            raise RunError(f"{self.output} has {rows} rows, expected {JOINED_ROWS}")
        return rows, columns, busiest

    def close(self) -> None:
        """Stop every process; none is left."""
        if self.airflow:
            self.airflow.stop()
        processes.stop(self.children)
