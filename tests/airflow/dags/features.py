"""What users do with operators in DAGs: mapping, XComs, pools, trigger rules, retries, the modes of sensors."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.providers.common.compat.sdk import DAG, chain, task

from airflow_tds.hooks import TdsHook
from airflow_tds.operators import (
    TdsAppendOperator,
    TdsCheckOperator,
    TdsDownloadOperator,
    TdsLoadOperator,
    TdsQueryOperator,
    TdsTableInfoOperator,
    TdsTruncateOperator,
    TdsUploadOperator,
)
from airflow_tds.sensors import TdsJobSensor, TdsTableSensor

#: A value that must be seen in no log and no rendered field.
CANARY = "canary-value-of-a-row"

with DAG(
    "features",
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    params={"folder": "/tmp", "deferrable": True},  # noqa: S108  # given by the test
    default_args={"poll_interval": 0.2, "retry_delay": timedelta(0)},
) as dag:

    @task
    def rows() -> list[dict[str, Any]]:
        """Rows of another task."""
        return [{"id": n, "name": CANARY} for n in (1, 2)]

    @task
    def parts() -> list[list[dict[str, Any]]]:
        """Rows for mapped tasks."""
        return [[{"id": 3, "name": CANARY}], [{"id": 4, "name": CANARY}, {"id": 5, "name": CANARY}]]

    @task
    def count_in_code() -> int | None:
        """Ask in a task's own code."""
        return TdsHook().info("features").row_count

    upload = TdsUploadOperator(
        task_id="upload", table_id="features", rows=rows(), deferrable=True, pool="default_pool", pool_slots=2
    )
    mapped = TdsAppendOperator.partial(task_id="mapped", table_id="features", deferrable=True).expand(rows=parts())
    counted = count_in_code()
    before = TdsTableInfoOperator(task_id="before", table_id="features")
    append = TdsAppendOperator(task_id="append", table_id="features", data="id,name\n6,f\n", wait_for_completion=False)
    appended = TdsJobSensor(task_id="appended", job_id=append.output, deferrable=True)
    changed = TdsTableSensor(
        task_id="changed", table_id="features", changed_from=before.output, min_rows=6, mode="reschedule"
    )
    asked = TdsQueryOperator(
        task_id="asked", table_id="features", format="csv", filters=["id:gte:{{ 5 }}"], wait_for_completion=False
    )
    kept = TdsDownloadOperator(
        task_id="kept", job_id=asked.output, destination="{{ params.folder }}/kept.csv", deferrable=True
    )
    chain(upload, mapped, counted, before, append, appended, changed, asked, kept)

    conflict = TdsUploadOperator(task_id="conflict", table_id="features", rows=[{"id": 7}], retries=2, deferrable=True)
    bad_data = TdsAppendOperator(
        task_id="bad_data", table_id="features", data="id,name\nx,y\n", retries=1, deferrable=True
    )
    bad_data_blocking = TdsAppendOperator(
        task_id="bad_data_blocking", table_id="features", data="id,name\nx,y\n", retries=1, deferrable=False
    )
    gate = TdsCheckOperator(task_id="gate", table_id="features", min_rows=1000, retries=1)
    behind = TdsTruncateOperator(task_id="behind", table_id="features")
    late = TdsTableSensor(task_id="late", table_id="features", empty=True, timeout=3, retries=2, deferrable=True)
    soft = TdsTableSensor(task_id="soft", table_id="features", empty=True, timeout=3, soft_fail=True, deferrable=True)
    never = TdsTableSensor(task_id="never", table_id="nowhere", empty=True, timeout=1, never_fail=True)
    last = TdsLoadOperator(
        task_id="last",
        table_id="features",
        rows=[{"id": 9, "name": "{{ run_id[:6] }}"}],
        mode="overwrite",
        trigger_rule="all_done",
    )
    for one in (conflict, bad_data, bad_data_blocking, gate, late, soft, never):
        kept >> one >> last
    gate >> behind >> last
