"""The environment that the scripts run in: made, found, kept up to date.

What lives here: `.venv/airflow-<version>` in the clone, made by the venv and pip of the user's Python from the pinned
file beside this one; the lock that makes several scripts at once safe.
What must not: what is run in it. Prerequisites are checked before (prerequisites.py).
It changes with pip's options and with the pinned file. Standard library only.
"""

from __future__ import annotations

import ast
import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import prerequisites
from processes import Child, pause, surroundings

NAME = f"airflow-{prerequisites.AIRFLOW}"
STATE = "airflow-tds.json"  # in the environment, written last: without it the environment is half made
DISK_GIB = 1.5
# The only settings of the user's pip that count: how packages are reached. A constraint, a target, `user` or a required
# virtual environment would break ours, from a configuration file as well as from a variable.
KEPT = (
    "index-url",
    "extra-index-url",
    "no-index",
    "find-links",
    "proxy",
    "cert",
    "client-cert",
    "trusted-host",
    "timeout",
    "default-timeout",
    "retries",
    "cache-dir",
    "no-cache-dir",
    "keyring-provider",
)
SECONDS_BETWEEN_LINES = 10  # of progress, where it cannot be shown in place


class BuildError(Exception):
    """The environment could not be made; the text says why, and where pip's log is."""


def select(airflow: str) -> None:
    """Work with the environment of another Airflow than the newest.

    Args:
        airflow: a version that is pinned beside this file.
    """
    global NAME  # noqa: PLW0603  # a script works with one environment, chosen before anything else
    NAME = f"airflow-{airflow}"


def folder(root: Path) -> Path:
    """Name the environment's folder in a clone."""
    return root / ".venv" / NAME


def interpreter(root: Path) -> Path:
    """Name the environment's Python in a clone."""
    return folder(root) / "bin" / "python"


def digest(root: Path, python: str = sys.version) -> str:
    """Sum up what the environment is made from; another digest means it must be made anew.

    Args:
        root: the clone; its path counts, as it is written into the environment.
        python: the interpreter's full version text.
    """
    files = ("pyproject.toml", f"requirements/{NAME}.txt", "airflow_tds/__init__.py")  # the last has the version
    parts = [str(root).encode(), python.encode(), *((root / file).read_bytes() for file in files)]
    return hashlib.sha256(b"\0".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


def pip_environment(env: Mapping[str, str], settings: str) -> dict[str, str]:
    """Describe pip's surroundings: where the user's packages come from, and nothing else of the user's settings.

    Args:
        env: the user's environment.
        settings: what `pip config list` prints in it: `section.key='value'` lines.

    Returns:
        The environment for pip and the build steps it starts.
    """
    kept = {name: value for name, value in surroundings(env, network=True).items() if not name.startswith("PIP_")}
    found = dict(_setting(line) for line in settings.splitlines() if "=" in line)
    for section in ("global", "install", ":env:"):  # the order in which pip lets them win
        for key in KEPT:
            if (value := found.get(f"{section}.{key}")) is not None:
                kept["PIP_" + key.upper().replace("-", "_")] = value
    return {**kept, "PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}


def _setting(line: str) -> tuple[str, str]:
    name, _, value = line.partition("=")
    return name.replace(":env:.", ":env:.", 1), str(ast.literal_eval(value))


def ensure(root: Path, extras: Iterable[str]) -> IO[str]:
    """Find the environment, or make it; it stays as it is until the returned file is closed.

    Args:
        root: the clone.
        extras: of the project, to be installed as well.

    Returns:
        The lock file: other scripts share the environment, none makes it anew while it is open.

    Raises:
        BuildError: pip failed.
        prerequisites.Missing: there is too little disk.
    """
    (root / ".venv").mkdir(exist_ok=True)
    lock = (root / ".venv" / f"{NAME}.lock").open("a", encoding="utf-8")
    wanted = frozenset(extras)
    _acquire(lock, fcntl.LOCK_SH)
    while not _is_ready(root, wanted):
        _acquire(lock, fcntl.LOCK_EX)
        if not _is_ready(root, wanted):  # another script may have made it while we waited
            make(root, wanted)
        _acquire(lock, fcntl.LOCK_SH)
    return lock


def _acquire(lock: IO[str], mode: int) -> None:
    said = False
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, mode | fcntl.LOCK_NB)
            return
        if not said:
            print("Another script of this clone makes or uses the environment; waiting for it ...", flush=True)
            said = True
        pause(0.5)


def _state(root: Path) -> tuple[str, frozenset[str]]:
    try:
        state = json.loads((folder(root) / STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "", frozenset()
    return state["digest"], frozenset(state["extras"])


def _is_ready(root: Path, extras: frozenset[str]) -> bool:
    made_from, present = _state(root)
    return made_from == digest(root) and extras <= present and interpreter(root).exists()


def make(root: Path, extras: frozenset[str]) -> None:
    """Make the environment, or add extras to it.

    Args:
        root: the clone.
        extras: of the project.

    Raises:
        BuildError: pip failed.
        prerequisites.Missing: there is too little disk.
    """
    made_from, present = _state(root)
    started = time.monotonic()
    (folder(root) / STATE).unlink(missing_ok=True)
    if made_from != digest(root) or not interpreter(root).exists():
        prerequisites.check_disk(root, DISK_GIB, "The environment")
        present = frozenset()
        print(
            f"Making the environment {folder(root)}: about 450 MB on disk, half a minute to some minutes, once.",
            flush=True,
        )
        _create(root)
    everything = sorted(extras | present)
    _install(root, everything)
    state = {"digest": digest(root), "extras": everything}
    (folder(root) / STATE).write_text(json.dumps(state), encoding="utf-8")
    print(f"The environment is ready ({time.monotonic() - started:.0f} s).", flush=True)


def _create(root: Path) -> None:
    shutil.rmtree(folder(root), ignore_errors=True)
    clean = pip_environment(os.environ, "")
    # Without pip: Debian's Python has no ensurepip, and pip can work on an environment from outside.
    _run((sys.executable, "-m", "venv", "--without-pip", str(folder(root))), root, clean, "venv")
    if importlib.util.find_spec("pip") is None:
        _run((str(interpreter(root)), "-m", "ensurepip"), root, clean, "ensurepip")


def _install(root: Path, extras: Sequence[str]) -> None:
    project = f".[{','.join(extras)}]"
    pins = str(root / "requirements" / f"{NAME}.txt")
    install(root, ("--constraint", pins, "--editable", project), "Installing")


def install(root: Path, arguments: Sequence[str], label: str) -> None:
    """Run `pip install` on the environment, showing progress.

    Args:
        root: the clone; also pip's working directory.
        arguments: of `pip install`.
        label: what to show beside the progress.

    Raises:
        BuildError: pip failed.
    """
    pip = _pip(root)
    env = pip_environment(os.environ, _settings(pip))
    _run((*pip, "install", "--progress-bar", "off", *arguments), root, env, label)


def tool_environment(root: Path) -> dict[str, str]:
    """Describe the surroundings of a tool in the environment; a pip that it starts has the user's package sources.

    Args:
        root: the clone.
    """
    return {**pip_environment(os.environ, _settings(_pip(root))), "PATH": _path(root)}


def _path(root: Path) -> str:
    return os.pathsep.join((str(interpreter(root).parent), os.environ.get("PATH", os.defpath)))


def _settings(pip: Sequence[str]) -> str:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run((*pip, "config", "list"), env=env, capture_output=True, text=True, check=False).stdout


def _pip(root: Path) -> tuple[str, ...]:
    if importlib.util.find_spec("pip") is None:
        return (str(interpreter(root)), "-m", "pip")
    return (sys.executable, "-m", "pip", "--python", str(interpreter(root)))


def _run(command: Sequence[str], root: Path, env: Mapping[str, str], label: str) -> None:
    log = root / ".venv" / f"{NAME}.log"
    log.unlink(missing_ok=True)
    child = Child(command, env=env, log=log, cwd=root)
    try:
        for _ in _progress(label, log):
            if child.exit_code() is not None:
                break
        if child.exit_code() != 0:
            raise BuildError(f"{' '.join(command)} failed:\n{child.tail()}\nThe whole log is {log}")
    finally:
        child.kill()


def _progress(label: str, log: Path) -> Iterator[None]:
    """Show the log's last line while we wait: on a terminal in place, elsewhere every ten seconds."""
    terminal = sys.stdout.isatty()
    started = shown = time.monotonic()
    try:
        while True:
            yield
            pause(0.2)
            now = time.monotonic()
            if terminal or now - shown >= SECONDS_BETWEEN_LINES:
                shown = now
                _show(f"  {label}, {now - started:.0f} s: {_last_line(log)}", terminal=terminal)
    finally:
        if terminal:
            _show("", terminal=True)


def _show(text: str, *, terminal: bool) -> None:
    width = shutil.get_terminal_size().columns - 1
    print(f"\r\x1b[K{text[:width]}" if terminal else text[:width], end="" if terminal else "\n", flush=True)


def _last_line(log: Path) -> str:
    with log.open("rb") as stream:
        stream.seek(max(0, stream.seek(0, os.SEEK_END) - 4000))
        lines = [line.strip() for line in stream.read().decode(errors="replace").split("\n")[:-1]]
    return next((line for line in reversed(lines) if line and not line.startswith("WARNING")), "starting")
