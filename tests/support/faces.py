"""Both faces of the client over real sockets, in virtual time: only the client's own pauses are not real."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from airflow_tds.client.client import AsyncTableClient, TableClient

__all__ = ["ACTS", "Act", "Clock"]

#: Either face: what is awaited on one is there at once on the other.
Call = Callable[[Any], Any]


class Clock:
    """The time of a client: it moves by its pauses, and nobody waits.

    Args:
        at_pause: Called at each pause.

    Attributes:
        pauses: How long each was, seconds.
    """

    def __init__(self, at_pause: Callable[[], None] = lambda: None) -> None:
        self.pauses: list[float] = []
        self._now = time.time()
        self._at_pause = at_pause

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self._now += seconds
        self._at_pause()

    def now(self) -> float:
        return self._now

    def govern(self, client: Any) -> None:
        """Take the place of a client's clock."""
        client._runtime.pause, client._runtime.now = self.pause, self.now


Act = Callable[..., Any]


def _act_blocking(url: str, call: Call, clock: Clock, **settings: Any) -> Any:
    with TableClient(url, **settings) as client:
        clock.govern(client)
        return call(client)


def _act_async(url: str, call: Call, clock: Clock, **settings: Any) -> Any:
    async def work() -> Any:
        async with AsyncTableClient(url, **settings) as client:
            clock.govern(client)
            return await call(client)

    return asyncio.run(work())


#: Do something with a client of a face: its URL, what to do, its clock, its settings.
ACTS: dict[str, Act] = {"blocking": _act_blocking, "async": _act_async}
