"""What a reply that says no means: its kind by status, or by status and a code in the body, §7.

Pure. Which status is which kind is data of the wire map; what the object store says is not the service's to
choose and stands here.
"""

from __future__ import annotations

from typing import Any, Literal

from airflow_tds.client import errors
from airflow_tds.client.messages import Reply, Request
from airflow_tds.client.replies import retry_after

__all__ = ["SILENT_KINDS", "Kind", "refusal", "storage_refusal"]

#: The kinds of §7 that a service can answer.
Kind = Literal[
    "validation",
    "unauthorized",
    "forbidden",
    "not_found",
    "table_not_found",
    "job_not_found",
    "conflict",
    "length_required",
    "unavailable",
    "refused",
]
_CLASSES: dict[str, type[errors.Refused]] = {
    "validation": errors.ValidationFailed,
    "unauthorized": errors.Unauthorized,
    "forbidden": errors.Forbidden,
    "table_not_found": errors.TableNotFound,
    "job_not_found": errors.JobNotFound,
    "conflict": errors.Conflict,
    "length_required": errors.LengthRequired,
    "refused": errors.Refused,
}
#: Statuses of §7: 409 and 411 are stated, the others are the usual ones (assumed).
SILENT_KINDS: dict[str, Kind] = {
    "400": "validation",
    "401": "unauthorized",
    "403": "forbidden",
    "404": "not_found",
    "409": "conflict",
    "411": "length_required",
    "422": "validation",
}


def refusal(kind: Kind | None, request: Request, reply: Reply, message: str, known: dict[str, Any]) -> errors.Refused:
    """Make the error of what the service refused.

    Args:
        kind: What the map says of it; None when it says nothing.
        request: What was sent.
        reply: What came back.
        message: The error's text.
        known: What every such error keeps.
    """
    if kind == "unavailable" or (kind is None and _is_unavailable(reply.status)):
        return errors.ServerError(message, **known, retry_after=retry_after(reply))
    if kind == "not_found":
        kind = "job_not_found" if request.subject.startswith("job ") else "table_not_found"
    return _CLASSES[kind or "refused"](message, **known)


def storage_refusal(request: Request, reply: Reply, message: str, known: dict[str, Any]) -> errors.Refused:
    """Make the error of what the object store refused."""
    unmeasured = request.body is not None and request.body.length is None
    if reply.status == 411 or (reply.status == 501 and unmeasured):  # noqa: PLR2004  # S3 says 501 to chunked
        return errors.LengthRequired(message, **known)
    if _is_unavailable(reply.status):
        return errors.ServerError(message, **known, retry_after=retry_after(reply))
    return errors.StorageRefused(message, **known)


def _is_unavailable(status: int) -> bool:
    return status in (408, 429) or status >= 500  # noqa: PLR2004  # 5xx
