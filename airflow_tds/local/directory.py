"""A data directory: which files it holds, who may use it, and how they get to disk.

It holds `store.duckdb`, `payloads/<job id>`, `results/<job id>`, `tmp/`, `signing.key` and `lock`. What a file
means is the store's to say; here stand places, the lock, and what a power cut would take.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Collection
from pathlib import Path
from typing import TextIO

__all__ = ["Directory", "StoreUnavailable", "sync_directory"]


class StoreUnavailable(Exception):  # a state, told in one sentence
    """Another service has this data directory, or its database cannot be read."""


class Directory:
    """A data directory that this process has for itself.

    Args:
        path: Made when it does not exist.

    Attributes:
        path: Absolute.
        payloads: Where payloads lie until their job is final.
        results: Where results of queries lie.
        tmp: Where the database puts what it has no memory for.

    Raises:
        StoreUnavailable: Another service has it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.payloads = self.path / "payloads"
        self.results = self.path / "results"
        self.tmp = self.path / "tmp"
        for folder in (self.payloads, self.results, self.tmp):
            folder.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(self.path)

    def signing_key(self) -> bytes:
        """Give the key of presigned URLs, made once: links survive a restart."""
        path, part = self.path / "signing.key", self.path / "signing.key.part"
        if not path.exists():  # a rename, so that a kill leaves no shorter key
            part.touch(mode=0o600)
            part.write_bytes(secrets.token_bytes(32))
            part.rename(path)
        return path.read_bytes()

    def settle(self, part: Path, path: Path) -> None:
        """Give a file, forced to disk already, its name for good."""
        part.rename(path)
        sync_directory(path.parent)

    def sweep(self, payloads: Collection[str], results: Collection[str]) -> None:
        """Remove files that nothing needs, left by a process that was killed.

        Args:
            payloads: Names of payloads that are needed.
            results: Names of results that are needed.
        """
        for folder, kept in ((self.payloads, payloads), (self.results, results), (self.tmp, ())):
            for file in folder.iterdir():
                if file.name not in kept:
                    file.unlink()

    def release(self) -> None:
        """Let others have it."""
        if not self._lock.closed:
            fcntl.flock(self._lock, fcntl.LOCK_UN)  # also for a forked child that still has the file
        self._lock.close()


def sync_directory(path: Path) -> None:
    """Force a directory's entries to disk: a rename is not durable before."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _lock(directory: Path) -> TextIO:
    """Take the directory for this store, until the file is closed or the process ends.

    DuckDB's own lock keeps other processes out, not a second store in this one.
    """
    file = (directory / "lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise StoreUnavailable(f"another service uses {directory}") from None
    return file
