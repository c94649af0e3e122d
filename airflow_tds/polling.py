"""All reads of one event loop go through here: a few workers poll for any number of triggers.

A trigger never owns, shares or cancels a request: it subscribes to what it waits for and is woken when
that changes. Triggers that wait for the same thing share one entry, hence one request per interval. The
connection is read once per poller and after `SETTINGS_AGE`. Nothing is logged per poll.

A poller belongs to one loop and one connection id; it closes itself in its own task, `LINGER` seconds
after its last subscriber left. A worker never dies: whatever a lane raises is an outcome. An entry is idle
(in the queue once) or in flight (with one worker), never both.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import random
import time
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
#: Seconds after which a connection is read again, and seconds that reading it may take.
SETTINGS_AGE = 300.0
OPENING = 60.0
#: Seconds of unbroken failures that a wait rides out before its subscribers are told.
OUTAGE = 600.0
#: Seconds a job may be unknown after its wait began: a record may appear late on another node.
GRACE = 60.0
#: Futures resolved per turn of the loop: five thousand at once would block it for 95 ms.
SLICE = 64
#: Looks are spread by this part of their pause, so that they do not gather.
SPREAD = 0.05

_UNREAD = Reading(Verdict.RUNNING, "not read")


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
    reading: Reading = _UNREAD
    failing_since: float | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """What makes two watches one entry."""
        return self.watch.kind, self.watch.subject, self.watch.snapshot

    @property
    def started(self) -> float:
        """When the youngest wait began."""
        return max((one.watch.started for one in self.subscriptions), default=self.watch.started)


class Poller:
    """The workers of one loop and one connection.

    Args:
        settings: The connection.
        lanes: One connection per worker.

    Attributes:
        closed: Whether it has ended; it takes no subscribers any more then.
    """

    def __init__(self, settings: Settings, lanes: list[Lane]) -> None:
        self._loop = asyncio.get_running_loop()
        self._wire: Wire = settings.wire()
        self._fingerprint = settings.fingerprint
        self._read_at = self._loop.time()
        self._entries: dict[tuple[str, str, str], Entry] = {}
        self._due: list[tuple[float, int, Entry]] = []
        self._order = itertools.count()
        self._idle: deque[asyncio.Future[Entry]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._gate = 0.0
        self._workers = [self._loop.create_task(self._work(lane)) for lane in lanes]
        self._linger: asyncio.TimerHandle | None = None
        self._rest()  # whoever opened it may have left meanwhile
        self.closed = False

    @property
    def stale(self) -> bool:
        """Whether the connection should be read again."""
        return self.closed or self._loop.time() - self._read_at > SETTINGS_AGE

    def confirm(self, settings: Settings) -> bool:
        """Say whether it still serves a connection that was read again; then it goes on for a while."""
        if self.closed or settings.fingerprint != self._fingerprint:
            return False
        self._read_at = self._loop.time()
        if self._linger is not None:
            self._rest()
        return True

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
        last = _UNREAD
        try:
            while True:
                if entry.reading != last:
                    last = entry.reading
                    on_change(last)
                if (outcome := watch.outcome(last, time.time())) is not None:
                    return outcome
                if (error := await self._change(subscription)) is not None:
                    return watch.broken(error, time.time())
        finally:
            self._leave(entry, subscription)

    async def _change(self, subscription: Subscription) -> errors.TableServiceError | None:
        """Wait until something changed or the deadline has come; an error that ends the wait is returned."""
        await asyncio.wait([subscription.changed], timeout=max(0.0, subscription.watch.deadline - time.time()))
        if not subscription.changed.done():
            return None
        found = subscription.changed.result()
        subscription.changed = self._loop.create_future()
        return found

    def _subscribe(self, subscription: Subscription) -> Entry:
        watch = subscription.watch
        new = Entry(watch, watch.request(self._wire))
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        entry = self._entries.setdefault(new.key, new)
        if entry is new:
            self._push(entry, self._loop.time())
        entry.subscriptions.add(subscription)
        return entry

    def _leave(self, entry: Entry, subscription: Subscription) -> None:
        entry.subscriptions.discard(subscription)
        if not entry.subscriptions:
            del self._entries[entry.key]
        if not self._entries:
            self._rest()

    # ---- the queue

    def _push(self, entry: Entry, due: float) -> None:
        """Queue an entry: called for a new one, and by the worker that had it."""
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
        """Give what is due to idle workers; what all have left is dropped."""
        now = self._loop.time()
        while self._idle and self._due and max(self._due[0][0], self._gate) <= now:
            entry = heapq.heappop(self._due)[2]
            if entry.subscriptions:
                self._idle.popleft().set_result(entry)
        self._arm()

    # ---- the workers

    async def _work(self, lane: Lane) -> None:
        """Look at what is due, one after the other, until cancelled; a connection ends with its worker."""
        try:
            while True:
                turn: asyncio.Future[Entry] = self._loop.create_future()
                self._idle.append(turn)
                self._arm()
                entry = await turn
                await self._publish(entry, await self._look(lane, entry))
                if entry.subscriptions:
                    self._push(entry, self._loop.time() + self._pause(entry))
        finally:
            await lane.close()

    async def _look(self, lane: Lane, entry: Entry) -> Reading | errors.TableServiceError | None:
        """Look once; None means that nothing is known and the wait goes on."""
        try:
            reading = await self._read(lane, entry)
        except errors.TransportFailed as failed:
            return self._ride_out(entry, failed)
        except errors.ServerError as failed:
            self._hold_back(failed)
            return self._ride_out(entry, failed)
        except errors.TableServiceError as final:
            waits = isinstance(final, errors.NotFound) and time.time() - entry.started < GRACE
            return None if waits else final
        except Exception as bug:  # law: a worker never dies; its subscribers learn of it
            log.exception("polling %s broke", entry.request.subject)
            return errors.UnexpectedReply(f"{entry.request.subject}: polling broke: {type(bug).__name__}")
        if entry.failing_since is not None:
            log.info("%s can be read again", entry.request.subject)
            entry.failing_since = None
        return reading

    async def _read(self, lane: Lane, entry: Entry) -> Reading:
        reply = await lane.read(entry.request)
        error = self._wire.error(entry.request, reply)
        if error is not None:
            raise error
        return entry.watch.read(self._wire, reply)

    def _hold_back(self, error: errors.ServerError) -> None:
        """Let no worker ask before the service wants to be asked; one senseless answer must not end all waits."""
        if error.retry_after is not None:
            pause = min(error.retry_after, OUTAGE) * random.uniform(1, 1 + SPREAD)  # noqa: S311  # spreads load
            self._gate = max(self._gate, self._loop.time() + pause)

    def _ride_out(self, entry: Entry, error: errors.TableServiceError) -> errors.TableServiceError | None:
        """Give an error only once it has lasted."""
        now = time.time()
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
        """Seconds to the next look: the most impatient subscriber's, spread a little."""
        now = time.time()
        shortest = min(subscription.watch.pause(now) for subscription in entry.subscriptions)
        return shortest * random.uniform(1 - SPREAD, 1 + SPREAD)  # noqa: S311  # spreads load

    # ---- the end

    def _rest(self) -> None:
        """Close after a while, unless somebody subscribes."""
        if self._linger is not None:
            self._linger.cancel()
        self._linger = self._loop.call_later(LINGER, self._close)

    def _close(self) -> None:
        self._closing = self._loop.create_task(self.close())  # kept: the loop itself does not keep its tasks
        self.closed = True

    async def close(self) -> None:
        """End the workers and their connections."""
        self.closed = True
        for handle in (self._timer, self._linger):
            if handle is not None:
                handle.cancel()
        self._idle.clear()
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)


_Openings = dict[str, "asyncio.Task[Poller]"]
#: A task keeps its loop, so a weak map would keep them all: what a closed loop leaves is dropped by the next opener.
_BY_LOOP: dict[asyncio.AbstractEventLoop, _Openings] = {}


async def poller_for(conn_id: str) -> Poller:
    """Give this loop's poller for a connection; whoever comes first opens it for all.

    Args:
        conn_id: The connection's id.

    Returns:
        The poller.

    Raises:
        ValidationFailed: The connection cannot be used; the next caller tries again.
        TransportFailed: The connection could not be read in time; the next caller tries again.
    """
    loop = asyncio.get_running_loop()
    for ended in [other for other in list(_BY_LOOP) if other.is_closed()]:
        _BY_LOOP.pop(ended, None)
    openings = _BY_LOOP.setdefault(loop, {})
    opening = openings.get(conn_id)
    earlier = _opened(opening) if opening is not None else None
    if opening is None or (opening.done() and (earlier is None or earlier.stale)):
        opening = openings[conn_id] = loop.create_task(_open(conn_id, earlier))
    return await asyncio.shield(opening)


def _opened(opening: asyncio.Task[Poller]) -> Poller | None:
    """Give what an opening has led to; None while it lasts, and if it failed."""
    failed = not opening.done() or opening.cancelled() or opening.exception() is not None
    return None if failed else opening.result()


async def _open(conn_id: str, earlier: Poller | None) -> Poller:
    """Read the connection; where it still says the same, the earlier poller goes on."""
    try:
        async with asyncio.timeout(OPENING):
            settings = await async_settings(conn_id)
    except TimeoutError:
        late = f"connection {conn_id} could not be read within {OPENING:.0f} s"
        raise errors.TransportFailed(late, outcome="not_sent") from None
    if earlier is not None and earlier.confirm(settings):
        return earlier
    access = settings.access()
    access.check()
    context = await asyncio.to_thread(access.ssl_context)  # 20 ms of the loop otherwise
    log.info("polling %s over %d connections (httpx transport)", settings.base_url, WORKERS)
    return Poller(settings, [Lane(access, context) for _ in range(WORKERS)])
