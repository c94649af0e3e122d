"""The operations of the interface, as endpoints: requests checked, answers formed.

What an operation does is the store's; here stand who may call it, what is refused, and in which order a write's
request, its data and its job come (the map's strategies). Inputs are read by inputs.py and answers put where the
map reads them by answers.py. No SQL on the event loop: what commits or compiles runs in a thread, what memory
knows is answered at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from anyio import CapacityLimiter, to_thread
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response

from airflow_tds.client import errors
from airflow_tds.client.models import CrossQueryRequest
from airflow_tds.client.wire import Route, Wire
from airflow_tds.local import catalog
from airflow_tds.local.answers import Answers, said
from airflow_tds.local.faults import HAPPENED, Fault, Faults
from airflow_tds.local.filters import matching
from airflow_tds.local.inputs import AskedWrite, Reader, Sent, document_of, inputs_of
from airflow_tds.local.intake import Intake
from airflow_tds.local.pages import Pages
from airflow_tds.local.query import DEFAULT_FORMAT, compile_query
from airflow_tds.local.records import Job, Kind, Table
from airflow_tds.local.routing import IDS, SERVED
from airflow_tds.local.storage import ObjectStore, spooled
from airflow_tds.local.store import Store
from airflow_tds.local.writes import check_keys

__all__ = ["Operations", "Settings", "moment"]

#: Statements that may run for requests at once.
_THREADS = 4


@dataclass(frozen=True)
class Settings:
    """What the operations depend on.

    Attributes:
        wire: The forms in which they are served.
        base_path: What stands before every path, such as `/api/v1`; empty for nothing.
        upload_url_lifetime: Seconds for which a payload may be sent, and a result be fetched.
        upload_headers: Header fields that a payload must carry, told with its address.
        job_reads: How often a job's status is read before it starts.
        chunked: Whether a payload is taken whose length is not announced.
    """

    wire: Wire
    base_path: str = ""
    upload_url_lifetime: float = 3600.0
    upload_headers: Mapping[str, str] | None = None
    job_reads: int = 0
    chunked: bool = True


class Operations:
    """The endpoints. Each raises what client.errors knows; its status is the map's word.

    Args:
        store: What is served.
        storage: Where payloads go and results come from.
        settings: See there.
        faults: What is to go wrong.
    """

    def __init__(self, store: Store, storage: ObjectStore, settings: Settings, faults: Faults) -> None:
        self._store = store
        self._storage = storage
        self._settings = settings
        self._faults = faults
        self._intake = Intake(store)
        self._pages = Pages(store)
        self._reader = Reader(settings.wire)
        self._answers = Answers(settings.wire)
        self._limiter = CapacityLimiter(_THREADS)

    # ---- tables

    async def info(self, request: Request) -> Response:
        """Give a table's statistics."""
        table = self._store.table(_readable(request))
        await self._inputs(request)
        return said(self._answers.statistics(self.statistics(table)))

    async def query_json(self, request: Request) -> Response:
        """Give a page, or say that nothing has changed."""
        table = self._store.table(_readable(request))
        inputs = await self._inputs(request)
        asked = self._reader.page(inputs)
        if table.snapshot_id and self._reader.names_snapshot(inputs, table.snapshot_id):
            return Response(status_code=304, headers=self._answers.etag(table.snapshot_id))
        lists = bool(self._settings.wire.columns)
        page = await self._in_thread(partial(self._pages.read, table.table_id, asked, lists=lists))
        return self._answers.page(page)

    async def delete_rows(self, request: Request) -> Response:
        """Answer once the rows are gone; a caller who does not wait for that changes nothing about it."""
        table_id = _writable(request)
        inputs = await self._inputs(request)
        job = await self._in_thread(self._start_delete, request, table_id, inputs)
        ended = await asyncio.wrap_future(self._store.end(job.job_id))
        if ended.status == "failed":
            raise errors.ValidationFailed(ended.error or "")
        return Response(status_code=204)

    async def truncate(self, request: Request) -> Response:
        """Let all rows be removed after this answer."""
        table_id = _writable(request)
        await self._inputs(request)
        self._store.table(table_id)
        await self._in_thread(self._store.enqueue, "truncate", table_id, self._spec(request, "truncate", {}))
        return Response(status_code=202)

    # ---- writes

    async def write(self, kind: Kind, request: Request) -> Response:
        """Start a write, in the way that the map says of it."""
        table_id, route = _writable(request), request.scope[SERVED].route
        direct = route.strategy == "direct"
        media_type = request.headers.get("content-type", "") if direct else ""
        asked = self._reader.write(kind, route, await self._inputs(request), media_type)
        known = self._known(kind, table_id, asked)
        if direct:
            return await self._take(kind, table_id, known, request)
        if route.strategy == "put_commit":
            spec = self._spec(request, kind, known)
            job = await self._in_thread(self._intake.commit, kind, table_id, spec, asked.object)
            return said(self._answers.started(job.job_id), 202)
        spec, lifetime = self._spec(request, kind, known), self._settings.upload_url_lifetime
        job = await self._in_thread(self._intake.initiate, kind, table_id, spec, lifetime)
        return said(self._answers.initiated(job.job_id, self._upload(request, job)))

    async def presign(self, request: Request) -> Response:
        """Say where the data of a write goes that is committed afterwards."""
        inputs = await self._inputs(request)
        table_id = inputs.get("table_id") or ""
        if table_id:
            request.state.rights.require_write(table_id)
        data_format = self._reader.presigned_format(request.scope[SERVED].route, inputs)
        spec = self._spec(request, "presign", {"format": data_format})
        job = await self._in_thread(self._intake.stage, table_id, spec, self._settings.upload_url_lifetime)
        return said(self._answers.presigned(job.job_id, self._upload(request, job)))

    async def _take(self, kind: Kind, table_id: str, known: Mapping[str, Any], request: Request) -> Response:
        """Take a write whose payload is the request's own body."""
        if not self._settings.chunked and "content-length" not in request.headers:
            raise errors.LengthRequired("the length of the payload must be announced")
        spec = self._spec(request, kind, known)
        await self._in_thread(self._intake.made, kind, table_id, spec)  # refused now, not after the data is sent
        try:
            async with spooled(request, self._store.directory.payloads) as payload:
                job = await self._in_thread(self._intake.accept, kind, table_id, spec, tuple(payload))
        except ClientDisconnect:
            raise errors.ValidationFailed("the body is shorter than announced") from None
        return said(self._answers.started(job.job_id), 202)

    def _upload(self, request: Request, job: Job) -> dict[str, Any]:
        return {
            "url": _absolute(request, self._storage.upload_link(job)),
            "headers": dict(self._settings.upload_headers or {}),
            "expires_at": moment(job.expires_at),
        }

    def _known(self, kind: Kind, table_id: str, asked: AskedWrite) -> dict[str, Any]:
        """Give what a write's job has to know."""
        layout = self._reader.layout(asked.format)
        known = {"format": asked.format} | ({"layout": layout} if layout is not None else {})
        if kind != "upsert":
            return known
        check_keys(self._store.table(table_id), asked.key_columns)
        return known | {"key_columns": list(asked.key_columns)}

    # ---- queries and jobs

    async def get_job(self, request: Request) -> Response:
        """Give a job's record."""
        job = self._job(request)
        await self._inputs(request)
        record = self.record(job)
        await self._noted_read(job)
        return said(record)

    async def start_query(self, request: Request) -> Response:
        """Start a query into a file."""
        query = self._reader.query(document_of(await request.body()))
        request.state.rights.require_read([query.table_id, *(join.table_id for join in query.joins or ())])
        job = await self._in_thread(self._start_query, request, query)
        return said(self._answers.started(job.job_id), 202)

    async def poll_query(self, request: Request) -> Response:
        """Say how a query stands: not yet, failed, or where its result is."""
        job, wire = self._job(request), self._settings.wire
        await self._inputs(request)
        if job.kind != "query":
            raise errors.JobNotFound(f"job {job.job_id!r} is no query")
        if job.status == "completed":
            if self._store.result_expires(job) <= self._store.clock():
                raise errors.JobNotFound(f"the result of job {job.job_id!r} was kept for its time and is removed")
            link = self._storage.result_link(job, self._settings.upload_url_lifetime)
            return RedirectResponse(_absolute(request, link), wire.ready[0])
        record = self.record(job)
        await self._noted_read(job)
        return self._answers.failed(record, job.error or "") if job.final else self._answers.pending(record)

    # ---- what others show too

    def statistics(self, table: Table) -> dict[str, Any]:
        """Give what memory knows of a table, §2.2."""
        return {
            "table_id": table.table_id,
            "row_count": table.row_count,
            "total_size_bytes": self._store.size(table.table_id),
            "data_files": [f"data/{table.relation}"] if table.row_count else [],
            "last_updated": moment(table.updated_at),
            "snapshot_id": table.snapshot_id,
        }

    def record(self, job: Job, answers: Answers | None = None) -> dict[str, Any]:
        """Give a job's record, in the map's form or in that of `answers`."""
        told = {
            "job_id": job.job_id,
            "kind": job.kind,
            "table_id": job.table_id,
            "created_at": moment(job.created_at),
            "finished_at": moment(job.finished_at),
            "snapshot_id": job.snapshot_id,
        }
        return (answers or self._answers).record(job, told, running=self._store.running(job.job_id))

    # ---- inside

    async def _inputs(self, request: Request) -> dict[str, Any]:
        """Read what a request asks for, at the route by which it came."""
        served = request.scope[SERVED]
        route: Route = served.route
        payload = route.strategy == "direct"
        sent = Sent(
            served.line.method,
            request.scope["path"],
            Sent.parameters(request.scope["query_string"].decode("latin-1")),
            request.headers,
            None if payload else document_of(await request.body()),
        )
        return inputs_of(route, sent, request.scope[IDS], tuple(served.line.query))

    def _spec(self, request: Request, operation: str, known: Mapping[str, Any]) -> dict[str, Any]:
        """Give what a job has to know: its idempotency key, and how it is to go wrong, too."""
        spec = dict(known)
        header = self._settings.wire.idempotency_header
        if header and header in request.headers:
            spec["key"] = request.headers[header]
        fault: Fault | None = self._faults.take(operation, of_job=True)
        if fault:
            request.scope[HAPPENED], spec["fault"] = fault, fault.job
        return spec

    def _job(self, request: Request) -> Job:
        """Look up the job that the path names; it is shown to whom its tables are."""
        job_id = request.scope[IDS]["job_id"]
        job = self._store.job(job_id)
        if job.kind == "object":
            raise errors.JobNotFound(f"job {job_id!r} does not exist")
        request.state.rights.require_read([job.table_id, *(join["table_id"] for join in job.spec.get("joins", ()))])
        return job

    async def _noted_read(self, job: Job) -> None:
        """Count that a caller was told a job's status, where jobs wait for that."""
        if self._settings.job_reads and not job.final:
            await self._in_thread(self._store.note_read, job.job_id)

    def _start_delete(self, request: Request, table_id: str, inputs: Mapping[str, Any]) -> Job:
        """Refuse what does not fit the table, then queue it."""
        predicate = self._reader.filters(self._settings.wire.delete_rows, inputs)
        if predicate is None:
            raise errors.ValidationFailed("filters: at least one is needed (§8)")
        with self._store.database.transaction() as cursor:
            table = self._store.table_seen(cursor, table_id)
            if table.ingested:
                matching(cursor, table, predicate)
        spec = self._spec(request, "delete_rows", {"filters": predicate.model_dump(mode="json")})
        return self._store.enqueue("delete", table_id, spec)

    def _start_query(self, request: Request, query: CrossQueryRequest) -> Job:
        """Refuse what cannot be run, then queue it."""
        result_format = query.format or DEFAULT_FORMAT
        with self._store.database.transaction() as cursor:
            compile_query(cursor, query, catalog.tables(cursor), result_format)
        known = query.model_dump(mode="json", exclude_none=True) | {"format": result_format}
        return self._store.enqueue("query", query.table_id, self._spec(request, "start_query", known))

    async def _in_thread(self, call: Callable[..., Any], *args: Any) -> Any:
        return await to_thread.run_sync(partial(call, *args), limiter=self._limiter)


def _readable(request: Request) -> str:
    """Give the table's id that the caller may read; whether it exists is told to nobody else."""
    table_id: str = request.scope[IDS]["table_id"]
    request.state.rights.require_read([table_id])
    return table_id


def _writable(request: Request) -> str:
    table_id: str = request.scope[IDS]["table_id"]
    request.state.rights.require_write(table_id)
    return table_id


def _absolute(request: Request, link: str) -> str:
    """Give a link of our own with scheme, host and port as the caller wrote them, so that it works from there."""
    return f"{request.url.scheme}://{request.url.netloc}{link}" if link.startswith("/") else link


def moment(posix: float | None) -> str | None:
    """Write a moment; None for none."""
    return None if posix is None else datetime.fromtimestamp(posix, UTC).isoformat()
