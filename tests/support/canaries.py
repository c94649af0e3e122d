"""Operators on real DAG runs in both modes, with a canary in every place of a secret and of a row.

A script for a process with an Airflow of its own: it stands in the folder of DAGs, and is told where to write what must
not be found (credentials in all forms, signatures that came up) and what came of each task.
"""

from __future__ import annotations

import json
import os
import pickle
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

#: Put together, as Airflow keeps the text of this file in its database.
TOKEN, WRONG, KEY = (f"canary{rest}" for rest in ("/token+of=the-service", "/wrong+token", "-of-a-key"))
IN_SOURCE, IN_DATA, IN_ROWS = (f"canary-row-of-{rest}" for rest in ("a-source", "data", "rows"))

#: A signature has more characters than this; a shorter one is somebody's example.
SHORTEST = 16


def chunks() -> Iterator[bytes]:
    """Give data whose length nobody knows."""
    yield b"id,name\n"
    yield f"2,{IN_DATA}\n".encode()


def keep_exception(context: Any) -> None:
    """Keep what a task failed with as other processes would get it."""
    error = context["exception"]
    folder = Path(os.environ["CANARY_OUT"]) / "searched"
    folder.mkdir(exist_ok=True)
    name = f"{context['ti'].dag_id}.{context['ti'].task_id}"
    (folder / name).write_text(f"{type(error).__name__}: {error!s} {error!r} {error.args} {error.__cause__!r}")
    with suppress(Exception):
        (folder / f"{name}.pickle").write_bytes(pickle.dumps(error))


def dag_of(name: str) -> Any:
    """Make a DAG of every kind of operator: those that go well, and those that fail."""
    from datetime import datetime

    from airflow.providers.common.compat.sdk import DAG, TriggerRule

    from airflow_tds import operators

    out = Path(os.environ["CANARY_OUT"])
    source = str(out / "source.csv")
    every: dict[str, Any] = {
        "deferrable": name == "deferred",
        "poll_interval": 1,
        "retries": 0,
        "on_failure_callback": keep_exception,
    }
    later = every | {"trigger_rule": TriggerRule.ALL_DONE}
    with DAG(name, schedule=None, start_date=datetime(2026, 1, 1), catchup=False) as dag:  # noqa: DTZ001  # as users do
        tasks = [
            operators.TdsUploadOperator(task_id="upload", table_id=name, source=source, **every),
            operators.TdsAppendOperator(task_id="append", table_id=name, data=chunks, **later),
            operators.TdsAppendOperator(
                task_id="rows", table_id=name, rows=[{"id": 3, "name": IN_ROWS}], format="json", **later
            ),
            operators.TdsCrossQueryOperator(
                task_id="query",
                request={"table_id": name, "format": "csv"},
                destination=str(out / f"{name}.csv"),
                **later,
            ),
            operators.TdsDeleteRowsOperator(
                task_id="delete",
                table_id=name,
                filters=["id:eq:2"],
                **{k: later[k] for k in later if k != "poll_interval"},
            ),
            operators.TdsTruncateOperator(task_id="truncate", table_id=name, **later),
            operators.TdsAppendOperator(
                task_id="unauthorized", table_id=name, source=source, tds_conn_id="tds_wrong", **later
            ),
            operators.TdsAppendOperator(task_id="missing", table_id="nowhere", source=source, **later),
            operators.TdsAppendOperator(task_id="failing", table_id=name, data=f"no,columns\n1,{IN_DATA}\n", **later),
        ]
        for before, after in pairwise(tasks):
            before >> after
    return dag


def observe_signatures(found: set[str]) -> None:
    """Note the secrets of every presigned URL that comes up."""
    from airflow_tds.client.messages import SecretUrl

    made = SecretUrl.__init__

    def init(self: SecretUrl, url: str) -> None:
        made(self, url)
        found.update(secret for secret in self.secrets() if len(secret) >= SHORTEST)

    SecretUrl.__init__ = init  # type: ignore[method-assign]


def main() -> None:
    """Run both DAGs, and write down what must not be found."""
    from harness import one_api_server

    from airflow_tds.local import Service

    one_api_server()
    out, signatures = Path(os.environ["CANARY_OUT"]), set[str]()
    (out / "source.csv").write_text(f"id,name\n1,{IN_SOURCE}\n")
    observe_signatures(signatures)
    states = {}
    with Service(token=TOKEN, tables=["blocking", "deferred"]) as service:
        for conn_id, password in (("TDS_DEFAULT", TOKEN), ("TDS_WRONG", WRONG)):
            extra = {"client_key_password": KEY, "wire": {"no_data_statuses": ["AWAITING"]}}
            fields = {"conn_type": "tds", "host": service.url, "password": password, "extra": extra}
            os.environ[f"AIRFLOW_CONN_{conn_id}"] = json.dumps(fields)
        for name, dag in DAGS.items():
            states[name] = {ti.task_id: str(ti.state) for ti in dag.test().get_task_instances()}
    secrets = [
        form for secret in (TOKEN, WRONG, KEY) for form in (secret, b64encode(secret.encode()).decode().rstrip("="))
    ]
    (out / "found.json").write_text(
        json.dumps({"secrets": secrets, "signatures": sorted(signatures), "states": states})
    )


#: Where Airflow looks for them: it reads this file a second time to serialize them.
DAGS = {name: dag_of(name) for name in ("blocking", "deferred")} if "CANARY_OUT" in os.environ else {}
globals().update(DAGS)

if __name__ == "__main__":
    main()
