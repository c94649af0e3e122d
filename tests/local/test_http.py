"""The HTTP face: who may call, what is not found, what is refused, what is noted."""

from __future__ import annotations

import json
import logging
import socket
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from caller import Caller

from airflow_tds.client.wire import Wire
from airflow_tds.local import Service

#: The routes that the interface fixes, spelt out: the service's are built from the same map as the client's.
FIXED = [
    ("PATCH", "/tables/t/data"),
    ("GET", "/tables/t/data/query"),
    ("POST", "/data/queries"),
    ("GET", "/data/query/j"),
]
ASSUMED = [
    ("GET", "/tables/t/data/info"),
    ("POST", "/tables/t/data/upload"),
    ("POST", "/tables/t/data/overwrite"),
    ("POST", "/tables/t/data/upsert"),
    ("POST", "/tables/t/data/delete"),
    ("POST", "/tables/t/data/truncate"),
    ("GET", "/data/jobs/j"),
    ("POST", "/admin/tables"),
    ("GET", "/admin/tables"),
    ("GET", "/admin/jobs"),
    ("GET", "/admin/requests"),
    ("POST", "/admin/faults"),
    ("GET", "/admin/faults"),
    ("DELETE", "/admin/faults"),
]


@pytest.mark.parametrize(("method", "path"), FIXED + ASSUMED)
@pytest.mark.parametrize("header", [None, "Bearer wrong", "Basic dXNlcjpwYXNz", "Bearer", "Bearer \u00e9"])
def test_every_route_needs_the_token(service: Service, method: str, path: str, header: str | None) -> None:
    headers = {} if header is None else {b"Authorization": header.encode()}
    reply = httpx.request(method, service.url + path, headers=headers)
    assert reply.status_code == 401
    assert reply.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("path", ["/tables/nowhere/data/info", "/data/jobs/nothing", "/data/query/nothing", "/nothing"])
def test_what_does_not_exist_is_not_found(caller: Caller, path: str) -> None:
    reply = caller.http.get(path)
    assert reply.status_code == 404
    assert reply.json()["detail"]


@pytest.mark.parametrize("kind", ["upload", "append", "overwrite"])
def test_writes_to_a_table_that_was_not_created_are_not_found(caller: Caller, kind: str) -> None:
    assert caller.initiate(kind, "nowhere").status_code == 404
    assert caller.initiate("upsert", "nowhere", key_columns="a").status_code == 404
    assert caller.http.post("/tables/nowhere/data/truncate").status_code == 404
    assert caller.http.post("/tables/nowhere/data/delete", json={"filters": ["a:eq:1"]}).status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b"\xff",
        b"{}",
        b'{"format":"xml"}',
        b'{"format":5}',
        b'{"format":"csv","unknown":1}',
        b'{"format":"csv","key_columns":["a"]}',
        b'{"format":"csv","update_mode":"upsert"}',
    ],
)
def test_an_invalid_request_is_refused_and_makes_no_job(caller: Caller, table: str, body: bytes) -> None:
    reply = caller.http.patch(f"/tables/{table}/data", content=body)
    assert reply.status_code == 422
    assert reply.json()["detail"]


@pytest.mark.parametrize(
    "table_id", ["a/b", "a%2Fb", "ü n", "'; DROP TABLE x; --", '"', "?", "#", "👍", "data", "x" * 500]
)
def test_a_table_id_is_data_wherever_it_stands(caller: Caller, table_id: str) -> None:
    caller.create(table_id)
    place = quote(table_id, safe="")
    begun = caller.http.patch(f"/tables/{place}/data", json={"format": "csv"}).json()
    caller.put(begun["upload_url"], b"a\n1\n")
    assert caller.settled(begun["job_id"])["table_id"] == table_id
    assert caller.http.get(f"/tables/{place}/data/info").json()["row_count"] == 1
    assert caller.rows(table_id) == [{"a": 1}]


@pytest.mark.parametrize("place", ["%FF", "%ED%A0%80", "%00", "\\", "nowhere%2F..%2Ft"])
def test_an_id_that_is_no_text_or_no_table_is_refused(caller: Caller, place: str) -> None:
    assert caller.http.get(f"/tables/{place}/data/info").status_code in (404, 422)


def test_bytes_that_belong_in_no_path_are_not_found(service: Service) -> None:
    with socket.create_connection(("127.0.0.1", httpx.URL(service.url).port or 0)) as connection:
        head = b"GET /tables/\xff/data/info HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer "
        connection.sendall(head + service.token.encode() + b"\r\n\r\n")
        status = connection.makefile("rb").readline().split()[1]
    assert status in (b"400", b"404")


@pytest.mark.parametrize("path", ["/data/query/", "/data/queries/", "/admin/tables/"])
def test_nothing_redirects_but_a_result(caller: Caller, path: str) -> None:
    assert caller.http.get(path).status_code == 404


@pytest.mark.parametrize("body", [{"table_id": "a\ud800"}, {"table_id": ""}, {"table_id": "a\0b"}, {"table_id": 5}, {}])
def test_a_table_needs_an_id(caller: Caller, body: dict[str, object]) -> None:
    assert caller.http.post("/admin/tables", content=json.dumps(body)).status_code == 422


def test_creating_a_table_again_leaves_it_as_it_is(caller: Caller, table: str) -> None:
    caller.write("upload", table, b"a\n1\n")
    caller.create(table)
    assert caller.info(table)["row_count"] == 1


def test_requests_are_noted_without_secrets(service: Service, caller: Caller, table: str) -> None:
    before = len(service.requests)
    caller.settled(caller.submit("append", table, b"a\n1\n"))
    noted = service.requests[before:]
    assert [record.operation for record in noted[:3]] == ["append", "put_payload", "get_job"]
    assert [(record.method, record.status) for record in noted[:2]] == [("PATCH", 200), ("PUT", 200)]
    assert noted[0].headers["authorization"] == "Bearer ***"
    listed = caller.http.get("/admin/requests").text
    assert json.loads(listed)[before]["operation"] == "append"
    assert service.token not in listed
    assert "Signature" not in listed


def test_no_signature_is_logged_whatever_the_host_program_logs(
    service: Service, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    monkeypatch.setattr(logging.getLogger("uvicorn.access"), "propagate", True)  # an attribute's value
    caplog.set_level(logging.DEBUG)
    fresh = Caller(service.url, service.token)
    fresh.write("upload", table, b"a\n1\n")
    assert fresh.rows(table) == [{"a": 1}]
    fresh.close()
    told = [record for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))]
    assert "Signature" not in "".join(record.getMessage() for record in told)


def test_an_overridden_route_is_served_in_place_of_the_default() -> None:
    wire = Wire.from_setting({"truncate": "DELETE /v2/{table_id}/rows"})
    with Service(tables=["t"], token="token", wire=wire, base_path="/api/v1") as other:
        headers = {"Authorization": "Bearer token"}
        assert other.url.endswith("/api/v1")
        assert httpx.delete(f"{other.url}/v2/t/rows", headers=headers).status_code == 202
        assert httpx.post(f"{other.url}/tables/t/data/truncate", headers=headers).status_code == 404


def test_a_refusal_has_the_status_that_the_wire_map_says() -> None:
    wire = Wire.from_setting({"error_kinds": {"418": "validation", "410": "table_not_found", "409": "refused"}})
    with Service(tables=["t"], token="token", wire=wire) as other:
        calling = Caller(other.url, "token")
        statuses = [calling.initiate("append", table, "xml").status_code for table in ("t", "nowhere")]
        assert statuses == [418, 418]
        assert calling.initiate("append", "nowhere").status_code == 410
        assert calling.http.get("/data/jobs/nothing").status_code == 404
        calling.write("upload", "t", b"a\n1\n")
        assert calling.initiate("upload", "t").status_code == 400
        calling.close()


def test_writes_that_share_a_route_are_told_apart_by_their_mode() -> None:
    with Service(tables=["t"], token="token", wire=Wire.from_setting({"profile": "patch"})) as other:
        calling = Caller(other.url, "token")
        for mode, data in ((None, b"a,b\n1,x\n"), ("append", b"a,b\n2,x\n"), ("upsert", b"a,b\n2,y\n")):
            body: dict[str, Any] = {"update_mode": mode} | ({"key_columns": "a"} if mode == "upsert" else {})
            calling.write("append", "t", data, **body)
        assert [(row["a"], row["b"]) for row in calling.rows("t")] == [(1, "x"), (2, "y")]
        calling.write("append", "t", b"a,b\n3,z\n", update_mode="overwrite")
        assert calling.rows("t") == [{"a": 3, "b": "z"}]
        assert calling.initiate("upsert", "t", key_columns="a").status_code == 404
        started = [record.operation for record in other.requests if record.method == "PATCH"]
        assert started == ["append", "append", "upsert", "overwrite"]
        calling.close()
