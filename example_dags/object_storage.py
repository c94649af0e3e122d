"""From object storage to a table, and from tables back to object storage; rows of another task go straight in.

Copy it, and change the names. It needs the connections `tds_default` and that of the object store, and the provider
of the store, such as `apache-airflow-providers-amazon[s3fs]` for s3.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.providers.common.compat.sdk import DAG, chain, task  # with Airflow 3 alone: from airflow.sdk

from airflow_tds.operators import TdsCrossQueryOperator, TdsLoadOperator, TdsUpsertOperator

with DAG(
    dag_id="object_storage",
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    params={"store": "s3://aws_default@flights"},
    default_args={"deferrable": True, "poll_interval": 2, "retries": 2, "retry_delay": timedelta(seconds=10)},
    tags=["example", "tds"],
) as dag:

    @task
    def corrections() -> list[dict[str, Any]]:
        """Give a few rows; many belong into a file, as these lie in Airflow's database."""
        return [{"carrier": "G4", "name": "Allegiant Air"}]

    load = TdsLoadOperator(
        task_id="load", table_id="airlines", source="{{ params.store }}/in/airlines.csv", mode="overwrite"
    )
    correct = TdsUpsertOperator(task_id="correct", table_id="airlines", rows=corrections(), key_columns="carrier")
    export = TdsCrossQueryOperator(
        task_id="export",
        request={"table_id": "airlines", "format": "parquet"},
        destination="{{ params.store }}/out/airlines.parquet",
        if_exists="replace",
    )
    chain(load, correct, export)
