"""Load the New York flights of 2013 into the Table Data Service and join them.

A DAG to copy. It needs the connection `tds_default` and the CSV files; `python3 example_dags/run.py` brings both.
Every task defers: while the service works, no worker waits. Its parameters can be given per run:

    airflow dags trigger flights --conf '{"data": "/data/nycflights13", "destination": "/data/flights.parquet"}'

Each table's first load is an upload. A table that has had data is changed by append (adds rows), upsert (updates or
adds by key), or truncate and append (a reload). However often a task is retried, each write is applied once.
"""

from datetime import timedelta

from airflow.providers.common.compat.sdk import DAG, chain  # with Airflow 3 alone: from airflow.sdk

from airflow_tds.operators import (
    TdsAppendOperator,
    TdsCrossQueryOperator,
    TdsTruncateOperator,
    TdsUploadOperator,
    TdsUpsertOperator,
)

FLIGHTS_AND_ALL_ABOUT_THEM = {
    "table_id": "flights",
    "joins": [
        {"table_id": "airlines", "how": "inner", "left_on": "carrier", "right_on": "carrier"},
        {"table_id": "airports", "how": "inner", "left_on": "dest", "right_on": "faa"},
        {"table_id": "planes", "how": "left", "left_on": "tailnum", "right_on": "tailnum"},
    ],
    "select": [
        "time_hour",
        "flight",
        "origin",
        "dest",
        "distance",
        "dep_delay",
        "arr_delay",
        "name",  # of the airline: a joined column keeps its name where no earlier table has it
        "airports.name",
        "manufacturer",
        "model",
        "planes.year",
    ],
    "format": "parquet",
}

with DAG(
    dag_id="flights",
    description="Load the New York flights of 2013 and join them with airlines, airports and planes",
    schedule=None,
    params={"data": "/data/nycflights13", "destination": "/data/flights.parquet"},
    default_args={
        "deferrable": True,
        "poll_interval": 2,  # seconds
        "retries": 2,
        "retry_delay": timedelta(seconds=10),
    },
    tags=["example", "tds"],
) as dag:
    uploads = {
        table: TdsUploadOperator(
            task_id=f"upload_{table}", table_id=table, source=f"{{{{ params.data }}}}/{table}.csv", format="csv"
        )
        for table in ("flights", "weather", "planes", "airports", "airlines")
    }

    add_missing_airports = TdsAppendOperator(
        task_id="add_missing_airports",
        table_id="airports",
        source="{{ params.data }}/airports_missing.csv",
        format="csv",
    )
    change_airlines = TdsUpsertOperator(
        task_id="change_airlines",
        table_id="airlines",
        source="{{ params.data }}/airlines_changed.csv",
        format="csv",
        key_columns="carrier",
    )
    empty_weather = TdsTruncateOperator(task_id="empty_weather", table_id="weather")
    reload_weather = TdsAppendOperator(
        task_id="reload_weather", table_id="weather", source="{{ params.data }}/weather.csv", format="csv"
    )
    join_flights = TdsCrossQueryOperator(
        task_id="join_flights",
        request=FLIGHTS_AND_ALL_ABOUT_THEM,
        destination="{{ params.destination }}",
        if_exists="replace",
    )

    chain(uploads["weather"], empty_weather, reload_weather)
    chain(uploads["airports"], add_missing_airports)
    chain(uploads["airlines"], change_airlines)
    chain([uploads["flights"], uploads["planes"], add_missing_airports, change_airlines], join_flights)
