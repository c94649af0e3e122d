"""Downloads that break and go on, patience, and progress: over real sockets, on both faces."""

import asyncio
import io
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_tds.client import calls, errors, progress, queries, runtime
from airflow_tds.client.access import Timeouts
from airflow_tds.client.client import AsyncTableClient, TableClient
from airflow_tds.client.downloads import Download
from airflow_tds.client.http import incoming
from airflow_tds.client.messages import SecretUrl
from airflow_tds.client.payloads import CHUNK, Body, body_of
from airflow_tds.client.progress import Meter, Progress
from airflow_tds.client.wire import Initiation, Wire

Fetch = Callable[..., bytes]
ETAG = 'ETag: "v1"'
RANGES = "Accept-Ranges: bytes"
#: Large enough to be read from the socket itself.
LARGE = bytes(range(256)) * (incoming.DIRECT_FROM // 256 * 3)


def fetch_blocking(server: Any, path: Path, **settings: Any) -> bytes:
    with TableClient(server.url, **settings) as client:
        return client.poll_download_to("j", path, poll_interval=0.01).read_bytes()


def fetch_async(server: Any, path: Path, **settings: Any) -> bytes:
    async def work() -> bytes:
        async with AsyncTableClient(server.url, **settings) as client:
            return (await client.poll_download_to("j", path, poll_interval=0.01)).read_bytes()

    return asyncio.run(work())


@pytest.fixture(params=[fetch_blocking, fetch_async], ids=["blocking", "async"])
def fetch(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fetch:
    monkeypatch.setattr(random, "uniform", lambda *_: 0.0)  # no pause between two tries
    return lambda server, **settings: request.param(server, tmp_path / "out", **settings)


@pytest.fixture
def ready(server: Any, answer: Any) -> bytes:
    """The poll path's answer that names the result."""
    return bytes(answer(307, b"", f"Location: {server.url}/get?sig=s3cret"))


def asked(server: Any) -> list[tuple[str | None, str | None]]:
    """Give what each request for the result asked for: its range, and the version that it must be of."""
    gets = [seen.headers for seen in server.seen if "/get?" in seen.line]
    return [(headers.get("range"), headers.get("if-range")) for headers in gets]


def cut(whole: bytes, size: int) -> bytes:
    """Cut an answer's body."""
    head, _, body = whole.partition(b"\r\n\r\n")
    return head + b"\r\n\r\n" + body[:size]


# ---- a result that broke off


@pytest.mark.parametrize("size", [6, len(LARGE)])
def test_only_the_rest_is_asked_for(server: Any, answer: Any, ready: bytes, fetch: Fetch, size: int) -> None:
    whole = LARGE[:size]
    half = size // 2
    rest = answer(206, whole[half:], f"Content-Range: bytes {half}-{size - 1}/{size}", ETAG)
    server.answers = [ready, cut(answer(200, whole, ETAG, RANGES), half), ready, rest]

    assert fetch(server) == whole
    assert asked(server) == [(None, None), (f"bytes={half}-", '"v1"')]


def test_a_result_that_breaks_more_often_than_a_call_is_tried_comes_whole(
    server: Any, answer: Any, ready: bytes, fetch: Fetch
) -> None:
    whole = bytes(range(10))
    server.answers = [ready, cut(answer(200, whole, ETAG, RANGES), 1)]
    for first in range(1, 10):
        part = answer(206, whole[first:], f"Content-Range: bytes {first}-9/10", ETAG)
        server.answers += [ready, cut(part, 1)]

    assert fetch(server) == whole
    assert len(asked(server)) == 10


@pytest.mark.parametrize(
    "headers",
    [(ETAG,), (RANGES,), ('ETag: W/"v1"', RANGES), ("ETag: v1", RANGES), (ETAG, "Accept-Ranges: none"), ()],
)
def test_what_the_store_cannot_resume_comes_again_from_its_start(
    server: Any, answer: Any, ready: bytes, fetch: Fetch, headers: tuple[str, ...]
) -> None:
    server.answers = [ready, cut(answer(200, b"abcdef", *headers), 3), ready, answer(200, b"abcdef", *headers)]

    assert fetch(server) == b"abcdef"
    assert asked(server) == [(None, None)] * 2


def test_a_result_that_changed_meanwhile_comes_whole(server: Any, answer: Any, ready: bytes, fetch: Fetch) -> None:
    new = answer(200, b"NEW", 'ETag: "v2"', RANGES)
    server.answers = [ready, cut(answer(200, b"abcdef", ETAG, RANGES), 5), ready, new]

    assert fetch(server) == b"NEW"


def test_a_range_that_is_not_there_any_more_starts_again(server: Any, answer: Any, ready: bytes, fetch: Fetch) -> None:
    broken = cut(answer(200, b"abcdef", ETAG, RANGES), 3)
    server.answers = [ready, broken, ready, answer(416, b"", "Content-Range: bytes */2"), ready, answer(200, b"ab")]

    assert fetch(server) == b"ab"
    assert asked(server)[-1] == (None, None)


@pytest.mark.parametrize(
    "headers",
    [
        ("Content-Range: bytes 2-5/6", ETAG),
        ("Content-Range: bytes 3-5/7", ETAG),
        ("Content-Range: bytes 3-4/6", ETAG),
        ("Content-Range: bytes 3-5/*", ETAG),
        ("Content-Range: bytes 3-5/6", 'ETag: "v2"'),
        ("Content-Type: multipart/byteranges; boundary=x",),
    ],
)
def test_another_part_than_the_one_asked_for_is_not_joined(
    server: Any, answer: Any, ready: bytes, fetch: Fetch, headers: tuple[str, ...]
) -> None:
    broken = cut(answer(200, b"abcdef", ETAG, RANGES), 3)
    server.answers = [ready, broken, ready, answer(206, b"XYZ", *headers), ready, answer(200, b"abcdef")]

    assert fetch(server) == b"abcdef"
    assert asked(server)[-1] == (None, None)


def test_a_rest_in_chunks_that_is_too_short_is_a_failed_transfer(
    server: Any, answer: Any, ready: bytes, fetch: Fetch
) -> None:
    chunked = answer(206, b"1\r\nd\r\n0\r\n\r\n", "Transfer-Encoding: chunked", "Content-Range: bytes 3-5/6")
    rest = answer(206, b"ef", "Content-Range: bytes 4-5/6")
    server.answers = [ready, cut(answer(200, b"abcdef", ETAG, RANGES), 3), ready, chunked, ready, rest]

    assert fetch(server) == b"abcdef"
    assert [of for of, _ in asked(server)] == [None, "bytes=3-", "bytes=4-"]


def test_a_result_is_given_up_after_five_tries_that_bring_nothing(
    server: Any, answer: Any, ready: bytes, fetch: Fetch
) -> None:
    server.answers = [ready, cut(answer(200, b"abcdef", ETAG, RANGES), 3)] + [ready, b""] * 9

    with pytest.raises(errors.TransportFailed):
        fetch(server)
    assert len(asked(server)) == 5


def test_a_result_that_takes_longer_than_a_download_may_is_given_up(
    server: Any, answer: Any, ready: bytes, fetch: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random, "uniform", lambda *_: 20.0)
    server.answers = [ready, b"", ready, answer(200, b"ab")]

    with pytest.raises(errors.TransportFailed):
        fetch(server, timeouts=Timeouts(download=10.0))
    assert len(asked(server)) == 1


def test_a_sink_that_cannot_seek_will_do_for_one_try() -> None:
    class Forward(io.BytesIO):
        def seek(self, *_: Any) -> int:
            raise AssertionError("not asked for")

    Download(Forward()).restart()


# ---- reading from the socket itself


@pytest.mark.parametrize("headers", [(), (ETAG, RANGES)])
def test_a_large_result_arrives_byte_for_byte(
    server: Any, answer: Any, ready: bytes, fetch: Fetch, headers: tuple[str, ...]
) -> None:
    server.answers = [ready, answer(200, LARGE, *headers)]

    assert fetch(server) == LARGE


def slowly(*pieces: bytes, released: threading.Event) -> Callable[[], Iterator[bytes]]:
    """Answer with pieces; the last one is held back until it is released."""

    def give() -> Iterator[bytes]:
        yield from pieces[:-1]
        released.wait(20)
        yield pieces[-1]

    return give


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_a_large_result_that_stalls_is_given_up_within_the_read_timeout(
    server: Any, answer: Any, ready: bytes, fetch: Fetch, *, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    monkeypatch.setattr(incoming, "DIRECT_SECONDS", seconds)
    released = threading.Event()
    whole = answer(200, LARGE)
    server.answers = [ready, slowly(whole[:-9], whole[-9:], released=released)]

    with pytest.raises(errors.TransportFailed, match=r"ReadTimeout|not done within 1 s"):  # on a busy machine
        fetch(server, timeouts=Timeouts(read=0.3, download=0.2))
    released.set()


def test_a_large_result_is_shown_as_it_comes_though_it_comes_slowly(
    server: Any, answer: Any, ready: bytes, monkeypatch: pytest.MonkeyPatch, fetch: Fetch
) -> None:
    monkeypatch.setattr(progress, "REPORTED_EVERY", 0.0)
    monkeypatch.setattr(incoming, "DIRECT_SECONDS", 0.0)
    released = threading.Event()
    seen: list[Progress] = []

    def report(now: Progress) -> None:
        seen.append(now)
        if now.done >= CHUNK:
            released.set()  # without what has come being reported, the rest would not come

    whole = answer(200, LARGE)
    server.answers = [ready, slowly(whole[: 2 * CHUNK], whole[2 * CHUNK :], released=released)]

    assert fetch(server, progress=report) == LARGE
    assert seen[-1].done == len(LARGE)


def test_a_download_that_is_stopped_ends_at_once(
    server: Any, answer: Any, ready: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = answer(200, LARGE)
    released = threading.Event()
    server.answers = [ready, slowly(whole[:-9], whole[-9:], released=released)]

    def report(_: Progress) -> None:
        client.stop()
        released.set()

    monkeypatch.setattr(progress, "REPORTED_EVERY", 0.0)
    with TableClient(server.url, progress=report) as client, pytest.raises(errors.Stopped):
        client.poll_download_to("j", tmp_path / "out", poll_interval=0.01)


def test_a_cancelled_download_leaves_its_sink_alone_and_the_client_goes_on(
    server: Any, answer: Any, ready: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "REPORTED_EVERY", 0.0)
    monkeypatch.setattr(incoming, "DIRECT_SECONDS", 0.0)
    released, begun = threading.Event(), threading.Event()
    whole = answer(200, LARGE)
    server.answers = [ready, slowly(whole[:-9], whole[-9:], released=released), answer(200, b'{"row_count": 1}')]

    async def work() -> int | None:
        async with AsyncTableClient(server.url, progress=lambda _: begun.set()) as client:
            download = asyncio.create_task(client.poll_download_to("j", tmp_path / "out"))
            await asyncio.to_thread(begun.wait, 20)
            download.cancel()
            with pytest.raises(asyncio.CancelledError):
                await download
            released.set()
            return (await client.info("t")).row_count

    assert asyncio.run(work()) == 1


def test_a_transfer_that_is_cancelled_before_its_turn_sends_nothing(
    server: Any, answer: Any, ready: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "TRANSFERS_AT_ONCE", 1)
    reading, released = threading.Event(), threading.Event()

    def slow() -> Iterator[bytes]:
        reading.set()
        released.wait(20)
        yield b"x"

    async def work() -> None:
        async with AsyncTableClient(server.url) as client:
            put = Initiation("j", SecretUrl(f"{server.url}/put?sig=1"))
            first = asyncio.create_task(client.send_data(put, slow()))
            await asyncio.to_thread(reading.wait, 20)
            second = asyncio.create_task(client.send_data(put, b"second"))
            await asyncio.sleep(0)
            second.cancel()
            with pytest.raises(asyncio.CancelledError):
                await second
            released.set()
            await first

    server.answers = [answer()]
    asyncio.run(work())
    assert [seen.body for seen in server.seen] == [b"x"]


def test_a_cancelled_transfer_that_is_not_connected_yet_is_never_made(server: Any) -> None:
    opened, released = threading.Event(), threading.Event()

    def pieces() -> Iterator[bytes]:
        opened.set()
        released.wait(20)
        yield b"x"

    async def work() -> None:
        async with AsyncTableClient(server.url) as client:
            empty = Body(body_of(pieces).open, 0, replayable=True)  # looked at before a connection is made
            upload = asyncio.create_task(client.send_data(Initiation("j", SecretUrl(f"{server.url}/put")), empty))
            await asyncio.to_thread(opened.wait, 20)
            upload.cancel()
            await asyncio.sleep(0)
            released.set()
            with pytest.raises(asyncio.CancelledError):
                await upload

    asyncio.run(work())
    server.stop()
    assert server.seen == []


def test_a_connection_that_is_reset_keeps_what_came(server: Any, answer: Any, ready: bytes, fetch: Fetch) -> None:
    whole = answer(200, LARGE, ETAG, RANGES)
    seen: list[Progress] = []

    def reset() -> Iterator[bytes]:
        yield whole[: 2 * CHUNK]
        server.reset()

    server.answers = [ready, reset, ready, answer(200, LARGE)]

    assert fetch(server, progress=seen.append) == LARGE


# ---- patience


@pytest.mark.parametrize("name", ["connect", "read", "write", "commit", "transfer", "download", "minimum_rate"])
@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_a_time_that_is_none_is_refused(name: str, value: float) -> None:
    with pytest.raises(errors.ValidationFailed, match=name):
        Timeouts(**{name: value})


def test_no_time_at_all_is_refused_but_any_rate_may_do() -> None:
    with pytest.raises(errors.ValidationFailed, match="read is a number above zero"):
        Timeouts(read=0)
    assert Timeouts(minimum_rate=0).minimum_rate == 0


def test_a_call_waits_for_an_answer_as_long_as_it_is_told(server: Any, answer: Any) -> None:
    released = threading.Event()
    server.answers = [slowly(answer(), released=released)] * 3
    with (
        TableClient(server.url, timeouts=Timeouts(read=0.1)) as client,
        pytest.raises(errors.TransportFailed, match="ReadTimeout"),
    ):
        client.truncate("t")
    released.set()


def test_a_call_whose_answer_drips_is_given_up(server: Any, answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "LONGEST_CALL", 0.2)
    over = threading.Event()

    def drip() -> Iterator[bytes]:
        yield from (bytes([byte]) for byte in answer(200, bytes(1000)) if not over.wait(0.01))

    server.answers = [drip] * 3
    with TableClient(server.url) as client, pytest.raises(errors.TransportFailed, match="not done within"):
        client.truncate("t")
    over.set()


def test_a_store_may_take_its_time_to_commit_an_upload(server: Any, answer: Any) -> None:
    timer = threading.Event()

    def late() -> bytes:
        timer.wait(0.4)
        return bytes(answer())

    server.answers = [late]
    with TableClient(server.url, timeouts=Timeouts(read=0.1, commit=20)) as client:
        client.send_data(Initiation("j", SecretUrl(f"{server.url}/put?sig=1")), b"abc")
    assert server.seen[0].whole


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """A stopwatch that only the test moves."""
    now = [100.0]
    monkeypatch.setattr("airflow_tds.client.progress.time.monotonic", lambda: now[0])

    def move(seconds: float) -> None:
        now[0] += seconds

    return move


def test_a_transfer_below_the_minimum_rate_is_given_up_after_half_a_minute(clock: Callable[[float], None]) -> None:
    meter = Meter("download", "job j", minimum_rate=1024.0)
    for _ in range(29):
        clock(1.0)
        meter.count(1000)
    clock(1.0)

    with pytest.raises(errors.TransportFailed, match=r"download, job j: 1000 B/s, less than .* 1\.0 KiB/s"):
        meter.count(1000)


def test_a_transfer_is_judged_by_its_last_half_minute(clock: Callable[[float], None]) -> None:
    meter = Meter("download", "job j", minimum_rate=1024.0)
    clock(30.0)
    meter.count(1 << 30)
    clock(30.0)

    with pytest.raises(errors.TransportFailed):
        meter.count(1000)


def test_the_time_of_source_and_sink_is_not_held_against_the_network(clock: Callable[[float], None]) -> None:
    meter = Meter("put", "job j", minimum_rate=1024.0)
    for _ in range(100):
        clock(3600.0)
        meter.resume()
        clock(0.1)
        meter.count(1000)


def test_a_store_that_drips_is_given_up(
    server: Any, answer: Any, ready: bytes, fetch: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "RATE_WINDOW", 0.2)
    monkeypatch.setattr(queries, "TRANSFER_TRIES", 2)

    def drip() -> Iterator[bytes]:
        yield b"HTTP/1.1 200 X\r\nContent-Length: 1000000\r\n\r\n"
        while True:
            time.sleep(0.01)
            yield b"x"

    server.answers = [ready, drip, ready, drip]

    with pytest.raises(errors.TransportFailed, match=r"less than the minimum rate of 64\.0 KiB/s"):
        fetch(server, timeouts=Timeouts(minimum_rate=65536))
    assert len(asked(server)) == 2


# ---- progress


def test_an_upload_is_reported_to_its_end(
    server: Any, answer: Any, monkeypatch: pytest.MonkeyPatch, send_data: Callable[..., None]
) -> None:
    monkeypatch.setattr(progress, "REPORTED_EVERY", 0.0)
    server.answers = [answer()]
    seen: list[Progress] = []

    send_data(server, bytes(3 * CHUNK), seen.append)

    assert [one.done for one in seen] == [CHUNK, 2 * CHUNK, 3 * CHUNK, 3 * CHUNK]
    assert (seen[0].operation, seen[0].subject, seen[0].total) == ("put", "job j", 3 * CHUNK)
    assert [one.share for one in seen] == [pytest.approx(part) for part in (1 / 3, 2 / 3, 1, 1)]
    assert seen[-1].rate > 0


def test_an_upload_of_unknown_length_is_reported_without_a_share(
    server: Any, answer: Any, send_data: Callable[..., None]
) -> None:
    server.answers = [answer()]
    seen: list[Progress] = []

    send_data(server, iter([b"abc"]), seen.append)

    assert {(one.done, one.total, one.share) for one in seen} == {(3, None, None)}


@pytest.fixture(params=["blocking", "async"])
def send_data(request: pytest.FixtureRequest) -> Callable[..., None]:
    def blocking(server: Any, data: Any, report: Any) -> None:
        with TableClient(server.url, progress=report) as client:
            client.send_data(Initiation("j", SecretUrl(f"{server.url}/put?sig=1")), data)

    def awaited(server: Any, data: Any, report: Any) -> None:
        async def work() -> None:
            async with AsyncTableClient(server.url, progress=report) as client:
                await client.send_data(Initiation("j", SecretUrl(f"{server.url}/put?sig=1")), data)

        asyncio.run(work())

    return blocking if request.param == "blocking" else awaited


def test_a_resumed_download_is_reported_from_where_it_goes_on(
    server: Any, answer: Any, ready: bytes, fetch: Fetch
) -> None:
    rest = answer(206, b"def", "Content-Range: bytes 3-5/6", ETAG)
    server.answers = [ready, cut(answer(200, b"abcdef", ETAG, RANGES), 3), ready, rest]
    seen: list[Progress] = []

    fetch(server, progress=seen.append)

    assert [(one.operation, one.done, one.total) for one in seen] == [("download", 6, 6)]


def test_a_calls_answer_is_no_transfer(server: Any, answer: Any) -> None:
    server.answers = [answer()]
    seen: list[Progress] = []
    with TableClient(server.url, progress=seen.append) as client:
        client.truncate("t")
    assert seen == []


def test_a_long_transfer_is_logged_every_half_minute(
    clock: Callable[[float], None], caplog: pytest.LogCaptureFixture
) -> None:
    meter = Meter("download", "job j", total=4 << 20)
    with caplog.at_level(logging.INFO, "airflow_tds"):
        for _ in range(8):
            clock(15.0)
            meter.count(512 << 10)

    assert caplog.messages == [
        "download, job j: 1.0 MiB of 4.0 MiB (25%), 34.1 KiB/s",
        "download, job j: 2.0 MiB of 4.0 MiB (50%), 34.1 KiB/s",
        "download, job j: 3.0 MiB of 4.0 MiB (75%), 34.1 KiB/s",
        "download, job j: 4.0 MiB of 4.0 MiB (100%), 34.1 KiB/s",
    ]


def test_a_callback_hears_of_a_transfer_twice_a_second(clock: Callable[[float], None]) -> None:
    seen: list[Progress] = []
    meter = Meter("put", "job j", report=seen.append)
    for _ in range(10):
        clock(0.25)
        meter.count(1)

    assert [one.done for one in seen] == [2, 4, 6, 8, 10]


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1 << 20, "1.0 MiB"), (5 << 30, "5.0 GiB"), (5 << 40, "5120.0 GiB")],
)
def test_sizes_are_written_for_a_person(size: int, text: str) -> None:
    assert str(Progress("put", "job j", size, None, 1.0, 0.0)) == f"put, job j: {text}, 0 B/s"


def test_an_empty_transfer_is_done_and_has_no_rate_yet() -> None:
    seen: list[Progress] = []
    Meter("put", "job j", total=0, report=seen.append).end()

    assert seen[0].share == 1.0


def test_a_payload_that_goes_to_the_service_itself_is_reported_too(server: Any, answer: Any) -> None:
    server.answers = [answer(200, b'{"job_id": "j1"}')]
    wire = Wire.from_setting({"append": {"strategy": "direct"}})
    seen: list[Progress] = []
    with TableClient(server.url, wire=wire, progress=seen.append) as client:
        client.submit_append("t", b"abc")

    assert (seen[-1].operation, seen[-1].done, seen[-1].share) == ("append", 3, 1.0)
