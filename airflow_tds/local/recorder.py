"""The log of requests: each is noted once, when its answer begins or its connection ends without one.

Credentials and queries are left out: a query may hold a signature.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate
from functools import lru_cache
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from airflow_tds.local.faults import CLOSE, HAPPENED

__all__ = ["Recorder", "RequestRecord"]


@dataclass(frozen=True)
class RequestRecord:
    """One request that was served, for tests and for `GET /admin/requests`.

    Attributes:
        operation: The operation's name in the wire map, `put_payload`, `get_result`, or an admin route's
            name; empty where no route matched.
        method: HTTP method.
        path: Path without its query, which may hold a signature.
        status: HTTP status of the answer; 0 where the connection ended without one.
        headers: Header fields of the request, names in lower case; of credentials only the scheme.
        fault: What was scripted and happened to it; None where nothing went wrong on purpose.
    """

    operation: str
    method: str
    path: str
    status: int
    headers: dict[str, str]
    fault: dict[str, Any] | None = None


@lru_cache(maxsize=1)
def _date(second: int) -> str:
    return formatdate(second, usegmt=True)


class Recorder:
    """Notes each request, and routes by the path as it was sent: an id's `%2F` is no separator.

    Args:
        app: What answers.
        requests: Where it notes.
        key_header: The header field of API keys, which is no more noted than other credentials.
        clock: POSIX seconds, for the `Date` of answers.
    """

    def __init__(
        self, app: ASGIApp, requests: deque[RequestRecord], key_header: str, clock: Callable[[], float]
    ) -> None:
        self._app = app
        self._key_header = key_header.lower()
        self._clock = clock
        self._requests = requests
        self._log = logging.getLogger("airflow_tds.local.requests")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and note it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["path"] = scope["raw_path"].decode("latin-1")
        begun, noted, close = time.monotonic(), False, scope[CLOSE]

        def note(status: int) -> None:
            nonlocal noted
            if not noted:
                self._note(scope, status, time.monotonic() - begun)
            noted = True

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                note(message["status"])
                MutableHeaders(scope=message).setdefault("Date", _date(int(self._clock())))
            await send(message)

        def noted_close() -> None:
            note(0)  # before the caller can know of it
            close()

        scope[CLOSE] = noted_close
        try:
            await self._app(scope, receive, answer)
        finally:
            note(0)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if "authorization" in headers:
            headers["authorization"] = headers["authorization"].partition(" ")[0] + " ***"
        if self._key_header in headers:
            headers[self._key_header] = "***"
        happened = scope.get(HAPPENED)
        fault = happened.model_dump(mode="json", exclude_unset=True) if happened else None
        operation = scope.get("operation", "")
        self._requests.append(RequestRecord(operation, scope["method"], scope["path"], status, headers, fault))
        if self._log.isEnabledFor(logging.INFO):
            shown = ascii(scope["path"])[1:-1]
            self._log.info("%s %s %d %.1f ms", scope["method"], shown, status, seconds * 1000)
