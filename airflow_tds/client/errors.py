"""What can go wrong, in one tree.

    TableServiceError                  .outcome: not_sent | refused | unknown | done
    ├── Stopped                        told to stop before the next request (the task was killed)
    ├── TransportFailed                no complete answer came
    │   └── TlsFailed                  one side does not trust the other; trying again changes nothing
    ├── UnexpectedReply                an answer that the wire map cannot read
    │   └── UnreadableReply            no JSON at all: perhaps a page of something in between
    ├── CheckFailed                    a table is not as it was wanted to be
    ├── SnapshotChanged                the table changed between two pages of one reading
    ├── Refused                        a "no", by the service (.status) or by our own check (status None)
    │   ├── ValidationFailed (ValueError)
    │   │   └── DifferentWrite         the record belongs to another write
    │   ├── Unauthorized   Forbidden   Conflict
    │   ├── NotFound ── TableNotFound  JobNotFound
    │   ├── WireMismatch               an assumed route that the service does not have
    │   ├── StorageRefused             the object store said no ── LengthRequired (411)
    │   └── ServerError                5xx, 429
    ├── JobError
    │   ├── JobFailed
    │   └── WaitTimedOut (TimeoutError)    the wait is over, the job goes on
    └── AmbiguousWriteError            it cannot be known whether a write was applied; nothing was written

Only exception classes live here, and `rebuild`, which makes one from its name and text. Every class
takes its message first and the rest as keywords with defaults, so that all of them pickle. No message
holds a header, a credential or a presigned URL. Derived from §7; the classes beyond §7 are ours.
"""

from __future__ import annotations

from typing import Literal

__all__ = [
    "AmbiguousWriteError",
    "CheckFailed",
    "Conflict",
    "DifferentWrite",
    "Forbidden",
    "JobError",
    "JobFailed",
    "JobNotFound",
    "LengthRequired",
    "NotFound",
    "Outcome",
    "Refused",
    "ServerError",
    "SnapshotChanged",
    "Stopped",
    "StorageRefused",
    "TableNotFound",
    "TableServiceError",
    "TlsFailed",
    "TransportFailed",
    "Unauthorized",
    "UnexpectedReply",
    "UnreadableReply",
    "ValidationFailed",
    "WaitTimedOut",
    "WireMismatch",
    "rebuild",
]

Outcome = Literal["not_sent", "refused", "unknown", "done"]


class TableServiceError(Exception):
    """Anything that goes wrong with the service.

    Attributes:
        outcome: What is known of the request: `not_sent` (it never left), `refused` (the service did
            nothing), `unknown` (it may have been processed), `done` (it was processed).
    """

    outcome: Outcome = "unknown"


class Stopped(TableServiceError):
    """The work was told to stop; nothing was sent after that."""

    outcome: Outcome = "not_sent"


class TransportFailed(TableServiceError):
    """No complete answer came.

    Args:
        message: What happened, on which operation.
        outcome: `not_sent` when no connection was made, else `unknown`.
    """

    def __init__(self, message: str, *, outcome: Outcome = "unknown") -> None:
        super().__init__(message)
        self.outcome = outcome


class TlsFailed(TransportFailed):
    """One side does not trust the other's certificate, or they share no version of TLS: a matter of settings."""


class UnexpectedReply(TableServiceError):
    """An answer came that the wire map cannot read.

    Args:
        message: The operation, and what is missing or contradicts itself.
        field: The field that could not be read, or an empty string.
    """

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class UnreadableReply(UnexpectedReply):
    """An answer that is no JSON at all, such as a page of a proxy; a read that gets one is told again."""


class CheckFailed(TableServiceError):
    """A table is not as it was wanted to be; nothing else went wrong."""

    outcome: Outcome = "done"


class SnapshotChanged(TableServiceError):
    """The table changed between two pages, which would mix two snapshots; read it again."""

    outcome: Outcome = "done"


class Refused(TableServiceError):
    """A "no": by the service, or by our own check before anything was sent.

    Args:
        message: What was refused and why.
        status: HTTP status; None when refused before sending.
        body: The first 2 KiB of the answer's text.
        request_id: The id that was sent with the request.
    """

    outcome: Outcome = "refused"

    def __init__(self, message: str, *, status: int | None = None, body: str = "", request_id: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.body = body
        self.request_id = request_id
        self.outcome = "not_sent" if status is None else "refused"


class ValidationFailed(Refused, ValueError):
    """An invalid parameter, §7."""


class DifferentWrite(ValidationFailed):
    """The task's stored record belongs to another write (another table, operation or source)."""


class Unauthorized(Refused):
    """Missing or invalid authentication, §5."""


class Forbidden(Refused):
    """The caller lacks permission, §5."""


class NotFound(Refused):
    """The table or the job does not exist, §7."""


class TableNotFound(NotFound):
    """The table id does not exist, §7."""


class JobNotFound(NotFound):
    """The job id does not exist, §7."""


class Conflict(Refused):
    """Upload on a table that has, or has ever had, data, §3.1."""


class WireMismatch(Refused):
    """The service does not have a route that the wire map assumes.

    Args:
        message: Which form was assumed and which setting overrides it.
        operation: The operation, as in §4.1.
    """

    def __init__(
        self,
        message: str,
        *,
        operation: str = "",
        status: int | None = None,
        body: str = "",
        request_id: str = "",
    ) -> None:
        super().__init__(message, status=status, body=body, request_id=request_id)
        self.operation = operation


class StorageRefused(Refused):
    """The object store refused a PUT or GET: the URL expired, or was not meant for it."""


class LengthRequired(StorageRefused):
    """The object store wants the payload's length first (HTTP 411, §4)."""


class ServerError(Refused):
    """The service failed (5xx) or is too busy (429).

    Args:
        retry_after: Seconds that the service asks to wait; None when it does not say.
    """

    outcome: Outcome = "unknown"

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        body: str = "",
        request_id: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, status=status, body=body, request_id=request_id)
        self.retry_after = retry_after
        refused = status == 429 or (status == 503 and retry_after is not None)  # noqa: PLR2004  # by convention
        self.outcome = "refused" if refused else "unknown"


class JobError(TableServiceError):
    """A job did not come to a good end.

    Args:
        message: The job, and what happened to it.
        job_id: The job.
    """

    outcome: Outcome = "done"

    def __init__(self, message: str, *, job_id: str = "") -> None:
        super().__init__(message)
        self.job_id = job_id


class JobFailed(JobError):
    """The job ended in FAILED, or its redirect named no result, §7."""


class WaitTimedOut(JobError, TimeoutError):
    """The wait is over; the job goes on, §4.2 rule 8."""


class AmbiguousWriteError(TableServiceError):
    """It cannot be known whether a write was applied, so nothing more was written.

    Args:
        message: All that is known, and the ways on.
        may_still_apply: True when the earlier write may yet be applied; until that is settled,
            deleting the record can double rows.
        table_id: The table.
        job_id: The earlier write's job; empty when none is known.
        phase: How far the earlier write had come, as its record says.
        status: The job's status as it was last read; empty when it was not.
        snapshot_before: The table's snapshot before the write; empty when unknown.
        rows_before: Its row count before the write; None when unknown.
        snapshot_now: Its snapshot now; empty when unknown.
        rows_now: Its row count now; None when unknown.
        accepted_until: POSIX seconds until which data was accepted; 0 when nothing tells.
    """

    def __init__(
        self,
        message: str,
        *,
        may_still_apply: bool = True,
        table_id: str = "",
        job_id: str = "",
        phase: str = "",
        status: str = "",
        snapshot_before: str = "",
        rows_before: int | None = None,
        snapshot_now: str = "",
        rows_now: int | None = None,
        accepted_until: float = 0.0,
    ) -> None:
        super().__init__(message)
        self.may_still_apply = may_still_apply
        self.table_id = table_id
        self.job_id = job_id
        self.phase = phase
        self.status = status
        self.snapshot_before = snapshot_before
        self.rows_before = rows_before
        self.snapshot_now = snapshot_now
        self.rows_now = rows_now
        self.accepted_until = accepted_until


def _tree(root: type[TableServiceError]) -> dict[str, type[TableServiceError]]:
    found = {root.__name__: root}
    for child in root.__subclasses__():
        if child.__module__ == __name__:
            found |= _tree(child)
    return found


def rebuild(name: str, message: str) -> TableServiceError:
    """Make the error again that another process had, from its class name and text.

    Args:
        name: A class of this module; any other name gives `TableServiceError`.
        message: The error's text.

    Returns:
        The error, to be raised; its outcome is what its class says.
    """
    kind = _tree(TableServiceError).get(name, TableServiceError)
    error = kind(message)
    error.outcome = kind.outcome
    return error
