"""Read a table only when it has changed, and wait for a table that another system fills.

Copy it, and change the names. It needs the connection `tds_default`.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.providers.common.compat.sdk import DAG, task  # with Airflow 3 alone: from airflow.sdk

from airflow_tds.operators import TdsQueryOperator
from airflow_tds.sensors import TdsTableSensor

with DAG(
    dag_id="conditional_read",
    schedule="@hourly",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    default_args={"poll_interval": 2, "retries": 2, "retry_delay": timedelta(seconds=10)},
    tags=["example", "tds"],
) as dag:
    filled = TdsTableSensor(task_id="filled", table_id="airlines", empty=False, timeout=3600, deferrable=True)
    # Skipped, with what depends on it, while the table is as it was when this task last succeeded.
    merged = TdsQueryOperator(
        task_id="merged", table_id="airlines", filters="name:eq:American Airlines Inc.", skip_if_unchanged=True
    )

    @task
    def tell(rows: list[dict[str, Any]]) -> list[str]:
        """Work with a few rows; many belong into a file: see `destination`."""
        return sorted(row["carrier"] for row in rows)

    filled >> merged
    tell(merged.output)  # type: ignore[arg-type]  # what another task returns is there when this one runs
