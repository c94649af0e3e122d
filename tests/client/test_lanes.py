"""What a lane reads, over both of its carriers and real sockets."""

from __future__ import annotations

import asyncio
import io
import select
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sending import send_aiohttp, send_blocking, send_httpx

from airflow_tds.client import errors
from airflow_tds.client.access import Access, Timeouts, Tls
from airflow_tds.client.credentials import Bearer
from airflow_tds.client.downloads import Download
from airflow_tds.client.http.lanes import Lane, Over
from airflow_tds.client.messages import Reply, Request, SecretUrl

BEARER = Bearer("canary-token")
INFO = Request("info", "table t", "GET", "/tables/t/data/info")
#: An address that is nobody's here: only a proxy gets there.
ELSEWHERE = "http://service.invalid/api"

Read = Callable[[Access, Request], Reply]


@pytest.fixture(params=[send_httpx, send_aiohttp])
def read(request: pytest.FixtureRequest) -> Read:
    return lambda access, wanted: request.param(access, wanted)[0]


def test_a_lane_reads_with_credentials(server: Any, answer: Any, read: Read) -> None:
    server.answers = [answer(200, b'{"a": 1}')]

    assert read(Access(server.url, BEARER), INFO).content == b'{"a": 1}'
    assert server.seen[0].headers["authorization"] == "Bearer canary-token"


def test_both_carriers_send_the_same_fields(server: Any, answer: Any) -> None:
    server.answers = [answer(), answer()]
    for send in (send_httpx, send_aiohttp):
        send(Access(server.url, BEARER), INFO)

    first, second = ({k: v for k, v in seen.headers.items() if k != "x-request-id"} for seen in server.seen)
    assert first == second


def test_a_read_names_itself_in_the_log_of_the_service(server: Any, answer: Any, read: Read) -> None:
    server.answers = [answer()]

    assert read(Access(server.url), INFO).request_id == server.seen[0].headers["x-request-id"]


@pytest.mark.parametrize(
    "request_",
    [
        Request("truncate", "t", "POST", "/x"),
        Request("download", "job j", "GET", SecretUrl("http://127.0.0.1:1/"), sink=Download(io.BytesIO())),
    ],
    ids=["a change", "another host"],
)
def test_a_lane_reads_from_the_service_and_does_nothing_else(server: Any, read: Read, request_: Request) -> None:
    with pytest.raises(errors.ValidationFailed, match="only reads"):
        read(Access(server.url, BEARER), request_)


@pytest.mark.parametrize("raw", [b"", b"HTTP/1.1 200 X\r\nContent-Length: 9\r\n\r\nab"], ids=["no answer", "cut"])
def test_a_lane_that_breaks_does_not_know_what_became_of_its_read(server: Any, read: Read, raw: bytes) -> None:
    server.answers = [raw, raw]  # aiohttp asks twice

    with pytest.raises(errors.TransportFailed) as raised:
        read(Access(server.url), INFO)
    assert (raised.value.outcome, raised.value.__context__) == ("unknown", None)


def test_an_answer_that_does_not_come_ends_the_read(server: Any, read: Read) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(errors.TransportFailed) as raised:
        read(Access(f"http://127.0.0.1:{silent.getsockname()[1]}", timeouts=Timeouts(read=0.1)), INFO)

    assert raised.value.outcome == "unknown"


def test_an_answer_that_comes_in_drops_ends_the_read(read: Read) -> None:
    """What counts is the whole read: a drop now and then is no answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor() as threads:
        threads.submit(_drip, listener)
        with pytest.raises(errors.TransportFailed, match="TimeoutError") as raised:
            read(Access(f"http://127.0.0.1:{listener.getsockname()[1]}", timeouts=Timeouts(read=0.3)), INFO)

    assert raised.value.outcome == "unknown"


def _drip(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection, suppress(OSError):
        connection.sendall(b"HTTP/1.1 200 X\r\nContent-Length: 99999\r\n\r\n")
        while not select.select([connection], [], [], 0.01)[0] or connection.recv(4096):  # until the lane hangs up
            connection.sendall(b" ")


@pytest.mark.parametrize("over", ["httpx", "aiohttp"])
def test_each_read_of_a_lane_has_its_whole_time(server: Any, answer: Any, *, over: Over) -> None:
    """One timer serves read after read; whoever reads next must not end by the clock of the one before."""
    held = [threading.Event() for _ in range(3)]
    arrived = [threading.Event() for _ in range(3)]

    def waits(number: int) -> Callable[[], bytes]:
        def late() -> bytes:
            arrived[number].set()
            held[number].wait(60)
            return answer()  # type: ignore[no-any-return]  # a fixture

        return late

    server.answers = [waits(number) for number in range(3)]

    async def work() -> list[Any]:
        access = Access(server.url, timeouts=Timeouts(read=30.0))
        lane, loop, ahead = Lane(access, access.ssl_context(), over), asyncio.get_running_loop(), 0.0
        now = loop.time
        loop.time = lambda: now() + ahead  # type: ignore[method-assign]  # nobody waits for half a minute here
        found: list[Any] = []
        try:
            for number, (seconds, answered, idle) in enumerate([(20.0, True, 0), (20.0, True, 60), (35.0, False, 0)]):
                reading = asyncio.create_task(lane.read(INFO))
                await asyncio.to_thread(arrived[number].wait, 60)
                ahead += seconds
                await asyncio.to_thread(int)  # the loop looks at its clock
                if answered:
                    held[number].set()
                found += await asyncio.gather(reading, return_exceptions=True)
                ahead += idle
                await asyncio.to_thread(int)
            held[2].set()
        finally:
            await lane.close()
        return found

    first, second, third = asyncio.run(work())
    assert (first.status, second.status, third.outcome) == (200, 200, "unknown")


def test_a_connection_that_does_not_come_about_sent_nothing(read: Read) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(errors.TransportFailed) as raised:
        read(Access(f"https://127.0.0.1:{silent.getsockname()[1]}", timeouts=Timeouts(connect=0.1)), INFO)

    assert raised.value.outcome == "not_sent"


def test_a_lane_to_nowhere_sent_nothing(read: Read) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        nowhere = f"http://127.0.0.1:{listener.getsockname()[1]}"

    with pytest.raises(errors.TransportFailed) as raised:
        read(Access(nowhere), INFO)
    assert raised.value.outcome == "not_sent"


def test_a_lane_reads_no_more_of_an_error_page_than_its_beginning(server: Any, answer: Any, read: Read) -> None:
    server.answers = [answer(500, bytes(8 << 20))]

    assert len(read(Access(server.url), INFO).content) < 1 << 20


def test_a_lane_refuses_an_answer_without_end(server: Any, answer: Any, read: Read) -> None:
    server.answers = [answer(200, b"x" * 1001)]

    with pytest.raises(errors.UnexpectedReply, match="more than 1000 bytes"):
        read(Access(server.url), replace(INFO, largest=1000))


def test_a_lane_decodes_nothing(server: Any, answer: Any, read: Read) -> None:
    server.answers = [answer(502, b"\x1f\x8bnot gzip", "Content-Encoding: gzip")]

    assert read(Access(server.url), INFO).status == 502


def test_a_lane_follows_no_redirect(server: Any, answer: Any, read: Read) -> None:
    server.answers = [answer(307, b"", f"Location: {server.url}/elsewhere")]

    assert read(Access(server.url, BEARER), INFO).headers["location"] == f"{server.url}/elsewhere"
    assert len(server.seen) == 1


def test_a_lane_keeps_no_cookie(server: Any, answer: Any) -> None:
    server.answers = [answer(200, b"{}", "Set-Cookie: a=b"), answer()]

    send_aiohttp(Access(server.url), INFO, INFO)

    assert "cookie" not in server.seen[1].headers


# ---- certificates


def test_a_certificate_that_is_not_trusted_sent_nothing(secured: Any, read: Read) -> None:
    with pytest.raises(errors.TlsFailed, match="certificate verify failed") as raised:
        read(Access(secured.url, BEARER), INFO)
    assert raised.value.outcome == "not_sent"


def test_a_certificate_of_the_bundle_is_trusted(secured: Any, answer: Any, read: Read, certificate: Path) -> None:
    secured.answers = [answer()]

    assert read(Access(secured.url, BEARER, Tls(str(certificate))), INFO).status == 200


def test_a_certificate_for_another_name_is_refused(secured: Any, read: Read, certificate: Path) -> None:
    with pytest.raises(errors.TlsFailed, match="certificate verify failed"):
        read(Access(secured.url.replace("127.0.0.1", "localhost"), BEARER, Tls(str(certificate))), INFO)


# ---- proxies


@pytest.mark.parametrize("reader", [send_httpx, send_aiohttp, send_blocking])
@pytest.mark.parametrize("name", ["http_proxy", "all_proxy"])
@pytest.mark.parametrize("scheme", ["http://", ""])
def test_a_lane_takes_the_proxy_that_a_client_takes(
    server: Any, answer: Any, monkeypatch: pytest.MonkeyPatch, *, reader: Any, name: str, scheme: str
) -> None:
    monkeypatch.setenv(name, f"{scheme}127.0.0.1:{server.port}")
    server.answers = [answer()]

    assert reader(Access(ELSEWHERE), INFO)[0].status == 200
    assert server.seen[0].line == "GET http://service.invalid/api/tables/t/data/info HTTP/1.1"


def test_a_lane_leaves_the_proxy_out_where_the_environment_says_so(
    server: Any, answer: Any, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server.answers = [answer()]

    assert read(Access(server.url), INFO).status == 200


def test_a_lane_leaves_the_proxy_out_where_the_connection_says_so(
    server: Any, answer: Any, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    server.answers = [answer()]

    assert read(Access(server.url, proxy="none"), INFO).status == 200


def test_a_lane_takes_the_proxy_that_is_set_with_its_password(
    server: Any, answer: Any, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    server.answers = [answer()]

    assert read(Access(ELSEWHERE, proxy=f"http://me:pr0xy@127.0.0.1:{server.port}"), INFO).status == 200
    assert server.seen[0].headers["proxy-authorization"] == "Basic bWU6cHIweHk="


def test_what_a_proxy_refuses_does_not_show_its_password(read: Read, server: Any, answer: Any) -> None:
    server.answers = [answer(407)]
    access = Access("https://service.invalid", proxy=f"http://me:pr0xy@127.0.0.1:{server.port}")

    with pytest.raises(errors.TransportFailed) as raised:
        read(access, INFO)
    assert "pr0xy" not in repr(raised.value)
    assert "bWU6cHIweHk" not in repr(raised.value)


# ---- cancellation


@pytest.mark.parametrize("over", ["httpx", "aiohttp"])
def test_a_read_that_is_cancelled_leaves_its_lane_of_use(server: Any, answer: Any, *, over: Over) -> None:
    arrived, left = threading.Event(), threading.Event()

    def late() -> bytes:
        arrived.set()
        left.wait(60)
        return b""

    server.answers = [late, answer(), answer()]

    async def work() -> Reply:
        access = Access(server.url)
        lane = Lane(access, access.ssl_context(), over)
        try:
            reading = asyncio.create_task(lane.read(INFO))
            await asyncio.to_thread(arrived.wait, 60)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            left.set()
            return await lane.read(INFO)
        finally:
            await lane.close()

    assert asyncio.run(work()).status == 200
