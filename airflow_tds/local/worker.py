"""The threads that run jobs: one for writes, in the order in which their data arrived, and two for queries.

One writer for all tables, since two at once gain nothing on one disk and must never touch the same table.
Queries have threads of their own so that an export does not hold up a write. What a job does is jobs.py's.
"""

from __future__ import annotations

import logging
import threading
from math import inf
from typing import Self

import duckdb

from airflow_tds.client.errors import Refused
from airflow_tds.local import jobs
from airflow_tds.local.housekeeping import Housekeeping
from airflow_tds.local.payloads.payload import BadPayload
from airflow_tds.local.records import Job
from airflow_tds.local.store import Store

__all__ = ["Worker"]

log = logging.getLogger(__name__)

#: A job that was begun this often, and each time took the process down, is not begun again.
_MOST_ATTEMPTS = 3
_QUERY_THREADS = 2
#: Kinds whose job's id no caller is told, so that none can ask for it.
_UNNAMED = ("delete", "truncate")
#: Seconds until what failed is tried again: to open the database, to keep house.
_AFTER_FAILURE = 1.0


class Worker:
    """Runs a store's jobs, as a context manager.

    Args:
        store: The store.
        delay: Seconds from the arrival of a job's data to its earliest start.
        reads: How often a job's status has to be read before it starts.
    """

    def __init__(self, store: Store, delay: float = 0.0, reads: int = 0) -> None:
        self._store = store
        self._delay = delay
        self._reads = reads
        self._housekeeping = Housekeeping(store)
        self._held = False
        self._stopping = False
        lanes = [False, *[True] * _QUERY_THREADS]
        self._threads = [threading.Thread(target=self._work, args=(lane,), daemon=True) for lane in lanes]

    def __enter__(self) -> Self:
        """Start the threads; jobs that a former process left queued go on."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """Stop them; a job under way is interrupted and stays queued."""
        self._stopping = True
        self._notify()
        self._store.database.interrupt()
        for thread in self._threads:
            thread.join()

    def hold(self) -> None:
        """Take no further job until `release`; one that runs goes on."""
        self._held = True

    def release(self) -> None:
        """Take jobs again."""
        self._held = False
        self._notify()

    def _notify(self) -> None:
        with self._store.changed:
            self._store.changed.notify_all()

    def _work(self, queries: bool) -> None:
        while not self._stopping:
            try:
                job = self._next(queries=queries)
                if job is not None:
                    self._run(job)
                elif not queries:
                    self._housekeeping.run()
            except duckdb.Error:  # not the job failed but the store, when it was to note something
                log.exception("the database failed and is opened again")
                self._store.database.broken = True
                self._notify()
            except Exception:  # a file that cannot be removed, a bucket that is away: jobs go on
                log.exception("the service could not keep house")
                self._pause()

    def _next(self, *, queries: bool) -> Job | None:
        """Wait for the next job; None when there is other work: to stop, or to keep house."""
        with self._store.changed:
            while not self._stopping:
                if self._store.database.broken:
                    self._mend(queries=queries)
                    return None
                head = self._store.head(queries=queries)
                until_job = self._until(head) if head else inf
                if head and until_job <= 0:
                    return self._store.take(head)
                house = inf if queries else self._housekeeping.due(idle=until_job == inf)
                if house <= 0:
                    return None
                wait = min(until_job, house, self._store.expire())
                self._store.changed.wait(None if wait == inf else wait)
        return None

    def _until(self, head: Job) -> float:
        """Give the seconds until the next job may start; infinity while that is not a matter of time."""
        if self._held:
            return inf
        if head.kind not in _UNNAMED and self._store.reads(head.job_id) < self._reads:
            return inf
        delay = 0.0 if head.kind == "delete" else self._delay  # its caller waits for the answer
        waited = self._store.clock() - (head.queued_at or 0.0)
        return delay - waited if waited >= 0 else 0.0  # a clock that was set back makes nobody wait

    def _mend(self, *, queries: bool) -> None:
        """Let the writer open the store again, and try until it can: a full disk is full for a while."""
        try:
            if not queries:
                self._store.reopen()
                return
        except duckdb.Error as failure:
            log.warning("the database cannot be opened yet: %s", type(failure).__name__)
        self._pause()

    def _pause(self) -> None:
        with self._store.changed:
            self._store.changed.wait(_AFTER_FAILURE)

    def _run(self, job: Job) -> None:
        try:
            if job.attempts > _MOST_ATTEMPTS:
                raise BadPayload(f"the service or its database ended {_MOST_ATTEMPTS} times in this job")  # noqa: TRY301
            jobs.run(self._store, job)
        except (BadPayload, Refused) as refused:
            self._store.fail(job, str(refused))
        except duckdb.InterruptException:
            log.info("job %s is interrupted and stays queued", job.job_id)
        except duckdb.FatalException:  # only the file knows whether it was applied
            raise
        except Exception as failure:
            log.exception("job %s", job.job_id)
            self._store.fail(job, f"the service could not run the job ({type(failure).__name__})")
