"""A connection becomes settings: every field, its forms, and what is refused."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowNotFoundException, Connection

from airflow_tds.client.access import Timeouts, Tls
from airflow_tds.client.credentials import ApiKey, Basic, Bearer, ClientCredentials
from airflow_tds.client.errors import Unauthorized, ValidationFailed
from airflow_tds.hooks import TdsHook
from airflow_tds.local import Service
from airflow_tds.settings import EXTRA, settings_of


def settings(extra: Any = None, **fields: Any) -> Any:
    """Read a connection with these fields."""
    return settings_of(Connection(conn_id="c", conn_type="tds", **fields), extra or {})


@pytest.mark.parametrize(
    ("fields", "extra", "url"),
    [
        ({"host": "h"}, {}, "https://h"),
        ({"host": "h", "schema": "http", "port": 80}, {}, "http://h:80"),
        ({"host": "h"}, {"base_path": "/api/v1"}, "https://h/api/v1"),
        ({"host": "h"}, {"base_path": "api/v1/"}, "https://h/api/v1"),
        ({"host": "h"}, {"base_path": None}, "https://h"),
        ({"host": " h "}, {}, "https://h"),
        ({"host": "https://h:8443/api/v1"}, {}, "https://h:8443/api/v1"),
        ({"host": "http://h"}, {"base_path": "x"}, "http://h/x"),
        ({"host": "https://h:8443", "port": 8443, "schema": "https"}, {}, "https://h:8443"),
        ({"host": "::1", "schema": "http", "port": 1}, {}, "http://[::1]:1"),
    ],
)
def test_the_address_comes_from_the_fields(fields: dict[str, Any], extra: dict[str, Any], url: str) -> None:
    assert settings(extra, **fields).base_url == url


@pytest.mark.parametrize(
    ("fields", "extra", "text"),
    [
        ({}, {}, "host is empty"),
        ({"host": "h", "schema": "ftp"}, {}, "schema is http or https, not 'ftp'"),
        ({"host": "h/../x"}, {}, "is no host name"),
        ({"host": "u@h"}, {}, "is no host name"),
        ({"host": "https://"}, {}, "is no host name"),
        ({"host": "https://h", "schema": "http"}, {}, "host says schema 'https', the field 'http'"),
        ({"host": "https://h:1", "port": 2}, {}, "host says port 1, the field 2"),
        ({"host": "https://h/a"}, {"base_path": "b"}, "host says base_path 'a', the field 'b'"),
    ],
)
def test_a_wrong_address_is_refused_with_the_right_form(
    fields: dict[str, Any], extra: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValidationFailed, match=text):
        settings(extra, **fields)


@pytest.mark.parametrize("wire", [{"job_id": ["/job"]}, '{"job_id": ["/job"]}'])
def test_the_wire_map_is_a_mapping_or_its_json(wire: Any) -> None:
    assert settings({"wire": wire}, host="h").wire().job_id == ("/job",)


def test_the_wire_map_may_be_a_profiles_name() -> None:
    assert settings({"wire": "patch"}, host="h").wire().upsert.method == "PATCH"


def test_what_is_no_profile_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValidationFailed, match="'no json' is no profile; known: routes, patch"):
        settings({"wire": "no json"}, host="h").wire()


@pytest.mark.parametrize("wire", ["[]", 7])
def test_a_wire_map_of_another_kind_is_refused(wire: Any) -> None:
    with pytest.raises(ValidationFailed, match="'wire' is a mapping"):
        settings({"wire": wire}, host="h").wire()


def test_an_unknown_name_in_the_wire_map_is_named() -> None:
    with pytest.raises(ValidationFailed, match="trunkate"):
        settings({"wire": {"trunkate": "POST /x"}}, host="h").wire()


def test_an_unknown_extra_is_named_without_its_value(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        settings({"pasword": "secret"}, host="h")

    assert "'pasword' is not known" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("value", [-1, "x", "nan", [1]])
def test_a_number_of_seconds_is_checked(value: Any) -> None:
    with pytest.raises(ValidationFailed, match="'transfer_timeout' is a number of seconds"):
        _ = settings({"transfer_timeout": value}, host="h").transfer_timeout


@pytest.mark.parametrize(("value", "atomic"), [(True, True), ("true", True), ("0", False), (None, None)])
def test_a_flag_may_be_text(value: Any, atomic: bool | None) -> None:
    assert settings({"failed_jobs_are_atomic": value}, host="h").policy().failed_jobs_are_atomic is atomic


@pytest.mark.parametrize(("value", "vanish"), [("true", True), (False, False), (None, False)])
def test_a_connection_may_say_that_only_finished_jobs_vanish(value: Any, vanish: bool) -> None:
    found = settings({"only_finished_jobs_vanish": value}, host="h").policy()
    assert found.only_finished_jobs_vanish is vanish


def test_a_flag_of_another_kind_is_refused() -> None:
    with pytest.raises(ValidationFailed, match="is true or false, not 'maybe'"):
        settings({"failed_jobs_are_atomic": "maybe"}, host="h").policy()


@pytest.mark.parametrize(
    ("extra", "fields", "kind"),
    [
        ({}, {}, type(None)),
        ({"auth": "basic"}, {}, type(None)),
        ({}, {"password": "s"}, Bearer),
        ({}, {"login": "me", "password": "s"}, Basic),
        ({"auth": "bearer"}, {"login": "me", "password": "s"}, Bearer),
        ({"auth": "api_key"}, {"password": "s"}, ApiKey),
        ({"api_key_header": "X-Key"}, {"login": "me", "password": "s"}, ApiKey),
        ({"token_url": "https://idp/token", "scope": "all"}, {"login": "me", "password": "s"}, ClientCredentials),
    ],
)
def test_what_is_set_tells_the_kind_of_credentials(extra: dict[str, Any], fields: dict[str, str], kind: type) -> None:
    assert type(settings(extra, host="h", **fields).access().credentials) is kind


def test_an_api_key_goes_into_the_field_that_is_set() -> None:
    assert settings({"api_key_header": "X-Key"}, host="h", password="s").access().credentials.fields() == {"X-Key": "s"}


@pytest.mark.parametrize("form", [lambda value: value, json.dumps], ids=["mapping", "JSON"])
def test_more_header_fields_may_let_us_in(form: Any) -> None:
    extra = {"credential_headers": form({"X-Account": "4cc", "X-App": "4pp"})}

    assert credentials_of(extra).fields() == {"X-Account": "4cc", "X-App": "4pp"}
    assert credentials_of(extra, password="s").fields() == {
        "Authorization": "Bearer s",
        "X-Account": "4cc",
        "X-App": "4pp",
    }
    assert {"4cc", "4pp"} <= settings(extra, host="h").secrets()
    assert settings(extra, host="h").who() == "whoever has the X-Account, X-App"


def credentials_of(extra: dict[str, Any], **fields: str) -> Any:
    return settings(extra, host="h", **fields).access().credentials


@pytest.mark.parametrize("given", ["not JSON", "[]", 7])
def test_header_fields_that_are_no_mapping_are_refused(given: Any) -> None:
    with pytest.raises(ValidationFailed, match="'credential_headers' is a mapping"):
        settings({"credential_headers": given}, host="h").access()


@pytest.mark.parametrize(
    ("extra", "why"),
    [
        ({"auth": "kerberos"}, "'auth' is bearer, api_key, basic or oauth2, not 'kerberos'"),
        ({"auth": "oauth2"}, "'oauth2' needs the extra token_url"),
        ({"token_url": "https://idp"}, "'oauth2' needs the extra token_url, login"),
        ({"insecure_tls": "perhaps"}, "'insecure_tls' is true or false"),
        ({"minimum_rate": "fast"}, "'minimum_rate' is a number"),
        ({"read_timeout": 0}, "read is a number above zero"),
    ],
)
def test_an_extra_that_does_not_fit_is_named(extra: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationFailed, match=why):
        settings(extra, host="h", password="s").access()


#: What no extra takes, whatever it is for; text is fine for most.
NOTHING = [[1, [2]], {"a": {"b": 1}}, "\x00"]


@pytest.mark.parametrize("value", NOTHING, ids=str)
@pytest.mark.parametrize("name", EXTRA)
def test_an_extra_of_a_wrong_kind_is_refused_by_its_name(name: str, value: Any) -> None:
    def read_all() -> None:
        made = settings({"auth": "api_key", "client_certificate": "c", name: value}, host="h", password="canary")
        _ = made.wire(), made.policy(), made.poll_transport, made.access()
        made.client()

    with pytest.raises(ValidationFailed) as refused:
        read_all()

    assert name.split("_", maxsplit=1)[0] in str(refused.value)
    assert "canary" not in str(refused.value)


def test_the_extras_reach_the_client() -> None:
    extra = {
        "ca_bundle": "ca.pem",
        "client_certificate": "me.pem",
        "client_key": "me.key",
        "client_key_password": "s3cret",
        "insecure_tls": "true",
        "storage_ca_bundle": "store.pem",
        "proxy": "http://proxy:1",
        "storage_proxy": "none",
        "storage_hosts": "a.example.com, b.example.com",
        "connect_timeout": 1,
        "read_timeout": 2,
        "transfer_timeout": 3,
        "download_timeout": 4,
        "minimum_rate": 0,
    }
    access = settings(extra, host="h").access()

    assert access.tls == Tls("ca.pem", "me.pem", "me.key", "s3cret", insecure=True)
    assert access.storage_tls == Tls("store.pem", insecure=True)
    assert (access.proxy, access.storage_proxy) == ("http://proxy:1", "none")
    assert access.storage_hosts == ("a.example.com", "b.example.com")
    assert access.timeouts == Timeouts(connect=1, read=2, transfer=3, download=4, minimum_rate=0)


def test_storage_hosts_may_be_a_list() -> None:
    assert settings({"storage_hosts": ["a", "b"]}, host="h").access().storage_hosts == ("a", "b")


def test_settings_do_not_show_the_token() -> None:
    assert "secret" not in repr(settings(host="h", password="secret"))


def test_settings_that_say_the_same_have_one_fingerprint() -> None:
    first, second, other = (settings(host="h", password=token) for token in ("a", "a", "b"))

    assert first.fingerprint == second.fingerprint != other.fingerprint


def test_the_hook_does_nothing_before_it_is_asked() -> None:
    assert TdsHook("not_there").tds_conn_id == "not_there"


def test_a_missing_connection_is_airflows_error() -> None:
    with pytest.raises(AirflowNotFoundException):
        TdsHook("not_there").get_conn()


def test_the_hook_gives_a_client(service: Service, table: str) -> None:
    with TdsHook().get_conn() as client:
        assert client.info(table).row_count == 0


def test_the_hook_gives_an_async_client(service: Service, table: str) -> None:
    async def rows() -> int | None:
        async with TdsHook().async_client() as client:
            return (await client.info(table)).row_count

    assert asyncio.run(rows()) == 0


def test_a_wrong_token_is_unauthorized(service: Service, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_WRONG", json.dumps({"conn_type": "tds", "host": service.url, "password": "wrong"}))

    with TdsHook("wrong").get_conn() as client, pytest.raises(Unauthorized):
        client.info(table)


def test_the_uri_form_of_a_connection_works(service: Service, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    host = service.url.removeprefix("http://")
    monkeypatch.setenv("AIRFLOW_CONN_URI", f"tds://:{service.token}@{host}/http?transfer_timeout=5")

    with TdsHook("uri").get_conn() as client:
        assert client.info(table).row_count == 0
        assert client.transfer_timeout == 5


def test_the_form_for_older_airflow_says_the_same() -> None:
    from airflow_tds.provider_info import get_provider_info

    form = get_provider_info()["connection-types"][0]["ui-field-behaviour"]

    assert TdsHook.get_ui_field_behaviour()["relabeling"] == form["relabeling"]
