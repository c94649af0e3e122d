"""Pages of one table as JSON, §2.4: rows in the order in which they lie, read from one snapshot with their count.

The order holds within one snapshot: an upsert moves rows, so pages of two etags do not fit together. Values
become JSON inside the engine and are never Python's.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from airflow_tds.local.filters import Where, matching
from airflow_tds.local.records import Table
from airflow_tds.local.sql import literal, relation
from airflow_tds.local.store import Store

__all__ = ["Asked", "Pages"]

#: Totals of filters that are remembered, of all tables together.
_MOST_TOTALS = 1000


@dataclass(frozen=True)
class Asked:
    """A page that is asked for.

    Attributes:
        filters: Simple expressions, all of which a row has to match.
        limit: Rows at most.
        offset: Rows to leave out.
    """

    filters: tuple[str, ...]
    limit: int
    offset: int


@dataclass(frozen=True)
class _Found:
    """Rows as JSON texts, how many match on all pages, and the snapshot that they are of."""

    rows: list[str]
    total: int
    snapshot_id: str

    def body(self, asked: Asked) -> bytes:
        has_next = asked.offset + len(self.rows) < self.total
        metadata = json.dumps({"total_count": self.total, "has_next": has_next})
        return f'{{"items":[{",".join(self.rows)}],"metadata":{metadata},"etag":"{self.snapshot_id}"}}'.encode()


class Pages:
    """Reads pages of a store's tables.

    Args:
        store: The store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._totals: dict[tuple[str | None, Where], int] = {}

    def read(self, table_id: str, asked: Asked) -> tuple[str, bytes]:
        """Read a page.

        Returns:
            The etag without quotes, empty while the table never had data, and the answer's body.

        Raises:
            TableNotFound: The table does not exist.
            ValidationFailed: A filter does not fit the table; before it had data it has no columns to fit.
        """
        with self._store.database.transaction() as cursor:
            table = self._store.table_seen(cursor, table_id)
            found = self._found(cursor, table, asked) if table.ingested else _Found([], 0, "")
        return found.snapshot_id, found.body(asked)

    def _found(self, cursor: DuckDBPyConnection, table: Table, asked: Asked) -> _Found:
        where = matching(cursor, table, asked.filters)
        source = f"SELECT * FROM {relation(table.relation or '')}{where.sql} LIMIT {asked.limit} OFFSET {asked.offset}"
        fields = ", ".join(f"{literal(c.name)}: {c.in_json(f'_r.{c.quoted}')}" for c in table.columns)
        # The struct is named by us: to_json of a bare alias takes a column of that name if there is one.
        cursor.execute(f"SELECT to_json({{{fields}}})::VARCHAR FROM ({source}) AS _r", where.values)
        rows = [row for (row,) in cursor.fetchall()]
        return _Found(rows, self._total(cursor, table, where, asked, len(rows)), table.snapshot_id or "")

    def _total(self, cursor: DuckDBPyConnection, table: Table, where: Where, asked: Asked, given: int) -> int:
        """Count what matches; a page that ends before its limit tells it, and the catalog knows all rows."""
        if not where.sql:
            return table.row_count
        if given < asked.limit and (given or not asked.offset):
            return asked.offset + given
        key = (table.snapshot_id, where)
        if key not in self._totals:
            if len(self._totals) >= _MOST_TOTALS:
                self._totals.clear()
            source = f"SELECT count(*) FROM {relation(table.relation or '')}{where.sql}"
            self._totals[key] = int((cursor.execute(source, where.values).fetchone() or (0,))[0])
        return self._totals[key]
