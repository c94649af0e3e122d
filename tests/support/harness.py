"""What Airflow does around an operator, without Airflow's database: tries, generations, deferrals as JSON."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache, partial
from itertools import count
from types import SimpleNamespace
from typing import Any

import airflow
import fsspec  # type: ignore[import-untyped]
import pytest
from airflow.providers.common.compat.sdk import TaskDeferred

from airflow_tds import polling
from airflow_tds.local import Service

__all__ = [
    "HAS_SDK",
    "HAS_STORE",
    "TaskRun",
    "acting_once",
    "connect",
    "needs_store",
    "objects_in_memory",
    "one_api_server",
]

#: Whether this Airflow keeps a task's state over its tries.
HAS_STORE = tuple(map(int, airflow.__version__.split(".")[:2])) >= (3, 3)
HAS_SDK = importlib.util.find_spec("airflow.sdk") is not None
needs_store = pytest.mark.skipif(not HAS_STORE, reason="Airflow keeps a record from 3.3 on")

#: Short leases, so that a test may wait for one.
EXTRA = {"wire": {"no_data_statuses": ["AWAITING"]}, "transfer_timeout": 60, "lease_margin": 0}


def connect(service: Service, monkeypatch: pytest.MonkeyPatch, **extra: Any) -> None:
    """Point `tds_default` at a service."""
    host, port = service.url.removeprefix("http://").split(":")
    values = {
        "conn_type": "tds",
        "schema": "http",
        "host": host,
        "port": int(port),
        "password": service.token,
        "extra": EXTRA | extra,
    }
    monkeypatch.setenv("AIRFLOW_CONN_TDS_DEFAULT", json.dumps(values))


@contextmanager
def acting_once(condition: Callable[[], bool], act: Callable[[], object]) -> Iterator[None]:
    """Meanwhile, in another thread, do something once something has come about; after a minute, nothing."""

    def watch() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if condition():
                act()
                return
            threading.Event().wait(0.01)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        watcher.join()


#: Numbers of tries: no two task instances of a test session are the same execution.
_TRIES = count(1)


class TaskRun:
    """What Airflow keeps of a task instance over its tries: the store, the generation, the deferrals."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.max_tries = 1
        self.clear_number = 0
        self.stale = False
        self.deferrals: list[tuple[str, dict[str, Any]]] = []
        self.crashes = 0
        self.tries = next(_TRIES)
        self.has_store = HAS_STORE
        self.xcoms: dict[str, Any] = {}

    def get(self, key: str, default: Any = None) -> Any:
        return None if self.stale else self.values.get(key, default)

    def set(self, key: str, value: Any, *, retention: timedelta | None = None) -> None:
        if self.stale:
            raise RuntimeError("404: the task instance has been superseded")
        self.values[key] = json.loads(json.dumps(value))

    def context(self) -> Any:
        return {
            "ti": SimpleNamespace(
                max_tries=self.max_tries,
                try_number=self.tries,
                map_index=-1,
                dag_id="dag",
                run_id="run",
                task_id="it",
                xcom_push=self._push,
                xcom_pull=lambda *, task_ids, key, map_indexes: self.xcoms.get(key),
            ),
            "task": SimpleNamespace(execution_timeout=None),
            "dag_run": SimpleNamespace(clear_number=self.clear_number),
        } | ({"task_state_store": self} if self.has_store else {})

    def _push(self, *, key: str, value: Any) -> None:
        self.xcoms[key] = json.loads(json.dumps(value))

    def execute(self, operator: Any) -> Any:
        """Run an operator to its end as Airflow does: triggers and events travel as JSON."""
        self.xcoms = {}  # they survive a deferral, and no try
        return self._to_the_end(operator, operator.execute)

    def leave(self, operator: Any, service: Service) -> Any:
        """Run a deferrable operator until it leaves its worker, which it surely does: the service takes no job."""
        self.xcoms = {}
        service.hold()
        try:
            with pytest.raises(TaskDeferred) as left:
                operator.execute(context=self.context())
        finally:
            service.release()
        return left.value

    def come_back(self, operator: Any, left: Any) -> Any:
        """Go on where an operator left, to its end."""
        return self._to_the_end(operator, partial(operator.resume_execution, *self._outcome(left)))

    def _to_the_end(self, operator: Any, goes_on: Any) -> Any:
        while True:
            try:
                return goes_on(context=self.context())
            except TaskDeferred as deferred:
                goes_on = partial(operator.resume_execution, *self._outcome(deferred))

    def _outcome(self, deferred: Any) -> tuple[str, dict[str, Any]]:
        """Say what Airflow goes on with: only the event comes back, dag.test() drops what defer() was given."""
        if self.crashes:
            self.crashes -= 1
            return "__fail__", {"error": "Trigger failure", "traceback": ["the trigger's own line"]}
        return deferred.method_name, {"event": self._fire(deferred.trigger)}

    def _fire(self, trigger: Any) -> Any:
        path, kwargs = trigger.serialize()
        kwargs = json.loads(json.dumps(kwargs))
        self.deferrals.append((path, kwargs))

        async def first() -> Any:
            try:
                async for event in type(trigger)(**kwargs).run():
                    return event.payload
            finally:  # a triggerer's loop lives on and its pollers close themselves; this one ends now
                registry = polling._BY_LOOP.get(asyncio.get_running_loop())
                for opening in registry.openings.values() if registry else ():
                    if opening.poller.exception() is None:
                        await opening.poller.result().close()
            raise AssertionError("the trigger ended without an event")

        return json.loads(json.dumps(asyncio.run(first())))


def objects_in_memory() -> Any:
    """Let Airflow know `memory://`, an object store of this process, and give its file system."""
    of_sdk = HAS_SDK and importlib.util.find_spec("airflow.sdk.io.fs")  # moved there in 3.1
    known = importlib.import_module("airflow.sdk.io.fs" if of_sdk else "airflow.io")
    found = fsspec.filesystem("memory")
    known._register_filesystems()["memory"] = lambda conn_id, options: found
    return found


def one_api_server() -> None:
    """Let `dag.test()` keep one API server a process, as Airflow 3.3 does.

    3.0 to 3.2 make another, for seconds of CPU, for each task and each trigger.
    """
    if HAS_SDK:
        supervisor: Any = importlib.import_module("airflow.sdk.execution_time.supervisor")
        made = supervisor.in_process_api_server
        if not hasattr(made, "cache_info"):
            supervisor.in_process_api_server = cache(made)
