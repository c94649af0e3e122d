"""What every test needs: an Airflow home of its own, set before Airflow is imported. Who begins; a run's last word."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

import pytest

#: The files that take longest, about the longest first: one that began last would keep one core, and the others idle.
LONGEST = (
    "tests/durability/test_crashes.py",
    "tests/airflow/test_canaries.py",
    "tests/client/matrix/test_matrix.py",
    "tests/airflow/test_dags.py",
    "tests/durability/test_strategies.py",
    "tests/system/test_real_airflow.py",
    "tests/local/test_life.py",
    "tests/scripts/test_stack.py",
    "tests/local/test_openapi.py",
    "tests/testing/test_plugin.py",
    "tests/local/test_against_model.py",
    "tests/airflow/test_connection_sources.py",
    "tests/airflow/test_form.py",
    "tests/airflow/test_operators.py",
    "tests/durability/test_simulation.py",
    "tests/durability/test_schedules.py",
    "tests/client/test_security.py",
    "tests/durability/test_model.py",
    "tests/polling/test_poller.py",
    "tests/test_imports.py",
)

for name in [name for name in os.environ if name.startswith("AIRFLOW")]:
    del os.environ[name]
os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="airflow-tds-tests-")
atexit.register(shutil.rmtree, os.environ["AIRFLOW_HOME"], ignore_errors=True)
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"

_SAID = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def say(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Say a line at the end of the run, in whichever process of it the test is."""
    return pytestconfig.stash.setdefault(_SAID, []).append


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):  # in a worker, which prints nothing
        session.config.workeroutput["said"] = session.config.stash.get(_SAID, [])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash.setdefault(_SAID, []).extend(getattr(node, "workeroutput", {}).get("said", []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in terminalreporter.config.stash.get(_SAID, []):
        terminalreporter.write_line(line)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the longest files begin; a file's tests keep their order."""
    place = {file: number for number, file in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.nodeid.partition("::")[0], len(place)))
