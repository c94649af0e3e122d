"""The store: one database file that holds tables, their catalog and the jobs, and its copies in memory.

What is acknowledged is on disk first; reads of the catalog and of jobs never touch the disk. A job's change
of data and its COMPLETED status are one transaction, so a job is applied at most once, whenever the process
dies. `RUNNING` exists in memory only: what the file calls `queued` was not applied. How it is written
is catalog.py's, what memory knows of jobs register.py's.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, Protocol, Self
from uuid import uuid4

import duckdb
from duckdb import DuckDBPyConnection

from airflow_tds.client.errors import Conflict, TableNotFound, ValidationFailed
from airflow_tds.local import catalog
from airflow_tds.local.database import Database
from airflow_tds.local.directory import Directory, StoreUnavailable, sync_directory
from airflow_tds.local.ends import Ends
from airflow_tds.local.records import Job, Kind, Table
from airflow_tds.local.register import Register

__all__ = ["Outside", "Store", "StoreUnavailable"]

#: Seconds beyond its URL's expiry that a transfer under way may take before its job fails.
_UPLOAD_GRACE = 900.0
#: Seconds beyond it for which data that has arrived waits to be committed.
_COMMIT_GRACE = 3600.0


class Outside(Protocol):
    """Where results are fetched from, if not from the service itself."""

    def publish(self, job: Job, path: Path) -> None:
        """Put a query's result there."""

    def remove(self, job_id: str) -> None:
        """Remove one."""


class Store:
    """An open data directory.

    Args:
        directory: Made when it does not exist.
        clock: POSIX seconds; tests may turn it.
        result_lifetime: Seconds for which a query's result is kept.

    Attributes:
        outside: Where payloads arrive and results are fetched from; None for the service itself.

    Raises:
        StoreUnavailable: Another service has the directory, or its database cannot be read.
    """

    def __init__(
        self, directory: Path, clock: Callable[[], float] = time.time, result_lifetime: float = 86_400.0
    ) -> None:
        self.directory = Directory(directory)
        self.clock = clock
        self.result_lifetime = result_lifetime
        self.outside: Outside | None = None
        self.changed = threading.Condition(threading.RLock())
        self._tables: dict[str, Table] = {}
        self._sizes: dict[str, int] = {}
        self._register = Register()
        self._receiving: dict[str, int] = {}
        self._ends = Ends()
        here = self.directory
        try:
            self.database = Database(here.path / "store.duckdb", here.payloads, here.results, here.tmp)
            self._recover()
        except duckdb.Error as failure:
            here.release()
            raise StoreUnavailable(f"{here.path} cannot be opened: {str(failure).partition(chr(10))[0]}") from None
        self._sweep()

    def __enter__(self) -> Self:
        """Give the open store."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Close the database; what was acknowledged stays."""
        self.database.close()
        self.directory.release()

    def reopen(self) -> None:
        """Open the database again after it failed.

        Whether the last commit was applied only the file knows, so all copies in memory are read from it again.

        Raises:
            duckdb.Error: It cannot be opened yet.
        """
        with self.changed:
            self.database.reopen()
            self._recover()
            for job_id in self._ends.waited_for():
                self._ends.tell(self._register.job(job_id))
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
                with self.database.transaction() as cursor:
                    catalog.insert(cursor, table)
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

    def tables(self) -> list[Table]:
        """Give all tables, by id."""
        with self.changed:
            return sorted(self._tables.values(), key=lambda table: table.table_id)

    def size(self, table_id: str) -> int:
        """Give a table's bytes, counted after its last write."""
        return self._sizes.get(table_id, 0)

    def table_seen(self, cursor: DuckDBPyConnection, table_id: str) -> Table:
        """Give one table as the cursor's transaction sees it.

        Raises:
            TableNotFound: It was not created.
        """
        self.table(table_id)
        found = catalog.table(cursor, table_id)
        if found is None:
            raise AssertionError("unreachable: memory knows only what is committed, and tables are never dropped")
        return found

    # ---- jobs

    def job(self, job_id: str) -> Job:
        """Look a job up.

        Raises:
            JobNotFound: There is none.
        """
        return self._register.job(job_id)

    def awaited(self) -> list[Job]:
        """Give the jobs whose data has not arrived, in the order in which they were announced."""
        with self.changed:
            awaited = (job for job in self._register.waiting() if job.status == "awaiting")
            return sorted(awaited, key=lambda job: job.seq)

    def has_fault(self, job_id: str, fault: str) -> bool:
        """Tell whether a job is to go wrong in a way."""
        job = self._register.get(job_id)
        return job is not None and job.spec.get("fault") == fault

    def newest_jobs(self, count: int) -> list[Job]:
        """Give the jobs that began last, the newest first."""
        with self.changed:
            return self._register.newest(count)

    def end(self, job_id: str) -> Future[Job]:
        """Give what will hold a job once it is final.

        Raises:
            JobNotFound: There is none.
        """
        with self.changed:
            return self._ends.of(self.job(job_id))

    def stop_waiting(self) -> None:
        """Tell everybody who waits for a job's end that the service stops first."""
        with self.changed:
            self._ends.stop()

    def running(self, job_id: str) -> bool:
        """Tell whether a worker has taken the job."""
        return self._register.running(job_id)

    def same(self, kind: Kind, table_id: str, spec: Mapping[str, Any]) -> Job | None:
        """Give the job that the same request made before, known by its idempotency key; None for none.

        Raises:
            Conflict: The key was used for another request.
        """
        made = self._register.by_key(spec.get("key", ""))
        if made is None:
            return None
        if (made.kind, made.table_id, made.asked) != (kind, table_id, replace(made, spec=spec).asked):
            raise Conflict("the idempotency key was used for another request")
        return made

    def create(self, job: Job) -> Job:
        """Create a job; its place in the queue is given here."""
        with self.changed:
            job = replace(job, seq=self._register.next_seq())
            with self.database.transaction() as cursor:
                catalog.insert(cursor, job)
            self._publish(job)
            return job

    def use(self, staged: Job, job: Job) -> Job:
        """Create the job that takes the data of an object, in one transaction with the object's end."""
        job = replace(job, seq=self._register.next_seq())
        os.link(self.directory.payloads / staged.job_id, self.directory.payloads / job.job_id)
        sync_directory(self.directory.payloads)
        used = replace(staged, status="completed", finished_at=self.clock())
        with self.database.transaction() as cursor:
            catalog.insert(cursor, job)
            catalog.update(cursor, used)
        self._publish(job)
        self._publish(used)
        return job

    def enqueue(self, kind: Kind, table_id: str, spec: Mapping[str, Any]) -> Job:
        """Create a job that needs no payload.

        Raises:
            TableNotFound: The table does not exist.
        """
        with self.changed:
            same = self.same(kind, table_id, spec)
            if same is not None:
                return same
            self.table(table_id)
            now = self.clock()
            return self.create(Job(0, uuid4().hex, kind, table_id, spec, "queued", 0, now, queued_at=now))

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
            if not self._receiving[job_id]:
                del self._receiving[job_id]

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
            self.directory.settle(part, self.directory.payloads / job_id)
            return self._save(
                replace(
                    job,
                    seq=self._register.next_seq(),
                    status="staged" if job.kind == "object" else "queued",
                    queued_at=self.clock(),
                    payload_sha256=sha256,
                    payload_bytes=size,
                )
            )

    def expire(self) -> float:
        """Fail the jobs whose data did not arrive in time.

        Returns:
            Seconds until the next one may be due; infinity when none waits.
        """
        with self.changed:
            now = self.clock()
            left = [(self._deadline(job) - now, job) for job in self._register.waiting()]
            for job in [job for seconds, job in left if seconds <= 0]:
                staged = job.status == "staged"
                self.fail(
                    job, "the data was not committed" if staged else "no data arrived before the upload URL expired"
                )
            return min((seconds for seconds, _ in left if seconds > 0), default=inf)

    def result_expires(self, job: Job) -> float:
        """Give the moment at which a query's result is removed."""
        return (job.finished_at or 0.0) + self.result_lifetime

    def remove_results(self) -> float:
        """Remove the results that are past their time.

        Returns:
            When the next one is; infinity when there is none.
        """
        following = inf
        for path in self.directory.results.iterdir():
            job = self._register.get(path.name)
            if job is not None and job.final:
                expires = self.result_expires(job)
                if expires <= self.clock():
                    self._remove_result(job)
                else:
                    following = min(following, expires)
        return following

    def prune(self, before: float, newest: int) -> None:
        """Forget final jobs.

        Args:
            before: Those that ended earlier than this, in POSIX seconds,
            newest: and are not among so many that ended last.
        """
        with self.changed:
            self._forget(self._register.ended_before(before, newest))

    def forget(self, job_id: str) -> None:
        """Forget a job that has ended, or that waits for its data.

        Raises:
            JobNotFound: There is none.
            Conflict: It is queued, or runs.
        """
        with self.changed:
            if self.job(job_id).status == "queued":
                raise Conflict(f"job {job_id!r} is under way: it is forgotten once it has ended")
            self._forget([job_id])

    def _forget(self, job_ids: Sequence[str]) -> None:
        """Forget jobs in file and memory, then remove their files."""
        if not job_ids:
            return
        with self.database.transaction() as cursor:
            catalog.remove_jobs(cursor, job_ids)
        for job in [self.job(job_id) for job_id in job_ids]:
            self._register.forget(job.job_id)
            (self.directory.payloads / job.job_id).unlink(missing_ok=True)
            self._remove_result(job)

    def _remove_result(self, job: Job) -> None:
        """Remove a query's result, here last: what is still here is tried again."""
        path = self.directory.results / job.job_id
        if self.outside and path.exists():
            self.outside.remove(job.job_id)
        path.unlink(missing_ok=True)

    def note_read(self, job_id: str) -> None:
        """Count that a caller was told a job's status."""
        with self.changed:
            self._register.note_read(job_id)
            self.changed.notify_all()

    def reads(self, job_id: str) -> int:
        """Give how often callers were told a job's status, since the start of this process."""
        return self._register.reads(job_id)

    # ---- for the workers

    def head(self, *, queries: bool) -> Job | None:
        """Give the next job of the queue of queries, or of that of writes."""
        with self.changed:
            return self._register.head(queries=queries)

    def take(self, job: Job) -> Job:
        """Take a job off its queue; that it is begun is on disk, so that a killer job is known."""
        with self.changed:
            begun = self._save(replace(job, attempts=job.attempts + 1))
            self._register.take(begun)
            return begun

    def complete(
        self, cursor: DuckDBPyConnection, job: Job, table: Table | None = None, error: str | None = None
    ) -> Callable[[], None]:
        """Write a job's end, and its table's new state, into the transaction that holds its changes.

        Args:
            cursor: In that transaction.
            job: The job.
            table: The table's next state; None where the job changes none.
            error: Why the job is to look failed although it is not; None for the truth.

        Returns:
            What to call once that transaction is committed: it makes both visible.
        """
        done = replace(
            job,
            status="failed" if error else "completed",
            error=error,
            finished_at=self.clock(),
            snapshot_id=table.snapshot_id if table else None,
        )
        catalog.update(cursor, done)
        if table is not None:
            catalog.update(cursor, table)
        return lambda: self._publish(done, table)

    def fail(self, job: Job, error: str) -> None:
        """End a job that changed nothing."""
        self._save(replace(job, status="failed", finished_at=self.clock(), error=error))

    # ---- inside

    def _save(self, job: Job) -> Job:
        with self.changed:
            with self.database.transaction() as cursor:
                catalog.update(cursor, job)
            self._publish(job)
            return job

    def _publish(self, job: Job, table: Table | None = None) -> None:
        if table is not None and not (job.kind == "delete" and table.row_count):  # deleting gives no block back
            with self.database.cursor() as cursor:
                self._sizes[table.table_id] = catalog.size(cursor, table)
        if job.final:
            with suppress(OSError):  # one that cannot be removed now is removed at the next start
                (self.directory.payloads / job.job_id).unlink(missing_ok=True)
        with self.changed:
            self._register.put(job)
            if table is not None:
                self._tables[table.table_id] = table
            self._ends.tell(job)
            self.changed.notify_all()

    def _deadline(self, job: Job) -> float:
        if job.spec.get("fault") == "takes_late_data":
            return inf
        if job.status == "staged":
            return (job.expires_at or 0.0) + _COMMIT_GRACE
        grace = _UPLOAD_GRACE if self.outside or self._receiving.get(job.job_id) else 0.0
        return (job.expires_at or 0.0) + grace

    def _recover(self) -> None:
        """Read what the file holds."""
        with self.database.cursor() as cursor:
            catalog.prepare(cursor)
            self._tables = catalog.tables(cursor)
            self._sizes = {table_id: catalog.size(cursor, table) for table_id, table in self._tables.items()}
            self._register.load(catalog.jobs(cursor))

    def _sweep(self) -> None:
        """Remove files that no row needs."""
        wanted = {job.job_id for job in self._register if job.status in ("queued", "staged")}
        results = {job.job_id for job in self._register if job.status == "completed" and job.kind == "query"}
        self.directory.sweep(wanted, results)
