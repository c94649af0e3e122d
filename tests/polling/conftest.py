"""A server on a real socket, in the test's own loop, that answers each read as its test says."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import time
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, Self

import pytest

from airflow_tds import polling
from airflow_tds.client.waiting import Reading, Watch
from airflow_tds.hooks import async_settings
from airflow_tds.local import Service

Answer = tuple[int, dict[str, str], bytes]


def status(word: str) -> Answer:
    """Answer with a job's record."""
    return 200, {}, json.dumps({"status": word, "error": "bad row" if word == "FAILED" else None}).encode()


class Origin:
    """Answers reads of jobs: `answer(job_id, count)` gives the answer to the job's count-th read."""

    def __init__(self, answer: Callable[[str, int], Awaitable[Answer | bytes]]) -> None:
        self._answer = answer
        self._news = asyncio.Event()
        self.reads: list[tuple[str, float]] = []
        self.heads: list[dict[str, str]] = []
        self.counts: Counter[str] = Counter()
        self.connections = 0
        self.open: set[asyncio.StreamWriter] = set()
        self._tasks: list[Any] = []
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*[writer.wait_closed() for writer in self._writers], return_exceptions=True)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something that the server sees has come about."""
        while not condition():
            self._news.clear()
            await self._news.wait()

    async def asked(self, count: int) -> None:
        """Wait until so many reads have arrived."""
        await self.until(lambda: len(self.reads) >= count)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.append(asyncio.current_task())
        self.connections += 1
        self.open.add(writer)
        self._writers.append(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                fields = [line.split(": ", 1) for line in head.decode().split("\r\n")[1:] if line]
                self.heads.append({name.lower(): value for name, value in fields})
                await self._reply(head.split(b" ")[1].decode().rsplit("/", 1)[1], writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open.discard(writer)
            writer.close()
            self._news.set()

    async def _reply(self, job_id: str, writer: asyncio.StreamWriter) -> None:
        self.reads.append((job_id, time.monotonic()))
        self.counts[job_id] += 1
        self._news.set()
        answer = await self._answer(job_id, self.counts[job_id])
        if isinstance(answer, bytes):  # raw, and then the end
            writer.write(answer)
            raise ConnectionError
        code, headers, body = answer
        lines = [f"HTTP/1.1 {code} Said", *(f"{name}: {value}" for name, value in headers.items())]
        lines += [f"Content-Length: {len(body)}", "", ""]
        writer.write("\r\n".join(lines).encode() + body)
        await writer.drain()


class Bench:
    """What the tests of the poller share: an origin, a connection to it, and waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, transport: str) -> None:
        self._monkeypatch = monkeypatch
        self.transport = transport

    def origin(self, *words: str) -> Origin:
        """Give a server that answers with these statuses in turn, the last one for ever."""

        async def answer(job_id: str, count: int) -> Answer:  # the same for every job
            return status(words[min(count, len(words)) - 1])

        return Origin(answer)

    def scripted(self, answer: Callable[[str, int], Awaitable[Answer | bytes]]) -> Origin:
        """Give a server whose answers the test makes."""
        return Origin(answer)

    def connect(self, port: int, **fields: Any) -> None:
        """Point `tds_default`, or another connection, at a port."""
        known = {"conn_type": "tds", "schema": "http", "host": "127.0.0.1", "port": port, "password": "secret"}
        name = fields.pop("name", "TDS_DEFAULT")
        fields["extra"] = {"poll_transport": self.transport, **fields.get("extra", {})}
        self._monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps(known | fields))

    def watch(self, job_id: str = "j1", seconds: float = 600.0, age: float = 0.0) -> Watch:
        """Give a wait that looks every few milliseconds; its deadline never comes unless it is given."""
        now = time.time()
        return Watch("write", job_id, now - age, now + seconds, poll_interval=0.02, first_pause=0.01)

    async def wait(self, watch: Watch, on_change: Callable[[Reading], None] = lambda _: None) -> Any:
        """Wait as a trigger does."""
        return await (await polling.poller_for("tds_default")).wait(watch, on_change)

    def start(self, watch: Watch, on_change: Callable[[Reading], None] = lambda _: None) -> asyncio.Task[Any]:
        """Start to wait."""
        return asyncio.get_running_loop().create_task(self.wait(watch, on_change))

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a test's coroutine in a loop of its own; whatever it left undone ends with the loop."""
        asyncio.run(asyncio.wait_for(work, 100))
        with warnings.catch_warnings():  # a loop that ends closes its sockets, and its transports warn of that
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()

    status = staticmethod(status)


class Heard(logging.Handler):
    """Tells a loop when a text was logged."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text
        self._loop = asyncio.get_running_loop()
        self.heard = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if self._text in record.getMessage():
            self._loop.call_soon_threadsafe(self.heard.set)

    async def __aenter__(self) -> Self:
        polling.log.addHandler(self)
        return self

    async def __aexit__(self, *exc: object) -> None:
        polling.log.removeHandler(self)


@pytest.fixture(params=["httpx", "aiohttp"])
def bench(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Bench]:
    yield Bench(monkeypatch, request.param)
    polling._BY_LOOP.clear()


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(tables=["t"]) as service:
        yield service


@pytest.fixture
def heard() -> type[Heard]:
    return Heard


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give the ids of the connections that have been read."""
    ids: list[str] = []
    read = async_settings

    async def noted(conn_id: str) -> Any:
        ids.append(conn_id)
        return await read(conn_id)

    monkeypatch.setattr(polling, "async_settings", noted)
    return ids
