"""One append whose table the run's configuration names; with its record, and without."""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from airflow.providers.common.compat.sdk import DAG

from airflow_tds.operators import TdsAppendOperator


def rows() -> Iterator[bytes]:
    """Rows with an id each, wide enough for a PUT that has a middle."""
    yield b"id,name\n"
    for number in range(int(os.environ["ROWS"])):
        yield b"%d,%s\n" % (number, b"x" * 64)


class TellingAppendOperator(TdsAppendOperator):
    """An append that tells the gate that its work is done, and Airflow does not know yet."""

    def post_execute(self, context: Any, result: Any = None) -> None:
        """Wait until the gate answers."""
        with urllib.request.urlopen(f"{os.environ['GATE']}/returned/{self.table_id}", timeout=600) as reply:
            reply.read()


DEFAULTS: dict[str, Any] = {
    "deferrable": True,
    "poll_interval": 0.5,
    "timeout": 900,
    "retries": 6,
    "retry_delay": timedelta(seconds=0),
    "table_id": "{{ dag_run.conf['table'] }}",
    "data": rows,
}

for name, durable in (("recorded", True), ("unrecorded", False)):
    with DAG(name, schedule=None, max_active_runs=64, max_active_tasks=64):
        TellingAppendOperator(task_id="append", durable=durable, **DEFAULTS)
