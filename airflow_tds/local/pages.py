"""Pages of one table as JSON, §2.4: rows in the order in which they lie, read from one snapshot with their count.

The order holds within one snapshot: an upsert moves rows, so pages of two etags do not fit together. Values
become JSON inside the engine and are never Python's.
"""

from __future__ import annotations

from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from airflow_tds.client.models import Predicate
from airflow_tds.local.filters import Where, matching
from airflow_tds.local.records import Table
from airflow_tds.local.sql import literal, relation
from airflow_tds.local.store import Store

__all__ = ["Asked", "Page", "Pages"]

#: Totals of filters that are remembered, of all tables together.
_MOST_TOTALS = 1000


@dataclass(frozen=True)
class Asked:
    """A page that is asked for.

    Attributes:
        filters: What a row has to match; None for all rows.
        limit: Rows at most.
        offset: Rows to leave out.
    """

    filters: Predicate | None
    limit: int
    offset: int


@dataclass(frozen=True)
class Page:
    """A page.

    Attributes:
        rows: Each a JSON text.
        columns: The names of the table's columns; empty while it never had data.
        total: How many rows match on all pages.
        has_next: Whether more rows follow.
        snapshot_id: The snapshot that it is of; empty while the table never had data.
    """

    rows: list[str]
    columns: tuple[str, ...]
    total: int
    has_next: bool
    snapshot_id: str


class Pages:
    """Reads pages of a store's tables.

    Args:
        store: The store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._totals: dict[tuple[str | None, float | None, Where], int] = {}

    def read(self, table_id: str, asked: Asked, *, lists: bool = False) -> Page:
        """Read a page.

        Args:
            table_id: The table.
            asked: Which rows.
            lists: Whether a row is a list of values, else an object.

        Raises:
            TableNotFound: The table does not exist.
            ValidationFailed: A filter does not fit the table; before it had data it has no columns to fit.
        """
        with self._store.database.transaction() as cursor:
            table = self._store.table_seen(cursor, table_id)
            if not table.ingested:
                return Page([], (), 0, has_next=False, snapshot_id="")
            return self._page(cursor, table, asked, lists=lists)

    def _page(self, cursor: DuckDBPyConnection, table: Table, asked: Asked, *, lists: bool) -> Page:
        where = matching(cursor, table, asked.filters)
        source = f"SELECT * FROM {relation(table.relation or '')}{where.sql} LIMIT {asked.limit} OFFSET {asked.offset}"
        row = _list(table) if lists else _object(table)
        cursor.execute(f"SELECT {row}::VARCHAR FROM ({source}) AS _r", where.values)
        rows = [row for (row,) in cursor.fetchall()]
        total = self._total(cursor, table, where, asked, len(rows))
        names = tuple(column.name for column in table.columns)
        return Page(rows, names, total, asked.offset + len(rows) < total, table.snapshot_id or "")

    def _total(self, cursor: DuckDBPyConnection, table: Table, where: Where, asked: Asked, given: int) -> int:
        """Count what matches; a page that ends before its limit tells it, and the catalog knows all rows."""
        if not where.sql:
            return table.row_count
        if given < asked.limit and (given or not asked.offset):
            return asked.offset + given
        key = (table.snapshot_id, table.updated_at, where)
        if key not in self._totals:
            if len(self._totals) >= _MOST_TOTALS:
                self._totals.clear()
            source = f"SELECT count(*) FROM {relation(table.relation or '')}{where.sql}"
            self._totals[key] = int((cursor.execute(source, where.values).fetchone() or (0,))[0])
        return self._totals[key]


def _object(table: Table) -> str:
    """Give the SQL of a row as an object.

    The struct is named by us: to_json of a bare alias takes a column of that name if there is one.
    """
    fields = ", ".join(f"{literal(c.name)}: {c.in_json(f'_r.{c.quoted}')}" for c in table.columns)
    return f"to_json({{{fields}}})"


def _list(table: Table) -> str:
    """Give the SQL of a row as a list, in the order of the table's columns."""
    return f"json_array({', '.join(c.in_json(f'_r.{c.quoted}') for c in table.columns)})"
