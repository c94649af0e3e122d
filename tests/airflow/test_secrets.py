"""Secrets stay out of logs in whatever form they come: as they are, quoted, encoded, given on the way."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from stand_in import Answer, stand_in

from airflow_tds import compat
from airflow_tds.client.client import TableClient
from airflow_tds.client.messages import SecretUrl
from airflow_tds.hooks import TdsHook, async_settings
from airflow_tds.local import Service

SECRET = "sec ret/+ä=%&"
MASKERS = ("airflow.sdk._shared.secrets_masker", "airflow.sdk.execution_time.secrets_masker", compat._OLDEST)


@pytest.fixture
def shown() -> Iterator[Any]:
    """Give how Airflow shows a text in a log, by a masker that knows no secret yet."""
    masker = compat._function("_secrets_masker", *MASKERS)()
    before = masker.patterns, masker.replacer
    masker.patterns, masker.replacer = set(), None
    yield masker.redact
    masker.patterns, masker.replacer = before


def connect(monkeypatch: pytest.MonkeyPatch, host: str = "https://h", **fields: Any) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_TDS_DEFAULT", json.dumps({"conn_type": "tds", "host": host, **fields}))


FORMS = {
    "raw": SECRET,
    "quoted": quote(SECRET, safe=""),
    "form": quote_plus(SECRET),
    "json": json.dumps(SECRET)[1:-1],
    "base64": b64encode(SECRET.encode()).decode().rstrip("="),
    "basic": b64encode(f"ada:{SECRET}".encode()).decode().rstrip("="),
    "oauth": b64encode(f"ada:{quote_plus(SECRET)}".encode()).decode().rstrip("="),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("face", ["blocking", "async"])
def test_a_password_is_hidden_in_every_form(face: str, form: str, shown: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, login="ada", password=SECRET)
    if face == "blocking":
        TdsHook().settings()
    else:
        asyncio.run(async_settings("tds_default"))

    assert shown(f"before {form} after") == "before *** after"


@pytest.mark.parametrize(
    "extra",
    [
        {"client_key_password": "locked-up"},
        {"proxy": "http://me:locked-up@p:1"},
        {"storage_proxy": "http://me:locked-up@p:1"},
    ],
)
def test_the_other_secrets_of_a_connection_are_hidden_too(
    extra: dict[str, str], shown: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, extra=extra)
    TdsHook().settings()

    assert shown("before locked-up after") == "before *** after"


def test_what_is_no_secret_is_shown(shown: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, login="ada", password=SECRET, extra={"base_path": "/api/v1"})
    TdsHook().settings()

    assert shown("ada at https://h/api/v1") == "ada at https://h/api/v1"


@pytest.mark.parametrize("face", ["blocking", "async"])
def test_a_token_that_is_given_on_the_way_is_hidden(face: str, shown: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def manners(method: str, path: str) -> Answer:
        return Answer(200, '{"access_token": "given-on-the-way", "row_count": 1}')

    async def asked() -> Any:
        async with TdsHook().async_client() as client:
            return await client.info("t")

    with stand_in(manners) as url:
        connect(monkeypatch, url, login="ada", password=SECRET, extra={"token_url": f"{url}/token"})
        info = TdsHook().info("t") if face == "blocking" else asyncio.run(asked())

    assert info.row_count == 1
    assert shown("Bearer given-on-the-way!") == "Bearer ***!"


def test_a_presigned_signature_is_hidden(
    service: Service, table: str, shown: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TdsHook().get_conn() as client:
        begun = client.initiate("append", table)
        client.send_data(begun, b"a\n1\n")
    secrets = begun.upload_url.secrets()

    assert secrets
    assert {shown(f"sig={secret}.") for secret in secrets} == {"sig=***."}


@pytest.mark.parametrize(
    ("query", "secrets"),
    [
        ("X-Amz-Signature=0a1b&X-Amz-Date=2026&X-Amz-Credential=K%2F1", {"0a1b", "K%2F1", "K/1"}),
        ("sv=2026&sig=a%2Bb%3D&se=2026", {"a%2Bb%3D", "a+b="}),
        ("Expires=1&Signature=s&Key-Pair-Id=k", {"s", "k"}),
        ("", set()),
    ],
)
def test_what_lets_in_is_told_from_the_rest_of_a_presigned_url(query: str, secrets: set[str]) -> None:
    assert SecretUrl(f"https://store/x?{query}").secrets() == secrets


def test_a_client_without_airflow_tells_nobody() -> None:
    with Service(tables=["t"]) as service, TableClient(service.url, token=service.token) as client:
        assert client.append("t", b"a\n1\n").status == "COMPLETED"


def test_a_function_that_no_version_has_is_named() -> None:
    with pytest.raises(ImportError, match="no mask_secret in json"):
        compat._function("mask_secret", "json")
