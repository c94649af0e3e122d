"""What lets a request in: each kind, where it goes, and where it never goes."""

import asyncio
import base64
import io
import json
import logging
import pickle
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs

import pytest
from sending import send_aiohttp, send_async, send_blocking, send_httpx

from airflow_tds.client import errors
from airflow_tds.client.access import Access
from airflow_tds.client.client import AsyncTableClient, TableClient
from airflow_tds.client.credentials import ApiKey, Basic, Bearer, ClientCredentials, Credentials, Together
from airflow_tds.client.downloads import Download
from airflow_tds.client.http.lanes import Lane
from airflow_tds.client.messages import Reply, Request, SecretUrl, TokenUrl
from airflow_tds.client.payloads import body_of

Send = Callable[..., list[Reply]]
CANARY = "c4n4ry"
INFO = Request("info", "table t", "GET", "/tables/t/data/info", "always")


class Own(Credentials):
    """A scheme of a user's own."""

    def fields(self) -> Mapping[str, str]:
        return {"X-Signed-By": CANARY, "Cookie": f"session={CANARY}"}


def oauth(url: str, **more: Any) -> ClientCredentials:
    return ClientCredentials(f"{url}/token", "me:and/you", f"{CANARY} %", **more)


@pytest.fixture(params=[send_blocking, send_async, send_httpx, send_aiohttp])
def send(request: pytest.FixtureRequest) -> Send:
    found: Send = request.param
    return found


def token(answer: Any, word: str = "t1", **more: Any) -> bytes:
    document = {"access_token": word, "token_type": "Bearer", "expires_in": 3600, **more}
    return bytes(answer(200, json.dumps(document).encode()))


def sent(server: Any) -> list[str | None]:
    return [seen.headers.get("authorization") for seen in server.seen if seen.line.startswith("GET")]


# ---- each kind


@pytest.mark.parametrize(
    ("credentials", "name", "value"),
    [
        (Bearer(CANARY), "authorization", f"Bearer {CANARY}"),
        (ApiKey(CANARY), "x-api-key", CANARY),
        (ApiKey(CANARY, "X-Functions-Key"), "x-functions-key", CANARY),
        (Basic("jo", "pä:ss"), "authorization", "Basic " + base64.b64encode("jo:pä:ss".encode()).decode()),
        (Own(), "x-signed-by", CANARY),
    ],
)
def test_credentials_go_to_the_service(
    server: Any, answer: Any, send: Send, *, credentials: Credentials, name: str, value: str
) -> None:
    server.answers = [answer()]

    send(Access(server.url, credentials), INFO)

    assert server.seen[0].headers[name] == value


@pytest.mark.parametrize("sender", [send_blocking, send_async])
@pytest.mark.parametrize("kind", ["bearer", "api_key", "basic", "oauth2", "own"])
def test_credentials_never_go_to_an_object_store(
    server: Any, answer: Any, caplog: pytest.LogCaptureFixture, *, sender: Send, kind: str
) -> None:
    credentials: dict[str, Credentials] = {
        "bearer": Bearer(CANARY),
        "api_key": ApiKey(CANARY, "X-Key"),
        "basic": Basic(CANARY, CANARY),
        "oauth2": oauth(server.url),
        "own": Own(),
    }
    store = SecretUrl(f"{server.url}/store?X-Amz-Signature=s3cret")
    put = Request("put", "job j", "PUT", store, "always", body=body_of(b"abc"))
    get = Request("download", "job j", "GET", store, sink=Download(io.BytesIO()))
    server.answers = [token(answer, CANARY)] if kind == "oauth2" else []
    server.answers += [answer(200, b"{}", f"Set-Cookie: a={CANARY}")] * 3

    with caplog.at_level(logging.DEBUG):
        sender(Access(server.url, credentials[kind]), INFO, put, get)

    stored = [seen for seen in server.seen if "/store" in seen.line]
    assert len(stored) == 2
    assert not {"authorization", "x-key", "cookie", "x-signed-by", "x-request-id"} & set().union(
        *[seen.headers for seen in stored]
    )
    assert CANARY not in str([seen.headers for seen in stored])
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize(
    "credentials", [Bearer(CANARY), ApiKey(CANARY), Basic("me", CANARY), oauth("https://idp"), Own()]
)
def test_credentials_are_not_shown(credentials: Credentials) -> None:
    renewal = credentials.renewal(0.0)

    assert CANARY not in repr(credentials) + repr(Access("http://host", credentials)) + repr(renewal)
    assert base64.b64encode(CANARY.encode()).decode()[:-1] not in repr(renewal)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Bearer(f"{CANARY}\n"), "the token is empty, or holds"),
        (lambda: Bearer(""), "the token is empty, or holds"),
        (lambda: ApiKey(f"{CANARY} x"), "the API key is empty, or holds"),
        (lambda: ApiKey("x", "X-Key: y"), "is no name of a header field"),
        (lambda: Basic("a:b", CANARY), "the login holds a colon"),
        (lambda: TableClient("http://host", token=CANARY, credentials=Own()), "a token or credentials, not both"),
    ],
)
def test_credentials_that_cannot_be_sent_are_refused_unseen(make: Callable[[], Any], why: str) -> None:
    with pytest.raises(errors.ValidationFailed, match=why) as raised:
        make()
    assert CANARY not in str(raised.value)


def test_a_scheme_of_ones_own_whose_field_cannot_be_sent_is_refused_unseen(server: Any, send: Send) -> None:
    class Broken(Credentials):
        def fields(self) -> Mapping[str, str]:
            return {"X-Key": f"{CANARY}\n"}

    with pytest.raises(errors.ValidationFailed, match="header 'X-Key' cannot be sent") as raised:
        send(Access(server.url, Broken()), INFO)
    assert CANARY not in str(raised.value)


def test_a_scheme_of_ones_own_must_say_what_to_send() -> None:
    with pytest.raises(NotImplementedError):
        Credentials().fields()


@pytest.mark.parametrize("face", [TableClient, AsyncTableClient])
def test_a_client_takes_credentials(face: Any) -> None:
    assert face("http://host", credentials=Own())


def test_other_kinds_are_not_renewed(server: Any, answer: Any, send: Send) -> None:
    server.answers = [answer(401), answer()]
    credentials = Bearer(CANARY)
    credentials.renew(Reply(200), 0.0)

    [reply] = send(Access(server.url, credentials), INFO)

    assert (reply.status, len(server.seen)) == (401, 1)


# ---- OAuth2


def test_a_token_is_asked_for_once_and_kept(server: Any, answer: Any, send: Send) -> None:
    server.answers = [token(answer), answer(), answer()]

    send(Access(server.url, oauth(server.url, scope="read write")), INFO, INFO)

    assert [seen.line.split()[0] for seen in server.seen] == ["POST", "GET", "GET"]
    asked = server.seen[0]
    pair = base64.b64encode(f"me%3Aand%2Fyou:{CANARY}+%25".encode()).decode()
    assert asked.headers["authorization"] == f"Basic {pair}"
    assert asked.headers["content-type"] == "application/x-www-form-urlencoded"
    assert parse_qs(asked.body.decode()) == {"grant_type": ["client_credentials"], "scope": ["read write"]}
    assert sent(server) == ["Bearer t1"] * 2


def test_id_and_secret_may_go_in_the_form(server: Any, answer: Any, send: Send) -> None:
    server.answers = [token(answer), answer()]

    send(Access(server.url, oauth(server.url, in_body=True)), INFO)

    assert "authorization" not in server.seen[0].headers
    assert parse_qs(server.seen[0].body.decode())["client_secret"] == [f"{CANARY} %"]


def test_a_token_that_is_refused_is_renewed_once(server: Any, answer: Any, send: Send) -> None:
    server.answers = [token(answer, "old"), answer(401), token(answer, "new"), answer(200)]

    [reply] = send(Access(server.url, oauth(server.url)), INFO)

    assert reply.status == 200
    assert sent(server) == ["Bearer old", "Bearer new"]


def test_a_service_that_refuses_every_token_is_believed(server: Any, answer: Any, send: Send) -> None:
    server.answers = [token(answer, "old"), answer(401), token(answer, "new"), answer(401)]

    [reply] = send(Access(server.url, oauth(server.url)), INFO)

    assert (reply.status, len(server.seen)) == (401, 4)


def test_a_payload_that_is_gone_is_not_sent_again_for_a_new_token(server: Any, answer: Any) -> None:
    server.answers = [token(answer), answer(401)]
    once = Request("x", "t", "POST", "/x", body=body_of(iter([b"abc"])))

    [reply] = send_blocking(Access(server.url, oauth(server.url)), once)

    assert (reply.status, len(server.seen)) == (401, 2)


def test_many_requests_at_once_renew_a_token_once(server: Any, answer: Any) -> None:
    server.answers = [token(answer)] + [answer()] * 5

    async def work() -> None:
        access = Access(server.url, oauth(server.url))
        lanes = [Lane(access, access.ssl_context()) for _ in range(5)]
        await asyncio.gather(*[lane.read(INFO) for lane in lanes])
        await asyncio.gather(*[lane.close() for lane in lanes])

    asyncio.run(work())
    assert [seen.line.split()[0] for seen in server.seen] == ["POST"] + ["GET"] * 5


@pytest.mark.parametrize(("told", "until"), [(3600, 3540), (60, 54), ("600", 540), (0, 0)])
def test_a_token_is_renewed_shortly_before_it_ends(told: Any, until: float) -> None:
    credentials = oauth("https://idp")
    credentials.renew(Reply(200, content=json.dumps({"access_token": "t", "expires_in": told}).encode()), 1000.0)

    assert credentials.renewal(1000.0 + until - 0.1) is None or until == 0
    assert credentials.renewal(1000.0 + until) is not None


@pytest.mark.parametrize("told", [None, "soon", [1]])
def test_a_token_without_an_end_is_kept_until_it_is_refused(told: Any) -> None:
    credentials = oauth("https://idp")
    credentials.renew(Reply(200, content=json.dumps({"access_token": "t", "expires_in": told}).encode()), 0.0)

    assert credentials.renewal(1e12) is None


def test_a_token_that_has_been_replaced_meanwhile_is_not_given_up() -> None:
    credentials = oauth("https://idp")
    credentials.renew(Reply(200, content=b'{"access_token": "new"}'), 0.0)

    assert credentials.drop({"Authorization": "Bearer old"})
    assert credentials.renewal(0.0) is None


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (400, b'{"error": "invalid_client", "error_description": "c4n4ry"}', "HTTP 400: invalid_client$"),
        (401, b"<html>c4n4ry", "HTTP 401: no bearer token$"),
        (200, b"[]", "HTTP 200: no bearer token$"),
        (200, b'{"access_token": 7}', "HTTP 200: no bearer token$"),
        (200, b'{"access_token": "c4n4ry", "token_type": "mac"}', "HTTP 200: no bearer token$"),
        (302, b"", "HTTP 302: no bearer token$"),
        (200, b"[" * 100_000, "HTTP 200: no bearer token$"),
    ],
)
def test_a_server_that_gives_no_token_is_unauthorized(
    server: Any, answer: Any, send: Send, *, status: int, body: bytes, why: str
) -> None:
    server.answers = [answer(status, body)]

    with pytest.raises(errors.Unauthorized, match=why) as raised:
        send(Access(server.url, oauth(server.url)), INFO)
    assert CANARY not in str(raised.value) + str(raised.value.__dict__) + str(pickle.dumps(raised.value))
    assert len(server.seen) == 1


def test_a_token_that_cannot_be_sent_is_refused_unseen() -> None:
    with pytest.raises(errors.ValidationFailed, match="access token") as raised:
        oauth("https://idp").renew(Reply(200, content=b'{"access_token": "c4n4ry\\n"}'), 0.0)
    assert CANARY not in str(raised.value)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_token_server_that_is_down_left_nothing_at_the_service(server: Any, answer: Any, status: int) -> None:
    server.answers = [answer(status), token(answer), answer(202)]

    with TableClient(server.url, credentials=oauth(server.url)) as client:
        client.truncate("t")  # sent again, although it may only be while it has not reached the service

    assert [seen.line.split()[1] for seen in server.seen] == ["/token", "/token", "/tables/t/data/truncate"]


def test_a_token_server_that_does_not_answer_left_nothing_at_the_service(server: Any, send: Send) -> None:
    with pytest.raises(errors.TransportFailed, match=r"token, 127\.0\.0\.1") as raised:
        send(Access(server.url, oauth(server.url)), INFO)
    assert (raised.value.outcome, len(server.seen)) == ("not_sent", 1)
    assert CANARY not in str(raised.value)


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("https://host", "http://idp/token"),
        ("https://host", "idp/token"),
        ("http://host", "ftp://idp"),
        ("http://h", ""),
    ],
)
def test_a_secret_is_not_sent_to_an_address_that_is_not_safe(send: Send, base: str, url: str) -> None:
    with pytest.raises(errors.ValidationFailed, match="token_url is no http"):
        send(Access(base, ClientCredentials(url, "me", CANARY)), INFO)


def test_a_token_may_come_from_an_address_of_ones_own_network() -> None:
    request = Request("token", "idp", "POST", TokenUrl("https://10.0.0.1/token"))

    assert Access("https://tables.example.com").address(request) == "https://10.0.0.1/token"


def test_netrc_is_not_read(
    server: Any, answer: Any, send: Send, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "netrc"
    path.write_text(f"machine 127.0.0.1 login me password {CANARY}\n")
    path.chmod(0o600)
    monkeypatch.setenv("NETRC", str(path))
    server.answers = [answer()]

    send(Access(server.url), INFO)

    assert "authorization" not in server.seen[0].headers


# ---- several at once


def test_several_credentials_go_along_each_in_its_header(server: Any, answer: Any, send: Send) -> None:
    server.answers = [answer()]

    send(Access(server.url, Together(Bearer(CANARY), ApiKey("k3y", "X-Account"), ApiKey("4pp", "X-App"))), INFO)

    headers = server.seen[0].headers
    found = [headers[name] for name in ("authorization", "x-account", "x-app")]
    assert found == [f"Bearer {CANARY}", "k3y", "4pp"]


def test_two_credentials_for_one_header_are_refused() -> None:
    with pytest.raises(errors.ValidationFailed, match="claim one header field"):
        Together(ApiKey("a", "X-Key"), ApiKey("b", "x-key"))


def test_one_of_several_credentials_is_renewed_and_the_others_stay(server: Any, answer: Any, send: Send) -> None:
    server.answers = [token(answer), answer(401), token(answer, "t2"), answer()]

    [reply] = send(Access(server.url, Together(ApiKey("k3y", "X-Account"), oauth(server.url))), INFO)

    assert (reply.status, sent(server)) == (200, ["Bearer t1", "Bearer t2"])
    assert [seen.headers.get("x-account") for seen in server.seen] == [None, "k3y", None, "k3y"]


def test_several_credentials_that_cannot_be_renewed_are_not_tried_again(server: Any, answer: Any, send: Send) -> None:
    server.answers = [answer(401)]

    [reply] = send(Access(server.url, Together(Bearer(CANARY), ApiKey("k3y"))), INFO)

    assert (reply.status, len(server.seen)) == (401, 1)
    assert CANARY not in repr(Together(Bearer(CANARY)))
