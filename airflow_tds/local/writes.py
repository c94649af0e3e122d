"""One write to one table: the SQL of upload, append, overwrite, upsert, delete and truncate.

Each runs inside the transaction it is given and returns the table's next state; none commits. It writes
rows of a payload that payloads/ reads strictly. Writes of one service run one after another: DuckDB lets
a DELETE and an UPDATE of the same row both commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import uuid4

from duckdb import DuckDBPyConnection

from airflow_tds.client.errors import ValidationFailed
from airflow_tds.client.models import Predicate
from airflow_tds.local.columns import Column
from airflow_tds.local.filters import matching
from airflow_tds.local.payloads.payload import BadPayload, Payload
from airflow_tds.local.records import Table
from airflow_tds.local.sql import identifier, relation

__all__ = ["append", "change_without_data", "check_keys", "delete", "load", "overwrite", "truncate", "upsert"]


def load(
    cursor: DuckDBPyConnection, table: Table, payload: Payload, columns: Sequence[Column], keys: Sequence[str] = ()
) -> Table:
    """Create the table's rows, and with them its columns; with keys, each key may be given once.

    Raises:
        BadPayload: The payload gives one key twice.
    """
    name = f"t_{uuid4().hex}"
    cursor.execute(f"CREATE TABLE {relation(name)} AS {payload.rows(cursor, columns)}")
    loaded = replace(table, relation=name, columns=tuple(columns), row_count=_counted(cursor))
    if keys:
        check_keys(loaded, keys)
        _refuse_repeated_keys(cursor, _rows(loaded), keys)
    return loaded


def append(cursor: DuckDBPyConnection, table: Table, payload: Payload) -> Table:
    """Add the payload's rows, without deduplication, §2.8."""
    cursor.execute(f"INSERT INTO {_rows(table)} {payload.rows(cursor, table.columns)}")
    return replace(table, row_count=table.row_count + _counted(cursor))


def overwrite(cursor: DuckDBPyConnection, table: Table, payload: Payload) -> Table:
    """Put the payload's rows in place of all rows, §2.8; the columns stay, and who reads keeps the old rows."""
    old = _rows(table)
    loaded = load(cursor, table, payload, table.columns)
    cursor.execute(f"DROP TABLE {old}")
    return loaded


def upsert(cursor: DuckDBPyConnection, table: Table, payload: Payload, keys: Sequence[str]) -> Table:
    """Update the rows that match on all keys, insert the others, §2.8; NULL matches NULL.

    Raises:
        BadPayload: The payload gives one key twice: which of the rows is meant cannot be known.
    """
    cursor.execute(f"CREATE OR REPLACE TEMP TABLE payload AS {payload.rows(cursor, table.columns)}")
    given = _counted(cursor)
    _refuse_repeated_keys(cursor, "payload", keys)
    match = _match(cursor, keys)
    hit, gone = _met(cursor, table, keys, match)
    if hit == gone:
        cursor.execute(f"DELETE FROM {_rows(table)} t USING payload p WHERE {match}")
        cursor.execute(f"INSERT INTO {_rows(table)} SELECT * FROM payload")
    else:
        _merge(cursor, table, match)
    cursor.execute("DROP TABLE payload")
    return replace(table, row_count=table.row_count + given - hit)


def delete(cursor: DuckDBPyConnection, table: Table, predicate: Predicate) -> Table:
    """Delete the rows that match, §4.2 rule 5.

    Raises:
        ValidationFailed: The predicate does not fit the table's columns.
    """
    if not table.ingested:
        return table
    where = matching(cursor, table, predicate)
    cursor.execute(f"DELETE FROM {_rows(table)}{where.sql}", where.values)
    return replace(table, row_count=table.row_count - _counted(cursor))


def truncate(cursor: DuckDBPyConnection, table: Table) -> Table:
    """Remove all rows and keep the columns, §3.1."""
    if table.ingested:
        cursor.execute(f"TRUNCATE {_rows(table)}")
    return replace(table, row_count=0)


def change_without_data(cursor: DuckDBPyConnection, table: Table) -> Table:
    """Change a table although no data came, as on purpose: one row of NULLs more."""
    if not table.ingested:
        return table
    cursor.execute(f"INSERT INTO {_rows(table)} VALUES ({', '.join(['NULL'] * len(table.columns))})")
    return replace(table, row_count=table.row_count + _counted(cursor))


def check_keys(table: Table, keys: Sequence[str]) -> None:
    """Refuse key columns that the table does not have; before the first load none are known.

    Raises:
        ValidationFailed: No keys, one twice, or one that is no column.
    """
    if not keys or len(set(keys)) != len(keys):
        raise ValidationFailed("key_columns: at least one name is needed, and none twice")
    names = [column.name for column in table.columns]
    unknown = [key for key in keys if names and key not in names]
    if unknown:
        raise ValidationFailed(f"key_columns: {', '.join(unknown)} not among the columns {', '.join(names)}")


def _rows(table: Table) -> str:
    if table.relation is None:
        raise AssertionError("unreachable: a table without data is loaded, not changed")
    return relation(table.relation)


def _refuse_repeated_keys(cursor: DuckDBPyConnection, rows: str, keys: Sequence[str]) -> None:
    names = ", ".join(map(identifier, keys))
    shown = ", ".join(f"{identifier(key)}::VARCHAR" for key in keys)
    cursor.execute(f"SELECT count(*), {shown} FROM {rows} GROUP BY {names} HAVING count(*) > 1 LIMIT 1")
    found = cursor.fetchone()
    if found is not None:
        key = ", ".join(f"{name}={value!r}" for name, value in zip(keys, found[1:], strict=True))
        raise BadPayload(f"the payload has {found[0]} rows with the key {key}; a key may be given once")


def _match(cursor: DuckDBPyConnection, keys: Sequence[str]) -> str:
    """Give the condition that rows have the same keys; NULL matches NULL.

    Only by `=` does the engine read no more of the table than the payload's keys can be in: half the time.
    """
    nulls = ", ".join(f"count(*) > count({identifier(key)})" for key in keys)
    found = cursor.execute(f"SELECT {nulls} FROM payload").fetchone() or ()
    same = ["IS NOT DISTINCT FROM" if has_null else "=" for has_null in found]
    pairs = zip(map(identifier, keys), same, strict=True)
    return " AND ".join(f"t.{key} {operator} p.{key}" for key, operator in pairs)


def _met(cursor: DuckDBPyConnection, table: Table, keys: Sequence[str], match: str) -> tuple[int, int]:
    """Count the payload's rows whose keys the table has already, and the table's rows that have them."""
    names = ", ".join(f"p.{identifier(key)}" for key in keys)
    each = f"SELECT count(*) AS n FROM {_rows(table)} t JOIN payload p ON {match} GROUP BY {names}"
    found = cursor.execute(f"SELECT count(*), coalesce(sum(n), 0) FROM ({each})").fetchone() or (0, 0)
    return int(found[0]), int(found[1])


def _merge(cursor: DuckDBPyConnection, table: Table, match: str) -> None:
    """Update where the table itself holds a key several times: each of the rows, §2.8. Slower."""
    sets = ", ".join(f"{column.quoted} = p.{column.quoted}" for column in table.columns)
    values = ", ".join(f"p.{column.quoted}" for column in table.columns)
    cursor.execute(
        f"MERGE INTO {_rows(table)} t USING payload p ON {match}"
        f" WHEN MATCHED THEN UPDATE SET {sets} WHEN NOT MATCHED THEN INSERT VALUES ({values})"
    )


def _counted(cursor: DuckDBPyConnection) -> int:
    """Give the number of rows that the last statement wrote."""
    return int((cursor.fetchone() or (0,))[0])
