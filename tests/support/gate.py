"""A gate in front of the service: it knows where a table's write stands, and can hold it there.

What lives here: HTTP/1.1 passed on, the steps of an append as they are seen on the wire, holds. What must not: what
is done to whom while a write is held (kills.py). A request that its sender left behind is passed on all the same, as
a network may deliver it late. Standard library only.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import select
import socket
import threading
import time
from collections import Counter, defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import unquote, urlsplit

__all__ = ["STEPS", "Gate", "Hold"]

#: The steps of a deferred append, in their order; what is held there, and what has been stored by then.
STEPS = {
    "info asked": "nothing is known of the write",
    "initiate asked": "the request is on its way",
    "initiate answered": "the job exists, its id is on its way",
    "job seen": "the job is known, the record is not stored",
    "put begun": "the record is stored, no data has left",
    "put within": "half of the data has left",
    "put answered": "the data was taken, the record does not say so",
    "running read": "the record says sent",
    "polled": "deferred, the trigger asks",
    "completed polled": "deferred, the trigger is about to hear of the end",
    "completed read": "resumed, about to hear of the end",
    "result asked": "the record says done",
    "returned": "execute has returned, Airflow does not know",
}
HOP = ("connection", "keep-alive", "transfer-encoding", "content-length")
LONGEST_HOLD = 600.0


class Hold:
    """One write is held at one step, once.

    Attributes:
        reached: set when it is there.
        released: set to let it go on.
    """

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.released = threading.Event()
        self._socket: socket.socket | None = None

    def wait_here(self, client: socket.socket) -> None:
        """Hold the caller until `released`."""
        self._socket = client
        self.reached.set()
        self.released.wait(LONGEST_HOLD)

    @property
    def holds(self) -> bool:
        """Whether somebody is held now, who is still connected."""
        if self._socket is None or self.released.is_set():
            return False
        readable, _, _ = select.select([self._socket], [], [], 0)
        try:
            return not readable or bool(self._socket.recv(1, socket.MSG_PEEK))
        except OSError:
            return False


class Gate:
    """Passes requests on to a service.

    Args:
        service: the service's URL.
        longest_upload: seconds after which it ends an upload, as an object store ends one that stalls: with a store
            that does not, a paused worker's data may land after the lease (assumption A3).
    """

    def __init__(self, service: str, longest_upload: float) -> None:
        self.longest_upload = longest_upload
        self.host = urlsplit(service).netloc
        self._lock = threading.Lock()
        self._tables: dict[str, str] = {}
        self._holds: dict[tuple[str, str], Hold] = {}
        self.seen: dict[str, Counter[str]] = defaultdict(Counter)
        self._server = _Server(("127.0.0.1", 0), self)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        for hold in self._holds.values():
            hold.released.set()
        self._server.shutdown()
        self._server.server_close()

    def hold(self, table: str, step: str) -> Hold:
        """Hold the next write to a table at a step."""
        hold = self._holds[table, step] = Hold()
        return hold

    def at(self, table: str, step: str, client: socket.socket) -> None:
        """Note that a write is at a step, and hold it there if that is wanted."""
        with self._lock:
            self.seen[table][step] += 1
            hold = self._holds.get((table, step))
            taken = hold is not None and not hold.reached.is_set()
        if hold is not None and taken:
            hold.wait_here(client)

    def table_of(self, path: str) -> tuple[str, str]:
        """Name the operation and the table that a path is about; empty where it is about none."""
        for pattern, operation in (
            (r"/tables/([^/]+)/data/info", "info"),
            (r"/tables/([^/]+)/data", "append"),
            (r"/returned/([^/]+)", "returned"),
        ):
            if found := re.fullmatch(pattern, urlsplit(path).path):
                return operation, unquote(found[1])
        for pattern, operation in ((r"/data/jobs/([^/]+)", "job"), (r"/storage/payloads/([^/]+)", "put")):
            if found := re.fullmatch(pattern, urlsplit(path).path):
                return operation, self._tables.get(found[1], "")
        return "", ""

    def learn(self, table: str, job_id: str) -> None:
        """Note whose a job is."""
        self._tables[job_id] = table

    def step_of_info(self, table: str) -> str:
        """Tell the `info` before a write from the one after it."""
        return "result asked" if self.seen[table]["completed read"] else "info asked"

    def step_of_job(self, table: str, status: str) -> str:
        """Tell who is told what about a job: the worker, then the trigger, then the resumed worker."""
        seen = self.seen[table]
        if status.upper() == "AWAITING":
            return "job seen"
        if status.upper() == "COMPLETED":
            return "completed read" if seen["completed polled"] else "completed polled"
        return "polled" if seen["running read"] else "running read"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, address: tuple[str, int], gate: Gate) -> None:
        super().__init__(address, _Handler)
        self.gate = gate

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a killed client is what this is for."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def _pass(self) -> None:
        gate = self.server.gate
        operation, table = gate.table_of(self.path)
        if operation == "returned":
            gate.at(table, "returned", self.connection)
            self._answer(200, [], b"{}")
            return
        before = {"info": gate.step_of_info(table), "append": "initiate asked", "put": "put begun"}
        if operation in before:
            gate.at(table, before[operation], self.connection)
        status, headers, content = self._forward(operation, table)
        if operation == "append" and status < 300:
            gate.learn(table, json.loads(content)["job_id"])
            gate.at(table, "initiate answered", self.connection)
        elif operation == "job" and status == 200:
            gate.at(table, gate.step_of_job(table, json.loads(content)["status"]), self.connection)
        elif operation == "put":
            gate.at(table, "put answered", self.connection)
        self._answer(status, headers, content)

    do_GET = do_POST = do_PATCH = do_PUT = _pass  # noqa: N815  # the base class's names

    def _forward(self, operation: str, table: str) -> tuple[int, list[tuple[str, str]], bytes]:
        length = int(self.headers.get("Content-Length") or 0)
        with contextlib.closing(http.client.HTTPConnection(self.server.gate.host, timeout=LONGEST_HOLD)) as out:
            out.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in HOP:
                    out.putheader(name, value)
            if length or self.command != "GET":
                out.putheader("Content-Length", str(length))
            out.endheaders()
            if operation == "put":
                self._pour(out, length // 2)
                self._hold_within(table)
                length -= length // 2
            self._pour(out, length)
            reply = out.getresponse()
            kept = [(name, value) for name, value in reply.getheaders() if name.lower() not in HOP]
            return reply.status, kept, reply.read()

    def _hold_within(self, table: str) -> None:
        begun = time.monotonic()
        self.server.gate.at(table, "put within", self.connection)
        if time.monotonic() - begun > self.server.gate.longest_upload:
            raise ConnectionError("the upload has taken too long")

    def _pour(self, out: http.client.HTTPConnection, size: int) -> None:
        while size:
            piece = self.rfile.read(min(size, 65536))
            if not piece:
                raise ConnectionError("the sender is gone")
            out.send(piece)
            size -= len(piece)

    def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class's name
        """Say nothing: addresses hold signatures."""
