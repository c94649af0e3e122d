"""The object store behind presigned URLs: takes payloads and hands out results, without credentials.

It speaks as object stores do: refusals are XML. A payload is on disk, and its job queued, before the
answer is sent; a transfer that breaks off leaves nothing. Memory does not grow with a file's size.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol
from uuid import uuid4
from xml.sax.saxutils import escape

import duckdb
from anyio import to_thread
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response

from airflow_tds.client.errors import Conflict, JobNotFound
from airflow_tds.local.records import Job
from airflow_tds.local.routing import IDS
from airflow_tds.local.signing import LinkRefused, Purpose, Signer
from airflow_tds.local.store import Store

__all__ = ["MEDIA_TYPES", "PATHS", "ObjectStore", "Spooled", "Storage", "spooled"]

log = logging.getLogger(__name__)

#: Paths of payloads and results, below the server's root and outside the API's base path.
PATHS = {"put_payload": "/storage/payloads/{job_id}", "get_result": "/storage/results/{job_id}"}
#: Of results, by format.
MEDIA_TYPES = {"parquet": "application/vnd.apache.parquet", "csv": "text/csv", "json": "application/json"}
_CHUNK = 1 << 20


class Spooled(NamedTuple):
    """A payload on disk.

    Attributes:
        part: Its file, which is removed unless it is renamed.
        sha256: Its digest, hexadecimal.
        size: Bytes.
    """

    part: Path
    sha256: str
    size: int


class _Result(FileResponse):
    """A file in chunks that are worth a thread's hop: four times the throughput of the default."""

    chunk_size = _CHUNK


class ObjectStore(Protocol):
    """Gives the addresses to which payloads are sent and from which results are fetched."""

    def upload_link(self, job: Job) -> str:
        """Give the address to which a job's payload is PUT; one that begins with `/` is the service's own."""

    def result_link(self, job: Job, lifetime: float) -> str:
        """Give the address from which a query's result is fetched, for `lifetime` seconds at most."""


class Storage:
    """Serves presigned URLs.

    Args:
        store: Where payloads and results lie.
        signer: Made and checks the URLs.
        chunked: Whether payloads of unknown length are taken.
        headers: Header fields that every payload must carry, part of what is signed.
    """

    def __init__(
        self, store: Store, signer: Signer, *, chunked: bool = True, headers: Mapping[str, str] | None = None
    ) -> None:
        self._store = store
        self._signer = signer
        self._chunked = chunked
        self._headers = headers or {}

    def upload_link(self, job: Job) -> str:
        """Give the path to which a job's payload is PUT."""
        path = PATHS["put_payload"].format(job_id=job.job_id)
        return self._signer.link("PUT", path, "payload", job.job_id, job.expires_at or 0.0)

    def result_link(self, job: Job, lifetime: float) -> str:
        """Give the path from which a query's result is fetched, for `lifetime` seconds or as long as it is kept."""
        path = PATHS["get_result"].format(job_id=job.job_id)
        expires_at = min(self._store.clock() + lifetime, self._store.result_expires(job))
        return self._signer.link("GET", path, "result", job.job_id, expires_at)

    async def put_payload(self, request: Request) -> Response:
        """Take a payload; the same one again is acknowledged again and changes nothing."""
        job_id = request.scope[IDS]["job_id"]
        try:
            self._check(request, "PUT", "payload")
            self._check_headers(request)
            if not self._chunked and "content-length" not in request.headers:
                return _xml(411, "MissingContentLength", "You must provide the Content-Length HTTP header.")
            with self._store.receiving(job_id):
                async with spooled(request, self._store.directory.payloads) as payload:
                    await to_thread.run_sync(partial(self._store.received, job_id, *payload))
        except LinkRefused as refused:
            return _xml(403, refused.code, str(refused))
        except Conflict as refused:
            return _xml(409, "OperationAborted", str(refused))
        except JobNotFound as refused:
            return _xml(404, "NoSuchUpload", str(refused))
        except (duckdb.Error, OSError) as failure:
            log.warning("answered 503: %s", type(failure).__name__)
            return _xml(503, "SlowDown", "The payload cannot be stored at the moment.", {"Retry-After": "1"})
        except ClientDisconnect:
            return _xml(400, "IncompleteBody", "The body is shorter than announced.")
        return Response(headers={"ETag": f'"{payload.sha256}"'})

    async def get_result(self, request: Request) -> Response:
        """Hand out a result; ranges are served."""
        job_id = request.scope[IDS]["job_id"]
        try:
            self._check(request, "GET", "result")  # a link to fetch may be asked for its headers only
        except LinkRefused as refused:
            return _xml(403, refused.code, str(refused))
        file = self._store.directory.results / job_id
        if not file.exists():
            return _xml(404, "NoSuchKey", "The specified key does not exist.")
        return _Result(file, media_type=MEDIA_TYPES[self._store.job(job_id).spec["format"]])

    def _check(self, request: Request, method: str, purpose: Purpose) -> None:
        """Refuse a link that is forged or expired; that of a job which is to take late data never expires."""
        job_id, now = request.scope[IDS]["job_id"], self._store.clock()
        late = self._store.has_fault(job_id, "takes_late_data")
        given, path = request.query_params, request.scope["path"]
        self._signer.check(method, path, purpose, job_id, given=given, now=0.0 if late else now)

    def _check_headers(self, request: Request) -> None:
        for name, value in self._headers.items():
            if request.headers.get(name) != value:
                raise LinkRefused("SignatureDoesNotMatch", f"The signed header {name} is missing or another one.")


@asynccontextmanager
async def spooled(request: Request, folder: Path) -> AsyncIterator[Spooled]:
    """Write a body to disk as it arrives; what is not renamed inside the block is removed at its end.

    Raises:
        ClientDisconnect: It broke off.
    """
    part = folder / f"{uuid4().hex}.part"
    try:
        with part.open("wb") as file:
            digest, size = await _save(request, file)
        yield Spooled(part, digest, size)
    finally:
        part.unlink(missing_ok=True)


async def _save(request: Request, file: BinaryIO) -> tuple[str, int]:
    """Write a body as it arrives, and force it to disk; a body that breaks off raises ClientDisconnect."""
    digest, size, held = hashlib.sha256(), 0, bytearray()

    def write() -> None:
        digest.update(held)
        file.write(held)
        held.clear()

    async for chunk in request.stream():
        size += len(chunk)
        held += chunk
        if len(held) >= _CHUNK:
            await to_thread.run_sync(write)
    await to_thread.run_sync(write)
    file.flush()
    await to_thread.run_sync(os.fsync, file.fileno())
    return digest.hexdigest(), size


def _xml(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> Response:
    error = f"<Error><Code>{code}</Code><Message>{escape(message)}</Message></Error>"
    return Response(f'<?xml version="1.0" encoding="UTF-8"?>\n{error}', status, headers, media_type="application/xml")
