"""A write with a payload, at most once, by each strategy of the wire map.

    read the record -> info
    initiate_put:  -> initiate -> read the job -> store "initiated" -> PUT
    put_commit:    -> ask for a URL -> PUT -> store "committing" -> commit, which answers the job
    direct:        -> store "intent" -> send, which answers the job
    -> store "sent" -> wait -> read the clock, then the job -> store "done"

The order is the promise; every decision in it is decisions.py's. Where the job is known before anything can be
applied, a lost answer can be asked for; a commit or a direct write without an answer stays ambiguous.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

from airflow_tds.client import errors
from airflow_tds.client.models import DataJobResponse
from airflow_tds.client.payloads import Body, Keeper
from airflow_tds.client.routes import Strategy
from airflow_tds.client.waiting import Verdict, Watch, judge
from airflow_tds.client.wire import WriteOperation
from airflow_tds.client.writes import UnknownLength
from airflow_tds.durability.decisions import (
    Adopt,
    Ambiguous,
    Attach,
    Attached,
    Clean,
    Hold,
    Policy,
    is_unchanged,
    weigh,
)
from airflow_tds.durability.records import UNANSWERED, Phase, Record, digest, utc
from airflow_tds.durability.sources import Source
from airflow_tds.durability.steps import GONE, Attempt, Done, Once, Wait, known

__all__ = ["Write", "WriteOnce"]

#: What is stored first, before anything can be applied.
FIRST_PHASE: dict[Strategy, Phase] = {"initiate_put": "initiated", "put_commit": "committing", "direct": "intent"}


@dataclass(frozen=True)
class Write:
    """One write as it was asked for.

    Attributes:
        op: `upload`, `append`, `overwrite` or `upsert`.
        table_id: The table.
        data_format: The payload's format.
        key_columns: For upsert; empty otherwise.
        identity: See `Record`.
        content: See `Record`.
        body: Gives the payload; called only when a new write starts.
        unknown_length: See `Operations.send_data`.
    """

    op: WriteOperation
    table_id: str
    data_format: str
    key_columns: tuple[str, ...]
    identity: str
    content: str
    body: Callable[[], Body]
    unknown_length: UnknownLength = "spool"

    @classmethod
    def of(
        cls,
        source: Source,
        op: WriteOperation,
        table_id: str,
        data_format: str,
        *,
        service: str,
        key_columns: tuple[str, ...] = (),
        unknown_length: UnknownLength = "spool",
    ) -> Self:
        """Say what is written, and what tells it apart from other writes.

        Args:
            source: The payload.
            op: See the class.
            table_id: The table.
            data_format: The payload's format.
            service: The service's address.
            key_columns: For upsert; empty otherwise.
            unknown_length: See `Operations.send_data`.

        Raises:
            ValidationFailed: The source can not be sent.
        """
        identity = digest(service, op, table_id, data_format, key_columns, source.origin)
        known = (op, table_id, data_format, key_columns, identity, source.content(), source.body)
        return cls(*known, unknown_length=unknown_length)


class WriteOnce(Once):
    """A write from its first request to its end, at most once.

    Args:
        attempt: The try that makes it.
        write: What was asked for.
        policy: What the connection says of the service.
    """

    def __init__(self, attempt: Attempt, *, write: Write, policy: Policy) -> None:
        super().__init__(attempt)
        self._write = write
        self._policy = policy

    def advance(self, watch: Watch) -> Wait | Done:
        """Go as far as possible without waiting.

        Args:
            watch: Pace and deadline of the wait; its subject is filled in.

        Returns:
            What to wait for, or the end.

        Raises:
            JobFailed: The job failed and changed nothing.
            AmbiguousWriteError: It cannot be known whether it was applied.
            WaitTimedOut: The deadline has passed; the job goes on.
            TableServiceError: Whatever else the service or the network said.
        """
        record, step = self._begin(self._write.table_id, self._write.identity, self._write.content)
        if isinstance(step, Done):
            return step
        attach = step if isinstance(step, Attach) else None
        return self._follow(known(record) if attach else self._start(), watch, attach)

    def result(self, done: Done) -> dict[str, Any]:
        """Say what became of the table: a small reference, fit for an XCom.

        Args:
            done: What `advance` returned.
        """
        table_id = self._write.table_id
        return {"table_id": table_id, "job_id": done.job_id, **self.left(table_id)}

    def hand_over(self) -> Done | None:
        """Take it for the end that the service has the data; None while that is not certain."""
        record = known(self._store.load())
        if record.phase != "sent":
            return None
        self._log.info("%s: job %s has its data and is not waited for", record.table_id, record.job_id)
        self._save(record, "done")
        return Done(record.job_id)

    def _follow(self, record: Record, watch: Watch, attach: Attach | None) -> Wait | Done:
        """Look at the recorded job until there is something to wait for, or the end."""
        while record.phase not in UNANSWERED:
            read = self._read(record)
            step = weigh(
                record,
                read,
                policy=self._policy,
                no_data_statuses=self._client.wire.no_data_statuses,
                attach=attach,
                choices=self._choices,
            )
            if isinstance(step, Hold):
                return self._hold(record, watch, step)
            self._log.info("%s: %s", record.table_id, step.why)
            if isinstance(step, Adopt):
                self._save(record, "done")
                return Done(record.job_id)
            if isinstance(step, Ambiguous):
                raise self._doubtful(step, record, read.job.status if read.job else "")
            if isinstance(step, Clean) or step.clean:
                record = self._save(record, "failed_clean")
            if isinstance(step, Clean):
                raise errors.JobFailed(step.why, job_id=record.job_id)
            record, attach = self._start(), None
        return self._give_up(record)

    def _read(self, record: Record) -> Attached:
        now = self._now()  # before the job: what the job says later than the lease's end is final
        job = self._job(record.job_id)
        failed = job is not None and judge(job).verdict is Verdict.FAILED
        decides = failed or (job is None and self._policy.only_finished_jobs_vanish)
        return Attached(now, job, decides and is_unchanged(record, self._client.info(record.table_id)))

    def _job(self, job_id: str) -> DataJobResponse | None:
        try:
            return self._client.get_job(job_id)
        except errors.Refused as refused:
            if refused.status in GONE:
                return None
            raise

    def _hold(self, record: Record, watch: Watch, step: Hold) -> Wait:
        until = watch.deadline if step.until is None else min(watch.deadline, step.until)
        now = self._now()
        if now >= watch.deadline:
            waited = now - watch.started
            raise errors.WaitTimedOut(f"{step.why} after {waited:.0f} s; it goes on", job_id=record.job_id)
        self._log.info("%s: %s; waiting until %s at the latest", record.table_id, step.why, utc(until))
        lease = 0.0 if record.phase == "sent" else record.lease
        return Wait(replace(watch, kind="write", subject=record.job_id, deadline=until, lease=lease))

    def _start(self) -> Record:
        """Write anew, by the strategy of the wire map."""
        write, body = self._write, self._write.body()
        before = self._client.info(write.table_id)
        snapshot, rows = before.snapshot_id or "", before.row_count
        identity = (write.op, write.table_id, write.identity, write.content)
        strategy = self._client.wire.strategy(write.op)
        record = Record(*identity, FIRST_PHASE[strategy], snapshot=snapshot, rows=rows)
        start = {"initiate_put": self._initiate, "put_commit": self._commit, "direct": self._submit}[strategy]
        return start(record, body)

    def _initiate(self, record: Record, body: Body) -> Record:
        """Initiate, store, send: the job is stored before a byte of data leaves."""
        write, client = self._write, self._client
        initiation = client.initiate(*self._asked)
        lease = self._now() + initiation.lifetime + client.transfer_timeout + self._policy.lease_margin
        seen = self._seen(initiation.job_id)
        record = self._save(replace(record, job_id=initiation.job_id, lease=lease, seen=seen), record.phase)
        self._log.info("%s: %s is job %s", write.table_id, write.op, initiation.job_id)
        try:
            client.send_data(initiation, body, unknown_length=write.unknown_length)
        except errors.TableServiceError as error:
            if error.outcome != "unknown" or isinstance(error, errors.Stopped | errors.ValidationFailed):
                raise  # a next try asks the job; nobody waits for data that changed while it was sent
            self._log.warning("%s; the data may have arrived, so job %s is watched", error, initiation.job_id)
            return record
        return self._save(record, "sent")

    def _commit(self, record: Record, body: Body) -> Record:
        """Send the data, which changes nothing yet; store; commit."""
        op, table_id, data_format, keys = self._asked
        presigned = self._client.presign(*self._asked)
        self._client.send_data(presigned, body, unknown_length=self._write.unknown_length)
        return self._submitted(record, partial(self._client.commit, op, table_id, presigned, data_format, keys))

    def _submit(self, record: Record, body: Body) -> Record:
        """Store, send; a source is read before, where it is spooled, so that it cannot break off a request."""
        op, table_id, data_format, keys = self._asked
        spooled = body.length is None and self._write.unknown_length == "spool"
        with Keeper(body) if spooled else nullcontext() as keeper:
            whole = keeper.measured() if keeper else body
            return self._submitted(record, partial(self._client.submit_direct, op, table_id, whole, data_format, keys))

    def _submitted(self, record: Record, send: Callable[[], str]) -> Record:
        record = self._send(record, record.phase, send, self._policy.lease_margin)
        self._log.info("%s: %s is job %s", record.table_id, record.op, record.job_id or "unknown")
        return record

    @property
    def _asked(self) -> tuple[WriteOperation, str, str, tuple[str, ...] | None]:
        write = self._write
        return write.op, write.table_id, write.data_format, write.key_columns or None

    def _seen(self, job_id: str) -> str:
        try:
            return self._client.get_job(job_id).status
        except errors.Stopped:
            raise
        except errors.TableServiceError as error:
            self._log.warning("the job's status before its data is not known: %s", error)
            return ""
