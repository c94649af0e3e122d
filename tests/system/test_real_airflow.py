"""A real scheduler, triggerer, DAG processor and API server: what only they can show."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from stack import FAST_RECOVERY, Run, Stack

from airflow_tds.local import Service

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

ROWS = 200_000
TABLES = ["deferred", "deferred_in_process", "survives", "rescued", "variable", "tasked", "before", "within", "after"]
#: Seconds: a killed upload's lease ends soon, yet later than a healthy upload takes.
LIFETIME = 12.0
EXTRA = {"wire": {"no_data_statuses": ["AWAITING"]}, "transfer_timeout": 5, "lease_margin": 0}


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    tables = (
        "deferred",
        "deferred_in_process",
        "survives",
        "rescued",
        "variable",
        "tasked",
        "before",
        "within",
        "after",
    )
    with Service(tables=tables, upload_url_lifetime=LIFETIME) as service:
        yield service


@pytest.fixture(scope="module")
def connection(service: Service) -> dict[str, str]:
    """The connection `tds_default`, as an environment variable."""
    host, port = service.url.removeprefix("http://").split(":")
    values = {"conn_type": "tds", "schema": "http", "host": host, "port": int(port), "password": service.token}
    return {"AIRFLOW_CONN_TDS_DEFAULT": json.dumps(values | {"extra": EXTRA})}


@pytest.fixture(scope="module")
def stack(connection: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    home, dags = tmp_path_factory.mktemp("airflow"), Path(__file__).parent / "dags"
    with Stack(Path(sys.executable), home, dags, config=FAST_RECOVERY, env=connection) as stack:
        yield stack


def jobs(service: Service, operation: str, table: str) -> int:
    """How many writes were initiated on a table."""
    return sum(r.operation == operation and f"/{table}/" in r.path for r in service.requests)


def logs(stack: Stack, run: Run) -> str:
    """What failed, for a failed test's text."""
    return "\n".join(
        f"--- {task_id} {task['state']}\n{run.task_log(task_id, task['try_number'])}"
        for task_id, task in run.tasks().items()
        if task["state"] != "success"
    )


@pytest.fixture(scope="module")
def killed(stack: Stack) -> Run:
    """A finished run whose three tasks each killed their process once."""
    run = stack.trigger("killed")
    state = run.wait(180)
    assert state == "success", logs(stack, run)
    return run


def test_a_deferred_write_and_truncation_end_in_a_real_triggerer(stack: Stack, service: Service) -> None:
    service.hold()
    run = stack.trigger("deferred")
    try:
        run.wait_for_task("upload", "deferred")
    finally:
        service.release()

    assert run.wait(60) == "success", logs(stack, run)
    assert run.xcom("upload")["row_count"] == ROWS
    assert run.xcom("truncate")["row_count"] == 0


def test_a_deferred_write_needs_one_try_under_dag_test(
    connection: dict[str, str], service: Service, tmp_path: Path
) -> None:
    script = (
        "import runpy, sys\n"
        "run = runpy.run_path(sys.argv[1])['in_process'].test()\n"
        "print([(task.state, task.try_number) for task in run.get_task_instances()])\n"
    )
    dags = Path(__file__).parent / "dags"
    alone = Stack(Path(sys.executable), tmp_path, dags, env=connection)  # nothing but its database
    alone.migrate()
    words = [sys.executable, "-c", script, str(dags / "writes.py")]
    done = subprocess.run(words, env=alone.env, capture_output=True, text=True, check=False)

    assert done.stdout.splitlines()[-1:] == ["[('success', 1)]"], done.stdout[-5000:] + done.stderr[-5000:]


def test_the_history_of_a_job_is_in_its_tasks_log(stack: Stack, service: Service) -> None:
    run = stack.trigger("survives")
    assert run.wait(60) == "success", logs(stack, run)

    log = run.task_log("append")
    job_id = run.xcom("append")["job_id"]
    assert f"append is job {job_id}" in log
    assert f"job {job_id} COMPLETED" in log
    assert service.token not in log
    assert "Signature" not in log


def test_a_task_outlives_its_triggerer(stack: Stack, service: Service) -> None:
    before = jobs(service, "append", "survives")
    service.hold()
    run = stack.trigger("survives")
    try:
        run.wait_for_task("append", "deferred")
        stack.kill("triggerer")
        stack.launch("triggerer")
    finally:
        service.release()

    assert run.wait(60) == "success", logs(stack, run)
    assert jobs(service, "append", "survives") == before + 1


def test_a_task_outlives_a_trigger_that_failed_without_a_retry(stack: Stack, service: Service) -> None:
    run = stack.trigger("rescued")

    assert run.wait(60) == "success", logs(stack, run)
    assert "rescue 1 of 3" in run.task_log("append")
    assert jobs(service, "append", "rescued") == 1


def test_a_record_is_kept_in_a_variable_where_the_user_says_so(stack: Stack, service: Service) -> None:
    run = stack.trigger("variable")

    assert run.wait(60) == "success", logs(stack, run)
    assert "nothing is written" not in run.task_log("append")
    key = f"variable__{run.run_id}__append__-1__tds.write.v1"
    assert json.loads(stack.get(f"variables/{quote(key)}")["value"])["phase"] == "done"


def test_a_tasks_own_code_writes_once_although_it_dies(stack: Stack, service: Service) -> None:
    run = stack.trigger("tasked")

    assert run.wait(60) == "success", logs(stack, run)
    assert run.tasks()["append"]["try_number"] == 2
    assert run.xcom("append")["row_count"] == ROWS
    assert jobs(service, "append", "tasked") == 1


@pytest.mark.parametrize("point", ["before", "within", "after"])
def test_a_task_killed_around_its_put_writes_once(killed: Run, point: str) -> None:
    assert killed.tasks()[point]["try_number"] == 2
    assert killed.xcom(point)["row_count"] == ROWS


@pytest.mark.parametrize("point", ["before", "within", "after"])
def test_the_next_try_re_attaches_to_the_job(killed: Run, point: str) -> None:
    first = killed.task_log(point, 1)
    job_id = first.split("append is job ")[1].split()[0]

    assert f"re-attached to job {job_id}" in killed.task_log(point, 2)


def test_a_task_killed_after_its_put_starts_no_second_job(killed: Run, service: Service) -> None:
    assert jobs(service, "append", "after") == 1
