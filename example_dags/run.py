"""Run the example DAG `flights` on a real Airflow against the embedded service, from a clone, in one command.

    python3 example_dags/run.py           a real Airflow: scheduler, triggerer, DAG processor, API server
    python3 example_dags/run.py --keep    the same, and leaves it up until Ctrl-C
    python3 example_dags/run.py --fast    `dag.test()`: one process, no triggerer

What lives here: the order of things and the exit code.
What must not: how each is done (example.py, stack.py, flight_data.py, requirements/), how it is told (report.py).
This file must parse on Python 3.8, to say there that another one is needed.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.error import URLError

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "requirements"))

import prerequisites  # noqa: E402  # found by the line above

try:
    prerequisites.check_python()
except prerequisites.Missing as missing:
    sys.exit(str(missing))

import environment  # noqa: E402  # only now: they need the checked Python
import flight_data  # noqa: E402
import processes  # noqa: E402
import report  # noqa: E402
from example import Example, RunError, check_rows  # noqa: E402
from stack import Stack, StackError  # noqa: E402

COMMAND = "python3 example_dags/run.py"
MEMORY_GIB = 2.0
DISK_GIB = 1.0  # database, logs, the service's tables
FAILURES = (
    prerequisites.Missing,
    environment.BuildError,
    flight_data.DataError,
    RunError,
    StackError,
    URLError,
    OSError,
)


def main(arguments: list[str]) -> int:
    """Run the example.

    Args:
        arguments: of the command line, without the script's name.

    Returns:
        The exit code: 0 if everything was as it should be, 1 if not, 130 if interrupted.
    """
    options = parse(arguments)
    processes.stop_on_signals()
    try:
        check_machine()
        with environment.ensure(ROOT, ["local"]):
            play(options, flight_data.fetch(ROOT), report.Show())
    except processes.Interrupted:
        print("Stopped; nothing is left running.")
        return 130
    except FAILURES as error:
        print("\n" + "\n".join([str(error), *getattr(error, "__notes__", ())]), file=sys.stderr)
        return 1
    return 0


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog=COMMAND, description="Load real tables through a real Airflow.")
    parser.add_argument("--keep", action="store_true", help="leave Airflow and the service up until Ctrl-C")
    parser.add_argument(
        "--fast", action="store_true", help="one process, by dag.test(), instead of Airflow's components"
    )
    options = parser.parse_args(arguments)
    if options.keep and options.fast:
        parser.error("--fast starts no Airflow that --keep could leave up")
    return options


def check_machine() -> None:
    """Say first what would fail later.

    Raises:
        prerequisites.Missing: something is missing, or short.
    """
    prerequisites.check_tools()
    prerequisites.check_writable(ROOT)
    prerequisites.check_disk(Path(tempfile.gettempdir()), DISK_GIB, "The run")
    if warning := prerequisites.memory_warning(MEMORY_GIB, prerequisites.available_memory()):
        print(warning, flush=True)


def play(options: argparse.Namespace, data: Path, show: report.Show) -> None:
    """Run the example in a temporary folder, which stays only if it failed."""
    scratch = Path(tempfile.mkdtemp(prefix="airflow-tds-"))
    try:
        with contextlib.closing(Example(scratch, data, show)) as example:
            perform(options, example)
    except processes.Interrupted:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    except Exception as error:
        error.add_note(f"All that was written is in {scratch}")
        raise
    shutil.rmtree(scratch)


def perform(options: argparse.Namespace, example: Example) -> None:
    """Start everything, run the DAG, tell what it did; with --keep stay, even if it failed."""
    service = example.start_service(job_delay=0 if options.fast else 1)  # dag.test() waits for one task after the other
    airflow = example.prepare_airflow(service)
    try:
        tasks = example.run_fast(airflow) if options.fast else example.run(airflow)
        tell(options, example, tasks)
    except FAILURES as error:
        if options.keep:
            print(f"\n{error}", file=sys.stderr)
            stay(example, airflow, service)
        raise
    if options.keep:
        stay(example, airflow, service)


def tell(options: argparse.Namespace, example: Example, tasks: dict[str, dict[str, Any]]) -> None:
    """Check and print what the run did.

    Raises:
        RunError: it did something else than it should.
    """
    check_rows(tasks)
    print("\n" + report.table(tasks) + "\n")
    rows, columns, busiest = example.look_at_result()
    print(report.joined(rows, columns, busiest, flight_data.keep(example.output, ROOT)))
    print("\n" + example.show.summary(len(tasks)))
    if not options.keep:
        print(f"To look around in Airflow's web UI: {COMMAND} --keep", flush=True)


def stay(example: Example, airflow: Stack, service: dict[str, str]) -> None:
    """Leave everything up until the user stops it."""
    print(f"Airflow: {airflow.url}/dags/flights (no login; reachable from this machine only)")
    print(f"Service: {service['url']}, its token is in {example.scratch / 'service.json'}")
    print("Ctrl-C stops both.", flush=True)
    with contextlib.suppress(processes.Interrupted):
        while True:
            processes.pause(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
