"""What every durable work shares: the record, the clock, where it stands, and what it says in doubt.

`advance` goes as far as it can and says until when to wait, so that a blocking and a deferring caller take
the same steps; nothing here waits. Nothing here knows Airflow: a record is kept in whatever satisfies
`RecordStore`.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from airflow_tds.client import errors
from airflow_tds.client.client import TableClient
from airflow_tds.client.models import DatasetInfoResponse
from airflow_tds.client.waiting import Watch
from airflow_tds.durability.decisions import Adopt, Ambiguous, Attach, Choices, Start, begin, unanswered
from airflow_tds.durability.records import Generation, Phase, Record, utc
from airflow_tds.durability.stores import RecordStore

__all__ = ["GONE", "Attempt", "Done", "Log", "Once", "Wait", "known"]

#: A job that the service does not know, or not any more, §7: neither proves that nothing was applied.
GONE = (404, 410)


class Log(Protocol):
    """Where a person reads which case was taken."""

    def info(self, text: str, /, *values: object) -> None:
        """Say what is done."""
        ...

    def warning(self, text: str, /, *values: object) -> None:
        """Say what is doubtful."""
        ...


@dataclass(frozen=True)
class Wait:
    """`advance` can go no further yet.

    Attributes:
        watch: What to wait for, and until when.
    """

    watch: Watch


@dataclass(frozen=True)
class Done:
    """The write was applied.

    Attributes:
        job_id: Its job; empty for a truncation.
    """

    job_id: str


@dataclass(frozen=True)
class Attempt:
    """One try of a task: what it has at hand for durable work.

    Attributes:
        client: The service.
        store: Where the record of the work is kept.
        generation: This try's.
        log: Says which case was taken, and until when it waits and why.
        choices: What a person has decided beforehand.
        now: The clock: seconds since the epoch.
    """

    client: TableClient
    store: RecordStore
    generation: Generation
    log: Log
    choices: Choices = Choices()  # noqa: RUF009  # frozen
    now: Callable[[], float] = field(default_factory=lambda: time.time)


class Once(ABC):
    """What all durable work shares: the record, the clock and the ways on.

    Args:
        attempt: The try that does it.

    Attributes:
        job_id: The job that it is about now; empty while there is none.
    """

    def __init__(self, attempt: Attempt) -> None:
        self._client = attempt.client
        self._store = attempt.store
        self._generation = attempt.generation
        self._log = attempt.log
        self._choices = attempt.choices
        self._now = attempt.now
        self.job_id = ""

    def _begin(self, table_id: str, identity: str, content: str) -> tuple[Record | None, Start | Attach | Done]:
        """Read the record and decide over it; what was adopted is stored as this generation's."""
        record = self._store.load()
        self.job_id = record.job_id if record else ""
        step = begin(record, self._generation, identity, content, self._choices)
        self._log.info("%s: %s", table_id, step.why)
        if isinstance(step, Ambiguous):
            raise self._doubtful(step, known(record))
        if not isinstance(step, Adopt):
            return record, step
        found = known(record)
        if found.phase != "done" or self._generation.since(found) != "same":
            self._save(found, "done")
        return found, Done(found.job_id)

    @abstractmethod
    def advance(self, watch: Watch) -> Wait | Done:
        """Go as far as possible without waiting; see each work's own."""

    def complete(self, watch: Watch) -> Done:
        """Go to the end, waiting here.

        Args:
            watch: Pace and deadline of the wait; its subject is filled in.
        """
        while not isinstance(step := self.advance(watch), Done):
            self._client.watch(step.watch)
        return step

    def left(self, table_id: str) -> dict[str, Any]:
        """Say how the work left a table: a small reference, fit for an XCom.

        Args:
            table_id: The table.

        Returns:
            `{"row_count", "snapshot_id"}`; None where they cannot be read: the work is done all the same, and a
            task that failed now would be cleared and do it again.

        Raises:
            Stopped: The task was killed.
        """
        try:
            info = self._client.info(table_id)
        except errors.Stopped:
            raise
        except errors.TableServiceError as error:
            self._log.warning("%s: it is done, but how the table is now is not known: %s", table_id, error)
            return {"row_count": None, "snapshot_id": None}
        return {"row_count": info.row_count, "snapshot_id": info.snapshot_id}

    def _save(self, record: Record, phase: Phase) -> Record:
        """Store the record in this try's generation; whatever is raised ends the try."""
        stored = replace(
            record,
            phase=phase,
            max_tries=self._generation.max_tries,
            clear_number=self._generation.clear_number,
            at=self._now(),
        )
        self._store.save(stored)
        self.job_id = stored.job_id
        return stored

    def _send(self, record: Record, phase: Phase, send: Callable[[], str | None], grace: float = 0.0) -> Record:
        """Store that a request is about to be sent, then send it; what was not processed leaves nothing behind.

        Args:
            record: What is known of it.
            phase: What to store.
            send: Sends it; gives the id of the job that it started, if any.
            grace: Seconds that the service may take to know its job everywhere.

        Returns:
            The record: `sent`, or in the same phase when no answer came.

        Raises:
            Stopped: The task was killed meanwhile.
            TableServiceError: The request certainly was not processed.
        """
        record = self._save(record, phase)
        try:
            job_id = send() or ""
        except errors.TableServiceError as error:
            if error.outcome != "unknown":
                self._save(record, "failed_clean")
                raise
            self._log.warning("%s; it may have arrived", error)
            if isinstance(error, errors.Stopped):
                raise  # nobody is left to decide: a next try does
            return record
        lease = self._now() + grace if job_id else 0.0
        return self._save(replace(record, job_id=job_id, lease=lease), "sent")

    def _give_up(self, record: Record) -> Done:
        """Say that nobody knows whether the request arrived, unless a person takes it for done."""
        step = unanswered(record, self._choices)
        self._log.info("%s: %s", record.table_id, step.why)
        if isinstance(step, Ambiguous):
            raise self._doubtful(step, record)
        self._save(record, "done")
        return Done("")

    def _doubtful(self, found: Ambiguous, record: Record, status: str = "") -> errors.AmbiguousWriteError:
        """Say what is known and the ways on; a doubt about a finished write is stored first."""
        if found.doubt:
            record = self._save(record, "doubt")
        info, now = DatasetInfoResponse(), ""
        try:
            info = self._client.info(record.table_id)
        except errors.TableServiceError as error:
            now = f"unknown ({error})"
        return errors.AmbiguousWriteError(
            self._text(found, record, status, now or f"{info.snapshot_id or 'none'} ({info.row_count} rows)"),
            may_still_apply=found.may_still_apply,
            table_id=record.table_id,
            job_id=record.job_id,
            phase=record.phase,
            status=status,
            snapshot_before=record.snapshot,
            rows_before=record.rows,
            snapshot_now=info.snapshot_id or "",
            rows_now=info.row_count,
            accepted_until=record.lease,
        )

    def _text(self, found: Ambiguous, record: Record, status: str, now: str) -> str:
        """Write what a person needs who was not there."""
        may = (
            "may still be applied: until that is settled, clearing without the record can write it twice"
            if found.may_still_apply
            else "can not be applied any more"
        )
        return (
            f"It cannot be known whether {record.op} on table {record.table_id} was applied: {found.why}."
            f" Nothing more was written. Job: {record.job_id or 'none'}; phase: {record.phase};"
            f" last status: {status or 'none'}; snapshot before: {record.snapshot or 'none'} ({record.rows} rows),"
            f" now: {now};"
            f" data accepted until: {utc(record.lease) if record.lease else 'unknown'}."
            f" The earlier write {may}. The record is in {self._store.name}. Look at the table: if it was applied,"
            " delete the record and mark the task as success; if it was not, and can not be any more, delete the record"
            " and clear the task."
        )


def known(record: Record | None) -> Record:
    """Give the record where only a record leads."""
    if record is None:
        raise AssertionError("unreachable: only a record leads here")
    return record
