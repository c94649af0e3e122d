"""Appends that are deferred while their jobs take a few seconds; see tests/benchmarks/worker.py."""

from __future__ import annotations

from airflow.providers.common.compat.sdk import DAG

from airflow_tds.operators import TdsAppendOperator

with DAG("resumed", schedule=None):
    TdsAppendOperator.partial(
        task_id="append", table_id="t", rows=[{"id": 1}], deferrable=True, poll_interval=1.0, max_active_tis_per_dag=4
    ).expand(timeout=[600.0 + number for number in range(8)])
