"""The register: the jobs as memory knows them, and what has to be found fast among them.

Copies of what the file holds, and beside them what no file holds: which job runs, and how often one was read.
A job is in the queue exactly while it is queued and not taken, so whoever forgets or ends one leaves nothing
behind. Used under the store's lock; nothing here reads or writes a file.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from heapq import nlargest

from airflow_tds.client.errors import JobNotFound
from airflow_tds.local.records import Job

__all__ = ["Register"]

#: What waits for a caller, and ends by itself when none comes.
_WAITING = ("awaiting", "staged")


class Register:
    """The jobs of a store."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._queues: dict[bool, deque[str]] = {}
        self._running: set[str] = set()
        self._waiting: set[str] = set()
        self._keys: dict[str, str] = {}
        self._reads: Counter[str] = Counter()
        self._last_seq = 0

    def __iter__(self) -> Iterator[Job]:
        return iter(self._jobs.values())

    def load(self, jobs: Iterable[Job]) -> None:
        """Take the file's jobs, in their order, in place of all that was known; none of them runs."""
        self._jobs, self._waiting, self._running, self._keys = {}, set(), set(), {}
        self._queues = {False: deque(), True: deque()}
        for job in jobs:
            self.put(job)
            self._last_seq = max(self._last_seq, job.seq)

    def next_seq(self) -> int:
        """Give the next place in the order of all jobs."""
        self._last_seq += 1
        return self._last_seq

    def job(self, job_id: str) -> Job:
        """Look a job up.

        Raises:
            JobNotFound: There is none.
        """
        try:
            return self._jobs[job_id]
        except KeyError:
            raise JobNotFound(f"job {job_id!r} does not exist") from None

    def get(self, job_id: str) -> Job | None:
        """Look a job up; None for none."""
        return self._jobs.get(job_id)

    def by_key(self, key: str) -> Job | None:
        """Look a job up by the idempotency key of its request; None for none."""
        return self._jobs.get(self._keys.get(key, ""))

    def newest(self, count: int) -> list[Job]:
        """Give the jobs that began last, the newest first; objects are none."""
        jobs = (job for job in self._jobs.values() if job.kind != "object")
        return nlargest(count, jobs, key=lambda job: job.created_at)

    def ended_before(self, moment: float, newest: int) -> list[str]:
        """Name the jobs that ended before a moment, in POSIX seconds, but for so many that ended last."""
        final = sorted((job for job in self if job.final), key=lambda job: job.finished_at or 0.0)
        return [job.job_id for job in final[: max(0, len(final) - newest)] if (job.finished_at or 0.0) < moment]

    def waiting(self) -> list[Job]:
        """Give the jobs that wait for their data, and the data that wait for their job."""
        return [self._jobs[job_id] for job_id in self._waiting]

    def running(self, job_id: str) -> bool:
        """Tell whether a worker has taken the job."""
        return job_id in self._running

    def put(self, job: Job) -> None:
        """Know a job in its new state."""
        before = self._jobs.get(job.job_id)
        self._jobs[job.job_id] = job
        if "key" in job.spec:
            self._keys[job.spec["key"]] = job.job_id
        (self._waiting.add if job.status in _WAITING else self._waiting.discard)(job.job_id)
        queued = before is not None and before.status == "queued"
        if job.status == "queued" and not queued:
            self._queues[job.kind == "query"].append(job.job_id)
        if job.final:
            if queued and not self.running(job.job_id):
                self._queues[job.kind == "query"].remove(job.job_id)
            self._running.discard(job.job_id)
            self._reads.pop(job.job_id, None)

    def forget(self, job_id: str) -> None:
        """Know a job no more that is not queued."""
        job = self._jobs.pop(job_id)
        self._waiting.discard(job_id)
        self._reads.pop(job_id, None)
        if self._keys.get(job.spec.get("key", "")) == job_id:
            del self._keys[job.spec["key"]]

    # ---- the queues

    def head(self, *, queries: bool) -> Job | None:
        """Give the next job of the queue of queries, or of that of writes; None for none."""
        queue = self._queues[queries]
        return self._jobs[queue[0]] if queue else None

    def take(self, job: Job) -> None:
        """Take the next job off its queue: it runs."""
        self._queues[job.kind == "query"].remove(job.job_id)
        self._running.add(job.job_id)

    def note_read(self, job_id: str) -> None:
        """Count that a caller was told a job's status."""
        self._reads[job_id] += 1

    def reads(self, job_id: str) -> int:
        """Give how often callers were told a job's status."""
        return self._reads[job_id]
