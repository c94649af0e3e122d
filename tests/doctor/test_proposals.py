"""What an OpenAPI document suggests: the route that is named most like an operation, nothing where it is unclear."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_tds.client.wire import Wire
from airflow_tds.doctor.proposals import proposals


def document(*lines: str, **operation_ids: str) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for line in lines:
        method, path = line.split()
        paths.setdefault(path, {})[method.lower()] = {"operationId": operation_ids.get(line.replace(" ", "_"), "")}
    return {"paths": paths}


@pytest.mark.parametrize(
    ("line", "key", "proposed"),
    [
        ("GET /tables/{name}/stats", "info", "GET /tables/{table_id}/stats"),
        ("PUT /tables/{name}/merge", "upsert", "PUT /tables/{table_id}/merge"),
        ("POST /tables/{name}/replace", "overwrite", "POST /tables/{table_id}/replace"),
        ("DELETE /tables/{name}/rows", "delete_rows", "DELETE /tables/{table_id}/rows"),
        ("GET /tasks/{number}", "get_job", "GET /tasks/{job_id}"),
    ],
)
def test_a_route_is_proposed_by_its_name(line: str, key: str, proposed: str) -> None:
    assert proposals(document(line, "GET /tables/{name}"), Wire()).wire == {key: proposed}


def test_an_operation_id_tells_more_than_a_path() -> None:
    found = proposals(
        {
            "paths": {
                "/tables/{id}/a": {"get": {"operationId": "getInfo"}},
                "/tables/{id}/stats": {"get": {"operationId": "x"}},
            }
        },
        Wire(),
    )

    assert found.wire["info"] == "GET /tables/{table_id}/a"


def test_two_routes_that_are_alike_are_unclear() -> None:
    found = proposals(document("GET /tables/{t}/stats", "GET /tables/{t}/statistics"), Wire())

    assert "info" in found.unclear
    assert found.wire == {}


def test_a_jobs_result_is_not_the_job() -> None:
    assert proposals(document("GET /jobs/{id}/result", "GET /jobs/{id}"), Wire()).wire == {
        "get_job": "GET /jobs/{job_id}"
    }


def test_a_route_that_is_there_is_confirmed() -> None:
    found = proposals(document("GET /tables/{x}/data/info"), Wire())

    assert found.confirmed == ["info"]


def test_a_base_path_that_the_document_repeats_is_no_part_of_a_route() -> None:
    found = proposals(document("GET /api/v1/tables/{x}/data/info"), Wire(), "/api/v1")

    assert found.confirmed == ["info"]


def answering(schema: Any, **components: Any) -> dict[str, Any]:
    answers = {"200": {"content": {"application/json": {"schema": schema}}}}
    return {
        "paths": {"/tables/{t}/data": {"patch": {"responses": answers}}},
        "components": {"schemas": components},
    }


def test_names_in_the_answer_of_an_append_are_proposed() -> None:
    schema = {"$ref": "#/components/schemas/Begun"}
    begun: dict[str, Any] = {
        "properties": {"ticket": {"properties": {"number": {}}}, "put": {"properties": {"href": {}}}}
    }

    assert proposals(answering(schema, Begun=begun), Wire()).wire == {
        "job_id": "/ticket/number",
        "upload_url": "/put/href",
    }


def test_names_that_the_map_knows_are_confirmed() -> None:
    found = proposals(answering({"properties": {"job_id": {}, "upload_url": {}}}), Wire())

    assert found.confirmed == ["job_id", "upload_url"]


def test_a_reference_that_leads_in_a_circle_ends() -> None:
    circle = {"$ref": "#/components/schemas/A"}

    assert proposals(answering(circle, A=circle), Wire()).wire == {}


@pytest.mark.parametrize(
    "no_document", [None, [], {"paths": None}, {"paths": {"/x": None}}, {"paths": {"/x": {"get": 1}}}]
)
def test_what_is_no_document_proposes_nothing(no_document: Any) -> None:
    assert proposals(no_document, Wire()).wire == {}
