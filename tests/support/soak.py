"""Many triggers in one event loop, while all sorts of things happen to them and to their service.

Triggers are cancelled at random and new ones take their place, several wait for one job, the service goes away and
comes back, refuses everybody with 429 for a while, and the clock jumps. At the end all jobs are done: every trigger
that was not cancelled must have been told so, no job was asked for twice at once or too soon, there were never more
connections than workers, and nothing is left.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from airflow_tds import polling
from airflow_tds.triggers import TdsJobTrigger

__all__ = ["Soak", "Tally", "descriptors", "resident"]

#: Seconds between two polls of a job; a poll sooner than this part of it after an answer is one too many.
PAUSE = 0.5
SOON = 0.9
#: Seconds for what must come about in the end; several of them are less than a test may take.
PATIENCE = 60.0
DAY = 86400.0
PAGE = os.sysconf("SC_PAGE_SIZE")


def descriptors() -> int:
    """Count this process's open files and sockets."""
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208  # a path per descriptor is not needed


def resident() -> int:
    """Give the bytes of this process in memory."""
    with open("/proc/self/statm") as file:  # noqa: PTH123  # as above
        return int(file.read().split()[1]) * PAGE


async def until(condition: Callable[[], bool], patience: float) -> None:
    """Wait until something has come about; after so many seconds, go on without it."""
    for _ in range(int(patience / 0.05)):
        if condition():
            return
        await asyncio.sleep(0.05)


@dataclass
class Tally:
    """What happened, and what must not have: `doubled`, `lost`, `left`."""

    counts: Counter[str] = field(default_factory=Counter)
    doubled: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    most_connections: int = 0

    @property
    def wrong(self) -> list[str]:
        """Everything that must not be."""
        many = [f"{self.most_connections} connections"] if self.most_connections > polling.WORKERS else []
        return self.doubled + self.lost + self.left + many

    def __str__(self) -> str:
        counts = ", ".join(f"{count:,} {what}" for what, count in sorted(self.counts.items()))
        verdict = f"{len(self.doubled)} polls doubled, {len(self.lost)} waits lost, {len(self.left)} things left"
        return f"{counts}; at most {self.most_connections} connections; {verdict}"


class Jobs(asyncio.Protocol):
    """One connection to the service, which sees to it that no job is asked for twice at once or too soon."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._asked: str | None = None

    def connection_made(self, transport: Any) -> None:
        """Count it."""
        self.transport = transport
        self._buffer = b""
        self._service.open.add(self)
        if self._service.away:  # it was on its way when the service left
            self.transport.abort()
        tally = self._service.tally
        tally.most_connections = max(tally.most_connections, len(self._service.open))

    def connection_lost(self, exc: Exception | None) -> None:
        """Count it off; what it asked for was not answered."""
        self._service.open.discard(self)
        if self._asked is not None:
            self._service.asked.discard(self._asked)

    def data_received(self, data: bytes) -> None:
        """Take a request, and answer it a little later."""
        self._buffer += data
        if self._buffer.endswith(b"\r\n\r\n"):
            job_id = self._buffer.split(b" ", 2)[1].decode().rsplit("/", 1)[1]
            self._buffer, self._asked = b"", job_id
            self._service.take(job_id)
            asyncio.get_running_loop().call_later(random.uniform(0, 0.02), self._answer)  # noqa: S311  # load

    def _answer(self) -> None:
        if self._asked is None or self.transport.is_closing():
            return
        code, body = self._service.answer(self._asked)
        self._asked = None
        more = "Retry-After: 1\r\n" if code == 429 else ""
        self.transport.write(f"HTTP/1.1 {code} Said\r\n{more}Content-Length: {len(body)}\r\n\r\n{body}".encode())


class Service:
    """A service of jobs that run until all are done."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.open: set[Jobs] = set()
        self.asked: set[str] = set()
        self.done = self.busy = self.away = False
        self._answered: dict[str, float] = {}
        self.port = 0

    async def start(self) -> None:
        """Listen, on the port of before."""
        self.away = False
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Jobs(self), "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Go away, with all connections."""
        self.away = True
        self._server.close()
        for connection in list(self.open):
            connection.transport.abort()
        await until(lambda: not self.open, PATIENCE)

    def take(self, job_id: str) -> None:
        """Look at a request: is it one too many?"""
        self.tally.counts["polls"] += 1
        if job_id in self.asked:
            self.tally.doubled.append(f"{job_id} was asked for twice at once")
        since = time.monotonic() - self._answered.get(job_id, float("-inf"))
        if since < PAUSE * SOON:
            self.tally.doubled.append(f"{job_id} was asked for again after {since:.3f} s")
        self.asked.add(job_id)

    def answer(self, job_id: str) -> tuple[int, str]:
        """Say how a job is doing."""
        self.asked.discard(job_id)
        self._answered[job_id] = time.monotonic()
        if self.busy:
            self.tally.counts["refusals"] += 1
            return 429, "{}"
        return 200, json.dumps({"status": "COMPLETED" if self.done else "RUNNING"})


class Soak:
    """One round.

    Args:
        count: Triggers at a time; each second job has two.
        events: How many things happen.
        seed: Of what happens.
        transport: The poller's.
    """

    def __init__(self, count: int, events: int, seed: int, transport: str = "auto") -> None:
        self.tally = Tally()
        self._count = count
        self._events = events
        self._dice = random.Random(seed)  # noqa: S311  # load
        self._transport = transport
        self._service = Service(self.tally)
        self._offset = 0.0
        self._waits: dict[asyncio.Task[Any], str] = {}
        self._jobs = 0

    async def run(self) -> Tally:
        """Go through it; what it needs of the poller is put back at the end."""
        kept = vars(polling)["time"]
        vars(polling)["time"] = SimpleNamespace(time=self._now)  # the clock jumps
        open_before = descriptors()
        await self._service.start()
        fields = {"conn_type": "tds", "schema": "http", "host": "127.0.0.1", "port": self._service.port}
        extra = {"poll_transport": self._transport}
        os.environ["AIRFLOW_CONN_TDS_SOAK"] = json.dumps(fields | {"password": "t", "extra": extra})
        try:
            await self._storm()
            await self._end()
            await self._look_for_leftovers(open_before)
        finally:
            vars(polling)["time"] = kept
            del os.environ["AIRFLOW_CONN_TDS_SOAK"]
        return self.tally

    def _now(self) -> float:
        return time.time() + self._offset

    async def _storm(self) -> None:
        happenings = (self._cancel, self._restart, self._refuse, self._jump)
        self._fill()
        for number in range(self._events):
            await asyncio.sleep(self._dice.uniform(0.05, 0.3))
            await happenings[number % len(happenings)]()
            self._fill()

    def _fill(self) -> None:
        """Start triggers until there are enough: two for one job, one for the next."""
        while len(self._waits) < self._count:
            self._jobs += 1
            for _ in range(1 + self._jobs % 2):
                self._start(f"j{self._jobs}")

    def _start(self, job_id: str) -> None:
        now = self._now()
        times: dict[str, Any] = {"started": now, "deadline": now + DAY, "poll_interval": PAUSE, "first_pause": PAUSE}
        task = asyncio.create_task(self._wait(TdsJobTrigger("tds_soak", subject=job_id, **times)))
        self._waits[task] = job_id
        self.tally.counts["waits"] += 1

    async def _wait(self, trigger: TdsJobTrigger) -> Any:
        async for event in trigger.run():
            return event.payload["kind"]
        return None

    async def _cancel(self) -> None:
        gone = self._dice.sample(list(self._waits), len(self._waits) // 3)
        for task in gone:
            task.cancel()
            del self._waits[task]
        await asyncio.gather(*gone, return_exceptions=True)
        self.tally.counts["cancels"] += len(gone)

    async def _restart(self) -> None:
        await self._service.stop()
        await asyncio.sleep(self._dice.uniform(0, 0.3))
        await self._service.start()
        self.tally.counts["restarts"] += 1

    async def _refuse(self) -> None:
        self._service.busy = True
        await asyncio.sleep(0.3)
        self._service.busy = False

    async def _jump(self) -> None:
        self._offset += self._dice.choice((-600.0, -5.0, 5.0, 600.0))
        self.tally.counts["clock jumps"] += 1

    async def _end(self) -> None:
        """Let all jobs be done, and see who was told."""
        self._service.done = True
        await asyncio.wait(self._waits, timeout=PATIENCE)
        for task, job_id in self._waits.items():
            if not task.done():
                self.tally.lost.append(f"a wait for {job_id} goes on for ever")
                task.cancel()
            elif task.exception() or task.result() != "completed":
                self.tally.lost.append(f"a wait for {job_id} ended with {task.exception() or task.result()}")
        self._waits.clear()

    async def _look_for_leftovers(self, before: int) -> None:
        """Wait until the poller has closed itself; nothing may be left then."""
        await until(lambda: not self._service.open, polling.LINGER + PATIENCE)
        await self._service.stop()
        await until(lambda: not self._leftovers(before), PATIENCE)
        self.tally.left += self._leftovers(before)

    def _leftovers(self, before: int) -> list[str]:
        gc.collect()
        loop = asyncio.get_running_loop()
        # not isinstance: it asks a proxy for its class, and some of Airflow's (3.1) then import what is not there
        subscriptions = [one for one in gc.get_objects() if type(one) is polling.Subscription]
        counts = {
            "subscriptions": sum(one.changed.get_loop() is loop for one in subscriptions),
            "tasks": sum("polling.py" in repr(task) for task in asyncio.all_tasks()),
            "files": descriptors() - before,
        }
        return [f"{count} {name}" for name, count in counts.items() if count > 0]
