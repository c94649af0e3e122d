"""Waiting as values: what is waited for, what was read, how it ended.

Pure: no I/O and no clock; every time is given, in POSIX seconds. Client, hook, operator, sensor and
trigger share these values, so that deferring changes where a wait happens and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, Self, TypeVar

from airflow_tds.client import errors
from airflow_tds.client.conditions import Conditions
from airflow_tds.client.messages import Reply, Request
from airflow_tds.client.models import DataJobResponse, DatasetInfoResponse
from airflow_tds.client.wire import Wire

__all__ = ["GRACE", "Outcome", "Reading", "Verdict", "Watch", "judge", "judge_table", "judge_truncated"]

#: Between two reads the pause grows with the time already waited, by this factor, up to the poll interval:
#: short jobs are seen soon, long ones cost little, and a wait taken over by another process goes on at its pace.
GROWTH = 0.5
#: Seconds after a wait began in which "not found" is no news: a record may appear late on another node.
GRACE = 60.0


_V = TypeVar("_V", bound="Watch | Outcome")


class Verdict(StrEnum):
    """What a reading means for whoever waits."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True)
class Reading:
    """One look at what is waited for.

    Attributes:
        verdict: What it means.
        status: The service's own word.
        error: Why it failed; empty otherwise.
    """

    verdict: Verdict
    status: str
    error: str = ""


def judge(job: DataJobResponse) -> Reading:
    """Judge a job; total: whatever is neither COMPLETED nor FAILED is running, §2.3 (case does not matter)."""
    known = {"completed": Verdict.COMPLETED, "failed": Verdict.FAILED}
    verdict = known.get(job.status.lower(), Verdict.RUNNING)
    error = (job.error or "no reason given") if verdict is Verdict.FAILED else ""
    return Reading(verdict, job.status, error)


def judge_truncated(info: DatasetInfoResponse, snapshot: str = "") -> Reading:
    """Judge whether a truncation has taken effect: row_count is falsy then, §3.1.

    Args:
        info: The table's statistics.
        snapshot: The snapshot before; where given and told, another one must have taken its place.

    Raises:
        UnexpectedReply: row_count is missing, so nothing can be judged.
    """
    if info.row_count is None:
        raise errors.UnexpectedReply("info: row_count is missing, so a truncation cannot be seen", field="row_count")
    waits = info.row_count or (snapshot and info.snapshot_id == snapshot)
    return Reading(Verdict.RUNNING if waits else Verdict.COMPLETED, f"{info.row_count} rows")


def judge_table(info: DatasetInfoResponse, conditions: Conditions) -> Reading:
    """Judge whether a table's statistics say what they are asked to say.

    Args:
        info: The table's statistics.
        conditions: What is asked.

    Raises:
        UnexpectedReply: A number that is asked for is missing.
    """
    unmet = conditions.unmet(info)
    return Reading(Verdict.RUNNING if unmet else Verdict.COMPLETED, "; ".join(unmet) or "as wanted")


@dataclass(frozen=True)
class Watch:
    """A wait: JSON scalars only, so that a trigger can carry it.

    Attributes:
        kind: `write` and `query` name a job, `truncation` and `table` name a table.
        subject: The job's or the table's id.
        started: When the wait began, POSIX seconds.
        deadline: When it ends at the latest, POSIX seconds.
        poll_interval: Longest pause between two reads, seconds.
        first_pause: Shortest pause between two reads, seconds.
        snapshot: For `truncation`: the snapshot that must have been replaced; empty for any.
        lease: For `write`: POSIX seconds until which data may still arrive, so that FAILED is not final; 0 for never.
        conditions: For `table`: what its statistics are asked to say, as `Conditions.to_text` writes it.
    """

    kind: Literal["write", "query", "truncation", "table"]
    subject: str
    started: float
    deadline: float
    poll_interval: float = 5.0
    first_pause: float = 0.5
    snapshot: str = ""
    lease: float = 0.0
    conditions: str = ""

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Read a watch that another process, perhaps of another version, has written.

        Raises:
            UnexpectedReply: The values are not a watch.
        """
        watch = _made(cls, values, "the stored watch is none")
        if watch.kind not in ("write", "query", "truncation", "table"):
            raise errors.UnexpectedReply(f"the stored watch has the unknown kind {watch.kind!r}")
        return watch

    def to_json(self) -> dict[str, Any]:
        """Write the watch as a flat JSON object."""
        return dict(vars(self))

    @property
    def key(self) -> tuple[str, ...]:
        """What two waits have in common if one look serves both."""
        return self.kind, self.subject, self.snapshot, self.conditions

    def pause(self, now: float) -> float:
        """Say how long to pause before the next read, in seconds; cut to the deadline."""
        grown = max(self.first_pause, (now - self.started) * GROWTH)
        return max(0.0, min(self.poll_interval, grown, self.deadline - now))

    def over(self, now: float) -> bool:
        """Say whether the wait is over."""
        return now >= self.deadline

    def request(self, wire: Wire) -> Request:
        """Build the request that looks."""
        make = {"write": wire.job_request, "query": wire.poll_request}
        return make.get(self.kind, wire.info_request)(self.subject)

    def read(self, wire: Wire, reply: Reply) -> Reading:
        """Read and judge what came back."""
        if self.kind == "table":
            return judge_table(wire.read_info(reply), Conditions.from_text(self.conditions))
        if self.kind == "truncation":
            return judge_truncated(wire.read_info(reply), self.snapshot)
        return judge(wire.read_job(reply) if self.kind == "write" else wire.read_poll(reply).job)

    def outcome(self, reading: Reading, now: float) -> Outcome | None:
        """Say how the wait ended, or None while it goes on."""
        waited = now - self.started
        leased = reading.verdict is Verdict.FAILED and now < self.lease
        if reading.verdict is Verdict.RUNNING or leased:
            if not self.over(now):
                return None
            goes_on = "" if self.kind == "table" else "; it goes on"
            text = f"{self._what} still {reading.status} after {waited:.0f} s{goes_on}"
            return Outcome("timed_out", self.subject, reading.status, waited, "WaitTimedOut", text)
        if reading.verdict is Verdict.FAILED:
            text = f"{self._what} failed: {reading.error}"
            return Outcome("failed", self.subject, reading.status, waited, "JobFailed", text)
        return Outcome("completed", self.subject, reading.status, waited)

    def broken(self, error: errors.TableServiceError, now: float) -> Outcome:
        """Say that the wait ended because it could not be read any more."""
        return Outcome("error", self.subject, "", now - self.started, type(error).__name__, str(error))

    @property
    def _what(self) -> str:
        names = {"truncation": f"truncation of table {self.subject}:", "table": f"table {self.subject}:"}
        return names.get(self.kind, f"job {self.subject}")


@dataclass(frozen=True)
class Outcome:
    """How a wait ended: JSON scalars only, so that a trigger's event can carry it.

    Attributes:
        kind: `completed`, `failed`, `timed_out`, or `error` when it could not be read any more.
        subject: The job's or the table's id.
        status: The last status seen, the service's own word.
        waited: Seconds since the wait began.
        error: Name of the error class; empty when completed.
        message: The error's text; empty when completed.
    """

    kind: Literal["completed", "failed", "timed_out", "error"]
    subject: str
    status: str
    waited: float
    error: str = ""
    message: str = ""

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Read an outcome that another process wrote; what is no outcome is an error, never a success.

        Raises:
            UnexpectedReply: The values are not an outcome.
        """
        outcome = _made(cls, values, "the trigger's event is no outcome of a wait")
        if outcome.kind not in ("completed", "failed", "timed_out", "error"):
            raise errors.UnexpectedReply(f"the trigger's event has the unknown kind {outcome.kind!r}")
        return outcome

    def to_json(self) -> dict[str, Any]:
        """Write the outcome as a flat JSON object."""
        return dict(vars(self))

    def check(self) -> None:
        """Return if the wait ended well.

        Raises:
            JobFailed: The job failed.
            WaitTimedOut: The deadline passed; the job goes on.
            TableServiceError: Whatever else ended the wait.
        """
        if self.kind == "completed":
            return
        error = errors.rebuild(self.error, self.message)
        if isinstance(error, errors.JobError):
            error.job_id = self.subject
        raise error


def _made(kind: type[_V], values: Any, otherwise: str) -> _V:
    """Make a value of a flat JSON object; names that this version does not know are left out."""
    try:
        return kind(**{name: values[name] for name in kind.__match_args__ if name in values})
    except TypeError:  # no object, or one that lacks what every version has written
        raise errors.UnexpectedReply(otherwise) from None
