"""A private Airflow: the user's settings do not reach it, it listens on loopback only, it leaves nothing behind."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from stack import CONFIG, FAST_RECOVERY, Stack, airflow_environment, free_port, variable

Living = Callable[[], set[int]]

TOY = """
from datetime import timedelta

from airflow.providers.standard.triggers.temporal import TimeDeltaTrigger
from airflow.sdk import DAG, BaseOperator, task


class Wait(BaseOperator):
    def execute(self, context):
        self.defer(trigger=TimeDeltaTrigger(timedelta(seconds=1)), method_name="resume")

    def resume(self, context, event):
        return "resumed"


with DAG("toy", schedule=None, params={"count": 1}) as dag:

    @task
    def count(params):
        return {"count": params["count"]}

    @task
    def fail():
        raise ValueError("no such thing")

    count() >> Wait(task_id="wait")

with DAG("failing", schedule=None):
    fail()
"""


def test_every_address_airflow_is_told_is_loopback(tmp_path: Path) -> None:
    env = airflow_environment(tmp_path, tmp_path, 4711, {})
    addresses = {name: value for name, value in env.items() if name.endswith(("URL", "HOST"))}
    assert addresses == {
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__BASE_URL": "http://127.0.0.1:4711",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": "http://127.0.0.1:4711/execution/",
    }


def test_a_given_option_wins(tmp_path: Path) -> None:
    assert CONFIG["core.parallelism"] == "4"
    env = airflow_environment(tmp_path, tmp_path, 4711, {"core.parallelism": "9"})
    assert env[variable("core.parallelism")] == "9"


def test_free_ports_can_be_bound() -> None:
    assert 1024 < free_port() < 65536


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    base = tmp_path_factory.mktemp("with space")
    dags = base / "dags"
    dags.mkdir()
    (dags / "toy.py").write_text(TOY)
    with Stack(Path(sys.executable), base / "home", dags, config=FAST_RECOVERY) as stack:
        yield stack


def loopback_listeners(pids: set[int]) -> tuple[int, int]:
    """Count the processes' listening sockets: on loopback, elsewhere."""
    inodes = {str(link.readlink()) for pid in pids for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()}
    local = other = 0
    for file in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(file).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                local, other = (local + 1, other) if fields[1].startswith("0100007F:") else (local, other + 1)
    return local, other


@pytest.mark.system
def test_a_run_defers_and_succeeds_on_loopback_alone(stack: Stack) -> None:
    run = stack.trigger("toy", {"count": 3})
    assert run.wait(timeout=90) == "success"
    assert run.xcom("count") == {"count": 3}
    assert run.xcom("wait") == "resumed"
    assert "Pausing task as DEFERRED" in run.task_log("wait")
    assert loopback_listeners({process.pid for process in stack.processes()}) == (1, 0)


@pytest.mark.system
def test_a_failed_tasks_log_names_the_error(stack: Stack) -> None:
    run = stack.trigger("failing")
    assert run.wait(timeout=90) == "failed"
    assert "ValueError: no such thing" in run.task_log("fail")


@pytest.mark.system
def test_a_killed_triggerer_can_be_started_again(stack: Stack, living: Living) -> None:
    before = {process.pid for process in stack.processes("triggerer")}
    stack.kill("triggerer")
    assert before.isdisjoint(living())
    stack.launch("triggerer")
    stack.wait_until_healthy()
    assert stack.trigger("toy").wait(timeout=90) == "success"


@pytest.mark.system
def test_stopping_leaves_no_process(stack: Stack, living: Living) -> None:
    pids = {process.pid for process in stack.processes()}
    stack.stop()
    assert pids.isdisjoint(living())
