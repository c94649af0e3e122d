"""Another table service: what the interface fixes it means too, what is left open it does otherwise, all at once.

It stands on the standard library alone and knows neither the wire map nor the embedded service, so that a
mistake of theirs shows. Tables are small lists in memory; a job works on its first look and is done on the second.
"""

from __future__ import annotations

import csv
import io
import json
import operator
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

__all__ = ["BASE", "KEY", "KEY_HEADER", "OtherService", "Sheet", "other_service"]

BASE = "/v9/warehouse"
FORMATS = ("JSON_ROWS", "CSV_TEXT")
KEY_HEADER, KEY = "X-Warehouse-Key", "k3y"
READ_ONLY_KEY = "r3ad"
COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "lte": operator.le,
    "gt": operator.gt,
    "gte": operator.ge,
}


class No(Exception):
    """An answer that says no."""

    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(text)
        self.status, self.code = status, code


@dataclass
class Sheet:
    """A table."""

    columns: list[str] = field(default_factory=list)
    rows: list[list[Any]] = field(default_factory=list)
    version: int = 0
    changed_ms: int = 1767226200000

    def objects(self) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def keep(self, rows: list[dict[str, Any]]) -> None:
        if rows:
            self.columns = list(rows[0])
        self.rows = [list(row.values()) for row in rows]
        self.version += 1


@dataclass
class Ticket:
    """A job."""

    work: Callable[[], bytes]
    begun: bool = False
    looks: int = 0
    result: bytes = b""
    fault: str = ""

    def state(self) -> str:
        """Work on the first look, be done on the second."""
        if not self.begun:
            return "WAITING"
        self.looks += 1
        if self.looks == 1:
            try:
                self.result = self.work()
            except No as no:
                self.fault = str(no)
            return "WORKING"
        return "BROKEN" if self.fault else "DONE"


@dataclass
class OtherService:
    """The service's state."""

    sheets: dict[str, Sheet] = field(default_factory=dict)
    tickets: list[Ticket] = field(default_factory=list)
    staged: dict[str, bytes] = field(default_factory=dict)
    waiting: dict[str, Ticket] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    lines_of_rows: bool = False
    origin: str = ""

    @property
    def url(self) -> str:
        return self.origin + BASE

    def sheet(self, name: str) -> Sheet:
        if name not in self.sheets:
            raise No(400, "NO_SHEET", f"no sheet {name!r}")
        return self.sheets[name]

    def ticket(self, number: str) -> Ticket:
        if not number.isdecimal() or not 0 < int(number) <= len(self.tickets):
            raise No(400, "NO_TICKET", f"no ticket {number!r}")
        return self.tickets[int(number) - 1]

    def open_ticket(self, work: Callable[[], bytes], *, begun: bool = True) -> dict[str, Any]:
        self.tickets.append(Ticket(work, begun))
        return {"ticket": {"number": len(self.tickets)}}

    def stage(self, ref: str) -> dict[str, Any]:
        href, until = f"{self.origin}/store/{ref}?sig=0123456789abcdef", round((time.time() + 300) * 1000)
        return {"stage": {"href": href, "with": {"X-Stage": "yes"}, "until": until}}


@dataclass
class Asked:
    """One request, taken apart."""

    method: str
    path: list[str]
    query: dict[str, list[str]]
    headers: Message
    body: bytes

    def one(self, name: str) -> str:
        values = self.query.get(name, [])
        if len(values) != 1:
            raise No(418, "BAD", f"{name} is asked for once, not {len(values)} times")
        return values[0]

    def document(self) -> Any:
        return json.loads(self.body)


def rows_of(payload: bytes, token: str) -> list[dict[str, Any]]:
    """Read a payload by the service's word for its format."""
    if token == "JSON_ROWS":
        sheet = json.loads(payload)["sheet"]
        return [dict(zip(sheet["head"], row, strict=True)) for row in sheet["body"]]
    if token != "CSV_TEXT":
        raise No(418, "BAD", f"no format {token!r}")
    return [dict(row) for row in csv.DictReader(io.StringIO(payload.decode()))]


def matches(row: Mapping[str, Any], predicate: Any) -> bool:
    """Judge a row by a structured predicate."""
    if predicate is None:
        return True
    if "type" in predicate:
        every = all if predicate["type"] == "and" else any
        return every(matches(row, each) for each in predicate["predicates"])
    value = predicate["value"]
    found = type(value)(row[predicate["field"]])
    return COMPARE[predicate["operator"]](found, value)


def simple(expression: str) -> dict[str, Any]:
    """Read `field:operator:value`; all values are text here."""
    name, how, value = expression.split(":", 2)
    return {"field": name, "operator": how, "value": value}


class Handler(BaseHTTPRequestHandler):
    """The service's HTTP face."""

    protocol_version = "HTTP/1.1"
    service: OtherService

    def _handle(self) -> None:
        parts = urlsplit(self.path)
        self.service.lines.append(f"{self.command} {self.path}")
        path = [unquote(part) for part in parts.path.split("/")[1:]]
        query = parse_qs(parts.query, keep_blank_values=True)
        asked = Asked(self.command, path, query, self.headers, self._body())
        try:
            self._answer(*(self._store(asked) if path[0] == "store" else self._api(asked)))
        except No as no:
            fault = {"fault": {"code": no.code, "text": str(no)}}
            self._answer(no.status, json.dumps(fault).encode())

    do_GET = do_POST = do_PUT = do_DELETE = _handle  # noqa: N815  # the names that http.server calls

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            pieces = []
            while size := int(self.rfile.readline(), 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(pieces)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _answer(self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep quiet."""

    # ---- the object store

    def _store(self, asked: Asked) -> tuple[int, bytes]:
        if KEY_HEADER in asked.headers or "X-Tenant" in asked.headers:
            raise No(400, "CREDENTIALS", "credentials came to the store")
        ref = asked.path[1]
        if asked.method == "GET":
            return 200, self.service.ticket(ref.removeprefix("result")).result
        if asked.headers.get("X-Stage") != "yes" or asked.headers.get("X-Always") != "too":
            raise No(403, "SIGNATURE", "the headers of the PUT are missing")
        self.service.staged[ref] = asked.body
        if ref in self.service.waiting:
            self.service.waiting[ref].begun = True
        return 200, b""

    # ---- the service

    def _api(self, asked: Asked) -> tuple[Any, ...]:
        if asked.headers.get(KEY_HEADER) not in (KEY, READ_ONLY_KEY):
            raise No(498, "KEY", "who are you")
        if asked.headers.get(KEY_HEADER) == READ_ONLY_KEY and asked.method != "GET":
            raise No(470, "RIGHTS", "you may only look")
        if asked.method != "GET" and not asked.headers.get("X-Once"):
            raise No(418, "ONCE", "by which key")
        if asked.headers.get("X-Tenant") != "acme":
            raise No(418, "TENANT", "whose data")
        below = [f"/{part}" for part in asked.path[:2]]
        if "".join(below) != BASE:
            raise No(404, "PATH", "no such path")
        return self._route(asked)

    def _route(self, asked: Asked) -> tuple[Any, ...]:  # noqa: C901, PLR0911  # a table of routes
        match (asked.method, *asked.path[2:]):
            case ("GET", "sheets", name, "stats"):
                return self._stats(self.service.sheet(name))
            case ("PUT", "sheets", name, "first", token):
                return self._upload(self.service.sheet(name), token, asked)
            case ("POST", "staging"):
                return 201, json.dumps(self._staging(asked)).encode()
            case ("POST", "sheets", name, "ops"):
                return self._commit(self.service.sheet(name), asked)
            case ("POST", "sheets", name, "begin"):
                return self._begin(self.service.sheet(name), asked)
            case ("DELETE", "sheets", name, "rows"):
                return self._delete(self.service.sheet(name), asked)
            case ("PUT", "sheets", name, "emptied"):
                self.service.sheet(name).keep([])
                return 204, b""
            case ("GET", "tickets"):
                return self._ticket(self.service.ticket(asked.one("number")))
            case ("GET", "sheets", name, "rows"):
                return self._rows(self.service.sheet(name), asked)
            case ("POST", "reports"):
                return 201, json.dumps(self._report(asked.document())).encode()
            case ("GET", "reports", number, "file"):
                return self._file(self.service.ticket(number), number)
        raise No(404, "PATH", "no such path")

    def _stats(self, sheet: Sheet) -> tuple[int, bytes]:
        stats = {"rows": str(len(sheet.rows)), "bytes": "12", "files": "1", "changed": sheet.changed_ms}
        return 200, json.dumps({"stats": stats, "version": {"number": sheet.version}}).encode()

    def _upload(self, sheet: Sheet, token: str, asked: Asked) -> tuple[int, bytes]:
        if sheet.version:
            raise No(409, "EVER", "it has, or had, data")
        if asked.headers.get("Content-Type") != "text/x-csv":
            raise No(418, "TYPE", f"no media type {asked.headers.get('Content-Type')!r}")
        return 201, json.dumps(self.service.open_ticket(self._write(sheet, asked.body, token, "ADD", []))).encode()

    def _staging(self, asked: Asked) -> dict[str, Any]:
        if asked.headers.get("X-Kind") not in FORMATS:
            raise No(418, "BAD", "what kind")
        ref = f"staged{len(self.service.lines)}"
        found = self.service.stage(ref)
        found["stage"]["ref"] = ref
        return found

    def _commit(self, sheet: Sheet, asked: Asked) -> tuple[int, bytes]:
        payload = self.service.staged[asked.headers["X-Ref"]]
        work = self._write(sheet, payload, asked.one("kind"), asked.document()["op"]["mode"], [])
        return 201, json.dumps(self.service.open_ticket(work)).encode()

    def _begin(self, sheet: Sheet, asked: Asked) -> tuple[int, bytes]:
        how, ref = asked.document()["how"], f"begun{len(self.service.lines)}"
        keys = asked.one("by").split(";") if how["mode"] == "MERGE" else []

        def work() -> bytes:
            return self._write(sheet, self.service.staged[ref], how["kind"], how["mode"], keys)()

        opened = self.service.open_ticket(work, begun=False)
        self.service.waiting[ref] = self.service.tickets[-1]
        return 201, json.dumps(opened | self.service.stage(ref)).encode()

    def _write(self, sheet: Sheet, payload: bytes, token: str, mode: str, keys: list[str]) -> Callable[[], bytes]:
        def work() -> bytes:
            new, old = rows_of(payload, token), sheet.objects()
            if not new:
                raise No(0, "EMPTY", "it holds no rows")
            if mode == "SWAP":
                old = []
            if mode == "MERGE":
                named = [[row[key] for key in keys] for row in new]
                old = [row for row in old if [row[key] for key in keys] not in named]
            if old and new and list(old[0]) != list(new[0]):
                raise No(0, "COLUMNS", "the columns are others")
            sheet.keep(old + new)
            return b""

        return work

    def _delete(self, sheet: Sheet, asked: Asked) -> tuple[int, bytes]:
        predicate = json.loads(asked.one("where"))
        sheet.keep([row for row in sheet.objects() if not matches(row, predicate)])
        return 204, b""

    def _ticket(self, ticket: Ticket) -> tuple[int, bytes]:
        record = {"state": ticket.state(), "fault": {"message": ticket.fault} if ticket.fault else None}
        return 200, json.dumps({"ticket": record}).encode()

    def _rows(self, sheet: Sheet, asked: Asked) -> tuple[Any, ...]:
        version = {"X-Version": f"v{sheet.version}"} if sheet.version else {}
        if version and asked.headers.get("X-Seen") == version["X-Version"]:
            return 304, b"", version
        conditions = [simple(each) for each in asked.one("where").split("|")] if "where" in asked.query else []
        found = [row for row in sheet.objects() if all(matches(row, each) for each in conditions)]
        skip = int(asked.one("skip")) if "skip" in asked.query else 0
        take = int(asked.one("take")) if "take" in asked.query else 1000
        page = found[skip : skip + take]
        told = version | {"X-All": str(len(found)), "X-More": json.dumps(skip + take < len(found))}
        if self.service.lines_of_rows:
            return 200, "".join(json.dumps(row) + "\n" for row in page).encode(), told
        document = {"table": {"head": sheet.columns, "body": [list(row.values()) for row in page]}}
        return 200, json.dumps(document).encode(), told

    def _report(self, query: dict[str, Any]) -> dict[str, Any]:
        sheet = self.service.sheet(query["table_id"])

        def work() -> bytes:
            rows = [row for row in sheet.objects() if matches(row, query.get("filters"))]
            for join in query.get("joins", []):
                right = self.service.sheet(join["table_id"]).objects()
                on = (join["left_on"], join["right_on"])
                rows = [a | b for a in rows for b in right if a[on[0]] == b[on[1]]]
            select = query.get("select") or list(rows[0])
            if unknown := [name for name in select if name not in rows[0]]:
                raise No(0, "COLUMN", f"no column {unknown[0]}")
            lines = [",".join(select), *(",".join(str(row[name]) for name in select) for row in rows)]
            text = "\n".join(lines).encode() + b"\n"
            return b"PAR1" + text if query.get("format") == "PARQUET_FILE" else text

        return self.service.open_ticket(work)

    def _file(self, ticket: Ticket, number: str) -> tuple[Any, ...]:
        state = ticket.state()
        if state == "BROKEN":
            return 424, json.dumps({"fault": {"text": ticket.fault}}).encode()
        if state == "DONE":
            return 303, b"", {"Location": f"{self.service.origin}/store/result{number}?sig=0123456789abcdef"}
        return 425, b"not yet"


@contextmanager
def other_service(**sheets: Sheet) -> Iterator[OtherService]:
    """Serve, on a free port of the loopback, until the end of the block."""
    service = OtherService(sheets=dict(sheets))
    handler = type("BoundHandler", (Handler,), {"service": service})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    service.origin = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
