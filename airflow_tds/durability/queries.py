"""An asynchronous query, started once per generation; it changes nothing, so nothing about it is ambiguous."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

from airflow_tds.client import errors
from airflow_tds.client.waiting import Watch
from airflow_tds.durability.records import Record
from airflow_tds.durability.steps import GONE, Attempt, Done, Once, Wait, known

__all__ = ["GivenQuery", "QueryOnce"]


class QueryOnce(Once):
    """An asynchronous query, started once per generation: a retry goes on with it, a clear starts another.

    A query changes nothing, so nothing about it is ever ambiguous: whatever cannot be gone on with is
    started anew.

    Args:
        attempt: The try that starts it, or goes on with it.
        request: What was asked for.
        identity: See `Record`.
    """

    def __init__(self, attempt: Attempt, *, request: Mapping[str, Any], identity: str) -> None:
        super().__init__(attempt)
        self._request = request
        self._identity = identity
        self._content = ""
        self._followed: Record | None = None

    def _record(self) -> Record | None:
        """Read this generation's record of this query."""
        record = self._store.load()
        if record is None or record.identity != self._identity or self._generation.since(record) != "same":
            return None
        return record if record.phase in ("sent", "done") else None

    def is_begun(self) -> bool:
        """Say whether an earlier look has started the query."""
        return self._record() is not None

    @property
    def content(self) -> str:
        """What an earlier look was to remember; empty for nothing."""
        record = self._record()
        return record.content if record else ""

    def remembering(self, content: str) -> Self:
        """Say what is to be remembered of the table if the query is started, such as its etag."""
        self._content = content
        return self

    def begin(self) -> str:
        """Start the query, unless an earlier look has; the result is left to others.

        Returns:
            The job's id.
        """
        return (self._record() or self._start()).job_id

    def is_finished(self) -> bool:
        """Say whether its result was kept."""
        record = self._record()
        return record is not None and record.phase == "done"

    def finish(self) -> None:
        """Store that the result of `advance` was kept."""
        self._save(known(self._followed), "done")

    def advance(self, watch: Watch) -> Wait | Done:
        """Go as far as possible without waiting.

        Args:
            watch: Pace and deadline of the wait; its subject is filled in.

        Returns:
            What to wait for, or the job whose result is ready.

        Raises:
            JobFailed: The query failed.
            WaitTimedOut: The deadline has passed; the query goes on.
        """
        record = self._followed = self._record()
        if record is None:
            return self._look(self._start(), watch)
        if record.phase == "done":
            return Done(record.job_id)
        try:
            return self._look(record, watch)
        except errors.Refused as refused:
            if refused.status not in GONE:
                raise
            self._log.info("query %s is not known any more: a new one is started", record.job_id)
        return self._look(self._start(), watch)

    def _look(self, record: Record, watch: Watch) -> Wait | Done:
        self._followed = record
        query = replace(watch, kind="query", subject=record.job_id)
        outcome = query.outcome(self._client.look(query), self._now())
        if outcome is None:
            return Wait(query)
        if outcome.kind == "failed":
            self._save(record, "failed_clean")
        outcome.check()
        return Done(record.job_id)

    def _start(self) -> Record:
        job_id = self._client.submit_cross_query(self._request)
        self._log.info("query is job %s", job_id)
        table_id = str(self._request.get("table_id", ""))
        record = Record("query", table_id, self._identity, self._content, "sent", job_id=job_id)
        return self._save(record, "sent")


class GivenQuery(Once):
    """A query that something else started: there is nothing to be recorded.

    Args:
        attempt: The try that waits for it; its store is left alone.
        job_id: The query's job.
    """

    def __init__(self, attempt: Attempt, job_id: str) -> None:
        super().__init__(attempt)
        self.job_id = job_id

    def advance(self, watch: Watch) -> Wait | Done:
        """Look once.

        Args:
            watch: Pace and deadline of the wait; its subject is filled in.

        Returns:
            What to wait for, or the job whose result is ready.

        Raises:
            JobFailed: The query failed.
            JobNotFound: There is no such job.
            WaitTimedOut: The deadline has passed; the query goes on.
        """
        query = replace(watch, kind="query", subject=self.job_id)
        outcome = query.outcome(self._client.look(query), self._now())
        if outcome is None:
            return Wait(query)
        outcome.check()
        return Done(self.job_id)
