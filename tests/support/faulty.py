"""A service and its object store over bare sockets: they answer well, until a test gives one of them a fault.

Each request comes on a connection, and in a thread, of its own. What the fault does to a connection stands
here; which faults there are, and what the client makes of them, is the fault matrix's.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

__all__ = ["RESULT", "Heard", "Peer", "Strike", "respond_as_service", "respond_as_store", "told"]

#: Seconds that a thread of a test waits for the other side.
PATIENCE = 60.0
#: A query's result.
RESULT = bytes(range(256)) * 256
_RESET = struct.pack("ii", 1, 0)


@dataclass(frozen=True)
class Heard:
    """A request as it came; of one that is not read, only the line."""

    line: str
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


#: What a fault does with a connection, once a request's line has come.
Strike = Callable[["Peer", socket.socket], None]


class Peer:
    """The service or the store; listens on a port of the loopback.

    Args:
        respond: Gives the answer to a request.

    Attributes:
        lines: Method and path of every request whose beginning came.
        whole: Those of them that came whole and were answered, as `respond` saw them.
        context: What it shows over TLS; None for no TLS.
        mute: Whether it lets a TLS handshake begin and says nothing.
        over: Set when the test is over, so that whoever holds a connection lets it go.
    """

    def __init__(self, respond: Callable[[Peer, Heard], bytes]) -> None:
        self.lines: list[str] = []
        self.whole: list[Heard] = []
        self.accepted = 0
        self.context: ssl.SSLContext | None = None
        self.mute = self.hangs_up = False
        self.over = threading.Event()
        self.host = "127.0.0.1"
        self._respond = respond
        self._struck: Callable[[str], Strike | None] = lambda _: None
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads: list[threading.Thread] = []
        self._fillers: list[socket.socket] = []
        self._opened = False

    @property
    def url(self) -> str:
        """Scheme, host and port."""
        return f"{'https' if self.context else 'http'}://{self.host}:{self.port}"

    def struck_by(self, choose: Callable[[str], Strike | None]) -> None:
        """Let a fault strike: `choose` says of a request's line what is done with its connection; None for nothing."""
        self._struck = choose

    def open(self) -> None:
        """Take connections from now on."""
        self._listener.listen(128)
        self._opened = True
        self._start(self._accept)

    def fill(self) -> None:
        """Let connections hang: the only place in the queue is taken, and nobody is let in."""
        self._listener.listen(0)
        self._fillers.append(socket.create_connection(("127.0.0.1", self.port)))

    def close(self) -> None:
        """Let everything go, and wait until all that came has been looked at."""
        self.over.set()
        if self._opened:
            self._overtake()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in self._fillers:
            one.close()
        for thread in self._threads:
            thread.join(PATIENCE)

    def _overtake(self) -> None:
        """Come last in the queue, so that all others have been let in."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), PATIENCE) as last:
            last.shutdown(socket.SHUT_WR)
            while last.recv(65536):
                pass

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads = [*(one for one in self._threads if one.is_alive()), thread]
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            self._start(self._meet, connection)

    def _meet(self, connection: socket.socket) -> None:
        with suppress(OSError, ValueError), connection:
            connection.settimeout(PATIENCE)
            if self.context is None:
                self._converse(connection)
            elif self.mute:
                self.hold(connection)
            elif not self.hangs_up:
                with self.context.wrap_socket(connection, server_side=True) as secured:
                    self._converse(secured)

    def _converse(self, connection: socket.socket) -> None:
        """Answer one request; faults strike plain connections only, whose beginning can be looked at unread."""
        strike = None
        if not isinstance(connection, ssl.SSLSocket):
            line = self._beginning(connection)
            if not line:
                return
            self.lines.append(line)
            strike = self._struck(line)
        if strike is not None:
            strike(self, connection)
        else:
            connection.sendall(self._respond(self, self.hear(connection)))

    def _beginning(self, connection: socket.socket) -> str:
        while b"\r\n" not in (found := connection.recv(65536, socket.MSG_PEEK)) and found:
            pass
        return found.partition(b"\r\n")[0].decode("latin-1").rpartition(" ")[0]

    def hear(self, connection: socket.socket) -> Heard:
        """Read a whole request."""
        with connection.makefile("rb") as stream:
            first, *fields = iter(lambda: stream.readline().rstrip(b"\r\n").decode("latin-1"), "")
            headers = {name.lower(): value for name, value in (one.split(": ", 1) for one in fields)}
            length, body = int(headers.get("content-length", 0)), b""
            if headers.get("transfer-encoding") == "chunked":
                while size := int(stream.readline() or b"!", 16):
                    body += stream.read(size + 2)[:-2]
                stream.readline()
            else:
                body = stream.read(length)
            if len(body) < length:
                raise ConnectionAbortedError
        heard = Heard(first.rpartition(" ")[0], headers, body)
        if isinstance(connection, ssl.SSLSocket):
            self.lines.append(heard.line)
        self.whole.append(heard)
        return heard

    # ---- what faults do

    def hold(self, connection: socket.socket) -> None:
        """Neither read nor answer, until the test is over."""
        self.over.wait(PATIENCE)

    def reset(self, connection: socket.socket) -> None:
        """Break off without a goodbye."""
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        connection.close()

    def hang_up(self, connection: socket.socket) -> None:
        """Say goodbye, and take what still comes."""
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass


def told(status: int, body: bytes = b"", *fields: str) -> bytes:
    """Write an answer down."""
    lines = [f"HTTP/1.1 {status} X", *fields, f"Content-Length: {len(body)}", "Connection: close"]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def respond_as_service(store: Peer) -> Callable[[Peer, Heard], bytes]:
    """Answer as a service does whose data lies in a store."""
    page = {"items": [{"a": 1}], "metadata": {"total_count": 1, "has_next": False}, "etag": "s1"}
    documents = {
        "GET /tables/t/data/info": (200, {"row_count": 0, "snapshot_id": "s1"}),
        "GET /tables/t/data/query": (200, page),
        "GET /data/jobs/j": (200, {"status": "COMPLETED"}),
        "POST /data/queries": (202, {"job_id": "q"}),
        "POST /token": (200, {"access_token": "t0ken", "token_type": "bearer"}),
    }

    def respond(peer: Peer, heard: Heard) -> bytes:
        path = heard.line.partition("?")[0]
        if path == "PATCH /tables/t/data":
            document = {"job_id": "j", "upload_url": f"{store.url}/put?sig=s3cretsig"}
            return told(200, json.dumps(document).encode())
        if path.startswith("GET /data/query/"):
            return told(307, b"", f"Location: {store.url}/get?sig=s3cretsig")
        if path in documents:
            status, known = documents[path]
            return told(status, json.dumps(known).encode())
        return told(202)

    return respond


def respond_as_store(peer: Peer, heard: Heard) -> bytes:
    """Answer as an object store does."""
    if heard.line.startswith("PUT "):
        return told(200)
    fields = ('ETag: "v1"', "Accept-Ranges: bytes")
    asked = heard.headers.get("range", "")
    if not asked:
        return told(200, RESULT, *fields)
    first = int(asked.removeprefix("bytes=").removesuffix("-"))
    return told(206, RESULT[first:], *fields, f"Content-Range: bytes {first}-{len(RESULT) - 1}/{len(RESULT)}")
