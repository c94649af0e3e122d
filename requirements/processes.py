"""Child processes that end with us and know nothing of the user's settings for Python and Airflow.

What lives here: what of the user's surroundings a command gets; starting it in a session of its own, finding everything
it started, its memory, ending it; and a way to be interrupted (Ctrl-C, SIGTERM, SIGHUP) only where we wait, so that no
child is lost between two statements.
What must not: what the commands are, and anything outside the standard library; it runs before anything is installed.
Linux only (it reads /proc), as Airflow's own components are POSIX only.
"""

from __future__ import annotations

import collections
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

LOOPBACK = "127.0.0.1"
PROXIES = frozenset({"http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy"})
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_received: list[int] = []


class Interrupted(Exception):
    """The user, or whoever started us, wants us to stop."""


def surroundings(env: Mapping[str, str], *, network: bool) -> dict[str, str]:
    """Leave out what would change our Python or our Airflow: the user's own settings for them.

    Args:
        env: the user's environment.
        network: whether the user's proxies are needed; loopback never goes through them.

    Returns:
        The environment for our processes.
    """
    ours = {name: value for name, value in env.items() if not _is_foreign(name)}
    if not network:
        return {**{name: value for name, value in ours.items() if name.lower() not in PROXIES}, "no_proxy": "*"}
    direct = ",".join(filter(None, (ours.get("no_proxy") or ours.get("NO_PROXY"), LOOPBACK, "localhost")))
    return {**ours, "no_proxy": direct, "NO_PROXY": direct}


def _is_foreign(name: str) -> bool:
    foreign = ("AIRFLOW", "_AIRFLOW", "PYTHON", "OPENLINEAGE", "VIRTUAL_ENV")
    return name.startswith(foreign) or name == "WEB_CONCURRENCY"  # uvicorn reads that


def stop_on_signals() -> None:
    """Turn SIGINT, SIGTERM and SIGHUP into `Interrupted`, raised by the next `pause`; later signals change nothing."""
    for number in SIGNALS:
        signal.signal(number, _remember)


def _remember(number: int, _frame: object) -> None:
    if not _received:
        os.write(sys.stderr.fileno(), b"\nStopping ...\n")
    _received.append(number)


def pause(seconds: float) -> None:
    """Sleep, in slices.

    Args:
        seconds: how long, at least; 0 only looks.

    Raises:
        Interrupted: a signal has arrived (after `stop_on_signals`).
    """
    end = time.monotonic() + seconds
    while True:
        if _received:
            raise Interrupted(signal.Signals(_received[0]).name)
        left = end - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(left, 0.2))  # noqa: TID251  # the package's runtime is not installed yet


@dataclass(frozen=True)
class Process:
    """One line of the process table."""

    pid: int
    parent: int
    session: int
    started: int  # clock ticks since boot: with the pid it names the process for good, a pid alone is used again
    ended: bool
    title: str


def table() -> list[Process]:
    """Read all processes of this machine that we may see."""
    found = (_process(int(entry.name)) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [process for process in found if process is not None]


def _process(pid: int) -> Process | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        title = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:  # it ended while we looked
        return None
    fields = stat.rpartition(")")[2].split()  # the name before may hold blanks; the state comes first
    return Process(pid, int(fields[1]), int(fields[3]), int(fields[19]), fields[0] in "ZX", title)


def descent(roots: set[int], everything: Iterable[Process]) -> set[int]:
    """Find what processes started: their descendants, and the sessions those lead.

    A process whose parent died is found by its session, one that made a session of its own by its parent.

    Args:
        roots: process ids.
        everything: the process table.

    Returns:
        Process ids, the roots included.
    """
    known = set(roots)
    while True:
        more = {p.pid for p in everything if p.parent in known or p.session in known} - known
        if not more:
            return known
        known |= more


def memory(pids: Iterable[int]) -> int:
    """Add up the memory of processes, in bytes; pages that several share count once (PSS)."""
    return sum(_proportional_set_size(pid) for pid in pids)


def _proportional_set_size(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


class Child:
    """A command that runs in a session of its own.

    Args:
        command: the program and its arguments.
        env: its whole environment.
        log: the file its output is appended to; None: it writes where we write.
        cwd: where it runs; None: where we run.
    """

    def __init__(
        self, command: Sequence[str], *, env: Mapping[str, str], log: Path | None = None, cwd: Path | None = None
    ) -> None:
        self.log = log
        with contextlib.ExitStack() as stack:
            self._popen = subprocess.Popen(
                command,
                env=dict(env),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=stack.enter_context(log.open("ab")) if log else None,
                stderr=subprocess.STDOUT if log else None,
                start_new_session=True,  # a terminal's Ctrl-C reaches us alone, and we end it in order
            )
        self.pid = self._popen.pid
        self._seen: set[tuple[int, int]] = set()  # (pid, started) of its family: found once, never lost

    def exit_code(self) -> int | None:
        """Say how the command ended, without reaping it (its session stays findable); None: it runs."""
        if self._popen.returncode is not None:
            return self._popen.returncode
        ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def family(self) -> list[Process]:
        """Find its living processes, itself included; also those that nothing ties to it any more, if seen before."""
        everything = table()
        roots = {p.pid for p in everything if (p.pid, p.started) in self._seen}
        if self._popen.returncode is None:  # not reaped: the pid is still its own
            roots.add(self.pid)
        pids = descent(roots, everything)
        found = [process for process in everything if process.pid in pids and not process.ended]
        self._seen |= {(process.pid, process.started) for process in found}
        return found

    def send(self, number: int) -> None:
        """Send a signal to the command itself."""
        if self.exit_code() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the command and all it started, and wait until they are gone."""
        while living := self.family():  # again: one may have started another meanwhile
            for process in living:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
            time.sleep(0.02)  # noqa: TID251  # not `pause`: stopping is not interrupted
        self._popen.wait()

    def open_log(self) -> IO[str]:
        """Open its log for reading.

        Raises:
            ValueError: it has none.
        """
        if self.log is None:
            raise ValueError("this child writes where we write")
        return self.log.open(encoding="utf-8", errors="replace")

    def tail(self, lines: int = 20) -> str:
        """Return the last lines of its log."""
        with self.open_log() as log:
            return "".join(collections.deque(log, lines)).rstrip()


def finish(command: Sequence[str], *, env: Mapping[str, str], cwd: Path, limit: float) -> int | None:
    """Run a command to its end, and end what it leaves behind.

    Args:
        command: the program and its arguments; it writes where we write.
        env: its whole environment.
        cwd: where it runs.
        limit: seconds until it is interrupted, so that it can say where it hangs, and soon killed; infinity: no limit.

    Returns:
        Its exit code; None: the limit ended it, which is said on stderr.

    Raises:
        Interrupted: a signal has arrived (after `stop_on_signals`); the command has ended.
    """
    child = Child(command, env=env, cwd=cwd)
    end = time.monotonic() + limit
    try:
        while (code := child.exit_code()) is None and time.monotonic() < end:
            pause(0.1)
        if code is None:
            print(f"--- ended: it took longer than {limit:.0f} s", file=sys.stderr, flush=True)
    finally:
        stop([child], signal.SIGINT, grace=30)
    return code


def stop(children: Sequence[Child], number: int = signal.SIGTERM, grace: float = 15.0) -> None:
    """End commands and all they started; no process is left.

    Args:
        children: which.
        number: the signal that asks a command for a clean end; sent once (Airflow takes a second one as "at once").
        grace: seconds until what is left is killed.
    """
    for child in children:
        child.family()  # see it whole before its ties break
        child.send(number)
    end = time.monotonic() + grace
    while any(child.family() for child in children) and time.monotonic() < end:
        time.sleep(0.05)  # noqa: TID251  # not `pause`: stopping is not interrupted
    for child in children:
        child.kill()
