"""Whether a wire map can be served: each of its requests is read here as it was meant, each answer by the map.

The map builds what its callers would send, and reads what would be answered; nothing is sent, nothing stored.
What does not come out as it went in cannot be served, and is refused at the start with the setting that is at
fault, before it loses a filter or takes an append for an overwrite.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, get_args
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers
from starlette.responses import Response

from airflow_tds.client import errors
from airflow_tds.client.messages import Reply, Request
from airflow_tds.client.models import CrossQueryRequest
from airflow_tds.client.wire import Route, Wire, WriteOperation
from airflow_tds.local.answers import Answers
from airflow_tds.local.inputs import Reader, Sent, inputs_of
from airflow_tds.local.pages import Asked, Page
from airflow_tds.local.payloads.formats import FORMATS
from airflow_tds.local.records import Job
from airflow_tds.local.routing import Router

__all__ = ["rehearse"]

#: Ids and values that hold what might be taken for a separator.
_TABLE, _JOB, _KEYS, _SNAPSHOT, _OBJECT = "t/a.b c?é", "0a" * 16, ["k", "l m"], "5e" * 16, "0b" * 16
_FILTERS = ["a b:eq:x=1", "c:lt:2"]
_URL, _MOMENT = "http://127.0.0.1/put?Expires=4102444800&Signature=x", "2100-01-01T00:00:00+00:00"


def rehearse(wire: Wire, router: Router, base: str) -> None:
    """Try every request and every answer of a map.

    Args:
        wire: The map.
        router: What is to understand its requests.
        base: What stands before every path.

    Raises:
        ValidationFailed: One does not come out as it went in; the text names the setting.
    """
    for setting, trial in [*_Requests(wire, router, base).trials(), *_Replies(wire).trials()]:
        try:
            meant, found = trial()
        except (errors.TableServiceError, ValueError, TypeError, KeyError, IndexError) as failure:
            raise _unserved(setting, str(failure)) from None
        if meant != found:
            raise _unserved(setting, f"{meant!r} would be taken for {found!r}")


def _unserved(setting: str, why: str) -> errors.ValidationFailed:
    return errors.ValidationFailed(f"wire map: {setting} cannot be served: {why}")


Trial = Callable[[], tuple[Any, Any]]


class _Requests:
    """What callers send."""

    def __init__(self, wire: Wire, router: Router, base: str) -> None:
        self._wire = wire
        self._router = router
        self._base = base
        self._reader = Reader(wire)

    def trials(self) -> Iterator[tuple[str, Trial]]:
        """Give each setting with its trial: what was meant, and what was understood."""
        wire, table, job = self._wire, {"table_id": _TABLE}, {"job_id": _JOB}
        yield "info", lambda: (("info", table), self._understood(wire.info_request(_TABLE))[:2])
        yield "truncate", lambda: (("truncate", table), self._understood(wire.truncate_request(_TABLE))[:2])
        yield "get_job", lambda: (("get_job", job), self._understood(wire.job_request(_JOB))[:2])
        yield "poll_query", lambda: (("poll_query", job), self._understood(wire.result_request(_JOB))[:2])
        yield "query_json", self._page
        yield "delete_rows", self._delete
        yield "start_query", self._query
        for operation in get_args(WriteOperation):
            yield from self._writes(operation)

    def _understood(self, request: Request) -> tuple[str, dict[str, str], Route, dict[str, Any], Mapping[str, str]]:
        """Route a request as if it had come, and read it."""
        if not isinstance(request.target, str):
            raise errors.ValidationFailed("it does not go to the service")
        parts = urlsplit(self._base + request.target)
        document = None if request.json is None else json.loads(json.dumps(request.json))
        headers = Headers({name: str(value) for name, value in request.headers.items()})
        sent = Sent(request.method, parts.path, parse_qs(parts.query, keep_blank_values=True), headers, document)
        served = self._router.find(sent)
        if served is None or served.route is None:
            raise errors.ValidationFailed(f"{request.method} {request.target} is no route of the interface")
        ids = served.line.ids(sent)
        route = served.route
        inputs = {} if served.name == "start_query" else inputs_of(route, sent, ids, tuple(served.line.query))
        own = {name: text for name, text in ids.items() if name not in route.places}
        return served.name, own, route, inputs, headers

    def _page(self) -> tuple[Any, Any]:
        carries, route = self._wire.query_json.carries, self._wire.query_json
        filters = _FILTERS if carries("filters") else None
        limit, offset = 7 if carries("limit") else None, 3 if carries("offset") else 0
        etag = _SNAPSHOT if carries("etag") else ""
        name, ids, _, inputs, _ = self._understood(self._wire.page_request(_TABLE, filters, limit, offset, etag))
        asked = self._reader.page(inputs)
        meant = Asked(self._reader.filters(_repeated(route), {"filters": filters}), limit or asked.limit, offset)
        told = not etag or self._reader.names_snapshot(inputs, _SNAPSHOT)
        return ("query_json", _TABLE, _plain(meant), True), (name, ids["table_id"], _plain(asked), told)

    def _delete(self) -> tuple[Any, Any]:
        route = self._wire.delete_rows
        name, ids, _, inputs, _ = self._understood(self._wire.delete_request(_TABLE, _FILTERS))
        meant, found = (
            self._reader.filters(_repeated(route), {"filters": _FILTERS}),
            self._reader.filters(route, inputs),
        )
        return ("delete_rows", _TABLE, _text(meant)), (name, ids["table_id"], _text(found))

    def _query(self) -> tuple[Any, Any]:
        for result_format in ("parquet", "csv", "json"):
            query = CrossQueryRequest.model_validate({"table_id": _TABLE, "format": result_format})
            request = self._wire.start_query_request(query)
            name, *_ = self._understood(replace(request, json=None))
            found = self._reader.query(json.loads(json.dumps(request.json)))
            if (name, found) != ("start_query", query):
                return ("start_query", query), (name, found)
        return (), ()

    def _writes(self, operation: WriteOperation) -> Iterator[tuple[str, Trial]]:
        if not set(self._wire.write_formats) <= set(FORMATS):
            yield "write_formats", lambda: (f"one of {', '.join(FORMATS)}", ", ".join(self._wire.write_formats))
        for data_format in self._wire.write_formats:
            yield operation, partial(self._write, operation, data_format)
            if self._wire.strategy(operation) == "put_commit":
                yield "presign", partial(self._presign, operation, data_format)

    def _write(self, operation: WriteOperation, data_format: str) -> tuple[Any, Any]:
        wire, strategy = self._wire, self._wire.strategy(operation)
        keys = _KEYS if operation == "upsert" else None
        if strategy == "put_commit":
            request, named = wire.commit_request(operation, _TABLE, data_format, keys, _OBJECT), _OBJECT
        else:
            build = wire.direct_request if strategy == "direct" else wire.initiate_request
            request, named = build(operation, _TABLE, data_format, keys), ""
        name, ids, route, inputs, headers = self._understood(request)
        media_type = headers.get("content-type", "") if strategy == "direct" else ""
        asked = self._reader.write(operation, route, inputs, media_type)
        found = (name, ids["table_id"], asked.format, list(asked.key_columns), asked.object)
        return (operation, _TABLE, data_format, keys or [], named), found

    def _presign(self, operation: WriteOperation, data_format: str) -> tuple[Any, Any]:
        keys = _KEYS if operation == "upsert" else None
        name, _, route, inputs, _ = self._understood(self._wire.presign_request(operation, _TABLE, data_format, keys))
        table_id, found = inputs.get("table_id", _TABLE), self._reader.presigned_format(route, inputs)
        return ("presign", _TABLE, data_format), (name, table_id, found or data_format)


class _Replies:
    """What is answered."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._answers = Answers(wire)

    def trials(self) -> Iterator[tuple[str, Trial]]:
        """Give each setting with its trial: what is said, and what is read."""
        yield "row_count, total_size_bytes, data_files, last_updated or snapshot_id", self._info
        for status in ("awaiting", "queued", "completed", "failed"):
            yield "job_status, job_error, completed, failed or no_data_statuses", partial(self._job, status)
        yield "page_layout, items, columns, total_count, has_next, etag or a header of these", self._page
        yield "job_id", lambda: (_JOB, self._wire.read_job_id(_reply(_json(self._answers.started(_JOB)))))
        strategies = {self._wire.strategy(operation) for operation in get_args(WriteOperation)}
        if "initiate_put" in strategies:
            yield "job_id, upload_url, upload_headers or expires_at", self._initiated
        if "put_commit" in strategies:
            yield "upload_object, upload_url, upload_headers or expires_at", self._presigned
        yield "ready", self._ready
        yield "pending", self._pending
        if self._wire.poll_by == "get_job":
            yield "poll_by and ready", self._polled_by_job
        yield "poll_failed", self._failed
        for kind in (errors.Unauthorized, errors.Forbidden, errors.TableNotFound, errors.Conflict):
            yield "error_kinds, error_code or error_detail", partial(self._refused, kind)
        yield "error_kinds, error_code or error_detail", partial(self._refused, errors.ValidationFailed)
        yield "error_kinds, ready or pending", self._no_job

    def _info(self) -> tuple[Any, Any]:
        said = {
            "row_count": 7,
            "total_size_bytes": 9,
            "data_files": ["f"],
            "last_updated": _MOMENT,
            "snapshot_id": _SNAPSHOT,
        }
        read = self._wire.read_info(_reply(_json(self._answers.statistics({"table_id": _TABLE, **said}))))
        found = read.model_dump(mode="json")
        found["last_updated"] = read.last_updated.isoformat() if read.last_updated else None
        told = [name for name in said if getattr(self._wire, name)]
        return {name: said[name] for name in told}, {name: found[name] for name in told}

    def _job(self, status: Any) -> tuple[Any, Any]:
        job = _job(status)
        wire, error = self._wire, "it failed" if status == "failed" else None
        read = wire.read_job(_reply(_json(self._answers.record(job, _TOLD, running=False))))
        final = read.status if read.status.upper() in ("COMPLETED", "FAILED") else ""
        no_data = read.status in wire.no_data_statuses
        meant = status.upper() if status in ("completed", "failed") else ""
        told = (status == "awaiting" and bool(wire.no_data_statuses), error if wire.job_error else None)
        return (meant, *told), (final, no_data, read.error)

    def _page(self) -> tuple[Any, Any]:
        lists = bool(self._wire.columns)
        page = Page(
            ['[1, "x"]' if lists else '{"a": 1, "b": "x"}'], ("a", "b"), 5, has_next=True, snapshot_id=_SNAPSHOT
        )
        read = self._wire.read_page(_answered(self._answers.page(page)))
        if read is None:
            return "a page", "nothing"
        found = (read.items, read.metadata.total_count, read.metadata.has_next, read.etag)
        lines = self._wire.page_layout == "lines"
        carried = self._wire.etag_header or (self._wire.etag and not lines)
        counted = self._wire.total_count_header or (self._wire.total_count and not lines)
        told = (5 if counted else None, True if self._wire.has_next or self._wire.has_next_header else found[2])
        return ([{"a": 1, "b": "x"}], *told, _SNAPSHOT if carried else ""), found

    def _initiated(self) -> tuple[Any, Any]:
        read = self._wire.read_initiation(_reply(_json(self._answers.initiated(_JOB, _UPLOAD))))
        told = _UPLOAD["headers"] if self._wire.upload_headers else {}
        return (_JOB, _URL, told), (read.job_id, read.upload_url.reveal(), dict(read.upload_headers))

    def _presigned(self) -> tuple[Any, Any]:
        read = self._wire.read_presigned(_reply(_json(self._answers.presigned(_OBJECT, _UPLOAD))))
        told = _UPLOAD["headers"] if self._wire.upload_headers else {}
        return (_OBJECT, _URL, told), (read.upload_object, read.upload_url.reveal(), dict(read.upload_headers))

    def _polled(self, response: Response) -> tuple[str, bool, str | None]:
        """Read an answer to a poll."""
        reply = _answered(response)
        refused = self._wire.error(self._wire.result_request(_JOB), reply)
        if refused is not None:
            raise refused
        read = replace(reply, status=reply.status)
        poll = Wire.read_poll(self._wire.model_copy(update={"poll_by": "poll_query"}), read)
        return poll.job.status, poll.result is not None, poll.job.error

    def _ready(self) -> tuple[Any, Any]:
        answer = Response(status_code=self._wire.ready[0], headers={"Location": _URL})
        return ("COMPLETED", True, None), self._polled(answer)

    def _pending(self) -> tuple[Any, Any]:
        record = self._answers.record(_job("queued"), _TOLD, running=False)
        status, result, _ = self._polled(self._answers.pending(record))
        return (False, False), (status.upper() in ("COMPLETED", "FAILED"), result)

    def _polled_by_job(self) -> tuple[Any, Any]:
        poll = self._wire.read_poll(_reply(_json(self._answers.record(_job("queued"), _TOLD, running=False))))
        return (False, None), (poll.job.status in ("COMPLETED", "FAILED"), poll.result)

    def _failed(self) -> tuple[Any, Any]:
        record = self._answers.record(_job("failed"), _TOLD, running=False)
        told = "it failed" if self._wire.job_error or self._wire.poll_failed else None
        return ("FAILED", False, told), self._polled(self._answers.failed(record, "it failed"))

    def _refused(self, kind: type[errors.Refused]) -> tuple[Any, Any]:
        """Read a "no" whose kind the map has a word for."""
        answer = self._answers.refused(kind("no"))
        if not self._answers.has_word(kind):
            return "", ""
        request = self._wire.info_request(_TABLE)
        return kind.__name__, type(self._wire.error(request, _answered(answer))).__name__

    def _no_job(self) -> tuple[Any, Any]:
        """Read that there is no job: while that looked like "not yet", a caller would wait for ever."""
        answer = _answered(self._answers.refused(errors.JobNotFound("no")))
        found = self._wire.error(self._wire.result_request(_JOB), answer)
        return (True, True), (
            found is not None,
            not self._answers.has_word(errors.JobNotFound) or isinstance(found, errors.JobNotFound),
        )


_UPLOAD = {"url": _URL, "headers": {"X-Stage": "yes"}, "expires_at": _MOMENT}
_TOLD = {"job_id": _JOB, "kind": "append", "table_id": _TABLE, "created_at": _MOMENT}


def _job(status: Any) -> Job:
    error = "it failed" if status == "failed" else None
    return Job(1, _JOB, "query", _TABLE, {}, status, 0, 0.0, error=error)


def _repeated(route: Route) -> Route:
    """Give a route whose filters are written plainly, to say what was meant."""
    return route.model_copy(update={"places": {}})


def _plain(asked: Asked) -> Any:
    return (_text(asked.filters), asked.limit, asked.offset)


def _text(predicate: Any) -> Any:
    """Give a predicate with its values as text: whether one travels as a number is the map's choice."""
    if predicate is None:
        return None
    leaves = getattr(predicate, "predicates", [predicate])
    return [(leaf.field, leaf.operator, str(leaf.value)) for leaf in leaves]


def _json(document: Any) -> bytes:
    return json.dumps(document).encode()


def _reply(content: bytes) -> Reply:
    return Reply(200, content=content)


def _answered(response: Response) -> Reply:
    return Reply(response.status_code, dict(response.headers), bytes(response.body))
