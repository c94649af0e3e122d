"""Connections to the service and to the object store: one client with credentials, one without, in each form.

`Connections` block; they also carry, in threads of its own, what the async runtime transfers.
`AsyncConnections` carry the short requests of an event loop. `Reached` watches whom a connection reaches.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, nullcontext, suppress
from functools import cached_property
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import httpx

from airflow_tds.client import errors
from airflow_tds.client.access import NO_PROXY, Access, peer
from airflow_tds.client.http.failures import BROKEN, Guard, failure, go_on
from airflow_tds.client.http.incoming import Incoming, arriving, head_of, set_aside, set_aside_later, taken
from airflow_tds.client.http.outgoing import outgoing
from airflow_tds.client.http.redaction import Redacted
from airflow_tds.client.http.written import arguments, check_peer
from airflow_tds.client.messages import Reply, Request, SecretUrl, TokenUrl
from airflow_tds.client.progress import Meter, Report

__all__ = ["AsyncConnections", "Connections", "Reached"]

#: Requests of one async client that may be on their way at once.
MOST_AT_ONCE = 100
#: Closed with this option, a connection is reset: the other side sees at once that the transfer was given up.
_RESET = struct.pack("ii", 1, 0)


class Reached:
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
        """Take note of an event, as httpx's `trace` tells it."""
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
            check_peer(self._access, self._request, peer(str(there)))

    def break_off(self) -> None:
        """Wake whoever reads from the connection or writes to it, from another thread."""
        wire = self._stream.get_extra_info("socket") if self._stream is not None else None
        with suppress(OSError):  # it may have ended by itself
            if wire is not None:
                wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                socket.socket.shutdown(wire, socket.SHUT_RDWR)  # of the socket below TLS: it says no goodbye


class Connections:
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

    def exchange(self, request: Request, own: Mapping[str, str], reached: Reached) -> Reply:
        """Send a request and take its reply, in this thread.

        Args:
            request: What to send.
            own: The credentials' header fields.
            reached: Watches the connection.
        """
        guard = Guard(request, reached.check_stop, self._access.timeouts.read)
        request_id = uuid.uuid4().hex
        body = closing(outgoing(request.body, guard, self._meter(request))) if request.body else nullcontext()
        try:
            asked = arguments(self._access, request, own, request_id) | {"extensions": {"trace": reached}}
            with Redacted(), body as content, self._client(request).stream(content=content, **asked) as response:
                incoming = Incoming(request, head_of(response), request_id)
                self._pour(incoming, arriving(response, incoming, guard), request, guard)
                return incoming.reply()
        except BROKEN as error:
            failed = failure(request, error, request_id=request_id)
        raise failed

    def _pour(self, incoming: Incoming, pieces: Iterator[Any], request: Request, guard: Guard) -> None:
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
            report=None if isinstance(request.target, TokenUrl) else self._report,
        )

    def _client(self, request: Request) -> httpx.Client:
        stores = isinstance(request.target, SecretUrl)
        with self._lock:
            if stores not in self._open:
                options = _options(self._access, stores=stores) | {"event_hooks": {"response": [set_aside]}}
                self._open[stores] = httpx.Client(limits=self._limits, **options)
            return self._open[stores]

    def close(self) -> None:
        """Close them; the next request opens them again."""
        while self._open:
            self._open.popitem()[1].close()


class AsyncConnections:
    """The connections of an event loop to the service; one that is cancelled harms no other.

    Args:
        access: The service.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._turns = asyncio.Semaphore(MOST_AT_ONCE)

    @cached_property
    def _client(self) -> httpx.AsyncClient:
        # httpcore's pool loses a place for good when a request is cancelled while it connects: it gets no bound to
        # run out of, and the bound is kept here.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
        hooks = {"response": [set_aside_later]}
        return httpx.AsyncClient(limits=limits, event_hooks=hooks, **_options(self._access, stores=False))

    async def exchange(self, request: Request, own: Mapping[str, str]) -> Reply:
        """Send a request without payload or sink and take its reply.

        Args:
            request: What to send.
            own: The credentials' header fields.
        """
        if "_client" not in self.__dict__:
            await asyncio.to_thread(lambda: self._client)  # reading certificates takes 20 ms of the loop otherwise
        guard = Guard(request, go_on, self._access.timeouts.read)
        request_id = uuid.uuid4().hex
        try:
            asked = arguments(self._access, request, own, request_id)
            with Redacted():
                async with self._turns, self._client.stream(**asked) as response:
                    return await taken(request, head_of(response), response.aiter_raw(), guard, request_id)
        except BROKEN as error:
            failed = failure(request, error, request_id=request_id)
        raise failed

    async def close(self) -> None:
        """Close them; the next request opens them again."""
        client = self.__dict__.pop("_client", None)
        if client is not None:
            await client.aclose()


def _options(access: Access, *, stores: bool) -> dict[str, Any]:
    """Say how a client checks the other side and which proxy it takes; it keeps no cookie."""
    proxy = access.storage_proxy or access.proxy if stores else access.proxy
    named = None if proxy in (None, NO_PROXY) else proxy
    options = {
        "verify": access.storage_context() if stores else access.ssl_context(),
        "proxy": named,
        "trust_env": proxy is None,  # the environment's proxies; httpx takes no password from netrc by itself
    }
    return options | {"cookies": CookieJar(DefaultCookiePolicy(allowed_domains=[]))}
