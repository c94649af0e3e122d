"""What all payload formats share: the promise they keep, and the errors they give."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
from duckdb import DuckDBPyConnection

from airflow_tds.local.columns import Column
from airflow_tds.local.sql import literal

__all__ = [
    "LARGEST_RECORD",
    "NO_FAULT_OF_PAYLOADS",
    "BadPayload",
    "Fault",
    "Payload",
    "check_names",
    "refusal",
    "require_same_columns",
]

#: What ends a reading whatever the payload holds: the service stops, or its database or memory fails.
NO_FAULT_OF_PAYLOADS = (
    duckdb.FatalException,
    duckdb.InterruptException,
    duckdb.OutOfMemoryException,
    duckdb.TransactionException,
)

#: Bytes of the longest record that is read. Reading takes a multiple of it as memory.
LARGEST_RECORD = 16 * 1024 * 1024
#: Beyond this, reading one row takes seconds.
_MOST_COLUMNS = 4096
#: An error names this many rows at most, and shows this much of a value.
_MOST_FAULTS = 10
_LONGEST_VALUE = 80


class BadPayload(Exception):  # it is the payload that is bad, not the program
    """The payload cannot become rows of the table; the text is the job's error."""


@dataclass(frozen=True, order=True)
class Fault:
    """One value, or one row, that cannot be taken.

    Attributes:
        row: Data row, from 1; a header is not counted.
        column: The column's name; empty when the row as a whole is at fault.
        value: The text that was found; None when the row as a whole is at fault.
        reason: Why it cannot be taken.
    """

    row: int
    column: str
    value: str | None
    reason: str

    def __str__(self) -> str:
        where = f"row {self.row}, column {self.column!r}" if self.column else f"row {self.row}"
        if self.value is None:
            return f"{where}: {self.reason}"
        shown = self.value if len(self.value) <= _LONGEST_VALUE else self.value[:_LONGEST_VALUE] + "…"
        return f"{where}: {shown!r} {self.reason}"


class Payload(ABC):
    """A payload file of one format.

    Args:
        path: The file, complete and on disk.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def columns(self, cursor: DuckDBPyConnection) -> list[Column]:
        """Find the columns that a first load of this payload creates.

        Raises:
            BadPayload: It has no readable columns.
        """

    def loosened(self, cursor: DuckDBPyConnection, columns: Sequence[Column]) -> list[Column]:  # noqa: ARG002
        """Give wider columns for a first load that failed with `columns`; the same ones where none are."""
        return list(columns)

    @abstractmethod
    def rows(self, cursor: DuckDBPyConnection, columns: Sequence[Column]) -> str:
        """Give the SELECT that yields the rows in the columns' order, and fails at a value that is none.

        Raises:
            BadPayload: The payload's columns are not those of the table.
        """

    @abstractmethod
    def faults(self, cursor: DuckDBPyConnection, columns: Sequence[Column]) -> list[Fault]:
        """Find what made the SELECT of `rows` fail; at most ten. It may read the payload several times."""

    def _path(self) -> str:
        return literal(str(self.path))


def refusal(faults: Sequence[Fault]) -> BadPayload:
    """Put faults into one error, the first rows first."""
    return BadPayload("; ".join(map(str, sorted(faults, key=lambda fault: fault.row)[:_MOST_FAULTS])))


def require_same_columns(found: Sequence[str], expected: Sequence[Column]) -> None:
    """Refuse a payload whose columns are not the table's, in any order, by exact name."""
    names = [column.name for column in expected]
    if sorted(found) != sorted(names):
        raise BadPayload(f"the payload has the columns {', '.join(found)}; the table has {', '.join(names)}")


def check_names(names: Sequence[str]) -> None:
    """Refuse names that cannot be columns: too many, blank, with NUL, or equal but for the case of ASCII letters."""
    if len(names) > _MOST_COLUMNS:
        raise BadPayload(f"the payload has {len(names)} columns; at most {_MOST_COLUMNS} are taken")
    for position, name in enumerate(names, 1):
        if not name.strip() or "\0" in name:
            raise BadPayload(f"column {position} has the name {name!r}; a name must not be blank or hold NUL")
    folded = Counter(name.encode().lower() for name in names)
    twice = [name for name in names if folded[name.encode().lower()] > 1]
    if twice:
        raise BadPayload(f"names of columns differ in case only, or not at all: {', '.join(twice)}")
