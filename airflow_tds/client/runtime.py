"""The outside world in four verbs: send, pause, now, and aside for what would hold an event loop up.

`BlockingRuntime` never suspends. A coroutine built only on it therefore ends on its first step, and
`finish()` returns its result; anything else that tries to suspend raises at once. `AsyncRuntime` is the
same over asyncio; what goes to and from an object store, it does in threads of its own, by the same code.
How a request travels is http/'s.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import cached_property, partial
from typing import Any, Protocol, TypeVar

from airflow_tds.client import errors
from airflow_tds.client.access import Access
from airflow_tds.client.http.admission import let_in
from airflow_tds.client.http.connections import AsyncConnections, Connections, Reached
from airflow_tds.client.messages import Reply, Request
from airflow_tds.client.progress import Report
from airflow_tds.client.threads import Errand

__all__ = ["AsyncRuntime", "BlockingRuntime", "Runtime", "finish"]

T = TypeVar("T")

#: Transfers of one async client that may be on their way at once, each in its own thread.
TRANSFERS_AT_ONCE = 16
#: A sleeping worker looks this often, in seconds, whether it was told to stop.
STOP_SLICE = 0.5


class Runtime(Protocol):
    """What an operation may ask of the world."""

    async def send(self, request: Request) -> Reply:
        """Send a request and give its reply, whatever its status.

        Raises:
            TransportFailed: No complete answer came.
            Stopped: The work was told to stop; nothing was sent.
        """
        ...

    async def pause(self, seconds: float) -> None:
        """Wait."""
        ...

    def now(self) -> float:
        """Give the time, POSIX seconds."""
        ...

    async def aside(self, work: Callable[[Callable[[], None]], T]) -> T:
        """Do work that reads files or takes long where it holds nobody up.

        Args:
            work: Is given what raises `Stopped` once it is to give up, and calls that now and then.
        """
        ...


def finish(work: Coroutine[Any, Any, T]) -> T:
    """Step a coroutine that never suspends to its end.

    Raises:
        RuntimeError: It tried to suspend, so it was not built on a `BlockingRuntime` alone.
    """
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        work.close()
    raise RuntimeError("an operation of the blocking client tried to suspend")


class BlockingRuntime:
    """The outside world for a thread that may wait.

    Args:
        access: The service.
        report: Told how far a transfer is; None for nobody.

    Attributes:
        stopping: Set from a signal handler to end the work before its next request or piece.
    """

    def __init__(self, access: Access, report: Report | None = None) -> None:
        access.check()
        self.stopping = False
        self._access = access
        self._connections = Connections(access, report, kept=20)

    def check_stop(self) -> None:
        """Raise `Stopped` if the work was told to stop."""
        if self.stopping:
            raise errors.Stopped("told to stop; nothing more is sent")

    async def send(self, request: Request) -> Reply:
        """Send a request; see `Runtime`."""
        self.check_stop()
        return await let_in(self._access, request, self._exchange, nullcontext())

    async def _exchange(self, request: Request, own: Mapping[str, str]) -> Reply:
        return self._connections.exchange(request, own, Reached(self._access, request, self.check_stop))

    async def pause(self, seconds: float) -> None:
        """Wait in slices, so that a stop is seen soon."""
        ends = time.monotonic() + seconds
        self.check_stop()
        while (left := ends - time.monotonic()) > 0:
            time.sleep(min(left, STOP_SLICE))  # noqa: ASYNC251  # this runtime blocks: that is its purpose
            self.check_stop()

    def now(self) -> float:
        """Give the time, POSIX seconds."""
        return time.time()

    async def aside(self, work: Callable[[Callable[[], None]], T]) -> T:
        """Do work; it holds up only the thread that asks for it."""
        self.check_stop()
        return work(self.check_stop)

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()


class AsyncRuntime:
    """The outside world for a coroutine: the same, over asyncio.

    What has a payload or a sink goes through threads: bytes cost asyncio two to three times as much.

    Args:
        access: The service.
        report: Told how far a transfer is, in the thread that transfers; None for nobody.
    """

    def __init__(self, access: Access, report: Report | None = None) -> None:
        access.check()
        self._access = access
        self._connections = AsyncConnections(access)
        # None is kept: a transfer that is cancelled must be seen to connect, or it could not be broken off.
        self._transfers = Connections(access, report, kept=0)

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(TRANSFERS_AT_ONCE, thread_name_prefix="tds-transfer")

    async def send(self, request: Request) -> Reply:
        """Send a request; see `Runtime`."""
        return await let_in(self._access, request, self._exchange, self._access.renewing)

    async def _exchange(self, request: Request, own: Mapping[str, str]) -> Reply:
        if request.body is not None or request.sink is not None:
            return await self._in_thread(request, own)
        return await self._connections.exchange(request, own)

    async def _in_thread(self, request: Request, own: Mapping[str, str]) -> Reply:
        """Send a request from a thread; cancelled, it is broken off, and neither source nor sink is in use any more."""
        errand = Errand(f"{request.operation}, {request.subject}")
        reached = Reached(self._access, request, errand.check)
        send = partial(self._transfers.exchange, request, own, reached)
        return await errand.run(self._threads, send, reached.break_off)

    async def aside(self, work: Callable[[Callable[[], None]], T]) -> T:
        """Do work in a thread of the transfers'; cancelled, it is over before this is."""
        errand = Errand("reading a payload")
        return await errand.run(self._threads, partial(work, errand.check))

    async def pause(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    def now(self) -> float:
        """Give the time, POSIX seconds."""
        return time.time()

    async def close(self) -> None:
        """Close the connections."""
        self._transfers.close()
        threads = self.__dict__.pop("_threads", None)
        if threads is not None:
            await asyncio.to_thread(threads.shutdown)
        await self._connections.close()
