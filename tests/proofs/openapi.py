"""schemathesis against the embedded service: every operation of its document, every check, stateful links.

    python tests/proofs/openapi.py              at least 10,000 cases, some ten minutes
    python tests/proofs/openapi.py --examples 3     a quick look
    python tests/proofs/openapi.py --wire put_commit --auth basic --s3      in another form

Three runs, each on a service of its own: the document as it is served; the queries of a document that knows the
tables there are, so that most requests mean something; and the routes that script faults, alone, as what they
script would go wrong in the others. What schemathesis is told beside the document stands in `parts/`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from airflow_tds.client.client import TableClient
from airflow_tds.local import Service

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from service_forms import WIRES, Form, add_arguments, chosen

PARTS = Path(__file__).parent / "parts"
TABLES = {"people": "id,name\n1,Ada\n2,Alan\n", "pets": "id,owner,name\n1,1,Rex\n2,,Tom\n"}
QUERIES = ("query_json", "delete_rows", "start_query", "poll_query", "get_job", "get_result", "info")
FAULTS = "/admin/faults"
#: A write that names its data, sent before, is refused where nobody sent them: no schema can know.
COMMITTED = """
[[operations]]
include-operation-id = ["upload", "append", "overwrite"]
checks.positive_data_acceptance.expected-statuses = ["2xx", 401, 403, 404, 409, 422, "5xx"]
"""


@dataclass(frozen=True)
class Run:
    """One run of schemathesis.

    Attributes:
        name: Says what is tested.
        factor: Examples per operation, as a multiple of those asked for.
        options: For its command line.
        phases: Of schemathesis.
        narrowed: Whether the document knows the tables that there are.
    """

    name: str
    factor: int
    options: tuple[str, ...]
    phases: str = "coverage,fuzzing,stateful"
    narrowed: bool = False


RUNS = {
    "served": Run("the document as it is served", 2, ("--exclude-path", FAULTS)),
    "queries": Run(
        "queries of the tables there are", 4, tuple(f"--include-operation-id={name}" for name in QUERIES), narrowed=True
    ),
    "faults": Run("the routes that script faults", 1, ("--include-path", FAULTS), phases="coverage,fuzzing"),
}


def main() -> int:
    """Run all, print the counts, and give schemathesis' worst exit code."""
    parser = argparse.ArgumentParser(description="Test the embedded service with schemathesis.")
    parser.add_argument("--examples", type=int, default=160, help="per operation and phase (%(default)s)")
    parser.add_argument("--only", choices=RUNS, action="append", help="default: all")
    parser.add_argument("--without-coverage", action="store_true", help="leave out schemathesis' phase of edge cases")
    parser.add_argument("--seed", type=int, help="default: another one each time")
    add_arguments(parser)
    options = parser.parse_args()
    cases, worst = 0, 0
    with chosen(options) as form:
        for name in options.only or RUNS:
            code, counts = execute(RUNS[name], options, form)
            cases, worst = cases + counts["generated"], max(worst, abs(code))
    print(f"schemathesis: {cases:,} cases, {'no failure' if worst == 0 else 'FAILED'}", flush=True)
    return worst


@contextmanager
def served(form: Form) -> Iterator[tuple[Service, list[str]]]:
    """Serve tables with rows in a form; give the service, and the header fields that let a caller in."""
    keys: dict[str, Any] = {"tables": [*TABLES, "empty"], "wire": WIRES[form.wire], "auth": form.auth}
    with Service(**keys, bucket=form.bucket(uuid4().hex)) as service:
        shown = form.credentials(service.url, service.token)
        with TableClient(service.url, credentials=shown, wire=form.map) as client:
            for table_id, rows in TABLES.items():
                client.upload(table_id, rows, timeout=60, poll_interval=0.05)
        yield service, [f"--header={name}: {value}" for name, value in shown.fields().items()]


def execute(run: Run, options: argparse.Namespace, form: Form) -> tuple[int, dict[str, int]]:
    """Run schemathesis once, against a service of its own."""
    with tempfile.TemporaryDirectory() as scratch, served(form) as (service, fields):
        report = Path(scratch) / "report.json"
        config = Path(scratch) / "schemathesis.toml"
        config.write_text((PARTS / "schemathesis.toml").read_text() + (COMMITTED if form.wire == "put_commit" else ""))
        command = [str(Path(sys.executable).parent / "schemathesis"), "--config-file", str(config)]
        command += ["run", f"{service.url}/openapi.json", *fields]
        phases = run.phases.removeprefix("coverage,") if options.without_coverage else run.phases
        command += ["--checks", "all", "--phases", phases, "--max-examples", str(options.examples * run.factor)]
        command += ["--report", "json", "--report-json-path", str(report), "--no-color", *run.options]
        command += ["--generation-database", "none", "--request-timeout", "120"]
        command += ["--seed", str(options.seed)] if options.seed is not None else []
        env = os.environ | {"SCHEMATHESIS_HOOKS": str(PARTS / "schemathesis_hooks.py")}
        env |= {"TDS_NARROWED": "1"} if run.narrowed else {}
        ended = subprocess.run(command, cwd=scratch, env=env, capture_output=True, text=True, check=False)
        counts: dict[str, int] = json.loads(report.read_text())["test_cases"] if report.exists() else {"generated": 0}
        if ended.returncode:
            print(ended.stdout, ended.stderr)
        answers = Counter(record.status for record in service.requests)
    told = ", ".join(f"{status}: {count:,}" for status, count in sorted(answers.items()))
    print(f"{run.name}: {counts['generated']:,} cases, exit code {ended.returncode}; answers {told}", flush=True)
    return ended.returncode, counts


if __name__ == "__main__":
    sys.exit(main())
