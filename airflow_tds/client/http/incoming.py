"""A reply as it arrives: a result into its sink, all else into memory up to a cap; none is decoded.

The bulk of a large result is read from the socket itself. An answer is a reply only once all of it has come.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import AsyncIterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from airflow_tds.client import errors
from airflow_tds.client.http.failures import Guard
from airflow_tds.client.messages import LARGEST_ANSWER, Reply, Request

__all__ = ["Head", "Incoming", "arriving", "head_of", "set_aside", "set_aside_later", "taken"]

#: Of an answer that says no, this much is read for its text.
LARGEST_REFUSAL = 64 * 1024
#: A result of this size or more is read from the socket itself: half the work of httpx's own reader.
DIRECT_FROM = 1024 * 1024
#: What is read from the socket is written in pieces of this size, or when this many seconds have passed.
DIRECT_PIECE = 1024 * 1024
DIRECT_SECONDS = 0.25
#: Where a redirect's target is kept.
LOCATION = "airflow_tds.location"


@dataclass(frozen=True, slots=True)
class Head:
    """What comes before a reply's body.

    Attributes:
        status: HTTP status.
        headers: Header fields, found by their names in lower case.
    """

    status: int
    headers: Mapping[str, str]

    @property
    def succeeds(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300  # noqa: PLR2004  # the class of statuses that RFC 9110 calls successful


def head_of(response: httpx.Response) -> Head:
    """Give the head of what httpx received."""
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Head(response.status_code, headers | response.extensions.get(LOCATION, {}))


class Incoming:
    """A reply as it arrives: into the sink if it is a result, else into memory, up to a cap."""

    def __init__(self, request: Request, head: Head, request_id: str) -> None:
        self._request = request
        self._head = head
        self._id = request_id
        self._kept = bytearray()
        self._received = 0
        self._headers = head.headers
        self._encoded = self._headers.get("content-encoding", "identity").lower() != "identity"
        self.pours = request.sink is not None and head.succeeds
        if head.succeeds:
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
        sink, status = self._sink, self._head.status
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

    @property
    def _less(self) -> str:
        return "; ask for fewer rows at once" if self._request.largest > LARGEST_ANSWER else ""

    def _unexpected(self, what: str) -> errors.UnexpectedReply:
        return errors.UnexpectedReply(f"{self._name}: {what}")

    def take(self, piece: Any) -> bool:
        """Keep a piece; False when no more is wanted."""
        self._received += len(piece)
        if self.pours:
            self._sink.write(piece)
            return True
        self._kept += piece
        if self._head.succeeds and len(self._kept) > self._request.largest:
            raise self._unexpected(f"the answer has more than {self._request.largest} bytes{self._less}")
        return self._head.succeeds or len(self._kept) <= LARGEST_REFUSAL

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
        return Reply(self._head.status, self._headers, content, self._received, self._id)


def arriving(response: httpx.Response, incoming: Incoming, guard: Guard) -> Iterator[Any]:
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


def _from_socket(wire: socket.socket, left: int, guard: Guard) -> Iterator[memoryview]:
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


async def taken(request: Request, head: Head, pieces: AsyncIterable[bytes], guard: Guard, request_id: str) -> Reply:
    """Take a reply over asyncio."""
    incoming = Incoming(request, head, request_id)
    async for piece in pieces:
        guard.check()
        if not incoming.take(piece):
            break
    return incoming.reply()


def set_aside(response: httpx.Response) -> None:
    """Keep a redirect's target from httpx, which reads it though it may not follow it, and breaks on a bad one."""
    if "location" in response.headers:
        response.extensions[LOCATION] = {"location": response.headers.pop("location")}


async def set_aside_later(response: httpx.Response) -> None:
    """Do the same for an async client, whose hooks must be coroutines."""
    set_aside(response)
