"""A service that speaks the dialects of all who are measured: a job is running for so many polls, then it is done.

    python stub.py '{"polls": 5, "delay": 0.05, "certificate": "/path"}'

One process of its own, one thread; it counts requests and connections. Whoever measures talks to it over a second
port, which is not counted: what was seen (`/counts`), that jobs go on (`/begin`) or end (`/finish`) where no number
of polls says so, that for so many seconds everybody is refused with 429 (`/storm/5`). What is measured must not live
here.

It does little, and without asyncio, a third of the work: two cores share more than they show, and a service at work
makes whoever polls it look up to a quarter more expensive.
"""

from __future__ import annotations

import heapq
import itertools
import json
import os
import re
import select
import socket
import ssl
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

#: `polls`: before a job's last one, None for those between `/begin` and `/finish`; `delay`: seconds to an answer.
GIVEN: dict[str, Any] = {"polls": None, "delay": 0.0, "certificate": None} | json.loads(sys.argv[1])


def message(status: int, body: bytes) -> bytes:
    """Write an answer down."""
    wait = "Retry-After: 1\r\n" if status == 429 else ""
    head = f"HTTP/1.1 {status} Said\r\n{wait}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def record(status: str) -> bytes:
    """Write a job of ours down."""
    return json.dumps({"status": status, "error": None, "created_at": "2026-11-21T12:00:00Z"}).encode()


def run(state: str, result: str) -> bytes:
    """Write a run of Databricks's down."""
    return json.dumps({"state": {"life_cycle_state": state, "result_state": result, "state_message": ""}}).encode()


#: What each dialect says while a job runs, and at its end.
DIALECTS = {
    b"/data/": (message(200, record("RUNNING")), message(200, record("COMPLETED"))),
    b"/api/2": (message(200, run("RUNNING", "")), message(200, run("TERMINATED", "SUCCESS"))),
    b"/api/v": (message(200, b'{"data": {"status": 3}}'), message(200, b'{"data": {"status": 10}}')),
    b"/senso": (message(404, b"{}"), message(200, b"{}")),
}
REFUSAL = message(429, b"{}")


class Jobs:
    """What the service has seen, and what it says."""

    def __init__(self) -> None:
        self.asked: Counter[bytes] = Counter()
        self.refused = self.opened = self.open = self.peak = 0
        self.finished = True
        self.storm = 0.0

    def connected(self) -> None:
        """Count a connection."""
        self.opened += 1
        self.open += 1
        self.peak = max(self.peak, self.open)

    def answer(self, job: bytes, dialect: bytes) -> bytes:
        """Say how a job is doing."""
        count = self.asked[job] = self.asked[job] + 1
        if self.storm and time.monotonic() < self.storm:
            self.refused += 1
            return REFUSAL
        limit = GIVEN["polls"]
        return DIALECTS[dialect][self.finished if limit is None else count > limit]

    def command(self, path: str) -> bytes:
        """Do what whoever measures wants, and tell what was seen."""
        if path in ("/begin", "/finish"):
            self.finished = path == "/finish"
        elif path.startswith("/storm/"):
            self.storm = time.monotonic() + float(path.rsplit("/", 1)[1])
        said = {"requests": self.asked.total(), "jobs": len(self.asked), "opened": self.opened, "peak": self.peak}
        return message(200, json.dumps(said | {"refused": self.refused}).encode())


class Connection:
    """One connection, of a client or, with `control`, of whoever measures."""

    def __init__(self, wire: socket.socket, *, control: bool) -> None:
        self.wire = wire
        self.control = control
        self._buffer = b""

    def receive(self) -> bool:
        """Take what has come; False when the other side has left."""
        try:
            data = self.wire.recv(65536)
        except (ssl.SSLWantReadError, BlockingIOError):
            return True
        except OSError:
            return False
        self._buffer += data
        return bool(data)

    def requests(self) -> Iterator[tuple[bytes, bytes]]:
        """Give path and body of what has come whole."""
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            length = re.search(rb"content-length: (\d+)", self._buffer[:end], re.IGNORECASE)
            size = end + 4 + (int(length[1]) if length else 0)
            if len(self._buffer) < size:
                return
            whole, self._buffer = self._buffer[:size], self._buffer[size:]
            yield whole.split(b" ", 2)[1], whole[end + 4 :]


class Service:
    """Both ports and all connections."""

    def __init__(self) -> None:
        self._jobs = Jobs()
        self._poll = select.epoll()
        self._connections: dict[int, Connection] = {}
        self._later: list[tuple[float, int, Connection, bytes]] = []
        self._order = itertools.count()
        self._context: ssl.SSLContext | None = None
        if GIVEN["certificate"]:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(GIVEN["certificate"])
        self._ports = {one.fileno(): one for one in (self._listen(), self._listen())}

    def _listen(self) -> socket.socket:
        port = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self._poll.register(port, select.EPOLLIN)
        return port

    def serve(self) -> None:
        """Serve until killed; the first line of the output has the service's port and the other one."""
        print(*(one.getsockname()[1] for one in self._ports.values()), flush=True)
        while True:
            wait = max(0.0, self._later[0][0] - time.monotonic()) if self._later else None
            for number, _ in self._poll.poll(wait):
                if number in self._ports:
                    self._accept(number)
                else:
                    self._receive(number)
            while self._later and self._later[0][0] <= time.monotonic():
                _, _, connection, answer = heapq.heappop(self._later)
                self._send(connection, answer)

    def _accept(self, number: int) -> None:
        wire, _ = self._ports[number].accept()
        control = number != next(iter(self._ports))
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._context and not control:
            wire = self._context.wrap_socket(wire, server_side=True, do_handshake_on_connect=False)
        wire.setblocking(False)
        self._connections[wire.fileno()] = Connection(wire, control=control)
        self._poll.register(wire, select.EPOLLIN)
        if not control:
            self._jobs.connected()

    def _receive(self, number: int) -> None:
        connection = self._connections[number]
        if not connection.receive():
            del self._connections[number]
            connection.wire.close()
            self._jobs.open -= not connection.control
        for path, body in connection.requests():
            if connection.control:
                self._send(connection, self._jobs.command(path.decode()))
            else:
                self._answer(connection, self._jobs.answer(path + body, path[:6]))

    def _answer(self, connection: Connection, answer: bytes) -> None:
        """Answer one request, after a while if so wanted."""
        if GIVEN["delay"]:
            heapq.heappush(self._later, (time.monotonic() + GIVEN["delay"], next(self._order), connection, answer))
        else:
            self._send(connection, answer)

    def _send(self, connection: Connection, answer: bytes) -> None:
        if connection.wire.fileno() >= 0:
            connection.wire.send(answer)


os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # a core of its own, where there are two
Service().serve()
