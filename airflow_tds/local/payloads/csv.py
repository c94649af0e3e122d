"""CSV payloads: comma, double quote as quote and escape, header, UTF-8, LF or CRLF.

The dialect is fixed and never sniffed: a sniffer takes a row that begins with `#` for a comment and drops
it. An empty field is NULL, an empty quoted field is an empty text. A blank line is skipped.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from typing import TextIO

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
    require_same_columns,
)
from airflow_tds.local.payloads.text import TextPayload
from airflow_tds.local.sql import literal

__all__ = ["CsvPayload"]

_DIALECT = (
    "header=true, delim=',', quote='\"', escape='\"', comment='', nullstr='', allow_quoted_nulls=false,"
    # A row longer than the buffer fails, and the default buffer is derived from max_line_size: 16 times it.
    f" strict_mode=true, compression='none', max_line_size={LARGEST_RECORD}, buffer_size={2 * LARGEST_RECORD}"
)
_STRUCTURE = {
    "MISSING COLUMNS": "has fewer values than the header has names",
    "TOO MANY COLUMNS": "has more values than the header has names",
    "UNQUOTED VALUE": "has a quote that is not closed, or text after a closing quote",
    "LINE SIZE OVER MAXIMUM": f"is longer than {LARGEST_RECORD // 1024**2} MiB",
    "INVALID ENCODING": "is not valid UTF-8",
    "INVALID UNICODE": "is not valid UTF-8",
}
#: Inferred types that not all supported versions of DuckDB infer alike, or that JSON cannot show.
_INFERRED = {
    "HUGEINT": "DECIMAL(38,0)",
    "UHUGEINT": "DECIMAL(38,0)",
    "UBIGINT": "DECIMAL(38,0)",
    '"NULL"': "VARCHAR",
}


class CsvPayload(TextPayload):
    """A payload in CSV."""

    def columns(self, cursor: DuckDBPyConnection) -> list[Column]:
        """Infer types from the whole payload; a header alone gives columns of text."""
        header = self._header()
        names = ", ".join(map(literal, header))
        # Only ISO dates are dates: which of 01/02/2024 is the month cannot be known.
        options = f"{_DIALECT}, names=[{names}], dateformat='%Y-%m-%d', sample_size=-1"
        try:
            found = cursor.execute(f"DESCRIBE SELECT * FROM read_csv({self._path()}, {options})").fetchall()
            if len(found) == len(header):
                return self._with_whole_numbers(cursor, [Column(n, _INFERRED.get(kind, kind)) for n, kind, *_ in found])
        except NO_FAULT_OF_PAYLOADS:
            raise
        except duckdb.Error:
            pass
        # No consistent rows; the strict reader will say which are at fault.
        return [Column(name, "VARCHAR") for name in header]

    def loosened(self, cursor: DuckDBPyConnection, columns: Sequence[Column]) -> list[Column]:
        """Make text of the columns whose values only look like their inferred type, such as `0x1F`."""
        structural = self.structural_faults(cursor, self.names(cursor, columns))
        if structural:
            raise refusal(structural)
        broken = self.broken(cursor, columns)
        return [Column(column.name, "VARCHAR") if column in broken else column for column in columns]

    def _with_whole_numbers(self, cursor: DuckDBPyConnection, columns: list[Column]) -> list[Column]:
        """Keep whole numbers beyond 64 bits exact: before version 2, DuckDB makes DOUBLE of them."""
        doubles = {column.name: [Column(column.name, "DECIMAL(38,0)")] for column in columns if column.floats}
        if not doubles:
            return columns
        whole = self.fitting(cursor, [column.name for column in columns], doubles)
        return [(whole.get(column.name) or [column])[0] for column in columns]

    def reader(self, names: Sequence[str]) -> str:
        """Read all columns as text, in the header's order: DuckDB itself ignores the header's names."""
        return f"read_csv({self._path()}, {self._options(names)})"

    def text(self, column: Column) -> str:
        """Give the raw value: it is its text."""
        return column.quoted

    def fits(self, column: Column) -> str:  # noqa: ARG002  # CSV has no kinds of its own
        """Accept: CSV has no kinds of its own."""
        return "true"

    def names(self, cursor: DuckDBPyConnection, columns: Sequence[Column]) -> list[str]:  # noqa: ARG002
        """Give the header's names; see the base class."""
        header = self._header()
        require_same_columns(header, columns)
        return header

    def structural_faults(self, cursor: DuckDBPyConnection, names: Sequence[str]) -> list[Fault]:
        """Let DuckDB collect what it rejects; counting each column makes it read each."""
        counts = ", ".join(f"count({Column(name, 'VARCHAR').quoted})" for name in names)
        try:
            cursor.execute(
                f"SELECT {counts} FROM read_csv({self._path()}, {self._options(names)},"
                " store_rejects=true, rejects_limit=10)"
            ).fetchall()
        except NO_FAULT_OF_PAYLOADS:
            raise
        except duckdb.Error:
            raise BadPayload(self._unreadable()) from None
        found = cursor.execute("SELECT line, error_type FROM reject_errors ORDER BY line").fetchall()
        return [Fault(line - 1, "", None, _STRUCTURE.get(kind, "cannot be read")) for line, kind in found]

    def _options(self, names: Sequence[str]) -> str:
        columns = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in names)
        return f"{_DIALECT}, auto_detect=false, columns={{{columns}}}"

    def _header(self) -> list[str]:
        with self.path.open(encoding="utf-8-sig", newline="") as file:
            try:
                header = next(csv.reader(_lines(file), strict=True), [])
            except UnicodeDecodeError:
                raise BadPayload("the payload is not UTF-8 text (compressed payloads are not unpacked)") from None
            except csv.Error as wrong:
                raise BadPayload(f"the header cannot be read: {wrong}") from None
        return _checked(header)

    def _unreadable(self) -> str:
        with self.path.open("rb") as file:
            ends = {line.endswith(b"\r\n") for line in file if line.endswith(b"\n")}
        return "line ends are mixed, LF and CRLF" if len(ends) > 1 else "the payload cannot be read as CSV"


def _lines(file: TextIO) -> Iterator[str]:
    """Yield lines of bounded length: a file without line ends must not be read whole."""
    return iter(lambda: file.readline(LARGEST_RECORD), "")


def _checked(header: Sequence[str]) -> list[str]:
    if not header:
        raise BadPayload("the payload is empty: a CSV payload begins with a header")
    check_names(header)
    return list(header)
