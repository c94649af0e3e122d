"""asyncio's own sockets for httpcore's connection: what anyio takes to read and to write is a third of a poll.

For lanes only: what is sent is the head of a GET, which nobody has to wait for, and a lane ends what takes too long
to read. Nothing here knows HTTP.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import httpcore

__all__ = ["Sockets"]

#: Bytes that wait to be read before the other side is held up.
MOST_UNREAD = 64 * 1024
#: Seconds until the next of a name's addresses is tried beside the first (RFC 8305).
NEXT_ADDRESS = 0.25


class Sockets(httpcore.AsyncNetworkBackend):
    """Makes connections; httpcore asks for no other kind than these."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect, as httpcore wants it; it gives neither address nor options of ours."""
        del local_address, socket_options
        async with _connecting(timeout):
            loop = asyncio.get_running_loop()
            _, stream = await loop.create_connection(_Stream, host, port, happy_eyeballs_delay=NEXT_ADDRESS)
        return stream


class _Stream(asyncio.Protocol, httpcore.AsyncNetworkStream):
    """One socket: what has come and was not read, and who waits for more."""

    _transport: Any

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._unread = bytearray()
        self._ended: Exception | None = None
        self._waiting: asyncio.Future[None] | None = None

    # ---- what asyncio tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._unread += data
        if len(self._unread) > MOST_UNREAD:
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = exc or EOFError()
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    # ---- what httpcore wants

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if not self._unread and self._ended is None:
            self._waiting = self._loop.create_future()
            await self._waiting
        if not self._unread and not isinstance(self._ended, EOFError):
            raise httpcore.ReadError(str(self._ended)) from self._ended
        found = bytes(self._unread[:max_bytes])
        del self._unread[:max_bytes]
        self._transport.resume_reading()
        return found

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._transport.write(buffer)

    async def aclose(self) -> None:
        self._transport.abort()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        try:
            async with _connecting(timeout):
                start = self._loop.start_tls
                self._transport = await start(self._transport, self, ssl_context, server_hostname=server_hostname)
        except BaseException:
            self._transport.abort()
            raise
        return self

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":
            return bool(self._unread) or self._ended is not None
        return self._transport.get_extra_info(info)


@asynccontextmanager
async def _connecting(timeout: float | None) -> AsyncIterator[None]:
    """Say in httpcore's words what became of a connection."""
    try:
        async with asyncio.timeout(timeout):
            yield
    except TimeoutError as late:
        raise httpcore.ConnectTimeout from late
    except OSError as refused:  # ssl.SSLError among them
        raise httpcore.ConnectError(str(refused)) from refused
