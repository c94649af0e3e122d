"""The database file: opened so that SQL reaches nothing else, and opened again after it failed.

Cursors and transactions only; what they hold is the store's. No index and no primary key anywhere: one
process keeps ids unique, and replaying indexes is where crash recovery is known to fail.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import duckdb
from duckdb import DuckDBPyConnection

from airflow_tds.local.sql import literal

__all__ = ["Database"]


class Database:
    """An open database file.

    Args:
        path: The file; made when it does not exist.
        reachable: The directories that SQL may read and write; the last one gets temporary files.

    Attributes:
        broken: It failed for good, as a checkpoint on a full disk makes it fail, and has to be opened again.
    """

    def __init__(self, path: Path, *reachable: Path) -> None:
        self._path = path
        self._log = path.with_name(f"{path.name}.wal")
        self._reachable = reachable
        self._open: set[DuckDBPyConnection] = set()
        self._closed = threading.Condition()
        self._connection = _open(path, *reachable)
        self.broken = False

    @contextmanager
    def cursor(self) -> Iterator[DuckDBPyConnection]:
        """Give a cursor that sees the last commit at each statement."""
        with self._closed:
            cursor = self._connection.cursor()
            self._open.add(cursor)
        try:
            yield cursor
        except duckdb.FatalException:
            self.broken = True
            raise
        finally:
            cursor.close()
            with self._closed:
                self._open.discard(cursor)
                self._closed.notify_all()

    @contextmanager
    def transaction(self) -> Iterator[DuckDBPyConnection]:
        """Give a cursor in a transaction of its own: committed at the end, rolled back by any exception."""
        with self.cursor() as cursor:
            cursor.execute("BEGIN")
            try:
                yield cursor
                cursor.execute("COMMIT")
            except BaseException:
                with suppress(duckdb.Error):
                    cursor.execute("ROLLBACK")
                raise

    def interrupt(self) -> None:
        """End the statements under way."""
        with self._closed:
            for cursor in self._open:
                cursor.interrupt()

    def log_size(self) -> int:
        """Give the bytes of the write-ahead log."""
        try:
            return self._log.stat().st_size
        except FileNotFoundError:
            return 0

    def checkpoint(self) -> None:
        """Give freed blocks back for use; while others write it is not possible, and not urgent."""
        with self.cursor() as cursor, suppress(duckdb.TransactionException):
            cursor.execute("CHECKPOINT")

    def reopen(self) -> None:
        """Open the file again; what was committed is in it.

        Raises:
            duckdb.Error: It cannot be opened yet.
        """
        with self._closed:
            while self._open:  # each ends by itself: every statement fails
                self._closed.wait()
            self._connection.close()
            self._connection = _open(self._path, *self._reachable)
            self.broken = False

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def _open(path: Path, *reachable: Path) -> DuckDBPyConnection:
    """Open the database so that SQL reaches the given directories and nothing else, and fetches nothing."""
    connection = duckdb.connect(
        str(path),
        config={
            "threads": os.cpu_count() or 2,
            "memory_limit": "1GB",
            "temp_directory": str(reachable[-1]),
            "storage_compatibility_version": "v1.5.0",  # either supported version opens the file
            "python_enable_replacements": "false",  # else unknown tables are looked up in Python variables
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
        },
    )
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"SET allowed_directories = [{', '.join(literal(str(folder)) for folder in reachable)}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection
