"""What a try does, decided from what was stored and read: pure, without a clock.

`begin` decides over the record alone, `weigh` over the record and the job as it was read, after the clock.
tests/durability/test_model.py tries every order of steps over these two functions.

Assumptions about the service (the interface is silent): A1 a job whose data never came changes nothing;
A3 after the lease no PUT lands; A4 a job applies its data at most once; A5 a write that changes the table
changes its snapshot_id.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_tds.client import errors
from airflow_tds.client.models import DataJobResponse, DatasetInfoResponse
from airflow_tds.client.waiting import Verdict, judge
from airflow_tds.durability.records import Generation, Record, utc

__all__ = [
    "LEASE_MARGIN",
    "Adopt",
    "Ambiguous",
    "Attach",
    "Attached",
    "Clean",
    "Hold",
    "Policy",
    "Start",
    "begin",
    "is_unchanged",
    "weigh",
]

#: Added to the lease, seconds: the service's delay in noticing data that arrived at the last moment.
LEASE_MARGIN = 30.0


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
        return Adopt(f"{_work(record)} was done at {utc(record.at)}: nothing is written{note}")
    if changed and since != "same":
        return Attach(f"cleared with other data: {_work(record)} must be settled first", settle=True)
    return Attach(f"record {record.phase}: re-attached to {_work(record)}{note}")


def _begin_after_done(record: Record, since: str) -> Start | Ambiguous:
    """Decide about a finished write that may be wanted again."""
    done = f"{_work(record)} was done at {utc(record.at)}"
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


def is_unchanged(record: Record, info: DatasetInfoResponse) -> bool:
    """Say whether a table certainly is as it was; without a snapshot only one that has no rows tells."""
    if record.snapshot:
        return info.snapshot_id == record.snapshot
    return not info.snapshot_id and record.rows == info.row_count == 0
