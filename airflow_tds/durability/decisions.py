"""What a try does, decided from what was stored and read: pure, without a clock.

`begin` decides over the record alone, `weigh` over the record and the job as it was read, after the clock.
tests/durability/test_model.py tries every order of steps over these two functions.

Assumptions about the service (the interface is silent): A1 a job whose data never came changes nothing;
A3 after the lease no PUT lands; A4 a job applies its data at most once; A5 a write that changes the table
changes its snapshot_id.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self, get_args, get_type_hints

from airflow_tds.client import errors
from airflow_tds.client.models import DataJobResponse, DatasetInfoResponse
from airflow_tds.client.waiting import Verdict, judge
from airflow_tds.durability.records import UNANSWERED, Generation, Record, utc

__all__ = [
    "LEASE_MARGIN",
    "Adopt",
    "Ambiguous",
    "Attach",
    "Attached",
    "Choices",
    "Clean",
    "Hold",
    "Policy",
    "Start",
    "begin",
    "is_unchanged",
    "settle_doubt",
    "unanswered",
    "weigh",
]

#: Added to the lease, seconds: the service's delay in noticing data that arrived at the last moment.
LEASE_MARGIN = 30.0


@dataclass(frozen=True)
class Policy:
    """What a connection says about its service.

    Attributes:
        failed_jobs_are_atomic: Whether a FAILED job certainly changed nothing; None when the connection does not
            say: of overwrite and upsert it is assumed then, as another one mends it, of the others it is not.
        lease_margin: Seconds added to the lease.
        only_finished_jobs_vanish: Whether a job that the service does not know any more has certainly ended.
    """

    failed_jobs_are_atomic: bool | None = None
    lease_margin: float = LEASE_MARGIN
    only_finished_jobs_vanish: bool = False


@dataclass(frozen=True)
class Choices:
    """What a person has decided beforehand.

    Attributes:
        on_clear: After a clear: `auto` writes a finished write again and goes on with an unfinished one; `resume`
            goes on with either, so nothing is written twice in a DAG run; `new` writes again, once the earlier job
            can no longer apply its data.
        on_unknown: What cannot be known: `fail` leaves it to a person; `resubmit` writes again where the earlier
            write can no longer be applied, and an append or upload also where it may be (rows may double);
            `assume_done` takes it for written (rows may be missing).
    """

    on_clear: Literal["auto", "resume", "new"] = "auto"
    on_unknown: Literal["fail", "resubmit", "assume_done"] = "fail"

    @classmethod
    def of(cls, on_clear: str, on_unknown: str) -> Self:
        """Read two choices.

        Raises:
            ValidationFailed: One of them is none.
        """
        for name, chosen in (("on_clear", on_clear), ("on_unknown", on_unknown)):
            open_ways = get_args(get_type_hints(cls)[name])
            if chosen not in open_ways:
                raise errors.ValidationFailed(f"{name} is one of {', '.join(open_ways)}, not {chosen!r}")
        return cls(on_clear, on_unknown)  # type: ignore[arg-type]  # just checked


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
    """Start a new write; when the earlier one is `clean`, that is stored first."""

    why: str
    clean: bool = False


@dataclass(frozen=True)
class Adopt:
    """The write was applied."""

    why: str


@dataclass(frozen=True)
class Attach:
    """Go on with the recorded write.

    Attributes:
        why: What a person reads.
        settle: It is another content's, which the new one must not be taken for.
        renew: Whatever becomes of it, the data is written again afterwards.
    """

    why: str
    settle: bool = False
    renew: bool = False


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
    """It cannot be known.

    Attributes:
        why: What a person reads.
        may_still_apply: Whether the earlier write may be applied later than now.
        doubt: It must be stored that a person has to decide.
        unwritten: Whatever is unknown, what this try was asked to write certainly was not written.
    """

    why: str
    may_still_apply: bool = True
    doubt: bool = False
    unwritten: bool = False


def begin(
    record: Record | None,
    generation: Generation,
    identity: str,
    content: str,
    choices: Choices = Choices(),
) -> Start | Adopt | Attach | Ambiguous:
    """Decide what a try does, from the record alone.

    Args:
        record: What was stored; None for nothing.
        generation: This try's.
        identity: This write's.
        content: This write's.
        choices: What a person has decided beforehand.

    Returns:
        What to do.

    Raises:
        DifferentWrite: The unfinished record is another write's.
    """
    if record is None:
        return Start("no record: new write")
    if record.phase == "failed_clean":
        return Start(f"the earlier {_work(record)} failed and changed nothing: new write")
    changed = bool(record.content and content) and record.content != content
    other = changed or record.identity != identity
    since = generation.since(record)
    if record.phase == "doubt":
        why = "an earlier doubt has not been settled by a person"
        return settle_doubt(Ambiguous(why, may_still_apply=False, unwritten=other), record, choices)
    if record.phase == "done" and since != "same" and choices.on_clear != "resume":
        return _begin_after_done(record, since, choices, other=other)
    if record.identity != identity:
        raise _different(record)
    if record.phase in UNANSWERED and record.op != "truncate":  # of a truncation the table tells
        return unanswered(record, choices, unwritten=changed and since != "same")
    note = "; the source has changed since, the data that was sent first counts" if changed else ""
    if record.phase == "done":
        return Adopt(f"{_work(record)} was done at {utc(record.at)}: nothing is written{note}")
    return _attach(record, since, choices, changed=changed)


def _attach(record: Record, since: str, choices: Choices, *, changed: bool) -> Attach:
    """Go on with an unfinished write, which another one may have to follow."""
    if since == "cleared" and choices.on_clear == "new":
        return Attach(f"cleared, on_clear is new: {_work(record)} must come to its end first", renew=True)
    if changed and since != "same":
        return Attach(f"cleared with other data: {_work(record)} must be settled first", settle=True)
    note = "; the source has changed since, the data that was sent first counts" if changed else ""
    return Attach(f"record {record.phase}: re-attached to {_work(record)}{note}")


def _begin_after_done(record: Record, since: str, choices: Choices, *, other: bool) -> Start | Adopt | Ambiguous:
    """Decide about a finished write that may be wanted again."""
    done = f"{_work(record)} was done at {utc(record.at)}"
    if since == "cleared":
        return Start(f"{done} and the task was cleared since: new write")
    why = f"{done}, and a task of this DAG run was cleared since, perhaps this one"
    return settle_doubt(Ambiguous(why, may_still_apply=False, doubt=True, unwritten=other), record, choices)


def unanswered(record: Record, choices: Choices, *, unwritten: bool = False) -> Start | Adopt | Ambiguous:
    """Decide about a request that nobody knows an answer of: it may be applied at any later time.

    Args:
        record: What was stored before it was sent.
        choices: What a person has decided beforehand.
        unwritten: See `Ambiguous`.
    """
    why = f"{record.op}: the request had no answer, or a try ended when about to send it"
    return settle_doubt(Ambiguous(why, unwritten=unwritten), record, choices)


def settle_doubt(found: Ambiguous, record: Record, choices: Choices) -> Start | Adopt | Ambiguous:
    """Go the way that a person has chosen beforehand, where it is open.

    Args:
        found: What cannot be known.
        record: What was stored.
        choices: What a person has decided beforehand.

    Returns:
        What to do. A request without an answer is never sent again: it may be applied at any later time.
    """
    if choices.on_unknown == "assume_done" and not found.unwritten:
        return Adopt(f"{found.why}; taken for done, as on_unknown says")
    repeatable = not found.may_still_apply or record.op in ("append", "upload")
    if choices.on_unknown == "resubmit" and repeatable and record.phase not in UNANSWERED:
        return Start(f"{found.why}; written again, as on_unknown says")
    return found


def _different(record: Record) -> errors.DifferentWrite:
    """Say that the task asks for another write than the one it must first account for."""
    way = (
        "clear the task to write anew (not with on_clear='resume')"
        if record.phase == "done"
        else "let that one finish with the task as it was"
    )
    return errors.DifferentWrite(
        f"the stored record is of another write ({record.op} on table {record.table_id}, {_work(record)},"
        f" {record.phase}); {way}, or delete the record once you know whether it was applied"
    )


def _work(record: Record) -> str:
    """Name what a record is about: its job, or the operation that has none."""
    return f"job {record.job_id}" if record.job_id else record.op


def weigh(
    record: Record,
    read: Attached,
    *,
    policy: Policy,
    no_data_statuses: tuple[str, ...],
    attach: Attach | None = None,
    choices: Choices = Choices(),
) -> Start | Adopt | Hold | Clean | Ambiguous:
    """Decide about a recorded job, from what was read: the clock first, then the job.

    Args:
        record: The unfinished record.
        read: What was read.
        policy: What the connection says.
        no_data_statuses: Job statuses that mean that no data has arrived.
        attach: Why an earlier try's job is followed; None for a job of this try.
        choices: What a person has decided beforehand.

    Returns:
        What to do.
    """
    found = _weigh(record, read, attach or Attach(""), policy, no_data_statuses)
    return settle_doubt(found, record, choices) if isinstance(found, Ambiguous) else found


def _weigh(
    record: Record, read: Attached, attach: Attach, policy: Policy, no_data_statuses: tuple[str, ...]
) -> Start | Adopt | Hold | Clean | Ambiguous:
    leased = read.now < record.lease
    if read.job is None:
        return _weigh_unknown(record, read, policy)
    reading = judge(read.job)
    if reading.verdict is Verdict.RUNNING:
        return _weigh_running(record, read, reading.status, no_data_statuses)
    if reading.verdict is Verdict.FAILED and leased and record.phase != "sent":
        return Hold(f"job {record.job_id} FAILED, but its data may still arrive", record.lease)
    if attach.renew:
        return Start(f"job {record.job_id} {reading.status}, and the task was cleared: new write")
    if reading.verdict is Verdict.FAILED:
        return _weigh_failed(record, read, reading.error, attach, policy)
    if attach.settle:
        why = "the earlier content was written; the new one was not"
        return Ambiguous(why, may_still_apply=False, unwritten=True)
    return Adopt(f"job {record.job_id} COMPLETED")


def _weigh_unknown(record: Record, read: Attached, policy: Policy) -> Start | Hold | Ambiguous:
    job = f"job {record.job_id}"
    if read.now < record.lease:
        return Hold(f"{job} is not known to the service", record.lease)
    if policy.only_finished_jobs_vanish and read.unchanged:
        why = f"{job} is not known any more, so it has ended, and the table is as it was: new write"
        return Start(why, clean=True)
    return Ambiguous(f"{job} is not known to the service any more, which proves nothing")


def _weigh_failed(
    record: Record, read: Attached, error: str, attach: Attach, policy: Policy
) -> Start | Clean | Ambiguous:
    atomic = policy.failed_jobs_are_atomic
    if atomic is None:
        atomic = record.op in ("overwrite", "upsert")
    if not (read.unchanged or atomic):
        why = f"job {record.job_id} FAILED ({error}), and the table may have changed since"
        return Ambiguous(why, may_still_apply=False, unwritten=attach.settle)
    if record.phase != "sent" or attach.settle:
        return Start(f"job {record.job_id} failed and changed nothing ({error}): new write", clean=True)
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
        return Start(f"{job} is {status} and can no longer get data: new write", clean=True)
    arrived = status.upper() != record.seen.upper() if record.seen else bool(no_data_statuses)
    if arrived:
        return Hold(f"{job} is {status}, as its data has arrived")
    return Ambiguous(f"{job} is {status}, perhaps as before its data was sent, which proves nothing")


def is_unchanged(record: Record, info: DatasetInfoResponse) -> bool:
    """Say whether a table certainly is as it was; without a snapshot only one that has no rows tells."""
    if record.snapshot:
        return info.snapshot_id == record.snapshot
    return not info.snapshot_id and record.rows == info.row_count == 0
