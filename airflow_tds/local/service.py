"""The embedded service as an object that starts and stops: a store, its worker and an HTTP server in threads."""

from __future__ import annotations

import secrets
import shutil
import socket
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from airflow_tds.client.errors import ValidationFailed
from airflow_tds.client.wire import Wire
from airflow_tds.local.app import Access, Script, build_app
from airflow_tds.local.callers import Scheme, Schemes
from airflow_tds.local.connection import Connecting
from airflow_tds.local.faults import CLOSE, Fault, Faults
from airflow_tds.local.operations import Settings
from airflow_tds.local.recorder import RequestRecord
from airflow_tds.local.rights import ALL, Rights
from airflow_tds.local.s3 import Bucket, S3Storage
from airflow_tds.local.signing import Signer
from airflow_tds.local.storage import Storage
from airflow_tds.local.store import Store
from airflow_tds.local.worker import Worker

__all__ = ["Service"]

#: Requests that the log keeps.
_LONGEST_LOG = 100_000
#: Seconds that open transfers get when the service stops.
_SHUTDOWN = 2


class Service:
    """The service, in this process, from `start` to `stop` or as a context manager.

    Args:
        data_dir: Where everything lies; the same directory goes on where it stopped. None for a temporary
            one that is removed at the end.
        tables: Tables to create; those that exist stay as they are.
        token: The bearer token that has all rights; None makes one.
        tokens: Further tokens, each with its rights.
        upload_url_lifetime: Seconds for which a payload may be sent and a result be fetched.
        host: The address to listen on.
        port: 0 for a free one, chosen at the first start.
        base_path: What stands before every path of the API, such as `/api/v1`.
        job_delay: Seconds from the arrival of a job's data to its earliest start.
        job_reads: How often a job's status has to be read before it starts.
        result_lifetime: Seconds for which a query's result is kept.
        chunked: Whether payloads are taken whose length is not announced; if not, 411 is answered.
        wire: In which forms it serves the interface: a map, or a setting as in a connection's extra, such as
            `patch` or `{"truncate": "DELETE /tables/{table_id}/rows"}`; None for the defaults.
        auth: How callers show their token: `bearer`, `api_key`, `basic` (the login is `tds`) or `oauth2` (the
            client id is `tds`, and the token its secret).
        api_key_header: The header field of an API key.
        token_lifetime: Seconds for which an OAuth2 access token is good.
        upload_headers: Header fields that a payload must carry; they are told with its address and signed.
        clock_skew: Seconds by which its clock is ahead of the machine's, in `Date`, expiries and records; negative
            for behind.
        bucket: A bucket of an S3-compatible store through which payloads and results go (extra `s3`); None for an
            object store of its own.

    Raises:
        ValidationFailed: The setting is no wire map; at start, the map cannot be served.
        StoreUnavailable: At start, another service has the directory, or its database cannot be read.
        OSError: At start, the address cannot be listened on.
    """

    def __init__(
        self,
        data_dir: Path | None = None,
        tables: Iterable[str] = (),
        *,
        token: str | None = None,
        tokens: Mapping[str, Rights] | None = None,
        upload_url_lifetime: float = 3600.0,
        host: str = "127.0.0.1",
        port: int = 0,
        base_path: str = "",
        job_delay: float = 0.0,
        job_reads: int = 0,
        result_lifetime: float = 86_400.0,
        chunked: bool = True,
        wire: Wire | str | Mapping[str, Any] | None = None,
        auth: Schemes = "bearer",
        api_key_header: str = "X-API-Key",
        token_lifetime: float = 3600.0,
        upload_headers: Mapping[str, str] | None = None,
        clock_skew: float = 0.0,
        bucket: Bucket | None = None,
    ) -> None:
        if bucket and upload_headers:
            raise ValidationFailed("upload_headers are for the service's own object store, not for a bucket")
        self.token = token or secrets.token_urlsafe(32)
        self._directory = data_dir or Path(tempfile.mkdtemp(prefix="tds-"))
        # Also at the interpreter's end, for a service that was only stopped: it could have been started again.
        self._remove = None if data_dir else weakref.finalize(self, shutil.rmtree, self._directory, ignore_errors=True)
        self._tables = tuple(tables)
        self._address = (host, port)
        self._pace = (job_delay, job_reads)
        self._result_lifetime = result_lifetime
        self._rights = {**(tokens or {}), self.token: ALL}
        self._scheme = Scheme(auth, api_key_header, token_lifetime)
        self._settings = Settings(
            wire if isinstance(wire, Wire) else Wire.from_setting(wire),
            base_path.rstrip("/"),
            upload_url_lifetime,
            upload_headers,
            job_reads,
            chunked,
        )
        self._bucket = bucket
        self._skew = clock_skew
        self._running = ExitStack()
        self._faults = Faults()
        self._log: deque[RequestRecord] = deque(maxlen=_LONGEST_LOG)

    def __enter__(self) -> Self:
        """Start it."""
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """Stop it; a temporary directory is removed."""
        self.stop()
        if self._remove is not None:
            self._remove()

    def start(self) -> None:
        """Start serving; on return the service answers."""
        with ExitStack() as started:
            listener = started.enter_context(_listen(*self._address))
            self._store = started.enter_context(Store(self._directory, self._clock, self._result_lifetime))
            for table_id in self._tables:
                self._store.create_table(table_id)
            storage = started.enter_context(S3Storage(self._store, self._bucket)) if self._bucket else self._storage()
            self._worker = started.enter_context(Worker(self._store, *self._pace))
            access, script = Access(self._rights, self._scheme), Script(self._faults, self._log)
            app = build_app(self._store, storage, self._settings, access, script)
            started.enter_context(_Server(app, listener))
            started.callback(self._store.stop_waiting)
            self._address = (self._address[0], listener.getsockname()[1])  # a restart keeps its port
            self._running = started.pop_all()

    def _clock(self) -> float:
        return time.time() + self._skew

    def _storage(self) -> Storage:
        settings = self._settings
        headers = {**settings.wire.put_headers, **(settings.upload_headers or {})}
        signer = Signer(self._store.directory.signing_key())
        return Storage(self._store, signer, chunked=settings.chunked, headers=headers)

    def stop(self) -> None:
        """Stop serving; a job under way stays queued and goes on at the next start."""
        self._running.close()

    @property
    def url(self) -> str:
        """The address of the API, base path included."""
        host, port = self._address
        return f"http://{f'[{host}]' if ':' in host else host}:{port}{self._settings.base_path}"

    @property
    def connecting(self) -> Connecting:
        """What a connection to it has to know."""
        return Connecting(self.url, self._scheme, self._settings.wire)

    @property
    def connection_json(self) -> str:
        """An Airflow connection to it, as JSON."""
        return self.connecting.as_json(self.token)

    @property
    def connection_uri(self) -> str:
        """An Airflow connection to it, as a URI."""
        return self.connecting.as_uri(self.token)

    @property
    def requests(self) -> list[RequestRecord]:
        """The requests so far, oldest first."""
        return list(self._log)

    def create_table(self, table_id: str) -> None:
        """Create an empty table; one that exists stays as it is.

        Raises:
            ValidationFailed: The id is empty or holds NUL.
        """
        self._store.create_table(table_id)

    def forget(self, job_id: str) -> None:
        """Forget a job that has ended or waits for its data, as a service does that keeps no records for ever.

        Raises:
            JobNotFound: There is none.
            Conflict: It is queued, or runs.
        """
        self._store.forget(job_id)

    def fault(self, operation: str, **effect: Any) -> Fault:
        """Let something go wrong on purpose, once unless told otherwise.

        Args:
            operation: Whose next request it hits, such as `append`, `put_payload` or `poll_query`.
            **effect: What happens, as in `status=503`; see `Fault`.

        Returns:
            The fault; its `left` is 0 once it has happened as often as it was to.

        Raises:
            ValidationFailed: There is no such operation or effect.
        """
        return self._faults.add({"operation": operation, **effect})

    @property
    def faults(self) -> list[Fault]:
        """The faults that were scripted, in order."""
        return self._faults.all()

    def clear_faults(self) -> None:
        """Forget all faults, those that happened and those that did not."""
        self._faults.clear()

    def hold(self) -> None:
        """Take no further job until `release`, so that a test sees it queued."""
        self._worker.hold()

    def release(self) -> None:
        """Take jobs again."""
        self._worker.release()


class _Quiet(HttpToolsProtocol):
    """Never logs addresses: those of the object store hold signatures.

    The option for it acts on a logger that the host program may set up anew.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.access_log = False

    def on_message_begin(self) -> None:
        """Let a fault on purpose close the connection: ASGI has no word for it."""
        super().on_message_begin()
        self.scope[CLOSE] = self.transport.close  # type: ignore[literal-required]  # a key of ours


class _Server(uvicorn.Server):
    """uvicorn in a thread, on a socket that is open already."""

    def __init__(self, app: object, listener: socket.socket) -> None:
        super().__init__(
            uvicorn.Config(
                app,  # type: ignore[arg-type]  # an ASGI application
                http=_Quiet,
                ws="none",  # none is served, and loading it warns with the uvicorn of Airflow 3.0 and 3.1
                loop="asyncio",  # another loop that happens to be installed gains nothing
                log_config=None,
                access_log=False,
                date_header=False,  # the recorder tells the service's own time, which may be another on purpose
                lifespan="off",
                timeout_graceful_shutdown=_SHUTDOWN,
            )
        )
        self._listener = listener
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._announce, daemon=True)

    def __enter__(self) -> Self:
        """Serve; on return the first request is answered."""
        self._thread.start()
        self._ready.wait()
        if not self.started:
            raise RuntimeError("the HTTP server did not start")
        return self

    def __exit__(self, *exc: object) -> None:
        """End open connections and stop."""
        self.should_exit = True
        self._thread.join()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Tell `start` that requests are answered from now on."""
        await super().startup(sockets)
        self._ready.set()

    def _announce(self) -> None:
        try:
            self.run(sockets=[self._listener])
        finally:
            self._ready.set()


def _listen(host: str, port: int) -> socket.socket:
    """Open the socket ourselves: a free port is known before the server starts."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Naming the protocol matters: asyncio sets TCP_NODELAY on such sockets only, and 40 ms a request depend on it.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(1024)
    except BaseException:
        listener.close()
        raise
    return listener
