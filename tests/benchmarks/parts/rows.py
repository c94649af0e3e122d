"""Put deferred tasks and their triggers into Airflow's database, as workers would have done.

    python rows.py '{"kind": "ours-httpx", "count": 500, ...}'

First it prints the connection that the triggers need, as environment variables in JSON. At the first line of its
input it writes one task, to warm up, at the second one all others. It changes with Airflow's tables.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import sys
import uuid

from airflow.models import DagModel, DagRun, TaskInstance
from airflow.models.dag_version import DagVersion
from airflow.models.dagbundle import DagBundleModel
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.trigger import Trigger
from airflow.providers.common.compat.sdk import DAG, BaseOperator
from airflow.serialization.serialized_objects import LazyDeserializedDAG
from airflow.utils.session import create_session
from kinds import trigger_rows
from sqlalchemy import insert, select
from sqlalchemy.orm import Session

trigger_rows()  # sets the connection
print(json.dumps({name: value for name, value in os.environ.items() if name.startswith("AIRFLOW_CONN_")}), flush=True)

now = dt.datetime.now(dt.UTC)
with DAG("load", schedule=None) as load:
    BaseOperator(task_id="wait")
known = {"dag_id": "load", "run_id": "r"}
task = known | {"task_id": "wait", "state": "deferred", "pool": "default_pool", "queue": "default", "try_number": 1}
task |= {"max_tries": 0, "priority_weight": 1, "operator": "Wait", "start_date": now, "next_method": "execute_complete"}
dag = {"dag_id": "load", "bundle_name": "b", "max_active_tasks": 16, "max_consecutive_failed_dag_runs": 0}
run = known | {"id": 1, "run_type": "manual", "state": "running", "run_after": now}


def write(session: Session, numbers: slice, version: uuid.UUID) -> None:
    """Write some of the triggers, as they are made now, each with its task."""
    some = list(enumerate(trigger_rows(), start=1))[numbers]
    triggers = [
        {"id": number, "classpath": path, "kwargs": Trigger.encrypt_kwargs(kwargs), "created_date": now}
        for number, (path, kwargs) in some
    ]
    tasks = [
        task | {"id": uuid.uuid4(), "map_index": number, "trigger_id": number, "dag_version_id": version}
        for number, _ in some
    ]
    session.execute(insert(Trigger.__table__), triggers)
    session.execute(insert(TaskInstance.__table__), tasks)


sys.stdin.readline()
with create_session() as session:
    session.execute(insert(DagBundleModel.__table__), {"name": "b", "active": True})
    session.execute(insert(DagModel.__table__), dag | {"has_task_concurrency_limits": False})
    SerializedDagModel.write_dag(LazyDeserializedDAG.from_dag(load), "b", session=session)
    session.flush()
    version = session.scalars(select(DagVersion.id)).one()
    session.execute(insert(DagRun.__table__), run | {"created_dag_version_id": version})
    write(session, slice(0, 1), version)
sys.stdin.readline()
with create_session() as session:
    write(session, slice(1, None), version)
