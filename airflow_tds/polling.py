"""All reads of one event loop go through here: a few workers poll for any number of triggers.

A trigger never owns, shares or cancels a request: it subscribes to what it waits for and is woken when
that changes. Triggers that wait for the same thing share one entry, hence one request per interval. The
connection is read once per poller, after `SETTINGS_AGE`, and when the service says 401. Nothing is logged
per poll.

A poller belongs to one loop and to what a connection says, whatever its id; it closes itself in its own
task, `LINGER` seconds after its last subscriber left. A worker never dies: whatever a lane raises is an
outcome. An entry is idle (in the queue once) or in flight (with one worker), never both.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial

from airflow_tds.client import errors
from airflow_tds.client.http.lanes import Kept, Lane, open_lanes, polled_over
from airflow_tds.client.messages import Request
from airflow_tds.client.waiting import GRACE, Outcome, Reading, Verdict, Watch
from airflow_tds.hooks import async_settings
from airflow_tds.settings import Settings

__all__ = ["Poller", "poller_for"]

log = logging.getLogger(__name__)

#: Workers, hence connections, of one poller: more gain nothing (measured at 4 to 64).
WORKERS = 16
#: Seconds a poller outlives its last subscriber: waits come in bursts, connections are dear.
LINGER = 30.0
#: Seconds after which a connection is read again, and seconds that reading it may take.
SETTINGS_AGE = 300.0
OPENING = 60.0
#: Seconds between two readings of a connection because of a 401: a thousand jobs get it at once.
RELOAD_AGE = 60.0
#: Seconds of unbroken failures that a wait rides out before its subscribers are told.
OUTAGE = 600.0
#: While the service gives no answer, nobody asks for this part of the time that it has lasted, at most so many seconds.
HOLD = 0.5
LONGEST_HOLD = 10.0
#: Seconds between two lines of log about the same state.
LOG_EVERY = 300.0
#: Waits told per turn of the loop: each then runs to its end, 0.3 ms; five thousand at once would take over a second.
SLICE = 16
#: Bytes of an answer that are kept until the next one: a job's record has a few hundred.
LONGEST_HEARD = 4096
#: Looks are spread by this part of their pause, so that they do not gather.
SPREAD = 0.05

_UNREAD = Reading(Verdict.RUNNING, "not read")


@dataclass(eq=False, slots=True)
class Subscription:
    """One trigger's view of an entry."""

    watch: Watch
    changed: asyncio.Future[errors.TableServiceError | None]

    def wake(self, error: errors.TableServiceError | None = None) -> None:
        """Let the trigger look; an error ends its wait."""
        if not self.changed.done():
            self.changed.set_result(error)


@dataclass(eq=False, slots=True)
class Entry:
    """One thing that is polled, for all who wait for it.

    `turn` is its place in the queue, None in flight; `heard` the last answer's status and body, if it goes on.
    """

    watch: Watch
    request: Request
    kept: Kept = field(default_factory=Kept)
    subscriptions: set[Subscription] = field(default_factory=set)
    reading: Reading = _UNREAD
    heard: tuple[int, bytes] | None = None
    missing: errors.NotFound | None = None
    failing_since: float | None = None
    turn: int | None = None
    due: float = 0.0

    @property
    def key(self) -> tuple[str, ...]:
        """What makes two watches one entry."""
        return self.watch.key

    @property
    def started(self) -> float:
        """When the youngest wait began."""
        return max((one.watch.started for one in self.subscriptions), default=self.watch.started)


class Health:
    """Whether the service answers: one budget and one voice for all who wait for it.

    Args:
        service: Its name in the log.
    """

    def __init__(self, service: str) -> None:
        self._service = service
        self._since: float | None = None
        self._failed = 0
        self._spoke = float("-inf")
        self._told = False

    def failed(self, error: errors.TableServiceError, now: float) -> float:
        """Count a failed poll; says so at the first one, and every five minutes.

        Returns:
            Seconds for which there has been no answer.
        """
        self._since = now if self._since is None else self._since
        self._failed += 1
        if now - self._spoke >= LOG_EVERY:
            self._spoke, self._told = now, True
            text = "%s: %s; polling goes on (no answer for %.0f s)"
            log.warning(text, self._service, error, now - self._since)
        return now - self._since

    def restart(self) -> None:
        """Begin a new budget: the old one is spent, and all who waited were told."""
        self._since, self._failed = None, 0

    def answered(self, now: float) -> None:
        """Hear of an answer: the budget is whole again."""
        if self._since is not None and self._told:
            text = "%s can be read again after %.0f s; %d polls failed"
            log.info(text, self._service, now - self._since, self._failed)
        self._since, self._failed, self._told = None, 0, False


class Poller:
    """The workers of one loop and of what a connection says.

    Args:
        settings: The connection.
        lanes: One connection per worker.
        read_again: Reads the connection again, when it does not let us in any more.

    Attributes:
        fingerprint: Of what the connection says.
        closed: Whether it has ended; it takes no subscribers any more then.
    """

    def __init__(self, settings: Settings, lanes: list[Lane], read_again: Callable[[], Awaitable[Settings]]) -> None:
        self._loop = asyncio.get_running_loop()
        self._read_again = read_again
        self._reloading = asyncio.Lock()
        self._reloaded = float("-inf")
        self._name = settings.base_url
        self._health = Health(self._name)
        self._entries: dict[tuple[str, ...], Entry] = {}
        self._due: list[tuple[float, int, Entry]] = []
        self._order = itertools.count()
        self._idle: list[asyncio.Future[Entry]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._gate = 0.0
        self._reads = 0
        self._adopt(settings, lanes)
        # A context of its own, so that what it logs is not taken for the log of the trigger that came first.
        self._workers = [self._loop.create_task(self._work(n), context=Context()) for n in range(len(lanes))]
        self._linger: asyncio.TimerHandle | None = None
        self._reporting = self._loop.call_later(LOG_EVERY, self._report, context=Context())
        self.closed = False
        self.keep()  # whoever opened it may have left meanwhile

    def _adopt(self, settings: Settings, lanes: list[Lane]) -> None:
        """Take over what a connection says; what was written down by the old one is dropped."""
        self.fingerprint = settings.fingerprint
        self._wire = settings.wire()
        self._lanes = lanes
        for entry in self._entries.values():
            entry.request, entry.kept, entry.heard = entry.watch.request(self._wire), Kept(), None

    def keep(self) -> None:
        """Go on for a while without subscribers."""
        if self._linger is not None:
            self._linger.cancel()
        self._linger = None if self._entries else self._loop.call_later(LINGER, self._close, context=Context())

    def _report(self) -> None:
        self._reporting = self._loop.call_later(LOG_EVERY, self._report, context=Context())
        waits = sum(len(entry.subscriptions) for entry in self._entries.values())
        if waits:
            log.info(
                "%s: %d waits for %d jobs and tables, %d reads", self._name, waits, len(self._entries), self._reads
            )
        self._reads = 0

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
                    missing = entry.missing if outcome.kind == "timed_out" else None
                    return outcome if missing is None else watch.broken(missing, time.time())
                if (error := await self._change(subscription)) is not None:
                    return watch.broken(error, time.time())
        finally:
            self._leave(entry, subscription)

    async def _change(self, subscription: Subscription) -> errors.TableServiceError | None:
        """Wait until something changed or the deadline has come; an error that ends the wait is returned."""
        left = max(0.0, subscription.watch.deadline - time.time())
        deadline = self._loop.call_later(left, subscription.wake)
        try:
            found = await subscription.changed
        finally:
            deadline.cancel()
        subscription.changed = self._loop.create_future()
        return found

    def _subscribe(self, subscription: Subscription) -> Entry:
        watch, now = subscription.watch, self._loop.time()
        new = Entry(watch, watch.request(self._wire))
        entry = self._entries.setdefault(new.key, new)
        entry.subscriptions.add(subscription)
        self.keep()
        if entry is new:
            self._push(entry, now)
        elif entry.turn is not None and now + watch.pause(time.time()) < entry.due:
            self._push(entry, now + watch.pause(time.time()))  # who waits more impatiently sets the pace at once
        return entry

    def _leave(self, entry: Entry, subscription: Subscription) -> None:
        entry.subscriptions.discard(subscription)
        if not entry.subscriptions:
            del self._entries[entry.key]
        if not self._entries:
            self.keep()

    # ---- the queue

    def _push(self, entry: Entry, due: float) -> None:
        """Queue an idle entry; an earlier place of it does not count any more."""
        entry.turn, entry.due = next(self._order), due
        heapq.heappush(self._due, (due, entry.turn, entry))
        self._arm()

    def _take(self) -> Entry | None:
        """Take the next entry that is due; what has another place by now, or was left by all, is dropped."""
        while self._due and max(self._due[0][0], self._gate) <= self._loop.time():
            _, turn, entry = heapq.heappop(self._due)
            if entry.turn == turn:
                entry.turn = None
                if entry.subscriptions:
                    return entry
        return None

    def _arm(self) -> None:
        """Set the one timer to the next due entry, if a worker could take it."""
        if not (self._due and self._idle):
            return
        at = max(self._due[0][0], self._gate)
        if self._timer is not None:
            if self._timer.when() <= at:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._hand_out)

    def _hand_out(self) -> None:
        """Give what is due to idle workers; it arms the timer again also if it finds nothing."""
        self._timer = None
        while self._idle and (entry := self._take()) is not None:
            self._idle.pop().set_result(entry)  # who was busy last has the connection that is still open
        self._arm()

    async def _next(self) -> Entry:
        """Give what is due, or wait for it."""
        if (entry := self._take()) is not None:
            return entry
        turn: asyncio.Future[Entry] = self._loop.create_future()
        self._idle.append(turn)
        self._arm()
        return await turn

    # ---- the workers

    async def _work(self, number: int) -> None:
        """Look at what is due, one after the other, until cancelled; a connection ends with its worker."""
        lane = self._lanes[number]
        try:
            while True:
                entry = await self._next()
                lane = await self._lane(number, lane)
                await self._publish(entry, await self._look(number, entry))
                if entry.subscriptions:
                    self._push(entry, self._loop.time() + self._pause(entry))
        finally:
            for one in {lane, self._lanes[number]}:
                await one.close()

    async def _lane(self, number: int, before: Lane) -> Lane:
        """Give a worker's lane; one that another has replaced is closed."""
        if before is not self._lanes[number]:
            with suppress(Exception):  # law: a worker never dies; what is closed is not needed any more
                await before.close()
        return self._lanes[number]

    async def _look(self, number: int, entry: Entry) -> Reading | errors.TableServiceError | None:
        """Look once; None means that nothing is known and the wait goes on."""
        self._reads += 1
        try:
            reading = await self._read(number, entry)
        except errors.TlsFailed as untrusted:
            return untrusted  # waiting mends no certificate
        except (errors.TransportFailed, errors.ServerError, errors.UnreadableReply) as failed:
            return await self._ride_out(entry, failed)
        except errors.NotFound as missing:
            self._answered(entry)
            entry.missing = missing  # what a deadline within the grace says
            return None if time.time() - entry.started < GRACE else missing
        except errors.TableServiceError as final:
            self._answered(entry)
            return final
        except Exception as bug:  # law: a worker never dies; its subscribers learn of it
            log.exception("polling %s broke", entry.request.subject)
            return errors.UnexpectedReply(f"{entry.request.subject}: polling broke: {type(bug).__name__}")
        self._answered(entry)
        entry.missing = None
        return reading

    async def _read(self, number: int, entry: Entry) -> Reading:
        found = await self._ask(number, entry)
        if isinstance(found, errors.Unauthorized) and await self._reload(number, self._lanes[number]):
            found = await self._ask(number, entry)
        if isinstance(found, errors.TableServiceError):
            raise found
        return found

    async def _ask(self, number: int, entry: Entry) -> Reading | errors.TableServiceError:
        """Ask, and read the answer; most say word for word what the last one said, and mean the same."""
        reply = await self._lanes[number].read(entry.request, entry.kept)
        said = reply.status, reply.content
        if said == entry.heard:
            return entry.reading
        if (error := self._wire.error(entry.request, reply)) is not None:
            return error
        reading = entry.watch.read(self._wire, reply)
        goes_on = reading.verdict is Verdict.RUNNING
        entry.heard = said if goes_on and len(reply.content) <= LONGEST_HEARD else None
        return reading

    async def _reload(self, number: int, used: Lane) -> bool:
        """Read the connection again, once for all workers; True if it is worth trying again."""
        async with self._reloading:
            now = self._loop.time()
            if used is self._lanes[number] and now - self._reloaded > RELOAD_AGE:
                self._reloaded = now
                await self._renew()
            return used is not self._lanes[number]

    async def _renew(self) -> None:
        try:
            settings = await self._read_again()
            if settings.fingerprint != self.fingerprint:
                self._adopt(settings, await _lanes(settings))
        except Exception as failed:  # noqa: BLE001  # whatever a secrets backend raises: the 401 stands
            log.warning("%s said 401, and its connection cannot be used: %s", self._name, type(failed).__name__)

    def _answered(self, entry: Entry) -> None:
        entry.failing_since = None
        self._health.answered(self._loop.time())

    async def _ride_out(self, entry: Entry, error: errors.TableServiceError) -> errors.TableServiceError | None:
        """Give an error only once it has lasted: of this entry to those who wait for it, of the service to all."""
        now = self._loop.time()
        entry.failing_since = now if entry.failing_since is None else entry.failing_since
        lasted = self._health.failed(error, now)
        self._hold_back(error, lasted)
        if lasted > OUTAGE:
            self._health.restart()
            await self._wake((one for other in self._entries.values() for one in other.subscriptions), error)
            return None
        return error if now - entry.failing_since > OUTAGE else None

    def _hold_back(self, error: errors.TableServiceError, lasted: float) -> None:
        """Let no worker ask before the service wants to be asked; one senseless answer must not end all waits."""
        wanted = (isinstance(error, errors.ServerError) and error.retry_after) or 0.0
        pause = max(min(wanted, OUTAGE), min(lasted * HOLD, LONGEST_HOLD))
        self._gate = max(self._gate, self._loop.time() + pause * random.uniform(1, 1 + SPREAD))  # noqa: S311  # load

    async def _publish(self, entry: Entry, found: Reading | errors.TableServiceError | None) -> None:
        """Wake the subscribers if something changed; a verdict that some could not take yet is told again."""
        if found is None or (found == entry.reading and found.verdict is Verdict.RUNNING):
            return
        if isinstance(found, Reading):
            entry.reading = found
        await self._wake(entry.subscriptions, None if isinstance(found, Reading) else found)
        await asyncio.sleep(0)  # whoever has what it waited for leaves first: nobody asks again for nobody

    async def _wake(self, subscriptions: Iterable[Subscription], error: errors.TableServiceError | None) -> None:
        """Wake in slices; each gets an instance of the error for itself."""
        for number, subscription in enumerate(list(subscriptions), start=1):
            subscription.wake(error and errors.rebuild(type(error).__name__, str(error)))
            if number % SLICE == 0:
                await asyncio.sleep(0)

    def _pause(self, entry: Entry) -> float:
        """Seconds to the next look: the most impatient subscriber's, spread a little."""
        now = time.time()
        shortest = min(subscription.watch.pause(now) for subscription in entry.subscriptions)
        return shortest * random.uniform(1 - SPREAD, 1 + SPREAD)  # noqa: S311  # spreads load

    # ---- the end

    def _close(self) -> None:
        self._closing = self._loop.create_task(self.close())  # kept: the loop itself does not keep its tasks
        self.closed = True

    async def close(self) -> None:
        """End the workers and their connections."""
        self.closed = True
        for handle in (self._timer, self._linger, self._reporting):
            if handle is not None:
                handle.cancel()
        self._idle.clear()
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)


# ---- who has one already


@dataclass(frozen=True)
class _Opening:
    """The reading of one connection, and the poller that it led to."""

    poller: asyncio.Task[Poller]
    begun: float

    def is_stale(self, now: float) -> bool:
        """Say whether the connection should be read again."""
        done = self.poller
        if not done.done():
            return False
        failed = done.cancelled() or done.exception() is not None
        return failed or done.result().closed or now - self.begun > SETTINGS_AGE


class _Registry:
    """The pollers of one loop: by connection id who asked, by fingerprint what there is."""

    def __init__(self) -> None:
        self.openings: dict[str, _Opening] = {}
        self._pollers: list[Poller] = []
        self._turn = asyncio.Lock()

    async def open(self, conn_id: str) -> Poller:
        """Read a connection and give its poller; connections that say the same have the same one."""
        settings = await _settings(conn_id)
        async with self._turn:
            self._pollers = [one for one in self._pollers if not one.closed]
            found = next((one for one in self._pollers if one.fingerprint == settings.fingerprint), None)
            if found is None:
                found = Poller(settings, await _lanes(settings), partial(_settings, conn_id))
                self._pollers.append(found)
            found.keep()
            return found


#: A task keeps its loop, so a weak map would keep them all: what a closed loop leaves is dropped by the next opener.
_BY_LOOP: dict[asyncio.AbstractEventLoop, _Registry] = {}


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
    registry = _BY_LOOP.setdefault(loop, _Registry())
    while True:
        opening = registry.openings.get(conn_id)
        if opening is None or opening.is_stale(loop.time()):
            opening = _Opening(loop.create_task(registry.open(conn_id)), loop.time())
            registry.openings[conn_id] = opening
        poller = await asyncio.shield(opening.poller)
        if not poller.closed:  # in a loop that was held up, it may have ended before who asked for it could subscribe
            return poller


async def _settings(conn_id: str) -> Settings:
    """Read a connection, in time or not at all."""
    try:
        async with asyncio.timeout(OPENING):
            return await async_settings(conn_id)
    except TimeoutError:
        late = f"connection {conn_id} could not be read within {OPENING:.0f} s"
        raise errors.TransportFailed(late, outcome="not_sent") from None


async def _lanes(settings: Settings) -> list[Lane]:
    """Make the workers' connections; in a thread, as certificates and imports take 20 to 100 ms."""
    access = settings.access()
    access.check()
    over = polled_over(settings.poll_transport)
    log.info("polling %s over %d connections (%s transport)", settings.base_url, WORKERS, over)
    return await asyncio.to_thread(open_lanes, access, over, WORKERS)
