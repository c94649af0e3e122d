"""The service's hidden state: tables, jobs, object store, each request answered at once and correctly.

It keeps what the provider assumes of a service (A1 to A4 of durability/decisions.py), unless it is told to break one of
them. When it answers wrongly, late or not at all is not decided here. What a job does after its data came is an event
of the world's clock.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate
from typing import Protocol

from airflow_tds.client.messages import Reply, Request, SecretUrl

__all__ = ["LIFETIME", "LONGEST_UPLOAD", "Service"]

#: Seconds for which an upload URL is good.
LIFETIME = 600.0
#: Longest that data, once its PUT has begun, is on its way: the client's transfer timeout (A3).
LONGEST_UPLOAD = 120.0


class Host(Protocol):
    """What the service needs of the world."""

    now: float

    def uniform(self, least: float, most: float) -> float:
        """Draw a number."""
        ...

    def later(self, seconds: float, event: Callable[[], None]) -> None:
        """Let something happen later."""
        ...

    def applied(self, what: str) -> None:
        """Note that what was asked for has been done to the table."""
        ...


@dataclass
class Job:
    """One write as the service sees it."""

    job_id: str
    op: str
    expires: float
    status: str = "AWAITING"
    fails: bool = False
    forgotten: bool = False


class Service:
    """One table and its jobs.

    Args:
        host: The world.
        op: What will be done to the table; one that is uploaded to has no data yet.
        strategy: How its payload gets to it.
        fails: How many of the first jobs with data fail, and change nothing.
        awaits_for_ever: Whether a job whose data never came goes on waiting after its URL has expired, else it fails.
        breaks: The assumption that it breaks: `A1`, `A2`, `A3` or `A4`; empty for none.
    """

    def __init__(
        self,
        host: Host,
        op: str,
        strategy: str,
        *,
        fails: int = 0,
        awaits_for_ever: bool = True,
        breaks: str = "",
    ) -> None:
        self._host = host
        self._strategy = strategy
        self._fails = fails
        self._awaits = awaits_for_ever
        self._breaks = breaks
        self.jobs: dict[str, Job] = {}
        self.snapshot = 0 if op == "upload" else 1
        self.rows = 0 if op == "upload" else 3
        self.objects = 0

    def answer(self, request: Request, begun: float) -> Reply:
        """Do what a request asks.

        Args:
            request: The request.
            begun: When its head arrived: an object store looks at the expiry then, and data may land later.
        """
        if isinstance(request.target, SecretUrl):
            return self._put(request.target.reveal().rpartition("/")[2], begun)
        call = getattr(self, f"_{request.operation}", None)
        if call is None:
            raise AssertionError(f"the simulated service has no {request.operation}")
        reply: Reply = call(request.target)
        return reply

    def _info(self, target: str) -> Reply:
        snapshot = f"s{self.snapshot}" if self.snapshot else ""
        return self._ok({"row_count": self.rows, "total_size_bytes": 1, "data_files": 1, "snapshot_id": snapshot})

    def _query_json(self, target: str) -> Reply:
        return self._ok({"items": [], "metadata": {"total_count": 0, "has_next": False}, "etag": ""})

    def _upload(self, target: str) -> Reply:
        return self._refuse(409) if self.snapshot else self._initiate("upload")

    def _append(self, target: str) -> Reply:
        return self._initiate("append")

    def _overwrite(self, target: str) -> Reply:
        return self._initiate("overwrite")

    def _upsert(self, target: str) -> Reply:
        return self._initiate("upsert")

    def _presign(self, target: str) -> Reply:
        self.objects += 1
        return self._ok({"object": f"o{self.objects}", "upload_url": f"http://store.test/o{self.objects}"})

    def _initiate(self, op: str) -> Reply:
        job = Job(f"j{len(self.jobs) + 1}", op, self._host.now + LIFETIME)
        self.jobs[job.job_id] = job
        if self._strategy != "initiate_put":
            self._queue(job)
            return self._ok({"job_id": job.job_id})
        if not self._awaits:
            self._host.later(LIFETIME + LONGEST_UPLOAD, lambda: self._expire(job))
        if self._breaks == "A1":
            self._host.later(self._host.uniform(0.0, 60.0), lambda: self._end(job))
        url = f"http://store.test/{job.job_id}"
        told = job.expires if self._breaks != "A3" else job.expires - 2 * LIFETIME
        return self._ok({"job_id": job.job_id, "upload_url": url, "expires_at": told})

    def _expire(self, job: Job) -> None:
        if job.status == "AWAITING":
            job.status = "FAILED"

    def _get_job(self, target: str) -> Reply:
        job = self.jobs[target.rpartition("/")[2]]
        if job.forgotten:
            return self._refuse(404)
        return self._ok({"status": job.status, "error": "bad data" if job.status == "FAILED" else None})

    def _put(self, job_id: str, begun: float) -> Reply:
        if self._strategy == "put_commit":
            return Reply(200)
        job = self.jobs[job_id]
        if begun > job.expires or job.status == "FAILED":
            return self._refuse(403)
        if job.status == "AWAITING":
            self._queue(job)
        elif self._breaks == "A4":
            self._apply(job)
        return Reply(200)

    def _queue(self, job: Job) -> None:
        job.status = "QUEUED"
        job.fails = self._fails > 0
        self._fails -= 1
        self._host.later(self._host.uniform(0.0, 40.0), lambda: self._run(job))

    def _run(self, job: Job) -> None:
        job.status = "RUNNING"
        self._host.later(self._host.uniform(0.0, 60.0), lambda: self._end(job))

    def _end(self, job: Job) -> None:
        if job.status == "COMPLETED":
            return
        job.status = "FAILED" if job.fails or (job.op == "upload" and self.snapshot) else "COMPLETED"
        if job.status == "COMPLETED" or self._breaks == "A2":
            self._apply(job)

    def _apply(self, job: Job) -> None:
        self.change(5)
        self._host.applied(job.job_id)

    def change(self, rows: int) -> None:
        """Change the table, by a job or by somebody else."""
        self.rows = rows
        self.snapshot += 1

    def _delete_rows(self, target: str) -> Reply:
        self.change(self.rows - 1)
        self._host.applied("delete_rows")
        return Reply(204)

    def _truncate(self, target: str) -> Reply:
        self._host.later(self._host.uniform(0.0, 60.0), lambda: self.change(0))
        self._host.applied("truncate")
        return Reply(202)

    def _ok(self, document: dict[str, object]) -> Reply:
        date = formatdate(self._host.now, usegmt=True)
        return Reply(200, {"date": date}, json.dumps(document).encode())

    def _refuse(self, status: int) -> Reply:
        return Reply(status, {}, b'{"detail": "no"}')
