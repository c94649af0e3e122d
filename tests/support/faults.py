"""The faults of the fault matrix, each under its name: what it does to a world of one client, a service and a store.

A fault strikes the step under test only. It ends at the client's first pause, or after it has struck once;
where the world says that it lasts, never. What the client should make of it is the matrix's.
"""

from __future__ import annotations

import resource
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from certificates import Authority, presenting
from faulty import RESULT, Heard, Peer, Strike, respond_as_service, respond_as_store, told

from airflow_tds.client.access import Timeouts
from airflow_tds.client.credentials import ClientCredentials
from airflow_tds.client.payloads import CHUNK, Body, body_of

__all__ = ["WAYS", "Trust", "World"]

#: No name ends so (RFC 6761): it is known here only, once the fault is over.
NAME = "peer.invalid"
#: More than the buffers of two sockets hold.
MUCH = 16 << 20
#: Patience with a fault, seconds: whoever waits for what never comes need not wait long. All else may take its time.
SHORT = 0.05


@dataclass(frozen=True)
class Trust:
    """Who signs what servers show: one whom the client trusts, one whom it does not."""

    known: Authority
    stranger: Authority


@dataclass
class World:
    """One client's world: what it talks to, and the fault in it.

    Attributes:
        line: Method and path of the requests of the step under test.
        stores: Whether that step talks to the store.
        lasting: Whether the fault never ends.
        trust: Who signs certificates.
        folder: For files.
        pause: Seconds that the client must pause before it tries again; None for whatever it likes.
    """

    line: str
    stores: bool
    lasting: bool
    trust: Trust
    folder: Path
    data: Any = b"a,b\n1,2\n"
    destination: Path | None = None
    upload_headers: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    pause: float | None = None
    struck: int = 0
    healed: bool = False

    def __post_init__(self) -> None:
        self.store = Peer(respond_as_store)
        self.service = Peer(self._serve)
        self._hurry = self._calm = _nothing
        self.names = {NAME: False}
        self._opens = [self.store, self.service]
        self._heals: list[Callable[[], None]] = []

    @property
    def peer(self) -> Peer:
        """Whom the step under test talks to."""
        return self.store if self.stores else self.service

    def open(self) -> None:
        """Let the peers take connections; not one that a fault keeps from it."""
        for peer in self._opens:
            peer.open()

    def close(self) -> None:
        """Let everything go."""
        for peer in (self.store, self.service):
            peer.close()

    def heal(self) -> None:
        """End the fault, unless it lasts; another try begins with what goes well."""
        self._calm()
        self.healed = True
        while self._heals and not self.lasting:
            self._heals.pop()()

    def _serve(self, peer: Peer, heard: Heard) -> bytes:
        answer = respond_as_service(self.store)(peer, heard)
        self._hurry()  # what comes next is the step under test
        return answer

    def look_up(self, host: Any, *arguments: Any, **more: Any) -> Any:
        """Look a name up as `socket.getaddrinfo` does; ours is known once the fault is over."""
        name = host.decode() if isinstance(host, bytes) else host
        if name in self.names and not self.names[name]:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return _look_up("127.0.0.1" if name in self.names else name, *arguments, **more)

    # ---- how faults are set

    def closed(self) -> None:
        """Keep the peer from taking connections, until the fault ends."""
        self._opens.remove(self.peer)
        self._heals.append(self.peer.open)

    def filled(self) -> None:
        """Let connections hang, until the fault ends."""
        self.closed()
        self.peer.fill()
        self.impatient("connect")

    def unnamed(self) -> None:
        """Give the peer a name that nobody knows, until the fault ends."""
        self.peer.host = NAME
        self._heals.append(lambda: self.names.update({NAME: True}))

    def secured(self, certificate: str, **fault: bool) -> None:
        """Let the peer speak TLS; with a fault in the handshake, until it ends. A service over TLS has such a store."""
        self.store.context = presenting(self.trust.known.issue("store"))
        self.peer.context = presenting(certificate)
        self.peer.__dict__.update(fault)
        self._heals.append(lambda: self.peer.__dict__.update(dict.fromkeys(fault, False)))

    def impatient(self, *times: str) -> None:
        """Be impatient in these times where the fault strikes, until it ends: on a busy machine all else takes long."""
        patience = self.settings["timeouts"] = Timeouts()
        short, long = dict.fromkeys(times, SHORT), vars(Timeouts()).copy()
        self._calm = lambda: patience.__dict__.update(long)
        if self.line == "GET /get":  # the service is asked before, and tells where the result is
            self._hurry = lambda: patience.__dict__.update(short)
            self._heals.append(lambda: setattr(self, "_hurry", _nothing))
        else:
            patience.__dict__.update(short)
            if self.lasting:
                self._calm = _nothing

    def struck_by(self, strike: Strike, *lines: str) -> None:
        """Let the step's requests meet a fault, and others that begin with one of `lines`."""

        def choose(line: str) -> Strike | None:
            ours = line.startswith(self.line)
            over = (self.struck or self.healed) and not self.lasting  # healed: a peer may be late to look at a request
            if (over and ours) or not (ours or line.startswith(lines)):
                return None
            self.struck += ours
            return strike

        self.peer.struck_by(choose)

    def answered(self, answer: bytes | Callable[[Heard], bytes], *lines: str) -> None:
        """Let the step's requests be answered so."""

        def strike(peer: Peer, connection: socket.socket) -> None:
            heard = peer.hear(connection)
            connection.sendall(answer(heard) if callable(answer) else answer)

        self.struck_by(strike, *lines)


def _nothing() -> None:
    """Leave things as they are."""


_look_up = socket.getaddrinfo
Way = Callable[[World], None]


# ---- F1 to F3: no connection


def handshake_untrusted(world: World) -> None:
    world.secured(world.trust.stranger.issue("stranger"))


def handshake_without_end(world: World) -> None:
    world.secured(world.trust.known.issue("good"), mute=True)
    world.impatient("connect")


def handshake_for_another(world: World) -> None:
    world.secured(world.trust.known.issue("another", address="192.0.2.1"))


# ---- F4 to F7: no whole answer


def stall(world: World) -> None:
    world.impatient("read", "write", "commit")
    if world.line.startswith("PUT "):
        world.data = bytes(MUCH)
    world.struck_by(Peer.hold)


def breaking(how: Strike) -> Way:
    """Break off in the middle of the request; a payload is large enough for that."""

    def way(world: World) -> None:
        if world.line.startswith("PUT "):
            world.data = bytes(MUCH)
        world.struck_by(how)

    return way


def losing(how: Strike) -> Way:
    """Take the whole request, and lose the answer."""

    def strike(peer: Peer, connection: socket.socket) -> None:
        peer.hear(connection)
        how(peer, connection)

    return lambda world: world.struck_by(strike)


def raw(answer: bytes) -> Way:
    return lambda world: world.answered(answer)


# ---- F8 to F14: an answer


def says(status: int, body: bytes = b'{"detail": "no"}', *fields: str) -> Way:
    return lambda world: world.answered(told(status, body, *fields))


def busy(status: int, seconds: int, *fields: str) -> Way:
    """Ask for a pause."""

    def way(world: World) -> None:
        world.pause = float(seconds)
        world.answered(told(status, b"", *fields))

    return way


def renewed(status: int) -> Way:
    """Refuse a token, where another one can be had."""

    def way(world: World) -> None:
        url = f"{world.service.url}/token"
        world.settings["credentials"] = ClientCredentials(url, "me", "s3cretsecret")
        world.answered(told(status))

    return way


def no_table(world: World) -> None:
    world.answered(told(404, b'{"detail": "no such thing"}'), "GET /tables/t/data/query")


def elsewhere(status: int) -> Way:
    """Point to another place, which answers well: a request that is sent there would be seen."""
    return lambda world: world.answered(told(status, b"", f"Location: {world.peer.url}/elsewhere?sig=s3cretsig"))


def other_shape(world: World) -> None:
    world.answered(told(200, b"[1]" if world.line.endswith("/info") else b'{"strange": 1}'))


def other_status(world: World) -> None:
    def respond(heard: Heard) -> bytes:
        return respond_as_service(world.store)(world.service, heard).replace(b" 200 X", b" 299 X", 1)

    world.answered(respond)


def status_beyond(world: World) -> None:
    world.answered(told(600, b"{}"))


def unknown_word(world: World) -> None:
    world.answered(told(200, b'{"status": "PONDERING"}'))


def measured(status: int) -> Way:
    """Refuse a payload whose length was not announced, as some stores do for ever."""

    def way(world: World) -> None:
        world.data = lambda: iter([b"a,b\n", b"1,2\n"])
        world.answered(told(status))

    return way


def landed(world: World) -> None:
    """Say that the object is there, to a PUT that must not replace one."""
    world.upload_headers = {"If-None-Match": "*"}
    world.answered(told(412))


# ---- a result that breaks off


def cut(after: int, how: Strike) -> Way:
    """Send a part of a result; where the fault lasts, of one that cannot be resumed."""

    def way(world: World) -> None:
        world.impatient("read")
        fields = () if world.lasting else ('ETag: "v1"', "Accept-Ranges: bytes")

        def strike(peer: Peer, connection: socket.socket) -> None:
            peer.hear(connection)
            connection.sendall(told(200, RESULT, *fields)[: after - len(RESULT)])
            how(peer, connection)

        world.struck_by(strike)

    return way


def badly_chunked(world: World) -> None:
    world.answered(b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n")


def result_as(*fields: str, status: int = 200) -> Way:
    """Send a result under a head that does not fit it."""
    head = "\r\n".join((f"HTTP/1.1 {status} X", *fields, "Connection: close")).encode()
    return lambda world: world.answered(head + b"\r\n\r\n" + RESULT)


# ---- one's own source and disk


def given(data: Callable[[World], Any]) -> Way:
    def way(world: World) -> None:
        world.data = data(world)

    return way


def broken_source(world: World) -> Any:
    def pieces() -> Iterator[bytes]:
        yield bytes(CHUNK)
        raise OSError("the disk is gone")

    return pieces


def of_length(length: int) -> Way:
    return given(lambda world: Body(body_of([bytes(CHUNK)] * 3).open, length, replayable=True))


def full_spool(world: World) -> Any:
    """Fill the disk while a payload is kept: no file may grow beyond 2 MiB, and the payload does."""

    def pieces() -> Iterator[bytes]:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, before[1]))
        try:
            for _ in range(16):
                yield bytes(CHUNK)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    return pieces


def full_disk(world: World) -> None:
    world.destination = Path("/dev/full")


HEAD = b"HTTP/1.1 200 X\r\n"
DATES = ("Date: Thu, 01 Jan 2026 00:00:00 GMT", "Retry-After: Thu, 01 Jan 2026 00:00:05 GMT")
EXPIRED = b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>"

#: Every fault by its name: the column of the matrix, and the way in which it strikes.
WAYS: dict[str, Way] = {
    "F1.refused": World.closed,
    "F1.name": World.unnamed,
    "F2.connect": World.filled,
    "F2.handshake": handshake_without_end,
    "F3.untrusted": handshake_untrusted,
    "F3.name": handshake_for_another,
    "F3.broken": lambda world: world.secured(world.trust.known.issue("good"), hangs_up=True),
    "F4.stall": stall,
    "F4.body": cut(len(RESULT) // 2, Peer.hold),
    "F5.closed": breaking(Peer.hang_up),
    "F5.reset": breaking(Peer.reset),
    "F5.body": cut(len(RESULT) // 2, Peer.hang_up),
    "F5.body-reset": cut(len(RESULT) // 2, Peer.reset),
    "F6.closed": losing(Peer.hang_up),
    "F6.reset": losing(Peer.reset),
    "F6.last-byte": cut(len(RESULT) - 1, Peer.hang_up),
    "F7.head": raw(HEAD + b"Content-Len"),
    "F7.garbage": raw(b"\x00garbage\r\n\r\n"),
    "F7.headers": raw(HEAD + b"X: " + b"x" * 200_000 + b"\r\n\r\n"),
    "F7.body": raw(HEAD + b"Content-Length: 100\r\n\r\n{"),
    "F7.chunks": badly_chunked,
    "F8.busy": says(429),
    "F8.seconds": busy(429, 5, "Retry-After: 5"),
    "F8.date": busy(429, 5, *DATES),
    **{f"F9.{status}": says(status) for status in (408, 500, 502, 503, 504)},
    "F9.seconds": busy(503, 5, "Retry-After: 5"),
    **{f"F10.{status}": says(status) for status in (401, 403)},
    "F10.renewed": renewed(401),
    "F11.table": no_table,
    "F11.route": says(404),
    **{f"F12.{status}": says(status) for status in (400, 405, 409, 411, 412, 413, 415, 416, 422)},
    "F12.measured": measured(411),
    "F12.landed": landed,
    **{f"F13.{status}": elsewhere(status) for status in (301, 302, 303, 304, 307, 308)},
    "F13.nowhere": says(307),
    "F14.page": says(200, b"<html>We are back soon", "Content-Type: text/html"),
    "F14.empty": says(200, b""),
    "F14.shape": other_shape,
    "F14.299": other_status,
    "F14.600": status_beyond,
    "F14.word": unknown_word,
    "F14.unframed": result_as(),
    "F14.part": result_as(f"Content-Length: {len(RESULT)}", status=206),
    "F14.encoded": result_as(f"Content-Length: {len(RESULT)}", "Content-Encoding: gzip"),
    "F17.skew": busy(503, 5, *DATES),
    "F17.expired": says(403, EXPIRED),
    "F5.source": given(broken_source),
    "F11.file": given(lambda world: world.folder / "none.csv"),
    "F14.grew": of_length(2 * CHUNK),
    "F14.shrank": of_length(4 * CHUNK),
    "F17.spool": given(full_spool),
    "F17.disk": full_disk,
}
