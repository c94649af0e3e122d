"""Parquet payloads: typed already, so types are compared instead of values.

A column must have the table's type, or one that widens to it without loss: a smaller integer, FLOAT for
DOUBLE. Nothing else is converted: DuckDB would match columns by position, round and cut.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
from duckdb import DuckDBPyConnection

from airflow_tds.local.columns import Column
from airflow_tds.local.payloads.payload import (
    NO_FAULT_OF_PAYLOADS,
    BadPayload,
    Fault,
    Payload,
    check_names,
    require_same_columns,
)

__all__ = ["ParquetPayload"]

_UNREADABLE = "the payload cannot be read as parquet"
_SIGNED = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")
_UNSIGNED = ("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")


class ParquetPayload(Payload):
    """A payload in parquet."""

    def columns(self, cursor: DuckDBPyConnection) -> list[Column]:
        """Take the file's own columns and types."""
        try:
            found = cursor.execute(f"DESCRIBE SELECT * FROM {self._reader()}").fetchall()
        except NO_FAULT_OF_PAYLOADS:
            raise
        except duckdb.Error:
            raise BadPayload(_UNREADABLE) from None
        check_names([name for name, *_ in found])
        return [Column(name, kind) for name, kind, *_ in found]

    def loosened(self, cursor: DuckDBPyConnection, columns: Sequence[Column]) -> list[Column]:  # noqa: ARG002
        """Refuse: the types are the file's own, so it is the file that is damaged."""
        raise BadPayload(_UNREADABLE)

    def rows(self, cursor: DuckDBPyConnection, columns: Sequence[Column]) -> str:
        """Give the SELECT, by name; see the base class."""
        found = {column.name: column for column in self.columns(cursor)}
        require_same_columns(list(found), columns)
        for column in columns:
            if not _widens(found[column.name].type, column.type):
                raise BadPayload(
                    f"column {column.name!r} is {found[column.name].type}; in the table it is {column.type}"
                )
        values = ", ".join(f"{column.quoted}::{column.type} AS {column.quoted}" for column in columns)
        return f"SELECT {values} FROM {self._reader()}"

    def faults(self, cursor: DuckDBPyConnection, columns: Sequence[Column]) -> list[Fault]:  # noqa: ARG002
        """Refuse: with types that fit, only a damaged file fails."""
        raise BadPayload(_UNREADABLE)

    def _reader(self) -> str:
        return f"read_parquet({self._path()})"


def _widens(found: str, expected: str) -> bool:
    """Tell whether every value of one type is a value of the other."""
    if found == expected or (found, expected) == ("FLOAT", "DOUBLE"):
        return True
    for family in (_SIGNED, _UNSIGNED):
        if found in family and expected in family:
            return family.index(found) < family.index(expected)
    if found in _UNSIGNED and expected in _SIGNED:
        return _UNSIGNED.index(found) < _SIGNED.index(expected)
    return expected == "DECIMAL(38,0)" and found in (*_SIGNED, *_UNSIGNED)
