"""JSON payloads: an array of objects (`json`), or one object per line (`ndjson`).

A value must be of its column's kind: a number for numbers, a string for texts, dates and times, `true` or
`false` for booleans; anything for a JSON column. A missing key is NULL, as `null` is; an unknown key is
refused. A first load takes the narrowest type that all values have, and JSON where kinds are mixed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import duckdb
from duckdb import DuckDBPyConnection

from airflow_tds.local.columns import Column
from airflow_tds.local.payloads.payload import (
    LARGEST_RECORD,
    NO_FAULT_OF_PAYLOADS,
    BadPayload,
    Fault,
    check_names,
    refusal,
)
from airflow_tds.local.payloads.text import TextPayload
from airflow_tds.local.sql import literal

__all__ = ["JsonPayload"]

#: In the order in which a first load tries them.
_INFERRED = ("BOOLEAN", "BIGINT", "DECIMAL(38,0)", "DOUBLE", "DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "VARCHAR")
_NO_NUMBERS = "(?i)[+-]?(nan|inf|infinity)"
#: An array may follow this much blank space.
_BEGINNING = 65_536
_RECORD = re.compile(r"in (?:record/value|line) (\d+)")


class JsonPayload(TextPayload):
    """A payload in JSON.

    Args:
        path: The file, complete and on disk.
        layout: `array` or `newline_delimited`.
    """

    def __init__(self, path: Path, layout: Literal["array", "newline_delimited"]) -> None:
        super().__init__(path)
        self._is_array = layout == "array"
        self._options = f"format='{layout}', maximum_object_size={LARGEST_RECORD}"

    def columns(self, cursor: DuckDBPyConnection) -> list[Column]:
        """Take the keys in the order of their first use, and the narrowest type that fits all values."""
        keys = self._keys(cursor)
        if not keys:
            raise BadPayload("the payload has no rows with columns, and the table has no columns yet")
        check_names(keys)
        candidates = {key: [Column(key, kind) for kind in _INFERRED] for key in keys}
        return [_narrowest(key, fitting) for key, fitting in self.fitting(cursor, keys, candidates).items()]

    def reader(self, names: Sequence[str]) -> str:
        """Read all columns as JSON."""
        columns = ", ".join(f"{literal(name)}: 'JSON'" for name in names)
        return f"read_json({self._path()}, {self._options}, columns={{{columns}}})"

    def text(self, column: Column) -> str:
        """Give a string's content where the column takes strings, else the JSON text itself."""
        if self._takes_strings(column):
            return f"({column.quoted} ->> '$')"
        return f"({column.quoted}::VARCHAR)"

    def fits(self, column: Column) -> str:
        """Test that a column of strings gets strings; the others' patterns match no quote."""
        raw = f"{column.quoted}::VARCHAR"
        if self._takes_strings(column):
            return f"starts_with({raw}, '\"')"
        return f"NOT regexp_full_match({raw}, '{_NO_NUMBERS}')" if column.kind == "json" else "true"

    def names(self, cursor: DuckDBPyConnection, columns: Sequence[Column]) -> list[str]:
        """Give the table's columns, after refusing unknown keys."""
        names = [column.name for column in columns]
        unknown = [key for key in self._keys(cursor) if key not in names]
        if unknown:
            raise BadPayload(f"the payload has the keys {', '.join(unknown)}; the table has {', '.join(names)}")
        return names

    def structural_faults(self, cursor: DuckDBPyConnection, names: Sequence[str]) -> list[Fault]:
        """Let the reader stop at the first record that is none, if there is one."""
        read = ", ".join(f"count({Column(name, 'JSON').quoted})" for name in names)
        try:
            cursor.execute(f"SELECT {read} FROM {self.reader(names)}").fetchall()
        except NO_FAULT_OF_PAYLOADS:
            raise
        except duckdb.Error as failure:
            return [_fault(failure)]
        return []

    def _keys(self, cursor: DuckDBPyConnection) -> list[str]:
        """Give all keys by first use; a record that is no object shows as the key NULL."""
        self._check_beginning()
        lists = "CASE WHEN json_type(json) = 'OBJECT' THEN json_keys(json) ELSE [NULL] END"
        records = (
            f"SELECT {lists} AS keys, row_number() OVER () AS n FROM read_json_objects({self._path()}, {self._options})"
        )
        places = f"SELECT unnest(keys) AS key, generate_subscripts(keys, 1) AS place, n FROM ({records})"
        try:
            found = cursor.execute(
                f"SELECT key, min(n) FROM ({places}) GROUP BY key ORDER BY min((n, place))"
            ).fetchall()
        except NO_FAULT_OF_PAYLOADS:
            raise
        except duckdb.Error as failure:
            raise refusal([_fault(failure)]) from None
        for key, row in found:
            if key is None:
                raise refusal([Fault(row, "", None, "is no object")])
        return [key for key, _ in found]

    def _check_beginning(self) -> None:
        """Refuse what is no array at once: the reader takes an empty file for an empty array."""
        with self.path.open("rb") as file:
            beginning = file.read(_BEGINNING).lstrip()
        if self._is_array and not beginning.startswith(b"["):
            raise BadPayload("the payload is no array of objects; one object per line is the format ndjson")

    @staticmethod
    def _takes_strings(column: Column) -> bool:
        return column.kind in ("text", "time", "clock")


def _narrowest(key: str, fitting: Sequence[Column]) -> Column:
    if len(fitting) == len(_INFERRED):  # it never has a value
        return Column(key, "VARCHAR")
    return fitting[0] if fitting else Column(key, "JSON")


def _fault(failure: duckdb.Error) -> Fault:
    """Take from the reader's text which record it is; the text itself holds the path and the record."""
    text = str(failure)
    record = _RECORD.search(text)
    # The reader counts the record that it is about to read, so it may be one too far.
    reason = "has a key twice" if "duplicate key" in text else "or the one before it is no valid JSON object"
    return Fault(int(record[1]) if record else 1, "", None, reason)
