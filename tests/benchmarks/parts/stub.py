"""A service that speaks the dialects of all who are measured: a job is running for so many polls, then it is done.

    python stub.py '{"polls": 5, "delay": 0.05, "certificate": "/path"}'

One process of its own, one thread; it counts requests and connections. Whoever measures talks to it over a second
port, which is not counted: what was seen (`/counts`), that jobs go on (`/begin`) or end (`/finish`) where no number
of polls says so, that for so many seconds everybody is refused with 429 (`/storm/5`). What is measured must not live
here.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import ssl
import sys
import time
from collections import Counter
from typing import Any, ClassVar

#: `polls`: before a job's last one, None for those between `/begin` and `/finish`; `delay`: seconds to an answer.
GIVEN: dict[str, Any] = {"polls": None, "delay": 0.0, "certificate": None} | json.loads(sys.argv[1])

RUNNING = json.dumps({"status": "RUNNING", "error": None, "created_at": "2026-11-21T12:00:00Z"}).encode()
DONE = json.dumps({"status": "COMPLETED", "error": None, "created_at": "2026-11-21T12:00:00Z"}).encode()
#: What each dialect says while a job runs, and at its end: status and body.
DIALECTS = {
    b"/data/": ((200, RUNNING), (200, DONE)),
    b"/api/2": (
        (200, b'{"state": {"life_cycle_state": "RUNNING", "result_state": "", "state_message": ""}}'),
        (200, b'{"state": {"life_cycle_state": "TERMINATED", "result_state": "SUCCESS", "state_message": ""}}'),
    ),
    b"/api/v": ((200, b'{"data": {"status": 3}}'), (200, b'{"data": {"status": 10}}')),
    b"/senso": ((404, b"{}"), (200, b"{}")),
}


class Jobs:
    """What the service has seen, and what it says."""

    def __init__(self) -> None:
        self.asked: Counter[bytes] = Counter()
        self.refused = self.opened = self.open = self.peak = 0
        self.finished = True
        self.storm = 0.0

    def answer(self, job: bytes, dialect: bytes) -> tuple[int, bytes]:
        """Say how a job is doing."""
        self.asked[job] += 1
        if time.monotonic() < self.storm:
            self.refused += 1
            return 429, b"{}"
        limit = GIVEN["polls"]
        ended = self.finished if limit is None else self.asked[job] > limit
        return DIALECTS[dialect][ended]

    def command(self, path: str) -> dict[str, int]:
        """Do what whoever measures wants, and tell what was seen."""
        if path in ("/begin", "/finish"):
            self.finished = path == "/finish"
        elif path.startswith("/storm/"):
            self.storm = time.monotonic() + float(path.rsplit("/", 1)[1])
        said = {"requests": self.asked.total(), "jobs": len(self.asked), "opened": self.opened, "peak": self.peak}
        return said | {"refused": self.refused}


class Connection(asyncio.Protocol):
    """One connection, of a client or, with `control`, of whoever measures."""

    jobs: ClassVar[Jobs] = Jobs()

    def __init__(self, control: bool = False) -> None:
        self._control = control

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count it."""
        self.transport: Any = transport
        self.buffer = b""
        if not self._control:
            self.jobs.opened += 1
            self.jobs.open += 1
            self.jobs.peak = max(self.jobs.peak, self.jobs.open)

    def connection_lost(self, exc: Exception | None) -> None:
        """Count it off."""
        if not self._control:
            self.jobs.open -= 1

    def data_received(self, data: bytes) -> None:
        """Answer what has come whole."""
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            length = re.search(rb"content-length: (\d+)", self.buffer[:end], re.IGNORECASE)
            size = end + 4 + (int(length[1]) if length else 0)
            if len(self.buffer) < size:
                return
            message, self.buffer = self.buffer[:size], self.buffer[size:]
            self.answer(message.split(b" ", 2)[1], message[end + 4 :])

    def answer(self, path: bytes, body: bytes) -> None:
        """Answer one request, after a while if so wanted; a job is named by path and body."""
        if self._control:
            self.write(200, json.dumps(self.jobs.command(path.decode())).encode())
            return
        said = self.jobs.answer(path + body, path[:6])
        if GIVEN["delay"]:
            asyncio.get_running_loop().call_later(GIVEN["delay"], self.write, *said)
        else:
            self.write(*said)

    def write(self, status: int, body: bytes) -> None:
        """Send an answer."""
        wait = "Retry-After: 1\r\n" if status == 429 else ""
        head = f"HTTP/1.1 {status} Said\r\n{wait}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self.transport.write(head.encode() + body)


async def main() -> None:
    """Serve until killed; the first line of the output has the service's port and the other one."""
    context = None
    if GIVEN["certificate"]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(GIVEN["certificate"])
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Connection, "127.0.0.1", 0, backlog=4096, ssl=context)
    control = await loop.create_server(lambda: Connection(control=True), "127.0.0.1", 0)
    print(*(one.sockets[0].getsockname()[1] for one in (server, control)), flush=True)
    await server.serve_forever()


os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # a core of its own, where there are two
asyncio.run(main())
