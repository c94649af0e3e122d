"""What a job does: one function per kind, from the job's first look at the store to its commit.

A job either commits its data and its COMPLETED status together, or raises and has changed nothing. Threads
and queues are worker.py's; the SQL of a write is writes.py's, that of a query query.py's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from uuid import uuid4

import duckdb
from duckdb import DuckDBPyConnection

from airflow_tds.client.models import CrossQueryRequest, Predicate, ResultFormat
from airflow_tds.local import catalog, writes
from airflow_tds.local.columns import Column
from airflow_tds.local.payloads import formats
from airflow_tds.local.payloads.layouts import as_lines
from airflow_tds.local.payloads.payload import NO_FAULT_OF_PAYLOADS, BadPayload, Payload, refusal
from airflow_tds.local.query import DEFAULT_FORMAT, compile_query
from airflow_tds.local.records import Job, Table
from airflow_tds.local.sql import literal
from airflow_tds.local.store import Store

__all__ = ["run"]

_COPY: dict[ResultFormat, str] = {
    "parquet": "FORMAT parquet, COMPRESSION snappy",
    "csv": "FORMAT csv, HEADER true",
    "json": "FORMAT json, ARRAY true",
}
_ENGINE_FAILURES = (*NO_FAULT_OF_PAYLOADS, duckdb.IOException)
_ON_PURPOSE = "the service failed after it had applied the data (a fault on purpose)"
Change = Callable[[DuckDBPyConnection, Table], Table]


def run(store: Store, job: Job) -> None:
    """Run a job to its commit.

    Raises:
        BadPayload: The payload cannot become rows of the table; nothing is applied.
        ValidationFailed: The request does not fit the table as it is now; nothing is applied.
        duckdb.Error: The engine failed; nothing is applied, except that after a FatalException it is
            unknown until the database is opened again.
    """
    if job.kind == "query":
        _query(store, job)
    elif job.kind == "truncate":
        _commit(store, job, writes.truncate)
        store.database.checkpoint()
    elif job.kind == "delete":
        _commit(store, job, lambda cursor, table: writes.delete(cursor, table, _predicate(job)))
    else:
        _write(store, job)


def _predicate(job: Job) -> Predicate:
    query = CrossQueryRequest.model_validate({"table_id": job.table_id, "filters": job.spec["filters"]})
    if query.filters is None:
        raise AssertionError("unreachable: at least one filter was asked for")
    return query.filters


def _write(store: Store, job: Job) -> None:
    table = store.table(job.table_id)
    if job.payload_sha256 is None:  # told to go wrong so: it did not wait for its data
        _commit(store, job, writes.change_without_data)
        return
    if table.ingested and job.kind == "upload":
        raise BadPayload(f"table {job.table_id!r} has had data since: upload is the initial load only")
    with _payload(store, job) as payload:
        if table.ingested:
            _change(store, job, payload)
        else:
            _load(store, job, payload)
    if table.ingested and job.kind == "overwrite":  # else each one makes the file grow
        store.database.checkpoint()


@contextmanager
def _payload(store: Store, job: Job) -> Iterator[Payload]:
    """Give a job's payload, laid out as rows one after another."""
    path, layout = store.directory.payloads / job.job_id, job.spec.get("layout")
    if layout is None:
        yield formats.open_payload(job.spec["format"], path)
        return
    lines = store.directory.tmp / f"{job.job_id}.lines"
    try:
        if layout != "lines":
            as_lines(path, layout, lines)
        yield formats.open_payload("ndjson", path if layout == "lines" else lines)
    finally:
        lines.unlink(missing_ok=True)


def _load(store: Store, job: Job, payload: Payload) -> None:
    """Load with the types that were inferred, or with wider ones where values turn out not to fit."""
    keys = job.spec.get("key_columns") or ()

    def load(columns: Sequence[Column]) -> Change:
        return lambda cursor, table: writes.load(cursor, table, payload, columns, keys)

    with store.database.cursor() as cursor:
        columns = payload.columns(cursor)
    try:
        _commit(store, job, _repeated(job, payload, load(columns)))
    except duckdb.Error as failure:
        _raise_engine_failure(failure)
        with store.database.cursor() as cursor:
            wider = payload.loosened(cursor, columns)
        with _explained(store, payload, wider):
            _commit(store, job, _repeated(job, payload, load(wider)))


def _change(store: Store, job: Job, payload: Payload) -> None:
    def change(cursor: DuckDBPyConnection, table: Table) -> Table:
        if job.kind == "append":
            return writes.append(cursor, table, payload)
        if job.kind == "overwrite":
            return writes.overwrite(cursor, table, payload)
        writes.check_keys(table, job.spec["key_columns"])
        return writes.upsert(cursor, table, payload, job.spec["key_columns"])

    with _explained(store, payload, store.table(job.table_id).columns):
        _commit(store, job, _repeated(job, payload, change))


def _repeated(job: Job, payload: Payload, change: Change) -> Change:
    """Apply the payload once more where the job was told to go wrong so."""
    if job.spec.get("fault") != "applies_twice":
        return change
    return lambda cursor, table: writes.append(cursor, change(cursor, table), payload)


@contextmanager
def _explained(store: Store, payload: Payload, columns: Sequence[Column]) -> Iterator[None]:
    """Turn the engine's refusal of a payload into one that names rows, columns, values and reasons."""
    try:
        yield
    except duckdb.Error as failure:
        _raise_engine_failure(failure)
        with store.database.cursor() as cursor:
            faults = payload.faults(cursor, columns)
        if not faults:
            raise
        raise refusal(faults) from None


def _commit(store: Store, job: Job, change: Change) -> None:
    with store.database.transaction() as cursor:
        table = change(cursor, store.table(job.table_id))
        fault = job.spec.get("fault")
        if table.ingested:  # a table that never had data has no snapshot, §2.4
            kept = table.snapshot_id if fault == "keeps_snapshot" else None
            table = replace(table, snapshot_id=kept or uuid4().hex, updated_at=store.clock())
        failed = fault == "fails_after_applying"
        publish = store.complete(cursor, job, table, error=_ON_PURPOSE if failed else None)
    publish()


def _query(store: Store, job: Job) -> None:
    """Write a query's result from one snapshot; the file is on disk before the job says so."""
    request = CrossQueryRequest.model_validate(job.asked)
    result_format = request.format or DEFAULT_FORMAT
    part = store.directory.results / f"{job.job_id}.part"
    with store.database.transaction() as cursor:
        select = compile_query(cursor, request, catalog.tables(cursor), result_format)
        cursor.execute(f"COPY ({select.sql}) TO {literal(str(part))} ({_COPY[result_format]})", select.values)
        with part.open("rb") as file:
            os.fsync(file.fileno())
        store.directory.settle(part, store.directory.results / job.job_id)
        if store.outside:
            store.outside.publish(job, store.directory.results / job.job_id)
        publish = store.complete(cursor, job)
    publish()


def _raise_engine_failure(failure: duckdb.Error) -> None:
    """Let failures pass that the payload has no part in."""
    if isinstance(failure, _ENGINE_FAILURES):
        raise failure
