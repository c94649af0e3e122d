"""A thread that works for an event loop: how it hears that it is to give up, and how it asks the loop for something.

Python's own threads and futures only; what is done in the thread is its caller's. Where nobody set an `Errand`,
there is no loop to ask: that is the blocking client.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Executor, Future
from contextlib import suppress
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

from airflow_tds.client import errors

__all__ = ["Errand", "pulled"]

T = TypeVar("T")


class Errand:
    """Work that a thread does for an event loop.

    Make it in the loop. Cancelling whoever awaits `run` makes `check` raise, and is over only when the thread is:
    what it used is free again.

    Args:
        what: Names the work in errors.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._loop = asyncio.get_running_loop()
        self._given_up = False
        self._asked: Future[Any] | None = None

    def check(self) -> None:
        """Raise `Stopped` if the work was given up."""
        if self._given_up:
            raise errors.Stopped(f"{self._what}: cancelled")

    async def run(self, threads: Executor, work: Callable[[], T], break_off: Callable[[], None] = lambda: None) -> T:
        """Do the work in a thread.

        Args:
            threads: Where.
            work: What; it calls `check` now and then.
            break_off: Called from the loop to wake a thread that waits for something else.
        """
        context = copy_context()
        context.run(_errand.set, self)
        job = threads.submit(context.run, work)
        done = asyncio.wrap_future(job)
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            self._give_up()
            if not job.cancel():
                break_off()
                await asyncio.wait([done])
                done.exception()  # it ended because it was told to; what it says of that is no news
            raise

    def _give_up(self) -> None:
        self._given_up = True
        if self._asked is not None:
            self._asked.cancel()

    def ask(self, question: Coroutine[Any, Any, T]) -> T:
        """Have a coroutine run in the loop, and wait for it in this thread."""
        asked = self._asked = asyncio.run_coroutine_threadsafe(question, self._loop)
        if self._given_up:
            asked.cancel()
        try:
            found: T = asked.result()
        except CancelledError:
            raise errors.Stopped(f"{self._what}: cancelled") from None
        finally:
            self._asked = None
        return found

    def close(self, items: AsyncIterator[Any]) -> None:
        """Have an iterator closed in the loop, soon; from any thread, and without waiting."""
        if isinstance(items, AsyncGenerator) and not self._loop.is_closed():
            asyncio.run_coroutine_threadsafe(_closed(items), self._loop)


#: What the present thread does for an event loop.
_errand: ContextVar[Errand | None] = ContextVar("errand", default=None)


def pulled(items: AsyncIterable[T]) -> Iterator[T]:
    """Give what an async iterable gives to the thread that asks for it.

    Args:
        items: Runs in the event loop that the thread works for.

    Raises:
        ValidationFailed: It works for none.
    """
    _present()
    return _pulled(items)


def _present() -> Errand:
    found = _errand.get()
    if found is None:
        raise errors.ValidationFailed("an async iterable is sent by AsyncTableClient only: give an iterable of bytes")
    return found


def _pulled(items: AsyncIterable[T]) -> Iterator[T]:
    source, errand = aiter(items), _present()
    try:
        while found := errand.ask(_next(source)):
            yield found[0]
            errand = _present()  # another thread may ask for the rest
    finally:
        errand.close(source)


async def _next(source: AsyncIterator[T]) -> tuple[T, ...]:
    """Give the next item; nothing at the end."""
    async for item in source:
        return (item,)
    return ()


async def _closed(source: AsyncGenerator[Any, None]) -> None:
    with suppress(RuntimeError):  # it was cancelled, and is ending by itself
        await source.aclose()
