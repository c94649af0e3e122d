"""A machine that cannot run the scripts is told so, with what to do."""

import ast
from pathlib import Path

import pytest
from prerequisites import (
    AIRFLOW,
    GIB,
    OTHERS,
    Missing,
    available_memory,
    check_airflow,
    check_disk,
    check_python,
    check_tools,
    check_writable,
    memory_warning,
)


@pytest.mark.parametrize("version", [(3, 11), (3, 12), (3, 13), (3, 14)])
def test_supported_pythons_pass(version: tuple[int, int]) -> None:
    check_python(version, "linux")


@pytest.mark.parametrize("version", [(3, 9), (3, 10), (3, 15)])
def test_another_python_is_named_with_those_that_would_do(
    version: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "python3.13").symlink_to("/bin/true")
    (tmp_path / "python3.12").symlink_to("/bin/false")  # a stand-in for a version that is not installed
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Missing) as found:
        check_python(version, "linux")
    assert str(found.value) == (
        f"Airflow 3.3.2 does not run on Python 3.{version[1]}. "
        "This machine has python3.13: start the same script with that."
    )


@pytest.mark.parametrize(("airflow", "version"), [("2.11.2", (3, 13)), ("3.1.8", (3, 14))])
def test_a_python_that_an_older_airflow_does_not_know_is_refused(airflow: str, version: tuple[int, int]) -> None:
    with pytest.raises(Missing, match=f"Airflow {airflow} does not run on Python 3.{version[1]}"):
        check_airflow(airflow, version)


@pytest.mark.parametrize("airflow", [AIRFLOW, *OTHERS])
def test_every_airflow_that_can_be_chosen_is_pinned(airflow: str) -> None:
    pins = Path(__file__).parents[2] / "requirements" / f"airflow-{airflow}.txt"

    assert f"apache-airflow=={airflow}" in pins.read_text().splitlines()


def test_without_a_fitting_python_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Missing, match=r"Install one of Python 3\.11, 3\.12, 3\.13, 3\.14"):
        check_python((3, 8), "linux")


def test_another_system_is_named() -> None:
    with pytest.raises(Missing, match="need Linux"):
        check_python((3, 13), "darwin")


@pytest.mark.parametrize("script", ["example_dags/run.py", "tests/run.py", "requirements/prerequisites.py"])
def test_what_runs_before_the_check_parses_on_old_pythons(script: str, root: Path) -> None:
    ast.parse((root / script).read_text(encoding="utf-8"), feature_version=(3, 8))


def test_a_missing_module_is_named_with_the_command_that_installs_it() -> None:
    with pytest.raises(Missing, match="apt-get install python3-nonsense"):
        check_tools(("venv", "nonsense"))


def test_too_little_disk_is_named(tmp_path: Path) -> None:
    check_disk(tmp_path, 0.000001, "The run")
    with pytest.raises(Missing, match=r"The run needs 1e\+09 GiB of disk"):
        check_disk(tmp_path, 1e9, "The run")


def test_too_little_memory_is_named() -> None:
    assert memory_warning(2, 2 * GIB) == ""
    assert memory_warning(2, GIB).startswith("Only 1.0 GiB of memory are available; Airflow needs about 2 GiB here.")


def test_available_memory_is_in_bytes() -> None:
    assert 1 << 26 < available_memory() < 1 << 46


def test_a_clone_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    check_writable(tmp_path)
    with pytest.raises(Missing, match="is not writable"):
        check_writable(Path("/proc/self"))  # not even root may
