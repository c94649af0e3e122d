"""Run a DAG in this one process, by Airflow's own `dag.test()`, and write down what its tasks did.

What lives here: the half of `run.py --fast` that needs Airflow, started by it in the environment with a database that
exists. What must not: anything else; it is no proof for the triggerer, as `dag.test()` runs triggers itself.

    python fast.py DAG_FILE CONF_JSON RESULT_FILE
"""

import json
import runpy
import sys
from pathlib import Path


def main(dag_file: str, conf: str, result_file: str) -> int:
    """Run the DAG.

    Args:
        dag_file: in the DAGs folder; its variable `dag` is the DAG.
        conf: the run's configuration, a JSON object.
        result_file: where to write the tasks, as a JSON list of objects with Airflow's names.

    Returns:
        The exit code: 0 if the run succeeded.
    """
    run = runpy.run_path(dag_file)["dag"].test(run_conf=json.loads(conf))
    tasks = [
        {
            "task_id": task.task_id,
            "state": task.state,
            "try_number": task.try_number,
            "start_date": task.start_date and task.start_date.isoformat(),
            "end_date": task.end_date and task.end_date.isoformat(),
            "result": task.xcom_pull(task_ids=task.task_id),
        }
        for task in run.get_task_instances()
    ]
    Path(result_file).write_text(json.dumps(tasks), encoding="utf-8")
    return 0 if run.state == "success" else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
