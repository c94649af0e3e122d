"""Run DAGs in this one process by Airflow's own `dag.test()`, and write down what became of their tasks.

    python dag_runs.py PLAN_FILE RESULT_FILE

The plan is a JSON list of `{"file", "conf"}`; a file's variable `dag` is its DAG. Started in an AIRFLOW_HOME of its
own, whose database it makes. Told of each task instance: state, try, XCom, rendered fields, and what its failure
callback saw.
"""

from __future__ import annotations

import json
import logging
import runpy
import sys
from pathlib import Path
from typing import Any

from harness import objects_in_memory, one_api_server

SEEN: list[dict[str, Any]] = []


def main(plan_file: str, result_file: str) -> int:
    """Run the plan; the exit code is 0 whatever the DAGs did."""
    from airflow.utils.db import initdb

    logging.disable(logging.NOTSET)
    initdb()
    one_api_server()
    plan = json.loads(Path(plan_file).read_text())
    told = [run(**one) for one in plan]
    Path(result_file).write_text(json.dumps(told, default=str))
    return 0


def run(file: str, conf: dict[str, Any], objects: dict[str, str] | None = None) -> dict[str, Any]:
    """Run one DAG, with objects put into the object store in memory before."""
    store = objects_in_memory()
    for path, text in (objects or {}).items():
        store.pipe_file(path, text.encode())
    dag = runpy.run_path(file)["dag"]
    SEEN.clear()
    for task in dag.tasks:
        given = getattr(task, "partial_kwargs", None)
        if given is None:
            task.on_failure_callback = [see]
        else:
            given["on_failure_callback"] = [see]
    result = dag.test(run_conf=conf)
    return {
        "dag_id": dag.dag_id,
        "state": str(result.state),
        "tasks": [describe(ti) for ti in result.get_task_instances()],
        "seen": list(SEEN),
        "objects": {path: store.size(path) for path in store.find("/")},
    }


def see(context: Any) -> None:
    """Write down what a failure callback is given."""
    error = context.get("exception")
    kinds = [kind.__name__ for kind in type(error).__mro__] if error is not None else None
    SEEN.append({"task_id": context["ti"].task_id, "kinds": kinds, "text": str(error)})


def describe(ti: Any) -> dict[str, Any]:
    """Tell of a task instance."""
    from airflow.models.renderedtifields import RenderedTaskInstanceFields

    return {
        "task_id": ti.task_id,
        "map_index": ti.map_index,
        "state": str(ti.state),
        "try_number": ti.try_number,
        "result": ti.xcom_pull(task_ids=ti.task_id, map_indexes=ti.map_index),
        "rendered": RenderedTaskInstanceFields.get_templated_fields(ti),
    }


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
