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
from airflow.models.trigger import Trigger
from airflow.utils.session import create_session
from kinds import trigger_rows
from sqlalchemy import insert

rows = trigger_rows()
print(json.dumps({name: value for name, value in os.environ.items() if name.startswith("AIRFLOW_CONN_")}), flush=True)

now = dt.datetime.now(dt.UTC)
version = uuid.uuid4()
known = {"dag_id": "load", "run_id": "r"}
task = known | {"task_id": "wait", "state": "deferred", "pool": "default_pool", "queue": "default", "try_number": 1}
task |= {"max_tries": 0, "priority_weight": 1, "operator": "Wait", "dag_version_id": version, "start_date": now}
dag = {"dag_id": "load", "bundle_name": "b", "max_active_tasks": 16, "max_consecutive_failed_dag_runs": 0}
run = known | {"id": 1, "run_type": "manual", "state": "running", "run_after": now, "created_dag_version_id": version}
triggers = [
    {"id": number, "classpath": path, "kwargs": Trigger.encrypt_kwargs(kwargs), "created_date": now}
    for number, (path, kwargs) in enumerate(rows, start=1)
]
tasks = [
    task | {"id": uuid.uuid4(), "map_index": one["id"], "trigger_id": one["id"], "next_method": "execute_complete"}
    for one in triggers
]
sys.stdin.readline()
with create_session() as session:
    session.execute(insert(DagBundleModel.__table__), {"name": "b", "active": True})
    session.execute(insert(DagModel.__table__), dag | {"has_task_concurrency_limits": False})
    session.execute(insert(DagVersion.__table__), {"id": version, "dag_id": "load", "bundle_name": "b"})
    session.execute(insert(DagRun.__table__), run)
    session.execute(insert(Trigger.__table__), triggers[:1])
    session.execute(insert(TaskInstance.__table__), tasks[:1])
sys.stdin.readline()
with create_session() as session:
    session.execute(insert(Trigger.__table__), triggers[1:])
    session.execute(insert(TaskInstance.__table__), tasks[1:])
