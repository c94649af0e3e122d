"""What an attacker between us, or behind a presigned URL, would try: redirects, addresses, certificates, proxies."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import logging
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import httpx
import pytest
from certificates import Authority, presenting
from cryptography.x509.oid import ExtendedKeyUsageOID

from airflow_tds.client import errors
from airflow_tds.client.access import Access, Tls
from airflow_tds.client.calls import may_repeat
from airflow_tds.client.client import TableClient
from airflow_tds.client.credentials import Bearer
from airflow_tds.client.downloads import Download
from airflow_tds.client.http.connections import Reached
from airflow_tds.client.http.failures import failure
from airflow_tds.client.http.incoming import DIRECT_FROM
from airflow_tds.client.messages import Reply, Request, SecretUrl
from airflow_tds.client.models import CrossQueryRequest
from airflow_tds.client.payloads import body_of
from airflow_tds.client.runtime import AsyncRuntime, BlockingRuntime, finish
from airflow_tds.client.wire import Initiation, Wire

Send = Callable[..., Reply]
WIRE = Wire()
TOKEN = Bearer("canary-token")
INFO = WIRE.info_request("t")


def send_blocking(access: Access, request: Request) -> Reply:
    world = BlockingRuntime(access)
    try:
        return finish(world.send(request))
    finally:
        world.close()


def send_async(access: Access, request: Request) -> Reply:
    async def work() -> Reply:
        world = AsyncRuntime(access)
        try:
            return await world.send(request)
        finally:
            await world.close()

    return asyncio.run(work())


@pytest.fixture(params=[send_blocking, send_async], ids=["blocking", "async"])
def send(request: pytest.FixtureRequest) -> Send:
    found: Send = request.param
    return found


def put(url: str) -> Request:
    return WIRE.put_request(Initiation("j", SecretUrl(url)), body_of(b"abc"), limit=20.0)


def get(url: str) -> Request:
    return WIRE.download_request("j", SecretUrl(url), Download(io.BytesIO()))


# ---- redirects: 8 requests, 5 statuses, 8 targets, on both faces

REQUESTS: dict[str, Callable[[str], Request]] = {
    "info": lambda _: INFO,
    "get_job": lambda _: WIRE.job_request("j"),
    "initiate": lambda _: WIRE.initiate_request("append", "t", "csv", None),
    "truncate": lambda _: WIRE.truncate_request("t"),
    "start_query": lambda _: WIRE.start_query_request(CrossQueryRequest(table_id="t")),
    "poll_query": lambda _: WIRE.poll_request("j"),
    "put": put,
    "download": get,
}


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("kind", REQUESTS)
def test_no_redirect_is_followed_wherever_it_leads(
    server: Any, answer: Any, send: Send, *, kind: str, status: int
) -> None:
    request = REQUESTS[kind](f"{server.url}/store?sig=1")
    targets = [
        f"Location: {server.url}/elsewhere",
        "Location: /relative",
        f"Location: http://localhost:{server.port}/other-host",
        "Location: http://127.0.0.1:1/other-port",
        "Location: https://127.0.0.1/other-scheme",
        "Location: javascript:1",
        "Location: ",
        "X-No-Location: 1",
    ]
    for number, target in enumerate(targets, start=1):
        server.answers = [answer(status, b"", target), answer()]

        reply = send(Access(server.url, TOKEN), request)

        assert (reply.status, len(server.seen)) == (status, number)
        followed_by_hand = kind == "poll_query" and status == 307
        assert (WIRE.error(request, reply) is None) == followed_by_hand


# ---- the address that a presigned URL leads to

PUBLIC = "http://8.8.8.8"


@pytest.mark.parametrize(
    "host",
    [
        *["127.0.0.1", "127.1", "2130706433", "0x7f.1", "0x7f000001", "0177.0.0.1", "[::1]", "[::ffff:127.0.0.1]"],
        *["[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "10.0.0.1", "172.16.0.1", "192.168.1.1"],
        *["100.64.0.1", "100.100.100.200", "[fd00:ec2::254]", "[fc00::1]", "0.0.0.0", "0", "[::]", "255.255.255.255"],  # noqa: S104  # an address that is refused
    ],
)
def test_a_public_service_does_not_lead_us_into_our_own_network(send: Send, host: str) -> None:
    with pytest.raises(errors.UnexpectedReply, match="refused"):
        send(Access(PUBLIC), put(f"http://{host}:1/x?sig=1"))


@pytest.mark.parametrize(
    "host",
    [
        *["169.254.169.254", "2852039166", "0xa9fea9fe", "0xa9.254.43518", "[::ffff:169.254.169.254]", "169.254.1"],
        *["[::ffff:a9fe:a9fe]", "[64:ff9b::a9fe:a9fe]", "[fe80::1]", "0.0.0.0", "[::]", "224.0.0.1", "[ff02::1]"],  # noqa: S104  # same
    ],
)
def test_no_service_leads_us_to_a_clouds_own_credentials(send: Send, host: str) -> None:
    with pytest.raises(errors.UnexpectedReply, match="no place for an object store"):
        send(Access("http://127.0.0.1"), put(f"http://{host}:1/x?sig=1"))


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Names and the addresses that they lead to."""
    known: dict[str, str] = {}
    look_up = socket.getaddrinfo

    def found(host: Any, *args: Any, **kwargs: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        return look_up(known.get(name, name), *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", found)
    return known


def test_a_name_that_leads_into_our_own_network_is_refused_once_connected_and_before_anything_is_sent(
    server: Any, send: Send, names: dict[str, str]
) -> None:
    names["store.example"] = "127.0.0.1"

    with pytest.raises(errors.UnexpectedReply, match=r"store\.example/.* leads to 127\.0\.0\.1") as raised:
        send(Access(PUBLIC), put(f"http://store.example:{server.port}/x?sig=s3cret"))
    server.stop()
    assert server.seen == []
    assert "s3cret" not in str(raised.value)


def test_a_service_of_ones_own_network_may_have_its_store_there(
    server: Any, answer: Any, send: Send, names: dict[str, str]
) -> None:
    names["store.example"] = "127.0.0.1"
    names["service.example"] = "10.1.2.3"
    server.answers = [answer()]

    assert send(Access("http://service.example"), put(f"http://store.example:{server.port}/x")).status == 200


def test_a_service_whose_name_is_not_known_here_is_taken_for_a_public_one(
    send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: Any, **__: Any) -> None:
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(errors.UnexpectedReply, match="no place for an object store"):
        send(Access("http://service.example"), put("http://127.0.0.1/x"))


@pytest.mark.parametrize(
    ("host", "passes"),
    [
        ("s3.example.com", True),
        ("bucket.s3.example.com", True),
        ("S3.EXAMPLE.COM", True),
        ("evils3.example.com", False),
        ("s3.example.com.evil", False),
        ("example.com", False),
    ],
)
def test_a_list_of_stores_is_kept_to(host: str, *, passes: bool) -> None:
    access = Access("https://host", storage_hosts=("s3.Example.com",))

    with contextlib.nullcontext() if passes else pytest.raises(errors.UnexpectedReply, match="is refused"):
        assert access.address(put(f"https://{host}/x")) == f"https://{host}/x"


@pytest.mark.parametrize(("size", "passes"), [(8192, True), (8193, False)])
def test_a_presigned_url_may_be_as_long_as_servers_take(size: int, *, passes: bool) -> None:
    url = "https://host/?sig=".ljust(size, "x")
    with contextlib.nullcontext() if passes else pytest.raises(errors.UnexpectedReply, match="is refused"):
        assert Access("https://host").address(put(url)) == url


@pytest.mark.parametrize(
    "base", ["http://host:0", "http://host/?x", "http://host@evil", "http://host#@evil", "//host", "http:host"]
)
def test_a_base_url_does_not_lead_elsewhere(base: str) -> None:
    with pytest.raises(errors.ValidationFailed, match="no service address"):
        TableClient(base)


# ---- logs


@pytest.fixture
def loud(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Let everything be logged, whatever a host such as Airflow has set before."""
    for name in ("", "httpx", "httpcore", "httpcore.http11", "httpcore.connection"):
        caplog.set_level(logging.DEBUG, name)
        logging.getLogger(name).disabled = False
    return caplog


def test_no_log_shows_a_presigned_url(server: Any, answer: Any, send: Send, loud: pytest.LogCaptureFixture) -> None:
    server.answers = [answer(307, b"", f"Location: {server.url}/store?X-Amz-Signature=s3cret")]
    send(Access(server.url, TOKEN), WIRE.poll_request("j"))
    for request in (put, get):
        server.answers = [answer(200, b"abc", "Location: http://x/y?sig=s3cret")]
        send(Access(server.url, TOKEN), request(f"{server.url}/store?X-Amz-Signature=s3cret"))

    assert any(record.name == "httpx" for record in loud.records)
    assert "?<redacted>" in loud.text
    assert "s3cret" not in loud.text
    assert "canary-token" not in loud.text


def test_what_others_log_of_httpx_stays_as_it_is(loud: pytest.LogCaptureFixture) -> None:
    logging.getLogger("httpx").info("HTTP Request: GET %s", "http://host/x?page=2")

    assert "page=2" in loud.text


# ---- answers


@pytest.mark.parametrize(
    "body",
    [
        b'{"status": "COMPLETED", "status": "FAILED"}',
        b'{"status": "QUEUED", "more": [{"a": 1, "a": 1}]}',
        b'{"status": "QUEUED", "st\\u0061tus": "FAILED"}',
        b"[" * 100_000,
        b'{"status": NaN}',
        '{"status": "QUEUED"}'.encode("utf-16"),
        b'\xef\xbb\xbf{"status": "QUEUED"}',
        b'{"status": "\xff"}',
    ],
)
@pytest.mark.parametrize("read", [WIRE.read_job, WIRE.read_poll])
def test_a_job_that_can_be_read_in_two_ways_is_not_read(read: Callable[[Reply], object], body: bytes) -> None:
    with pytest.raises(errors.UnexpectedReply):
        read(Reply(200, content=body))


# ---- certificates


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"))


def secure(server: Any, certificate: str, asks: str | None = None) -> ssl.SSLContext:
    context = presenting(certificate, asks)
    server.context = context
    return context


@pytest.mark.parametrize("size", [2, DIRECT_FROM * 2])
def test_a_result_of_a_trusted_store_arrives(
    server: Any, answer: Any, send: Send, authority: Authority, size: int
) -> None:
    secure(server, authority.issue("good"))
    body = bytes(range(256)) * (size // 256) + b"xy"
    server.answers = [answer(200, body)]
    sink = io.BytesIO()

    request = WIRE.download_request("j", SecretUrl(f"{server.url}/x?sig=1"), Download(sink))
    send(Access(server.url, tls=Tls(authority.bundle)), request)

    assert sink.getvalue() == body


@pytest.mark.parametrize("kind", ["info", "put", "download"])
@pytest.mark.parametrize(
    ("days", "usage", "why"),
    [
        ((-2, -1), None, "certificate has expired"),
        ((1, 2), None, "certificate is not yet valid"),
        ((-1, 1), ExtendedKeyUsageOID.CLIENT_AUTH, "(unsuitable|unsupported) certificate purpose"),
    ],
)
def test_a_certificate_that_does_not_hold_is_named(
    server: Any, send: Send, authority: Authority, *, days: tuple[int, int], usage: Any, why: str, kind: str
) -> None:
    secure(server, authority.issue("bad", days, usage))

    with pytest.raises(errors.TlsFailed, match=why) as raised:
        send(Access(server.url, TOKEN, Tls(authority.bundle)), REQUESTS[kind](f"{server.url}/x?sig=s3cret"))
    assert raised.value.outcome == "not_sent"
    assert "s3cret" not in str(raised.value)
    assert server.seen == []


def test_a_certificate_of_a_stranger_is_refused_at_once(
    server: Any, authority: Authority, stranger: Authority, tmp_path: Path
) -> None:
    secure(server, stranger.issue("stranger"))

    with TableClient(server.url, tls=Tls(authority.bundle)) as client:
        for call in (lambda: client.info("t"), lambda: client.poll_download_to("j", tmp_path / "out")):
            with pytest.raises(errors.TlsFailed, match="certificate verify failed"):
                call()
    assert not may_repeat(INFO, errors.TlsFailed("untrusted", outcome="not_sent"))


def test_a_store_that_is_not_trusted_ends_the_download_at_once(
    server: Any, answer: Any, authority: Authority, stranger: Authority, tmp_path: Path
) -> None:
    secure(server, authority.issue("good"))
    server.answers = [answer(307, b"", f"Location: {server.url}/x?sig=1")]
    tls, storage_tls = Tls(authority.bundle), Tls(stranger.bundle)

    with (
        TableClient(server.url, tls=tls, storage_tls=storage_tls) as client,
        pytest.raises(errors.TlsFailed, match="download, job j"),
    ):
        client.poll_download_to("j", tmp_path / "out", poll_interval=0.01)


def test_certificates_are_read_once_for_service_and_store() -> None:
    access = Access("https://host")

    assert access.ssl_context() is access.storage_context()


@pytest.mark.parametrize("apart", [{"storage_tls": Tls(insecure=True)}, {"tls": Tls(insecure=True)}])
def test_whoever_is_checked_otherwise_has_a_check_of_its_own(apart: Any) -> None:
    access = Access("https://host", **apart)

    assert access.ssl_context() is not access.storage_context()


def test_a_store_may_be_trusted_by_another_authority_than_the_service(
    server: Any, answer: Any, authority: Authority, stranger: Authority, tmp_path: Path
) -> None:
    contexts = iter([presenting(authority.issue("service")), presenting(stranger.issue("store"))])
    server.context = next(contexts)

    def moved() -> bytes:
        server.context = next(contexts)  # the same port, and somebody else behind it
        return bytes(answer(307, b"", f"Location: {server.url}/x?sig=1"))

    server.answers = [moved, answer(200, b"abc")]
    with TableClient(server.url, tls=Tls(authority.bundle), storage_tls=Tls(stranger.bundle)) as client:
        assert client.poll_download_to("j", tmp_path / "out").read_bytes() == b"abc"


def test_a_server_without_tls_is_no_partner(server: Any, send: Send) -> None:
    with pytest.raises(errors.TransportFailed) as raised:
        send(Access(server.url.replace("http:", "https:")), INFO)
    assert raised.value.outcome == "not_sent"


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_tls_below_1_2_is_refused(server: Any, send: Send, authority: Authority) -> None:
    context = secure(server, authority.issue("old"))
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1

    with pytest.raises(errors.TransportFailed) as raised:
        send(Access(server.url, TOKEN, Tls(authority.bundle)), INFO)
    assert (raised.value.outcome, server.seen) == ("not_sent", [])


def test_the_service_sees_our_certificate_and_the_store_does_not(
    server: Any, answer: Any, send: Send, authority: Authority
) -> None:
    secure(server, authority.issue("asks"), asks=authority.bundle)
    server.answers = [answer()]
    access = Access(server.url, tls=Tls(authority.bundle, authority.issue("me")))

    assert send(access, INFO).status == 200
    with pytest.raises(errors.TransportFailed):
        send(access, put(f"{server.url}/x?sig=1"))
    assert len(server.seen) == 1


def test_a_service_that_misses_our_certificate_is_not_asked_again(
    server: Any, send: Send, authority: Authority
) -> None:
    context = secure(server, authority.issue("asks"), asks=authority.bundle)
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # 1.3 refuses after the handshake, and a reset may overtake it

    with pytest.raises(errors.TlsFailed, match=r"(?i)handshake|certificate"):
        send(Access(server.url, tls=Tls(authority.bundle)), INFO)


class Strict:
    """A server that asks for a certificate by TLS 1.3; it reads on, so that its refusal is not lost in a reset."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"https://127.0.0.1:{self._listener.getsockname()[1]}"
        self.handshakes: list[str] = []
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                connection.settimeout(20)
                secured = self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
                with secured, contextlib.suppress(TimeoutError):
                    try:
                        secured.do_handshake()
                    except ssl.SSLError as refused:
                        self.handshakes.append(str(refused.reason))
                    socket.socket.shutdown(secured, socket.SHUT_WR)
                    while socket.socket.recv(secured, 65536):
                        pass


@pytest.mark.parametrize("mine", [None, "a stranger's"])
def test_a_certificate_of_ours_that_is_refused_after_the_handshake_is_final(
    send: Send, authority: Authority, tmp_path: Path, mine: str | None
) -> None:
    context = secure(SimpleNamespace(), authority.issue("asks"), asks=authority.bundle)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    own = Authority(tmp_path).issue("stranger") if mine else None

    with Strict(context) as server, pytest.raises(errors.TlsFailed, match=r"(?i)certificate|unknown ca") as raised:
        send(Access(server.url, tls=Tls(authority.bundle, own)), INFO)
    assert not may_repeat(INFO, raised.value)
    assert len(server.handshakes) == 1


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", errors.TlsFailed),
        ("TLSV1_ALERT_UNKNOWN_CA", errors.TlsFailed),
        ("DECRYPTION_FAILED_OR_BAD_RECORD_MAC", errors.TransportFailed),
    ],
)
def test_after_the_handshake_only_words_about_certificates_are_final(reason: str, kind: type[Exception]) -> None:
    found = ssl.SSLError(1, f"[SSL: {reason}]")
    found.reason = reason
    broken = httpx.ReadError("")
    broken.__cause__ = found

    assert type(failure(INFO, broken)) is kind


def test_a_handshake_that_breaks_off_may_be_tried_again() -> None:
    broken = httpx.ConnectError("")
    broken.__cause__ = ssl.SSLEOFError(8, "EOF occurred in violation of protocol")

    assert type(failure(INFO, broken)) is errors.TransportFailed


def test_a_key_with_a_password_is_used(server: Any, answer: Any, send: Send, authority: Authority) -> None:
    secure(server, authority.issue("asks"), asks=authority.bundle)
    server.answers = [answer()]
    mine = authority.issue("locked", password=b"s3cret")

    assert send(Access(server.url, tls=Tls(authority.bundle, mine, mine, "s3cret")), INFO).status == 200


@pytest.mark.parametrize("password", [None, "wr0ng"])
def test_a_key_that_stays_locked_is_named_and_nobody_is_asked(
    send: Send, authority: Authority, password: str | None
) -> None:
    tls = Tls(client_certificate=authority.issue("locked", password=b"s3cret"), client_key_password=password)

    with pytest.raises(errors.ValidationFailed, match=r"client_certificate .*locked\.pem") as raised:
        send(Access("https://127.0.0.1:1", tls=tls), INFO)
    assert "wr0ng" not in str(raised.value) + repr(tls)


def test_checking_nothing_is_possible_and_said_each_time(
    server: Any, answer: Any, send: Send, stranger: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    secure(server, stranger.issue("stranger"))
    for _ in range(2):
        server.answers = [answer()]
        assert send(Access(server.url, tls=Tls(insecure=True)), INFO).status == 200

    assert caplog.messages.count("the certificate of 127.0.0.1 is not checked: insecure_tls is set") == 2


def test_the_file_of_the_environment_is_trusted(
    server: Any, answer: Any, send: Send, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", authority.bundle)
    secure(server, authority.issue("good"))
    server.answers = [answer()]

    assert send(Access(server.url), INFO).status == 200


# ---- proxies


def through(server: Any) -> str:
    return f"http://me:pr0xy@127.0.0.1:{server.port}"


def test_a_proxy_is_taken_for_service_and_store(server: Any, answer: Any, send: Send) -> None:
    server.answers = [answer(), answer()]
    access = Access("http://8.8.8.8/api", TOKEN, proxy=through(server))

    send(access, INFO)
    send(access, put("http://store.example/x?sig=1"))

    assert [seen.line.split()[1] for seen in server.seen] == [
        "http://8.8.8.8/api/tables/t/data/info",
        "http://store.example/x?sig=1",
    ]
    pair = base64.b64encode(b"me:pr0xy").decode()
    assert [seen.headers["proxy-authorization"] for seen in server.seen] == [f"Basic {pair}"] * 2
    assert "authorization" not in server.seen[1].headers


def test_behind_a_proxy_an_address_is_still_judged(server: Any, send: Send) -> None:
    with pytest.raises(errors.UnexpectedReply, match="no place for an object store"):
        send(Access(PUBLIC, proxy=through(server)), put("http://169.254.169.254/x"))
    assert server.seen == []


@pytest.mark.parametrize("status", [407, 502])
@pytest.mark.parametrize("request_of", [lambda: INFO, lambda: put("https://store.example/x?sig=s3cret")])
def test_a_proxy_that_refuses_has_seen_no_credentials_of_the_service(
    server: Any, answer: Any, send: Send, *, status: int, request_of: Callable[[], Request]
) -> None:
    server.answers = [answer(status)]

    with pytest.raises(errors.TransportFailed) as raised:
        send(Access("https://8.8.8.8", TOKEN, proxy=through(server)), request_of())
    assert raised.value.outcome == "not_sent"
    assert server.seen[0].line.startswith("CONNECT ")
    assert "authorization" not in server.seen[0].headers
    assert not {"pr0xy", "s3cret", "canary-token"} & set(str(raised.value).split())


@pytest.mark.parametrize("name", ["proxy", "storage_proxy"])
def test_a_proxy_that_is_no_address_is_refused_unseen(name: str) -> None:
    proxy: Any = {name: "me:pr0xy@host"}
    with pytest.raises(errors.ValidationFailed, match=f"{name} is no address") as raised:
        Access("http://host", **proxy).check()
    assert "pr0xy" not in str(raised.value)


@pytest.mark.parametrize("name", ["proxy", "storage_proxy"])
def test_no_proxy_means_not_even_the_environments(
    server: Any, answer: Any, send: Send, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    server.answers = [answer()]
    request = INFO if name == "proxy" else put(f"{server.url}/x")

    proxy: Any = {name: "none"}

    assert send(Access(server.url, **proxy), request).status == 200


def test_a_store_may_have_a_proxy_of_its_own(server: Any, answer: Any, send: Send) -> None:
    server.answers = [answer(), answer()]
    access = Access(server.url, storage_proxy=through(server))

    send(access, INFO)
    send(access, put("http://store.example/x"))

    assert [seen.line.split()[1] for seen in server.seen] == ["/tables/t/data/info", "http://store.example/x"]


def test_a_proxy_is_not_shown() -> None:
    assert "pr0xy" not in repr(Access("http://host", proxy="http://me:pr0xy@host"))


class LostStream:
    """What httpcore hands on for a connection that the other side has closed already."""

    closed = False

    def get_extra_info(self, name: str) -> Any:
        with socket.socket() as unconnected:
            return unconnected.getpeername()

    def close(self) -> None:
        self.closed = True


def test_a_connection_lost_as_soon_as_it_is_made_counts_as_none() -> None:
    request = Request("put", "job j1", "PUT", SecretUrl("http://127.0.0.1:1/payload?signature=s"))
    reached, stream = Reached(Access("http://127.0.0.1"), request, lambda: None), LostStream()
    reached("connection.connect_tcp.started", {"host": "127.0.0.1"})

    with pytest.raises(httpx.ConnectError, match="lost"):
        reached("connection.connect_tcp.complete", {"return_value": stream})
    assert stream.closed
