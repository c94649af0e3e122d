"""The triggers that are measured: ours over each transport, and other providers' own, unchanged classes.

A kind is a maker of triggers; making it makes its connection.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, ClassVar

__all__ = ["GIVEN", "KINDS", "WARM", "NoLane", "trigger_rows"]

#: `kind`, `count`, `interval`, `port`, `control`, `polls`, `mode`, `ca`, `url`: see polling.py and load.py.
GIVEN: dict[str, Any] = json.loads(sys.argv[1])
#: The number of the trigger that warms up.
WARM = -1

Make = Callable[[int], Any]


def connect(name: str, **fields: Any) -> None:
    """Make a connection."""
    os.environ[f"AIRFLOW_CONN_{name}"] = json.dumps(fields)


def named(number: int) -> str:
    """Name a job."""
    return "warm" if number == WARM else "j" if GIVEN["mode"] == "fan-out" else f"j{number}"


def ours(transport: str) -> Make:
    """Give a maker of our triggers."""
    from airflow_tds.triggers import TdsJobTrigger

    extra = {"poll_transport": transport} | ({"ca_bundle": GIVEN["ca"]} if GIVEN["ca"] else {})
    scheme, where = "https" if GIVEN["ca"] else "http", {"host": "127.0.0.1", "port": GIVEN["port"]}
    connect("TDS_DEFAULT", conn_type="tds", schema=scheme, **where, password="t", extra=extra)
    times: dict[str, Any] = {"poll_interval": GIVEN["interval"], "first_pause": GIVEN["interval"]}

    def make(number: int) -> Any:
        now = time.time()
        return TdsJobTrigger("tds_default", subject=named(number), started=now, deadline=now + 3600, **times)

    return make


def with_lanes(lane: Callable[[], Any]) -> Make:
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
        async with self._session.get(f"{GIVEN['url']}{request.target}") as response:
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
        return Reply(200, {}, b'{"status": "%s"}' % (b"RUNNING" if count <= GIVEN["polls"] else b"COMPLETED"))

    async def close(self) -> None:
        """Nothing is open."""


def databricks() -> Make:
    """Give a maker of Databricks's triggers."""
    from airflow.providers.databricks.triggers.databricks import DatabricksExecutionTrigger  # type: ignore[import-not-found]  # installed for the benchmark only

    scheme, where = "https" if GIVEN["ca"] else "http", {"host": "127.0.0.1", "port": GIVEN["port"]}
    connect("DBX", conn_type="databricks", schema=scheme, **where, password="t")
    return lambda number: DatabricksExecutionTrigger(number, "dbx", polling_period_seconds=GIVEN["interval"])


def dbt() -> Make:
    """Give a maker of dbt Cloud's triggers; its URL is https always, so that one line is replaced."""
    from airflow.providers.dbt.cloud.hooks.dbt import DbtCloudHook  # type: ignore[import-not-found]  # installed for the benchmark only
    from airflow.providers.dbt.cloud.triggers.dbt import DbtCloudRunJobTrigger  # type: ignore[import-not-found]  # installed for the benchmark only

    def url(tenant: str, endpoint: str, *_: Any, **__: Any) -> tuple[str, dict[str, Any]]:
        return f"{GIVEN['url']}/api/v2/accounts/{endpoint}", {}

    DbtCloudHook.get_request_url_params = staticmethod(url)
    connect("DBT", conn_type="dbt_cloud", host=f"127.0.0.1:{GIVEN['port']}", login="1", password="t")
    return lambda number: DbtCloudRunJobTrigger("dbt", number, time.time() + 3600, GIVEN["interval"], 1)


def http() -> Make:
    """Give a maker of the HTTP provider's sensor triggers."""
    from airflow.providers.http.triggers.http import HttpSensorTrigger  # type: ignore[import-not-found]  # installed for the benchmark only

    connect("WEB", conn_type="http", host=GIVEN["url"])
    return lambda number: HttpSensorTrigger(f"sensor/{named(number)}", "web", poke_interval=GIVEN["interval"])


def sleep() -> Make:
    """Give a maker of Airflow's own triggers that wait for a moment, as long as the others' jobs take; or an hour."""
    from airflow.providers.standard.triggers.temporal import DateTimeTrigger

    seconds = 3600.0 if GIVEN["polls"] is None else GIVEN["interval"] * (GIVEN["polls"] + 1)
    return lambda number: DateTimeTrigger(dt.datetime.now(dt.UTC) + dt.timedelta(seconds=seconds))


KINDS: dict[str, Callable[[], Make]] = {
    "ours-aiohttp": lambda: ours("aiohttp"),
    "ours-httpx": lambda: ours("httpx"),
    "raw-aiohttp": lambda: with_lanes(RawLane),
    "null": lambda: with_lanes(NoLane),
    "databricks": databricks,
    "dbt-cloud": dbt,
    "http-sensor": http,
    "sleep": sleep,
}


def trigger_rows() -> list[tuple[str, dict[str, Any]]]:
    """Give the triggers of a run as a database keeps them, the first one to warm up; their connection is set, too."""
    make = KINDS[GIVEN["kind"]]()
    return [make(number).serialize() for number in (WARM, *range(GIVEN["count"]))]
