"""What the store remembers: tables and jobs, as values and as rows of the catalog.

A field more is a column more in the schema below, and the other way round. Nothing here reads or writes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass, fields
from typing import Any, Literal

from airflow_tds.local.columns import Column

__all__ = ["JOB_FIELDS", "SCHEMA", "TABLE_FIELDS", "Job", "Kind", "Status", "Table"]

#: `object` is no job of the interface: data that a write will name when it is committed.
Kind = Literal["upload", "append", "overwrite", "upsert", "delete", "truncate", "query", "object"]
#: `staged` is an object whose data has arrived.
Status = Literal["awaiting", "staged", "queued", "completed", "failed"]

SCHEMA = """
CREATE SCHEMA IF NOT EXISTS meta;
CREATE SCHEMA IF NOT EXISTS data;
CREATE TABLE IF NOT EXISTS meta.tables(
  table_id VARCHAR NOT NULL, relation VARCHAR, columns VARCHAR NOT NULL, snapshot_id VARCHAR,
  row_count BIGINT NOT NULL, updated_at DOUBLE);
CREATE TABLE IF NOT EXISTS meta.jobs(
  seq BIGINT NOT NULL, job_id VARCHAR NOT NULL, kind VARCHAR NOT NULL, table_id VARCHAR NOT NULL,
  spec VARCHAR NOT NULL, status VARCHAR NOT NULL, attempts INTEGER NOT NULL, created_at DOUBLE NOT NULL,
  expires_at DOUBLE, queued_at DOUBLE, finished_at DOUBLE, payload_sha256 VARCHAR, payload_bytes BIGINT,
  snapshot_id VARCHAR, error VARCHAR);
"""


@dataclass(frozen=True, slots=True)
class Table:
    """A table's row of the catalog.

    Attributes:
        table_id: The interface's id, any text.
        relation: Where its rows are; never made from the id. None before the first load.
        columns: In order; empty before the first load.
        snapshot_id: New with every committed write; None before the first.
        row_count: Rows.
        updated_at: POSIX seconds; None before the first write.
    """

    table_id: str
    relation: str | None = None
    columns: tuple[Column, ...] = ()
    snapshot_id: str | None = None
    row_count: int = 0
    updated_at: float | None = None

    @property
    def ingested(self) -> bool:
        """Whether it has ever had data, §3.1."""
        return self.relation is not None


@dataclass(frozen=True, slots=True)
class Job:
    """A background job, §2.3. Times are POSIX seconds; None where not reached.

    Attributes:
        seq: The order in which jobs run: that of their data's arrival.
        job_id: Random.
        kind: What it does.
        table_id: The table it writes, or the primary table of the query; empty for an object of any table.
        spec: What was asked for, as JSON values; with it `key`, the request's idempotency key, and `fault`, how
            the job is to go wrong.
        status: As on disk; see the module.
        attempts: How often it was begun.
        created_at: When it was asked for.
        expires_at: Until when a transfer of its payload may begin.
        queued_at: When its data had arrived.
        finished_at: When it became final.
        payload_sha256: Digest of the payload, hexadecimal.
        payload_bytes: Its length.
        snapshot_id: The snapshot that it made.
        error: Why it failed.
    """

    seq: int
    job_id: str
    kind: Kind
    table_id: str
    spec: Mapping[str, Any]
    status: Status
    attempts: int
    created_at: float
    expires_at: float | None = None
    queued_at: float | None = None
    finished_at: float | None = None
    payload_sha256: str | None = None
    payload_bytes: int | None = None
    snapshot_id: str | None = None
    error: str | None = None

    @property
    def asked(self) -> dict[str, Any]:
        """What the request asked for, without its idempotency key and without what is to go wrong."""
        return {name: value for name, value in self.spec.items() if name not in ("key", "fault")}

    @property
    def final(self) -> bool:
        """Whether it ended."""
        return self.status in ("completed", "failed")


JOB_FIELDS = tuple(field.name for field in fields(Job))
TABLE_FIELDS = tuple(field.name for field in fields(Table))


def job_row(job: Job) -> dict[str, Any]:
    """Give a job as its row."""
    return {name: getattr(job, name) for name in JOB_FIELDS} | {"spec": json.dumps(dict(job.spec))}


def job_of(row: tuple[Any, ...]) -> Job:
    """Give the job of a row."""
    known = dict(zip(JOB_FIELDS, row, strict=True))
    return Job(**known | {"spec": json.loads(known["spec"])})


def table_row(table: Table) -> dict[str, Any]:
    """Give a table as its row."""
    columns = json.dumps([astuple(column) for column in table.columns])
    return {name: getattr(table, name) for name in TABLE_FIELDS} | {"columns": columns}


def table_of(row: tuple[Any, ...]) -> Table:
    """Give the table of a row."""
    known = dict(zip(TABLE_FIELDS, row, strict=True))
    return Table(**known | {"columns": tuple(Column(*column) for column in json.loads(known["columns"]))})
