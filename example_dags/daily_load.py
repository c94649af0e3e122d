"""Load a table every day, check it, and hand a joined extract on: the first run uploads, later ones update by key.

Copy it, and change the names. It needs the connection `tds_default` and one CSV file a day.
"""

from datetime import UTC, datetime, timedelta

from airflow.providers.common.compat.sdk import DAG, chain  # with Airflow 3 alone: from airflow.sdk

from airflow_tds.operators import TdsCheckOperator, TdsCrossQueryOperator, TdsLoadOperator

with DAG(
    dag_id="daily_load",
    schedule="@daily",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    params={"data": "/data/nycflights13", "destination": "/data/planes_and_airlines.csv"},
    default_args={"deferrable": True, "poll_interval": 2, "retries": 2, "retry_delay": timedelta(seconds=10)},
    tags=["example", "tds"],
) as dag:
    load = TdsLoadOperator(
        task_id="load",
        table_id="airlines",
        source="{{ params.data }}/airlines.csv",
        mode="upsert",
        key_columns="carrier",
    )
    # Later tasks run only if this one holds: at least so many rows, and changed since this run was started.
    check = TdsCheckOperator(
        task_id="check", table_id="airlines", min_rows=10, updated_after="{{ dag_run.start_date.isoformat() }}"
    )
    extract = TdsCrossQueryOperator(
        task_id="extract",
        request={
            "table_id": "airlines",
            "filters": {"field": "name", "operator": "ne", "value": ""},
            "select": ["carrier", "name"],
            "format": "csv",
        },
        destination="{{ params.destination }}",
        if_exists="replace",
    )
    chain(load, check, extract)
