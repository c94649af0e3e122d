"""The matrix tells each version's outcome, and which versions a Python can hold."""

from __future__ import annotations

import sys
from pathlib import Path

import matrix
import prerequisites
import pytest

REPORT = '<testsuites><testsuite tests="12" failures="1" errors="2" skipped="3"/></testsuites>'


def test_a_report_becomes_a_row(tmp_path: Path) -> None:
    report = tmp_path / "junit.xml"
    report.write_text(REPORT)

    assert matrix._row("3.1.8", report, 20.4, 61.0) == matrix.Row("3.1.8", 9, 3, 3, 20.4, 61.0)
    assert not report.exists()


def test_a_version_on_which_no_test_ran_has_not_passed(tmp_path: Path) -> None:
    row = matrix._row("3.1.8", tmp_path / "none.xml", 1.0, 2.0)

    assert not row.passed
    assert row.said == "no test ran"


def test_the_table_names_what_failed() -> None:
    rows = [
        matrix.Row("3.3.2", 100, 0, 2, 31.2, 90.6),
        matrix.Row("3.0.6", 90, 1, 12, 30.0, 80.0),
        matrix.Row("2.11.2", said="pip failed"),
    ]

    assert matrix.table(rows).splitlines()[1:] == [
        "3.3.2       100       0        2         31 s        91 s",
        "3.0.6        90       1       12         30 s        80 s  FAILED",
        "2.11.2        0       0        0          0 s         0 s  FAILED pip failed",
    ]


@pytest.mark.parametrize(
    ("python", "oldest"), [((3, 11), "2.11.2"), ((3, 12), "2.11.2"), ((3, 13), "3.1.8"), ((3, 14), "3.2.2")]
)
def test_the_oldest_version_is_the_oldest_that_a_python_holds(
    python: tuple[int, int], oldest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "version_info", (*python, 1, "final", 0))

    assert matrix.versions()[0] == prerequisites.AIRFLOW
    assert matrix.versions()[-1] == oldest


def test_every_file_that_it_runs_is_there(root: Path) -> None:
    assert [name for name in (*matrix.BY_VERSION, *matrix.OLDEST) if not (root / name).exists()] == []


def test_every_file_that_begins_is_there(request: pytest.FixtureRequest) -> None:
    begin = next(plugin for plugin in request.config.pluginmanager.get_plugins() if hasattr(plugin, "LONGEST"))

    assert [file for file in begin.LONGEST if not (request.config.rootpath / file).is_file()] == []
