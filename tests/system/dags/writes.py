"""Writes that are deferred, and writes that kill their own process once, at a chosen point."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

from airflow.providers.common.compat.sdk import DAG, get_current_context, task

from airflow_tds import durability
from airflow_tds.hooks import TdsHook
from airflow_tds.operators import TdsAppendOperator, TdsTruncateOperator, TdsUploadOperator

MARKS = Path(os.environ["AIRFLOW_HOME"]) / "marks"
HEADER = b"id,name\n"
ROWS = b"".join(b"%d,row\n" % number for number in range(200_000))


def die_once(point: str) -> None:
    """End this process as a lost machine would, the first time."""
    MARKS.mkdir(exist_ok=True)
    mark = MARKS / point
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def dies_before() -> Iterator[bytes]:
    """Rows; spooled before they are sent, so this is read before the PUT."""
    die_once("before")
    yield HEADER + ROWS


def dies_within() -> Iterator[bytes]:
    """Rows; sent as they come, so this is read within the PUT."""
    yield HEADER
    yield ROWS[: len(ROWS) // 2]
    die_once("within")
    yield ROWS[len(ROWS) // 2 :]


def all_rows() -> Iterator[bytes]:
    """Rows."""
    yield HEADER + ROWS


class DiesAfter(TdsAppendOperator):
    """An append whose first try dies between the PUT's answer and the record of it."""

    def pre_execute(self, context: object) -> None:
        """Arm the trap in this process only."""
        save = durability.TaskStore.save

        def trapped(store: durability.TaskStore, record: durability.Record) -> None:
            if record.phase == "sent":
                die_once("after")
            save(store, record)

        durability.TaskStore.save = trapped  # type: ignore[assignment,method-assign]  # the trap


class LosesItsTrigger(TdsAppendOperator):
    """An append whose first trigger can not be made by the triggerer, as after a bad upgrade."""

    def defer(self, *, trigger: Any, **kwargs: Any) -> NoReturn:
        """Take what a trigger needs out of the first one."""
        MARKS.mkdir(exist_ok=True)
        if not (MARKS / "trigger").exists():
            (MARKS / "trigger").touch()
            path, values = trigger.serialize()
            del values["subject"]
            trigger.serialize = lambda: (path, values)
        super().defer(trigger=trigger, **kwargs)


DEFAULTS = {
    "deferrable": True,
    "poll_interval": 0.5,
    "retries": 1,
    "retry_delay": timedelta(seconds=0),
}

with DAG("deferred", schedule=None, default_args=DEFAULTS):
    TdsUploadOperator(task_id="upload", table_id="deferred", data=all_rows) >> TdsTruncateOperator(
        task_id="truncate", table_id="deferred"
    )

with DAG("in_process", schedule=None, default_args=DEFAULTS) as in_process:
    TdsUploadOperator(task_id="upload", table_id="deferred_in_process", data=all_rows)

with DAG("survives", schedule=None, default_args=DEFAULTS):
    TdsAppendOperator(task_id="append", table_id="survives", data=all_rows)

with DAG("rescued", schedule=None, default_args=DEFAULTS | {"retries": 0}):
    LosesItsTrigger(task_id="append", table_id="rescued", data=all_rows)

with DAG("variable", schedule=None, default_args=DEFAULTS):
    TdsAppendOperator(task_id="append", table_id="variable", data=all_rows, store="variable")

with DAG("tasked", schedule=None, default_args={"retries": 1, "retry_delay": timedelta(seconds=0)}):

    @task
    def append() -> dict[str, Any]:
        """Write, and die before anybody knows: the next try must not write again."""
        result = TdsHook().durable_write(get_current_context(), "append", "tasked", data=all_rows, poll_interval=0.5)
        die_once("tasked")
        return result

    append()

with DAG("killed", schedule=None, default_args=DEFAULTS):
    TdsAppendOperator(task_id="before", table_id="before", data=dies_before)
    TdsAppendOperator(task_id="within", table_id="within", data=dies_within, unknown_length="chunked")
    DiesAfter(task_id="after", table_id="after", data=all_rows)
