"""The outside world in three verbs: send, pause, now. The only room that imports httpx and sends anything.

`BlockingRuntime` never suspends. A coroutine built only on it therefore ends on its first step, and
`finish()` returns its result; anything else that tries to suspend raises at once. `AsyncRuntime` is the
same over asyncio; what goes to and from an object store, it does in threads of its own, by the same code.
`Lane` is one connection that can only read, for the shared poller.

Redirects are never followed here. A presigned request goes through a client of its own that has no
credentials, no cookies and no default headers. Answers are taken as they are: no decoding, and a cap on
what is kept in memory. What httpx and httpcore log of a URL ends before its query.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import re
import socket
import ssl
import struct
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, aclosing, closing, contextmanager, nullcontext, suppress
from functools import cached_property
from http.cookiejar import CookieJar, DefaultCookiePolicy
from importlib.util import find_spec
from typing import Any, Literal, Protocol, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx

from airflow_tds import __version__
from airflow_tds.client import errors
from airflow_tds.client.access import NO_PROXY, Access, is_internal, is_never_store, literal, peer, refused
from airflow_tds.client.credentials import Credentials
from airflow_tds.client.messages import Reply, Request, SecretUrl
from airflow_tds.client.payloads import Body, Pieces
from airflow_tds.client.progress import Meter, Report

__all__ = ["AsyncRuntime", "BlockingRuntime", "Kept", "Lane", "Over", "Runtime", "finish", "open_lanes", "polled_over"]

T = TypeVar("T")

#: A control answer (job, info, error) beyond this is refused; results go to a sink and have no cap.
LARGEST_ANSWER = 64 * 1024 * 1024
#: Of an answer that says no, this much is read for its text.
LARGEST_REFUSAL = 64 * 1024
#: Requests of one async client that may be on their way at once; and transfers, each in its own thread.
MOST_AT_ONCE = 100
TRANSFERS_AT_ONCE = 16
#: A sleeping worker looks this often, in seconds, whether it was told to stop.
STOP_SLICE = 0.5
#: A result of this size or more is read from the socket itself: half the work of httpx's own reader.
DIRECT_FROM = 1024 * 1024
#: What is read from the socket is written in pieces of this size, or when this many seconds have passed.
DIRECT_PIECE = 1024 * 1024
DIRECT_SECONDS = 0.25
#: What never left: no connection was made, or the request could not be written down.
_NOT_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)
_BROKEN = (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError)
#: Closed with this option, a connection is reset: the other side sees at once that the transfer was given up.
_RESET = struct.pack("ii", 1, 0)
#: Where a redirect's target is kept.
_LOCATION = "airflow_tds.location"
#: A header field that can be sent.
_FIELD = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+: (?! )[\x20-\x7e]*")


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


# ---- what is written down


def address(access: Access, request: Request) -> str:
    """Give the whole URL of a request; see `Access.address`.

    Raises:
        UnexpectedReply: Also where httpx would rewrite a presigned URL, so that its signature no longer fits,
            or where it names an address that no object store may have.
    """
    url = access.address(request)
    if isinstance(request.target, SecretUrl):
        if not _kept_as_is(url):
            raise refused(request, "is refused")
        found = literal(httpx.URL(url).host)
        if found is not None:
            _check_peer(access, request, found)
    return url


def _kept_as_is(url: str) -> bool:
    """Say whether httpx sends path and query as they are."""
    try:
        sent = httpx.URL(url).raw_path.decode()
    except httpx.InvalidURL:
        return False
    written = url.partition("://")[2][len(urlsplit(url).netloc) :]
    return sent == (written if written.startswith("/") else "/" + written)


def _check_peer(access: Access, request: Request, found: Any) -> None:
    """Refuse a presigned URL that would lead us where only we can reach, or to a cloud's own credentials."""
    if is_never_store(found) or (is_internal(found) and not _is_inside(access.host)):
        raise refused(request, f"leads to {found}, which is no place for an object store; refused")


def _is_inside(host: str) -> bool:
    """Say whether the service itself is at an address that cannot be reached from everywhere."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return any(is_internal(peer(str(at[4][0]))) for at in found)


def _arguments(access: Access, request: Request, own: Mapping[str, str], request_id: str) -> dict[str, Any]:
    return {
        "method": request.method,
        "url": address(access, request),
        "headers": _fields(request, own, request_id),
        "json": request.json,
        "timeout": _timeout(access, request),
    }


def _fields(request: Request, own: Mapping[str, str], request_id: str) -> httpx.Headers:
    """Give a request's header fields; credentials and our own names go to the service only."""
    fields = {"User-Agent": f"airflow-tds/{__version__} httpx/{httpx.__version__}", "Accept-Encoding": "identity"}
    if isinstance(request.target, str):
        fields |= {"Accept": "application/json", "X-Request-Id": request_id, **own}
    found = httpx.Headers()
    for name, value in (*fields.items(), *request.headers.items()):
        if not _FIELD.fullmatch(f"{name}: {value}"):
            raise errors.ValidationFailed(f"{request.operation}, {request.subject}: header {name!r} cannot be sent")
        found[name] = value
    if request.body is not None and request.body.length is not None:
        found["Content-Length"] = str(request.body.length)
    return found


def _timeout(access: Access, request: Request) -> httpx.Timeout:
    """Give the socket's patience: no single step takes longer than the whole request may."""
    times = access.timeouts
    uploads = isinstance(request.target, SecretUrl) and request.body is not None
    steps = {"connect": times.connect, "read": times.commit if uploads else times.read, "write": times.write}
    limit = float("inf") if request.limit is None else request.limit
    return httpx.Timeout(**{step: min(seconds, limit) for step, seconds in steps.items()}, pool=times.connect)


# ---- what goes wrong


def _failure(request: Request, error: Exception) -> errors.TransportFailed:
    """Say what httpx's exception means for the request: whether it can have reached the service.

    Raise what this returns outside of the `except`: httpx's exception holds the URL and the headers.
    """
    unsent = isinstance(error, _NOT_SENT)
    text = f"{request.operation}, {request.subject}: {type(error).__name__}"
    quotes = isinstance(request.target, SecretUrl) or isinstance(error, httpx.LocalProtocolError)
    detail = "" if quotes or not str(error) else f": {error}"  # what may quote a URL or a header is not shown
    distrust = _distrust(error, in_handshake=unsent)
    if distrust is not None:
        return errors.TlsFailed(f"{text}: {distrust}", outcome="not_sent")
    return errors.TransportFailed(text + detail, outcome="not_sent" if unsent else "unknown")


def _distrust(error: BaseException | None, *, in_handshake: bool) -> str | None:
    """Say what one side does not like of the other; None when it is another matter.

    With TLS 1.3 a server may refuse our certificate after the handshake: it shows on the first read.
    """
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    if error is None or isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ssl.SSLSyscallError):
        return None
    reason = str(getattr(error, "reason", None) or "")
    if not in_handshake and not re.search("CERTIFICATE|UNKNOWN_CA", reason):
        return None
    return str(error)


class _Guard:
    """Whether a request may go on: it is neither told to stop nor late."""

    def __init__(self, request: Request, check_stop: Callable[[], None], read: float) -> None:
        self._request = request
        self._check_stop = check_stop
        self._read = read
        self._ends = None if request.limit is None else time.monotonic() + request.limit

    @property
    def patience(self) -> float:
        """Seconds to wait for the next bytes: what is left of the whole request's time, at most a read's."""
        return self._read if self._ends is None else min(self._read, max(0.001, self._ends - time.monotonic()))

    def check(self) -> None:
        self._check_stop()
        if self._ends is not None and time.monotonic() > self._ends:
            raise errors.TransportFailed(
                f"{self._request.operation}, {self._request.subject}: not done within {self._request.limit:.0f} s"
            )


# ---- what leaves


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

    def _changed(self, what: str) -> errors.ValidationFailed:
        return errors.ValidationFailed(f"the payload changed while it was sent: {what}; the store keeps none of it")


def _outgoing(body: Body, guard: _Guard, meter: Meter) -> Pieces:
    """Make a payload ready to leave; one of no bytes is whole as soon as it is announced, so it is looked at first."""
    outgoing = _Outgoing(body, guard)
    if body.length == 0:
        next(outgoing.pieces(), None)
    return _metered(outgoing.pieces(), meter)


def _metered(pieces: Pieces, meter: Meter) -> Pieces:
    with closing(pieces):
        for piece in pieces:
            meter.resume()  # the time that the source took is not the network's
            yield piece
            meter.count(len(piece))
    meter.end()


# ---- what comes


class _Incoming:
    """A reply as it arrives: into the sink if it is a result, else into memory, up to a cap."""

    def __init__(self, request: Request, response: httpx.Response, request_id: str) -> None:
        self._request = request
        self._response = response
        self._id = request_id
        self._kept = bytearray()
        self._received = 0
        self._headers = {name.lower(): value for name, value in response.headers.items()}
        self._headers |= response.extensions.get(_LOCATION, {})
        self._encoded = self._headers.get("content-encoding", "identity").lower() != "identity"
        self.pours = request.sink is not None and response.is_success
        if response.is_success:
            self._check_framing()
        if self.pours:
            self._begin()

    def _check_framing(self) -> None:
        if self._encoded:
            raise self._unexpected(
                f"the answer is {self._headers['content-encoding']}-encoded although that was not asked for"
            )
        if self.pours and "content-length" not in self._headers and "transfer-encoding" not in self._headers:
            raise self._unexpected("the result has no length, so a cut one could not be told from a whole one")

    def _begin(self) -> None:
        """Take the head of a result: all of it, or the rest that was asked for."""
        sink, status = self._sink, self._response.status_code
        if status == httpx.codes.OK:
            sink.begin_whole(self._headers)
        elif status != httpx.codes.PARTIAL_CONTENT or not sink.resumable:
            raise self._unexpected(f"HTTP {status} is no whole result")
        elif not sink.continues(self._headers):
            sink.restart()
            raise errors.TransportFailed(f"{self._name}: another part came than the one that was asked for")

    @property
    def _sink(self) -> Any:
        return self._request.sink

    @property
    def _name(self) -> str:
        return f"{self._request.operation}, {self._request.subject}"

    def _unexpected(self, what: str) -> errors.UnexpectedReply:
        return errors.UnexpectedReply(f"{self._name}: {what}")

    def take(self, piece: Any) -> bool:
        """Keep a piece; False when no more is wanted."""
        self._received += len(piece)
        if self.pours:
            self._sink.write(piece)
            return True
        self._kept += piece
        if self._response.is_success and len(self._kept) > LARGEST_ANSWER:
            raise self._unexpected(f"the answer has more than {LARGEST_ANSWER} bytes")
        return self._response.is_success or len(self._kept) <= LARGEST_REFUSAL

    def left(self) -> int | None:
        """Bytes that are still to come; None when the answer does not tell."""
        length = self._headers.get("content-length", "")
        plain = length.isdecimal() and "transfer-encoding" not in self._headers
        return int(length) - self._received if plain else None

    def reply(self) -> Reply:
        """Give the reply, once all of it has come.

        Raises:
            TransportFailed: A result has not the length that was announced.
        """
        announced = self._headers.get("content-length", str(self._received))
        if self.pours and announced != str(self._received):
            raise errors.TransportFailed(f"{self._name}: {self._received} of {announced} bytes came")
        if self.pours and self._sink.total not in (None, self._sink.received):
            raise errors.TransportFailed(f"{self._name}: {self._sink.received} of {self._sink.total} bytes came")
        content = b"" if self._encoded else bytes(self._kept)  # an error page that we cannot read says nothing
        return Reply(self._response.status_code, self._headers, content, self._received, self._id)


def _arriving(response: httpx.Response, incoming: _Incoming, guard: _Guard) -> Iterator[Any]:
    """Give what arrives: through httpx, and the bulk of a large result from the socket itself.

    The first piece is all that httpx has read so far; the connection is not used again afterwards.
    """
    raw = response.iter_raw()
    first = next(raw, b"")
    if first:
        yield first
    left = incoming.left() if incoming.pours else None
    wire = _socket(response) if left is not None and left >= DIRECT_FROM else None
    if wire is None or left is None:
        yield from raw
    else:
        yield from _from_socket(wire, left, guard)


def _socket(response: httpx.Response) -> socket.socket | None:
    """Give the socket that a response can be read from; None where it carries TLS within TLS, as to a TLS proxy."""
    stream = response.extensions["network_stream"]
    wire, inner = stream.get_extra_info("socket"), stream.get_extra_info("ssl_object")
    expected = ssl.SSLSocket if response.url.scheme == "https" else socket.socket
    return wire if isinstance(wire, expected) and not isinstance(inner, ssl.SSLObject) else None


def _from_socket(wire: socket.socket, left: int, guard: _Guard) -> Iterator[memoryview]:
    """Read into one buffer, and give views of it: each is good until the next one is asked for.

    What came before a break is given too, so that a resumed result need not bring it again.
    """
    view, have, broken = memoryview(bytearray(DIRECT_PIECE)), 0, None
    while left and broken is None:
        wire.settimeout(guard.patience)
        due = time.monotonic() + DIRECT_SECONDS
        try:
            while left and have < DIRECT_PIECE and (not have or time.monotonic() < due):
                size = _received(wire, view[have:], left)
                have, left = have + size, left - size
        except httpx.HTTPError as error:
            broken = error
        if have:
            yield view[:have]
        have = 0
    if broken is not None:
        raise broken


def _received(wire: socket.socket, free: memoryview, left: int) -> int:
    try:
        size = wire.recv_into(free, min(left, len(free)))
    except TimeoutError:
        raise httpx.ReadTimeout("") from None
    except OSError as error:  # ssl.SSLError among them
        raise httpx.ReadError(type(error).__name__) from None
    if not size:
        raise httpx.RemoteProtocolError("closed before the end")
    return size


# ---- one exchange


class _Reached:
    """Watches one exchange's connection through httpx's `trace`: whom it reached, and how to break it off.

    A store's address is checked once a connection is made and before anything is sent over it, so that a name
    cannot point elsewhere between the check and its use. Of what lies behind a proxy, only the name is known.
    """

    def __init__(self, access: Access, request: Request, check_stop: Callable[[], None]) -> None:
        self.check_stop = check_stop
        self._access = access
        self._request = request
        self._direct = False
        self._stream: Any = None

    def __call__(self, event: str, info: Mapping[str, Any]) -> None:
        if event.endswith("connect_tcp.started"):
            self._direct = info["host"] == httpx.URL(self._access.address(self._request)).raw_host.decode()
        elif event.endswith(("connect_tcp.complete", "start_tls.complete")):
            self._stream = info["return_value"]
            try:
                self._check()
            except (errors.TableServiceError, httpx.ConnectError):
                self._stream.close()
                raise

    def _check(self) -> None:
        self.check_stop()
        if self._direct and isinstance(self._request.target, SecretUrl):
            try:
                there = self._stream.get_extra_info("server_addr")[0]
            except OSError:  # closed by the other side as soon as it was made
                raise httpx.ConnectError("lost") from None
            _check_peer(self._access, self._request, peer(str(there)))

    def break_off(self) -> None:
        """Wake whoever reads from the connection or writes to it, from another thread."""
        wire = self._stream.get_extra_info("socket") if self._stream is not None else None
        with suppress(OSError):  # it may have ended by itself
            if wire is not None:
                wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                socket.socket.shutdown(wire, socket.SHUT_RDWR)  # of the socket below TLS: it says no goodbye


_ours = contextvars.ContextVar("ours", default=False)


def _without_query(record: logging.LogRecord) -> bool:
    """Cut what httpx and httpcore log during our requests: a presigned URL's query is its key."""
    if _ours.get():
        record.msg, record.args = re.sub(r"\?[^\s'\"]+", "?<redacted>", record.getMessage()), ()
    return True


for _logger in ("httpx", "httpcore.connection", "httpcore.http11", "httpcore.proxy"):
    logging.getLogger(_logger).addFilter(_without_query)


@contextmanager
def _redacted() -> Iterator[None]:
    token = _ours.set(True)
    try:
        yield
    finally:
        _ours.reset(token)


class _Connections:
    """The connections that block: one client with credentials for the service, one without for the object store.

    Args:
        access: The service.
        report: Told how far a transfer is; None for nobody.
        kept: Idle connections that are kept for the next request.
    """

    def __init__(self, access: Access, report: Report | None, kept: int) -> None:
        self._access = access
        self._report = report
        self._limits = httpx.Limits(max_connections=None, max_keepalive_connections=kept)
        self._lock = threading.Lock()
        self._open: dict[bool, httpx.Client] = {}

    def exchange(self, request: Request, own: Mapping[str, str], reached: _Reached) -> Reply:
        """Send a request and take its reply, in this thread.

        Args:
            request: What to send.
            own: The credentials' header fields.
            reached: Watches the connection.
        """
        guard = _Guard(request, reached.check_stop, self._access.timeouts.read)
        request_id = uuid.uuid4().hex
        body = closing(_outgoing(request.body, guard, self._meter(request))) if request.body else nullcontext()
        try:
            arguments = _arguments(self._access, request, own, request_id) | {"extensions": {"trace": reached}}
            with _redacted(), body as content, self._client(request).stream(content=content, **arguments) as response:
                incoming = _Incoming(request, response, request_id)
                self._pour(incoming, _arriving(response, incoming, guard), request, guard)
                return incoming.reply()
        except _BROKEN as error:
            failed = _failure(request, error)
        raise failed

    def _pour(self, incoming: _Incoming, pieces: Iterator[Any], request: Request, guard: _Guard) -> None:
        meter = self._meter(request) if incoming.pours else None
        for piece in pieces:
            guard.check()
            if meter is not None:
                meter.count(len(piece))
            if not incoming.take(piece):
                return
            if meter is not None:
                meter.resume()  # the time that the sink took is not the network's
        if meter is not None:
            meter.end()

    def _meter(self, request: Request) -> Meter:
        sink, body = request.sink, request.body
        return Meter(
            request.operation,
            request.subject,
            done=sink.received if sink else 0,
            total=sink.total if sink else body.length if body else None,
            minimum_rate=self._access.timeouts.minimum_rate,
            report=self._report if isinstance(request.target, SecretUrl) else None,
        )

    def _client(self, request: Request) -> httpx.Client:
        stores = isinstance(request.target, SecretUrl)
        with self._lock:
            if stores not in self._open:
                options = _options(self._access, stores=stores) | {"event_hooks": {"response": [_set_aside]}}
                self._open[stores] = httpx.Client(limits=self._limits, **options)
            return self._open[stores]

    def close(self) -> None:
        """Close them; the next request opens them again."""
        while self._open:
            self._open.popitem()[1].close()


def _set_aside(response: httpx.Response) -> None:
    """Keep a redirect's target from httpx, which reads it though it may not follow it, and breaks on a bad one."""
    if "location" in response.headers:
        response.extensions[_LOCATION] = {"location": response.headers.pop("location")}


async def _set_aside_later(response: httpx.Response) -> None:
    _set_aside(response)


def _options(access: Access, *, stores: bool) -> dict[str, Any]:
    """Say how a client checks the other side and which proxy it takes; of a store it keeps no cookie."""
    proxy = access.storage_proxy or access.proxy if stores else access.proxy
    named = None if proxy in (None, NO_PROXY) else proxy
    options = {
        "verify": access.storage_context() if stores else access.ssl_context(),
        "proxy": named,
        "trust_env": proxy is None,  # the environment's proxies; httpx takes no password from netrc by itself
    }
    return options | ({"cookies": CookieJar(DefaultCookiePolicy(allowed_domains=[]))} if stores else {})


# ---- who may come in

Exchange = Callable[[Request, Mapping[str, str]], Awaitable[Reply]]


async def _let_in(
    access: Access, request: Request, exchange: Exchange, turn: AbstractAsyncContextManager[Any]
) -> Reply:
    """Send a request with credentials if it goes to the service; a 401 is answered once, with renewed ones."""
    if not isinstance(request.target, str) or access.credentials is None:
        return await exchange(request, {})
    own = await _credentials(access.credentials, exchange, turn)
    reply = await exchange(request, own)
    again = request.body is None or request.body.replayable
    if reply.status != httpx.codes.UNAUTHORIZED or not again or not access.credentials.drop(own):
        return reply
    return await exchange(request, await _credentials(access.credentials, exchange, turn))


async def _credentials(
    credentials: Credentials, exchange: Exchange, turn: AbstractAsyncContextManager[Any]
) -> Mapping[str, str]:
    """Give the header fields, renewed if need be; what fails here left nothing at the service."""
    async with turn:
        renewal = credentials.renewal(time.time())
        if renewal is not None:
            try:
                reply = await exchange(renewal, {})
            except errors.TransportFailed as failed:
                failed.outcome = "not_sent"
                raise
            credentials.renew(reply, time.time())
    return credentials.fields()


# ---- the runtimes


class BlockingRuntime:
    """The outside world for a thread that may wait.

    Args:
        access: The service.
        report: Told how far a transfer is; None for nobody.

    Attributes:
        stopping: Set from a signal handler to end the work before its next request or piece.
    """

    def __init__(self, access: Access, report: Report | None = None) -> None:
        access.check()
        self.stopping = False
        self._access = access
        self._connections = _Connections(access, report, kept=20)

    def check_stop(self) -> None:
        """Raise `Stopped` if the work was told to stop."""
        if self.stopping:
            raise errors.Stopped("told to stop; nothing more is sent")

    async def send(self, request: Request) -> Reply:
        """Send a request; see `Runtime`."""
        self.check_stop()
        return await _let_in(self._access, request, self._exchange, nullcontext())

    async def _exchange(self, request: Request, own: Mapping[str, str]) -> Reply:
        return self._connections.exchange(request, own, _Reached(self._access, request, self.check_stop))

    async def pause(self, seconds: float) -> None:
        """Wait in slices, so that a stop is seen soon."""
        ends = time.monotonic() + seconds
        self.check_stop()
        while (left := ends - time.monotonic()) > 0:
            time.sleep(min(left, STOP_SLICE))  # noqa: ASYNC251  # this runtime blocks: that is its purpose
            self.check_stop()

    def now(self) -> float:
        """Give the time, POSIX seconds."""
        return time.time()

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()


class AsyncRuntime:
    """The outside world for a coroutine: the same, over asyncio.

    What has a payload or a sink goes through threads: bytes cost asyncio two to three times as much.

    Args:
        access: The service.
        report: Told how far a transfer is, in the thread that transfers; None for nobody.
    """

    def __init__(self, access: Access, report: Report | None = None) -> None:
        access.check()
        self._access = access
        self._turns = asyncio.Semaphore(MOST_AT_ONCE)
        # None is kept: a transfer that is cancelled must be seen to connect, or it could not be broken off.
        self._connections = _Connections(access, report, kept=0)

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(TRANSFERS_AT_ONCE, thread_name_prefix="tds-transfer")

    @cached_property
    def _client(self) -> httpx.AsyncClient:
        # httpcore's pool loses a place for good when a request is cancelled while it connects: it gets no bound to
        # run out of, and the bound is kept here.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
        hooks = {"response": [_set_aside_later]}
        return httpx.AsyncClient(limits=limits, event_hooks=hooks, **_options(self._access, stores=False))

    async def send(self, request: Request) -> Reply:
        """Send a request; see `Runtime`."""
        return await _let_in(self._access, request, self._exchange, self._access.renewing)

    async def _exchange(self, request: Request, own: Mapping[str, str]) -> Reply:
        if request.body is not None or request.sink is not None:
            return await self._in_thread(request, own)
        if "_client" not in self.__dict__:
            await asyncio.to_thread(lambda: self._client)  # reading certificates takes 20 ms of the loop otherwise
        guard = _Guard(request, _go_on, self._access.timeouts.read)
        request_id = uuid.uuid4().hex
        try:
            arguments = _arguments(self._access, request, own, request_id)
            with _redacted():
                async with self._turns, self._client.stream(**arguments) as response:
                    return await _taken(request, response, guard, request_id)
        except _BROKEN as error:
            failed = _failure(request, error)
        raise failed

    async def _in_thread(self, request: Request, own: Mapping[str, str]) -> Reply:
        """Send a request from a thread; cancelled, it is broken off, and neither source nor sink is in use any more."""
        told = threading.Event()

        def check_stop() -> None:
            if told.is_set():
                raise errors.Stopped(f"{request.operation}, {request.subject}: cancelled")

        reached = _Reached(self._access, request, check_stop)
        context = contextvars.copy_context()
        job = self._threads.submit(context.run, self._connections.exchange, request, own, reached)
        done = asyncio.wrap_future(job)
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            told.set()
            if not job.cancel():
                reached.break_off()
                await asyncio.wait([done])
                done.exception()  # it ended because it was told to; what it says of that is no news
            raise

    async def pause(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    def now(self) -> float:
        """Give the time, POSIX seconds."""
        return time.time()

    async def close(self) -> None:
        """Close the connections."""
        self._connections.close()
        threads, client = self.__dict__.pop("_threads", None), self.__dict__.pop("_client", None)
        if threads is not None:
            await asyncio.to_thread(threads.shutdown)
        if client is not None:
            await client.aclose()


def _go_on() -> None:
    """Asyncio work is stopped by cancelling it; there is no flag to look at."""


async def _taken(request: Request, response: httpx.Response, guard: _Guard, request_id: str) -> Reply:
    incoming = _Incoming(request, response, request_id)
    async for piece in response.aiter_raw():
        guard.check()
        if not incoming.take(piece):
            break
    return incoming.reply()


def _proxy(access: Access) -> str | None:
    """Find the proxy to the service; a client looks into the environment for itself, a transport does not."""
    if access.proxy is not None:
        return None if access.proxy == NO_PROXY else access.proxy
    parts = urlsplit(access.base_url)
    if proxy_bypass(parts.netloc):
        return None
    proxies = getproxies()
    found = proxies.get(parts.scheme) or proxies.get("all")
    return found if not found or "://" in found else f"http://{found}"


#: What carries a lane's reads: httpx's own transport, or aiohttp's under httpx's interface.
Over = Literal["httpx", "aiohttp"]


def polled_over(wish: str) -> Over:
    """Say what lanes go over; looks for a package, and imports nothing.

    Args:
        wish: `httpx`, `aiohttp`, or `auto` for aiohttp where the extra `[aiohttp]` is installed.

    Raises:
        ValidationFailed: aiohttp is wished for and not installed.
    """
    present = find_spec("httpx_aiohttp") is not None
    if wish == "aiohttp" and not present:
        raise errors.ValidationFailed("poll_transport is aiohttp: pip install 'airflow-tds[aiohttp]'")
    return "aiohttp" if present and wish != "httpx" else "httpx"


def open_lanes(access: Access, over: Over, count: int) -> list[Lane]:
    """Make lanes that share what checks the other side; reads certificates and imports, so do it in a thread.

    Args:
        access: The service.
        over: What carries the reads.
        count: How many.
    """
    context = access.ssl_context()
    return [Lane(access, context, over) for _ in range(count)]


class Kept:
    """A read that is asked again and again: written down once, and anew when access or credentials have changed."""

    __slots__ = ("_access", "_own", "_written")

    def __init__(self) -> None:
        self._access: Access | None = None
        self._own: Mapping[str, str] = {}
        self._written: httpx.Request | None = None

    def written(self, access: Access, request: Request, own: Mapping[str, str], request_id: str) -> httpx.Request:
        """Give the request as httpx takes it; it is a GET whatever is asked, so that a lane can change nothing."""
        if self._written is None or access is not self._access or own != self._own:
            parts = _arguments(access, request, own, request_id) | {"method": "GET"}
            timeout = {"timeout": parts.pop("timeout").as_dict()}
            self._access, self._own, self._written = access, own, httpx.Request(**parts, extensions=timeout)
        else:
            self._written.headers["X-Request-Id"] = request_id
        return self._written


class Lane:
    """One connection that can read and nothing else: a worker's own, so that cancelling one harms no other.

    A shared httpx pool dies when requests on it are cancelled, and costs the square of its connections;
    a transport with a single connection does neither.

    Args:
        access: The service; one for all lanes of an event loop, so that they renew credentials once.
        context: What checks the other side, built once for all lanes.
        over: What carries the reads. aiohttp's says "never sent" of what arrived, and sends a GET twice by
            itself: that is good enough for a read, and for nothing else.
    """

    def __init__(self, access: Access, context: ssl.SSLContext, over: Over = "httpx") -> None:
        self._access = access
        self._context = context
        self._transport, self._broken = (_by_aiohttp if over == "aiohttp" else _by_httpx)(access, context)

    async def read(self, request: Request, kept: Kept | None = None) -> Reply:
        """Send a GET and give its reply.

        Args:
            request: What to read.
            kept: Keeps the request as it was written down, for the next time; None for once only.

        Raises:
            TransportFailed: No complete answer came.
            ValidationFailed: The request would change something.
        """
        if request.method != "GET" or not isinstance(request.target, str):
            raise errors.ValidationFailed(f"{request.operation}: a lane only reads from the service")
        kept = kept or Kept()

        async def exchange(wanted: Request, own: Mapping[str, str]) -> Reply:
            return await (self._get(wanted, own, kept) if wanted is request else self._renew(wanted))

        return await _let_in(self._access, request, exchange, self._access.renewing)

    async def _get(self, request: Request, own: Mapping[str, str], kept: Kept) -> Reply:
        request_id = uuid.uuid4().hex
        return await self._exchange(request, kept.written(self._access, request, own, request_id), self._transport)

    async def _renew(self, request: Request) -> Reply:
        """Ask for a token, on a connection of its own: this is a POST, and comes once an hour."""
        parts = _arguments(self._access, request, {}, uuid.uuid4().hex)
        timeout = {"timeout": parts.pop("timeout").as_dict()}
        content = b"".join(request.body.open()) if request.body else None
        async with _by_httpx(self._access, self._context)[0] as transport:
            return await self._exchange(request, httpx.Request(**parts, content=content, extensions=timeout), transport)

    async def _exchange(self, request: Request, written: httpx.Request, over: httpx.AsyncBaseTransport) -> Reply:
        guard = _Guard(request, _go_on, self._access.timeouts.read)
        try:
            with _redacted():
                response = await over.handle_async_request(written)
                async with aclosing(response):
                    return await _taken(request, response, guard, written.headers.get("X-Request-Id", ""))
        except self._broken as error:
            failed = _failure(request, error)
        raise failed

    async def close(self) -> None:
        """Close the connection."""
        await self._transport.aclose()


#: A transport, and all that it raises when no complete answer came.
_Reader = tuple[httpx.AsyncBaseTransport, tuple[type[Exception], ...]]
#: Seconds that an idle connection is kept: longer than the usual poll interval, or each poll would make one.
KEPT_ALIVE = 60.0


def _by_httpx(access: Access, context: ssl.SSLContext) -> _Reader:
    one = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=KEPT_ALIVE)
    return httpx.AsyncHTTPTransport(verify=context, limits=one, proxy=_proxy(access)), _BROKEN


def _by_aiohttp(access: Access, context: ssl.SSLContext) -> _Reader:
    import aiohttp
    from httpx_aiohttp import AiohttpTransport

    def session() -> aiohttp.ClientSession:  # made by the first read: it belongs to that loop
        connector = aiohttp.TCPConnector(limit=1, keepalive_timeout=KEPT_ALIVE, ssl=context)
        return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())

    proxy = _proxy(access)
    transport = AiohttpTransport(verify=context, client=session, proxy=httpx.Proxy(proxy) if proxy else None)
    return transport, (*_BROKEN, aiohttp.ClientError)
