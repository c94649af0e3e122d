"""`Lane`: one connection that can only read, for the shared poller.

Over httpx's own transport or aiohttp's; which one is there is looked up without importing it.
"""

from __future__ import annotations

import ssl
import uuid
from collections.abc import Mapping
from contextlib import aclosing
from importlib.util import find_spec
from typing import Literal
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx

from airflow_tds.client import errors
from airflow_tds.client.access import NO_PROXY, Access
from airflow_tds.client.http.admission import let_in
from airflow_tds.client.http.failures import BROKEN, Guard, failure, go_on
from airflow_tds.client.http.incoming import taken
from airflow_tds.client.http.redaction import redacted
from airflow_tds.client.http.written import arguments
from airflow_tds.client.messages import Reply, Request

__all__ = ["Kept", "Lane", "Over", "open_lanes", "polled_over"]

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
            parts = arguments(access, request, own, request_id) | {"method": "GET"}
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

        return await let_in(self._access, request, exchange, self._access.renewing)

    async def _get(self, request: Request, own: Mapping[str, str], kept: Kept) -> Reply:
        request_id = uuid.uuid4().hex
        return await self._exchange(request, kept.written(self._access, request, own, request_id), self._transport)

    async def _renew(self, request: Request) -> Reply:
        """Ask for a token, on a connection of its own: this is a POST, and comes once an hour."""
        parts = arguments(self._access, request, {}, uuid.uuid4().hex)
        timeout = {"timeout": parts.pop("timeout").as_dict()}
        content = b"".join(request.body.open()) if request.body else None
        async with _by_httpx(self._access, self._context)[0] as transport:
            return await self._exchange(request, httpx.Request(**parts, content=content, extensions=timeout), transport)

    async def _exchange(self, request: Request, written: httpx.Request, over: httpx.AsyncBaseTransport) -> Reply:
        guard = Guard(request, go_on, self._access.timeouts.read)
        try:
            with redacted():
                response = await over.handle_async_request(written)
                async with aclosing(response):
                    return await taken(request, response, guard, written.headers.get("X-Request-Id", ""))
        except self._broken as error:
            failed = failure(request, error)
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
    return httpx.AsyncHTTPTransport(verify=context, limits=one, proxy=_proxy(access)), BROKEN


def _by_aiohttp(access: Access, context: ssl.SSLContext) -> _Reader:
    import aiohttp
    from httpx_aiohttp import AiohttpTransport

    def session() -> aiohttp.ClientSession:  # made by the first read: it belongs to that loop
        connector = aiohttp.TCPConnector(limit=1, keepalive_timeout=KEPT_ALIVE, ssl=context)
        return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())

    proxy = _proxy(access)
    transport = AiohttpTransport(verify=context, client=session, proxy=httpx.Proxy(proxy) if proxy else None)
    return transport, (*BROKEN, aiohttp.ClientError)


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
