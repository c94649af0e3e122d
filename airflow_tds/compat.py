"""Every name or behaviour of Airflow that differs between versions, each with the version at which it can go.

Nothing else lives here. Importing this file imports what Airflow has loaded anyway when it parses a DAG;
what is heavier stands inside a function.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import (
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    BaseHook,
    BaseOperator,
    BaseOperatorLink,
    Connection,
    Context,
    conf,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta

    from airflow.providers.common.compat.sdk import BaseSensorOperator, PokeReturnValue, XComArg

__all__ = [
    "AirflowFailException",
    "AirflowSensorTimeout",
    "AirflowSkipException",
    "BaseHook",
    "BaseOperator",
    "BaseOperatorLink",
    "BaseSensorOperator",
    "Connection",
    "Context",
    "PokeReturnValue",
    "XComArg",
    "as_server",
    "async_connection",
    "clear_number",
    "conf",
    "configured",
    "ends_deferred_tasks",
    "hide",
    "hide_here",
    "hide_soon",
    "never_expire",
    "object_storage",
    "stats",
    "task_state_store",
    "variables",
]


def __getattr__(name: str) -> Any:
    """Import what few need when they do: on 2.11 a sensor's base brings sixteen modules."""
    if name not in ("BaseSensorOperator", "PokeReturnValue", "XComArg"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from airflow.providers.common.compat import sdk

    return getattr(sdk, name)


@contextmanager
def as_server() -> Iterator[None]:
    """Let a command find connections of the metadata database, as `airflow connections test` does, by the same switch.

    From 3.1 on a process that says of itself neither that it is a worker nor a server finds none of them.
    """
    name = "_AIRFLOW_PROCESS_CONTEXT"
    before = os.environ.get(name)
    os.environ[name] = "server"
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before


async def async_connection(conn_id: str) -> tuple[Connection, dict[str, Any]]:
    """Read a connection and its extra without blocking the event loop.

    The helper for the extra came with common-compat 1.21; before, reading it in a thread is what is safe.
    """
    import asyncio

    from airflow.providers.common.compat import connection as compat

    conn = await compat.get_async_connection(conn_id)
    read_extra = getattr(compat, "get_async_extra_dejson", None)
    extra = await (read_extra(conn) if read_extra else asyncio.to_thread(lambda: conn.extra_dejson))
    return conn, dict(extra or {})


def hide(secrets: Iterable[str]) -> None:
    """Have logs show `***` for some texts, those of the supervisor too.

    The function came with common-compat 1.22; before, it is where each version of Airflow keeps it.
    """
    _function("mask_secret", "airflow.sdk.log", "airflow.sdk.execution_time.secrets_masker", _OLDEST)(list(secrets))


async def hide_soon(secrets: Iterable[str]) -> None:
    """Do as `hide` without blocking the event loop; below 3.3, which has no way to, in this process only."""
    try:
        asynchronous = _function("amask_secret", "airflow.sdk.log")
    except ImportError:
        for secret in secrets:
            hide_here(secret)
    else:
        await asynchronous(list(secrets))


def hide_here(secret: str) -> None:
    """Have this process's logs show `***` for a text that came up.

    The supervisor is not told: an event loop must not wait for it, and `dag.test()` logs at DEBUG what it is told.
    """
    masker = _function(
        "_secrets_masker", "airflow.sdk._shared.secrets_masker", "airflow.sdk.execution_time.secrets_masker", _OLDEST
    )
    masker().add_mask(secret)


#: Where 2.11 keeps its masker.
_OLDEST = "airflow.utils.log.secrets_masker"


def _function(name: str, *modules: str) -> Any:
    """Find a function in the first of some modules that has it."""
    for module in modules:
        with suppress(ImportError, AttributeError):
            return getattr(import_module(module), name)
    raise ImportError(f"no {name} in {', '.join(modules)}")


def task_state_store(context: Context) -> Any:
    """Give the task's state store; None below Airflow 3.3, which has none."""
    return dict(context).get("task_state_store")


def never_expire() -> timedelta:
    """Give the retention that keeps a record for good; Airflow compares it by identity (3.3 and later)."""
    from airflow.sdk.execution_time.context import NEVER_EXPIRE

    return NEVER_EXPIRE


def variables() -> Any:
    """Give Airflow's `Variable` class, which moved to the task SDK in 3.0."""
    from airflow.providers.common.compat.sdk import Variable

    return Variable


def stats() -> Any:
    """Give what Airflow's metrics are told; it moved to the task SDK in 3.2."""
    from airflow.providers.common.compat.sdk import Stats

    return Stats


def object_storage(uri: str, conn_id: str | None = None) -> Any:
    """Give Airflow's path of an object, which moved to the task SDK in 3.0."""
    from airflow.providers.common.compat.sdk import ObjectStoragePath

    return ObjectStoragePath(uri, conn_id=conn_id)


def configured(names: Iterable[str]) -> dict[str, str]:
    """Give what the section [tds] of airflow.cfg says; what it leaves out is left out."""
    found = {name: conf.get("tds", name, fallback=None) for name in names}
    return {name: value for name, value in found.items() if value}


def ends_deferred_tasks() -> bool:
    """Say whether Airflow ends a deferred task at its `execution_timeout`: 2.11 does, 3.0 and later do not."""
    return find_spec("airflow.sdk") is None


def clear_number(context: Context) -> int:
    """Give how often the DAG run was cleared (below 3.2 not every clear raises it)."""
    return int(getattr(context["dag_run"], "clear_number", 0) or 0)
