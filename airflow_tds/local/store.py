"""The store: one database file that holds tables, their catalog and the jobs, and its copies in memory.

A data directory holds `store.duckdb`, `payloads/<job id>`, `results/<job id>`, `tmp/`, `signing.key` and `lock`.
What is acknowledged is on disk first; reads of the catalog and of jobs never touch the disk. A job's change
of data and its COMPLETED status are one transaction, so a job is applied at most once, whenever the process
dies. `RUNNING` exists in memory only: what the file calls `queued` was not applied. No index and no primary
key: one process keeps ids unique, and replaying indexes is where crash recovery is known to fail.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, Self, TextIO
from uuid import uuid4

import duckdb
from duckdb import DuckDBPyConnection

from airflow_tds.client.errors import Conflict, JobNotFound, TableNotFound, ValidationFailed
from airflow_tds.local.columns import Column
from airflow_tds.local.sql import literal, relation

__all__ = ["Job", "Kind", "Status", "Store", "StoreUnavailable", "Table"]

Kind = Literal["upload", "append", "upsert", "truncate", "query"]
Status = Literal["awaiting", "queued", "completed", "failed"]

#: Seconds beyond its URL's expiry that a transfer under way may take before its job fails.
_UPLOAD_GRACE = 900.0
#: DuckDB allocates its file in blocks of this many bytes.
_BLOCK = 262_144
_FINAL = ("completed", "failed")
_SCHEMA = """
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


class StoreUnavailable(Exception):  # a state, told in one sentence
    """Another service has this data directory, or its database cannot be read."""


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
        table_id: The table it writes, or the primary table of the query.
        spec: What was asked for, as JSON values.
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
    def final(self) -> bool:
        """Whether it ended."""
        return self.status in _FINAL


_JOB_FIELDS = tuple(field.name for field in fields(Job))
_TABLE_FIELDS = tuple(field.name for field in fields(Table))


class Store:
    """An open data directory.

    Args:
        directory: Made when it does not exist.
        clock: POSIX seconds; tests may turn it.

    Raises:
        StoreUnavailable: Another service has the directory, or its database cannot be read.
    """

    def __init__(self, directory: Path, clock: Callable[[], float] = time.time) -> None:
        self.directory = directory.resolve()
        self.clock = clock
        self.changed = threading.Condition(threading.RLock())
        self._tables: dict[str, Table] = {}
        self._jobs: dict[str, Job] = {}
        self._queues: dict[bool, deque[str]] = {}
        self._running: set[str] = set()
        self._awaiting: set[str] = set()
        self._open: set[DuckDBPyConnection] = set()
        self._sizes: dict[str, int] = {}
        self._receiving: dict[str, int] = {}
        self.broken = False
        for folder in (self.payloads, self.results, self._tmp):
            folder.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(self.directory)
        try:
            self._connection = self._connect()
            self._recover()
        except duckdb.Error as failure:
            self._lock.close()
            raise StoreUnavailable(f"{self.directory} cannot be opened: {str(failure).partition(chr(10))[0]}") from None

    def __enter__(self) -> Self:
        """Give the open store."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Close the database; what was acknowledged stays."""
        self._connection.close()
        fcntl.flock(self._lock, fcntl.LOCK_UN)  # also for a forked child that still has the file
        self._lock.close()

    # ---- files

    @property
    def payloads(self) -> Path:
        """Where payloads lie until their job is final."""
        return self.directory / "payloads"

    @property
    def results(self) -> Path:
        """Where results of queries lie."""
        return self.directory / "results"

    @property
    def _tmp(self) -> Path:
        return self.directory / "tmp"

    def signing_key(self) -> bytes:
        """Give the key of presigned URLs, made once: links survive a restart."""
        path = self.directory / "signing.key"
        with suppress(FileExistsError):
            new = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(new, "wb") as file:
                file.write(secrets.token_bytes(32))
        return path.read_bytes()

    # ---- transactions

    @contextmanager
    def transaction(self) -> Iterator[DuckDBPyConnection]:
        """Give a cursor in a transaction of its own: committed at the end, rolled back by any exception."""
        with self.cursor() as cursor:
            cursor.execute("BEGIN")
            try:
                yield cursor
                cursor.execute("COMMIT")
            except BaseException:
                with suppress(duckdb.Error):
                    cursor.execute("ROLLBACK")
                raise

    @contextmanager
    def cursor(self) -> Iterator[DuckDBPyConnection]:
        """Give a cursor that sees the last commit at each statement."""
        with self.changed:
            cursor = self._connection.cursor()
            self._open.add(cursor)
        try:
            yield cursor
        except duckdb.FatalException:
            self.broken = True
            raise
        finally:
            cursor.close()
            with self.changed:
                self._open.discard(cursor)
                self.changed.notify_all()

    def interrupt(self) -> None:
        """End the statements under way; their jobs stay queued."""
        for cursor in list(self._open):
            cursor.interrupt()

    def checkpoint(self) -> None:
        """Give freed blocks back for use; while others write it is not possible, and not urgent."""
        with self.cursor() as cursor, suppress(duckdb.TransactionException):
            cursor.execute("CHECKPOINT")

    def reopen(self) -> None:
        """Open the database again after it failed, as a full disk makes it fail for good.

        What was acknowledged is in the file; whether the last commit is, only the file knows, so all copies in
        memory are read from it again.

        Raises:
            duckdb.Error: It cannot be opened yet.
        """
        with self.changed:
            self.broken = True
            while self._open:  # each ends by itself: every statement fails
                self.changed.wait()
            self._connection.close()
            self._connection = self._connect()
            self._recover()
            self.broken = False
            self.changed.notify_all()

    # ---- tables

    def create_table(self, table_id: str) -> Table:
        """Create an empty table without columns; one that exists is left as it is.

        Raises:
            ValidationFailed: The id is empty or holds NUL.
        """
        if not table_id or "\0" in table_id:
            raise ValidationFailed(f"table id {table_id!r}: it must not be empty or hold NUL")
        with self.changed:
            if table_id not in self._tables:
                table = Table(table_id)
                with self.transaction() as cursor:
                    _insert(cursor, "meta.tables", _table_row(table))
                self._tables[table_id] = table
            return self._tables[table_id]

    def table(self, table_id: str) -> Table:
        """Look a table up.

        Raises:
            TableNotFound: It was not created.
        """
        try:
            return self._tables[table_id]
        except KeyError:
            raise TableNotFound(f"table {table_id!r} does not exist") from None

    def size(self, table_id: str) -> int:
        """Give a table's bytes, counted after its last write."""
        return self._sizes.get(table_id, 0)

    def catalog(self, cursor: DuckDBPyConnection) -> dict[str, Table]:
        """Give the tables as the cursor's transaction sees them."""
        found = cursor.execute(f"SELECT {', '.join(_TABLE_FIELDS)} FROM meta.tables").fetchall()
        return {row[0]: _table_of(row) for row in found}

    # ---- jobs

    def job(self, job_id: str) -> Job:
        """Look a job up.

        Raises:
            JobNotFound: There is none.
        """
        try:
            return self._jobs[job_id]
        except KeyError:
            raise JobNotFound(f"job {job_id!r} does not exist") from None

    def running(self, job_id: str) -> bool:
        """Tell whether a worker has taken the job."""
        return job_id in self._running

    def initiate(self, kind: Kind, table_id: str, spec: Mapping[str, Any], lifetime: float) -> Job:
        """Create a write's job that waits for its payload.

        Args:
            kind: Which write.
            table_id: The table.
            spec: Format and keys.
            lifetime: Seconds for which the payload may be sent.

        Raises:
            TableNotFound: The table does not exist.
            Conflict: An upload to a table that has, or has ever had, data, §3.1.
        """
        table = self.table(table_id)
        if kind == "upload" and table.ingested:
            raise Conflict(f"table {table_id!r} has, or has had, data: upload is the initial load only")
        now = self.clock()
        return self._create(Job(0, uuid4().hex, kind, table_id, spec, "awaiting", 0, now, expires_at=now + lifetime))

    def enqueue(self, kind: Kind, table_id: str, spec: Mapping[str, Any]) -> Job:
        """Create a job that needs no payload.

        Raises:
            TableNotFound: The table does not exist.
        """
        self.table(table_id)
        now = self.clock()
        return self._create(Job(0, uuid4().hex, kind, table_id, spec, "queued", 0, now, queued_at=now))

    @contextmanager
    def receiving(self, job_id: str) -> Iterator[None]:
        """Mark that a payload is being transferred: its job outlives its URL's expiry for a while.

        Called by one thread only, so it takes no lock: the lock may be held for as long as a commit lasts.
        """
        self._receiving[job_id] = self._receiving.get(job_id, 0) + 1
        try:
            yield
        finally:
            self._receiving[job_id] -= 1

    def received(self, job_id: str, part: Path, sha256: str, size: int) -> Job:
        """Take a complete payload, on disk already, and queue its job; the same payload again changes nothing.

        Raises:
            Conflict: The job has other data already, or no longer waits for any.
        """
        with self.changed:
            job = self.job(job_id)
            if job.status != "awaiting":
                if job.payload_sha256 != sha256:
                    raise Conflict("the job no longer waits for data, and these are other data than it has")
                return job
            part.rename(self.payloads / job_id)
            sync_directory(self.payloads)
            return self._save(
                replace(
                    job,
                    seq=self._next_seq(),
                    status="queued",
                    queued_at=self.clock(),
                    payload_sha256=sha256,
                    payload_bytes=size,
                )
            )

    def expire(self) -> float | None:
        """Fail the jobs whose data did not arrive in time.

        Returns:
            Seconds until the next one may be due; None when none waits.
        """
        with self.changed:
            now = self.clock()
            left = {job_id: self._deadline(self._jobs[job_id]) - now for job_id in self._awaiting}
            for job_id in [job_id for job_id, seconds in left.items() if seconds <= 0]:
                self.fail(self._jobs[job_id], "no data arrived before the upload URL expired")
            return min((seconds for seconds in left.values() if seconds > 0), default=None)

    # ---- for the workers

    def head(self, *, queries: bool) -> Job | None:
        """Give the next job of the queue of queries, or of that of writes."""
        with self.changed:
            queue = self._queues[queries]
            return self._jobs[queue[0]] if queue else None

    def take(self, *, queries: bool) -> Job:
        """Take the next job off its queue; that it is begun is on disk, so that a killer job is known."""
        with self.changed:
            job = self._jobs[self._queues[queries][0]]
            begun = self._save(replace(job, attempts=job.attempts + 1))
            self._queues[queries].popleft()
            self._running.add(job.job_id)
            return begun

    def complete(self, cursor: DuckDBPyConnection, job: Job, table: Table | None = None) -> Callable[[], None]:
        """Write a job's end, and its table's new state, into the transaction that holds its changes.

        Returns:
            What to call once that transaction is committed: it makes both visible.
        """
        done = replace(
            job,
            status="completed",
            finished_at=self.clock(),
            snapshot_id=table.snapshot_id if table else None,
        )
        _update(cursor, "meta.jobs", "job_id", _job_row(done))
        if table is not None:
            _update(cursor, "meta.tables", "table_id", _table_row(table))
        return lambda: self._publish(done, table)

    def fail(self, job: Job, error: str) -> None:
        """End a job that changed nothing."""
        self._save(replace(job, status="failed", finished_at=self.clock(), error=error))

    # ---- inside

    def _create(self, job: Job) -> Job:
        with self.changed:
            job = replace(job, seq=self._next_seq())
            with self.transaction() as cursor:
                _insert(cursor, "meta.jobs", _job_row(job))
            self._publish(job)
            return job

    def _save(self, job: Job) -> Job:
        with self.changed:
            with self.transaction() as cursor:
                _update(cursor, "meta.jobs", "job_id", _job_row(job))
            self._publish(job)
            return job

    def _publish(self, job: Job, table: Table | None = None) -> None:
        if table is not None:
            self._measure(table)
        if job.final:
            (self.payloads / job.job_id).unlink(missing_ok=True)
        with self.changed:
            before = self._jobs.get(job.job_id)
            self._jobs[job.job_id] = job
            if table is not None:
                self._tables[table.table_id] = table
            if job.status == "queued" and (before is None or before.status == "awaiting"):
                self._queues[job.kind == "query"].append(job.job_id)
            if job.status == "awaiting":
                self._awaiting.add(job.job_id)
            else:
                self._awaiting.discard(job.job_id)
            if job.final:
                self._running.discard(job.job_id)
            self.changed.notify_all()

    def _next_seq(self) -> int:
        self._last_seq += 1
        return self._last_seq

    def _deadline(self, job: Job) -> float:
        grace = _UPLOAD_GRACE if self._receiving.get(job.job_id) else 0.0
        return (job.expires_at or 0.0) + grace

    def _measure(self, table: Table) -> None:
        """Count the blocks on disk; rows so far in the write-ahead log only count as one."""
        if table.relation is None or not table.row_count:
            self._sizes[table.table_id] = 0
            return
        source = literal(relation(table.relation))
        with self.cursor() as cursor:
            cursor.execute(f"SELECT count(DISTINCT block_id) FILTER (block_id >= 0) FROM pragma_storage_info({source})")
            (blocks,) = cursor.fetchone() or (0,)
        self._sizes[table.table_id] = max(blocks, 1) * _BLOCK

    def _connect(self) -> DuckDBPyConnection:
        return _open(self.directory / "store.duckdb", self.payloads, self.results, self._tmp)

    def _recover(self) -> None:
        """Read what the file holds, and remove files that no row needs."""
        self._connection.execute(_SCHEMA)
        self._running.clear()
        self._tables = self.catalog(self._connection)
        for table in self._tables.values():
            self._measure(table)
        found = self._connection.execute(f"SELECT {', '.join(_JOB_FIELDS)} FROM meta.jobs ORDER BY seq").fetchall()
        self._jobs = {row[1]: _job_of(row) for row in found}
        self._last_seq = max((job.seq for job in self._jobs.values()), default=0)
        queued = [job for job in self._jobs.values() if job.status == "queued"]
        self._queues = {lane: deque(j.job_id for j in queued if (j.kind == "query") is lane) for lane in (False, True)}
        self._awaiting = {job.job_id for job in self._jobs.values() if job.status == "awaiting"}
        self._sweep()

    def _sweep(self) -> None:
        wanted = {job.job_id for job in self._jobs.values() if job.status == "queued"}
        results = {job.job_id for job in self._jobs.values() if job.status == "completed" and job.kind == "query"}
        for folder, kept in ((self.payloads, wanted), (self.results, results), (self._tmp, set[str]())):
            for path in folder.iterdir():
                if path.name not in kept:
                    path.unlink()


def sync_directory(path: Path) -> None:
    """Force a directory's entries to disk: a rename is not durable before."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _lock(directory: Path) -> TextIO:
    """Take the directory for this store, until the file is closed or the process ends.

    DuckDB's own lock keeps other processes out, not a second store in this one.
    """
    file = (directory / "lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise StoreUnavailable(f"another service uses {directory}") from None
    return file


def _open(path: Path, *reachable: Path) -> DuckDBPyConnection:
    """Open the database so that SQL reaches the given directories and nothing else, and fetches nothing."""
    connection = duckdb.connect(
        str(path),
        config={
            "threads": os.cpu_count() or 2,
            "memory_limit": "1GB",
            "temp_directory": str(reachable[-1]),
            "storage_compatibility_version": "v1.5.0",  # either supported version opens the file
            "python_enable_replacements": "false",  # else unknown tables are looked up in Python variables
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
        },
    )
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"SET allowed_directories = [{', '.join(literal(str(folder)) for folder in reachable)}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def _insert(cursor: DuckDBPyConnection, table: str, row: Mapping[str, Any]) -> None:
    marks = ", ".join("?" * len(row))
    cursor.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", list(row.values()))


def _update(cursor: DuckDBPyConnection, table: str, key: str, row: Mapping[str, Any]) -> None:
    sets = ", ".join(f"{name} = ?" for name in row)
    cursor.execute(f"UPDATE {table} SET {sets} WHERE {key} = ?", [*row.values(), row[key]])


def _job_row(job: Job) -> dict[str, Any]:
    return {name: getattr(job, name) for name in _JOB_FIELDS} | {"spec": json.dumps(dict(job.spec))}


def _job_of(row: tuple[Any, ...]) -> Job:
    known = dict(zip(_JOB_FIELDS, row, strict=True))
    return Job(**known | {"spec": json.loads(known["spec"])})


def _table_row(table: Table) -> dict[str, Any]:
    columns = json.dumps([astuple(column) for column in table.columns])
    return {name: getattr(table, name) for name in _TABLE_FIELDS} | {"columns": columns}


def _table_of(row: tuple[Any, ...]) -> Table:
    known = dict(zip(_TABLE_FIELDS, row, strict=True))
    return Table(**known | {"columns": tuple(Column(*column) for column in json.loads(known["columns"]))})
