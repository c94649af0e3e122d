"""The service's HTTP face: routes built from the wire map, requests checked, answers formed.

What an operation does is the store's; here stand only its wire form, its status codes and who may call it.
No SQL on the event loop: what commits or compiles runs in a thread, what memory knows is answered at once.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import duckdb
from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp

from airflow_tds.client import errors
from airflow_tds.client.models import CrossQueryRequest
from airflow_tds.client.wire import Wire
from airflow_tds.local.faults import Faults, FaultyRoute
from airflow_tds.local.filters import matching, parse_simple
from airflow_tds.local.openapi import document
from airflow_tds.local.page import page
from airflow_tds.local.pages import Pages
from airflow_tds.local.payloads.formats import FORMATS
from airflow_tds.local.query import DEFAULT_FORMAT, compile_query
from airflow_tds.local.recorder import Recorder, RequestRecord
from airflow_tds.local.records import Job, Kind, Table
from airflow_tds.local.refusals import answer
from airflow_tds.local.requests import (
    DeleteBody,
    FaultBody,
    TableBody,
    WriteBody,
    asked_page,
    body_of,
    id_of,
    names_snapshot,
)
from airflow_tds.local.rights import Rights
from airflow_tds.local.storage import PATHS, Storage
from airflow_tds.local.store import Store, StoreUnavailable
from airflow_tds.local.writes import check_keys

__all__ = ["Settings", "build_app"]

log = logging.getLogger(__name__)

Endpoint = Callable[[Request], Awaitable[Response]]

_WRITES: tuple[Kind, ...] = ("upload", "append", "overwrite", "upsert")
#: Jobs that `GET /admin/jobs` tells.
_SHOWN_JOBS = 50
#: Statements that may run for requests at once.
_THREADS = 4


@dataclass(frozen=True)
class Settings:
    """What the face of a service depends on.

    Attributes:
        tokens: The bearer tokens of callers, and their rights.
        wire: Which routes it serves.
        base_path: What stands before every path, such as `/api/v1`; empty for nothing.
        upload_url_lifetime: Seconds for which a payload may be sent, and a result be fetched.
        job_reads: How often a job's status is read before it starts.
    """

    tokens: Mapping[str, Rights]
    wire: Wire
    base_path: str
    upload_url_lifetime: float
    job_reads: int = 0


def build_app(
    store: Store, storage: Storage, settings: Settings, faults: Faults, requests: deque[RequestRecord]
) -> ASGIApp:
    """Give the ASGI application.

    Args:
        store: What it serves.
        storage: The object store behind presigned URLs.
        settings: See there.
        faults: What is to go wrong.
        requests: Where it notes each request.
    """
    api = _Api(store, storage, settings, faults, requests)
    wire, base = settings.wire, settings.base_path
    operations: dict[str, Endpoint] = {
        "info": api.info,
        **{kinds[0]: partial(api.write, kinds) for kinds in _sharing(wire)},
        "delete_rows": api.delete_rows,
        "truncate": api.truncate,
        "get_job": api.get_job,
        "query_json": api.query_json,
        "start_query": api.start_query,
        "poll_query": api.poll_query,
    }
    routes = [
        _faulty(name, getattr(wire, name).method, base + getattr(wire, name).path, api.guarded(call), faults)
        for name, call in operations.items()
    ]
    routes += [
        _route("create_table", "POST", f"{base}/admin/tables", api.guarded(api.create_table)),
        _route("list_tables", "GET", f"{base}/admin/tables", api.guarded(api.list_tables)),
        _route("list_jobs", "GET", f"{base}/admin/jobs", api.guarded(api.list_jobs)),
        _route("list_requests", "GET", f"{base}/admin/requests", api.guarded(api.list_requests)),
        _route("add_fault", "POST", f"{base}/admin/faults", api.guarded(api.add_fault)),
        _route("list_faults", "GET", f"{base}/admin/faults", api.guarded(api.list_faults)),
        _route("clear_faults", "DELETE", f"{base}/admin/faults", api.guarded(api.clear_faults)),
        _faulty("put_payload", "PUT", PATHS["put_payload"], storage.put_payload, faults),
        _faulty("get_result", "GET", PATHS["get_result"], storage.get_result, faults),
    ]

    async def openapi(request: Request) -> Response:  # noqa: ARG001  # an endpoint
        return JSONResponse(document(routes, wire))

    async def show(request: Request) -> Response:  # noqa: ARG001  # an endpoint
        return page(wire.query_json.path, base)

    routes.append(_route("openapi", "GET", f"{base}/openapi.json", openapi))
    routes.append(_route("page", "GET", f"{base}/", show))
    app = Starlette(routes=routes, exception_handlers={HTTPException: partial(_no_route, routes)})
    app.router.redirect_slashes = False  # a 307 means that a result is ready, §4.2
    return Recorder(app, requests)


def _sharing(wire: Wire) -> list[tuple[Kind, ...]]:
    """Give the writes, those together that the wire map sends to one route."""
    sharing: dict[tuple[str, str], tuple[Kind, ...]] = {}
    for kind in _WRITES:
        route = getattr(wire, kind)
        place = (route.method, route.path)
        sharing[place] = (*sharing.get(place, ()), kind)
    return list(sharing.values())


def _route(name: str, method: str, path: str, endpoint: Endpoint) -> Route:
    async def named(request: Request) -> Response:
        request.scope["operation"] = name
        return await endpoint(request)

    return Route(path, named, methods=[method], name=name)


def _faulty(name: str, method: str, path: str, endpoint: Endpoint, faults: Faults) -> Route:
    return Route(path, FaultyRoute(name, endpoint, faults), methods=[method], name=name)


class _Api:
    """The endpoints. Each raises what client.errors knows, and `guarded` gives it its status."""

    def __init__(
        self, store: Store, storage: Storage, settings: Settings, faults: Faults, requests: Sequence[RequestRecord]
    ) -> None:
        self._store = store
        self._storage = storage
        self._pages = Pages(store)
        self._settings = settings
        self._faults = faults
        self._requests = requests
        self._limiter = CapacityLimiter(_THREADS)

    def guarded(self, endpoint: Endpoint) -> Endpoint:
        """Let an endpoint be called with the token only, and turn what it refuses into its status."""

        async def call(request: Request) -> Response:
            try:
                request.state.rights = self._rights(request)
                return await endpoint(request)
            except errors.Refused as refused:
                return answer(self._settings.wire, refused)
            except duckdb.Error as failure:
                return _unavailable(failure)
            except StoreUnavailable as stopping:  # no Retry-After: that would say that nothing was done
                return JSONResponse({"detail": str(stopping)}, 503)

        return call

    # ---- operations

    async def info(self, request: Request) -> Response:
        return JSONResponse(self._statistics(self._store.table(_readable(request))))

    async def write(self, kinds: Sequence[Kind], request: Request) -> Response:
        """Start a write; where several share a route, the body says which, and the first is meant if it does not."""
        table_id = _writable(request)
        asked = await body_of(request, WriteBody)
        kind = asked.update_mode or kinds[0]
        if kind not in kinds:
            raise errors.ValidationFailed(f"update_mode: {kind!r} at the route of {' and '.join(kinds)}")
        request.scope["operation"] = kind
        spec = self._write_spec(kind, table_id, asked)
        fault = self._faults.take(kind, of_job=True)
        spec |= {"fault": fault.job} if fault else {}
        lifetime = self._settings.upload_url_lifetime
        job = await self._in_thread(self._store.initiate, kind, table_id, spec, lifetime)
        url = f"{_origin(request)}{self._storage.upload_link(job)}"
        return JSONResponse({"job_id": job.job_id, "upload_url": url, "expires_at": _time(job.expires_at)})

    async def delete_rows(self, request: Request) -> Response:
        """Answer once the rows are gone; a caller who does not wait for that changes nothing about it."""
        table_id = _writable(request)
        asked = await body_of(request, DeleteBody)
        job = await self._in_thread(self._start_delete, table_id, asked.filters)
        ended = await asyncio.wrap_future(self._store.end(job.job_id))
        if ended.status == "failed":
            raise errors.ValidationFailed(ended.error or "")
        return Response(status_code=204)

    async def truncate(self, request: Request) -> Response:
        await self._in_thread(self._store.enqueue, "truncate", _writable(request), {})
        return Response(status_code=202)

    async def get_job(self, request: Request) -> Response:
        job = self._job(request)
        record = self._record(job)
        await self._noted_read(job)
        return JSONResponse(record)

    async def query_json(self, request: Request) -> Response:
        table = self._store.table(_readable(request))
        asked = asked_page(request)
        if table.snapshot_id and names_snapshot(request.headers.getlist("if-none-match"), table.snapshot_id):
            return Response(status_code=304, headers=_etag(table.snapshot_id))
        snapshot_id, body = await self._in_thread(self._pages.read, table.table_id, asked)
        return Response(body, headers=_etag(snapshot_id), media_type="application/json")

    async def start_query(self, request: Request) -> Response:
        query = await body_of(request, CrossQueryRequest)
        request.state.rights.require_read([query.table_id, *(join.table_id for join in query.joins or ())])
        job = await self._in_thread(self._start_query, query)
        return JSONResponse({"job_id": job.job_id}, 202)

    async def poll_query(self, request: Request) -> Response:
        job, wire = self._job(request), self._settings.wire
        if job.kind != "query":
            raise errors.JobNotFound(f"job {job.job_id!r} is no query")
        if job.status == "completed":
            if self._store.result_expires(job) <= self._store.clock():
                raise errors.JobNotFound(f"the result of job {job.job_id!r} was kept for its time and is removed")
            link = self._storage.result_link(job, self._settings.upload_url_lifetime)
            return RedirectResponse(_origin(request) + link, wire.ready[0])
        record = self._record(job)
        await self._noted_read(job)
        return JSONResponse(record, 200 if job.final else wire.pending[0])

    async def create_table(self, request: Request) -> Response:
        request.state.rights.require_admin()
        asked = await body_of(request, TableBody)
        table = await self._in_thread(self._store.create_table, asked.table_id)
        return JSONResponse({"table_id": table.table_id}, 201)

    async def list_tables(self, request: Request) -> Response:
        request.state.rights.require_admin()
        return JSONResponse(list(map(self._statistics, self._store.tables())))

    async def list_jobs(self, request: Request) -> Response:
        request.state.rights.require_admin()
        return JSONResponse(list(map(self._record, self._store.newest_jobs(_SHOWN_JOBS))))

    async def list_requests(self, request: Request) -> Response:
        request.state.rights.require_admin()
        return JSONResponse([asdict(record) for record in self._requests])

    async def add_fault(self, request: Request) -> Response:
        request.state.rights.require_admin()
        fault = self._faults.add((await body_of(request, FaultBody)).root)
        return JSONResponse(fault.model_dump(exclude_unset=True), 201)

    async def list_faults(self, request: Request) -> Response:
        request.state.rights.require_admin()
        faults = self._faults.all()
        return JSONResponse([{**each.model_dump(exclude_unset=True), "consumed": each.consumed} for each in faults])

    async def clear_faults(self, request: Request) -> Response:
        request.state.rights.require_admin()
        self._faults.clear()
        return Response(status_code=204)

    # ---- inside

    def _job(self, request: Request) -> Job:
        """Look up the job that the path names; it is shown to whom its tables are."""
        job = self._store.job(id_of(request, "job_id"))
        request.state.rights.require_read([job.table_id, *(join["table_id"] for join in job.spec.get("joins", ()))])
        return job

    async def _noted_read(self, job: Job) -> None:
        """Count that a caller was told a job's status, where jobs wait for that."""
        if self._settings.job_reads and not job.final:
            await self._in_thread(self._store.note_read, job.job_id)

    def _start_delete(self, table_id: str, filters: list[str]) -> Job:
        """Refuse what does not fit the table, then queue it."""
        for expression in filters:
            parse_simple(expression)
        with self._store.database.transaction() as cursor:
            table = self._store.table_seen(cursor, table_id)
            if table.ingested:
                matching(cursor, table, filters)
        return self._store.enqueue("delete", table_id, {"filters": filters})

    def _start_query(self, query: CrossQueryRequest) -> Job:
        """Refuse what cannot be run, then queue it."""
        result_format = query.format or DEFAULT_FORMAT
        with self._store.database.transaction() as cursor:
            compile_query(cursor, query, self._store.catalog(cursor), result_format)
        spec = query.model_dump(mode="json", exclude_none=True) | {"format": result_format}
        return self._store.enqueue("query", query.table_id, spec)

    def _write_spec(self, kind: Kind, table_id: str, asked: WriteBody) -> dict[str, Any]:
        """Check what a write asks for, and give what its job has to know."""
        if asked.format not in FORMATS:
            raise errors.ValidationFailed(f"format: {asked.format!r} is none of {', '.join(FORMATS)}")
        if kind != "upsert":
            if asked.key_columns is not None:
                raise errors.ValidationFailed(f"key_columns: {kind} takes none")
            return {"format": asked.format}
        keys = [asked.key_columns] if isinstance(asked.key_columns, str) else asked.key_columns or []
        check_keys(self._store.table(table_id), keys)
        return {"format": asked.format, "key_columns": keys}

    def _statistics(self, table: Table) -> dict[str, Any]:
        """Give what memory knows of a table, §2.2."""
        return {
            "table_id": table.table_id,
            "row_count": table.row_count,
            "total_size_bytes": self._store.size(table.table_id),
            "data_files": [f"data/{table.relation}"] if table.row_count else [],
            "last_updated": _time(table.updated_at),
            "snapshot_id": table.snapshot_id,
        }

    def _record(self, job: Job) -> dict[str, Any]:
        """Give a job's record; fields that do not apply yet are left out."""
        status = "RUNNING" if self._store.running(job.job_id) else job.status.upper()
        known = {
            "job_id": job.job_id,
            "kind": job.kind,
            "table_id": job.table_id,
            "status": status,
            "created_at": _time(job.created_at),
            "finished_at": _time(job.finished_at),
            "snapshot_id": job.snapshot_id,
            "error": job.error,
        }
        return {name: value for name, value in known.items() if value is not None}

    async def _in_thread(self, call: Callable[..., Any], *args: Any) -> Any:
        return await to_thread.run_sync(partial(call, *args), limiter=self._limiter)

    def _rights(self, request: Request) -> Rights:
        """Look the caller's token up; how long it takes tells nothing about the tokens that there are."""
        given = request.headers.get("authorization", "").encode()
        tokens = self._settings.tokens.items()
        found = [rights for token, rights in tokens if hmac.compare_digest(given, f"Bearer {token}".encode())]
        if not found:
            raise errors.Unauthorized("a valid bearer token is needed")
        return found[0]


async def _no_route(routes: Sequence[Route], request: Request, refused: Exception) -> Response:
    """Answer what no route takes; for a method, with those that the path has: several routes may share it."""
    if not isinstance(refused, HTTPException):
        raise refused
    found = [route for route in routes if route.matches(request.scope)[0] != Match.NONE]
    methods = {method for route in found for method in route.methods or ()}
    headers = {"Allow": ", ".join(sorted(methods))} if methods else None
    detail = f"{request.method} {request.url.path}: {refused.detail}"
    return JSONResponse({"detail": detail}, refused.status_code, headers)


def _unavailable(failure: duckdb.Error) -> Response:
    """Say that the database cannot serve now: a full disk, or it is being opened again."""
    log.warning("answered 503: %s", type(failure).__name__)
    return JSONResponse({"detail": "the service cannot write at the moment"}, 503, {"Retry-After": "1"})


def _readable(request: Request) -> str:
    """Read a table's id that the caller may read; whether it exists is told to nobody else."""
    table_id = id_of(request, "table_id")
    request.state.rights.require_read([table_id])
    return table_id


def _writable(request: Request) -> str:
    table_id = id_of(request, "table_id")
    request.state.rights.require_write(table_id)
    return table_id


def _etag(snapshot_id: str) -> dict[str, str]:
    """Give the header of a snapshot; a table that never had data has none, §2.4."""
    return {"ETag": f'"{snapshot_id}"'} if snapshot_id else {}


def _origin(request: Request) -> str:
    """Give scheme, host and port as the caller wrote them, so that a link works from where it stands."""
    return f"{request.url.scheme}://{request.url.netloc}"


def _time(moment: float | None) -> str | None:
    return None if moment is None else datetime.fromtimestamp(moment, UTC).isoformat()
