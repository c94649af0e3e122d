"""The verbs of a runtime from a script, with a clock of their own: operations without a network."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from airflow_tds.client.messages import Reply, Request

__all__ = ["Run", "ScriptedRuntime", "Step", "answer"]

Run = Callable[[Coroutine[Any, Any, Any]], Any]
Step = Reply | Exception
T = TypeVar("T")


class ScriptedRuntime:
    """The verbs of a runtime from a script: replies in order, a clock that only pauses move, a record of both."""

    def __init__(self, *script: Step, suspends: bool = False) -> None:
        self.script = list(script)
        self.requests: list[Request] = []
        self.payloads: list[bytes] = []
        self.pauses: list[float] = []
        self.clock = 1000.0
        self._suspends = suspends

    async def send(self, request: Request) -> Reply:
        await self._turn()
        self.requests.append(request)
        self.payloads.append(b"".join(request.body.open()) if request.body else b"")
        step = self.script.pop(0)
        if isinstance(step, Exception):
            if request.sink is not None:
                request.sink.write(b"half")
            raise step
        if request.sink is not None and step.status == 200:
            request.sink.write(step.content)
        return step

    async def pause(self, seconds: float) -> None:
        await self._turn()
        self.pauses.append(seconds)
        self.clock += seconds

    def now(self) -> float:
        return self.clock

    async def aside(self, work: Callable[[Callable[[], None]], T]) -> T:
        await self._turn()
        return work(lambda: None)

    async def _turn(self) -> None:
        if self._suspends:
            await asyncio.sleep(0)

    @property
    def lines(self) -> list[str]:
        return [f"{request.method} {request.target}" for request in self.requests]


def answer(document: Any, status: int = 200, **headers: str) -> Reply:
    return Reply(status, headers, json.dumps(document).encode())
