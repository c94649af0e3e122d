"""What carries a lane's reads: a connection of httpx's, its whole transport where there is a proxy, or aiohttp.

A carrier writes down once what is sent again and again. It sends GETs and nothing else: aiohttp sends one twice by
itself, which is good enough for a read only.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpcore
import httpx

from airflow_tds.client.access import NO_PROXY, Access
from airflow_tds.client.http.failures import BROKEN, UNSENT, Guard
from airflow_tds.client.http.incoming import Head, head_of, taken
from airflow_tds.client.http.redaction import Redacted
from airflow_tds.client.http.sockets import Sockets
from airflow_tds.client.http.written import address, arguments
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
#: What httpx raises, or a lane that has waited for long enough.
_BROKEN = (*BROKEN, TimeoutError)
T = TypeVar("T")


class Carrier(Protocol):
    """One connection."""

    @property
    def broken(self) -> tuple[type[Exception], ...]:
        """All that `get` raises when no complete answer came, and `TimeoutError` if it is made to end."""

    @property
    def unsent(self) -> tuple[type[Exception], ...]:
        """Of these, what says that the request never left."""

    def place(self, request: Request) -> Any:
        """Write down where a request goes: what `get` takes, again and again, on any lane of this kind."""

    async def get(self, request: Request, place: Any, own: Mapping[str, str], guard: Guard, request_id: str) -> Reply:
        """Send a request, with the credentials' header fields, and give its reply."""

    async def aclose(self) -> None:
        """Close the connection."""


class _Shared(Generic[T]):
    """What thousands of reads have in common: header fields, checked and written down once until they change."""

    def __init__(self, access: Access, form: Callable[[httpx.Headers], T]) -> None:
        self._access = access
        self._form = form
        self._for: tuple[Mapping[str, str], Mapping[str, str]] | None = None
        self._fields: T

    def fields(self, request: Request, own: Mapping[str, str]) -> T:
        """Give the header fields of a request but its id."""
        if (request.headers, own) != self._for:
            found = arguments(self._access, request, own, "")["headers"]
            del found[REQUEST_ID]
            self._for, self._fields = (request.headers, own), self._form(found)
        return self._fields


class OverHttpx:
    """httpx's own transport: through a proxy, and for the one request that is not a read, for a token.

    Args:
        access: The service.
        context: What checks the other side.
        method: What is sent, whatever is asked; a lane renews its token by a POST.
    """

    broken = _BROKEN
    unsent = UNSENT

    def __init__(self, access: Access, context: ssl.SSLContext, method: str = "GET") -> None:
        one = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=KEPT_ALIVE)
        self._access = access
        self._method = method
        self._transport = httpx.AsyncHTTPTransport(verify=context, limits=one, proxy=_proxy(access))

    def place(self, request: Request) -> None:
        """Write nothing down, against `Carrier`: httpx takes a request whole."""

    async def get(self, request: Request, place: None, own: Mapping[str, str], guard: Guard, request_id: str) -> Reply:
        """Send a request, as `Carrier` says."""
        del place
        parts = arguments(self._access, request, own, request_id) | {"method": self._method}
        timeout = {"timeout": parts.pop("timeout").as_dict()}
        content = b"".join(request.body.open()) if request.body else None
        with Redacted():
            response = await self._transport.handle_async_request(
                httpx.Request(**parts, content=content, extensions=timeout)
            )
            async with aclosing(response):
                return await taken(request, head_of(response), response.aiter_raw(), guard, request_id)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._transport.aclose()


class OverHttpcore:
    """The connection that httpx's transport is made of, without its pool and without anyio: half the work.

    The pool looks through all that it has before and after each request, though here this is one connection.
    It knows no proxy.

    Args:
        access: The service.
        context: What checks the other side.
    """

    broken = _BROKEN
    unsent = UNSENT

    def __init__(self, access: Access, context: ssl.SSLContext) -> None:
        self._access = access
        self._context = context
        self._shared = _Shared(access, lambda fields: [(b"Host", httpx.URL(access.base_url).netloc), *fields.raw])
        self._extensions = {"timeout": {"connect": access.timeouts.connect}}  # a lane has patience of its own
        self._connection: httpcore.AsyncHTTPConnection | None = None

    def place(self, request: Request) -> httpcore.URL:
        """Write down where a request goes, as `Carrier` says."""
        at = httpx.URL(address(self._access, request))
        return httpcore.URL(scheme=at.raw_scheme, host=at.raw_host, port=at.port, target=at.raw_path)

    async def get(
        self, request: Request, place: httpcore.URL, own: Mapping[str, str], guard: Guard, request_id: str
    ) -> Reply:
        """Send a request, as `Carrier` says."""
        fields = [*self._shared.fields(request, own), (REQUEST_ID.encode(), request_id.encode())]
        connection = await self._connected(place.origin)
        with Redacted():
            response = await connection.handle_async_request(
                httpcore.Request("GET", place, headers=fields, extensions=self._extensions)
            )
            pieces = cast("httpx.AsyncByteStream", response.stream)
            async with aclosing(pieces):
                head = Head(response.status, {_text(name).lower(): _text(value) for name, value in response.headers})
                return await taken(request, head, pieces, guard, request_id)

    async def _connected(self, origin: httpcore.Origin) -> httpcore.AsyncHTTPConnection:
        """Give the connection, or another one if it was closed or has been idle for too long."""
        if self._connection is not None and (self._connection.is_closed() or self._connection.has_expired()):
            await self.aclose()
        if self._connection is None:
            made = httpcore.AsyncHTTPConnection
            self._connection = made(origin, self._context, keepalive_expiry=KEPT_ALIVE, network_backend=Sockets())
        return self._connection

    async def aclose(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            await self._connection.aclose()
            self._connection = None


def _text(raw: bytes) -> str:
    """Read a header field's name or value, whatever its bytes."""
    return raw.decode("latin-1")


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
        self._shared = _Shared(access, _multi)
        self._session: aiohttp.ClientSession | None = None

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

    def place(self, request: Request) -> URL:
        """Write down where a request goes, as `Carrier` says; what httpx would not send is refused as there."""
        from yarl import URL

        return URL(address(self._access, request), encoded=True)

    async def get(self, request: Request, place: URL, own: Mapping[str, str], guard: Guard, request_id: str) -> Reply:
        """Send a request, as `Carrier` says."""
        if self._session is None:
            self._session = self._opened()
        fields = self._shared.fields(request, own)
        fields[REQUEST_ID] = request_id
        response = await self._session.get(place, headers=fields, allow_redirects=False, proxy=self._proxy)
        try:
            head = Head(response.status, response.headers)
            return await taken(request, head, response.content.iter_any(), guard, request_id)
        finally:
            response.release()  # as leaving it as a context would, which is slower

    def _opened(self) -> aiohttp.ClientSession:
        import aiohttp

        times = self._access.timeouts
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=1, keepalive_timeout=KEPT_ALIVE, ssl=self._context),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=times.connect),  # a lane has patience of its own
            auto_decompress=False,
        )

    async def aclose(self) -> None:
        """Close the connection."""
        if self._session is not None:
            await self._session.close()


def _multi(fields: httpx.Headers) -> CIMultiDict[str]:
    """Give header fields as aiohttp takes them; it copies them before it sends."""
    from multidict import CIMultiDict

    return CIMultiDict(fields.multi_items())


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
