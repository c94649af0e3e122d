"""What every test needs: an Airflow home of its own, set before anything imports Airflow. And a run's last word."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

import pytest

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
