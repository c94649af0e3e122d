"""The OpenAPI document: every route, nothing else, and what it says is so."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from caller import Caller

from airflow_tds.client.wire import Wire
from airflow_tds.local import Service

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "openapi.json"


@pytest.fixture(scope="module")
def served(service: Service) -> dict[str, Any]:
    """The document, as everybody may read it."""
    document: dict[str, Any] = httpx.get(f"{service.url}/openapi.json").json()
    return document


def lines(document: dict[str, Any]) -> set[str]:
    return {f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods}


ROUTES = {
    "DELETE /admin/faults",
    "GET /admin/faults",
    "GET /",
    "GET /admin/jobs",
    "GET /admin/requests",
    "GET /admin/tables",
    "GET /admin/tables/{table_id}/rows",
    "GET /data/jobs/{job_id}",
    "GET /data/query/{job_id}",
    "GET /openapi.json",
    "GET /storage/results/{job_id}",
    "GET /tables/{table_id}/data/info",
    "GET /tables/{table_id}/data/query",
    "PATCH /tables/{table_id}/data",
    "POST /admin/faults",
    "POST /admin/tables",
    "POST /data/queries",
    "POST /tables/{table_id}/data/delete",
    "POST /tables/{table_id}/data/overwrite",
    "POST /tables/{table_id}/data/truncate",
    "POST /tables/{table_id}/data/upload",
    "POST /tables/{table_id}/data/upsert",
    "PUT /storage/payloads/{job_id}",
}


def test_it_holds_every_route_and_nothing_else(served: dict[str, Any]) -> None:
    assert lines(served) == ROUTES


def test_it_follows_the_wire_map() -> None:
    with Service(wire=Wire.from_setting({"truncate": "DELETE /v2/{table_id}/rows"}), base_path="/api") as other:
        found = lines(httpx.get(f"{other.url}/openapi.json").json())
    assert "DELETE /api/v2/{table_id}/rows" in found
    assert not {line for line in found if line.endswith("/truncate")}


def references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        yield from ([part["$ref"]] if "$ref" in part else [])
        part = list(part.values())
    if isinstance(part, list):
        for each in part:
            yield from references(each)


def test_every_schema_that_it_names_is_in_it(served: dict[str, Any]) -> None:
    schemas = {f"#/components/schemas/{name}" for name in served["components"]["schemas"]}
    assert set(references(served)) <= schemas
    assert served["openapi"].startswith("3.1")


def test_every_answer_of_a_working_day_is_one_that_it_tells(
    service: Service, caller: Caller, table: str, served: dict[str, Any]
) -> None:
    caller.write("upload", table, b"a\n1\n")
    caller.initiate("upload", table)
    caller.write("append", table, b"a\n1\n")
    caller.write("overwrite", table, b"a\n1\n")
    caller.write("upsert", table, b"a\n1\n", key_columns="a")
    caller.initiate("upsert", table)
    caller.rows(table)
    etag = caller.http.get(f"/tables/{table}/data/query").headers["etag"]
    for query, header in (("", etag), ("?limit=0", "")):
        caller.http.get(f"/tables/{table}/data/query{query}", headers={"If-None-Match": header})
    caller.http.post(f"/tables/{table}/data/delete", json={"filters": ["a:eq:1"]})
    caller.http.post(f"/tables/{table}/data/delete", json={})
    caller.truncate(table)
    for path in ("/data/jobs/none", "/data/query/none", "/tables/none/data/info", "/admin/requests"):
        caller.http.get(path)
        httpx.get(service.url + path)
    told = {
        each["operationId"]: set(each["responses"]) for methods in served["paths"].values() for each in methods.values()
    }
    given = {(record.operation, str(record.status)) for record in service.requests if record.operation}
    assert {(operation, status) for operation, status in given if status not in told[operation]} == set()
    assert len(given) > 20


def test_its_statuses_are_those_of_the_wire_map() -> None:
    with Service(wire=Wire.from_setting({"error_kinds": {"418": "validation"}})) as other:
        upload = httpx.get(f"{other.url}/openapi.json").json()["paths"]["/tables/{table_id}/data/upload"]["post"]
    assert {"418", "409", "404", "403", "401"} <= set(upload["responses"])


def test_it_tells_the_limits_that_are_checked(served: dict[str, Any]) -> None:
    parameters = served["paths"]["/tables/{table_id}/data/query"]["get"]["parameters"]
    limit = next(each["schema"] for each in parameters if each["name"] == "limit")
    assert (limit["minimum"], limit["maximum"]) == (1, 10_000)


def test_each_route_tells_the_writes_that_it_takes(served: dict[str, Any]) -> None:
    def modes(path: str, method: str = "post") -> Any:
        body = served["paths"][f"/tables/{{table_id}}/data{path}"][method]["requestBody"]
        return body["content"]["application/json"]["schema"]["properties"]["update_mode"]["enum"]

    assert modes("", "patch") == ["append", None]
    assert modes("/upsert") == ["upsert", None]
    with Service(wire=Wire.from_setting({"overwrite": "PATCH /tables/{table_id}/data"})) as other:
        served = httpx.get(f"{other.url}/openapi.json").json()
    assert modes("", "patch") == ["append", "overwrite", None]


def test_a_method_that_no_route_takes_is_told_which_there_are(caller: Caller) -> None:
    reply = caller.http.put("/admin/faults")
    assert (reply.status_code, reply.headers["allow"]) == (405, "DELETE, GET, HEAD, POST")


def test_the_copy_in_the_documentation_is_what_is_served(served: dict[str, Any]) -> None:
    assert json.loads(PAGE.read_text()) == served, "python -m airflow_tds.local --openapi > docs/openapi.json"


def test_the_command_writes_the_copy() -> None:
    command = [sys.executable, "-m", "airflow_tds.local", "--openapi"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == PAGE.read_text()


def schemathesis(*options: str) -> int:
    """Make some requests of it, and give how many there were."""
    command = [sys.executable, str(ROOT / "tests" / "proofs" / "openapi.py"), "--only", "served", "--without-coverage"]
    ended = subprocess.run([*command, "--seed", "1", *options], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout
    return int(ended.stdout.splitlines()[-1].split()[1])


@pytest.mark.timeout(600)  # on a machine that may be busy
def test_schemathesis_finds_nothing_in_a_hundred_requests() -> None:
    assert schemathesis("--examples", "2") > 100


@pytest.mark.timeout(600)
def test_schemathesis_finds_nothing_where_data_is_sent_first_and_committed() -> None:
    assert schemathesis("--examples", "1", "--wire", "put_commit", "--auth", "basic") > 20
