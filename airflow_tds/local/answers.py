"""What the service says, put wherever the wire map reads it: the other side of the map's pointers.

Of several pointers for a value the first is served. What the interface does not name stands beside the value
that it belongs to, and never where the map would read it for something else. Which status a refusal has is the
map's word as well (§7). Nothing here decides anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from pydantic_core import to_json
from starlette.responses import Response

from airflow_tds.client import errors
from airflow_tds.client.wire import Wire
from airflow_tds.local.inputs import pointer_keys
from airflow_tds.local.pages import Page
from airflow_tds.local.records import Job

__all__ = ["Answers"]

#: Answers of these statuses have no body.
_EMPTY = (204, 304)
_LINES = "application/x-ndjson"
#: The wire map's words for what is refused, the most special first.
_KINDS: dict[type[errors.Refused], tuple[str, ...]] = {
    errors.Unauthorized: ("unauthorized",),
    errors.Forbidden: ("forbidden",),
    errors.TableNotFound: ("table_not_found", "not_found"),
    errors.JobNotFound: ("job_not_found", "not_found"),
    errors.Conflict: ("conflict",),
    errors.ValidationFailed: ("validation",),
    errors.LengthRequired: ("length_required",),
    errors.ServerError: ("unavailable",),
}
#: Where the map has no status for a kind.
_BAD_REQUEST, _UNAVAILABLE = 400, 503


class Answers:
    """Makes answers as the wire map reads them.

    Args:
        wire: The map.
    """

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._refusals = {
            kind: (int(found[1]), found[2])
            for key, kind in wire.error_kinds.items()
            if (found := re.fullmatch(r"([1-5]\d\d)(?: (.+))?", key))
        }

    # ---- what is well

    def statistics(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """Give a table's statistics, §2.2, by their names; what else is known stands beside the number of rows."""
        names = ("row_count", "total_size_bytes", "data_files", "last_updated", "snapshot_id")
        beside = {name: value for name, value in known.items() if name not in names}
        return document([(getattr(self._wire, name), known[name]) for name in names], beside)

    def initiated(self, job_id: str, upload: Mapping[str, Any]) -> dict[str, Any]:
        """Give a job, and where its data goes."""
        return document([(_named(self._wire.job_id), job_id), *self._upload(upload)])

    def presigned(self, name: str, upload: Mapping[str, Any]) -> dict[str, Any]:
        """Give the name of data whose write is committed later, and where it goes."""
        return document([(_named(self._wire.upload_object), name), *self._upload(upload)])

    def started(self, job_id: str) -> Any:
        """Give a job that was started."""
        bare = not self._wire.job_id or not self._wire.job_id[0]
        return job_id if bare else document([(self._wire.job_id, job_id)])

    def record(self, job: Job, told: Mapping[str, Any], *, running: bool) -> dict[str, Any]:
        """Give a job's record, §2.3; fields that do not apply yet are left out."""
        status = self.status(job, running=running)
        error = [(self._wire.job_error, job.error)] if job.error is not None else []
        return document([(self._wire.job_status, status), *error], told, unless=self._wire.job_error)

    def status(self, job: Job, *, running: bool) -> str:
        """Give the map's word for a job's status."""
        if job.status == "completed":
            return (self._wire.completed or ("COMPLETED",))[0]
        if job.status == "failed":
            return (self._wire.failed or ("FAILED",))[0]
        if job.status == "queued" and job.spec.get("fault") != "hides_its_data":
            return "RUNNING" if running else "QUEUED"
        return (self._wire.no_data_statuses or ("AWAITING",))[0]

    def page(self, page: Page) -> Response:
        """Give a page, §2.4; its rows are JSON texts already."""
        wire, headers = self._wire, self.etag(page.snapshot_id)
        headers |= {wire.total_count_header: str(page.total)} if wire.total_count_header else {}
        headers |= {wire.has_next_header: str(page.has_next).lower()} if wire.has_next_header else {}
        if wire.page_layout == "lines":
            return Response("".join(f"{row}\n" for row in page.rows), headers=headers, media_type=_LINES)
        return Response(self._document(page), headers=headers, media_type="application/json")

    def _document(self, page: Page) -> bytes:
        wire, mark = self._wire, uuid4().hex
        said = document(
            [
                (wire.items, mark),
                (wire.columns, list(page.columns)),
                (wire.total_count, page.total),
                (wire.has_next, page.has_next),
                (wire.etag, page.snapshot_id),
            ]
        )
        before, _, after = json.dumps(said, separators=(",", ":")).partition(f'"{mark}"')
        return f"{before}[{','.join(page.rows)}]{after}".encode()

    def etag(self, snapshot_id: str) -> dict[str, str]:
        """Give the header field of a snapshot; a table that never had data has none, §2.4."""
        return {self._wire.etag_header: f'"{snapshot_id}"'} if snapshot_id and self._wire.etag_header else {}

    def pending(self, record: Mapping[str, Any]) -> Response:
        """Answer a poll while the result is not ready."""
        return said(record, self._wire.pending[0] if self._wire.pending else 200)

    def failed(self, record: Mapping[str, Any], error: str) -> Response:
        """Answer a poll of a query that failed."""
        if not self._wire.poll_failed:
            return said(record)
        return said(self._refusal(error, None), self._wire.poll_failed[0])

    # ---- what is refused

    def refused(self, refused: errors.Refused, headers: Mapping[str, str] | None = None) -> Response:
        """Give the answer to a request that is refused."""
        status, code = (refused.status, None) if refused.status else self._status_of(type(refused))
        return said(self._refusal(str(refused), code), status, headers)

    def unavailable(self, why: str, headers: Mapping[str, str]) -> Response:
        """Say that the service cannot serve now."""
        status, code = self._status_of(errors.ServerError)
        return said(self._refusal(why, code), status, headers)

    def status_of(self, kind: type[errors.Refused]) -> int:
        """Give the HTTP status of a kind of refusal; of several for a kind the last one of the map is answered."""
        return self._status_of(kind)[0]

    def has_word(self, kind: type[errors.Refused]) -> bool:
        """Say whether the map has a status for a kind of refusal."""
        words = next((words for known, words in _KINDS.items() if issubclass(kind, known)), ())
        return any(word in self._refusals for word in words)

    def _status_of(self, kind: type[errors.Refused]) -> tuple[int, str | None]:
        words = next((words for known, words in _KINDS.items() if issubclass(kind, known)), ())
        otherwise = _UNAVAILABLE if issubclass(kind, errors.ServerError) else _BAD_REQUEST
        return next((self._refusals[word] for word in words if word in self._refusals), (otherwise, None))

    def _refusal(self, text: str, code: str | None) -> Any:
        pointers = self._wire.error_detail or ("/detail",)
        if not pointers[0] and code is None:
            return text
        coded = [(self._wire.error_code, code)] if code is not None else []
        return document([*coded, (_named(pointers) or ("/detail",), text)])

    def _upload(self, upload: Mapping[str, Any]) -> list[tuple[Sequence[str], Any]]:
        wire = self._wire
        headers = [(wire.upload_headers, upload["headers"])] if upload["headers"] else []
        return [(_named(wire.upload_url), upload["url"]), *headers, (wire.expires_at, upload["expires_at"])]


def said(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Give an answer with a JSON document, or with nothing where its status allows for none."""
    given = dict(headers or {})
    if status in _EMPTY:
        return Response(status_code=status, headers=given)
    return Response(to_json(content), status, given, media_type="application/json")


def _named(pointers: Sequence[str]) -> tuple[str, ...]:
    """Leave out the pointer to a bare text: there is more to say."""
    return tuple(pointer for pointer in pointers if pointer)


def document(
    values: Sequence[tuple[Sequence[str], Any]],
    beside: Mapping[str, Any] | None = None,
    unless: Sequence[str] = (),
) -> dict[str, Any]:
    """Make a document with each value at the first of its pointers; what has no pointer is left out.

    Args:
        values: Pointers and their value.
        beside: What else is known; it stands in the object that holds the first value, None is left out.
        unless: Further pointers at which nothing else may stand.
    """
    made: dict[str, Any] = {}
    above = pointer_keys(next((pointers[0] for pointers, _ in values if pointers), ""))[:-1]
    read = [pointer_keys(pointer) for pointers, _ in values for pointer in pointers] + list(map(pointer_keys, unless))
    taken = {keys[-1] for keys in read if keys[:-1] == above}
    known = {name: value for name, value in (beside or {}).items() if value is not None and name not in taken}
    _object(made, above).update(known)
    for pointers, value in values:
        if pointers:
            *higher, last = pointer_keys(pointers[0])
            _object(made, higher)[last] = value
    return made


def _object(made: dict[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """Give the object at a place, made where it is missing."""
    for key in keys:
        if not isinstance(made.get(key), dict):
            made[key] = {}
        made = made[key]
    return made
