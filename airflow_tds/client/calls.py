"""One request, told again where that is harmless, and waiting: what every operation stands on.

`Calls` holds what reads and writes share: repeating, budgets of time, looking at a job until it ends. What
is sent is wire.py's; the operations themselves are in writes.py and queries.py. A sequence of steps only: no
task groups and no async generators, so that the blocking face can step it to its end.
"""

from __future__ import annotations

import logging
import random
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from airflow_tds.client import errors
from airflow_tds.client.access import Timeouts
from airflow_tds.client.messages import Reply, Request
from airflow_tds.client.models import DataJobResponse, DatasetInfoResponse
from airflow_tds.client.runtime import Runtime
from airflow_tds.client.waiting import GRACE, Outcome, Reading, Verdict, Watch
from airflow_tds.client.wire import Wire

__all__ = ["Calls", "Tally"]

log = logging.getLogger(__name__)
T = TypeVar("T")

#: botocore's standard mode: three tries for a call, five for a transfer, full jitter, at most 20 s apart.
CALL_TRIES = 3
TRANSFER_TRIES = 5
LONGEST_BACKOFF = 20.0
#: Also botocore's: what repeated calls may cost a client in all, and each costs; one that goes well at once gives 1
#: back. So a service in trouble is not asked three times as often by everybody.
BUDGET = 500
REPEAT_COSTS = 5
#: A wait rides out an outage: this many reads in a row may fail, about ten minutes with the backoff above.
WATCH_TRIES = 60
#: Seconds that a call may take that says nothing else: a service that drips would hold it for ever.
LONGEST_CALL = 600.0
#: Without a deadline a `Retry-After` beyond this many seconds ends the call: the caller decides.
LONGEST_RETRY_AFTER = 300.0
#: Seconds that one read of a wait gets at least, so that the last one, at the deadline, can be answered.
SHORTEST_LOOK = 1.0
#: What may pass by itself.
PASSING = (errors.TransportFailed, errors.ServerError, errors.UnreadableReply)
#: Client defaults, seconds (§8 leaves them open): a notebook user waits minutes, not days.
TIMEOUT = 600.0
POLL_INTERVAL = 5.0


def backoff(tries: int, retry_after: float | None) -> float:
    """Say how long to wait before trying again, seconds: what the service asks, else full jitter."""
    if retry_after is not None:
        return retry_after
    return random.uniform(0, min(2.0**tries, LONGEST_BACKOFF))  # noqa: S311  # spreads load, hides nothing


def may_repeat(request: Request, error: errors.TableServiceError) -> bool:
    """Say whether a request may be sent again after an error, without doing anything twice."""
    if not isinstance(error, PASSING) or isinstance(error, errors.TlsFailed):
        return False
    if request.sink is not None or (request.body is not None and not request.body.replayable):
        return False
    unsent = error.outcome in ("not_sent", "refused")
    return request.repeat == "always" or (request.repeat == "if_unsent" and unsent)


def asked(error: errors.TableServiceError) -> float | None:
    """Say how many seconds the service asks to wait; None when it does not."""
    return error.retry_after if isinstance(error, errors.ServerError) else None


@dataclass
class Tally:
    """What a client has done so far.

    Attributes:
        answered: Requests that went well, by operation.
        repeated: Requests that were sent again.
        sent: Bytes of payloads whose length was known.
        received: Bytes of answers and results.
    """

    answered: Counter[str] = field(default_factory=Counter)
    repeated: int = 0
    sent: int = 0
    received: int = 0

    def count(self, request: Request, reply: Reply) -> None:
        """Count a request that went well."""
        self.answered[request.operation] += 1
        self.sent += (request.body and request.body.length) or 0
        self.received += reply.received


class Calls:
    """Requests and waits over a runtime.

    Args:
        runtime: The outside world.
        wire: The wire map; None for the default one.
        timeouts: How long a transfer may take; None for the defaults.

    Attributes:
        tally: What it has done so far.
    """

    def __init__(self, runtime: Runtime, wire: Wire | None = None, *, timeouts: Timeouts | None = None) -> None:
        self._runtime = runtime
        self.wire = wire or Wire()
        self._timeouts = timeouts or Timeouts()
        self._budget = BUDGET
        self.tally = Tally()

    @property
    def transfer_timeout(self) -> float:
        """Seconds that one upload may take at most."""
        return self._timeouts.transfer

    async def _call(self, request: Request, tries: int = CALL_TRIES, deadline: float | None = None) -> Reply:
        """Send, again where that is harmless, and raise what the reply means; see `_read`."""
        return await self._read(request, lambda reply: reply, tries, deadline)

    async def _read(
        self, request: Request, read: Callable[[Reply], T], tries: int = CALL_TRIES, deadline: float | None = None
    ) -> T:
        """Send and read the reply, again where that is harmless; raise what the reply means.

        A pause that would pass the deadline ends with it, and nothing more is sent.
        """
        limit = LONGEST_CALL if request.limit is None else request.limit
        request = replace(self.wire.keyed(request, uuid.uuid4().hex), limit=limit)
        for attempt in range(1, tries + 1):
            try:
                found = read(await self._once(request))
            except PASSING as failed:
                wait = backoff(attempt, asked(failed))
                if attempt == tries or not may_repeat(request, failed) or not self._affords(wait, deadline):
                    raise
                if deadline is not None and wait > (left := deadline - self._runtime.now()):
                    await self._runtime.pause(max(0.0, left))
                    raise
                log.warning("%s; again in %.1f s", failed, wait)
                self.tally.repeated += 1
            else:
                self._budget = min(BUDGET, self._budget + (attempt == 1))
                return found
            await self._runtime.pause(wait)
        raise AssertionError("unreachable: the last try returns or raises")

    def _affords(self, wait: float, deadline: float | None) -> bool:
        """Say whether a call may be told again, and take that from the budget; a wait has its deadline instead."""
        if deadline is not None:
            return True
        if wait > LONGEST_RETRY_AFTER or self._budget < REPEAT_COSTS:
            return False
        self._budget -= REPEAT_COSTS
        return True

    async def _once(self, request: Request) -> Reply:
        reply = await self._runtime.send(request)
        error = self.wire.error(request, reply)
        if error is not None:
            raise await self._told_apart(request, error)
        self.tally.count(request, reply)
        return reply

    async def _told_apart(self, request: Request, error: errors.TableServiceError) -> errors.TableServiceError:
        """Ask the fixed query route whether a 404 means the table or a route that the service does not have."""
        probe = self.wire.probe_request(request, error)
        if probe is None or not isinstance(error, errors.Refused):
            return error
        try:
            refused = self.wire.error(probe, await self._runtime.send(probe))
        except errors.TableServiceError:
            return error  # nothing is known beyond the 404
        return error if refused is not None else self.wire.mismatch(request, error)

    async def info(self, table_id: str) -> DatasetInfoResponse:
        """Get a table's statistics, without a scan.

        Args:
            table_id: The table.

        Returns:
            Its statistics, §2.2.

        Raises:
            TableNotFound: There is no such table.
        """
        return await self._read(self.wire.info_request(table_id), self.wire.read_info)

    async def get_job(self, job_id: str) -> DataJobResponse:
        """Get a job's record.

        Args:
            job_id: The job.

        Returns:
            Its record, §2.3; any status but COMPLETED and FAILED means that it goes on.

        Raises:
            JobNotFound: There is no such job.
        """
        return await self._read(self.wire.job_request(job_id), self.wire.read_job)

    async def look(self, watch: Watch) -> Reading:
        """Look once at what a watch names.

        Args:
            watch: What to look at; its deadline ends repeated tries.

        Returns:
            What was read, judged.
        """
        reading, _ = await self._look(watch)
        return reading

    async def watch(self, watch: Watch) -> Outcome:
        """Wait for what a watch names; how it ended is a value, not an error.

        Args:
            watch: What to wait for, and until when.

        Returns:
            How it ended. A service that does not answer when the deadline comes is a wait that timed out.

        Raises:
            TransportFailed: The service did not answer for about ten minutes.
        """
        outcome, _ = await self._until(watch)
        return outcome

    async def _until(self, watch: Watch) -> tuple[Outcome, Reply]:
        """Look until a wait is over; give how it ended, and the last answer.

        What is not found may not be known everywhere yet, so that is looked for a while.
        """
        reading, reply = Reading(Verdict.RUNNING, "not read"), Reply(0)
        while True:
            try:
                reading, reply = await self._look(watch)
            except PASSING:
                if not watch.over(self._runtime.now()):
                    raise
            except errors.NotFound as missing:
                if watch.over(self._runtime.now()) or self._runtime.now() - watch.started >= GRACE:
                    raise
                log.info("%s; looked for again", missing)
            now = self._runtime.now()
            outcome = watch.outcome(reading, now)
            if outcome is not None:
                return outcome, reply
            await self._runtime.pause(watch.pause(now))

    async def _look(self, watch: Watch) -> tuple[Reading, Reply]:
        request = replace(watch.request(self.wire), limit=max(SHORTEST_LOOK, watch.deadline - self._runtime.now()))
        return await self._read(
            request, lambda reply: (watch.read(self.wire, reply), reply), WATCH_TRIES, watch.deadline
        )

    async def _awaited(self, watch: Watch) -> Reply:
        """Give the answer that says that all went well, or raise how it went."""
        outcome, reply = await self._until(watch)
        outcome.check()
        return reply

    async def wait(
        self, job_id: str, *, timeout: float = TIMEOUT, poll_interval: float = POLL_INTERVAL
    ) -> DataJobResponse:
        """Wait for a write's job.

        Args:
            job_id: The job.
            timeout: Seconds from now after which waiting ends.
            poll_interval: Seconds between two reads of the status, at most.

        Returns:
            The completed job.

        Raises:
            JobFailed: The job failed.
            WaitTimedOut: The job goes on after the timeout.
            JobNotFound: There is no such job, a minute after the wait began.
        """
        return await self._completed(self._watch(timeout, poll_interval), job_id)

    async def wait_until_truncated(
        self, table_id: str, *, timeout: float = TIMEOUT, poll_interval: float = POLL_INTERVAL
    ) -> DatasetInfoResponse:
        """Wait until a truncation has taken effect: row_count is falsy then, §3.1.

        Args:
            table_id: The table.
            timeout: Seconds from now after which waiting ends.
            poll_interval: Seconds between two reads of the statistics, at most.

        Returns:
            The statistics of the empty table.

        Raises:
            WaitTimedOut: The table still has rows after the timeout.
        """
        watch = replace(self._watch(timeout, poll_interval), kind="truncation", subject=table_id)
        return self.wire.read_info(await self._awaited(watch))

    def _watch(self, timeout: float, poll_interval: float) -> Watch:
        if not timeout > 0 or not poll_interval > 0:
            raise errors.ValidationFailed("timeout and poll_interval are seconds above zero (§4.2 rule 8)")
        now = self._runtime.now()
        return Watch("write", "", started=now, deadline=now + timeout, poll_interval=poll_interval)

    async def _completed(self, watch: Watch, job_id: str) -> DataJobResponse:
        return self.wire.read_job(await self._awaited(replace(watch, subject=job_id)))
