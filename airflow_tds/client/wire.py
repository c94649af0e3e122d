"""Each operation's wire form, as data: `fixed` (with its section) or `assumed` (ours to choose, yours to override).

Here lives all that is known of paths, names and statuses: pure functions that build requests and read
replies. Nothing is sent here. The embedded service builds its router from the same map.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal, Self, TypeVar
from urllib.parse import parse_qs, parse_qsl, quote, urlencode, urlsplit

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator
from pydantic_core import from_json

from airflow_tds.client import errors
from airflow_tds.client.downloads import Download
from airflow_tds.client.messages import Repeat, Reply, Request, SecretUrl
from airflow_tds.client.models import (
    CrossQueryRequest,
    DataJobResponse,
    DatasetInfoResponse,
    PageMetadata,
    QueryResponse,
    describe,
)
from airflow_tds.client.payloads import Body

__all__ = ["Initiation", "Poll", "Route", "Wire", "WriteOperation"]

WriteOperation = Literal["upload", "append", "overwrite", "upsert"]

#: The most rows that one page may hold, §8.
LARGEST_PAGE = 10_000
#: "The table has not changed", §4.2 rule 3.
NOT_MODIFIED = 304
#: An error's text keeps this much of the answer's body: enough to act on, too little to flood a log.
ERROR_TEXT = 2048
#: Ids beyond this are refused: no service's table is called so, and many servers cut longer paths.
LONGEST_ID = 512
#: An answer's word for a job's status keeps this much: it travels in events and logs.
STATUS_TEXT = 64
#: A presigned URL's parameter of this many characters or more is taken for a secret.
SHORTEST_SECRET = 8
#: Controls of ASCII and C1 (a terminal obeys both), and Unicode's line ends.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
#: A header field as `name: value`, with nothing that could end it.
_FIELD = re.compile(r"[!#$%&'*+.^_`|~\w-]+: (?! )[\x20-\x7e]*", re.ASCII)
#: What may stand in an entity tag, quoted or not.
_ETAG = re.compile(r'(W/)?"[\x21\x23-\x7e]*"|[\x21\x23-\x7e]+')
_TIME = TypeAdapter(datetime)
_SUCCESS = range(200, 300)
_M = TypeVar("_M", bound=BaseModel)


class Route(BaseModel):
    """An HTTP method and a path template.

    Attributes:
        method: Such as `POST`.
        path: Such as `/tables/{table_id}/data/upload`.
        source: The section that fixes it, `assumed`, or `set` when overridden.
        repeat: Whether a request of this route may be sent again.
    """

    model_config = ConfigDict(frozen=True)

    method: str
    path: str
    source: str
    repeat: Repeat

    def fill(self, **ids: str) -> str:
        """Give the path with every id percent-encoded whole, so that an id never changes the route."""
        return self.path.format(**{name: _segment(name, value) for name, value in ids.items()})

    def overridden(self, line: str) -> Route:
        """Give this route with another method and path, as in `PUT /v2/{table_id}`.

        Raises:
            ValueError: It is no route, or names other ids than this one.
        """
        method, path = _parse_line(line)
        if _ids(path) != _ids(self.path):
            names = " and ".join(f"{{{name}}}" for name in _ids(self.path)) or "no id"
            raise ValueError(f"the path names {names}, unlike {path!r}")
        return self.model_copy(update={"method": method, "path": path, "source": "set"})


def _parse_line(line: str) -> tuple[str, str]:
    found = re.fullmatch(r"(GET|POST|PUT|PATCH|DELETE) (/(?:[^\s#{}]|{\w+})*)", line)
    if found is None:
        raise ValueError(f"a route is written 'METHOD /path', not {line!r}")
    return found[1], found[2]


def _ids(path: str) -> list[str]:
    return re.findall(r"{(\w+)}", path)


def _fixed(line: str, section: str, repeat: Repeat = "always") -> Route:
    method, path = _parse_line(line)
    return Route(method=method, path=path, source=section, repeat=repeat)


def _assumed(line: str, repeat: Repeat = "always") -> Route:
    return _fixed(line, "assumed", repeat)


def _segment(name: str, value: str) -> str:
    what = name.replace("_", " ")
    if value in ("", ".", "..") or _CONTROL.search(value):
        raise errors.ValidationFailed(f"{what} {value!r} cannot be part of an address")
    try:
        encoded = value.encode()
    except UnicodeEncodeError:
        raise errors.ValidationFailed(f"{what} {value!r} is not valid text") from None
    if len(encoded) > LONGEST_ID:
        raise errors.ValidationFailed(f"{what} has {len(encoded)} bytes, at most {LONGEST_ID} are sent")
    return quote(value, safe="")


@dataclass(frozen=True)
class Initiation:
    """The answer to a write's initiation: a job that waits for its data.

    Attributes:
        job_id: The job.
        upload_url: Where the payload is PUT.
        upload_headers: Header fields that the PUT must carry.
        lifetime: Seconds from the answer on for which the URL can be used.
    """

    job_id: str
    upload_url: SecretUrl
    upload_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    lifetime: float = 3600.0


@dataclass(frozen=True)
class Poll:
    """What the poll path said of a query job, §4.2.

    Attributes:
        job: The job record; its status is COMPLETED once the result can be fetched.
        result: Where the result is; None until it can be fetched.
    """

    job: DataJobResponse
    result: SecretUrl | None = None


class Wire(BaseModel):
    """The wire map: what is fixed, what is assumed, what a connection sets.

    A route is overridden by a line such as `"truncate": "DELETE /tables/{table_id}/rows"`. Lists of names
    are JSON pointers: places where a reply may hold the value.

    Attributes:
        job_id: Where a reply holds a job's id; the empty pointer is a bare JSON string.
        upload_url: Where an initiation's reply holds the presigned URL.
        upload_headers: Where it holds the headers of the PUT.
        expires_at: Where it holds the time at which the URL expires.
        upload_url_lifetime: Seconds, where neither the reply nor the URL tells.
        write_formats: Formats of a write's payload.
        ready: Statuses of the poll path that carry the result's address.
        pending: Statuses of the poll path that mean "not yet".
        no_data_statuses: Job statuses that mean that no data has arrived.
        validation: HTTP statuses of an invalid parameter.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    info: Route = _assumed("GET /tables/{table_id}/data/info")
    upload: Route = _assumed("POST /tables/{table_id}/data/upload", "if_unsent")
    append: Route = _fixed("PATCH /tables/{table_id}/data", "§4.2", "if_unsent")
    overwrite: Route = _assumed("POST /tables/{table_id}/data/overwrite", "if_unsent")
    upsert: Route = _assumed("POST /tables/{table_id}/data/upsert", "if_unsent")
    delete_rows: Route = _assumed("POST /tables/{table_id}/data/delete", "if_unsent")
    truncate: Route = _assumed("POST /tables/{table_id}/data/truncate", "if_unsent")
    get_job: Route = _assumed("GET /data/jobs/{job_id}")
    query_json: Route = _fixed("GET /tables/{table_id}/data/query", "§4.2")
    start_query: Route = _fixed("POST /data/queries", "§4.2")
    poll_query: Route = _fixed("GET /data/query/{job_id}", "§4.2")

    job_id: tuple[str, ...] = ("/job_id", "/jobId", "/id", "")
    upload_url: tuple[str, ...] = ("/upload_url", "/presigned_url", "/url")
    upload_headers: tuple[str, ...] = ("/upload_headers",)
    expires_at: tuple[str, ...] = ("/expires_at",)
    upload_url_lifetime: float = Field(default=3600.0, gt=0, allow_inf_nan=False)
    write_formats: tuple[str, ...] = ("json", "csv", "ndjson", "parquet")
    ready: tuple[int, ...] = (307,)
    pending: tuple[int, ...] = (202,)
    no_data_statuses: tuple[str, ...] = ()
    validation: tuple[int, ...] = (400, 422)

    @model_validator(mode="before")
    @classmethod
    def _read_route_lines(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        routes = {name: info.default for name, info in cls.model_fields.items() if isinstance(info.default, Route)}
        return {name: _overridden(name, routes[name], v) if name in routes else v for name, v in given.items()}

    @classmethod
    def from_setting(cls, setting: Mapping[str, Any] | None) -> Self:
        """Make the map from a connection's `wire` extra.

        Args:
            setting: Overrides by name; None or empty for none.

        Raises:
            ValidationFailed: A name is unknown or a value does not fit; the text names it.
        """
        try:
            return cls.model_validate(dict(setting or {}))
        except ValidationError as invalid:
            raise errors.ValidationFailed(f"wire map: {describe(invalid)}") from None

    # ---- requests

    def info_request(self, table_id: str) -> Request:
        """Ask for a table's statistics, §2.2."""
        return self._to_table("info", table_id)

    def truncate_request(self, table_id: str) -> Request:
        """Ask for all rows of a table to be removed, §3.1."""
        return self._to_table("truncate", table_id)

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
            ValidationFailed: Unknown format, upsert without keys, or keys where none belong.
        """
        if data_format not in self.write_formats:
            raise errors.ValidationFailed(f"format {data_format!r} is none of {', '.join(self.write_formats)}")
        body: dict[str, Any] = {"format": data_format}
        if operation != "upload":
            body["update_mode"] = operation
        keys = [key_columns] if isinstance(key_columns, str) else list(key_columns or ())
        if (operation == "upsert") != bool(keys):
            rule = "needs key_columns" if operation == "upsert" else "takes no key_columns"
            raise errors.ValidationFailed(f"{operation} {rule} (§2.8)")
        if keys:
            body["key_columns"] = keys
        return self._to_table(operation, table_id, body)

    def put_request(self, initiation: Initiation, body: Body, *, limit: float) -> Request:
        """Send a write's payload to the object store, without credentials."""
        return Request(
            "put",
            f"job {initiation.job_id}",
            "PUT",
            initiation.upload_url,
            "always",  # the same bytes to the same URL: a job applies its data at most once (assumed)
            headers=initiation.upload_headers,
            body=body,
            limit=limit,
        )

    def job_request(self, job_id: str) -> Request:
        """Ask for a job's record, §2.3."""
        return self._to_job("get_job", job_id)

    def poll_request(self, job_id: str) -> Request:
        """Ask whether a query's result is ready, §4.2."""
        return self._to_job("poll_query", job_id)

    def page_request(self, table_id: str, filters: Sequence[str], limit: int | None, offset: int, etag: str) -> Request:
        """Ask for one page of a table, §4.2 rules 2 and 3.

        Args:
            table_id: The table.
            filters: Simple expressions, which combine with AND.
            limit: Rows at most, 1 to 10 000; None leaves it to the service.
            offset: Rows to leave out at the start.
            etag: What an earlier page carried; empty asks unconditionally.

        Raises:
            ValidationFailed: Limit or offset is out of range, or the etag cannot stand in a header.
        """
        if limit is not None and not 1 <= limit <= LARGEST_PAGE:
            raise errors.ValidationFailed(f"limit is 1 to {LARGEST_PAGE}, not {limit} (§8)")
        if offset < 0:
            raise errors.ValidationFailed(f"offset is 0 or more, not {offset}")
        if etag and not _ETAG.fullmatch(etag):
            raise errors.ValidationFailed("the etag is not one that a service gave")
        query = [("filters", text) for text in filters]
        query += [] if limit is None else [("limit", str(limit))]
        query += [("offset", str(offset))] if offset else []
        request = self._to_table("query_json", table_id)
        target = f"{request.target}?{urlencode(query)}" if query else request.target
        headers = {"If-None-Match": etag if '"' in etag else f'"{etag}"'} if etag else {}
        return replace(request, target=target, headers=headers)

    def delete_request(self, table_id: str, filters: Sequence[str]) -> Request:
        """Ask for the rows that match all filters to be deleted, §4.2 rule 5.

        Raises:
            ValidationFailed: There is no filter.
        """
        if not filters:
            raise errors.ValidationFailed("delete_rows needs at least one filter (§8); truncate removes all rows")
        return self._to_table("delete_rows", table_id, {"filters": list(filters)})

    def start_query_request(self, query: CrossQueryRequest) -> Request:
        """Start an asynchronous query, §4.2."""
        route = self.start_query
        body = query.model_dump(mode="json", exclude_none=True)
        subject = f"table {query.table_id}"
        return Request("submit_cross_query", subject, route.method, route.fill(), route.repeat, json=body)

    def download_request(self, job_id: str, url: SecretUrl, sink: Download) -> Request:
        """Fetch a result, or the rest of one, from the object store, without credentials."""
        headers = {"Accept-Encoding": "identity", **sink.fields()}  # as it is stored; no decoder, no bomb
        return Request("download", f"job {job_id}", "GET", url, headers=headers, sink=sink)

    def _to_table(self, operation: str, table_id: str, body: Any = None) -> Request:
        route: Route = getattr(self, operation)
        path = route.fill(table_id=table_id)
        return Request(operation, f"table {table_id}", route.method, path, route.repeat, json=body)

    def _to_job(self, operation: str, job_id: str) -> Request:
        route: Route = getattr(self, operation)
        return Request(operation, f"job {job_id}", route.method, route.fill(job_id=job_id), route.repeat)

    # ---- replies

    def read_info(self, reply: Reply) -> DatasetInfoResponse:
        """Read a table's statistics; counts may be digit strings, times ISO 8601 or epoch (assumed)."""
        return _model(DatasetInfoResponse, _document(reply, "info"), "info")

    def read_job(self, reply: Reply) -> DataJobResponse:
        """Read a job's record; `error` may be text or an object (assumed)."""
        return _job(_document(reply, "get_job"), "get_job")

    def read_initiation(self, reply: Reply) -> Initiation:
        """Read the answer to a write's initiation."""
        document = _document(reply, "initiation")
        url = _required(document, self.upload_url, "initiation", "upload_url")
        return Initiation(
            _required(document, self.job_id, "initiation", "job_id"),
            SecretUrl(url),
            _headers(_find(document, self.upload_headers, "initiation")),
            self._lifetime(reply, _find(document, self.expires_at, "initiation"), url),
        )

    def read_page(self, reply: Reply) -> QueryResponse | None:
        """Read a page; None when nothing has changed (304). Rows are handed on as they are, unchecked."""
        if reply.status == NOT_MODIFIED:
            return None
        document = _document(reply, "query")
        if not isinstance(document, dict) or not isinstance(document.get("items"), list):
            raise errors.UnexpectedReply("query: the reply holds no list of items", field="items")
        metadata = _model(PageMetadata, document.get("metadata"), "query, metadata")
        etag = document.get("etag")
        etag = etag if isinstance(etag, str) else reply.headers.get("etag", "").removeprefix("W/").strip('"')
        return QueryResponse.model_construct(items=document["items"], metadata=metadata, etag=etag)

    def read_job_id(self, reply: Reply) -> str:
        """Read the id of a query job that was started."""
        return _required(_document(reply, "submit_cross_query"), self.job_id, "submit_cross_query", "job_id")

    def read_poll(self, reply: Reply) -> Poll:
        """Read the poll path: pending, ready, or failed, §4.2 and §7."""
        if reply.status in self.ready:
            location = reply.headers.get("location", "")
            if not location:
                return Poll(DataJobResponse(status="FAILED", error="the redirect names no result (§7)"))
            return Poll(DataJobResponse(status="COMPLETED"), SecretUrl(location))
        pending = DataJobResponse(status="PENDING")
        try:
            job = _job(_document(reply, "poll_query"), "poll_query") if reply.content else pending
        except errors.UnexpectedReply:
            if reply.status not in self.pending:
                raise
            job = pending  # the status alone says it; what its body looks like is not shown (§4.2)
        if job.status.lower() == "completed":  # the result is what the redirect names; until then it is pending
            job = pending
        return Poll(job)

    def _lifetime(self, reply: Reply, told: Any, url: str) -> float:
        """Seconds that an upload URL lives, rather too long than too short: a lease rests on it.

        Moments are compared with the server's own clock. Where it does not tell its time, ours may be
        wrong, so the assumed lifetime is the least.
        """
        least = 0.0
        now = _date(reply.headers.get("date", ""))
        if now is None:
            now, least = datetime.now(UTC), self.upload_url_lifetime
        if told is not None:
            return max(least, (_moment(told, "expires_at") - now).total_seconds())
        found = _lifetime_in(url, now)
        return self.upload_url_lifetime if found is None else max(least, found)

    def error(self, request: Request, reply: Reply) -> errors.TableServiceError | None:
        """Say what error a reply is, if it is one; redirects are errors except on the poll path."""
        if reply.status in _SUCCESS:
            return None
        known_as_good = {"poll_query": (*self.ready, *self.pending), "query_json": (NOT_MODIFIED,)}
        if reply.status in known_as_good.get(request.operation, ()):
            return None
        text = _clean(reply.content)
        if isinstance(request.target, SecretUrl):
            text = _unsigned(text, request.target.reveal())
        message = f"{request.operation}, {request.subject}: HTTP {reply.status}{': ' if text else ''}{_detail(text)}"
        known: dict[str, Any] = {"status": reply.status, "body": text, "request_id": reply.request_id}
        if isinstance(request.target, SecretUrl):
            return _storage_error(request, reply, message, known)
        return _server_error(reply, message, known) or self._refusal(request, reply, message, known)

    def _refusal(self, request: Request, reply: Reply, message: str, known: dict[str, Any]) -> errors.TableServiceError:
        if reply.status in self.validation:
            return errors.ValidationFailed(message, **known)
        kinds: dict[int, type[errors.Refused]] = {
            401: errors.Unauthorized,
            403: errors.Forbidden,
            404: errors.JobNotFound if request.subject.startswith("job ") else errors.TableNotFound,
            409: errors.Conflict,
        }
        if reply.status in kinds:
            return kinds[reply.status](message + self._doubt(request, reply.status), **known)
        if reply.status == 405:  # noqa: PLR2004  # Method Not Allowed: the path is there, the route is not
            return errors.WireMismatch(message + self._doubt(request, 404), operation=request.operation, **known)
        return errors.Refused(message, **known)

    def _doubt(self, request: Request, status: int) -> str:
        """A 404 may also mean that the service has another route than the one assumed."""
        route = getattr(self, request.operation, None)
        if status != 404 or not isinstance(route, Route) or route.source != "assumed":  # noqa: PLR2004  # Not found
            return ""
        return (
            f" (or the service does not have {route.method} {route.path}, which is assumed:"
            f" the connection's wire setting {request.operation!r} overrides it)"
        )


def _overridden(name: str, route: Route, given: Any) -> Route:
    if isinstance(given, Route):
        return given
    try:
        return route.overridden(given)
    except (TypeError, ValueError) as wrong:
        raise ValueError(f"{name}: {wrong}") from None


def _storage_error(request: Request, reply: Reply, message: str, known: dict[str, Any]) -> errors.Refused:
    unmeasured = request.body is not None and request.body.length is None
    if reply.status == 411 or (reply.status == 501 and unmeasured):  # noqa: PLR2004  # S3 says 501 to chunked
        return errors.LengthRequired(message, **known)
    return _server_error(reply, message, known) or errors.StorageRefused(message, **known)


def _server_error(reply: Reply, message: str, known: dict[str, Any]) -> errors.ServerError | None:
    if reply.status not in (408, 429) and reply.status < 500:  # noqa: PLR2004  # 5xx
        return None
    return errors.ServerError(message, **known, retry_after=retry_after(reply))


def retry_after(reply: Reply) -> float | None:
    """Read `Retry-After`, seconds or a date, by the server's own clock where it tells its time.

    Returns:
        Seconds, not negative; None when the header is missing or senseless.
    """
    value = reply.headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d{1,9}", value):
        return float(value)
    until = _date(value)
    if until is None:
        return None
    now = _date(reply.headers.get("date", "")) or datetime.now(UTC)
    return max(0.0, (until - now).total_seconds())


def _date(value: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _moment(value: Any, name: str) -> datetime:
    try:
        found = _TIME.validate_python(float(value) if _is_digits(value) else value)
    except ValidationError:
        raise errors.UnexpectedReply(f"{name} is no time", field=name) from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _is_digits(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)?", value) is not None


def _lifetime_in(url: str, now: datetime) -> float | None:
    """Find the expiry in a presigned URL's own parameters: S3 and GCS (date + seconds), Azure (se), S3 v2.

    Returns:
        Seconds; None when the URL does not tell, or not in a form that is known.
    """
    try:
        query = {name.lower(): values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        for prefix in ("x-amz-", "x-goog-"):
            if f"{prefix}date" in query:
                begun = datetime.strptime(query[f"{prefix}date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
                return (begun - now).total_seconds() + int(query[f"{prefix}expires"])
        until = query.get("se") or query.get("expires")
        return (_moment(until, "upload_url") - now).total_seconds() if until else None
    except (KeyError, ValueError, errors.UnexpectedReply):
        return None


def _document(reply: Reply, operation: str) -> Any:
    try:
        return from_json(reply.content, cache_strings="keys", allow_inf_nan=False)
    except ValueError:
        raise errors.UnexpectedReply(  # without the body: it may be a bare presigned URL
            f"{operation}: HTTP {reply.status} with {len(reply.content)} bytes that are no JSON"
        ) from None


def _find(document: Any, pointers: Sequence[str], operation: str) -> Any:
    """Read the value at whichever pointer has one; two different values contradict each other."""
    found = [value for pointer in pointers if (value := _at(document, pointer)) is not None]
    if any(value != found[0] for value in found):
        raise errors.UnexpectedReply(f"{operation}: the reply holds different values at {', '.join(pointers)}")
    return found[0] if found else None


def _at(document: Any, pointer: str) -> Any:
    if not pointer:
        return document if isinstance(document, str) else None
    for key in pointer.removeprefix("/").split("/"):
        name = key.replace("~1", "/").replace("~0", "~")
        if isinstance(document, list):
            document = document[int(key)] if key.isdecimal() and int(key) < len(document) else None
        else:
            document = document.get(name) if isinstance(document, dict) else None
    return document


def _required(document: Any, pointers: Sequence[str], operation: str, name: str) -> str:
    value = _find(document, pointers, operation)
    if not isinstance(value, str | int) or isinstance(value, bool) or value == "":
        raise errors.UnexpectedReply(
            f"{operation}: the reply holds no {name} at {', '.join(p or 'its top' for p in pointers)}",
            field=name,
        )
    return str(value)


def _model(kind: type[_M], document: Any, operation: str) -> _M:
    try:
        return kind.model_validate(document)
    except ValidationError as invalid:
        raise errors.UnexpectedReply(f"{operation}: {describe(invalid)}") from None


def _headers(found: Any) -> dict[str, str]:
    """Read the header fields of a PUT; its framing is ours to choose, so fields that frame are left out."""
    fields = {} if found is None else found
    if not isinstance(fields, dict) or not all(_is_field(name, value) for name, value in fields.items()):
        raise errors.UnexpectedReply("initiation: upload_headers is no object of header fields", field="upload_headers")
    framing = ("content-length", "transfer-encoding", "host", "connection")
    return {name: str(value) for name, value in fields.items() if name.lower() not in framing}


def _job(document: Any, operation: str) -> DataJobResponse:
    """Read a job; its words go to logs and events, so they are made fit for them here."""
    job = _model(DataJobResponse, _with_reason(document), operation)
    error = None if job.error is None else _fit(job.error)[:ERROR_TEXT]
    return job.model_copy(update={"status": _fit(job.status)[:STATUS_TEXT], "error": error})


def _is_field(name: str, value: Any) -> bool:
    return isinstance(value, str | int) and _FIELD.fullmatch(f"{name}: {value}") is not None


def _with_reason(document: Any) -> Any:
    """Make one text of an error that is not text."""
    if not isinstance(document, dict) or isinstance(document.get("error"), str | None):
        return document
    return document | {"error": _reason(document["error"])}


def _reason(error: Any) -> str:
    return str(error.get("message") or error) if isinstance(error, dict) else str(error)


def _unsigned(text: str, url: str) -> str:
    """Take a presigned URL's parameters out of a text: stores like to quote what they refuse."""
    for _, value in parse_qsl(urlsplit(url).query):
        if len(value) >= SHORTEST_SECRET:
            text = text.replace(value, "<redacted>").replace(quote(value, safe=""), "<redacted>")
    return text


def _clean(content: bytes) -> str:
    """Take as much of an answer as an error keeps."""
    return _fit(content[:ERROR_TEXT].decode(errors="replace"))


def _fit(text: str) -> str:
    """Make text fit for a log: no control characters."""
    return _CONTROL.sub(" ", text).strip()


def _detail(text: str) -> str:
    try:
        document = from_json(text)
    except ValueError:
        return text[:200]
    detail = document.get("detail") if isinstance(document, dict) else None
    return _fit(detail) if isinstance(detail, str) else text[:200]
