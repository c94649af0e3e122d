"""`Lane`: one connection that can only read, for the shared poller.

Over httpx or over aiohttp; which one is there is looked up without importing it.
"""

from __future__ import annotations

import asyncio
import random
import ssl
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
    """A read that is asked again and again: where it goes, written down once, and anew when the access has changed."""

    __slots__ = ("_access", "_place")

    def __init__(self) -> None:
        self._access: Access | None = None
        self._place: Any = None

    def place(self, access: Access, carrier: Carrier, request: Request) -> Any:
        """Give where the request goes, as the carrier takes it."""
        if access is not self._access:
            self._access, self._place = access, carrier.place(request)
        return self._place


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
        self._patience = _Patience(access.timeouts.read)

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
        place = (kept or Kept()).place(self._access, self._carrier, request)

        async def exchange(wanted: Request, own: Mapping[str, str]) -> Reply:
            if wanted is not request:
                return await self._renew(wanted)
            return await self._exchange(self._carrier, wanted, place, own)

        return await let_in(self._access, request, exchange, self._access.renewing)

    async def _renew(self, request: Request) -> Reply:
        """Ask for a token, on a connection of its own: this is a POST, and comes once an hour."""
        async with aclosing(OverHttpx(self._access, self._context, request.method)) as carrier:
            return await self._exchange(carrier, request, None, {})

    async def _exchange(self, carrier: Carrier, request: Request, place: Any, own: Mapping[str, str]) -> Reply:
        guard, request_id = Guard(request, go_on, self._access.timeouts.read), _name()
        try:
            async with asyncio.timeout(None) as limit:
                self._patience.begin(limit)
                return await carrier.get(request, place, own, guard, request_id)
        except carrier.broken as error:
            failed = failure(request, error, carrier.unsent, request_id=request_id)
        finally:
            self._patience.end()
        raise failed

    async def close(self) -> None:
        """Close the connection."""
        self._patience.close()
        await self._carrier.aclose()


class _Patience:
    """Ends a read that takes too long; one timer for read after read, as one for each costs a twentieth of it.

    Args:
        seconds: That a read may take from its beginning to the end of its answer.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._limit: asyncio.Timeout | None = None
        self._ends = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, limit: asyncio.Timeout) -> None:
        """Begin a read."""
        loop = asyncio.get_running_loop()
        self._limit, self._ends = limit, loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_at(self._ends, self._look, loop)

    def end(self) -> None:
        """End it."""
        self._limit = None

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._limit is None:
            return
        if loop.time() < self._ends:
            self._timer = loop.call_at(self._ends, self._look, loop)
        else:
            self._limit.reschedule(loop.time())

    def close(self) -> None:
        """Forget the timer."""
        if self._timer is not None:
            self._timer.cancel()


def _name() -> str:
    """Name a request as a UUID would, without asking the system for each."""
    return f"{random.getrandbits(128):032x}"  # it guards nothing
