"""What the scripts start ends with them."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from processes import Child, finish, memory, stop, surroundings

PYTHON = sys.executable
SLEEP = "import time; time.sleep(60)"
ANNOUNCE = "print('ready', flush=True); import time; time.sleep(60)"


def started(log: Path, code: str) -> Child:
    child = Child((PYTHON, "-c", code), env=os.environ, log=log)
    while b"ready" not in log.read_bytes():
        assert child.exit_code() is None, child.tail()
    return child


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def orphaning(log: Path) -> Iterator[Child]:
    """A child whose own child was orphaned, with a second one in a session of its own."""
    code = (
        "import subprocess, sys\n"
        f'middle = \'import subprocess, sys; subprocess.Popen([sys.executable, "-c", "{SLEEP}"])\'\n'
        "subprocess.run([sys.executable, '-c', middle])\n"
        f"subprocess.Popen([sys.executable, '-c', '{SLEEP}'], start_new_session=True)\n" + ANNOUNCE
    )
    child = started(log, code)
    yield child
    child.kill()


def test_family_holds_orphans_and_new_sessions(orphaning: Child) -> None:
    assert len(orphaning.family()) == 3


def test_family_once_seen_is_found_after_its_leader_was_killed(orphaning: Child) -> None:
    before = {process.pid for process in orphaning.family()}
    os.kill(orphaning.pid, signal.SIGKILL)
    os.waitid(os.P_PID, orphaning.pid, os.WEXITED | os.WNOWAIT)
    assert {process.pid for process in orphaning.family()} == before - {orphaning.pid}


def test_stop_leaves_no_process(orphaning: Child, living: Callable[[], set[int]]) -> None:
    pids = {process.pid for process in orphaning.family()}
    stop([orphaning], grace=1)
    assert pids.isdisjoint(living())


def test_a_child_that_ignores_signals_is_killed_after_its_grace(log: Path) -> None:
    child = started(log, "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + ANNOUNCE)
    stop([child], grace=0.1)
    assert child.exit_code() == -signal.SIGKILL


def test_exit_code_does_not_reap(log: Path) -> None:
    child = Child((PYTHON, "-c", "raise SystemExit(7)"), env=os.environ, log=log)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert (child.exit_code(), child.exit_code()) == (7, 7)
    child.kill()
    assert child.exit_code() == 7


def test_finish_gives_the_exit_code(tmp_path: Path) -> None:
    assert finish((PYTHON, "-c", "raise SystemExit(7)"), env=os.environ, cwd=tmp_path, limit=60) == 7


def test_what_takes_too_long_is_ended_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = (PYTHON, "-c", SLEEP)
    assert finish(command, env=os.environ, cwd=tmp_path, limit=0.7) is None
    assert capsys.readouterr().err == "--- ended: it took longer than 1 s\n"


@pytest.mark.parametrize(
    "name",
    [
        "AIRFLOW_HOME",
        "AIRFLOW__CORE__EXECUTOR",
        "AIRFLOW_CONN_TDS_DEFAULT",
        "_AIRFLOW__AS_LIBRARY",
        "PYTHONPATH",
        "PYTHONHOME",
        "PYTHONDONTWRITEBYTECODE",
        "VIRTUAL_ENV",
        "http_proxy",
        "HTTPS_PROXY",
        "ALL_PROXY",
    ],
)
def test_the_users_setting_does_not_reach_our_processes(name: str) -> None:
    assert surroundings({name: "nonsense", "HOME": "/home/me"}, network=False) == {"HOME": "/home/me", "no_proxy": "*"}


def test_loopback_goes_around_the_users_proxy() -> None:
    env = surroundings({"https_proxy": "http://proxy:3128", "NO_PROXY": "intra"}, network=True)
    direct = "intra,127.0.0.1,localhost"
    assert env == {"https_proxy": "http://proxy:3128", "NO_PROXY": direct, "no_proxy": direct}


def test_memory_counts_bytes_of_living_processes() -> None:
    assert 1 << 20 < memory([os.getpid(), 2**22 + 1]) < 1 << 33


def test_our_own_process_is_not_of_a_childs_family(log: Path) -> None:
    child = started(log, ANNOUNCE)
    assert [process.pid for process in child.family()] == [child.pid]
    child.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_interrupts_the_next_pause_and_a_second_one_changes_nothing(number: int, root: Path) -> None:
    code = (
        "import os, sys\n"
        "from processes import Interrupted, pause, stop_on_signals\n"
        "stop_on_signals()\n"
        f"os.kill(os.getpid(), {number}); os.kill(os.getpid(), {number})\n"
        "try: pause(60)\n"
        "except Interrupted as error: print(error)\n"
    )
    done = subprocess.run(
        [PYTHON, "-c", code], cwd=root / "requirements", capture_output=True, text=True, timeout=30, check=True
    )
    assert (done.stdout, done.stderr) == (f"{signal.Signals(number).name}\n", "\nStopping ...\n")
