"""What must be there before anything is made.

What lives here: the checks of the machine, each with what to do about it in its message.
What must not: any syntax newer than Python 3.8 and any import outside the standard library's portable part; this file
runs first, on whatever Python the user has, to say that it is the wrong one.
It changes with the Airflow version that requirements/ pins.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

AIRFLOW = "3.3.2"
PYTHONS = tuple((3, minor) for minor in range(11, 15))  # what this Airflow declares; its dependencies too
#: The other versions that requirements/ pins, and the newest Python that each runs on.
OTHERS = {"2.11.2": (3, 12), "3.0.6": (3, 12), "3.1.8": (3, 13), "3.2.2": (3, 14)}
GIB = 1 << 30


class Missing(Exception):
    """A prerequisite is missing; the text says which, and what to do."""


def check_python(version: tuple[int, ...] = sys.version_info[:2], platform: str = sys.platform) -> None:
    """Check the interpreter and the system.

    Args:
        version: of the interpreter, (major, minor).
        platform: as `sys.platform`.

    Raises:
        Missing: neither Airflow nor these scripts would run.
    """
    if platform != "linux":
        raise Missing(f"These scripts need Linux (this is {platform}); in a Linux container they run as they are.")
    if tuple(version[:2]) not in PYTHONS:
        this = ".".join(str(part) for part in version[:2])
        raise Missing(f"Airflow {AIRFLOW} does not run on Python {this}. {_other_pythons()}")


def check_airflow(airflow: str, version: tuple[int, ...] = sys.version_info[:2]) -> None:
    """Check whether the interpreter can hold one of the other versions of Airflow.

    Args:
        airflow: one of `OTHERS`, or `AIRFLOW`.
        version: of the interpreter, (major, minor).

    Raises:
        Missing: that Airflow does not run on it.
    """
    newest = OTHERS.get(airflow, PYTHONS[-1])
    if tuple(version[:2]) > newest:
        this = ".".join(str(part) for part in version[:2])
        fitting = tuple(python for python in PYTHONS if python <= newest)
        raise Missing(f"Airflow {airflow} does not run on Python {this}. {_other_pythons(fitting)}")


def _other_pythons(fitting: tuple[tuple[int, int], ...] = PYTHONS) -> str:
    names = [".".join(map(str, version)) for version in fitting]
    found = [f"python{name}" for name in names if _works(f"python{name}")]
    if found:
        return f"This machine has {', '.join(found)}: start the same script with that."
    return f"Install one of Python {', '.join(names)} and start the same script with it."


def _works(command: str) -> bool:
    path = shutil.which(command)  # may be a stand-in for a version that is not installed
    return path is not None and subprocess.call([path, "-c", ""], stderr=subprocess.DEVNULL) == 0


def check_tools(modules: tuple[str, ...] = ("venv", "pip")) -> None:
    """Check for the modules that make an environment.

    Args:
        modules: to look for.

    Raises:
        Missing: names the command that installs it.
    """
    for name in modules:
        if importlib.util.find_spec(name) is None and not (name == "pip" and _can_bring_pip()):
            raise Missing(
                f"{sys.executable} has no module {name}. Install it, on Debian and Ubuntu with\n"
                f"    apt-get install python3-{name}\n"
                f"on Fedora with `dnf install python3-pip`, elsewhere as your Python's documentation says."
            )


def _can_bring_pip() -> bool:
    return importlib.util.find_spec("ensurepip") is not None


def check_disk(folder: Path, gib: float, purpose: str) -> None:
    """Check for free disk space.

    Args:
        folder: on the disk in question; it exists.
        gib: needed, in GiB.
        purpose: for the message.

    Raises:
        Missing: there is less.
    """
    free = shutil.disk_usage(folder).free / GIB
    if free < gib:
        raise Missing(f"{purpose} needs {gib:g} GiB of disk, {folder} has {free:.1f} GiB free.")


def available_memory() -> int:
    """Read how many bytes new processes can use: of the machine, and of its control group if that has a limit."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    machine = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    return min(machine, _left_in_control_group(Path("/sys/fs/cgroup"), machine))


def _left_in_control_group(group: Path, otherwise: int) -> int:
    try:
        limit = (group / "memory.max").read_text(encoding="ascii").strip()
        used = (group / "memory.current").read_text(encoding="ascii")
    except OSError:  # no control group of its own
        return otherwise
    return otherwise if limit == "max" else max(int(limit) - int(used), 0)


def memory_warning(gib: float, available: int) -> str:
    """Say that memory is short; empty: it is not.

    Args:
        gib: needed, in GiB.
        available: bytes.
    """
    if available >= gib * GIB:
        return ""
    return (
        f"Only {available / GIB:.1f} GiB of memory are available; Airflow needs about {gib:g} GiB here. "
        "If a process disappears, that is why."
    )


def check_writable(folder: Path) -> None:
    """Check that files can be made in a folder.

    Raises:
        Missing: they cannot.
    """
    if not os.access(str(folder), os.W_OK | os.X_OK):
        raise Missing(f"{folder} is not writable; copy the project to a folder of yours.")
