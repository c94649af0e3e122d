"""A server that answers with the bytes a test gives it, and records what came; and the embedded service."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority
from scripted import Run, ScriptedRuntime, Step

from airflow_tds.client.client import AsyncTableClient, Operations, TableClient
from airflow_tds.client.runtime import finish
from airflow_tds.local import Service


@dataclass
class Seen:
    """One request as it came over the wire."""

    line: str
    headers: dict[str, str]
    body: bytes = b""
    size: int = 0
    whole: bool = False


@dataclass
class RawServer:
    """Answers each request with the next of `answers`, byte for byte, then closes; without one it just closes.

    An answer may be a callable that gives bytes, or pieces that are sent one after the other.

    With `keep`, the bodies of requests are kept; without, only their size.
    """

    answers: list[bytes | Callable[[], bytes | Iterable[bytes]]] = field(default_factory=list)
    context: ssl.SSLContext | None = None
    keep: bool = True
    seen: list[Seen] = field(default_factory=list)

    def start(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)

    def reset(self) -> None:
        """Break the connection of the present answer off, without a goodbye."""
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._connection.close()

    @property
    def url(self) -> str:
        return f"{'https' if self.context else 'http'}://127.0.0.1:{self.port}"

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with suppress(OSError, ValueError), connection:
                connection.settimeout(20)
                if self.context is None:
                    self._answer(connection)
                else:
                    with self.context.wrap_socket(connection, server_side=True) as secured:
                        self._answer(secured)

    def _answer(self, connection: socket.socket) -> None:
        answer = self.answers.pop(0) if self.answers else b""
        with connection.makefile("rb") as stream:
            head = iter(lambda: stream.readline().rstrip(b"\r\n").decode("latin-1"), "")
            line = next(head, "")
            if not line:
                return
            seen = Seen(line, {name.lower(): value for name, value in (h.split(": ", 1) for h in head)})
            self.seen.append(seen)
            for piece in _body(stream.read, stream.readline, seen.headers):
                seen.size += len(piece)
                seen.body += piece if self.keep else b""
            seen.whole = seen.headers.get("transfer-encoding") == "chunked" or seen.size == int(
                seen.headers.get("content-length", 0)
            )
        self._connection = connection
        given = answer() if callable(answer) else answer
        for piece in [given] if isinstance(given, bytes) else given:
            connection.sendall(piece)


def _body(read: Callable[[int], bytes], readline: Callable[[], bytes], headers: dict[str, str]) -> Iterator[bytes]:
    """Read a body by its framing; one that ends early raises, if its framing tells."""
    if headers.get("transfer-encoding") == "chunked":
        while size := int(readline() or b"!", 16):
            yield read(size)
            readline()
        readline()
        return
    left = int(headers.get("content-length", 0))
    while left and (piece := read(min(left, 65536))):
        left -= len(piece)
        yield piece
    if left:
        raise ConnectionAbortedError


@pytest.fixture
def server() -> Iterator[RawServer]:
    server = RawServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(tables=["t"]) as service:
        yield service


@pytest.fixture
def answer() -> Callable[..., bytes]:
    """Make the bytes of an answer."""

    def make(status: int = 200, body: bytes = b"{}", *headers: str) -> bytes:
        lines = [f"HTTP/1.1 {status} X", *headers, "Connection: close"]
        if not any(re.match("content-length|transfer-encoding|x-no-length", h, re.IGNORECASE) for h in headers):
            lines.append(f"Content-Length: {len(body)}")
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body

    return make


@pytest.fixture(params=["blocking", "async"])
def face(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def run(face: str) -> Run:
    return finish if face == "blocking" else asyncio.run


@pytest.fixture
def scripted(face: str) -> Callable[..., tuple[ScriptedRuntime, Operations]]:
    def make(*script: Step, **settings: Any) -> tuple[ScriptedRuntime, Operations]:
        runtime = ScriptedRuntime(*script, suspends=face == "async")
        return runtime, Operations(runtime, **settings)

    return make


@pytest.fixture
def faced(face: str) -> Callable[..., tuple[ScriptedRuntime, TableClient | AsyncTableClient, str]]:
    """Make a whole client of either face over a script."""

    def make(*script: Step) -> tuple[ScriptedRuntime, TableClient | AsyncTableClient, str]:
        runtime = ScriptedRuntime(*script, suspends=face == "async")
        client = (TableClient if face == "blocking" else AsyncTableClient)("http://x")
        (client._operations if isinstance(client, TableClient) else client)._runtime = runtime
        return runtime, client, face

    return make


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for 127.0.0.1 with its key, in one file."""
    return Path(Authority(tmp_path_factory.mktemp("tls")).bundle)


@pytest.fixture
def secured(server: Any, certificate: Path) -> Any:
    server.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.context.load_cert_chain(certificate)
    return server
