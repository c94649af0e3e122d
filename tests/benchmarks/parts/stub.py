"""A service that speaks the dialects of all who are measured: a job is running for so many polls, then it is done.

One process of its own, one thread; it counts requests and connections. What is measured must not live here.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections import Counter
from typing import ClassVar

POLLS_BEFORE_THE_END = int(sys.argv[1])

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


class Service(asyncio.Protocol):
    """One connection."""

    asked: ClassVar[Counter[bytes]] = Counter()
    opened = 0
    open = 0
    peak = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count it."""
        assert isinstance(transport, asyncio.Transport)
        self.transport, self.buffer = transport, b""
        Service.opened += 1
        Service.open += 1
        Service.peak = max(Service.peak, Service.open)

    def connection_lost(self, exc: Exception | None) -> None:
        """Count it off."""
        Service.open -= 1

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
        """Answer one request; a job is named by path and body."""
        if path == b"/counts":
            said = {"requests": sum(self.asked.values()), "opened": Service.opened - 1, "peak": Service.peak - 1}
            self.write(200, json.dumps(said).encode())
            return
        job = path + body
        self.asked[job] += 1
        dialect = DIALECTS[path[:6]]
        self.write(*dialect[self.asked[job] > POLLS_BEFORE_THE_END])

    def write(self, status: int, body: bytes) -> None:
        """Send an answer."""
        head = f"HTTP/1.1 {status} Said\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self.transport.write(head.encode() + body)


async def main() -> None:
    """Serve until killed; the port is the first line of the output."""
    server = await asyncio.get_running_loop().create_server(Service, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # a core of its own, where there are two
asyncio.run(main())
