"""Where a payload comes from: rows and streams, on both faces, to the embedded service over real sockets."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import date
from typing import Any, Self

import pytest
from scripted import answer

from airflow_tds.client import calls, errors
from airflow_tds.client.client import AsyncTableClient, TableClient
from airflow_tds.client.messages import SecretUrl
from airflow_tds.client.payloads import CHUNK
from airflow_tds.client.wire import Initiation, Wire
from airflow_tds.local import Service

SOON: dict[str, Any] = {"poll_interval": 0.05, "timeout": 60.0}
ROWS: list[dict[str, Any]] = [
    {"id": 1, "zip": "0123", "name": "Ada", "born": date(1815, 12, 10)},
    {"id": 2, "zip": "", "name": None, "born": None},
]
KEPT = [
    {"id": 1, "zip": "0123", "name": "Ada", "born": "1815-12-10"},
    {"id": 2, "zip": "", "name": None, "born": None},
]


@pytest.fixture(scope="module")
def tables() -> Iterator[Service]:
    with Service(tables=[f"t{number}" for number in range(40)]) as service:
        yield service


@pytest.fixture
def table(tables: Service, request: pytest.FixtureRequest) -> str:
    """Name a table that no other test has used."""
    used = request.config.stash.setdefault(USED, [])
    used.append(request.node.nodeid)
    return f"t{len(used) - 1}"


USED = pytest.StashKey[list[str]]()


def call(face: str, tables: Service, operation: str, *args: Any, **kwargs: Any) -> Any:
    if face == "blocking":
        with TableClient(tables.url, token=tables.token) as client:
            return getattr(client, operation)(*args, **kwargs)

    async def work() -> Any:
        async with AsyncTableClient(tables.url, token=tables.token) as client:
            return await getattr(client, operation)(*args, **kwargs)

    return asyncio.run(work())


def rows_in(tables: Service, table: str) -> list[dict[str, Any]]:
    with TableClient(tables.url, token=tables.token) as client:
        return sorted(client.iter_rows(table), key=lambda row: row["id"])


@pytest.mark.parametrize("data_format", [None, "json", "ndjson"])
def test_rows_keep_their_types(face: str, tables: Service, table: str, data_format: str | None) -> None:
    call(face, tables, "upload", table, ROWS, data_format, **SOON)

    assert rows_in(tables, table) == KEPT


def test_rows_as_csv_tell_nothing_from_an_empty_text(face: str, tables: Service, table: str) -> None:
    call(face, tables, "upload", table, [{"id": 1, "a": "", "b": None}], "csv", **SOON)

    assert rows_in(tables, table) == [{"id": 1, "a": "", "b": None}]


def test_rows_are_merged_by_their_keys(face: str, tables: Service, table: str) -> None:
    call(face, tables, "upload", table, [{"id": 1, "n": 1}, {"id": 2, "n": 2}], **SOON)
    call(face, tables, "upsert", table, [{"id": 2, "n": 20}, {"id": 3, "n": 30}], key_columns="id", **SOON)

    assert rows_in(tables, table) == [{"id": 1, "n": 1}, {"id": 2, "n": 20}, {"id": 3, "n": 30}]


@pytest.mark.parametrize("unknown_length", ["chunked", "spool"])
def test_a_stream_of_rows_needs_a_format_and_constant_memory(
    face: str, tables: Service, table: str, unknown_length: str
) -> None:
    rows = ({"id": number} for number in range(5000))

    call(face, tables, "upload", table, rows, "ndjson", unknown_length=unknown_length, **SOON)

    assert len(rows_in(tables, table)) == 5000


@pytest.mark.parametrize(
    ("data", "data_format", "text"),
    [
        ([{"id": 1}], "parquet", "for parquet, write a file"),
        ([{"id": 1}, b"x"], None, "rows and chunks"),
        ({"id": 1}, None, "cannot send a dict"),
        ([1], None, "holds a int"),
        (7, None, "cannot send a int"),
        ([{"id": float("nan")}], None, "row 1, column 'id'"),
        ([], "csv", "use json"),
    ],
)
def test_what_cannot_be_sent_is_refused_before_anything_is(
    scripted: Any, run: Any, data: Any, data_format: str | None, text: str
) -> None:
    runtime, client = scripted()

    with pytest.raises(errors.ValidationFailed, match=text):
        run(client.submit_append("t", data, data_format))
    assert runtime.requests == []


def test_rows_go_where_the_map_says(scripted: Any, run: Any) -> None:
    wire = Wire.from_setting(
        {"append": {"strategy": "direct"}, "row_layout": "columns", "rows_at": "/data", "columns_at": "/head"}
    )
    runtime, client = scripted(answer({"job_id": "j1"}), wire=wire)

    run(client.submit_append("t", [{"a": 1}]))

    assert runtime.payloads == [b'{"head":["a"],"data":[[1]]}']


# ---- async iterables


async def stream(count: int = 3) -> AsyncIterator[bytes]:
    yield b"id\n"
    for number in range(count):
        await asyncio.sleep(0)
        yield b"%d\n" % number


async def stream_of_rows() -> AsyncIterator[dict[str, Any]]:
    for number in range(3):
        await asyncio.sleep(0)
        yield {"id": number}


@pytest.mark.parametrize("unknown_length", ["chunked", "spool"])
@pytest.mark.parametrize(("make", "data_format"), [(stream, None), (stream_of_rows, "ndjson"), (lambda: stream, "csv")])
def test_an_async_stream_is_sent(
    tables: Service, table: str, unknown_length: Any, make: Any, data_format: str | None
) -> None:
    call("async", tables, "upload", table, make(), data_format, unknown_length=unknown_length, **SOON)

    assert rows_in(tables, table) == [{"id": 0}, {"id": 1}, {"id": 2}]


class Countdown:
    """An async iterator that is no generator, so that there is nothing to close."""

    def __init__(self) -> None:
        self._left = 3

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> dict[str, Any]:
        await asyncio.sleep(0)
        if not self._left:
            raise StopAsyncIteration
        self._left -= 1
        return {"id": self._left}


def test_an_async_iterator_of_ones_own_is_sent(tables: Service, table: str) -> None:
    call("async", tables, "upload", table, Countdown(), "ndjson", **SOON)

    assert rows_in(tables, table) == [{"id": 0}, {"id": 1}, {"id": 2}]


def test_an_async_stream_is_refused_by_the_blocking_client_before_anything_is_sent() -> None:
    with TableClient("http://127.0.0.1:1") as client, pytest.raises(errors.ValidationFailed, match="AsyncTableClient"):
        client.submit_append("t", stream())


def saying(status: int = 200) -> bytes:
    return b"HTTP/1.1 %d X\r\nConnection: close\r\nContent-Length: 0\r\n\r\n" % status


def initiation(server: Any) -> Initiation:
    return Initiation("j", SecretUrl(f"{server.url}/x"))


@pytest.mark.parametrize("status", [411, 501, 503])
def test_an_async_stream_that_was_refused_half_way_is_sent_again_whole(
    server: Any, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "backoff", lambda *_: 0.0)

    async def chunks() -> AsyncIterator[bytes]:
        for number in range(5):
            await asyncio.sleep(0)
            yield bytes([number]) * CHUNK

    server.answers = [saying(status), saying()]

    async def work() -> None:
        async with AsyncTableClient(server.url) as client:
            await client.send_data(initiation(server), chunks())

    asyncio.run(work())

    assert server.seen[-1].body == b"".join(bytes([number]) * CHUNK for number in range(5))
    assert server.seen[-1].headers.get("content-length") == (None if status == 503 else str(5 * CHUNK))


def test_an_async_stream_that_raises_is_never_taken_for_whole(server: Any) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield bytes(CHUNK)
        yield bytes(CHUNK)
        raise OSError("the disk is gone")

    server.answers = [saying()]

    async def work() -> None:
        async with AsyncTableClient(server.url) as client:
            with pytest.raises(OSError, match="disk"):
                await client.send_data(initiation(server), chunks())

    asyncio.run(work())
    assert not any(seen.whole for seen in server.seen)


@pytest.mark.parametrize("unknown_length", ["chunked", "spool"])
def test_cancelling_ends_an_async_stream_that_gives_nothing(server: Any, unknown_length: Any) -> None:
    ended = []

    async def chunks() -> AsyncIterator[bytes]:
        try:
            yield bytes(CHUNK)
            reached.set()
            await asyncio.Event().wait()
        finally:
            ended.append("closed")

    reached: asyncio.Event

    async def work() -> None:
        nonlocal reached
        reached = asyncio.Event()
        async with AsyncTableClient(server.url) as client:
            sending = asyncio.create_task(client.send_data(initiation(server), chunks(), unknown_length=unknown_length))
            await asyncio.wait_for(reached.wait(), 60)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(sending, 60)

    asyncio.run(work())
    assert ended == ["closed"]


def test_the_event_loop_goes_on_while_a_payload_is_spooled(tables: Service, table: str) -> None:
    """A source that blocks until the loop has moved would never end if it were read in the loop."""
    moved = threading.Event()

    def chunks() -> Iterator[bytes]:
        yield b"id\n"
        assert moved.wait(60)
        yield b"1\n"

    async def work() -> None:
        async with AsyncTableClient(tables.url, token=tables.token) as client:
            upload = asyncio.create_task(client.upload(table, chunks(), unknown_length="spool", **SOON))
            await asyncio.sleep(0)
            moved.set()
            await upload

    asyncio.run(work())
    assert rows_in(tables, table) == [{"id": 1}]


def test_an_async_stream_that_is_given_up_is_closed(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "backoff", lambda *_: 0.0)
    ended = []

    async def chunks() -> AsyncIterator[bytes]:
        try:
            for _ in range(1000):  # without an end, whoever else listens on that port by now would be sent it for ever
                yield bytes(CHUNK)
        finally:
            ended.append("closed")

    async def work() -> None:
        async with AsyncTableClient(server.url) as client:
            with pytest.raises(errors.TableServiceError):
                await client.send_data(initiation(server), chunks(), unknown_length="chunked")

    server.stop()  # nobody listens
    asyncio.run(work())
    assert ended == ["closed"]
