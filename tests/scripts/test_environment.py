"""The environment is found, made anew when what it is made from changed, and safe from the user's pip settings."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import environment
import pytest
from processes import Child, stop

WAIT = """
import sys
from pathlib import Path
import environment
environment.ensure(Path(sys.argv[1]), ["local"])
print("found", flush=True)
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone with an environment that looks made."""
    for name in ("pyproject.toml", f"requirements/{environment.NAME}.txt", "airflow_tds/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    python = environment.interpreter(tmp_path)
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    state = {"digest": environment.digest(tmp_path), "extras": ["local"]}
    (environment.folder(tmp_path) / environment.STATE).write_text(json.dumps(state))
    return tmp_path


def is_ready(clone: Path, *extras: str) -> bool:
    return environment._is_ready(clone, frozenset(extras))


def test_a_made_environment_is_found_without_pip(clone: Path) -> None:
    environment.ensure(clone, ["local"]).close()
    assert not (clone / ".venv" / f"{environment.NAME}.log").exists()


@pytest.mark.parametrize("name", ["pyproject.toml", f"requirements/{environment.NAME}.txt", "airflow_tds/__init__.py"])
def test_a_changed_file_makes_it_unready(clone: Path, name: str) -> None:
    assert is_ready(clone, "local")
    (clone / name).write_text("changed")
    assert not is_ready(clone, "local")


def test_a_missing_extra_makes_it_unready(clone: Path) -> None:
    assert not is_ready(clone, "local", "dev")


def test_a_half_made_one_is_unready(clone: Path) -> None:
    (environment.folder(clone) / environment.STATE).unlink()
    assert not is_ready(clone)


def test_a_vanished_interpreter_makes_it_unready(clone: Path) -> None:
    environment.interpreter(clone).unlink()
    environment.interpreter(clone).symlink_to("/nowhere/python3")
    assert not is_ready(clone)


def test_another_python_or_place_is_another_environment(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert environment.digest(clone, "3.11.7") != environment.digest(clone, "3.12.1")
    moved = clone.rename(tmp_path_factory.mktemp("moved") / "clone")
    assert not is_ready(moved)


def test_two_scripts_share_it_and_one_that_makes_it_keeps_others_waiting(clone: Path, root: Path) -> None:
    log = clone / "log"
    env = {**os.environ, "PYTHONPATH": str(root / "requirements")}
    with environment.ensure(clone, ["local"]):  # shared: no wait
        subprocess.run([sys.executable, "-c", WAIT, clone], env=env, check=True, timeout=30, capture_output=True)
    with (clone / ".venv" / f"{environment.NAME}.lock").open("a") as maker:
        fcntl.flock(maker, fcntl.LOCK_EX)
        child = Child((sys.executable, "-c", WAIT, str(clone)), env=env, log=log)
        assert reads(log, "waiting for it")
        assert "found" not in log.read_text()
    assert reads(log, "found")
    stop([child])


def reads(log: Path, text: str) -> bool:
    deadline = time.monotonic() + 30
    while text not in log.read_text():
        if time.monotonic() > deadline:
            return False
    return True


SETTINGS = """\
:env:.user='1'
global.index-url='https://mirror/simple'
global.target='/somewhere'
install.index-url='https://other/simple'
install.user='true'
global.trusted-host='mirror other'
"""


def test_only_the_sources_of_packages_are_kept_of_pips_settings() -> None:
    user = {"PIP_USER": "1", "PIP_TARGET": "/t", "PYTHONPATH": "/nonsense", "HOME": "/home/me", "VIRTUAL_ENV": "/v"}
    assert environment.pip_environment(user, SETTINGS) == {
        "HOME": "/home/me",
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_INDEX_URL": "https://other/simple",  # what is said for install wins over what is said for all commands
        "PIP_NO_INPUT": "1",
        "PIP_TRUSTED_HOST": "mirror other",
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
    }


def test_the_users_proxy_is_kept_for_pip() -> None:
    assert environment.pip_environment({"https_proxy": "http://proxy:3128"}, "")["https_proxy"] == "http://proxy:3128"


def test_a_failure_shows_the_end_of_the_log_and_names_it(clone: Path) -> None:
    command = (sys.executable, "-c", "print('no such package'); raise SystemExit(3)")
    with pytest.raises(environment.BuildError) as found:
        environment._run(command, clone, dict(os.environ), "Installing")
    assert "no such package" in str(found.value)
    assert str(clone / ".venv" / f"{environment.NAME}.log") in str(found.value)


MAKE = """
import os, sys
from pathlib import Path
import environment, processes
processes.stop_on_signals()
print("making", flush=True)
try:
    environment._run((sys.executable, "-c", "import time; time.sleep(60)"), Path(sys.argv[1]), os.environ, "Installing")
except processes.Interrupted:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_making_it_can_be_interrupted_and_leaves_no_process(
    clone: Path, root: Path, number: int, living: Callable[[], set[int]]
) -> None:
    log = clone / "log"
    env = {**os.environ, "PYTHONPATH": str(root / "requirements")}
    child = Child((sys.executable, "-c", MAKE, str(clone)), env=env, log=log)
    assert reads(log, "making")
    while len(family := child.family()) < 2:
        assert child.exit_code() is None, child.tail()
    child.send(number)
    assert reads(log, "interrupted")
    assert {process.pid for process in family if process.pid != child.pid}.isdisjoint(living())
    stop([child])
