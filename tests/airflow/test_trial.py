"""What the Test button says of a connection: what it reached and as whom, or the one thing to change."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority
from other_service import KEY, KEY_HEADER, Sheet, other_service
from stand_in import Answer, Manners, stand_in

from airflow_tds.hooks import TdsHook
from airflow_tds.local import Rights, Service

TOKEN = "sec/ret+token="
OTHER_WIRE = json.loads((Path(__file__).parents[1] / "support" / "other_wire.json").read_text())


def tried(monkeypatch: pytest.MonkeyPatch, host: str, password: str = TOKEN, **extra: Any) -> tuple[bool, str]:
    """Try a connection, and see that no answer shows its secret."""
    fields = {"conn_type": "tds", "host": host, "password": password, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_TRIED", json.dumps(fields))
    passed, text = TdsHook("tried").test_connection()
    assert not password or password not in text
    assert "\n" not in text
    return passed, text


def judged(monkeypatch: pytest.MonkeyPatch, manners: Manners) -> tuple[bool, str]:
    """Try a connection to a server of some manners; the address is left out of what is said."""
    with stand_in(manners) as url:
        passed, text = tried(monkeypatch, url)
    return passed, text.removeprefix(f"{url} ")


def test_it_says_what_it_reached_and_as_whom(service: Service) -> None:
    assert TdsHook().test_connection() == (True, f"{service.url} lets us in as whoever has the token")


def test_whoever_has_a_login_is_named(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "AIRFLOW_CONN_NAMED",
        json.dumps(
            {"conn_type": "tds", "host": service.url, "login": "ada", "password": service.token}
            | {"extra": {"auth": "bearer"}}
        ),
    )

    assert TdsHook("named").test_connection() == (True, f"{service.url} lets us in as ada")


def test_a_service_that_does_everything_otherwise_is_known_by_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    with other_service(t=Sheet()) as other:
        said = tried(monkeypatch, other.url, KEY, api_key_header=KEY_HEADER, wire=OTHER_WIRE)

        assert said == (True, f"{other.url} lets us in as whoever has the API key")


def test_a_wrong_token(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tried(monkeypatch, service.url, "not-the-token") == (
        False,
        f"{service.url} does not let us in as whoever has the token: HTTP 401; check the credentials",
    )


def test_no_token(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    passed, text = tried(monkeypatch, service.url, "")

    assert not passed
    assert "as nobody: there are no credentials: HTTP 401" in text


def test_a_caller_who_may_read_some_tables_only_is_let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    with Service(tokens={"guest": Rights(read=["t"])}) as service:
        assert tried(monkeypatch, service.url, "guest") == (
            True,
            f"{service.url} lets us in as whoever has the token; what it may read is decided table by table",
        )


def test_a_caller_who_may_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert judged(monkeypatch, lambda method, path: Answer(403, "no")) == (
        False,
        "permits nothing to whoever has the token: HTTP 403; check the caller's rights",
    )


def test_a_wrong_base_path(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tried(monkeypatch, f"{service.url}/api/v9") == (
        False,
        f"{service.url}/api/v9 is no Table Data Service; check base_path (HTTP 404)",
    )


def by_path(method: str, path: str) -> Answer:
    """Repeat the path and the time in each 404, as many servers do."""
    return Answer(404, json.dumps({"message": f"Cannot {method} {path}", "timestamp": time.time_ns()}))


@pytest.mark.parametrize(
    "manners",
    [
        by_path,
        lambda method, path: Answer(404),
        lambda method, path: Answer(200, "<html>the same page everywhere</html>"),
        lambda method, path: Answer(302, headers={"Location": "https://login.example.com"}),
        lambda method, path: Answer(405),
    ],
    ids=["repeats the path", "silent", "one page", "a login", "read only"],
)
def test_what_answers_everything_alike_is_no_table_service(manners: Manners, monkeypatch: pytest.MonkeyPatch) -> None:
    passed, text = judged(monkeypatch, manners)

    assert not passed
    assert "is no Table Data Service; check base_path" in text


def test_a_service_whose_404_says_nothing_is_known_by_its_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(method: str, path: str) -> Answer:
        return Answer(405 if path == "/data/queries" else 404)

    assert judged(monkeypatch, silent) == (True, "lets us in as whoever has the token")


def test_a_service_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    assert judged(monkeypatch, lambda method, path: Answer(503)) == (
        False,
        "was reached and fails: HTTP 503; try again later",
    )


def test_a_port_where_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        passed, text = tried(monkeypatch, f"http://127.0.0.1:{taken.getsockname()[1]}")

    assert not passed
    assert "does not answer; check host, port, schema and proxy (ConnectError" in text


@contextmanager
def dripping() -> Iterator[int]:
    """Send one byte of an answer now and then, for ever."""
    told, listener = threading.Event(), socket.create_server(("127.0.0.1", 0))
    listener.settimeout(60)  # a test that never connects ends too

    def drip() -> None:
        connection, _ = listener.accept()
        with connection:
            for byte in b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1000:
                if told.wait(0.2):
                    return
                connection.sendall(bytes([byte]))

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        told.set()
        thread.join()
        listener.close()


def test_a_server_that_only_drips_is_given_up_within_five_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    with dripping() as port:
        passed, text = tried(monkeypatch, f"http://127.0.0.1:{port}")

    assert not passed
    assert "has not answered within 4.5 s; check host, port and proxy" in text


def test_a_field_that_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tried(monkeypatch, "") == (False, "connection tried: host is empty")


def test_an_extra_that_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    passed, text = tried(monkeypatch, "http://127.0.0.1:1", wire={"trunkate": "POST /x"})

    assert not passed
    assert "unknown 'trunkate'" in text


def test_a_server_without_tls(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    passed, text = tried(monkeypatch, service.url.replace("http:", "https:"))

    assert not passed
    assert "does not speak TLS; check port, or set schema to http" in text


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def tls(certificate: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


def test_a_certificate_that_is_not_trusted(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    with stand_in(by_path, tls(authority.issue("server"))) as url:
        passed, text = tried(monkeypatch, url)

    assert not passed
    assert "its certificate is not trusted; check host or set ca_bundle" in text


def test_a_trusted_certificate_passes(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    def service(method: str, path: str) -> Answer:
        return Answer(404, "no such table" if path.startswith("/tables/") else "no such path")

    with stand_in(service, tls(authority.issue("server"))) as url:
        assert tried(monkeypatch, url, ca_bundle=authority.bundle)[0]
