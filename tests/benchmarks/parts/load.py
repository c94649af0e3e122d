"""One run: so many triggers of one kind in one event loop, as Airflow's triggerer drives them; prints one line of JSON.

CPU time and memory are this process's, from the first trigger's creation to the last one's end, after one
trigger to warm up. How long the loop was blocked is how much too late a 10 ms ticker woke, beside the longest
garbage collection.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import greenback

KIND, COUNT, INTERVAL, PORT = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
PAGE = os.sysconf("SC_PAGE_SIZE")


def ours(transport: str) -> Callable[[int], Any]:
    """Give a maker of our triggers."""
    from airflow_tds.triggers import TdsJobTrigger

    extra = {"poll_transport": transport}
    connect("TDS_DEFAULT", conn_type="tds", schema="http", host="127.0.0.1", port=PORT, password="t", extra=extra)
    times: dict[str, Any] = {"poll_interval": INTERVAL, "first_pause": INTERVAL}

    def make(number: int) -> Any:
        now = time.time()
        return TdsJobTrigger("tds_default", subject=f"j{number}", started=now, deadline=now + 3600, **times)

    return make


def with_lanes(lane: Callable[[], Any]) -> Callable[[int], Any]:
    """Give a maker of our triggers whose poller has lanes of another kind: what our transports cost shows beside it."""
    from airflow_tds import polling

    vars(polling)["open_lanes"] = lambda access, over, count: [lane() for _ in range(count)]
    return ours("httpx")


class RawLane:
    """Nothing between the poller and aiohttp."""

    def __init__(self) -> None:
        self._session: Any = None

    async def read(self, request: Any, kept: Any) -> Any:
        """Read with a session of one connection."""
        import aiohttp

        from airflow_tds.client.messages import Reply

        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1, keepalive_timeout=60))
        async with self._session.get(f"http://127.0.0.1:{PORT}{request.target}") as response:
            return Reply(response.status, {}, await response.read())

    async def close(self) -> None:
        """Close the connection."""
        if self._session is not None:
            await self._session.close()


class NoLane:
    """No HTTP at all: what is left is the poller, the triggers and Airflow."""

    asked: ClassVar[dict[str, int]] = {}

    async def read(self, request: Any, kept: Any) -> Any:
        """Answer as the stub does."""
        from airflow_tds.client.messages import Reply

        count = self.asked[request.subject] = self.asked.get(request.subject, 0) + 1
        await asyncio.sleep(0)
        return Reply(200, {}, b'{"status": "%s"}' % (b"RUNNING" if count <= int(sys.argv[5]) else b"COMPLETED"))

    async def close(self) -> None:
        """Nothing is open."""


def databricks() -> Callable[[int], Any]:
    """Give a maker of Databricks's triggers."""
    from airflow.providers.databricks.triggers.databricks import DatabricksExecutionTrigger  # type: ignore[import-not-found]  # installed for the benchmark only

    connect("DBX", conn_type="databricks", schema="http", host="127.0.0.1", port=PORT, password="t")
    return lambda number: DatabricksExecutionTrigger(number, "dbx", polling_period_seconds=INTERVAL)


def dbt() -> Callable[[int], Any]:
    """Give a maker of dbt Cloud's triggers; its URL is https always, so that one line is replaced."""
    from airflow.providers.dbt.cloud.hooks.dbt import DbtCloudHook  # type: ignore[import-not-found]  # installed for the benchmark only
    from airflow.providers.dbt.cloud.triggers.dbt import DbtCloudRunJobTrigger  # type: ignore[import-not-found]  # installed for the benchmark only

    def url(tenant: str, endpoint: str, *_: Any, **__: Any) -> tuple[str, dict[str, Any]]:
        return f"http://{tenant}/api/v2/accounts/{endpoint}", {}

    DbtCloudHook.get_request_url_params = staticmethod(url)
    connect("DBT", conn_type="dbt_cloud", host=f"127.0.0.1:{PORT}", login="1", password="t")
    return lambda number: DbtCloudRunJobTrigger("dbt", number, time.time() + 3600, INTERVAL, 1)


def http() -> Callable[[int], Any]:
    """Give a maker of the HTTP provider's sensor triggers."""
    from airflow.providers.http.triggers.http import HttpSensorTrigger  # type: ignore[import-not-found]  # installed for the benchmark only

    connect("WEB", conn_type="http", host=f"http://127.0.0.1:{PORT}")
    return lambda number: HttpSensorTrigger(f"sensor/{number}", "web", poke_interval=INTERVAL)


KINDS: dict[str, Callable[[], Callable[[int], Any]]] = {
    "ours-aiohttp": lambda: ours("aiohttp"),
    "ours-httpx": lambda: ours("httpx"),
    "raw-aiohttp": lambda: with_lanes(RawLane),
    "null": lambda: with_lanes(NoLane),
    "databricks": databricks,
    "dbt-cloud": dbt,
    "http-sensor": http,
}


def connect(name: str, **fields: Any) -> None:
    """Make a connection."""
    os.environ[f"AIRFLOW_CONN_{name}"] = json.dumps(fields)


def counts() -> dict[str, int]:
    """Ask the stub what it has seen."""
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/counts") as reply:
        found: dict[str, int] = json.load(reply)
    return found


def memory() -> int:
    """Give the bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


class Watcher:
    """Ticks beside the load: how late it is woken, how long garbage collection took, how much memory there is."""

    def __init__(self) -> None:
        self.late: list[float] = []
        self.collecting = 0.0
        self.most = memory()
        self._begun = 0.0
        gc.callbacks.append(self._collect)

    def _collect(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._begun = time.perf_counter()
        else:
            self.collecting = max(self.collecting, time.perf_counter() - self._begun)

    async def tick(self) -> None:
        """Watch until cancelled."""
        while True:
            due = time.perf_counter() + 0.01
            await asyncio.sleep(0.01)
            self.late.append(time.perf_counter() - due)
            if len(self.late) % 10 == 0:
                self.most = max(self.most, memory())


async def drive(trigger: Any) -> None:
    """Run one trigger to its event, as Airflow's runner does."""
    await greenback.ensure_portal()
    async for event in trigger.run():
        payload = event.payload
        done = payload is True or payload.get("kind") == "completed" or payload.get("status") == "success"
        assert done or "run_state" in payload, payload
        return


async def main() -> None:
    """Warm up, run the load, print what it took."""
    make = KINDS[KIND]()
    await drive(make(10**9))
    gc.collect()
    before, watcher = counts(), Watcher()
    ticking = asyncio.create_task(watcher.tick())
    base, cpu, wall = memory(), time.process_time(), time.perf_counter()
    triggers = []
    for number in range(COUNT):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        triggers.append(asyncio.create_task(drive(make(number))))
    await asyncio.gather(*triggers)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    ticking.cancel()
    after = counts()
    polls = after["requests"] - before["requests"] if KIND != "null" else sum(NoLane.asked.values())
    print(
        json.dumps(
            {
                "kind": KIND,
                "polls": polls,
                "us_per_poll": cpu / polls * 1e6,
                "polls_per_cpu_s": polls / cpu,
                "kib_per_trigger": (watcher.most - base) / COUNT / 1024,
                "connections": after["opened"],
                "block_ms": max(watcher.late) * 1e3,
                "gc_ms": watcher.collecting * 1e3,
                "wall_s": wall,
            }
        ),
        flush=True,
    )


os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # the stub has another one, where there are two
asyncio.run(main())
os._exit(0)  # what pollers and peers keep open ends here
