"""Check and test this clone, in one command that makes its own environment.

    python3 tests/run.py              check, then test, then the oldest Airflow that this Python holds
    python3 tests/run.py check        lint, formatting, types
    python3 tests/run.py format       rewrite the files in the project's format
    python3 tests/run.py test         the tests, with branch coverage
    python3 tests/run.py test -- -k operators -x      the same, with arguments for pytest
    python3 tests/run.py test --airflow 3.1.8     what depends on Airflow's version, on another one
    python3 tests/run.py matrix       the wheel on every supported Airflow, and the page of what differs
    python3 tests/run.py prove        what takes too long for every run: 10,000 requests, 200 kills
    python3 tests/run.py simulate     20,000 seeded worlds in which a write meets every fault; `-- --help` for more
    python3 tests/run.py kills        kill -9 at every step of a write on a real Airflow; `-- --help` for more
    python3 tests/run.py bench        the benchmarks

What lives here: one command per intent, and what each consists of.
What must not: settings of the tools (pyproject.toml). This file must parse on Python 3.8, to say there that another one
is needed.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "requirements"))

import prerequisites  # noqa: E402  # found by the line above

try:
    prerequisites.check_python()
except prerequisites.Missing as missing:
    sys.exit(str(missing))

import environment  # noqa: E402  # only now: they need the checked Python
import matrix  # noqa: E402  # only now: they need the checked Python
import processes  # noqa: E402  # only now: they need the checked Python

STEPS = {
    "check": (
        ("-m", "ruff", "check"),
        ("-m", "ruff", "format", "--check"),
        ("-m", "mypy"),
    ),
    "format": (
        ("-m", "ruff", "check", "--fix"),
        ("-m", "ruff", "format"),
    ),
    "test": (
        ("-m", "pytest", "--cov", "--cov-report=", "--junit-xml={scratch}/junit.xml", "{pytest}"),
        ("-m", "coverage", "report"),
    ),
    "simulate": (("tests/durability/simulate.py", "{arguments}"),),
    "kills": (("tests/system/kills.py", "{arguments}"),),
    "prove": tuple((str(script),) for script in sorted((ROOT / "tests" / "proofs").glob("*.py"))),
    "bench": tuple((str(script),) for script in sorted((ROOT / "tests" / "benchmarks").glob("*.py"))),
}

#: Held by the whole suite only. A write rests on the client and on the record: 100 % of their branches is the bar,
#: and what is missing is shown. The gate is 99.8 %: a line that only a race reaches may be missed in one run.
CORE = "--include=airflow_tds/client/*,airflow_tds/durability/*"
BOUNDS = (
    ("-m", "coverage", "report", "--format=total", "--fail-under=95"),
    ("-m", "coverage", "report", "--precision=1", "--fail-under=99.8", CORE),
)


def main(arguments: list[str]) -> int:
    """Make the environment and run the steps of the wanted intents.

    Args:
        arguments: of the command line, without the script's name.

    Returns:
        The exit code: 0 if every step passed, else 1; 130 if interrupted.
    """
    options, for_pytest = parse(arguments)
    processes.stop_on_signals()
    started = time.monotonic()
    try:
        prerequisites.check_tools()
        prerequisites.check_airflow(options.airflow)
        prerequisites.check_writable(ROOT)
        if options.intents == ["matrix"]:
            return 0 if matrix.matrix(ROOT) else 1
        environment.select(options.airflow)
        extras = ["local", "dev", *(["fuzz"] if options.airflow == prerequisites.AIRFLOW else [])]
        with environment.ensure(ROOT, extras), tempfile.TemporaryDirectory() as scratch:
            failed = [intent for intent in options.intents if not passes(intent, for_pytest, Path(scratch))]
            tests = counted(Path(scratch))
        if options.intent is None and not for_pytest and not matrix.on_oldest(ROOT):
            failed.append("the oldest Airflow")
    except processes.Interrupted:
        print("Stopped.")
        return 130
    except (prerequisites.Missing, environment.BuildError) as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    verdict = f"FAILED: {', '.join(failed)}" if failed else f"{' and '.join(options.intents)}: passed"
    print(f"{verdict}{tests} ({time.monotonic() - started:.0f} s)", flush=True)
    return 1 if failed else 0


def parse(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Read the command line; what follows `--` is for pytest."""
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(prog="python3 tests/run.py", description="Check and test this clone.")
    parser.add_argument(
        "intent", nargs="?", choices=(*STEPS, "matrix"), help="default: check, test, and the oldest Airflow"
    )
    versions = (prerequisites.AIRFLOW, *prerequisites.OTHERS)
    parser.add_argument("--airflow", choices=versions, default=prerequisites.AIRFLOW, help="default: the newest")
    options = parser.parse_args(arguments[:cut])
    other = options.airflow != prerequisites.AIRFLOW
    if other and options.intent != "test":
        parser.error("only `test` runs on another Airflow")
    options.intents = [options.intent] if options.intent else ["check", "test"]
    return options, arguments[cut + 1 :] or (list(matrix.BY_VERSION) if other else [])


def passes(intent: str, for_pytest: list[str], scratch: Path) -> bool:
    """Run the steps of an intent, all of them even if one fails, and say whether all passed."""
    steps = STEPS[intent] + (BOUNDS if intent == "test" and not for_pytest else ())
    results = [execute(fill(step, for_pytest, scratch), scratch) for step in steps]
    return all(results)


def fill(step: tuple[str, ...], given: list[str], scratch: Path) -> list[str]:
    """Put the run's own values into a step; the whole suite runs on all cores."""
    lists = {"{pytest}": given or list(matrix.PARALLEL), "{arguments}": given}
    return [part.replace("{scratch}", str(scratch)) for argument in step for part in lists.get(argument, [argument])]


def counted(scratch: Path) -> str:
    """Say how many tests ran, as pytest said before the coverage report; empty: none."""
    report = scratch / "junit.xml"
    if not report.exists():
        return ""
    suite = next(ET.parse(report).iter("testsuite"))  # noqa: S314  # pytest wrote it just now
    return "; " + ", ".join(f"{suite.get(name)} {name}" for name in ("tests", "failures", "errors", "skipped"))


def execute(arguments: list[str], scratch: Path) -> bool:
    """Run one tool in the environment, and say whether it passed."""
    print(f"--- {' '.join(arguments)}", flush=True)
    env = environment.tool_environment(ROOT)
    env["COVERAGE_FILE"] = str(scratch / "coverage")  # two runs at once do not mix
    command = (str(environment.interpreter(ROOT)), *arguments)
    limit = matrix.LIMIT if "pytest" in arguments else math.inf
    return processes.finish(command, env=env, cwd=ROOT, limit=limit) == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
