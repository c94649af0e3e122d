"""All reads of one event loop go through here: a few workers poll for any number of triggers.

A trigger never owns, shares or cancels a request: it subscribes to what it waits for and is woken when
that changes. Triggers that wait for the same thing share one entry, hence one request per interval. The
connection is read once per poller and after `SETTINGS_AGE`. Nothing is logged per poll.

A poller belongs to one loop and one connection id; it closes itself in its own task, `LINGER` seconds
after its last subscriber left. A worker never dies: whatever a lane raises is an outcome.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import random
import time
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from airflow_tds.client import errors
from airflow_tds.client.messages import Request
from airflow_tds.client.runtime import Lane
from airflow_tds.client.waiting import Outcome, Reading, Verdict, Watch
from airflow_tds.client.wire import Wire
from airflow_tds.hooks import Settings, async_settings

__all__ = ["Poller", "poller_for"]

log = logging.getLogger(__name__)

#: Workers, hence connections, of one poller: more gain nothing (measured at 4 to 64).
WORKERS = 16
#: Seconds a poller outlives its last subscriber: waits come in bursts, connections are dear.
LINGER = 30.0
#: Seconds after which a connection is read again.
SETTINGS_AGE = 300.0
#: Seconds of unbroken failures that a wait rides out before its subscribers are told.
OUTAGE = 600.0
#: Seconds a job may be unknown after its wait began: a record may appear late on another node.
GRACE = 60.0
#: Futures resolved per turn of the loop: five thousand at once would block it for 95 ms.
SLICE = 64


@dataclass(eq=False)
class Subscription:
    """One trigger's view of an entry."""

    watch: Watch
    changed: asyncio.Future[errors.TableServiceError | None]


@dataclass(eq=False)
class Entry:
    """One thing that is polled, for all who wait for it."""

    watch: Watch
    request: Request
    subscriptions: set[Subscription] = field(default_factory=set)
    reading: Reading | None = None
    failing_since: float | None = None
    queued: bool = False


class Poller:
    """The workers of one loop and one connection.

    Args:
        settings: The connection.
        lanes: One connection per worker.
        on_close: Called when the poller closes itself.
    """

    def __init__(self, settings: Settings, lanes: list[Lane], on_close: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._wire: Wire = settings.wire()
        self._entries: dict[tuple[str, str, str], Entry] = {}
        self._due: list[tuple[float, int, Entry]] = []
        self._order = itertools.count()
        self._idle: deque[asyncio.Future[Entry]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._gate = 0.0
        self._linger: asyncio.TimerHandle | None = None
        self._lanes = lanes
        self._on_close = on_close
        self._workers = [self._loop.create_task(self._work(lane)) for lane in lanes]
        self.opened = time.time()

    # ---- subscribers

    async def wait(self, watch: Watch, on_change: Callable[[Reading], None]) -> Outcome:
        """Wait for what a watch names.

        Args:
            watch: What to wait for, and until when.
            on_change: Called with each new status.

        Returns:
            How it ended.
        """
        subscription = Subscription(watch, self._loop.create_future())
        entry = self._subscribe(subscription)
        last: Reading | None = None
        try:
            while True:
                if entry.reading is not None and entry.reading != last:
                    last = entry.reading
                    on_change(last)
                known = last or Reading(Verdict.RUNNING, "not read")
                if (outcome := watch.outcome(known, time.time())) is not None:
                    return outcome
                if (error := await self._change(subscription)) is not None:
                    return watch.broken(error, time.time())
        finally:
            self._leave(entry, subscription)

    async def _change(self, subscription: Subscription) -> errors.TableServiceError | None:
        """Wait until something changed or the deadline has come; an error that ends the wait is returned."""
        found = None
        try:
            async with asyncio.timeout(max(0.0, subscription.watch.deadline - time.time())):
                found = await asyncio.shield(subscription.changed)
        except TimeoutError:
            pass
        subscription.changed = self._loop.create_future()
        return found

    def _subscribe(self, subscription: Subscription) -> Entry:
        watch = subscription.watch
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        key = (watch.kind, watch.subject, watch.snapshot)
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = Entry(watch, watch.request(self._wire))
            self._push(entry, self._loop.time())
        entry.subscriptions.add(subscription)
        return entry

    def _leave(self, entry: Entry, subscription: Subscription) -> None:
        entry.subscriptions.discard(subscription)
        if not entry.subscriptions:
            watch = entry.watch
            self._entries.pop((watch.kind, watch.subject, watch.snapshot), None)
        if not self._entries and self._linger is None:
            self._linger = self._loop.call_later(LINGER, self._close)

    # ---- the queue

    def _push(self, entry: Entry, due: float) -> None:
        """Queue an idle entry; one that is queued or in flight is queued by whoever has it."""
        entry.queued = True
        heapq.heappush(self._due, (due, next(self._order), entry))
        self._arm()

    def _arm(self) -> None:
        """Set the one timer to the next due entry, if a worker could take it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._due and self._idle:
            self._timer = self._loop.call_at(max(self._due[0][0], self._gate), self._hand_out)

    def _hand_out(self) -> None:
        self._timer = None
        now = self._loop.time()
        while self._idle and self._due and max(self._due[0][0], self._gate) <= now:
            entry = heapq.heappop(self._due)[2]
            entry.queued = False
            if entry.subscriptions:
                self._idle.popleft().set_result(entry)
        self._arm()

    # ---- the workers

    async def _work(self, lane: Lane) -> None:
        while True:
            turn: asyncio.Future[Entry] = self._loop.create_future()
            self._idle.append(turn)
            self._arm()
            entry = await turn
            try:
                found = await self._read(lane, entry)
            except Exception as bug:  # law: a worker never dies; its subscribers learn of it
                log.exception("polling %s broke", entry.request.subject)
                found = errors.UnexpectedReply(f"{entry.request.subject}: polling broke: {type(bug).__name__}")
            await self._publish(entry, found)
            if entry.subscriptions:
                self._push(entry, self._loop.time() + self._pause(entry))

    async def _read(self, lane: Lane, entry: Entry) -> Reading | errors.TableServiceError | None:
        """Look once; None means that nothing is known and the wait goes on."""
        try:
            reply = await lane.read(entry.request)
            error = self._wire.error(entry.request, reply)
            if error is not None:
                raise error
            reading = entry.watch.read(self._wire, reply)
        except errors.TableServiceError as failed:
            return self._weigh(entry, failed)
        if entry.failing_since is not None:
            log.info("%s can be read again", entry.request.subject)
            entry.failing_since = None
        return reading

    def _weigh(self, entry: Entry, error: errors.TableServiceError) -> errors.TableServiceError | None:
        """Say whether an error ends the wait, or is ridden out."""
        now = time.time()
        if isinstance(error, errors.ServerError) and error.retry_after is not None:
            self._gate = max(self._gate, self._loop.time() + error.retry_after)
        if isinstance(error, errors.NotFound) and now - entry.watch.started < GRACE:
            return None
        if not isinstance(error, errors.TransportFailed | errors.ServerError):
            return error
        if entry.failing_since is None:
            log.warning("%s; polling goes on", error)
            entry.failing_since = now
        return error if now - entry.failing_since > OUTAGE else None

    async def _publish(self, entry: Entry, found: Reading | errors.TableServiceError | None) -> None:
        """Wake the subscribers if something changed, in slices."""
        if found is None or found == entry.reading:
            return
        if isinstance(found, Reading):
            entry.reading = found
        for number, subscription in enumerate(list(entry.subscriptions), start=1):
            if not subscription.changed.done():
                own = None if isinstance(found, Reading) else errors.rebuild(type(found).__name__, str(found))
                subscription.changed.set_result(own)
            if number % SLICE == 0:
                await asyncio.sleep(0)

    def _pause(self, entry: Entry) -> float:
        """Seconds to the next look: the most impatient subscriber's, spread by 5 %."""
        now = time.time()
        shortest = min(subscription.watch.pause(now) for subscription in entry.subscriptions)
        return shortest * random.uniform(0.95, 1.05)  # noqa: S311  # spreads load, hides nothing

    # ---- the end

    def _close(self) -> None:
        self._on_close()
        self._closing = self._loop.create_task(self.close())

    async def close(self) -> None:
        """End the workers and their connections."""
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        for lane in self._lanes:
            await lane.close()


_Pollers = dict[str, "asyncio.Task[Poller]"]
_BY_LOOP: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Pollers] = weakref.WeakKeyDictionary()


async def poller_for(conn_id: str) -> Poller:
    """Give this loop's poller for a connection; whoever comes first opens it for all.

    Args:
        conn_id: The connection's id.

    Returns:
        The poller.

    Raises:
        ValidationFailed: The connection cannot be used; the next caller tries again.
    """
    pollers = _BY_LOOP.setdefault(asyncio.get_running_loop(), {})
    opening = pollers.get(conn_id)
    if opening is None or _stale(opening):
        opening = pollers[conn_id] = asyncio.get_running_loop().create_task(_open(conn_id, pollers))
    return await asyncio.shield(opening)


def _stale(opening: asyncio.Task[Poller]) -> bool:
    if not opening.done():
        return False
    return (
        opening.cancelled() or opening.exception() is not None or time.time() - opening.result().opened > SETTINGS_AGE
    )


async def _open(conn_id: str, pollers: _Pollers) -> Poller:
    settings = await async_settings(conn_id)
    access = settings.access()
    access.check()
    context = await asyncio.to_thread(access.ssl_context)  # 20 ms of the loop otherwise
    lanes = [Lane(access, context) for _ in range(WORKERS)]
    log.info("polling %s over %d connections (httpx transport)", settings.base_url, WORKERS)
    mine = asyncio.current_task()

    def forget() -> None:
        if pollers.get(conn_id) is mine:
            del pollers[conn_id]

    return Poller(settings, lanes, forget)
