"""Whatever the wire map says is served: the real client works with every form, and what cannot be is refused."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest
from service_forms import credentials
from wire_settings import AUTHS, drawn

from airflow_tds.client import errors
from airflow_tds.client.client import TableClient
from airflow_tds.client.wire import Wire
from airflow_tds.local import Rights, Service
from airflow_tds.local.connection import as_setting

SOON: dict[str, Any] = {"timeout": 60.0, "poll_interval": 0.01}
#: `TDS_FORMS=500 pytest tests/local/test_forms.py` tries more of them.
SEEDS = range(int(os.environ.get("TDS_FORMS", "8")))


def client_of(service: Service, token: str | None = None) -> TableClient:
    connection = json.loads(service.connection_json)
    wire = Wire.from_setting(connection["extra"]["wire"])
    return TableClient(service.url, credentials=credentials(connection, token), wire=wire)


def served(setting: Any, **options: Any) -> Service:
    tokens = {"reader": Rights(read=["t 1"])}
    return Service(tables=["t 1", "u"], wire=setting, tokens=tokens, base_path="/api/v1", **options)


def a_working_day(client: TableClient) -> None:
    """Do all that the interface has, and look at what came of it."""
    assert client.upload("t 1", b"id,name\n1,a\n2,b\n", "csv", **SOON).status == "COMPLETED"
    client.append("t 1", [{"id": 3, "name": "c|d"}], "json", **SOON)
    client.upsert("t 1", b"id,name\n2,z\n4,d\n", "csv", key_columns=["id"], **SOON)
    assert rows(client) == {1: "a", 2: "z", 3: "c|d", 4: "d"}
    page = client.query("t 1", filters=["id:gt:1", "name:ne:d"], limit=1, offset=1)
    assert page is not None
    assert (len(page.items), page.metadata.total_count, page.metadata.has_next) == (1, 2, False)
    assert client.query("t 1", etag=page.etag) is None
    client.delete_rows("t 1", ["id:gte:3", "name:eq:d"])
    assert rows(client) == {1: "a", 2: "z", 3: "c|d"}
    assert client.query("t 1", filters="id:eq:1", format="csv", **SOON) == b"id,name\n1,a\n"
    joined = {"table_id": "t 1", "joins": [{"table_id": "t 1", "how": "semi", "left_on": "id", "right_on": "id"}]}
    assert len(json.loads(client.cross_query({**joined, "format": "json"}, **SOON))) == 3
    assert client.cross_query({"table_id": "t 1", "format": "parquet"}, **SOON).startswith(b"PAR1")
    client.update("t 1", b"id,name\n9,i\n", update_mode="overwrite", **SOON)
    info = client.info("t 1")
    assert (info.row_count, bool(info.snapshot_id), bool(info.last_updated)) == (1, True, True)
    client.truncate("t 1")
    assert client.wait_until_truncated("t 1", **SOON).row_count == 0


def rows(client: TableClient) -> dict[int, str]:
    return {row["id"]: row["name"] for row in client.iter_rows("t 1", page_size=2)}


def poll_nothing(client: TableClient) -> None:
    """Poll a job that does not exist to the deadline: it might be new. Longer where a busy machine gave no answer."""
    for timeout in (0.2, 5.0, 50.0):
        with suppress(errors.WaitTimedOut):
            client.poll_download("0" * 32, timeout=timeout)


def every_no(client: TableClient) -> None:
    """Be refused in every way that there is, each told by its own error."""
    with pytest.raises(errors.TableNotFound):
        client.info("nowhere")
    with pytest.raises(errors.JobNotFound):
        client.get_job("0" * 32)
    with pytest.raises(errors.JobNotFound):
        poll_nothing(client)
    with pytest.raises(errors.Conflict):
        client.submit_upload("t 1", b"id,name\n1,a\n", "csv")
    with pytest.raises(errors.ValidationFailed):
        client.query("t 1", filters="nothing:eq:1")
    with pytest.raises(errors.JobFailed, match="row 1"):
        client.append("t 1", b"id,name\nx,y\n", "csv", **SOON)


def told(document: Any) -> list[str]:
    """Give what a document refers to and does not hold, and operations that it tells twice."""
    names = [each["operationId"] for methods in document["paths"].values() for each in methods.values()]
    schemas = document["components"]["schemas"]
    lacking = [
        name for name in re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)) if name not in schemas
    ]
    return lacking + [name for name in set(names) if names.count(name) > 1]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_client_does_everything_in_the_forms_of(seed: int) -> None:
    setting, auth = drawn(seed), AUTHS[seed % 4]
    with served(setting, auth=auth, upload_headers={"X-Signed": "yes"}) as service, client_of(service) as client:
        a_working_day(client)
        every_no(client)
        assert told(httpx.get(f"{service.url}/openapi.json").json()) == []
        with client_of(service, "reader") as reader:
            assert reader.info("t 1").row_count == 0
            with pytest.raises(errors.Forbidden):
                reader.truncate("t 1")
        with client_of(service, "wrong") as stranger, pytest.raises(errors.Unauthorized):
            stranger.info("t 1")


def test_the_forms_together_say_every_setting_otherwise() -> None:
    maps, usual = [Wire.from_setting(drawn(seed)) for seed in range(8)], Wire()
    same = [name for name in Wire.model_fields if all(getattr(each, name) == getattr(usual, name) for each in maps)]
    assert same == []


@pytest.mark.parametrize("setting", ["patch", {"profile": "patch", "append": {"strategy": "direct"}}, None])
def test_a_profile_is_served(setting: Any) -> None:
    if isinstance(setting, dict):
        setting = {**setting, "append": {"strategy": "direct", "places": {"update_mode": "query mode"}}}
    with served(setting) as service, client_of(service) as client:
        a_working_day(client)
        every_no(client)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_connection_says_the_whole_map(seed: int) -> None:
    wire = Wire.from_setting(drawn(seed))
    assert Wire.from_setting(json.loads(json.dumps(as_setting(wire)))) == wire


UNSERVED: list[tuple[dict[str, Any], str]] = [
    ({"write_formats": ["csv", "avro"]}, "write_formats"),
    ({"info": "GET /tables/{table_id}/data/query"}, "info"),
    ({"get_job": "GET /data/query/{job_id}"}, "get_job"),
    ({"format_tokens": {"csv": "json"}}, "start_query"),
    ({"ready": [200], "pending": [204], "poll_failed": [500], "poll_by": "get_job"}, "poll_by"),
    ({"overwrite": {"places": {"format": None}}}, "overwrite"),
    ({"upsert": {"places": {"key_columns": None}}}, "upsert"),
    ({"delete_rows": {"places": {"filters": None}}}, "delete_rows"),
    ({"delete_rows": {"places": {"filters": "query f joined :"}}}, "delete_rows"),
    ({"append": {"strategy": "direct"}, "media_types": {"csv": "application/json"}}, "append"),
    ({"query_json": {"places": {"limit": "query n", "offset": "query n"}}}, "query_json"),
    ({"overwrite": "PATCH /tables/{table_id}/data", "mode_tokens": {"overwrite": "append"}}, "append"),
    ({"job_id": ""}, "job_id"),
    ({"job_id": "/a", "upload_url": "/a/b"}, "upload_url"),
    ({"row_count": "/n", "total_size_bytes": "/n"}, "row_count"),
    ({"items": "/items", "total_count": "/items"}, "items"),
    ({"job_status": ""}, "job_status"),
    ({"completed": "QUEUED"}, "completed"),
    ({"no_data_statuses": ["COMPLETED"]}, "no_data_statuses"),
    ({"pending": [307]}, "pending"),
    ({"pending": [404]}, "pending"),
    ({"ready": [200]}, "poll_failed"),
]  # fmt: skip


@pytest.mark.parametrize(("setting", "named"), UNSERVED, ids=[json.dumps(setting) for setting, _ in UNSERVED])
def test_what_cannot_be_served_is_refused_at_the_start_by_name(setting: dict[str, Any], named: str) -> None:
    with pytest.raises(errors.ValidationFailed, match=f"^wire map: .*{named}.* cannot be served"):
        Service(wire=setting).start()


STRICT = {
    "headers": {"X-Tenant": "acme"},
    "get_job": "GET /tickets?number={job_id}",
    "truncate": {"line": "PUT /tables/{table_id}/rows", "headers": {"X-Op": "empty"}},
    "overwrite": {"line": "POST /tables/{table_id}/ops", "places": {"update_mode": "query mode"}},
    "upsert": {"line": "POST /tables/{table_id}/ops", "places": {"key_columns": "query by json"}},
    "query_json": {"places": {"filters": "query f structured", "etag": "query seen", "format": "query as"}},
}


@pytest.fixture(scope="module")
def strict() -> Iterator[httpx.Client]:
    with Service(tables=["t"], wire=STRICT) as service:
        headers = {"Authorization": f"Bearer {service.token}", "X-Tenant": "acme"}
        with httpx.Client(base_url=service.url, headers=headers) as calling:
            yield calling


@pytest.mark.parametrize(
    ("line", "body", "why"),
    [
        ("GET /tables/t/data/query?limit=1&limit=2", None, "limit: the parameter limit is given 2 times"),
        ("GET /tables/t/data/query?f={", None, "filters: no JSON at query f"),
        ('GET /tables/t/data/query?f={"field":"a"}', None, "filters"),
        ("GET /tables/t/data/query?as=csv", None, "format: 'csv' is not 'json'"),
        ("GET /tables/t/data/query?filters=a:eq:1", None, "filters: there is no such parameter"),
        ("GET /tables/t/data/query?f=%FF", None, "not valid UTF-8"),
        ("GET /tickets", None, "lacks the parameter number={job_id}"),
        ("GET /tickets?number=1&number=2", None, "lacks the parameter number={job_id}"),
        ("PUT /tables/t/rows", None, "lacks the header x-op: empty"),
        ("POST /tables/t/ops", b'{"format": "csv"}', "update_mode: one of overwrite, upsert is needed"),
        ("POST /tables/t/ops?mode=replace", b'{"format": "csv"}', "update_mode: one of overwrite, upsert is needed"),
        ("POST /tables/t/ops?by=[", b'{"format": "csv", "update_mode": "upsert"}', "key_columns: no JSON at query by"),
        ("POST /tables/t/ops?mode=overwrite", b'{"format": {"a": 1}}', "format"),
        ("POST /tables/t/data/upload", b'{"format": "csv", "more": {"a": 1}}', "/more: nothing is asked for there"),
        ("POST /tables/t/data/upload", b'"csv"', "the body is no JSON object"),
        ("POST /tables/t/data/delete", b'{"filters": "a:eq:1"}', "filters: not a list of simple expressions"),
        ("POST /data/queries", b'{"table_id": "t", "format": 5}', "format: 5 is none of parquet, csv, json"),
    ],
)
def test_what_is_not_given_as_the_map_writes_it_is_refused_by_name(
    strict: httpx.Client, line: str, body: bytes | None, why: str
) -> None:
    method, _, path = line.partition(" ")
    reply = strict.request(method, path, content=body)
    assert (reply.status_code, why in reply.json()["detail"]) == (422, True), reply.text


def test_a_fixed_header_of_the_map_has_to_be_there(strict: httpx.Client) -> None:
    reply = strict.get("/tables/t/data/info", headers={"X-Tenant": "other"})
    assert (reply.status_code, reply.json()["detail"]) == (422, "info: the request lacks the header x-tenant: acme")
    assert strict.get("/tables/t/data/info").status_code == 200
