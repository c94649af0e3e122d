"""`Lane`: one connection that can only read, for the shared poller.

Over httpx or over aiohttp; which one is there is looked up without importing it.
"""

from __future__ import annotations

import ssl
import uuid
from collections.abc import Mapping
from contextlib import aclosing
from importlib.util import find_spec
from typing import Any, Literal

from airflow_tds.client import errors
from airflow_tds.client.access import Access
from airflow_tds.client.http.admission import let_in
from airflow_tds.client.http.carriers import Carrier, OverAiohttp, OverHttpx, over_httpx
from airflow_tds.client.http.failures import Guard, failure, go_on
from airflow_tds.client.messages import Reply, Request

__all__ = ["Kept", "Lane", "Over", "open_lanes", "polled_over"]

#: What carries a lane's reads.
Over = Literal["httpx", "aiohttp"]


def polled_over(wish: str) -> Over:
    """Say what lanes go over; looks for a package, and imports nothing.

    Args:
        wish: `httpx`, `aiohttp`, or `auto` for aiohttp where it is installed.

    Raises:
        ValidationFailed: aiohttp is wished for and not installed.
    """
    present = find_spec("aiohttp") is not None
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
        self._written: Any = None

    def written(self, access: Access, carrier: Carrier, request: Request, own: Mapping[str, str]) -> Any:
        """Give the request as the carrier takes it."""
        if self._written is None or access is not self._access or own != self._own:
            self._access, self._own, self._written = access, own, carrier.written(request, own)
        return self._written


class Lane:
    """One connection that can read and nothing else: a worker's own, so that cancelling one harms no other.

    A shared httpx pool dies when requests on it are cancelled, and costs the square of its connections;
    a single connection does neither.

    Args:
        access: The service; one for all lanes of an event loop, so that they renew credentials once.
        context: What checks the other side, built once for all lanes.
        over: What carries the reads.
    """

    def __init__(self, access: Access, context: ssl.SSLContext, over: Over = "httpx") -> None:
        self._access = access
        self._context = context
        self._carrier: Carrier = (OverAiohttp if over == "aiohttp" else over_httpx)(access, context)

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
            if wanted is not request:
                return await self._renew(wanted)
            written = kept.written(self._access, self._carrier, request, own)
            return await self._exchange(request, written, self._carrier)

        return await let_in(self._access, request, exchange, self._access.renewing)

    async def _renew(self, request: Request) -> Reply:
        """Ask for a token, on a connection of its own: this is a POST, and comes once an hour."""
        async with aclosing(OverHttpx(self._access, self._context)) as carrier:
            return await self._exchange(request, carrier.written(request, {}, method=request.method), carrier)

    async def _exchange(self, request: Request, written: Any, carrier: Carrier) -> Reply:
        guard, request_id = Guard(request, go_on, self._access.timeouts.read), uuid.uuid4().hex
        try:
            return await carrier.get(request, written, guard, request_id)
        except carrier.broken as error:
            failed = failure(request, error, carrier.unsent, request_id=request_id)
        raise failed

    async def close(self) -> None:
        """Close the connection."""
        await self._carrier.aclose()
