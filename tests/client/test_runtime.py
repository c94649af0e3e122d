"""What goes over the wire, on both faces, over real sockets."""

import asyncio
import contextlib
import io
import random
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from sending import send_async, send_blocking

from airflow_tds.client import errors
from airflow_tds.client.access import Access, Timeouts, Tls
from airflow_tds.client.client import AsyncTableClient, TableClient
from airflow_tds.client.credentials import Bearer
from airflow_tds.client.downloads import Download
from airflow_tds.client.http import connections, written
from airflow_tds.client.messages import Reply, Request, SecretUrl
from airflow_tds.client.payloads import CHUNK, Body, body_of
from airflow_tds.client.runtime import AsyncRuntime, BlockingRuntime, finish
from airflow_tds.client.wire import Initiation
from airflow_tds.local import Service

Send = Callable[..., list[Reply]]
TOKEN = "canary-token"
BEARER = Bearer(TOKEN)


@pytest.fixture(params=[send_blocking, send_async], ids=["blocking", "async"])
def send(request: pytest.FixtureRequest) -> Send:
    found: Send = request.param
    return found


def get(**more: Any) -> Request:
    return Request("info", "table t", "GET", "/tables/t/data/info", **more)


def put(server: Any, data: Any, **more: Any) -> Request:
    body = data if isinstance(data, Body) else body_of(data)
    return Request("put", "job j", "PUT", SecretUrl(f"{server.url}/put?sig=s3cret"), body=body, **more)


def download(server: Any, sink: BinaryIO, **more: Any) -> Request:
    return Request("download", "job j", "GET", SecretUrl(f"{server.url}/get?sig=s3cret"), sink=Download(sink), **more)


# ---- what leaves


def test_a_call_carries_credentials_its_id_and_a_name(server: Any, answer: Any, send: Send) -> None:
    server.answers = [answer()]

    [reply] = send(Access(f"{server.url}/api/", BEARER), get())

    headers = server.seen[0].headers
    assert server.seen[0].line == "GET /api/tables/t/data/info HTTP/1.1"
    assert headers["authorization"] == f"Bearer {TOKEN}"
    assert headers["x-request-id"] == reply.request_id
    assert headers["user-agent"].startswith("airflow-tds/")
    assert headers["accept-encoding"] == "identity"
    assert (reply.status, reply.content, reply.received) == (200, b"{}", 2)


def test_a_client_without_credentials_sends_none(server: Any, answer: Any, send: Send) -> None:
    server.answers = [answer()]

    send(Access(server.url), get())

    assert "authorization" not in server.seen[0].headers


def test_a_json_body_is_sent(server: Any, answer: Any, send: Send) -> None:
    server.answers = [answer()]

    send(Access(server.url), Request("x", "t", "POST", "/x", json={"a": "ü"}))

    assert server.seen[0].body.decode() == '{"a":"ü"}'
    assert server.seen[0].headers["content-type"] == "application/json"


def test_nothing_of_ours_goes_to_a_presigned_url(server: Any, answer: Any, send: Send) -> None:
    server.answers = [answer(200, b"{}", "Set-Cookie: service=canary"), *[answer(200, b"", "Set-Cookie: a=canary")] * 3]
    sink = io.BytesIO()

    send(Access(server.url, BEARER), get(), put(server, b"abc"), download(server, sink), put(server, [b"abc"]))

    for seen in server.seen[1:]:
        assert set(seen.headers) <= {
            "host",
            "accept",
            "accept-encoding",
            "connection",
            "user-agent",
            "content-length",
            "transfer-encoding",
        }
        assert "canary" not in str(seen.headers)
        assert seen.headers.get("accept", "*/*") == "*/*"


def test_the_headers_that_came_with_a_presigned_url_are_sent_once(server: Any, answer: Any, send: Send) -> None:
    server.answers = [answer()]

    send(Access(server.url), put(server, b"abc", headers={"x-ms-blob-type": "BlockBlob", "user-agent": "theirs"}))

    assert server.seen[0].headers["x-ms-blob-type"] == "BlockBlob"
    assert server.seen[0].headers["user-agent"] == "theirs"


def test_a_known_length_is_announced(server: Any, answer: Any, send: Send, tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_bytes(bytes(3 * CHUNK + 7))
    server.answers = [answer()]

    send(Access(server.url), put(server, path))

    assert server.seen[0].headers["content-length"] == str(3 * CHUNK + 7)
    assert "transfer-encoding" not in server.seen[0].headers
    assert server.seen[0].body == path.read_bytes()


@pytest.mark.parametrize("data", [b"", b"x"])
def test_a_short_payload_is_sent_whole(server: Any, answer: Any, send: Send, data: bytes) -> None:
    server.answers = [answer()]

    send(Access(server.url), put(server, data))

    assert (server.seen[0].body, server.seen[0].headers["content-length"]) == (data, str(len(data)))


@pytest.mark.parametrize("data", [[], [b"a" * CHUNK, b"b"]])
def test_an_unknown_length_is_sent_in_chunks(server: Any, answer: Any, send: Send, data: list[bytes]) -> None:
    server.answers = [answer()]

    send(Access(server.url), put(server, data))

    assert server.seen[0].headers["transfer-encoding"] == "chunked"
    assert "content-length" not in server.seen[0].headers
    assert server.seen[0].body == b"".join(data)


@pytest.mark.parametrize("pieces", [1, 2, 3])
@pytest.mark.parametrize(
    ("length", "why"),
    [(lambda n: n - CHUNK, "grew beyond"), (lambda n: n - 1, "grew beyond"), (lambda n: n + 1, "had")],
)
def test_a_payload_that_is_not_as_long_as_announced_never_looks_whole(
    server: Any, send: Send, pieces: int, length: Callable[[int], int], why: str
) -> None:
    body = Body(body_of([b"x" * CHUNK] * pieces).open, length(pieces * CHUNK), replayable=False)

    with pytest.raises(errors.ValidationFailed, match=f"changed while it was sent: it {why}"):
        send(Access(server.url), put(server, body))
    server.stop()
    assert not [seen for seen in server.seen if seen.whole]


def test_an_error_of_the_payloads_source_comes_through_and_never_looks_whole(server: Any, send: Send) -> None:
    def broken() -> Iterator[bytes]:
        yield b"x" * CHUNK
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        send(Access(server.url), put(server, broken()))
    server.stop()
    assert not [seen for seen in server.seen if seen.whole]


def test_a_payloads_source_is_closed_when_its_put_fails_though_the_error_is_kept(server: Any, send: Send) -> None:
    closed: list[bool] = []

    def pieces() -> Iterator[bytes]:
        try:
            while True:
                yield b"x" * CHUNK
        finally:
            closed.append(True)

    with pytest.raises(errors.ValidationFailed) as kept:
        send(Access(server.url), put(server, Body(body_of(pieces).open, 3 * CHUNK, replayable=True)))
    assert (closed, kept.value.outcome) == ([True], "unknown")


# ---- what comes


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("kind", ["call", "put", "download"])
def test_a_redirect_is_not_followed(server: Any, answer: Any, send: Send, status: int, kind: str) -> None:
    server.answers = [answer(status, b"", f"Location: {server.url}/elsewhere")]
    request = {"call": get(), "put": put(server, b"x"), "download": download(server, io.BytesIO())}[kind]

    [reply] = send(Access(server.url, BEARER), request)

    assert (reply.status, reply.headers["location"]) == (status, f"{server.url}/elsewhere")
    assert len(server.seen) == 1


CHUNKED = b"3\r\nabc\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    ("body", "headers"),
    [(b"abc", ()), (CHUNKED, ("Transfer-Encoding: chunked",)), (b"abc", ("Content-Encoding: IDENTITY",))],
)
def test_a_result_is_poured_into_its_sink(
    server: Any, answer: Any, send: Send, body: bytes, headers: tuple[str, ...]
) -> None:
    server.answers = [answer(200, body, *headers)]
    sink = io.BytesIO()

    [reply] = send(Access(server.url), download(server, sink))

    assert (sink.getvalue(), reply.received, reply.content) == (b"abc", 3, b"")


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"abc", ("Content-Length: 4",)),
        (CHUNKED[:-5], ("Transfer-Encoding: chunked",)),
        (CHUNKED, ("Transfer-Encoding: chunked", "Content-Length: 4")),
        (b"zz\r\nabc", ("Transfer-Encoding: chunked",)),
    ],
)
def test_a_result_that_was_cut_is_a_failed_transfer(
    server: Any, answer: Any, send: Send, body: bytes, headers: tuple[str, ...]
) -> None:
    server.answers = [answer(200, body, *headers)]

    with pytest.raises(errors.TransportFailed) as raised:
        send(Access(server.url), download(server, io.BytesIO()))
    assert raised.value.outcome == "unknown"


@pytest.mark.parametrize(
    ("status", "headers", "why"),
    [
        (200, ("X-No-Length: 1",), "no length"),
        (206, (), "HTTP 206 is no whole result"),
        (202, (), "HTTP 202 is no whole result"),
        (200, ("Content-Encoding: gzip",), "gzip-encoded"),
    ],
)
def test_a_result_that_may_not_be_whole_is_refused(
    server: Any, answer: Any, send: Send, *, status: int, headers: tuple[str, ...], why: str
) -> None:
    server.answers = [answer(status, b"abc", *headers)]
    sink = io.BytesIO()

    with pytest.raises(errors.UnexpectedReply, match=why):
        send(Access(server.url), download(server, sink))
    assert sink.getvalue() == b""


def test_an_answer_that_is_encoded_unasked_is_refused(server: Any, answer: Any, send: Send) -> None:
    server.answers = [answer(200, b"\x1f\x8b", "Content-Encoding: gzip")]

    with pytest.raises(errors.UnexpectedReply, match="gzip-encoded although that was not asked for"):
        send(Access(server.url), get())


def test_an_encoded_error_page_is_still_its_status(server: Any, answer: Any, send: Send) -> None:
    server.answers = [answer(502, b"\x1f\x8b", "Content-Encoding: gzip")]

    [reply] = send(Access(server.url), get())

    assert (reply.status, reply.content) == (502, b"")


def test_an_error_of_the_store_is_kept_out_of_the_sink(server: Any, answer: Any, send: Send) -> None:
    server.answers = [answer(403, b"<Code>AccessDenied</Code>")]
    sink = io.BytesIO()

    [reply] = send(Access(server.url), download(server, sink))

    assert (reply.status, reply.content, sink.getvalue()) == (403, b"<Code>AccessDenied</Code>", b"")


@pytest.mark.parametrize(("largest", "text"), [(1000, "more than 1000 bytes$"), (17 << 20, "fewer rows at once$")])
def test_an_answer_without_end_is_refused(server: Any, answer: Any, send: Send, largest: int, text: str) -> None:
    server.answers = [answer(200, bytes(largest + 1))]

    with pytest.raises(errors.UnexpectedReply, match=text):
        send(Access(server.url), replace(get(), largest=largest))


def test_a_failure_names_the_request_as_the_service_knows_it(server: Any, send: Send) -> None:
    server.answers = [b"HTTP/1.1 200 X\r\nContent-Length: 9\r\n\r\ncut"]

    with pytest.raises(errors.TransportFailed) as raised:
        send(Access(server.url), get())
    assert str(raised.value).endswith(f"(request {server.seen[0].headers['x-request-id']})")


def test_a_payload_that_goes_to_the_service_itself_has_a_store_s_time(server: Any, answer: Any, send: Send) -> None:
    def late() -> bytes:
        time.sleep(0.6)
        return bytes(answer())

    server.answers = [late]
    patience = Timeouts(read=0.2, commit=60.0)
    direct = Request("append", "table t", "POST", "/tables/t/data", body=body_of(b"a\n1\n"))

    assert [reply.status for reply in send(Access(server.url, timeouts=patience), direct)] == [200]


def test_of_an_error_page_only_its_beginning_is_read(server: Any, answer: Any, send: Send) -> None:
    server.answers = [answer(500, bytes(8 << 20))]

    [reply] = send(Access(server.url), get())

    assert reply.status == 500
    assert 64 * 1024 < len(reply.content) < 1 << 20


# ---- what fails


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_a_connection_that_is_refused_sent_nothing(send: Send) -> None:
    with pytest.raises(errors.TransportFailed, match="info, table t: ConnectError") as raised:
        send(Access(f"http://127.0.0.1:{free_port()}"), get())
    assert raised.value.outcome == "not_sent"


@pytest.mark.parametrize("raw", [b"", b"HTTP/1.1 200", b"garbage\r\n\r\n"])
def test_an_answer_that_is_lost_leaves_all_open(server: Any, send: Send, raw: bytes) -> None:
    server.answers = [raw]

    with pytest.raises(errors.TransportFailed) as raised:
        send(Access(server.url), get())
    assert raised.value.outcome == "unknown"


def test_an_error_holds_neither_the_presigned_url_nor_what_http_said_of_it(server: Any, send: Send) -> None:
    with pytest.raises(errors.TransportFailed) as raised:
        send(Access(server.url), put(server, b"abc"))

    assert "s3cret" not in str(raised.value)
    assert (raised.value.__cause__, raised.value.__context__) == (None, None)


def test_a_header_that_cannot_be_sent_is_not_shown(server: Any, send: Send) -> None:
    for value in ("s3cret\nx", "s3crét", " s3cret", "s3cret\x00"):
        with pytest.raises(errors.ValidationFailed, match="header 'x-key' cannot be sent") as raised:
            send(Access(server.url), get(headers={"x-key": value}))
        assert "cr" not in str(raised.value)


def test_a_request_that_takes_longer_than_its_limit_is_given_up(server: Any, send: Send) -> None:
    def slow() -> Iterator[bytes]:
        for _ in range(3):
            threading.Event().wait(0.15)
            yield b"x" * CHUNK

    with pytest.raises(errors.TransportFailed, match="put, job j: not done within"):
        send(Access(server.url), put(server, slow(), limit=0.2))
    server.stop()
    assert not [seen for seen in server.seen if seen.whole]


def test_a_service_that_does_not_answer_within_the_limit_is_given_up(server: Any, answer: Any, send: Send) -> None:
    released = threading.Event()

    def late() -> bytes:
        released.wait(20)
        return bytes(answer())

    server.answers = [late]
    with pytest.raises(errors.TransportFailed, match="ReadTimeout"):
        send(Access(server.url), get(limit=0.5))
    released.set()


# ---- stopping


def test_a_stopped_runtime_sends_nothing(server: Any) -> None:
    world = BlockingRuntime(Access(server.url))
    world.stopping = True

    with pytest.raises(errors.Stopped) as stopped:
        finish(world.send(get()))
    server.stop()
    assert server.seen == []
    assert stopped.value.outcome == "not_sent"


def test_a_stop_while_the_answer_comes_says_that_the_request_may_have_been_processed(server: Any, answer: Any) -> None:
    world = BlockingRuntime(Access(server.url))

    def stopping() -> bytes:
        world.stopping = True
        return bytes(answer(200, b"{}"))

    server.answers = [stopping]
    with pytest.raises(errors.Stopped) as stopped:
        finish(world.send(get()))
    world.close()
    assert stopped.value.outcome == "unknown"


@pytest.mark.parametrize("length", [None, 3 * CHUNK])
def test_a_payload_that_is_stopped_never_looks_whole(server: Any, length: int | None) -> None:
    world = BlockingRuntime(Access(server.url))

    def pieces() -> Iterator[bytes]:
        for number in range(3):
            world.stopping = number == 2
            yield b"x" * CHUNK

    with pytest.raises(errors.Stopped) as stopped:
        finish(world.send(put(server, Body(body_of(pieces).open, length, replayable=True))))
    world.close()
    server.stop()
    assert not [seen for seen in server.seen if seen.whole]
    assert stopped.value.outcome == "unknown"


def test_a_payload_that_is_being_measured_can_be_stopped(server: Any) -> None:
    with TableClient(server.url) as client:

        def pieces() -> Iterator[bytes]:
            yield b"x" * CHUNK
            client.stop()
            yield b"x" * CHUNK
            pytest.fail("read on after the stop")

        with pytest.raises(errors.Stopped):
            client.send_data(Initiation("j", SecretUrl(f"{server.url}/x")), pieces(), unknown_length="spool")
    server.stop()
    assert server.seen == []


def test_a_pause_ends_when_told_to_stop() -> None:
    world = BlockingRuntime(Access("http://x"))
    timer = threading.Timer(0.05, setattr, (world, "stopping", True))
    timer.start()

    with pytest.raises(errors.Stopped):
        finish(world.pause(3600.0))
    timer.join()


def test_a_client_is_stopped_by_a_word(server: Any) -> None:
    with TableClient(server.url) as client:
        client.stop()
        with pytest.raises(errors.Stopped):
            client.info("t")


def test_pauses_pass(send: Send) -> None:
    world = BlockingRuntime(Access("http://x"))
    before = world.now()
    finish(world.pause(0.01))
    asyncio.run(AsyncRuntime(Access("http://x")).pause(0.01))

    assert world.now() - before >= 0.02


def test_a_cancelled_upload_gives_up_its_source_and_the_client_goes_on(server: Any, answer: Any) -> None:
    reading, closed = threading.Event(), threading.Event()

    def pieces() -> Iterator[bytes]:
        try:
            while True:
                yield b"x" * CHUNK
                reading.set()
        finally:
            closed.set()

    async def work() -> Reply:
        world = AsyncRuntime(Access(server.url))
        upload = asyncio.create_task(world.send(put(server, body_of(pieces))))
        await asyncio.to_thread(reading.wait, 20)
        upload.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await upload
        assert closed.is_set()
        try:
            return await world.send(get())
        finally:
            await world.close()

    server.answers = [b"", answer()]
    assert asyncio.run(work()).status == 200


def test_a_client_survives_any_number_of_cancelled_requests(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_AT_ONCE", 10)
    chance = random.Random(1)  # noqa: S311  # when each is cancelled

    async def work() -> list[Any]:
        async with AsyncTableClient(service.url, token=service.token) as client:
            for _ in range(40):
                reads = [asyncio.create_task(client.info("t")) for _ in range(25)]
                for one in reads:
                    asyncio.get_running_loop().call_later(chance.uniform(0, 0.05), one.cancel)
                await asyncio.gather(*reads, return_exceptions=True)
            async with asyncio.timeout(20):
                return await asyncio.gather(*[client.info("t") for _ in range(20)])

    assert len(asyncio.run(work())) == 20


# ---- addresses


@pytest.mark.parametrize(
    "base",
    [
        "",
        "host",
        "ftp://host",
        "http://",
        "http://host?x=1",
        "http://host#x",
        "http://user:s3cret@host",
        "http://:s3cret@host",
        "http://host:99999",
        "http://host:x",
        "http://[host",
        "http://ho st",
        "http://a..b",
        "http://" + "a" * 64 + ".com",
        "http://host\n",
        "http://host\\x",
    ],
)
def test_a_base_url_that_is_none_is_refused_without_its_secrets(base: str) -> None:
    for face in (TableClient, AsyncTableClient):
        with pytest.raises(errors.ValidationFailed, match="no service address") as raised:
            face(base)
        assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize("token", ["s3cret\n", "s3 cret", "s3crét", "\x00s3cret"])
def test_a_token_that_cannot_stand_in_a_header_is_refused_unseen(token: str) -> None:
    with pytest.raises(errors.ValidationFailed, match="token") as raised:
        TableClient("http://host", token=token)
    assert "cr" not in str(raised.value).replace("character", "")


def test_the_credentials_are_not_shown() -> None:
    assert repr(Access("http://host", BEARER)) == "Access('http://host', credentials=Bearer(***))"
    assert repr(Access("http://host")) == "Access('http://host', credentials=None)"


@pytest.mark.parametrize(
    "url",
    [
        "/relative?sig=1",
        "//host/x",
        "ftp://host/x",
        "file:///etc/passwd",
        "javascript:1",
        "http://",
        "http://user:pw@host/x",
        "http://@host/x",
        "http://host/x#y",
        "http://host:70000/x",
        "http://host/a/../b",
        "http://host/a b",
        "http://host/ü",
        'http://host/x?q="',
        "http://host/x\n",
        "http://[host/x",
        "http://xn--a/..",
        "http://host/" + "x" * 70_000,
    ],
)
def test_a_presigned_url_that_would_not_arrive_as_it_is_is_refused_before_anything_is_sent(
    send: Send, url: str
) -> None:
    with pytest.raises(errors.UnexpectedReply, match=r"presigned address .* is refused"):
        send(Access("http://host"), Request("put", "job j", "PUT", SecretUrl(url), body=body_of(b"")))


@pytest.mark.parametrize("base", ["https://host", "HTTPS://host"])
def test_a_service_over_https_is_never_left_for_http(send: Send, base: str) -> None:
    with pytest.raises(errors.UnexpectedReply, match="is refused"):
        send(Access(base), Request("put", "job j", "PUT", SecretUrl("http://host/x"), body=body_of(b"")))


@pytest.mark.parametrize(
    "url",
    [
        "https://b.s3.amazonaws.com/k%20k/x.csv?X-Amz-Credential=A%2F20260101%2Fs3&X-Amz-Signature=ab&x=a+b~c",
        "https://storage.googleapis.com/b/o?X-Goog-Signature=ab&X-Goog-SignedHeaders=host%3Bx",
        "https://a.blob.core.windows.net/c/b?sv=2024-01-01&se=2026-01-01T00%3A00%3A00Z&sig=a%2Bb%3D",
        "http://127.0.0.1:9000",
        "https://host/x?",
    ],
)
def test_presigned_urls_of_the_stores_in_use_pass_as_they_are(url: str) -> None:
    request = Request("put", "job j", "PUT", SecretUrl(url))

    assert written.address(Access("http://127.0.0.1"), request) == url


# ---- certificates


def test_a_certificate_that_is_not_trusted_sent_nothing(secured: Any, send: Send) -> None:
    with pytest.raises(errors.TransportFailed, match="certificate verify failed") as raised:
        send(Access(secured.url, BEARER), get())
    assert raised.value.outcome == "not_sent"


def test_a_certificate_of_the_bundle_is_trusted(secured: Any, answer: Any, send: Send, certificate: Path) -> None:
    secured.answers = [answer()]

    [reply] = send(Access(secured.url, BEARER, Tls(str(certificate))), get())

    assert reply.status == 200


def test_a_certificate_for_another_name_is_refused(secured: Any, send: Send, certificate: Path) -> None:
    with pytest.raises(errors.TransportFailed, match="certificate verify failed"):
        send(Access(secured.url.replace("127.0.0.1", "localhost"), BEARER, Tls(str(certificate))), get())


def test_a_bundle_that_cannot_be_read_is_named(send: Send, tmp_path: Path) -> None:
    with pytest.raises(errors.ValidationFailed, match="ca_bundle"):
        send(Access("https://127.0.0.1:1", tls=Tls(str(tmp_path / "none.pem"))), get())


# ---- memory

LARGE = 64 << 20


def peak(call: Callable[[], Any]) -> int:
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


class Counter(io.RawIOBase):
    """A sink that keeps only how much it got."""

    size = 0

    def write(self, piece: Any) -> int:
        self.size += len(piece)
        return len(piece)


def test_an_upload_takes_the_same_memory_whatever_its_size(
    server: Any, answer: Any, send: Send, tmp_path: Path
) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(LARGE)
    server.keep = False
    server.answers = [answer()]

    used = peak(lambda: send(Access(server.url), put(server, path)))

    assert server.seen[0].size == LARGE
    assert used < 8 << 20


def test_a_download_takes_the_same_memory_whatever_its_size(server: Any, answer: Any, send: Send) -> None:
    whole = answer(200, bytes(LARGE))
    server.answers = [whole]
    sink = Counter()

    used = peak(lambda: send(Access(server.url), download(server, sink)))  # type: ignore[arg-type]  # it can be written to

    assert sink.size == LARGE
    assert used < 8 << 20


# ---- the embedded service


def test_every_operation_works_against_a_real_service(service: Service, tmp_path: Path) -> None:
    service.create_table("blocking")
    with TableClient(service.url, token=service.token) as client:
        assert client.upload("blocking", "a,b\n1,x\n", poll_interval=0.05).status == "COMPLETED"
        client.append("blocking", (line for line in (b"a,b\n", b"2,y\n")), poll_interval=0.05)
        client.upsert("blocking", b'[{"a": 2, "b": "z"}]', "json", key_columns="a", poll_interval=0.05)
        query = {"table_id": "blocking", "format": "csv", "filters": {"field": "a", "operator": "gt", "value": 1}}
        assert client.cross_query(query, poll_interval=0.05) == b"a,b\n2,z\n"
        job_id = client.submit_cross_query(query)
        assert client.poll_download_to(job_id, tmp_path / "out.csv", poll_interval=0.05).read_bytes() == b"a,b\n2,z\n"
        with pytest.raises(errors.Conflict):
            client.submit_upload("blocking", b"a,b\n")
        client.truncate("blocking")
        assert client.wait_until_truncated("blocking", poll_interval=0.05).row_count == 0
        with pytest.raises(errors.JobFailed, match="no BIGINT"):
            client.append("blocking", "a,b\nx,y\n", poll_interval=0.05)


def test_every_operation_works_against_a_real_service_awaited(service: Service, tmp_path: Path) -> None:
    service.create_table("awaited")
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,x\n")

    async def work() -> None:
        async with AsyncTableClient(service.url, token=service.token) as client:
            await client.upload("awaited", path, poll_interval=0.05)
            await client.append("awaited", [b"a,b\n", b"2,y\n"], unknown_length="spool", poll_interval=0.05)
            await client.upsert("awaited", "a,b\n2,z\n", key_columns=["a"], poll_interval=0.05)
            result = await client.cross_query({"table_id": "awaited", "format": "csv"}, poll_interval=0.05)
            assert sorted(result.split()) == [b"1,x", b"2,z", b"a,b"]
            await client.truncate("awaited")
            assert (await client.wait_until_truncated("awaited", poll_interval=0.05)).row_count == 0

    asyncio.run(work())


def test_a_service_that_does_not_know_the_token_says_unauthorized(service: Service) -> None:
    with TableClient(service.url, token="another") as client, pytest.raises(errors.Unauthorized):
        client.info("t")


def test_an_id_with_every_kind_of_character_arrives_as_it_is(service: Service) -> None:
    name = "a/b?c#d%2e ü;&=+"
    service.create_table(name)

    with TableClient(service.url, token=service.token) as client:
        assert client.info(name).table_id == name  # type: ignore[attr-defined]  # kept from the reply
