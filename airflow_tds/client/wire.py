"""The wire map, whole: it builds every request (asking.py) and reads every reply, by the forms of forms.py.

Pure: nothing is sent here, and no path, name or status stands here: they are data. How a route is written and
filled is routes.py's, how a value is read replies.py's, which error a reply is refusals.py's. The embedded
service builds its router from the same map.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from airflow_tds.client import errors
from airflow_tds.client.asking import LARGEST_PAGE, Asking, Initiation, WriteOperation
from airflow_tds.client.forms import LATER_WRITES, PROFILES
from airflow_tds.client.messages import Reply, Request, SecretUrl
from airflow_tds.client.models import (
    DataJobResponse,
    DatasetInfoResponse,
    PageMetadata,
    QueryResponse,
)
from airflow_tds.client.refusals import Kind, refusal, storage_refusal
from airflow_tds.client.replies import (
    ERROR_TEXT,
    at,
    clean,
    date_of,
    document_of,
    find,
    fit,
    lifetime_in,
    lines_of,
    model_of,
    moment_of,
    put_headers,
    reason_of,
    record_of,
    required,
    retry_after,
    shown,
    unsigned,
)
from airflow_tds.client.routes import Route

__all__ = ["LARGEST_PAGE", "PROFILES", "Initiation", "Poll", "Route", "Wire", "WriteOperation", "retry_after"]

#: "The table has not changed", §4.2 rule 3.
NOT_MODIFIED = 304
#: "The path is there, the method is not": certainly another route than the one assumed.
NOT_ALLOWED = 405
#: An answer's word for a job's status keeps this much: it travels in events and logs.
STATUS_TEXT = 64
_SUCCESS = range(200, 300)


@dataclass(frozen=True)
class Poll:
    """What the poll path said of a query job, §4.2.

    Attributes:
        job: The job record; its status is COMPLETED once the result can be fetched.
        result: Where the result is; None until it can be fetched.
    """

    job: DataJobResponse
    result: SecretUrl | None = None


class Wire(Asking):
    """The wire map: how each request is built and each reply read, by the forms that it holds.

    A subclass that replaces one builder or reader says what settings cannot.
    """

    # ---- replies

    def read_info(self, reply: Reply) -> DatasetInfoResponse:
        """Read a table's statistics; counts may be digit strings, times ISO 8601 or epoch (assumed)."""
        document = document_of(reply, "info")
        if isinstance(document, dict):  # what else it holds is kept
            document |= {name: find(document, getattr(self, name), "info") for name in DatasetInfoResponse.model_fields}
        return model_of(DatasetInfoResponse, document, "info")

    def read_job(self, reply: Reply) -> DataJobResponse:
        """Read a job's record; `error` may be text or an object (assumed)."""
        return self._job(record_of(reply, "get_job"), "get_job")

    def _job(self, document: Any, operation: str) -> DataJobResponse:
        """Read a job; its words go to logs and events, so they are made fit for them here."""
        if not isinstance(document, dict):
            return model_of(DataJobResponse, document, operation)
        status, error = find(document, self.job_status, operation), find(document, self.job_error, operation)
        if isinstance(status, str):  # what is no text is refused below
            status = self._status(fit(status)[:STATUS_TEXT])
        text = None if error is None else fit(reason_of(error))[:ERROR_TEXT]
        return model_of(DataJobResponse, {**document, "status": status, "error": text}, operation)

    def _status(self, word: str) -> str:
        """Give the interface's word for a final status, and any other as it is."""
        if word.lower() in map(str.lower, self.completed):
            return word if self.completed == ("COMPLETED",) else "COMPLETED"
        if word.lower() in map(str.lower, self.failed):
            return word if self.failed == ("FAILED",) else "FAILED"
        return word

    def read_initiation(self, reply: Reply) -> Initiation:
        """Read the answer to a write's initiation."""
        document = document_of(reply, "initiation")
        job_id = required(document, self.job_id, "initiation", "job_id")
        return self._uploadable(reply, document, job_id, "")

    def read_presigned(self, reply: Reply) -> Initiation:
        """Read where the data goes of a write that is committed afterwards."""
        document = document_of(reply, "presign")
        name = required(document, self.upload_object, "presign", "upload_object")
        return self._uploadable(reply, document, "", name)

    def _uploadable(self, reply: Reply, document: Any, job_id: str, upload_object: str) -> Initiation:
        url = required(document, self.upload_url, "initiation", "upload_url")
        return Initiation(
            job_id,
            SecretUrl(url),
            put_headers(find(document, self.upload_headers, "initiation")),
            self._lifetime(reply, find(document, self.expires_at, "initiation"), url),
            upload_object,
        )

    def read_page(self, reply: Reply) -> QueryResponse | None:
        """Read a page; None when nothing has changed (304). Rows are handed on as they are, unchecked."""
        if reply.status == NOT_MODIFIED:
            return None
        document = lines_of(reply, "query") if self.page_layout == "lines" else document_of(reply, "query")
        items = document if self.page_layout == "lines" else find(document, self.items, "query")
        if not isinstance(items, list):
            raise errors.UnexpectedReply("query: the reply holds no list of items", field="items")
        said = at(document, "/metadata")
        counted = {name: self._counted(reply, document, name) for name in ("total_count", "has_next")}
        metadata = model_of(PageMetadata, {**(said if isinstance(said, dict) else {}), **counted}, "query, metadata")
        etag = find(document, self.etag, "query")
        if not isinstance(etag, str):
            etag = reply.headers.get(self.etag_header.lower(), "").removeprefix("W/").strip('"')
        return QueryResponse.model_construct(items=self._rows(document, items), metadata=metadata, etag=etag)

    def _counted(self, reply: Reply, document: Any, name: str) -> Any:
        """Read what a page says of itself: in its document, or in a header."""
        header: str = getattr(self, f"{name}_header")
        told = reply.headers.get(header.lower()) if header else None
        return find(document, getattr(self, name), "query") if told is None else told

    def _rows(self, document: Any, items: list[Any]) -> list[Any]:
        """Give rows as objects; where columns have a place of their own, each row is a list of values."""
        if not self.columns:
            return items
        columns = find(document, self.columns, "query")
        try:
            return [dict(zip(columns, row, strict=True)) for row in items]
        except (TypeError, ValueError):
            raise errors.UnexpectedReply("query: columns and rows do not fit each other", field="columns") from None

    def read_job_id(self, reply: Reply, operation: str = "submit_cross_query") -> str:
        """Read the id of a job that was started."""
        return required(document_of(reply, operation), self.job_id, operation, "job_id")

    def read_poll(self, reply: Reply) -> Poll:
        """Read how a query stands: pending, ready, or failed, §4.2 and §7."""
        if reply.status in self.ready:
            location = reply.headers.get("location", "")
            if not location:
                return Poll(DataJobResponse(status="FAILED", error="the redirect names no result (§7)"))
            return Poll(DataJobResponse(status="COMPLETED"), SecretUrl(location))
        if reply.status in self.poll_failed:
            error = shown(clean(reply.content), self.error_detail) or f"HTTP {reply.status}"
            return Poll(DataJobResponse(status="FAILED", error=error))
        if self.poll_by == "get_job" and reply.status not in self.pending:
            return Poll(self.read_job(reply))
        return Poll(self._pending(reply))

    def _pending(self, reply: Reply) -> DataJobResponse:
        pending = DataJobResponse(status="PENDING")
        try:
            job = self._job(record_of(reply, "poll_query"), "poll_query") if reply.content else pending
        except errors.UnexpectedReply:
            if reply.status not in self.pending:
                raise
            return pending  # the status alone says it; what its body looks like is not shown (§4.2)
        # a result is what the redirect names; until then it is pending
        return pending if job.status.lower() == "completed" else job

    def _lifetime(self, reply: Reply, told: Any, url: str) -> float:
        """Seconds that an upload URL lives, rather too long than too short: a lease rests on it.

        Moments are compared with the server's own clock. Where it does not tell its time, ours may be
        wrong, so the assumed lifetime is the least.
        """
        least = 0.0
        now = date_of(reply.headers.get("date", ""))
        if now is None:
            now, least = datetime.now(UTC), self.upload_url_lifetime
        if told is not None:
            return max(least, (moment_of(told, "expires_at") - now).total_seconds())
        found = lifetime_in(url, now)
        return self.upload_url_lifetime if found is None else max(least, found)

    # ---- errors

    def error(self, request: Request, reply: Reply) -> errors.TableServiceError | None:
        """Say what error a reply is, if it is one; redirects are errors except on the poll path."""
        to_store = isinstance(request.target, SecretUrl)
        kind = None if to_store else self._kind(reply)
        if reply.status in _SUCCESS and kind is None:
            return None
        known_as_good = {
            "poll_query": (*self.ready, *self.pending, *self.poll_failed),
            "query_json": (NOT_MODIFIED,),
        }
        if reply.status in known_as_good.get(request.operation, ()):
            return None
        text = clean(reply.content)
        if isinstance(request.target, SecretUrl):
            text = unsigned(text, request.target.reveal())
        said = shown(text, self.error_detail)
        doubt = "" if to_store else self._doubt(request, reply.status, kind)
        message = f"{request.operation}, {request.subject}: HTTP {reply.status}{': ' if text else ''}{said}{doubt}"
        known: dict[str, Any] = {"status": reply.status, "body": text, "request_id": reply.request_id}
        if to_store:
            return storage_refusal(request, reply, message, known)
        if reply.status == NOT_ALLOWED and kind is None:
            return errors.WireMismatch(message, operation=request.operation, **known)
        return refusal(kind, request, reply, message, known)

    def _kind(self, reply: Reply) -> Kind | None:
        """Find the kind of a status, or of a status and the code in its body."""
        coded = any(key.startswith(f"{reply.status} ") for key in self.error_kinds)
        if coded and reply.content:
            try:
                code = find(document_of(reply, "error"), self.error_code, "error")
            except errors.UnexpectedReply:
                code = None
            found = self.error_kinds.get(f"{reply.status} {code}")
            if found is not None:
                return found
        return self.error_kinds.get(str(reply.status))

    def _open_route(self, request: Request) -> Route | None:
        """Give the route of a request if the interface does not fix it."""
        found = getattr(self, request.operation, None)
        return found if isinstance(found, Route) and found.source in ("assumed", "set") else None

    def _doubt(self, request: Request, status: int, kind: Kind | None) -> str:
        """Say what else a 404 or 405 may mean: that the service has another route than the one assumed."""
        if kind not in ("not_found", "table_not_found", "job_not_found") and (kind or status != NOT_ALLOWED):
            return ""
        hint = self._open_route(request)
        if hint is None:
            return ""
        return (
            f" (or the service does not have {hint.method} {hint.path}, which {_why(hint)}:"
            f" the connection's wire setting {request.operation!r} overrides it, see docs/wire.md)"
        )

    def probe_request(self, request: Request, error: errors.TableServiceError) -> Request | None:
        """Build what tells a missing route from a missing table: the fixed query route, §4.2.

        Returns:
            The request; None when the error is no 404 of a table, or its route is fixed.
        """
        if not isinstance(error, errors.TableNotFound) or self._open_route(request) is None:
            return None
        least = 1 if self.query_json.carries("limit") else None
        return self.page_request(request.subject.removeprefix("table "), None, least, 0, "")

    def mismatch(self, request: Request, error: errors.Refused) -> errors.WireMismatch:
        """Say that a table is there and its route is not.

        Args:
            request: What was refused, by a route that the interface does not fix.
            error: How.
        """
        hint = self._route(request.operation)
        text = (
            f"{request.operation}, {request.subject}: HTTP {error.status}, yet the table is there: the service does"
            f" not have {hint.method} {hint.path}, which {_why(hint)}. The connection's wire setting"
            f" {request.operation!r} overrides it, see docs/wire.md; airflow-tds doctor --scratch-table TABLE looks for"
            " the right one and proves it"
        )
        if request.operation in ("overwrite", "upsert"):
            text += (
                f'. If the service takes every later write at {LATER_WRITES}, the setting "wire": "patch" says so;'
                " a service that ignores update_mode would then append: have the doctor prove it first"
            )
        return errors.WireMismatch(
            text, operation=request.operation, status=error.status, body=error.body, request_id=error.request_id
        )


def _why(hint: Route) -> str:
    return "is assumed" if hint.source == "assumed" else "was set"
