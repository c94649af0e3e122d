"""Faults on purpose: what a service or its network may do wrong, scripted by operation, each accounted for.

A fault is taken by the next request of its operation, in the order in which faults were scripted; one of a
job by the next write that is initiated. What is scripted and never happened can be asked for: a test that
waits for a fault in vain has tested nothing.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, model_validator
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import request_response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from airflow_tds.client.errors import ValidationFailed
from airflow_tds.client.models import describe

__all__ = ["CLOSE", "HAPPENED", "Fault", "Faults", "FaultyRoute"]

Operation = Literal[
    "info",
    "upload",
    "append",
    "overwrite",
    "upsert",
    "delete_rows",
    "presign",
    "truncate",
    "get_job",
    "query_json",
    "start_query",
    "poll_query",
    "put_payload",
    "get_result",
]
JobFault = Literal[
    "applies_without_data",
    "fails_after_applying",
    "takes_late_data",
    "applies_twice",
    "keeps_snapshot",
    "hides_its_data",
]
#: Where a request's scope holds what closes its connection, and the fault that happened to it.
CLOSE, HAPPENED = "tds.close", "tds.fault"
_WRITES: tuple[Operation, ...] = ("upload", "append", "overwrite", "upsert")
#: Each switches one assumption off on which a durable write rests: A1 to A6, in this order.
_OF_JOBS: dict[JobFault, tuple[Operation, ...]] = {
    "applies_without_data": ("append", "overwrite", "upsert"),  # a table must have columns
    "fails_after_applying": _WRITES,
    "takes_late_data": _WRITES,
    "applies_twice": ("upload", "append"),  # the others have the same effect once or twice
    "keeps_snapshot": (*_WRITES, "delete_rows", "truncate"),
    "hides_its_data": _WRITES,
}


class Fault(BaseModel):
    """One fault.

    Attributes:
        operation: Whose requests it hits: a name of the wire map, `put_payload` or `get_result`.
        times: How many of them.
        delay: Seconds before the request is looked at.
        status: Answered instead; None for the service's own answer.
        cut: The connection is closed and nothing answered.
        applied: With `status` or `cut`, whether the request is carried out first.
        headers: Set in the answer; None removes one, as in `{"Location": None}`.
        fields: Put into the answer's JSON object, in place of those that it has; a name that begins with `/` is
            a JSON pointer.
        truncate: The answer breaks off after this many bytes of its body; None for all of it.
        length: Announced as the body's length; if the body is longer, its rest is left out.
        job: Not the request goes wrong, but the job that it makes; alone with `times`.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    operation: Operation
    times: int = Field(1, ge=1)
    delay: float = Field(0.0, ge=0, allow_inf_nan=False)
    status: int | None = Field(None, ge=200, le=599)
    cut: bool = False
    applied: bool = False
    headers: dict[str, str | None] = {}
    fields: dict[str, Any] = {}
    truncate: int | None = Field(None, ge=0)
    length: int | None = Field(None, ge=0)
    job: JobFault | None = None
    _consumed: int = PrivateAttr(0)

    @model_validator(mode="after")
    def _check(self) -> Self:
        effects = self.model_fields_set - {"operation", "times"}
        if not effects or (self.job is not None and effects != {"job"}):
            raise ValueError("a fault has an effect, and one of a job no other")
        if self.job is not None and self.operation not in _OF_JOBS[self.job]:
            raise ValueError(f"{self.job} is for {', '.join(_OF_JOBS[self.job])}")
        for name, value in self.headers.items():
            if not (re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) and re.fullmatch(r"[ -~]*", value or "")):
                raise ValueError(f"headers: {name!r} is no header field, or its value is not printable ASCII")
        if self.applied and self.status is None and not self.cut:
            raise ValueError("applied goes with status or cut: else the request is carried out anyway")
        return self

    @property
    def consumed(self) -> int:
        """How often it happened."""
        return self._consumed

    @property
    def left(self) -> int:
        """How often it is still to happen."""
        return self.times - self._consumed


class Faults:
    """The script: faults in order, and how often each has happened."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._script: list[Fault] = []

    def add(self, fault: dict[str, Any]) -> Fault:
        """Script a fault.

        Raises:
            ValidationFailed: It is none.
        """
        try:
            scripted = Fault.model_validate(fault)
        except ValidationError as invalid:
            raise ValidationFailed(f"fault: {describe(invalid)}") from None
        with self._lock:
            self._script.append(scripted)
        return scripted

    def all(self) -> list[Fault]:
        """Give all faults, in order."""
        with self._lock:
            return list(self._script)

    def clear(self) -> None:
        """Forget all faults."""
        with self._lock:
            self._script.clear()

    def take(self, operation: str, *, of_job: bool = False) -> Fault | None:
        """Take the next fault of an operation; None where nothing goes wrong."""
        with self._lock:
            for fault in self._script:
                if fault.operation == operation and fault.left and (fault.job is not None) is of_job:
                    fault._consumed += 1  # noqa: SLF001  # a fault is counted here only
                    return fault
        return None


class FaultyRoute:
    """An endpoint as an ASGI application whose requests may go wrong.

    Args:
        name: The operation.
        endpoint: What answers it.
        faults: The script.
    """

    def __init__(self, name: str, endpoint: Callable[[Request], Awaitable[Response]], faults: Faults) -> None:
        self._name = name
        self._app = request_response(endpoint)
        self._faults = faults

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or let it go wrong."""
        scope["operation"] = self._name
        fault = self._faults.take(self._name)
        scope[HAPPENED] = fault
        if fault is None:
            await self._app(scope, receive, send)
            return
        await asyncio.sleep(fault.delay)
        if fault.cut or fault.status is not None:
            await _replace(fault, self._app, scope, receive, send)
        else:
            await _Altered(fault, scope, receive, send).run(self._app)


async def _replace(fault: Fault, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer something else than the service would, or nothing."""
    if fault.applied:
        await app(scope, receive, _nowhere)
    elif fault.status is not None:  # the body is read, else the caller may not get to see the answer
        while (await receive()).get("more_body"):
            pass
    if fault.status is None:
        await _close(scope, receive)
        return
    headers = {name: value for name, value in fault.headers.items() if value is not None}
    await JSONResponse({"detail": "a fault on purpose", **fault.fields}, fault.status, headers)(scope, receive, send)


class _Altered:
    """Passes the service's own answer on, altered."""

    def __init__(self, fault: Fault, scope: Scope, receive: Receive, send: Send) -> None:
        self._fault = fault
        self._scope = scope
        self._receive = receive
        self._send = send
        self._start: Message = {}
        self._held = b""

    async def run(self, app: ASGIApp) -> None:
        """Let the request be answered."""
        await app(self._scope, self._receive, self._hold)
        body = self._body()
        announced = len(body) if self._fault.length is None else self._fault.length
        sent = body[: announced if self._fault.truncate is None else self._fault.truncate]
        self._start["headers"] = self._headers(announced)
        await self._send(self._start)
        whole = len(sent) == announced
        await self._send({"type": "http.response.body", "body": sent, "more_body": not whole})
        if not whole:
            await _close(self._scope, self._receive)

    async def _hold(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = dict(message)
        else:
            self._held += message.get("body", b"")

    def _body(self) -> bytes:
        if not self._fault.fields:
            return self._held
        document = json.loads(self._held or b"{}")
        for name, value in self._fault.fields.items():
            put(document, name, value)
        return json.dumps(document).encode()

    def _headers(self, announced: int) -> list[tuple[bytes, bytes]]:
        given: dict[str, str | None] = {"content-length": str(announced), **self._fault.headers}
        changed = {name.lower().encode("latin-1"): value for name, value in given.items()}
        kept = [(name, value) for name, value in self._start["headers"] if name.lower() not in changed]
        return [*kept, *((name, value.encode("latin-1")) for name, value in changed.items() if value is not None)]


def put(document: dict[str, Any], name: str, value: Any) -> None:
    """Put a value into an object: by its name, or by a JSON pointer."""
    *above, last = name.removeprefix("/").split("/") if name.startswith("/") else [name]
    for key in above:
        document = document.setdefault(key, {})
    document[last] = value


async def _nowhere(message: Message) -> None:
    """Keep an answer from being sent."""


async def _close(scope: Scope, receive: Receive) -> None:
    """Close the connection, and let the server notice: else it takes a missing answer for a mistake of ours."""
    scope[CLOSE]()
    while (await receive())["type"] != "http.disconnect":
        pass
