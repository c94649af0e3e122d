"""schemathesis against the embedded service: every operation of its document, every check, stateful links.

    python tests/proofs/openapi.py              at least 10,000 cases, some ten minutes
    python tests/proofs/openapi.py --examples 3     a quick look

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
from dataclasses import dataclass
from pathlib import Path

from airflow_tds.client.client import TableClient
from airflow_tds.local import Service

PARTS = Path(__file__).parent / "parts"
TABLES = {"people": "id,name\n1,Ada\n2,Alan\n", "pets": "id,owner,name\n1,1,Rex\n2,,Tom\n"}
QUERIES = ("query_json", "delete_rows", "start_query", "poll_query", "get_job", "get_result", "info")
FAULTS = "/admin/faults"


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
    options = parser.parse_args()
    cases, worst = 0, 0
    for name in options.only or RUNS:
        code, counts = execute(RUNS[name], options)
        cases, worst = cases + counts["generated"], max(worst, abs(code))
    print(f"schemathesis: {cases:,} cases, {'no failure' if worst == 0 else 'FAILED'}", flush=True)
    return worst


def execute(run: Run, options: argparse.Namespace) -> tuple[int, dict[str, int]]:
    """Run schemathesis once, against a service of its own."""
    with tempfile.TemporaryDirectory() as scratch, Service(tables=[*TABLES, "empty"]) as service:
        with TableClient(service.url, token=service.token) as client:
            for table_id, rows in TABLES.items():
                client.upload(table_id, rows, poll_interval=0.05)
        report = Path(scratch) / "report.json"
        command = [str(Path(sys.executable).parent / "schemathesis"), "--config-file", str(PARTS / "schemathesis.toml")]
        command += ["run", f"{service.url}/openapi.json", "--header", f"Authorization: Bearer {service.token}"]
        phases = run.phases.removeprefix("coverage,") if options.without_coverage else run.phases
        command += ["--checks", "all", "--phases", phases, "--max-examples", str(options.examples * run.factor)]
        command += ["--report", "json", "--report-json-path", str(report), "--no-color", *run.options]
        command += ["--generation-database", "none"]
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
