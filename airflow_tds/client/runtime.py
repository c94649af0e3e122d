"""The outside world in three verbs: send, pause, now. The only room that imports httpx and reads a clock.

`BlockingRuntime` never suspends. A coroutine built only on it therefore ends on its first step, and
`finish()` returns its result; anything else that tries to suspend raises at once. `AsyncRuntime` is the
same over asyncio. `Lane` is one connection that can only read, for the shared poller.

Redirects are never followed here. A presigned request goes through a client of its own that has no
credentials, no cookies and no default headers. Answers are taken as they are: no decoding, and a cap on
what is kept in memory.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import threading
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing, closing, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx

from airflow_tds import __version__
from airflow_tds.client import errors
from airflow_tds.client.messages import Reply, Request, SecretUrl
from airflow_tds.client.payloads import Body, Pieces

__all__ = ["Access", "AsyncRuntime", "BlockingRuntime", "Lane", "Runtime", "finish"]

T = TypeVar("T")
C = TypeVar("C", httpx.Client, httpx.AsyncClient)

#: A control answer (job, info, error) beyond this is refused; results go to a sink and have no cap.
LARGEST_ANSWER = 64 * 1024 * 1024
#: Of an answer that says no, this much is read for its text.
LARGEST_REFUSAL = 64 * 1024
#: Connect quickly or not at all; a read may take as long as a slow service needs to answer.
CALL_TIMEOUT = {"connect": 10.0, "read": 60.0, "write": 60.0, "pool": 10.0}
#: A store may take minutes to commit a large object after its last byte; httpx's 5 s would give it up.
TRANSFER_TIMEOUT = {"connect": 10.0, "read": 300.0, "write": 60.0, "pool": 10.0}
#: Requests of one async client that may be on their way at once.
MOST_AT_ONCE = 100
#: A sleeping worker looks this often, in seconds, whether it was told to stop.
STOP_SLICE = 0.5
#: What never left: no connection was made, or the request could not be written down.
_NOT_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)


@dataclass(frozen=True, repr=False)
class Access:
    """Where the service is, and how it lets us in.

    Attributes:
        base_url: Scheme, host, port and base path, such as `https://host:8443/api/v1`.
        token: Bearer token; None for no credentials (assumed scheme, §5 is silent).
        ca_bundle: Path of a file with trusted certificates; None for the default ones.
    """

    base_url: str
    token: str | None = None
    ca_bundle: str | None = None

    def __repr__(self) -> str:
        return f"Access({self.base_url!r}, token={'***' if self.token else None})"

    def check(self) -> None:
        """Refuse an address that is none.

        Raises:
            ValidationFailed: The base URL has no host, another scheme than http(s), credentials or a query;
                or the token cannot stand in a header. The text shows neither credentials nor query.
        """
        if not _is_address(self.base_url) or "?" in self.base_url:
            shown = self.base_url.split("?")[0].rpartition("@")[2]
            raise errors.ValidationFailed(f"{shown!r} is no service address; write https://host[:port][/base/path]")
        if self.token and not re.fullmatch(r"[\x21-\x7e]+", self.token):
            raise errors.ValidationFailed("the token holds a blank, a line end or a character beyond ASCII")

    def ssl_context(self) -> ssl.SSLContext:
        """Build the context that checks the other side; costs about 20 ms, so build it once.

        Raises:
            ValidationFailed: The file of trusted certificates cannot be read.
        """
        if not self.ca_bundle:
            return httpx.create_ssl_context()
        try:
            return ssl.create_default_context(cafile=self.ca_bundle)
        except OSError as error:
            raise errors.ValidationFailed(f"ca_bundle {self.ca_bundle!r}: {error}") from None

    def address(self, request: Request) -> str:
        """Give the whole URL of a request.

        Raises:
            UnexpectedReply: A presigned URL is no address, not https although the service is, or would be
                rewritten on its way, so that its signature no longer fits.
        """
        if not isinstance(request.target, SecretUrl):
            return self.base_url.rstrip("/") + request.target
        url = request.target.reveal()
        schemes = ("http", "https") if urlsplit(self.base_url).scheme == "http" else ("https",)
        if not _is_address(url, schemes) or not _kept_as_is(url):
            raise errors.UnexpectedReply(
                f"{request.operation}, {request.subject}: the presigned address {request.target} is refused"
            )
        return url

    def headers(self, request: Request, request_id: str) -> httpx.Headers:
        """Give a request's header fields; credentials and our own names go to the service only."""
        fields = httpx.Headers(
            {"User-Agent": f"airflow-tds/{__version__} httpx/{httpx.__version__}", "Accept-Encoding": "identity"}
        )
        if not isinstance(request.target, SecretUrl):
            fields.update({"Accept": "application/json", "X-Request-Id": request_id})
            fields.update({"Authorization": f"Bearer {self.token}"} if self.token else {})
        fields.update(request.headers)
        if request.body is not None and request.body.length is not None:
            fields["Content-Length"] = str(request.body.length)
        return fields


def _is_address(url: str, schemes: Sequence[str] = ("http", "https")) -> bool:
    """Say whether text is a URL of one of these schemes, without credentials and fragment."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises beyond 65535; httpx would wrap it around
    except ValueError:
        return False
    plain = url.isascii() and url.isprintable() and not any(c in url for c in " \\#") and "@" not in parts.netloc
    return plain and parts.scheme in schemes and bool(parts.hostname)


def _kept_as_is(url: str) -> bool:
    """Say whether httpx sends path and query as they are."""
    try:
        sent = httpx.URL(url).raw_path.decode()
    except httpx.InvalidURL:
        return False
    written = url.partition("://")[2][len(urlsplit(url).netloc) :]
    return sent == (written if written.startswith("/") else "/" + written)


class Runtime(Protocol):
    """What an operation may ask of the world."""

    async def send(self, request: Request) -> Reply:
        """Send a request and give its reply, whatever its status.

        Raises:
            TransportFailed: No complete answer came.
            Stopped: The work was told to stop; nothing was sent.
        """
        ...

    async def pause(self, seconds: float) -> None:
        """Wait."""
        ...

    def now(self) -> float:
        """Give the time, POSIX seconds."""
        ...


def finish(work: Coroutine[Any, Any, T]) -> T:
    """Step a coroutine that never suspends to its end.

    Raises:
        RuntimeError: It tried to suspend, so it was not built on a `BlockingRuntime` alone.
    """
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        work.close()
    raise RuntimeError("an operation of the blocking client tried to suspend")


class _Incoming:
    """A reply as it arrives: into the sink if it is a result, else into memory, up to a cap."""

    def __init__(self, request: Request, response: httpx.Response, request_id: str) -> None:
        self._request = request
        self._response = response
        self._id = request_id
        self._kept = bytearray()
        self._received = 0
        self._pour = request.sink is not None and response.is_success
        self._encoded = response.headers.get("content-encoding", "identity").lower() != "identity"
        if response.is_success:
            self._check_framing()

    def _check_framing(self) -> None:
        headers = self._response.headers
        if self._encoded:
            raise self._unexpected(
                f"the answer is {headers['content-encoding']}-encoded although that was not asked for"
            )
        if self._pour and self._response.status_code != httpx.codes.OK:
            raise self._unexpected(f"HTTP {self._response.status_code} is no whole result")
        if self._pour and "content-length" not in headers and "transfer-encoding" not in headers:
            raise self._unexpected("the result has no length, so a cut one could not be told from a whole one")

    def _unexpected(self, what: str) -> errors.UnexpectedReply:
        return errors.UnexpectedReply(f"{self._request.operation}, {self._request.subject}: {what}")

    def take(self, piece: bytes) -> bool:
        """Keep a piece; False when no more is wanted."""
        self._received += len(piece)
        if self._pour and self._request.sink is not None:
            self._request.sink.write(piece)
            return True
        self._kept += piece
        if self._response.is_success and len(self._kept) > LARGEST_ANSWER:
            raise self._unexpected(f"the answer has more than {LARGEST_ANSWER} bytes")
        return self._response.is_success or len(self._kept) <= LARGEST_REFUSAL

    def reply(self) -> Reply:
        """Give the reply, once all of it has come.

        Raises:
            TransportFailed: A result has not the length that was announced beside its chunks.
        """
        headers = {name.lower(): value for name, value in self._response.headers.items()}
        announced = headers.get("content-length", str(self._received))
        if self._pour and announced != str(self._received):
            raise errors.TransportFailed(
                f"{self._request.operation}, {self._request.subject}: {self._received} of {announced} bytes came"
            )
        content = b"" if self._encoded else bytes(self._kept)  # an error page that we cannot read says nothing
        return Reply(self._response.status_code, headers, content, self._received, self._id)


class _Guard:
    """Whether a request may go on: it is neither told to stop nor late."""

    def __init__(self, request: Request, check_stop: Callable[[], None]) -> None:
        self._request = request
        self._check_stop = check_stop
        self._ends = None if request.limit is None else time.monotonic() + request.limit

    def check(self) -> None:
        self._check_stop()
        if self._ends is not None and time.monotonic() > self._ends:
            raise errors.TransportFailed(
                f"{self._request.operation}, {self._request.subject}: not done within {self._request.limit:.0f} s"
            )


class _Outgoing:
    """A payload as it leaves: counted against its length, stopped by the clock or by a flag.

    One piece is held back until the next one is there: a store takes what was announced, or a last chunk,
    for a whole payload, so the last piece leaves only once it is known that it is the last.
    """

    def __init__(self, body: Body, guard: _Guard) -> None:
        self._body = body
        self._guard = guard

    def pieces(self) -> Pieces:
        held, read = b"", 0
        with closing(self._body.open()) as source:
            for piece in source:
                self._guard.check()
                read += len(piece)
                if self._body.length is not None and read > self._body.length:
                    raise self._changed(f"it grew beyond the {self._body.length} bytes that were announced")
                if held:
                    yield held
                held = piece
        if self._body.length is not None and read < self._body.length:
            raise self._changed(f"it had {read} bytes, {self._body.length} were announced")
        self._guard.check()
        if held:
            yield held

    async def apieces(self) -> AsyncGenerator[bytes, None]:
        """Give the pieces without blocking the loop: each is read in a thread."""
        source, lock = self.pieces(), threading.Lock()
        try:
            while (piece := await asyncio.to_thread(_locked, lock, next, source, None)) is not None:
                yield piece
        finally:  # the lock: cancelled, the thread may still be reading
            await asyncio.to_thread(_locked, lock, source.close)

    def _changed(self, what: str) -> errors.ValidationFailed:
        return errors.ValidationFailed(f"the payload changed while it was sent: {what}; the store keeps none of it")


def _outgoing(body: Body, guard: _Guard) -> _Outgoing:
    """Make a payload ready to leave; one of no bytes is whole as soon as it is announced, so it is looked at first."""
    outgoing = _Outgoing(body, guard)
    if body.length == 0:
        next(outgoing.pieces(), None)
    return outgoing


def _locked(lock: threading.Lock, call: Callable[..., Any], *args: Any) -> Any:
    with lock:
        return call(*args)


def _failure(request: Request, error: Exception) -> errors.TransportFailed:
    """Say what httpx's exception means for the request: whether it can have reached the service.

    Raise what this returns outside of the `except`: httpx's exception holds the URL and the headers.
    """
    unsent = isinstance(error, (*_NOT_SENT, httpx.InvalidURL))
    text = f"{request.operation}, {request.subject}: {type(error).__name__}"
    quotes = isinstance(request.target, SecretUrl) or isinstance(error, httpx.LocalProtocolError)
    detail = "" if quotes or not str(error) else f": {error}"  # what may quote a URL or a header is not shown
    return errors.TransportFailed(text + detail, outcome="not_sent" if unsent else "unknown")


_BROKEN = (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError)


def _arguments(access: Access, request: Request, request_id: str) -> dict[str, Any]:
    return {
        "method": request.method,
        "url": access.address(request),
        "headers": access.headers(request, request_id),
        "json": request.json,
        "timeout": _timeout(request),
    }


def _timeout(request: Request) -> httpx.Timeout:
    """Give the socket's patience: no single step takes longer than the whole request may."""
    usual = TRANSFER_TIMEOUT if isinstance(request.target, SecretUrl) else CALL_TIMEOUT
    limit = float("inf") if request.limit is None else request.limit
    return httpx.Timeout(**{step: min(seconds, limit) for step, seconds in usual.items()})


class _Clients(Generic[C]):
    """The two clients of a runtime: one with credentials for the service, one without for the object store."""

    _make: Callable[..., C]

    def __init__(self, access: Access) -> None:
        access.check()
        self._access = access

    @cached_property
    def _context(self) -> ssl.SSLContext:
        return self._access.ssl_context()

    @cached_property
    def _service(self) -> C:
        return self._make(verify=self._context)

    @cached_property
    def _storage(self) -> C:
        return self._make(verify=self._context)

    def _client(self, request: Request) -> C:
        if not isinstance(request.target, SecretUrl):
            return self._service
        self._storage.cookies.clear()  # what one store sets is nothing to another
        return self._storage

    def _opened(self) -> Iterator[C]:
        """Give up what was opened; a runtime that sent nothing has opened nothing."""
        for name in ("_service", "_storage"):
            if name in self.__dict__:
                yield self.__dict__.pop(name)

    def now(self) -> float:
        """Give the time, POSIX seconds."""
        return time.time()


class BlockingRuntime(_Clients[httpx.Client]):
    """The outside world for a thread that may wait.

    Args:
        access: The service.

    Attributes:
        stopping: Set from a signal handler to end the work before its next request or piece.
    """

    _make = httpx.Client

    def __init__(self, access: Access) -> None:
        super().__init__(access)
        self.stopping = False

    def check_stop(self) -> None:
        """Raise `Stopped` if the work was told to stop."""
        if self.stopping:
            raise errors.Stopped("told to stop; nothing more is sent")

    async def send(self, request: Request) -> Reply:
        """Send a request; see `Runtime`."""
        self.check_stop()
        guard = _Guard(request, self.check_stop)
        request_id = uuid.uuid4().hex
        body = closing(_outgoing(request.body, guard).pieces()) if request.body else nullcontext()
        try:
            arguments = _arguments(self._access, request, request_id)
            with body as content, self._client(request).stream(content=content, **arguments) as response:
                incoming = _Incoming(request, response, request_id)
                for piece in response.iter_raw():
                    guard.check()
                    if not incoming.take(piece):
                        break
                return incoming.reply()
        except _BROKEN as error:
            failed = _failure(request, error)
        raise failed

    async def pause(self, seconds: float) -> None:
        """Wait in slices, so that a stop is seen soon."""
        ends = time.monotonic() + seconds
        self.check_stop()
        while (left := ends - time.monotonic()) > 0:
            time.sleep(min(left, STOP_SLICE))  # noqa: ASYNC251  # this runtime blocks: that is its purpose
            self.check_stop()

    def close(self) -> None:
        """Close the connections."""
        for client in self._opened():
            client.close()


class AsyncRuntime(_Clients[httpx.AsyncClient]):
    """The outside world for a coroutine: the same, over asyncio. Files are read and written in threads.

    Args:
        access: The service.
    """

    # httpcore's pool loses a place for good when a request is cancelled while it connects: it gets no bound to
    # run out of, and the bound is kept here.
    _make = partial(httpx.AsyncClient, limits=httpx.Limits(max_connections=None, max_keepalive_connections=20))

    def __init__(self, access: Access) -> None:
        super().__init__(access)
        self._turns = asyncio.Semaphore(MOST_AT_ONCE)

    async def send(self, request: Request) -> Reply:
        """Send a request; see `Runtime`."""
        if "_context" not in self.__dict__:
            await asyncio.to_thread(lambda: self._context)  # 20 ms of the loop otherwise
        guard = _Guard(request, _go_on)
        request_id = uuid.uuid4().hex
        body = aclosing(_outgoing(request.body, guard).apieces()) if request.body else nullcontext()
        try:
            arguments = _arguments(self._access, request, request_id)
            exchange = self._client(request).stream
            async with self._turns, body as content, exchange(content=content, **arguments) as response:
                incoming = _Incoming(request, response, request_id)
                async for piece in response.aiter_raw():
                    guard.check()
                    if not await _take(incoming, piece, to_file=request.sink is not None):
                        break
                return incoming.reply()
        except _BROKEN as error:
            failed = _failure(request, error)
        raise failed

    async def pause(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """Close the connections."""
        for client in self._opened():
            await client.aclose()


def _go_on() -> None:
    """Asyncio work is stopped by cancelling it; there is no flag to look at."""


async def _take(incoming: _Incoming, piece: bytes, *, to_file: bool) -> bool:
    return await asyncio.to_thread(incoming.take, piece) if to_file else incoming.take(piece)


def _proxy(base_url: str) -> str | None:
    """Find the proxy that the environment names for an address; a client looks for itself, a transport does not."""
    parts = urlsplit(base_url)
    if proxy_bypass(parts.netloc):
        return None
    proxies = getproxies()
    found = proxies.get(parts.scheme) or proxies.get("all")
    return found if not found or "://" in found else f"http://{found}"


class Lane:
    """One connection that can read and nothing else: a worker's own, so that cancelling one harms no other.

    A shared httpx pool dies when requests on it are cancelled, and costs the square of its connections;
    a transport with a single connection does neither.

    Args:
        access: The service.
        context: What checks the other side, built once for all lanes.
    """

    def __init__(self, access: Access, context: ssl.SSLContext) -> None:
        one = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=60.0)
        self._access = access
        self._transport = httpx.AsyncHTTPTransport(verify=context, limits=one, proxy=_proxy(access.base_url))

    async def read(self, request: Request) -> Reply:
        """Send a GET and give its reply.

        Raises:
            TransportFailed: No complete answer came.
            ValidationFailed: The request would change something.
        """
        if request.method != "GET" or isinstance(request.target, SecretUrl):
            raise errors.ValidationFailed(f"{request.operation}: a lane only reads from the service")
        request_id = uuid.uuid4().hex
        try:
            arguments = _arguments(self._access, request, request_id)
            timeout = {"timeout": arguments.pop("timeout").as_dict()}
            response = await self._transport.handle_async_request(httpx.Request(**arguments, extensions=timeout))
            async with aclosing(response):
                incoming = _Incoming(request, response, request_id)
                async for piece in response.aiter_raw():
                    if not incoming.take(piece):
                        break
                return incoming.reply()
        except _BROKEN as error:
            failed = _failure(request, error)
        raise failed

    async def close(self) -> None:
        """Close the connection."""
        await self._transport.aclose()
