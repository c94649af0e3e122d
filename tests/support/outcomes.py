"""Every operator and sensor, blocking and deferred, in every outcome, by `dag.test()`; prints a table.

    python tests/support/outcomes.py [--write]

Each cell of operator x outcome is two tasks of one DAG, one in each mode. Before a task runs, its table and what is
to go wrong are set up at an embedded service in this process; afterwards its error, and what the service was asked, are
written down. Both modes must end with the same class and the same text, and must have made the requests that their cell
may make: by these methods, so often, and no others. `--write` puts the table into docs/outcomes.md. It takes some
minutes, so it is no part of the ordinary tests.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

HOME = os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="airflow-tds-outcomes-"))
os.environ.setdefault("AIRFLOW__CORE__LOAD_EXAMPLES", "False")
os.environ.setdefault("AIRFLOW__CORE__DAGS_FOLDER", str(Path(HOME, "dags")))

from airflow.providers.common.compat.sdk import DAG  # noqa: E402  # only now: it reads the lines above

from airflow_tds import operators, sensors  # noqa: E402
from airflow_tds.hooks import TdsHook  # noqa: E402
from airflow_tds.local import Service  # noqa: E402

PAGE = Path(__file__).parents[2] / "docs" / "outcomes.md"
OUTCOMES = ("success", "job failed", "timeout", "401", "404", "409", "422", "service down")
ROWS, BAD = "id,name\n1,a\n2,b\n", "id,name\n1,a,of too many values\n"
#: Which task is being run, and what came of each.
RESULTS: dict[str, dict[str, Any]] = {}
BEGUN: dict[str, int] = {}
JOB: dict[str, str] = {}
#: Cells whose modes differ, or that did not come to their outcome.
WRONG: list[str] = []


@dataclass(frozen=True)
class Kind:
    """An operator or sensor, and how it comes to each outcome.

    Attributes:
        make: Its class.
        given: Its arguments, made of a table's name and a job's id.
        refused: The operation that a 422 hits.
        asks: What can become of it, and what the service is asked for then: `METHOD operation times`, where `1+` is
            what depends on how long a wait takes.
        late: The operation that stays pending for a timeout; None where all jobs are held.
    """

    make: Any
    given: Callable[[str, str], dict[str, Any]]
    refused: str
    asks: dict[str, str]
    late: str | None = None

    @property
    def outcomes(self) -> list[str]:
        """What can become of it, in the order of the table."""
        return [outcome for outcome in OUTCOMES if outcome in self.asks]


def each(asked: str) -> dict[str, str]:
    """Give what is asked for where the first request decides."""
    return {"success": asked, "401": asked, "404": asked, "422": asked, "service down": ""}


#: A table's statistics come first; where they are not found, the fixed query route says whether the table is missing.
LOOKS = each("GET info 1") | {"404": "GET info 1, GET query_json 1"}


def writes(operation: str, looks: int = 1, method: str = "POST") -> dict[str, str]:
    """Give what a write asks for: it is initiated once, and its data goes out once."""
    started = f"GET info {looks}, {method} {operation} 1"
    through = f"{method} {operation} 1, GET get_job 1+, PUT put_payload 1"
    ended = f"GET info {looks + 1}, {through}"
    return LOOKS | {"success": ended, "job failed": ended, "timeout": f"GET info {looks}, {through}", "422": started}


def queries(started: str, first: str) -> dict[str, str]:
    """Give what a query's result asks for: it is started once, if at all, and fetched once."""
    waited = f"{started}GET poll_query 1+"
    return each(first) | {"success": f"{waited}, GET get_result 1", "job failed": waited, "timeout": waited}


def written(**more: Any) -> Callable[[str, str], dict[str, Any]]:
    """Give the arguments of a write."""
    return lambda table, _: {"table_id": table, "data": ROWS, "format": "csv", **more}


def kept(table: str, _: str) -> dict[str, Any]:
    """Give the arguments of a query into a file."""
    return {"table_id": table, "format": "csv", "destination": f"{HOME}/{table}.csv", "if_exists": "replace"}


def joined(table: str, _: str) -> dict[str, Any]:
    """Give the arguments of a cross query."""
    return {"request": {"table_id": table, "format": "csv"}, "destination": f"{HOME}/{table}.csv"}


ASKED = queries("POST start_query 1, ", "POST start_query 1")
GIVEN = queries("", "GET poll_query 1")
TRUNCATED = "GET info 1+, POST truncate 1"
APPENDS = writes("append", method="PATCH")
KINDS = {
    "upload": Kind(
        operators.TdsUploadOperator, written(), "upload", writes("upload") | {"409": "GET info 1, POST upload 1"}
    ),
    "append": Kind(operators.TdsAppendOperator, written(), "append", APPENDS),
    "upsert": Kind(operators.TdsUpsertOperator, written(key_columns="id"), "upsert", writes("upsert")),
    "overwrite": Kind(operators.TdsOverwriteOperator, written(), "overwrite", writes("overwrite")),
    "update": Kind(operators.TdsUpdateOperator, written(update_mode="append"), "append", APPENDS),
    "load": Kind(operators.TdsLoadOperator, written(mode="append"), "append", writes("append", 2, "PATCH")),
    "delete": Kind(
        operators.TdsDeleteRowsOperator,
        lambda t, _: {"table_id": t, "filters": "id:eq:1"},
        "delete_rows",
        LOOKS | {"success": "GET info 2, POST delete_rows 1", "422": "GET info 1, POST delete_rows 1"},
    ),
    "truncate": Kind(
        operators.TdsTruncateOperator,
        lambda t, _: {"table_id": t},
        "truncate",
        LOOKS | {"success": TRUNCATED, "timeout": TRUNCATED, "422": "GET info 1, POST truncate 1"},
    ),
    "query": Kind(operators.TdsQueryOperator, lambda t, _: {"table_id": t}, "query_json", each("GET query_json 1")),
    "query_file": Kind(operators.TdsQueryOperator, kept, "start_query", ASKED, "poll_query"),
    "cross_query": Kind(operators.TdsCrossQueryOperator, joined, "start_query", ASKED, "poll_query"),
    "download": Kind(
        operators.TdsDownloadOperator,
        lambda t, j: {"job_id": j, "destination": f"{HOME}/{t}.csv"},
        "poll_query",
        GIVEN,
        "poll_query",
    ),
    "info": Kind(operators.TdsTableInfoOperator, lambda t, _: {"table_id": t}, "info", LOOKS),
    "check": Kind(operators.TdsCheckOperator, lambda t, _: {"table_id": t, "min_rows": 1}, "info", LOOKS),
    "table_sensor": Kind(
        sensors.TdsTableSensor,
        lambda t, _: {"table_id": t, "min_rows": 1},
        "info",
        LOOKS | {"success": "GET info 2", "timeout": "GET info 1+"},
    ),
    "job_sensor": Kind(
        sensors.TdsJobSensor,
        lambda _, j: {"job_id": j},
        "get_job",
        each("GET get_job 1") | dict.fromkeys(("success", "job failed", "timeout"), "GET get_job 1+"),
    ),
}
#: What waits, hence has a mode.
MODES = dict.fromkeys(KINDS, (False, True)) | {"info": (False,), "check": (False,)}


def cells() -> Iterator[tuple[str, str, bool]]:
    """Name every task: operator, outcome, mode."""
    for name, kind in KINDS.items():
        for outcome in kind.outcomes:
            for deferrable in MODES[name]:
                yield name, outcome, deferrable


def task_id(name: str, outcome: str, *, deferrable: bool) -> str:
    """Name a cell's task, and its table."""
    return f"{name}__{outcome.replace(' ', '_')}__{'deferred' if deferrable else 'blocking'}"


def arguments(name: str, outcome: str, *, deferrable: bool) -> dict[str, Any]:
    """Give what a cell's task is made with."""
    own = task_id(name, outcome, deferrable=deferrable)
    missing = outcome == "404"
    given = KINDS[name].given("nowhere" if missing else own, "none")
    if outcome == "job failed" and "data" in given:
        given["data"] = BAD
    if outcome == "timeout" and name == "table_sensor":
        given["min_rows"] = 1000
    connection = {"401": "wrong", "service down": "down"}.get(outcome, "tds_default")
    given |= {"task_id": own, "tds_conn_id": connection}
    if name not in ("info", "check"):
        given |= {
            "deferrable": deferrable,
            "poll_interval": 0.2,
            "timeout": 3 if outcome in ("timeout", "service down") else 120,
        }
    return given


def prepare(service: Service, name: str, outcome: str, own: str, context: Any) -> None:  # Airflow's hook
    """Set up a task's table and what is to go wrong; once, also if Airflow calls again after a deferral."""
    if own in BEGUN:
        _name_job(context, own)
        return
    hook, kind = TdsHook(), KINDS[name]
    service.create_table(own)
    if name != "upload" or outcome == "409":
        hook.upload(own, ROWS, "csv", poll_interval=0.05)
    if outcome == "timeout" and kind.late is None:
        service.hold()
    if name in ("download", "job_sensor") and outcome != "404":
        data = BAD if outcome == "job failed" else ROWS
        JOB[own] = hook.submit_query(own, format="csv") if name == "download" else hook.submit_append(own, data, "csv")
        _name_job(context, own)
    if outcome == "job failed" and kind.late:
        service.fault(kind.late, status=307)  # without a target the job has failed, §7
    if outcome == "timeout" and kind.late:
        service.fault(kind.late, status=202, times=1000)
    if outcome == "422":
        service.fault(kind.refused, status=422)
    BEGUN[own] = len(service.requests)


def _name_job(context: Any, own: str) -> None:
    """Give a task its job, which is not known when the DAG is made."""
    if own in JOB:
        context["task"].job_id = JOB[own]


def settle(service: Service, own: str, context: Any) -> None:
    """Write down what became of a task, and undo what was to go wrong."""
    error = context.get("exception") if RESULTS.get(own) is None else None
    asked = Counter(f"{one.method} {one.operation}" for one in service.requests[BEGUN[own] :] if one.operation)
    RESULTS[own] = {"error": error, "asked": dict(asked)}
    service.clear_faults()
    service.release()


def build(service: Service) -> DAG:
    """Make the DAG of all cells."""
    with DAG("outcomes", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)) as made:
        for name, outcome, deferrable in cells():
            own = task_id(name, outcome, deferrable=deferrable)
            KINDS[name].make(
                **arguments(name, outcome, deferrable=deferrable),
                pre_execute=partial(prepare, service, name, outcome, own),
                on_failure_callback=partial(settle, service, own),
                on_success_callback=partial(settle, service, own),
            )
    return made


def plain(error: BaseException | None) -> tuple[str, str]:
    """Give an error's class and text, without what differs from run to run."""
    if error is None:
        return "", ""
    kind = type(error).__name__.removeprefix("Final")
    text = re.sub(r"\b[0-9a-f]{32}\b", "JOB", str(error))
    text = re.sub(r"\w+__\w+__(blocking|deferred)", "TABLE", re.sub(r"127\.0\.0\.1:\d+", "HOST", text))
    return kind, re.sub(r"[\n|]", " ", re.sub(r"after \d+ s", "after N s", text))


def fits(end: dict[str, Any], asks: str) -> bool:
    """Say whether a task has asked the service for what its cell may ask for, and for nothing else."""
    asked = dict(end["asked"])
    for one in filter(None, asks.split(", ")):
        request, _, times = one.rpartition(" ")
        found = asked.pop(request, 0)
        if found < 1 if times == "1+" else found != int(times):
            return False
    return not asked


def rows() -> Iterator[tuple[str, ...]]:
    """Give the table's rows: class, outcome, error, whether retried, text, requests; both modes must agree."""
    from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSensorTimeout

    for name, kind in KINDS.items():
        for outcome in kind.outcomes:
            ends = [RESULTS[task_id(name, outcome, deferrable=mode)] for mode in MODES[name]]
            told = {plain(end["error"]) for end in ends}
            asks = kind.asks[outcome]
            WRONG.extend(f"{name}, {outcome}: asked for {end['asked']}" for end in ends if not fits(end, asks))
            if len(told) != 1 or (outcome == "success") != (told == {("", "")}):
                WRONG.append(f"{name}, {outcome}: {told}")
            error = ends[0]["error"]
            final = isinstance(error, AirflowFailException | AirflowSensorTimeout)
            retried = "" if error is None else "no" if final else "yes"
            named = kind.make.__name__ + (" (file)" if name == "query_file" else "")
            yield (named, outcome, *min(told), retried, asks)


def table() -> str:
    """Write the table for people."""
    head = "| Operator | Outcome | Error | Text | Retried | The service was asked for |\n|---|---|---|---|---|---|\n"
    lines = []
    for named, outcome, error, text, retried, asks in rows():
        shown = text if len(text) <= 160 else text[:157] + "..."  # one line
        lines.append(f"| `{named}` | {outcome} | {f'`{error}`' if error else ''} | {shown} | {retried} | {asks} |")
    return head + "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    """Run all cells, and print the table."""
    from airflow.utils.db import initdb

    Path(HOME, "dags").mkdir(parents=True, exist_ok=True)
    Path(HOME, "dags", "outcomes.py").write_text("from __main__ import dag  # the airflow DAG that this process runs\n")
    initdb()
    with Service() as service:
        connect(service)
        globals()["dag"] = made = build(service)
        made.test()
    count = len(RESULTS)
    shown = table()
    print(shown)
    if WRONG:
        print("\n".join(WRONG))
        return 1
    print(f"{count} tasks by dag.test(); class and text are the same in both modes")
    if "--write" in arguments:
        before = PAGE.read_text().split("\n| Operator |")[0]
        PAGE.write_text(f"{before}\n{shown}\n{count} tasks in all.\n")
    return 0


def connect(service: Service) -> None:
    """Make the three connections: to the service, with a wrong token, and to nobody."""
    right = json.loads(service.connection_json)
    os.environ["AIRFLOW_CONN_TDS_DEFAULT"] = json.dumps(right)
    os.environ["AIRFLOW_CONN_WRONG"] = json.dumps(right | {"password": "wrong"})
    os.environ["AIRFLOW_CONN_DOWN"] = json.dumps(right | {"port": 9})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
