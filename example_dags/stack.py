"""A real Airflow under control: its components as processes of ours, and its REST API.

What lives here: configuration of a private Airflow 3 (its own home, SQLite, loopback only), start, health, stop and
kill of its components, runs of DAGs and what can be read about them.
What must not: what is run on it (run.py, tests), how the environment came to be (requirements/environment.py).
It changes with Airflow's configuration names and REST API. Standard library only.

Separate components instead of `airflow standalone`: standalone's log servers listen on all interfaces, and only here
can a test kill one component.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from processes import LOOPBACK, Child, Process, pause, stop, surroundings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

ROLES: dict[str, tuple[str, ...]] = {
    "api-server": ("api-server", "--host", LOOPBACK, "--workers", "1"),
    "scheduler": ("scheduler", "--skip-serve-logs"),  # its log server would listen on all interfaces
    "dag-processor": ("dag-processor",),
    "triggerer": ("triggerer", "--skip-serve-logs"),
}
FINAL = frozenset({"success", "failed"})
CONFIG = {
    "core.load_examples": "False",
    "core.dags_are_paused_at_creation": "False",
    "core.executor": "LocalExecutor",
    "core.parallelism": "4",
    "core.simple_auth_manager_all_admins": "True",  # no login: loopback only
    "api.host": LOOPBACK,
    "scheduler.scheduler_idle_sleep_time": "0.2",
    "workers.min_heartbeat_interval": "1",  # a worker sees that its task has ended only when it next beats
    "dag_processor.refresh_interval": "5",
    "usage_data_collection.enabled": "False",
}
FAST_RECOVERY = {  # a killed component is noticed within seconds instead of minutes; for tests
    "triggerer.job_heartbeat_sec": "1",
    "triggerer.triggerer_health_check_threshold": "8",
    "scheduler.task_instance_heartbeat_sec": "1",
    "scheduler.task_instance_heartbeat_timeout": "10",
    "scheduler.task_instance_heartbeat_timeout_detection_interval": "2",
}
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class StackError(Exception):
    """Airflow did not do what was asked; the text says what, and where its log is."""


def free_port() -> int:
    """Let the kernel choose a loopback port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def variable(option: str) -> str:
    """Name the environment variable of an Airflow option, for instance `core.parallelism`."""
    section, _, key = option.partition(".")
    return f"AIRFLOW__{section.upper()}__{key.upper()}"


def airflow_environment(home: Path, dags: Path, port: int, config: Mapping[str, str]) -> dict[str, str]:
    """Describe a private Airflow, to be merged into `surroundings`.

    Args:
        home: its AIRFLOW_HOME: database, logs, configuration.
        dags: its only DAG folder.
        port: of its API server.
        config: options beyond `CONFIG`, as `{"section.key": "value"}`.

    Returns:
        Environment variables.
    """
    url = f"http://{LOOPBACK}:{port}"
    options = {
        **CONFIG,
        "core.dags_folder": str(dags),
        "core.execution_api_server_url": f"{url}/execution/",  # follows the port only if told
        "api.port": str(port),
        "api.base_url": url,
        "api_auth.jwt_secret": secrets.token_urlsafe(32),  # one for all components
        **config,
    }
    return {
        "AIRFLOW_HOME": str(home),
        "PYTHONWARNINGS": "ignore",
        "PYTHONUNBUFFERED": "1",
        **{variable(option): value for option, value in options.items()},
    }


class Stack:
    """Airflow's scheduler, triggerer, DAG processor and API server, each a process of ours.

    Args:
        python: the interpreter of an environment with Airflow 3.
        home: folder for its database, configuration and logs; made if absent.
        dags: its DAG folder.
        config: Airflow options beyond `CONFIG`, as `{"section.key": "value"}`, for instance `FAST_RECOVERY`.
        env: further environment variables, for instance `AIRFLOW_CONN_TDS_DEFAULT`.
    """

    def __init__(
        self,
        python: Path,
        home: Path,
        dags: Path,
        *,
        config: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.home = home
        self.port = free_port()
        self.url = f"http://{LOOPBACK}:{self.port}"
        self._airflow = (str(python), "-m", "airflow")
        self._children: dict[str, Child] = {}
        self._token = ""
        self.env = {
            **surroundings(os.environ, network=False),
            **airflow_environment(home, dags, self.port, config or {}),
            **(env or {}),
        }

    def __enter__(self) -> Self:
        """Start everything; stop what was started if that fails."""
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop everything."""
        self.stop()

    def start(self, timeout: float = 180.0) -> None:
        """Make the database, start every component and wait until all are healthy.

        Args:
            timeout: seconds for all of it.

        Raises:
            StackError: a component ended, or is not healthy in time.
        """
        deadline = time.monotonic() + timeout
        self.migrate(timeout)
        for role in ROLES:
            self.launch(role)
        self.wait_until_healthy(deadline - time.monotonic())

    def migrate(self, timeout: float = 180.0) -> None:
        """Make, or bring up to date, the metadata database.

        Args:
            timeout: seconds.

        Raises:
            StackError: it failed, or took too long.
        """
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        child = self._child("db-migrate", ("db", "migrate"))
        try:
            self._until(lambda: child.exit_code() is not None, timeout, "the database is not ready")
            if child.exit_code() != 0:
                raise StackError(f"airflow db migrate failed, log: {child.log}\n{child.tail()}")
        finally:
            child.kill()

    def launch(self, role: str) -> None:
        """Start one component, for instance again after `kill`; does not wait for its health."""
        command = ROLES[role]
        port = ("--port", str(self.port)) if role == "api-server" else ()
        self._children[role] = self._child(role, (*command, *port))

    def kill(self, role: str) -> None:
        """Kill one component and all its processes, tasks included, as a lost machine would (SIGKILL)."""
        self._children.pop(role).kill()

    def stop(self) -> None:
        """Stop everything; no process is left. Idempotent."""
        for role in ("scheduler", "triggerer", "dag-processor", "api-server"):  # the API last: the others report to it
            stop(
                [child for name, child in self._children.items() if name == role], grace=3
            )  # running tasks may take long
        self._children.clear()

    def processes(self, role: str | None = None) -> list[Process]:
        """List the living processes of a component (its workers, tasks, parsers), or of all."""
        children = self._children.values() if role is None else [self._children[role]]
        return [process for child in children for process in child.family()]

    def log(self, role: str) -> Path:
        """Name the file a component writes its own log to."""
        return self.home / f"{role}.log"

    def wait_until_healthy(self, timeout: float = 60.0) -> None:
        """Wait until the API answers and every component's heartbeat is fresh.

        Args:
            timeout: seconds.

        Raises:
            StackError: a component ended, or is not healthy in time.
        """
        self._until(self._healthy, timeout, f"Airflow is not healthy, logs: {self.home}/*.log")

    def _healthy(self) -> bool:
        self.assert_alive()
        try:
            health: dict[str, dict[str, str | None]] = self.get("monitor/health")
        except (urllib.error.URLError, ConnectionError, TimeoutError):  # not listening yet
            return False
        parts = ("metadatabase", "scheduler", "triggerer", "dag_processor")
        return all(health[part]["status"] == "healthy" for part in parts)

    def assert_alive(self) -> None:
        """Check that no component has ended.

        Raises:
            StackError: one has; the text holds the end of its log.
        """
        for role, child in self._children.items():
            if (code := child.exit_code()) is not None:
                raise StackError(f"Airflow's {role} ended with {code}, log: {child.log}\n{child.tail()}")

    def _child(self, name: str, arguments: tuple[str, ...]) -> Child:
        return Child((*self._airflow, *arguments), env=self.env, log=self.log(name), cwd=self.home)

    def _until(self, condition: Callable[[], bool], timeout: float, otherwise: str) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > deadline:
                raise StackError(f"after {timeout:.0f} s: {otherwise}")
            pause(0.2)

    def get(self, path: str) -> Any:
        """Read from the REST API, for instance `get("dags/flights/dagRuns")`."""
        return self.call("GET", path)

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Send one request to the REST API.

        Args:
            method: HTTP method.
            path: below /api/v2/.
            body: JSON value to send; None: none.

        Returns:
            The reply's JSON value; None: it has none.

        Raises:
            urllib.error.HTTPError: any status of 400 or more.
        """
        if not self._token and path != "monitor/health":  # health needs none
            self._token = _exchange("GET", f"{self.url}/auth/token", None, {})["access_token"]
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        return _exchange(method, f"{self.url}/api/v2/{path}", body, headers)

    def trigger(self, dag_id: str, conf: Mapping[str, object] | None = None, timeout: float = 60.0) -> Run:
        """Start a run of a DAG, as soon as the DAG processor has read it.

        Args:
            dag_id: which.
            conf: the run's configuration; overrides the DAG's params.
            timeout: seconds to wait for the DAG to appear.

        Returns:
            The run.

        Raises:
            StackError: the DAG does not appear; the text holds its import errors.
        """
        self._until(lambda: self._is_known(dag_id), timeout, f"no DAG {dag_id}, see {self.log('dag-processor')}")
        reply = self.call("POST", f"dags/{dag_id}/dagRuns", {"logical_date": None, "conf": dict(conf or {})})
        return Run(self, dag_id, reply["dag_run_id"])

    def _is_known(self, dag_id: str) -> bool:
        errors = self.get("importErrors")["import_errors"]
        if errors:
            raise StackError("\n".join(f"{error['filename']}: {error['stack_trace']}" for error in errors))
        with contextlib.suppress(urllib.error.HTTPError):
            self.get(f"dags/{dag_id}")
            return True
        return False


class Run:
    """One run of a DAG.

    Args:
        stack: where it runs.
        dag_id: of which DAG.
        run_id: Airflow's name for it.
    """

    def __init__(self, stack: Stack, dag_id: str, run_id: str) -> None:
        self.stack = stack
        self.dag_id = dag_id
        self.run_id = run_id
        self.path = f"dags/{dag_id}/dagRuns/{urllib.parse.quote(run_id, safe='')}"

    def state(self) -> str:
        """Read the run's state: queued, running, success or failed."""
        return str(self.stack.get(self.path)["state"])

    def wait(self, timeout: float = 300.0) -> str:
        """Wait until the run has ended.

        Args:
            timeout: seconds.

        Returns:
            success or failed.

        Raises:
            StackError: it has not ended in time.
        """
        self.stack._until(  # noqa: SLF001  # same room
            lambda: self.state() in FINAL, timeout, f"run {self.run_id} has not ended"
        )
        return self.state()

    def tasks(self) -> dict[str, dict[str, Any]]:
        """Read the task instances by task id (mapped ones: `id[index]`), as the REST API describes them."""
        found = self.stack.get(f"{self.path}/taskInstances?limit=1000")["task_instances"]
        return {task["task_id"] + (f"[{task['map_index']}]" if task["map_index"] >= 0 else ""): task for task in found}

    def wait_for_task(self, task_id: str, state: str, timeout: float = 60.0) -> dict[str, Any]:
        """Wait until a task is in a state.

        Args:
            task_id: which.
            state: for instance deferred, running, up_for_retry, success.
            timeout: seconds.

        Returns:
            The task instance as read.

        Raises:
            StackError: it is not in time.
        """
        self.stack._until(  # noqa: SLF001  # same room
            lambda: self.tasks()[task_id]["state"] == state, timeout, f"{task_id} is not {state}"
        )
        return self.tasks()[task_id]

    def task_process(self, task_id: str) -> Process:
        """Find the process that runs a task now; its parent is the LocalExecutor worker that supervises it.

        Args:
            task_id: which; mapped ones: `id[index]`.

        Returns:
            The process, to be killed (`os.kill`) or paused (SIGSTOP).

        Raises:
            StackError: no process runs the task.
        """
        title = f"airflow worker -- {self.tasks()[task_id]['id']}"  # the supervisor's has a word before the id
        for process in self.stack.processes("scheduler"):
            if process.title.startswith(title):
                return process
        raise StackError(f"no process runs {task_id}")

    def task_log(self, task_id: str, try_number: int = 1, map_index: int = -1) -> str:
        """Read a task's log of one try, one event per line."""
        index = f"?map_index={map_index}"
        reply = self.stack.get(f"{self.path}/taskInstances/{task_id}/logs/{try_number}{index}")
        return "\n".join(_line(event) for event in reply["content"])

    def xcom(self, task_id: str, key: str = "return_value") -> Any:
        """Read what a task returned, or pushed under another key.

        Raises:
            urllib.error.HTTPError: 404, there is none.
        """
        return self.stack.get(f"{self.path}/taskInstances/{task_id}/xcomEntries/{key}")["value"]


def _line(event: Any) -> str:
    if isinstance(event, str):
        return event
    errors = [f"\n    {error['exc_type']}: {error['exc_value']}" for error in event.get("error_detail") or ()]
    return f"{event.get('level', '')}: {event['event']}{''.join(errors)}"


def _exchange(method: str, url: str, body: object, headers: Mapping[str, str]) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {**headers, "Content-Type": "application/json"}, method=method)
    with _direct.open(request, timeout=30) as reply:
        content = reply.read()
    return json.loads(content) if content else None
