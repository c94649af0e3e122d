"""The strict reader that all text formats share: every value is text first, tested, then cast.

A format says how its file is read into one raw column per name, and which text a raw value stands for.
The tests themselves are those of columns.py.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

from duckdb import DuckDBPyConnection

from airflow_tds.local.columns import Column
from airflow_tds.local.payloads.payload import BadPayload, Fault, Payload

__all__ = ["TextPayload"]

_WORST_ROWS = 10
_FIRST_ROWS = 1000


class TextPayload(Payload):
    """A payload whose values are written as text."""

    @abstractmethod
    def reader(self, names: Sequence[str]) -> str:
        """Give the FROM item that yields the raw values, one column per name."""

    @abstractmethod
    def text(self, column: Column) -> str:
        """Give the SQL for the text of a raw value; NULL where the payload has none."""

    @abstractmethod
    def fits(self, column: Column) -> str:
        """Give the SQL test that the format's own kind of the raw value is the column's."""

    @abstractmethod
    def names(self, cursor: DuckDBPyConnection, columns: Sequence[Column]) -> list[str]:
        """Give the raw columns in the file's order, after checking them against the table's.

        Raises:
            BadPayload: They are not the table's.
        """

    @abstractmethod
    def structural_faults(self, cursor: DuckDBPyConnection, names: Sequence[str]) -> list[Fault]:
        """Find rows that are no rows at all."""

    def rows(self, cursor: DuckDBPyConnection, columns: Sequence[Column]) -> str:
        """Give the strict SELECT; see the base class."""
        for column in columns:
            if not column.has_text_form:
                raise BadPayload(f"column {column.name!r} is {column.type}, which only a parquet payload can carry")
        names = self.names(cursor, columns)
        return f"SELECT {', '.join(map(self._strict, columns))} FROM {self.reader(names)}"

    def faults(self, cursor: DuckDBPyConnection, columns: Sequence[Column]) -> list[Fault]:
        """Find what made the strict SELECT fail, structure first; see the base class."""
        names = self.names(cursor, columns)
        structural = self.structural_faults(cursor, names)
        if structural:
            return structural
        return [fault for column in self.broken(cursor, columns) for fault in self._faults_in(cursor, names, column)]

    def broken(self, cursor: DuckDBPyConnection, columns: Sequence[Column]) -> list[Column]:
        """Find the columns that hold at least one value which is none of their type."""
        fitting = self.fitting(cursor, self.names(cursor, columns), {column.name: [column] for column in columns})
        return [column for column in columns if not fitting[column.name]]

    def fitting(
        self, cursor: DuckDBPyConnection, names: Sequence[str], candidates: Mapping[str, Sequence[Column]]
    ) -> dict[str, list[Column]]:
        """Give for each name the candidates that can hold all its values; where there are none, all can.

        Most candidates are ruled out by the first rows; what is left is tried on all of them.
        """
        for limit in (f" LIMIT {_FIRST_ROWS}", ""):
            tried = [column for columns in candidates.values() for column in columns]
            if not tried:
                break
            tests = [f"coalesce(bool_or({self._bad(column)}), false)" for column in tried]
            rows = f"(SELECT * FROM {self.reader(names)}{limit})"
            found = cursor.execute(f"SELECT {', '.join([*tests, 'true'])} FROM {rows}").fetchone() or ()
            bad = {column for column, is_bad in zip(tried, found, strict=False) if is_bad}
            candidates = {name: [c for c in columns if c not in bad] for name, columns in candidates.items()}
        return {name: list(columns) for name, columns in candidates.items()}

    def _strict(self, column: Column) -> str:
        text = self.text(column)
        good = f"{self.fits(column)} AND {column.accepts(text)}"
        value = f"CASE WHEN {text} IS NULL THEN NULL WHEN {good} THEN {column.cast(text)} ELSE error('') END"
        return f"{column.cast(text) if good == 'true AND true' else value} AS {column.quoted}"

    def _bad(self, column: Column) -> str:
        text = self.text(column)
        return f"{text} IS NOT NULL AND (NOT ({self.fits(column)}) OR {column.refuses(text)})"

    def _faults_in(self, cursor: DuckDBPyConnection, names: Sequence[str], column: Column) -> list[Fault]:
        found = cursor.execute(
            f"SELECT n, {column.quoted}::VARCHAR FROM (SELECT row_number() OVER () AS n, {column.quoted}"
            f" FROM {self.reader(names)}) WHERE {self._bad(column)} ORDER BY n LIMIT {_WORST_ROWS}"
        )
        return [Fault(row, column.name, value, f"is no {column.type}") for row, value in found.fetchall()]
