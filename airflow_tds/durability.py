"""A table gets each write once: the record of a write, the decision over it, and the order of its steps.

The order (the job is known before its data is sent, and the record is stored between the two):

    read the record -> info -> initiate -> read the job -> store the record -> PUT
    -> store "sent" -> wait -> read the clock, then the job -> store "done"

`begin` and `weigh` decide purely over what was read. `WriteOnce` and `TruncateOnce` act on it; they wait
for nothing themselves: `advance` goes as far as it can and says until when to wait, so that a blocking
and a deferring caller take the same steps. Nothing here knows Airflow: a record is kept in whatever
satisfies `RecordStore`.

Assumptions about the service (the interface is silent): A1 a job whose data never came changes nothing;
A3 after the lease no PUT lands; A4 a job applies its data at most once; A5 a write that changes the table
changes its snapshot_id.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import timedelta
from typing import Any, Literal, Protocol, Self, get_args

from airflow_tds.client import errors
from airflow_tds.client.client import TableClient
from airflow_tds.client.models import DataJobResponse, DatasetInfoResponse
from airflow_tds.client.payloads import Body
from airflow_tds.client.waiting import Verdict, Watch, judge, judge_truncated
from airflow_tds.client.wire import WriteOperation
from airflow_tds.client.writes import UnknownLength

__all__ = [
    "Attached",
    "Done",
    "Generation",
    "MemoryStore",
    "Policy",
    "QueryOnce",
    "Record",
    "RecordStore",
    "TaskStore",
    "TruncateOnce",
    "Wait",
    "Write",
    "WriteOnce",
    "begin",
    "weigh",
]

VERSION = 1
#: Added to the lease, seconds: the service's delay in noticing data that arrived at the last moment.
LEASE_MARGIN = 30.0

Phase = Literal["intent", "initiated", "sent", "done", "failed_clean", "doubt"]
#: A job that the service does not know, or not any more, §7: neither proves that nothing was applied.
GONE = (404, 410)


# ---------------------------------------------------------------------------------------------- values


@dataclass(frozen=True)
class Generation:
    """Which run of a task this is: an automatic retry keeps both numbers, a person's clear raises them.

    Attributes:
        max_tries: The task instance's; a clear raises it unless the DAG could not be resolved.
        clear_number: The DAG run's; a clear of any of its tasks raises it (Airflow 3.2 and later).
    """

    max_tries: int
    clear_number: int

    def since(self, record: Record) -> Literal["same", "cleared", "perhaps"]:
        """Say what happened between a record and now."""
        if self.max_tries != record.max_tries:
            return "cleared"
        return "same" if self.clear_number == record.clear_number else "perhaps"


@dataclass(frozen=True)
class Record:
    """What is stored of a write: ids and times, no URL, no header, no row; below 1 KB.

    Attributes:
        op: The operation.
        table_id: The table.
        identity: Hash of what the write is: service, operation, table, format, keys, source.
        content: Hash of the source's content; empty when it cannot be told.
        phase: `intent` (a request is about to be sent), `initiated` (a job waits for its data), `sent`,
            `done`, `failed_clean` (it failed and changed nothing), `doubt` (a person must decide).
        job_id: The job; empty when there is none.
        snapshot: The table's snapshot before the write; empty when unknown.
        rows: Its row count before the write; None when unknown.
        lease: POSIX seconds after which no data can arrive any more.
        seen: The job's status before any data was sent; empty when unknown.
        max_tries: See `Generation`.
        clear_number: See `Generation`.
        at: When the record was stored, POSIX seconds.
        v: Version of the record's form.
    """

    op: str
    table_id: str
    identity: str
    content: str
    phase: Phase
    job_id: str = ""
    snapshot: str = ""
    rows: int | None = None
    lease: float = 0.0
    seen: str = ""
    max_tries: int = 0
    clear_number: int = 0
    at: float = 0.0
    v: int = VERSION

    def to_json(self) -> dict[str, Any]:
        """Write the record as a flat JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Any) -> Self:
        """Read a record.

        Raises:
            ValidationFailed: Another version of this package wrote it, or it is no record.
        """
        if not isinstance(values, Mapping) or values.get("phase") not in get_args(Phase):
            raise errors.ValidationFailed("the stored record is damaged: it names no known phase")
        if values.get("v") != VERSION:
            raise errors.ValidationFailed(
                f"the stored record has version {values.get('v')!r}, this package reads {VERSION};"
                " upgrade it, or delete the record once you know whether its write was applied"
            )
        known = {f.name for f in fields(cls)}
        try:
            return cls(**{name: value for name, value in values.items() if name in known})
        except TypeError as invalid:
            raise errors.ValidationFailed(f"the stored record is damaged: {invalid}") from None


class Log(Protocol):
    """Where a person reads which case was taken."""

    def info(self, text: str, /, *values: object) -> None:
        """Say what is done."""
        ...

    def warning(self, text: str, /, *values: object) -> None:
        """Say what is doubtful."""
        ...


class RecordStore(Protocol):
    """Where a record outlives the process that wrote it."""

    @property
    def name(self) -> str:
        """What a person would look for, for texts."""
        ...

    def load(self) -> Record | None:
        """Read the record; None when there is none, or when this try has been superseded."""
        ...

    def save(self, record: Record) -> None:
        """Store the record, or raise: whoever cannot store must not go on."""
        ...


class MemoryStore:
    """A record for the life of a process: protects from nothing but a second look in the same try.

    Args:
        record: What is known already; None for nothing.
    """

    name = "memory only"

    def __init__(self, record: Record | None = None) -> None:
        self.record = record

    def load(self) -> Record | None:
        """Give the record."""
        return self.record

    def save(self, record: Record) -> None:
        """Keep the record."""
        self.record = record


class TaskStore:
    """A record in Airflow's task state store: survives retries, clears, and the death of worker and node.

    A stale try reads None and cannot store: Airflow refuses it. That is the fence.

    Args:
        accessor: Airflow's accessor, `context["task_state_store"]`.
        key: Its key there.
        retention: How long Airflow keeps it.
    """

    def __init__(self, accessor: Any, key: str, retention: timedelta) -> None:
        self._accessor = accessor
        self._key = key
        self._retention = retention

    @property
    def name(self) -> str:
        """What a person would look for, for texts."""
        return f"the task's state store, key {self._key}"

    def load(self) -> Record | None:
        """Read the record."""
        values = self._accessor.get(self._key)
        return None if values is None else Record.from_json(values)

    def save(self, record: Record) -> None:
        """Store the record, or raise whatever Airflow raised."""
        self._accessor.set(self._key, record.to_json(), retention=self._retention)


@dataclass(frozen=True)
class Policy:
    """What a connection says about its service.

    Attributes:
        failed_jobs_are_atomic: Whether a FAILED job certainly changed nothing; None when the connection does not
            say: of an upsert it is assumed then, as another one mends it, of the others it is not.
        lease_margin: Seconds added to the lease.
    """

    failed_jobs_are_atomic: bool | None = None
    lease_margin: float = LEASE_MARGIN


@dataclass(frozen=True)
class Write:
    """One write as it was asked for.

    Attributes:
        op: `upload`, `append` or `upsert`.
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


@dataclass(frozen=True)
class Attached:
    """A job as it was read, after the clock.

    Attributes:
        now: The clock, read before the job, POSIX seconds.
        job: The job; None when the service does not know it any more.
        unchanged: Whether the table certainly is as it was before the write.
    """

    now: float
    job: DataJobResponse | None
    unchanged: bool


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


# ---------------------------------------------------------------------------------------------- decisions


@dataclass(frozen=True)
class Start:
    """Start a new write."""

    why: str


@dataclass(frozen=True)
class Adopt:
    """The write was applied."""

    why: str


@dataclass(frozen=True)
class Attach:
    """Go on with the recorded write; `settle` when it is another content's."""

    why: str
    settle: bool = False


@dataclass(frozen=True)
class Hold:
    """Wait, until a time or until the deadline (None)."""

    why: str
    until: float | None = None


@dataclass(frozen=True)
class Clean:
    """The job failed and changed nothing."""

    why: str


@dataclass(frozen=True)
class Ambiguous:
    """It cannot be known; `doubt` when that must be stored first."""

    why: str
    may_still_apply: bool = True
    doubt: bool = False


def begin(
    record: Record | None, generation: Generation, identity: str, content: str
) -> Start | Adopt | Attach | Ambiguous:
    """Decide what a try does, from the record alone.

    Args:
        record: What was stored; None for nothing.
        generation: This try's.
        identity: This write's.
        content: This write's.

    Returns:
        What to do.

    Raises:
        DifferentWrite: The unfinished record is another write's.
    """
    if record is None:
        return Start("no record: new write")
    since = generation.since(record)
    if record.phase == "failed_clean":
        return Start(f"the earlier {_work(record)} failed and changed nothing: new write")
    if record.phase == "doubt":
        return Ambiguous("an earlier doubt has not been settled by a person", may_still_apply=False)
    if record.phase == "done" and since != "same":
        return _begin_after_done(record, since)
    if record.identity != identity:
        raise _different(record)
    changed = bool(record.content and content) and record.content != content
    note = "; the source has changed since, the data that was sent first counts" if changed else ""
    if record.phase == "done":
        return Adopt(f"{_work(record)} was done at {_utc(record.at)}: nothing is written{note}")
    if changed and since != "same":
        return Attach(f"cleared with other data: {_work(record)} must be settled first", settle=True)
    return Attach(f"record {record.phase}: re-attached to {_work(record)}{note}")


def _begin_after_done(record: Record, since: str) -> Start | Ambiguous:
    """Decide about a finished write that may be wanted again."""
    done = f"{_work(record)} was done at {_utc(record.at)}"
    if since == "cleared":
        return Start(f"{done} and the task was cleared since: new write")
    why = f"{done}, and a task of this DAG run was cleared since, perhaps this one"
    return Ambiguous(why, may_still_apply=False, doubt=True)


def _different(record: Record) -> errors.DifferentWrite:
    """Say that the task asks for another write than the one it must first account for."""
    way = "clear the task to write anew" if record.phase == "done" else "let that one finish with the task as it was"
    return errors.DifferentWrite(
        f"the stored record is of another write ({record.op} on table {record.table_id}, {_work(record)},"
        f" {record.phase}); {way}, or delete the record once you know whether it was applied"
    )


def _work(record: Record) -> str:
    """Name what a record is about: its job, or the operation that has none."""
    return f"job {record.job_id}" if record.job_id else record.op


def _utc(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(moment))


def weigh(
    record: Record, read: Attached, *, settle: bool, policy: Policy, no_data_statuses: tuple[str, ...]
) -> Start | Adopt | Hold | Clean | Ambiguous:
    """Decide about a recorded job, from what was read: the clock first, then the job.

    Args:
        record: The unfinished record.
        read: What was read.
        settle: Whether the job is another content's, which the new one must not be taken for.
        policy: What the connection says.
        no_data_statuses: Job statuses that mean that no data has arrived.

    Returns:
        What to do.
    """
    leased = read.now < record.lease
    if read.job is None:
        if leased:
            return Hold(f"job {record.job_id} is not known to the service", record.lease)
        return Ambiguous(f"job {record.job_id} is not known to the service any more, which proves nothing")
    reading = judge(read.job)
    if reading.verdict is Verdict.COMPLETED:
        if settle:
            return Ambiguous("the earlier content was written; the new one was not", may_still_apply=False)
        return Adopt(f"job {record.job_id} COMPLETED")
    if reading.verdict is Verdict.FAILED:
        if leased and record.phase != "sent":
            return Hold(f"job {record.job_id} FAILED, but its data may still arrive", record.lease)
        return _weigh_failed(record, read, reading.error, policy)
    return _weigh_running(record, read, reading.status, no_data_statuses)


def _weigh_failed(record: Record, read: Attached, error: str, policy: Policy) -> Start | Clean | Ambiguous:
    atomic = policy.failed_jobs_are_atomic
    if atomic is None:
        atomic = record.op == "upsert"
    if not (read.unchanged or atomic):
        why = f"job {record.job_id} FAILED ({error}), and the table may have changed since"
        return Ambiguous(why, may_still_apply=False)
    if record.phase != "sent":
        return Start(f"job {record.job_id} failed and changed nothing ({error}): new write")
    return Clean(f"job {record.job_id} failed: {error}")


def _weigh_running(
    record: Record, read: Attached, status: str, no_data_statuses: tuple[str, ...]
) -> Start | Hold | Ambiguous:
    job = f"job {record.job_id}"
    no_data = status.upper() in [known.upper() for known in no_data_statuses]
    if record.phase == "sent" and not no_data:
        return Hold(f"{job} is {status}")
    if read.now < record.lease:
        return Hold(f"{job} is {status}; its data may still arrive", record.lease)
    if record.phase == "sent":
        return Ambiguous(f"the data of {job} was accepted, yet it says {status}, which means no data")
    if no_data:
        return Start(f"{job} is {status} and can no longer get data: new write")
    arrived = status.upper() != record.seen.upper() if record.seen else bool(no_data_statuses)
    if arrived:
        return Hold(f"{job} is {status}, as its data has arrived")
    return Ambiguous(f"{job} is {status}, perhaps as before its data was sent, which proves nothing")


def _unchanged(record: Record, info: DatasetInfoResponse) -> bool:
    """Say whether a table certainly is as it was; without a snapshot only one that has no rows tells."""
    if record.snapshot:
        return info.snapshot_id == record.snapshot
    return not info.snapshot_id and record.rows == info.row_count == 0


# ---------------------------------------------------------------------------------------------- acting


class _Once:
    """What a write and a truncation share: the record, the clock and the ways on."""

    def __init__(self, client: TableClient, store: RecordStore, generation: Generation, log: Log) -> None:
        self._client = client
        self._store = store
        self._generation = generation
        self._log = log
        self._now = time.time

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
        return stored

    def _doubtful(self, found: Ambiguous, record: Record, status: str = "") -> errors.AmbiguousWriteError:
        """Say what is known and the ways on; a doubt about a finished write is stored first."""
        if found.doubt:
            record = self._save(record, "doubt")
        may = "may still be applied" if found.may_still_apply else "can not be applied any more"
        text = (
            f"It cannot be known whether {record.op} on table {record.table_id} was applied: {found.why}."
            f" Nothing more was written. Job: {record.job_id or 'none'}; phase: {record.phase};"
            f" last status: {status or 'none'}; snapshot before: {record.snapshot or 'none'} ({record.rows} rows),"
            f" now: {self._snapshot(record.table_id)};"
            f" data accepted until: {_utc(record.lease) if record.lease else 'unknown'}."
            f" The earlier write {may}. The record is in {self._store.name}. Look at the table: if it was applied,"
            " delete the record and mark the task as success; if it was not, and can not be any more, delete the record"
            " and clear the task."
        )
        return errors.AmbiguousWriteError(text, may_still_apply=found.may_still_apply)

    def _snapshot(self, table_id: str) -> str:
        """Read the table's snapshot and row count for a text; that this fails is told in the text."""
        try:
            info = self._client.info(table_id)
        except errors.TableServiceError as error:
            return f"unknown ({error})"
        return f"{info.snapshot_id or 'none'} ({info.row_count} rows)"


class WriteOnce(_Once):
    """A write from its first request to its end, at most once.

    Args:
        client: The service.
        store: Where its record is kept.
        generation: This try's.
        log: Says which case was taken, and until when it waits and why.
        write: What was asked for.
        policy: What the connection says of the service.
    """

    def __init__(
        self,
        client: TableClient,
        store: RecordStore,
        generation: Generation,
        log: Log,
        *,
        write: Write,
        policy: Policy,
    ) -> None:
        super().__init__(client, store, generation, log)
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
        record = self._store.load()
        step = begin(record, self._generation, self._write.identity, self._write.content)
        self._log.info("%s: %s", self._write.table_id, step.why)
        if isinstance(step, Ambiguous):
            raise self._doubtful(step, _known(record))
        if isinstance(step, Adopt):
            return Done(_known(record).job_id)
        if isinstance(step, Start):
            record = self._start()
        settle = isinstance(step, Attach) and step.settle
        return self._follow(_known(record), watch, settle=settle)

    def _follow(self, record: Record, watch: Watch, *, settle: bool) -> Wait | Done:
        """Look at the recorded job until there is something to wait for, or the end."""
        while True:
            read = self._read(record)
            no_data = self._client.wire.no_data_statuses
            step = weigh(record, read, settle=settle, policy=self._policy, no_data_statuses=no_data)
            if isinstance(step, Hold):
                return self._hold(record, watch, step)
            self._log.info("%s: %s", record.table_id, step.why)
            if isinstance(step, Adopt):
                self._save(record, "done")
                return Done(record.job_id)
            if isinstance(step, Ambiguous):
                raise self._doubtful(step, record, read.job.status if read.job else "")
            record = self._save(record, "failed_clean")
            if isinstance(step, Clean) and not settle:
                raise errors.JobFailed(step.why, job_id=record.job_id)
            record, settle = self._start(), False

    def _read(self, record: Record) -> Attached:
        now = self._now()  # before the job: what the job says later than the lease's end is final
        job = self._job(record.job_id)
        failed = job is not None and judge(job).verdict is Verdict.FAILED
        return Attached(now, job, failed and _unchanged(record, self._client.info(record.table_id)))

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
        self._log.info("%s: %s; waiting until %s at the latest", record.table_id, step.why, _utc(until))
        lease = 0.0 if record.phase == "sent" else record.lease
        return Wait(replace(watch, kind="write", subject=record.job_id, deadline=until, lease=lease))

    def _start(self) -> Record:
        """Initiate, record, send: the record is stored before a byte of data leaves."""
        write, client = self._write, self._client
        body = write.body()
        before = client.info(write.table_id)
        initiation = client.initiate(write.op, write.table_id, write.data_format, write.key_columns or None)
        lease = self._now() + initiation.lifetime + client.transfer_timeout + self._policy.lease_margin
        record = Record(
            write.op,
            write.table_id,
            write.identity,
            write.content,
            "initiated",
            job_id=initiation.job_id,
            snapshot=before.snapshot_id or "",
            rows=before.row_count,
            lease=lease,
            seen=self._seen(initiation.job_id),
        )
        record = self._save(record, "initiated")
        self._log.info("%s: %s is job %s", write.table_id, write.op, initiation.job_id)
        try:
            client.send_data(initiation, body, unknown_length=write.unknown_length)
        except errors.TableServiceError as error:
            if error.outcome != "unknown":
                raise
            self._log.warning("%s; the data may have arrived, so job %s is watched", error, initiation.job_id)
            return record
        return self._save(record, "sent")

    def _seen(self, job_id: str) -> str:
        try:
            return self._client.get_job(job_id).status
        except errors.Stopped:
            raise
        except errors.TableServiceError as error:
            self._log.warning("the job's status before its data is not known: %s", error)
            return ""


class TruncateOnce(_Once):
    """A truncation, sent at most once per record: a late second one would destroy later writes.

    Args:
        client: The service.
        store: Where its record is kept.
        generation: This try's.
        log: Says which case was taken.
        table_id: The table.
        identity: See `Record`.
    """

    def __init__(
        self,
        client: TableClient,
        store: RecordStore,
        generation: Generation,
        log: Log,
        *,
        table_id: str,
        identity: str,
    ) -> None:
        super().__init__(client, store, generation, log)
        self._table_id = table_id
        self._identity = identity

    def advance(self, watch: Watch) -> Wait | Done:
        """Go as far as possible without waiting; see `WriteOnce.advance`.

        Raises:
            AmbiguousWriteError: The request was about to be sent when an earlier try ended, and the table
                still has rows at the deadline.
            WaitTimedOut: The deadline has passed, and the table still has rows.
        """
        record = self._store.load()
        step = begin(record, self._generation, self._identity, "")
        self._log.info("%s: %s", self._table_id, step.why)
        if isinstance(step, Ambiguous):
            raise self._doubtful(step, _known(record))
        if isinstance(step, Adopt):
            return Done("")
        if isinstance(step, Start):
            record = self._start()
        return self._follow(_known(record), watch)

    def _follow(self, record: Record, watch: Watch) -> Wait | Done:
        if record.phase == "done":
            return Done("")
        now = self._now()
        reading = judge_truncated(self._client.info(self._table_id), record.snapshot)
        if reading.verdict is Verdict.COMPLETED:
            self._save(record, "done")
            return Done("")
        if now < watch.deadline:
            return Wait(replace(watch, kind="truncation", subject=self._table_id, snapshot=record.snapshot))
        if record.phase == "intent":
            raise self._doubtful(Ambiguous("the request had no answer, or a try ended when about to send it"), record)
        raise errors.WaitTimedOut(
            f"table {self._table_id} still has {reading.status} after {now - watch.started:.0f} s; the truncation was"
            " sent once and is not sent again: to send another, delete the record in"
            f" {self._store.name} and clear the task"
        )

    def _start(self) -> Record:
        """Record the intent, then send; what certainly was not sent leaves no intent behind."""
        before = self._client.info(self._table_id)
        empty = judge_truncated(before).verdict is Verdict.COMPLETED  # a service that does not tell is sent nothing
        snapshot, rows = before.snapshot_id or "", before.row_count
        record = Record("truncate", self._table_id, self._identity, "", "intent", snapshot=snapshot, rows=rows)
        if empty:
            self._log.info("%s: has no rows, so nothing is sent", self._table_id)
            return self._save(record, "done")
        record = self._save(record, "intent")
        try:
            self._client.truncate(self._table_id)
        except errors.TableServiceError as error:
            if error.outcome == "unknown":
                self._log.warning("%s; it may have arrived, so the table is watched", error)
                return record
            self._save(record, "failed_clean")
            raise
        return self._save(record, "sent")


class QueryOnce(_Once):
    """An asynchronous query, started once per generation: a retry goes on with it, a clear starts another.

    A query changes nothing, so nothing about it is ever ambiguous: whatever cannot be gone on with is
    started anew.

    Args:
        client: The service.
        store: Where its record is kept.
        generation: This try's.
        log: Says which case was taken.
        request: What was asked for.
        identity: See `Record`.
    """

    def __init__(
        self,
        client: TableClient,
        store: RecordStore,
        generation: Generation,
        log: Log,
        *,
        request: Mapping[str, Any],
        identity: str,
    ) -> None:
        super().__init__(client, store, generation, log)
        self._request = request
        self._identity = identity
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

    def is_finished(self) -> bool:
        """Say whether its result was kept."""
        record = self._record()
        return record is not None and record.phase == "done"

    def finish(self) -> None:
        """Store that the result of `advance` was kept."""
        self._save(_known(self._followed), "done")

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
        return self._save(Record("query", table_id, self._identity, "", "sent", job_id=job_id), "sent")


def _known(record: Record | None) -> Record:
    if record is None:
        raise AssertionError("unreachable: only a record leads here")
    return record
