"""What carries a lane's reads: a connection of httpx's, its whole transport where there is a proxy, or aiohttp.

A carrier writes a request down once, so that it can be sent again and again, and takes its reply. It sends GETs
and nothing else: aiohttp sends one twice by itself, which is good enough for a read only.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Protocol, cast
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpcore
import httpx

from airflow_tds.client.access import NO_PROXY, Access
from airflow_tds.client.http.failures import BROKEN, UNSENT, Guard
from airflow_tds.client.http.incoming import Head, head_of, taken
from airflow_tds.client.http.redaction import redacted
from airflow_tds.client.http.written import arguments
from airflow_tds.client.messages import Reply, Request

if TYPE_CHECKING:
    import aiohttp
    from multidict import CIMultiDict
    from yarl import URL

__all__ = ["Carrier", "OverAiohttp", "OverHttpcore", "OverHttpx", "over_httpx"]

#: Seconds that an idle connection is kept: longer than the usual poll interval, or each poll would make one.
KEPT_ALIVE = 60.0
#: The header field that names a request in the service's log and in ours.
REQUEST_ID = "X-Request-Id"


class Carrier(Protocol):
    """One connection."""

    @property
    def broken(self) -> tuple[type[Exception], ...]:
        """All that `get` raises when no complete answer came."""

    @property
    def unsent(self) -> tuple[type[Exception], ...]:
        """Of these, what says that the request never left."""

    def written(self, request: Request, own: Mapping[str, str]) -> Any:
        """Write a request down, with the credentials' header fields; it is a GET whatever is asked."""

    async def get(self, request: Request, written: Any, guard: Guard, request_id: str) -> Reply:
        """Send what was written down, and give its reply."""

    async def aclose(self) -> None:
        """Close the connection."""


class OverHttpx:
    """httpx's own transport: through a proxy, and for the one request that is not a read, for a token.

    Args:
        access: The service.
        context: What checks the other side.
    """

    broken = BROKEN
    unsent = UNSENT

    def __init__(self, access: Access, context: ssl.SSLContext) -> None:
        one = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=KEPT_ALIVE)
        self._access = access
        self._transport = httpx.AsyncHTTPTransport(verify=context, limits=one, proxy=_proxy(access))

    def written(self, request: Request, own: Mapping[str, str], *, method: str = "GET") -> httpx.Request:
        """Write a request down, as `Carrier` says.

        Args:
            request: What to send.
            own: The credentials' header fields.
            method: What is sent; a lane renews its token by a POST.
        """
        return _whole(self._access, request, own, method)

    async def get(self, request: Request, written: httpx.Request, guard: Guard, request_id: str) -> Reply:
        """Send what was written down, as `Carrier` says."""
        written.headers[REQUEST_ID] = request_id
        with redacted():
            response = await self._transport.handle_async_request(written)
            async with aclosing(response):
                return await taken(request, head_of(response), response.aiter_raw(), guard, request_id)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._transport.aclose()


class OverHttpcore:
    """The connection that httpx's transport is made of, without its pool: a third less work. It knows no proxy.

    The pool looks through all that it has before and after each request, though here this is one connection.

    Args:
        access: The service.
        context: What checks the other side.
    """

    broken = BROKEN
    unsent = UNSENT

    def __init__(self, access: Access, context: ssl.SSLContext) -> None:
        self._access = access
        self._context = context
        self._connection: httpcore.AsyncHTTPConnection | None = None

    def written(self, request: Request, own: Mapping[str, str]) -> httpcore.Request:
        """Write a request down, as `Carrier` says; its id is its last field."""
        whole = _whole(self._access, request, own, "GET")
        at, fields = whole.url, [field for field in whole.headers.raw if field[0] != REQUEST_ID.encode()]
        url = httpcore.URL(scheme=at.raw_scheme, host=at.raw_host, port=at.port, target=at.raw_path)
        return httpcore.Request(whole.method, url, headers=[*fields, (b"", b"")], extensions=whole.extensions)

    async def get(self, request: Request, written: httpcore.Request, guard: Guard, request_id: str) -> Reply:
        """Send what was written down, as `Carrier` says."""
        written.headers[-1] = (REQUEST_ID.encode(), request_id.encode())
        with redacted():
            connection = await self._connected(written.url.origin)
            response = await connection.handle_async_request(written)
            pieces = cast("httpx.AsyncByteStream", response.stream)
            async with aclosing(pieces):
                head = head_of(httpx.Response(response.status, headers=response.headers))
                return await taken(request, head, pieces, guard, request_id)

    async def _connected(self, origin: httpcore.Origin) -> httpcore.AsyncHTTPConnection:
        """Give the connection, or another one if it was closed or has been idle for too long."""
        if self._connection is not None and (self._connection.is_closed() or self._connection.has_expired()):
            await self.aclose()
        if self._connection is None:
            self._connection = httpcore.AsyncHTTPConnection(origin, self._context, keepalive_expiry=KEPT_ALIVE)
        return self._connection

    async def aclose(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            await self._connection.aclose()
            self._connection = None


def _whole(access: Access, request: Request, own: Mapping[str, str], method: str) -> httpx.Request:
    """Write a request down as httpx does."""
    parts = arguments(access, request, own, "") | {"method": method}
    timeout = {"timeout": parts.pop("timeout").as_dict()}
    content = b"".join(request.body.open()) if request.body else None
    return httpx.Request(**parts, content=content, extensions=timeout)


def over_httpx(access: Access, context: ssl.SSLContext) -> Carrier:
    """Give what httpx offers for one connection: the lighter part of it, if it leads there."""
    return (OverHttpcore if _proxy(access) is None else OverHttpx)(access, context)


class OverAiohttp:
    """aiohttp: less than half the work of httpx's transport. Its session belongs to the loop of the first read.

    Args:
        access: The service.
        context: What checks the other side.
    """

    def __init__(self, access: Access, context: ssl.SSLContext) -> None:
        self._access = access
        self._context = context
        self._proxy = _proxy(access)
        self._session: aiohttp.ClientSession | None = None
        self._fields: CIMultiDict[str] | None = None

    @property
    def broken(self) -> tuple[type[Exception], ...]:
        """What `get` raises, as `Carrier` says."""
        import aiohttp

        return (aiohttp.ClientError, OSError)  # a timeout is an OSError

    @property
    def unsent(self) -> tuple[type[Exception], ...]:
        """What says that nothing left, as `Carrier` says."""
        import aiohttp

        return (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)

    def written(self, request: Request, own: Mapping[str, str]) -> tuple[URL, CIMultiDict[str]]:
        """Write a request down, as `Carrier` says; what httpx would not send is refused as there."""
        from multidict import CIMultiDict
        from yarl import URL

        parts = arguments(self._access, request, own, "")
        fields = CIMultiDict(parts["headers"].multi_items())
        if self._fields is None or self._fields != fields:
            self._fields = fields
        return URL(parts["url"], encoded=True), self._fields.copy()  # thousands of jobs share one text

    async def get(
        self, request: Request, written: tuple[URL, CIMultiDict[str]], guard: Guard, request_id: str
    ) -> Reply:
        """Send what was written down, as `Carrier` says."""
        if self._session is None:
            self._session = self._opened()
        url, headers = written
        headers[REQUEST_ID] = request_id
        async with self._session.get(url, headers=headers, allow_redirects=False, proxy=self._proxy) as response:
            head = Head(response.status, {name.lower(): value for name, value in response.headers.items()})
            return await taken(request, head, response.content.iter_any(), guard, request_id)

    def _opened(self) -> aiohttp.ClientSession:
        import aiohttp

        times = self._access.timeouts
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=1, keepalive_timeout=KEPT_ALIVE, ssl=self._context),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=times.connect, sock_read=times.read),
            auto_decompress=False,
        )

    async def aclose(self) -> None:
        """Close the connection."""
        if self._session is not None:
            await self._session.close()


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
