"""The wire map: pure functions that build every request and read every reply, by the forms of forms.py.

Nothing is sent here, and no path, name or status stands here: they are data. How a route is written and
filled is routes.py's, how a value is read replies.py's, which error a reply is refusals.py's. The embedded
service builds its router from the same map.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import ValidationError

from airflow_tds.client import errors
from airflow_tds.client.downloads import Download
from airflow_tds.client.filters import Filters, simple_expressions, structured
from airflow_tds.client.forms import LATER_WRITES, PROFILES, Forms
from airflow_tds.client.messages import Reply, Request, SecretUrl
from airflow_tds.client.models import (
    CrossQueryRequest,
    DataJobResponse,
    DatasetInfoResponse,
    PageMetadata,
    QueryResponse,
    describe,
)
from airflow_tds.client.payloads import Body
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
from airflow_tds.client.routes import Route, Strategy, merged, pointer_keys
from airflow_tds.client.rows import RowLayout, RowStyle

__all__ = ["LARGEST_PAGE", "PROFILES", "Initiation", "Poll", "Route", "Wire", "WriteOperation", "retry_after"]

WriteOperation = Literal["upload", "append", "overwrite", "upsert"]

#: The most rows that one page may hold, §8; and the most bytes, 6.5 KiB a row.
LARGEST_PAGE = 10_000
LARGEST_PAGE_BYTES = 64 * 1024 * 1024
#: The media type of a format that has none.
UNKNOWN_MEDIA = "application/octet-stream"
#: "The table has not changed", §4.2 rule 3.
NOT_MODIFIED = 304
#: "The path is there, the method is not": certainly another route than the one assumed.
NOT_ALLOWED = 405
#: An answer's word for a job's status keeps this much: it travels in events and logs.
STATUS_TEXT = 64
#: What may stand in an entity tag, quoted or not.
_ETAG = re.compile(r'(W/)?"[\x21\x23-\x7e]*"|[\x21\x23-\x7e]+')
_SUCCESS = range(200, 300)


@dataclass(frozen=True)
class Initiation:
    """The answer to a write's initiation: where its data goes.

    Attributes:
        job_id: The job that waits for the data; empty with the strategy `put_commit`, whose commit answers it.
        upload_url: Where the payload is PUT.
        upload_headers: Header fields that the PUT must carry.
        lifetime: Seconds from the answer on for which the URL can be used.
        upload_object: With `put_commit`: the name under which the commit speaks of the data.
    """

    job_id: str
    upload_url: SecretUrl
    upload_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    lifetime: float = 3600.0
    upload_object: str = ""


@dataclass(frozen=True)
class Poll:
    """What the poll path said of a query job, §4.2.

    Attributes:
        job: The job record; its status is COMPLETED once the result can be fetched.
        result: Where the result is; None until it can be fetched.
    """

    job: DataJobResponse
    result: SecretUrl | None = None


class Wire(Forms):
    """The wire map: how each request is built and each reply read, by the forms that it holds.

    A subclass that replaces one builder or reader says what settings cannot.
    """

    # ---- requests

    def info_request(self, table_id: str) -> Request:
        """Ask for a table's statistics, §2.2."""
        return self._to_table("info", table_id)

    def truncate_request(self, table_id: str) -> Request:
        """Ask for all rows of a table to be removed, §3.1."""
        return self._to_table("truncate", table_id)

    def strategy(self, operation: WriteOperation) -> Strategy:
        """Say how a write's payload gets to the service."""
        return self._route(operation).strategy or "initiate_put"

    def check_strategy(self, operation: WriteOperation, needed: Strategy) -> None:
        """Refuse a step of a strategy that is not the one by which a write's payload gets to the service.

        Raises:
            ValidationFailed: The map says another strategy for the operation.
        """
        strategy = self.strategy(operation)
        if strategy != needed:
            raise errors.ValidationFailed(
                f"{operation}: the wire map says the strategy {strategy}; this is a step of {needed}."
                f" submit_{operation} and {operation} of the client follow every strategy"
            )

    def initiate_request(
        self,
        operation: WriteOperation,
        table_id: str,
        data_format: str,
        key_columns: str | Sequence[str] | None,
    ) -> Request:
        """Announce a write; the answer names its job and where to PUT the data, §4.2 rule 1.

        Args:
            operation: `upload`, `append`, `overwrite` or `upsert`.
            table_id: The table.
            data_format: One of `write_formats`.
            key_columns: A name or a list of names, for upsert only; None otherwise.

        Raises:
            ValidationFailed: Unknown format, upsert without keys, keys where none belong, or another strategy.
        """
        self.check_strategy(operation, "initiate_put")
        return self._to_table(operation, table_id, self._write(operation, data_format, key_columns))

    def presign_request(
        self,
        operation: WriteOperation,
        table_id: str,
        data_format: str,
        key_columns: str | Sequence[str] | None,
    ) -> Request:
        """Ask where to PUT the data of a write that is committed afterwards; as `initiate_request`."""
        self.check_strategy(operation, "put_commit")
        self._write(operation, data_format, key_columns)  # refused now, not after the data is sent
        inputs = {"table_id": table_id, "format": self._format(self.presign, data_format)}
        return self._request("presign", f"table {table_id}", {}, inputs)

    def commit_request(
        self,
        operation: WriteOperation,
        table_id: str,
        data_format: str,
        key_columns: str | Sequence[str] | None,
        upload_object: str,
    ) -> Request:
        """Submit a write whose data is in the store; the answer names its job."""
        self.check_strategy(operation, "put_commit")
        inputs = self._write(operation, data_format, key_columns)
        return self._to_table(operation, table_id, inputs | {"object": upload_object})

    def direct_request(
        self,
        operation: WriteOperation,
        table_id: str,
        data_format: str,
        key_columns: str | Sequence[str] | None,
    ) -> Request:
        """Submit a write whose data is the request's body, to be added; the answer names its job."""
        self.check_strategy(operation, "direct")
        request = self._to_table(operation, table_id, self._write(operation, data_format, key_columns))
        media_type = self.media_types.get(data_format, UNKNOWN_MEDIA)
        return replace(request, headers=merged({"Content-Type": media_type}, request.headers))

    def put_request(self, initiation: Initiation, body: Body, *, limit: float) -> Request:
        """Send a write's payload to the object store, without credentials."""
        return Request(
            "put",
            f"job {initiation.job_id}" if initiation.job_id else f"object {initiation.upload_object}",
            "PUT",
            initiation.upload_url,
            "always",  # the same bytes to the same URL: a job applies its data at most once (assumed)
            headers=merged(self.put_headers, initiation.upload_headers),
            body=body,
            limit=limit,
        )

    def job_request(self, job_id: str) -> Request:
        """Ask for a job's record, §2.3."""
        return self._to_job("get_job", job_id)

    def poll_request(self, job_id: str) -> Request:
        """Ask how a query stands: the poll path of §4.2, or the job's record where the map says so."""
        return self._to_job(self.poll_by, job_id)

    def result_request(self, job_id: str) -> Request:
        """Ask where the result of a query is, §4.2."""
        return self._to_job("poll_query", job_id)

    def page_request(self, table_id: str, filters: Filters, limit: int | None, offset: int, etag: str) -> Request:
        """Ask for one page of a table, §4.2 rules 2 and 3.

        Args:
            table_id: The table.
            filters: Filters, which combine with AND.
            limit: Rows at most, 1 to 10 000; None leaves it to the service.
            offset: Rows to leave out at the start.
            etag: What an earlier page carried; empty asks unconditionally.

        Raises:
            ValidationFailed: Limit or offset is out of range, the etag cannot stand in a header, or a filter
                cannot be written as the map says.
        """
        if limit is not None and not 1 <= limit <= LARGEST_PAGE:
            raise errors.ValidationFailed(f"limit is 1 to {LARGEST_PAGE}, not {limit} (§8)")
        if offset < 0:
            raise errors.ValidationFailed(f"offset is 0 or more, not {offset}")
        if etag and not _ETAG.fullmatch(etag):
            raise errors.ValidationFailed("the etag is not one that a service gave")
        inputs = {
            "filters": self._filters(self.query_json, table_id, filters),
            "limit": limit,
            "offset": offset or None,
            "etag": etag or None,
            "format": self._format(self.query_json, "json"),
        }
        return replace(self._to_table("query_json", table_id, inputs), largest=LARGEST_PAGE_BYTES)

    def delete_request(self, table_id: str, filters: Filters) -> Request:
        """Ask for the rows that match all filters to be deleted, §4.2 rule 5.

        Raises:
            ValidationFailed: There is no filter, or one that cannot be written as the map says.
        """
        written = self._filters(self.delete_rows, table_id, filters)
        if not written:
            raise errors.ValidationFailed("delete_rows needs at least one filter (§8); truncate removes all rows")
        return self._to_table("delete_rows", table_id, {"filters": written})

    def start_query_request(self, query: CrossQueryRequest) -> Request:
        """Start an asynchronous query, §4.2."""
        body = query.model_dump(mode="json", exclude_none=True)
        if query.format is not None:
            body["format"] = self.format_tokens.get(query.format, query.format)
        return self._request(
            "start_query", f"table {query.table_id}", {}, {}, operation="submit_cross_query", document=body
        )

    def predicate(self, filters: Filters) -> Mapping[str, Any] | None:
        """Write filters as one structured predicate, §2.6."""
        return structured(filters, numbers=self.filter_values == "number_or_text")

    def keyed(self, request: Request, key: str) -> Request:
        """Give a request that changes data an idempotency key, where the service takes one.

        Args:
            request: To be sent, perhaps several times.
            key: The same one each time.
        """
        if not self.idempotency_header or request.method == "GET" or isinstance(request.target, SecretUrl):
            return request
        return replace(request, headers=merged(request.headers, {self.idempotency_header: key}))

    def download_request(self, job_id: str, url: SecretUrl, sink: Download) -> Request:
        """Fetch a result, or the rest of one, from the object store, without credentials."""
        headers = {"Accept-Encoding": "identity", **sink.fields()}  # as it is stored; no decoder, no bomb
        return Request("download", f"job {job_id}", "GET", url, headers=headers, sink=sink)

    def _write(
        self, operation: WriteOperation, data_format: str, key_columns: str | Sequence[str] | None
    ) -> dict[str, Any]:
        """Check what a write asks for, and give its inputs."""
        if data_format not in self.write_formats:
            raise errors.ValidationFailed(f"format {data_format!r} is none of {', '.join(self.write_formats)}")
        keys = [key_columns] if isinstance(key_columns, str) else list(key_columns or ())
        if (operation == "upsert") != bool(keys):
            rule = "needs key_columns" if operation == "upsert" else "takes no key_columns"
            raise errors.ValidationFailed(f"{operation} {rule} (§2.8)")
        return {
            "format": self._format(self._route(operation), data_format),
            "update_mode": self.mode_tokens.get(operation, operation),
            "key_columns": keys or None,
        }

    def row_layout_of(self, data_format: str) -> RowLayout | None:
        """Say how rows are laid out in a write payload; None for a format in which rows are not written."""
        if data_format == "json" and self.row_layout != "lines":
            rows_at, columns_at = pointer_keys(self.rows_at), pointer_keys(self.columns_at)
            return RowLayout(self.row_layout, tuple(rows_at) if self.rows_at else (), tuple(columns_at))
        styles: Mapping[str, RowStyle] = {"json": "lines", "ndjson": "lines", "csv": "csv"}
        return RowLayout(styles[data_format]) if data_format in styles else None

    def _format(self, at_route: Route, name: str) -> str:
        if at_route.style("format") == "media":
            return self.media_types.get(name, UNKNOWN_MEDIA)
        return self.format_tokens.get(name, name)

    def _filters(self, at_route: Route, table_id: str, filters: Filters) -> Any:
        """Write filters in the style of a route; None for none."""
        if at_route.style("filters") != "structured":
            return simple_expressions(filters) or None
        try:
            query = CrossQueryRequest(table_id=table_id, filters=self.predicate(filters))
        except ValidationError as invalid:
            raise errors.ValidationFailed(describe(invalid)) from None
        return query.model_dump(mode="json", exclude_none=True).get("filters")

    def _route(self, name: str) -> Route:
        found: Route = getattr(self, name)
        return found

    def _to_table(self, name: str, table_id: str, inputs: Mapping[str, Any] | None = None) -> Request:
        return self._request(name, f"table {table_id}", {"table_id": table_id}, inputs or {})

    def _to_job(self, name: str, job_id: str) -> Request:
        return self._request(name, f"job {job_id}", {"job_id": job_id}, {})

    def _request(
        self,
        name: str,
        subject: str,
        ids: Mapping[str, str],
        inputs: Mapping[str, Any],
        *,
        operation: str = "",
        document: Any = None,
    ) -> Request:
        at_route = self._route(name)
        placed = at_route.place(ids, inputs)
        return Request(
            operation or name,
            subject,
            at_route.method,
            placed.target,
            at_route.repeat,
            headers=merged(self.headers, placed.headers),
            json=placed.body if document is None else document,
        )

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
        error = find(document, self.job_error, operation)
        said = {"status": find(document, self.job_status, operation), "error": None}
        job = model_of(DataJobResponse, {**document, **said}, operation)
        text = None if error is None else fit(reason_of(error))[:ERROR_TEXT]
        return job.model_copy(update={"status": self._status(fit(job.status)[:STATUS_TEXT]), "error": text})

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
            f" {request.operation!r} overrides it, see docs/wire.md"
        )
        if request.operation in ("overwrite", "upsert"):
            text += (
                f'. If the service takes every later write at {LATER_WRITES}, the setting "wire": "patch" says so;'
                " a service that ignores update_mode would then append: prove it first, by"
                " airflow-tds doctor --scratch-table TABLE"
            )
        return errors.WireMismatch(
            text, operation=request.operation, status=error.status, body=error.body, request_id=error.request_id
        )


def _why(hint: Route) -> str:
    return "is assumed" if hint.source == "assumed" else "was set"
