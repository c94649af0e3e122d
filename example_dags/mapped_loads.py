"""Reload a table from as many files as there are: one mapped task a file, all at once, each applied once.

Copy it, and change the names. It needs the connection `tds_default` and a folder of CSV files with the same columns.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import (  # with Airflow 3 alone: from airflow.sdk
    DAG,
    chain,
    get_current_context,
    task,
)

from airflow_tds.operators import TdsAppendOperator, TdsCheckOperator, TdsTruncateOperator

with DAG(
    dag_id="mapped_loads",
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    params={"data": "/data/weather_by_month", "rows": 26115},
    default_args={"deferrable": True, "poll_interval": 2, "retries": 2, "retry_delay": timedelta(seconds=10)},
    tags=["example", "tds"],
) as dag:

    @task
    def list_files() -> list[str]:
        """Name the files, in order."""
        params: dict[str, Any] = get_current_context()["params"]
        return sorted(str(path) for path in Path(params["data"]).glob("*.csv"))

    files = list_files()
    empty = TdsTruncateOperator(task_id="empty", table_id="weather")
    # `max_active_tis_per_dag` bounds how many files are sent at once; deferred, they hold no worker.
    load = TdsAppendOperator.partial(task_id="load", table_id="weather", max_active_tis_per_dag=8).expand(source=files)
    check = TdsCheckOperator(
        task_id="check", table_id="weather", min_rows="{{ params.rows }}", max_rows="{{ params.rows }}"
    )
    chain(files, empty, load, check)
