"""The wheel on every supported Airflow: built once, tested on each in an environment of its own time.

What lives here: which tests run on which version, the table that is printed, and the page of what differs.
What must not: how an environment is made (environment.py), how facts are looked up (tests/support/behaviour.py).
Standard library only; tests/run.py calls it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

import environment
import prerequisites
import processes

__all__ = ["BY_VERSION", "LIMIT", "OLDEST", "PARALLEL", "Row", "matrix", "on_oldest", "table"]

#: What depends on Airflow's version, and runs on every one; without the processes of a real Airflow.
BY_VERSION = ("tests/airflow", "tests/polling")
#: What runs on the oldest in every run: the places where versions differ, about a minute.
OLDEST = tuple(
    f"tests/airflow/test_{name}.py" for name in ("behaviour", "hooks", "operators", "provider_info", "secrets", "tasks")
)
#: The extras that tests need.
EXTRAS = ("local", "dev")
#: Cores that one version's tests take; a file's tests stay together, as they share what takes long to start.
#: A worker that dies fails its test and is not replaced: xdist 3.8 with `loadfile` would wait for ever for its tests.
#: Files are handed out in the order of tests/conftest.py: xdist would begin with those of many tests, however short.
PARALLEL = (
    *("--numprocesses=auto", "--maxprocesses=4", "--dist=loadfile"),
    *("--no-loadscope-reorder", "--max-worker-restart=0"),
)
#: Seconds that one run of pytest may take: four times what the longest takes on two cores.
LIMIT = 3000
_BUILD = "import sys, flit_core.buildapi as b; print(b.build_wheel(sys.argv[1]))"


@dataclass(frozen=True)
class Row:
    """One version's outcome.

    Attributes:
        airflow: The version.
        tests: How many ran; 0 where it did not come to that.
        failed: How many of them failed.
        skipped: How many do not apply to it.
        making: Seconds for the environment.
        testing: Seconds for the tests.
        said: What went wrong beside tests; empty for nothing.
    """

    airflow: str
    tests: int = 0
    failed: int = 0
    skipped: int = 0
    making: float = 0.0
    testing: float = 0.0
    said: str = ""

    @property
    def passed(self) -> bool:
        """Whether tests ran and none failed."""
        return self.tests > 0 and not self.failed and not self.said


def versions() -> list[str]:
    """Name the versions that this Python can hold, the newest first."""
    every = [prerequisites.AIRFLOW, *sorted(prerequisites.OTHERS, reverse=True)]
    return [one for one in every if sys.version_info[:2] <= prerequisites.OTHERS.get(one, prerequisites.PYTHONS[-1])]


def matrix(root: Path) -> bool:
    """Test the wheel on every version, print the table, and write the page of what differs.

    Args:
        root: The clone.

    Returns:
        Whether all passed.
    """
    facts: dict[str, dict[str, str]] = {}
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        wheel = _unpacked_wheel(root, Path(scratch))
        for airflow in versions():
            rows.append(_tested(root, airflow, wheel, Path(scratch), facts))
            print(f"\n{table(rows)}\n", flush=True)
        if facts and len(facts) == 1 + len(prerequisites.OTHERS):
            _write_page(root, facts, Path(scratch))
    missing = [one for one in prerequisites.OTHERS if one not in versions()]
    if missing:
        print(f"This Python is too new for {', '.join(missing)}; the page of what differs is left as it is.")
    return all(row.passed for row in rows)


def on_oldest(root: Path) -> bool:
    """Run what differs most on the oldest version that this Python can hold, and say which that is.

    Args:
        root: The clone.

    Returns:
        Whether all passed.
    """
    airflow = versions()[-1]
    print(f"--- Airflow {airflow}, the oldest that this Python holds", flush=True)
    environment.select(airflow)
    with environment.ensure(root, EXTRAS), tempfile.TemporaryDirectory() as scratch:
        return _pytest(root, OLDEST, Path(scratch), {}) == 0


def _unpacked_wheel(root: Path, scratch: Path) -> Path:
    """Build the wheel and unpack it: its files, and nothing of the clone."""
    environment.select(prerequisites.AIRFLOW)
    with environment.ensure(root, EXTRAS):
        name = _said(root, "-c", _BUILD, str(scratch))
    site = scratch / "site"
    with zipfile.ZipFile(scratch / name) as packed:
        packed.extractall(site)
    return site


def _tested(root: Path, airflow: str, wheel: Path, scratch: Path, facts: dict[str, dict[str, str]]) -> Row:
    begun = time.monotonic()
    environment.select(airflow)
    own = {"PYTHONPATH": str(wheel), "PYTHONSAFEPATH": "1"}  # the wheel, and not the folder that we are in
    try:
        with environment.ensure(root, EXTRAS):
            made = time.monotonic()
            where = _said(root, "-c", "import airflow_tds; print(airflow_tds.__file__)", **own)
            if not where.startswith(str(wheel)):
                return Row(airflow, making=made - begun, said=f"not the wheel but {where} would be tested")
            facts[airflow] = json.loads(
                _said(root, "-W", "ignore", "tests/support/behaviour.py", PYTHONPATH=f"{wheel}:{root / 'requirements'}")
            )
            _pytest(root, (*BY_VERSION, "--junit-xml", str(scratch / "junit.xml")), scratch, own)
    except environment.BuildError as error:
        return Row(airflow, making=time.monotonic() - begun, said=str(error).splitlines()[0])
    return _row(airflow, scratch / "junit.xml", made - begun, time.monotonic() - made)


def _row(airflow: str, report: Path, making: float, testing: float) -> Row:
    if not report.exists():
        return Row(airflow, making=making, testing=testing, said="no test ran")
    suite = next(ET.parse(report).iter("testsuite"))  # noqa: S314  # pytest wrote it just now
    report.unlink()
    count = {name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")}
    failed = count["failures"] + count["errors"]
    return Row(airflow, count["tests"] - count["skipped"], failed, count["skipped"], making, testing)


def _said(root: Path, *arguments: str, **own: str) -> str:
    """Run Python in the selected environment; give the last line that it printed."""
    env = environment.tool_environment(root) | own
    command = (str(environment.interpreter(root)), *arguments)
    done = subprocess.run(command, cwd=root, env=env, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.splitlines()[-1]


def _pytest(root: Path, arguments: Sequence[str], scratch: Path, own: dict[str, str]) -> int | None:
    """Run tests in the selected environment; give pytest's exit code; None: they took too long."""
    env = environment.tool_environment(root) | own | {"COVERAGE_FILE": str(scratch / "coverage")}
    command = (str(environment.interpreter(root)), "-m", "pytest", "-p", "no:cacheprovider", *PARALLEL, *arguments)
    print(f"--- {environment.NAME}: {' '.join(command[1:])}", flush=True)
    return processes.finish(command, env=env, cwd=root, limit=LIMIT)


def table(rows: Sequence[Row]) -> str:
    """Give the rows as text."""
    lines = ["Airflow   tests  failed  skipped  environment  tests take"]
    for row in rows:
        verdict = "" if row.passed else f"  FAILED {row.said}".rstrip()
        figures = f"{row.tests:>6} {row.failed:>7} {row.skipped:>8} {row.making:>10.0f} s {row.testing:>9.0f} s"
        lines.append(f"{row.airflow:<9}{figures}{verdict}")
    return "\n".join(lines)


def _write_page(root: Path, facts: dict[str, dict[str, str]], scratch: Path) -> None:
    """Write docs/behaviour-by-version.md, by the code that the tests hold it to."""
    (scratch / "facts.json").write_text(json.dumps(facts), encoding="utf-8")
    script = (
        "import json, sys, behaviour\n"
        "facts = json.loads(open(sys.argv[1]).read())\n"
        "open(sys.argv[2], 'w').write(behaviour.page(facts))\n"
        "print('written')"
    )
    environment.select(prerequisites.AIRFLOW)
    page = root / "docs" / "behaviour-by-version.md"
    path = os.pathsep.join(str(root / folder) for folder in ("tests/support", "requirements"))
    _said(root, "-W", "ignore", "-c", script, str(scratch / "facts.json"), str(page), PYTHONPATH=path)
    print(f"{page.relative_to(root)} is written", flush=True)
