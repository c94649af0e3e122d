"""The catalog in SQL: how tables and jobs are read from the database file, and written to it.

Each function works in the transaction of the cursor that it is given; none commits. What the rows mean is records.py's;
when they are written, and what memory knows of them, is the store's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from duckdb import DuckDBPyConnection

from airflow_tds.local.records import (
    JOB_FIELDS,
    SCHEMA,
    TABLE_FIELDS,
    Job,
    Table,
    job_of,
    job_row,
    table_of,
    table_row,
)
from airflow_tds.local.sql import literal, relation

#: DuckDB allocates its file in blocks of this many bytes.
_BLOCK = 262_144
_TABLES = f"SELECT {', '.join(TABLE_FIELDS)} FROM meta.tables"
_JOBS = f"SELECT {', '.join(JOB_FIELDS)} FROM meta.jobs"


def prepare(cursor: DuckDBPyConnection) -> None:
    """Make the catalog in a file that is new."""
    cursor.execute(SCHEMA)


def tables(cursor: DuckDBPyConnection) -> dict[str, Table]:
    """Give all tables by their ids."""
    return {row[0]: table_of(row) for row in cursor.execute(_TABLES).fetchall()}


def table(cursor: DuckDBPyConnection, table_id: str) -> Table | None:
    """Give one table; None for none."""
    found = cursor.execute(f"{_TABLES} WHERE table_id = ?", [table_id]).fetchone()
    return table_of(found) if found is not None else None


def jobs(cursor: DuckDBPyConnection) -> list[Job]:
    """Give all jobs in their order."""
    return list(map(job_of, cursor.execute(f"{_JOBS} ORDER BY seq").fetchall()))


def insert(cursor: DuckDBPyConnection, record: Table | Job) -> None:
    """Write a new table or job."""
    name, row = _row(record)
    marks = ", ".join("?" * len(row))
    cursor.execute(f"INSERT INTO {name} ({', '.join(row)}) VALUES ({marks})", list(row.values()))


def update(cursor: DuckDBPyConnection, record: Table | Job) -> None:
    """Write the next state of a table or job."""
    name, row = _row(record)
    key = "table_id" if isinstance(record, Table) else "job_id"
    sets = ", ".join(f"{field} = ?" for field in row)
    cursor.execute(f"UPDATE {name} SET {sets} WHERE {key} = ?", [*row.values(), row[key]])


def remove_jobs(cursor: DuckDBPyConnection, job_ids: Sequence[str]) -> None:
    """Remove jobs."""
    cursor.execute("DELETE FROM meta.jobs WHERE job_id IN (SELECT unnest(?))", [list(job_ids)])


def size(cursor: DuckDBPyConnection, measured: Table) -> int:
    """Give the bytes of a table's blocks on disk; rows so far in the write-ahead log only count as one block."""
    if measured.relation is None or not measured.row_count:
        return 0
    source = literal(relation(measured.relation))
    cursor.execute(f"SELECT count(DISTINCT block_id) FILTER (block_id >= 0) FROM pragma_storage_info({source})")
    (blocks,) = cursor.fetchone() or (0,)
    return max(int(blocks), 1) * _BLOCK


def _row(record: Table | Job) -> tuple[str, Mapping[str, Any]]:
    if isinstance(record, Table):
        return "meta.tables", table_row(record)
    return "meta.jobs", job_row(record)
