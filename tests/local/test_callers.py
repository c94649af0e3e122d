"""How callers show their token, by each scheme that the service can be started with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from airflow_tds.client.errors import ValidationFailed
from airflow_tds.local import Rights, Service

BASIC = ("tds", "root")
FORM = {"grant_type": "client_credentials"}


@pytest.fixture(scope="module")
def services() -> Iterator[dict[str, Service]]:
    """One service for each scheme."""
    tokens = {"reader": Rights(read=["t"])}
    schemes: tuple[Any, ...] = ("bearer", "api_key", "basic", "oauth2")
    running = {
        kind: Service(tables=["t"], token="root", tokens=tokens, auth=kind, api_key_header="X-Key") for kind in schemes
    }
    for service in running.values():
        service.start()
    yield running
    for service in running.values():
        service.stop()


def info(service: Service, **asked: Any) -> httpx.Response:
    return httpx.get(f"{service.url}/tables/t/data/info", **asked)


def given(service: Service, **asked: Any) -> httpx.Response:
    return httpx.post(f"{service.url}/oauth/token", **asked)


@pytest.mark.parametrize(
    ("scheme", "asked"),
    [
        ("bearer", {"headers": {"Authorization": "Bearer root"}}),
        ("bearer", {"headers": {"Authorization": "bearer reader"}}),
        ("api_key", {"headers": {"X-Key": "root"}}),
        ("basic", {"auth": BASIC}),
        ("basic", {"auth": ("tds", "reader")}),
    ],
)
def test_a_token_lets_in_by_the_scheme(services: dict[str, Service], scheme: str, asked: Any) -> None:
    assert info(services[scheme], **asked).status_code == 200


@pytest.mark.parametrize(
    ("scheme", "asked", "challenge"),
    [
        ("bearer", {"auth": BASIC}, "Bearer"),
        ("bearer", {"headers": {"X-Key": "root"}}, "Bearer"),
        ("api_key", {"headers": {"Authorization": "Bearer root"}}, "ApiKey"),
        ("api_key", {"headers": {"X-Key": "wrong"}}, "ApiKey"),
        ("basic", {"headers": {"Authorization": "Bearer root"}}, 'Basic realm="tds"'),
        ("basic", {"auth": ("tds", "wrong")}, 'Basic realm="tds"'),
        ("basic", {"auth": ("root", "root")}, 'Basic realm="tds"'),
        ("basic", {"headers": {"Authorization": "Basic %%%"}}, 'Basic realm="tds"'),
        ("oauth2", {"headers": {"Authorization": "Bearer root"}}, "Bearer"),
        ("oauth2", {"auth": BASIC}, "Bearer"),
    ],
)
def test_nothing_else_does(services: dict[str, Service], scheme: str, asked: Any, challenge: str) -> None:
    reply = info(services[scheme], **asked)
    assert (reply.status_code, reply.headers["www-authenticate"]) == (401, challenge)


@pytest.mark.parametrize(
    "asked",
    [
        {"auth": BASIC, "data": FORM},
        {"data": {**FORM, "client_id": "tds", "client_secret": "root"}},
    ],
    ids=["header", "form"],
)
def test_client_credentials_give_an_access_token(services: dict[str, Service], asked: Any) -> None:
    told = given(services["oauth2"], **asked)
    assert (told.status_code, told.json()["token_type"], told.json()["expires_in"]) == (200, "Bearer", 3600.0)
    assert told.headers["cache-control"] == "no-store"
    bearer = {"Authorization": f"Bearer {told.json()['access_token']}"}
    assert info(services["oauth2"], headers=bearer).status_code == 200


@pytest.mark.parametrize(
    ("asked", "status", "error"),
    [
        ({"auth": ("tds", "wrong"), "data": FORM}, 401, "invalid_client"),
        ({"data": FORM}, 401, "invalid_client"),
        ({"data": {**FORM, "client_id": "other", "client_secret": "root"}}, 401, "invalid_client"),
        ({"auth": BASIC, "data": {"grant_type": "password"}}, 400, "unsupported_grant_type"),
        ({"auth": BASIC}, 400, "unsupported_grant_type"),
    ],
)
def test_what_gives_none(services: dict[str, Service], asked: Any, status: int, error: str) -> None:
    reply = given(services["oauth2"], **asked)
    assert (reply.status_code, reply.json()["error"]) == (status, error)


def test_an_access_token_ends() -> None:
    with Service(tables=["t"], token="root", auth="oauth2", token_lifetime=0.0) as service:
        token = given(service, auth=BASIC, data=FORM).json()["access_token"]
        assert info(service, headers={"Authorization": f"Bearer {token}"}).status_code == 401


@pytest.mark.parametrize("scheme", ["api_key", "basic", "oauth2"])
def test_the_services_own_routes_take_a_bearer_token_too(services: dict[str, Service], scheme: str) -> None:
    headers = {"Authorization": "Bearer root"}
    assert httpx.get(f"{services[scheme].url}/admin/tables", headers=headers).status_code == 200
    assert httpx.get(f"{services[scheme].url}/admin/tables").status_code == 401


def test_an_api_key_is_not_noted(services: dict[str, Service]) -> None:
    service = services["api_key"]
    info(service, headers={"X-Key": "root"})
    assert service.requests[-1].headers["x-key"] == "***"


def test_a_scheme_that_is_none_is_refused() -> None:
    unknown: Any = "kerberos"
    with pytest.raises(ValidationFailed, match="auth: 'kerberos' is none of bearer, api_key, basic, oauth2"):
        Service(auth=unknown)
