"""What Airflow does around an operator, without Airflow's database: tries, generations, deferrals as JSON."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred

from airflow_tds import polling
from airflow_tds.local import Service

__all__ = ["TaskRun", "connect"]

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


class TaskRun:
    """What Airflow keeps of a task instance over its tries: the store, the generation, the deferrals."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.max_tries = 1
        self.clear_number = 0
        self.stale = False
        self.deferrals: list[tuple[str, dict[str, Any]]] = []

    def get(self, key: str, default: Any = None) -> Any:
        return None if self.stale else self.values.get(key, default)

    def set(self, key: str, value: Any, *, retention: timedelta | None = None) -> None:
        if self.stale:
            raise RuntimeError("404: the task instance has been superseded")
        self.values[key] = json.loads(json.dumps(value))

    def context(self) -> Any:
        return {
            "ti": SimpleNamespace(max_tries=self.max_tries, try_number=1),
            "dag_run": SimpleNamespace(clear_number=self.clear_number),
            "task_state_store": self,
        }

    def execute(self, operator: Any) -> Any:
        """Run an operator to its end as Airflow does: triggers and events travel as JSON."""
        method = operator.execute
        kwargs: dict[str, Any] = {}  # only the event comes back: dag.test() drops what defer() was given
        while True:
            try:
                return method(self.context(), **kwargs)
            except TaskDeferred as deferred:
                event = self._fire(deferred.trigger)
                method = getattr(operator, deferred.method_name)
                kwargs = {"event": event}

    def _fire(self, trigger: Any) -> Any:
        path, kwargs = trigger.serialize()
        kwargs = json.loads(json.dumps(kwargs))
        self.deferrals.append((path, kwargs))

        async def first() -> Any:
            try:
                async for event in type(trigger)(**kwargs).run():
                    return event.payload
            finally:  # a triggerer's loop lives on and its pollers close themselves; this one ends now
                for opening in polling._BY_LOOP.get(asyncio.get_running_loop(), {}).values():
                    if opening.exception() is None:
                        await opening.result().close()
            raise AssertionError("the trigger ended without an event")

        return json.loads(json.dumps(asyncio.run(first())))
