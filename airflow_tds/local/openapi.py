"""The service's OpenAPI document: its paths are the routes that are served, its schemas the models that are checked.

Every route has a description here, by its name; a test holds it to that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.routing import Route

from airflow_tds.client import errors
from airflow_tds.client.models import CrossQueryRequest, DataJobResponse, DatasetInfoResponse, QueryResponse
from airflow_tds.client.wire import Wire
from airflow_tds.local.faults import Fault
from airflow_tds.local.refusals import status_of
from airflow_tds.local.requests import DeleteBody, PageQuery, TableBody, WriteBody
from airflow_tds.local.storage import MEDIA_TYPES

__all__ = ["document"]


class Initiated(BaseModel):
    """A job that waits for its data, and where to PUT them (assumed)."""

    job_id: str
    upload_url: str
    expires_at: str


class Started(BaseModel):
    """A query job that was started (assumed)."""

    job_id: str


class Refusal(BaseModel):
    """Why a request was refused (assumed)."""

    detail: str


_TABLE = (errors.TableNotFound, errors.ValidationFailed)
_JOB = (errors.JobNotFound, errors.ValidationFailed)


@dataclass(frozen=True)
class _Described:
    """What is told of an operation beside its route.

    Attributes:
        summary: One line.
        status: Of the answer that means success.
        answer: What its body holds; None for no JSON.
        body: What the request's body holds; None for no JSON.
        query: The request's parameters.
        refusals: What can be refused, beside the caller.
        media: Media types of the success's body, where it is no JSON.
        headers: Of the success, with what they mean.
        links: What a success makes possible: operations, each with where its parameters are found.
        more: Further statuses, with what they mean.
        signed: The address carries a signature instead of credentials.
        open: Everybody may ask.
    """

    summary: str
    status: int = 200
    answer: type[BaseModel] | None = None
    body: type[BaseModel] | None = None
    query: type[BaseModel] | None = None
    refusals: tuple[type[errors.Refused], ...] = ()
    media: tuple[str, ...] = ()
    headers: Mapping[str, str] | None = None
    links: Mapping[str, Mapping[str, str]] | None = None
    more: Mapping[int, str] | None = None
    signed: bool = False
    open: bool = False


#: Where the parameters of an operation that follows are found.
_OF_ANSWER = {"job_id": "$response.body#/job_id"}
_OF_REQUEST = {"job_id": "$request.path.job_id"}
_SAME_TABLE = {"table_id": "$request.path.table_id"}


def _write(summary: str, *refusals: type[errors.Refused]) -> _Described:
    links = {"put_payload": _OF_ANSWER, "get_job": _OF_ANSWER}
    return _Described(summary, answer=Initiated, body=WriteBody, refusals=(*_TABLE, *refusals), links=links)


_BY_NAME = {
    "info": _Described("Statistics of a table, §2.2", answer=DatasetInfoResponse, refusals=_TABLE),
    "upload": _write("Start the initial load, §3.1", errors.Conflict),
    "append": _write("Start an append, §2.8"),
    "overwrite": _write("Start an overwrite, §2.8"),
    "upsert": _write("Start an upsert, §2.8"),
    "delete_rows": _Described(
        "Delete the rows that match all filters, §4.2 rule 5",
        204,
        body=DeleteBody,
        refusals=_TABLE,
        links={"info": _SAME_TABLE},
    ),
    "truncate": _Described("Remove all rows, §3.1", 202, refusals=_TABLE, links={"info": _SAME_TABLE}),
    "get_job": _Described("A job's record, §2.3", answer=DataJobResponse, refusals=_JOB),
    "query_json": _Described(
        "A page of one table, §4.2",
        answer=QueryResponse,
        query=PageQuery,
        refusals=_TABLE,
        headers={"ETag": "The table's snapshot; left out while it never had data"},
        more={304: "The table has not changed since `If-None-Match`"},
        links={"query_json": {**_SAME_TABLE, "If-None-Match": "$response.header.ETag"}},
    ),
    "start_query": _Described(
        "Start a query, §4.2",
        202,
        Started,
        CrossQueryRequest,
        refusals=_TABLE,
        links={"get_job": _OF_ANSWER, "poll_query": _OF_ANSWER},
    ),
    "poll_query": _Described(
        "Ask whether a query's result is ready, §4.2: 200 says that it failed",
        answer=DataJobResponse,
        refusals=_JOB,
        more={202: "Not yet", 307: "It is, at `Location`"},
    ),
    "put_payload": _Described(
        "Send a write's data to the object store",
        headers={"ETag": "SHA-256 of the data"},
        links={"get_job": _OF_REQUEST},
        more={
            400: "The body is shorter than announced",
            403: "The address is forged or expired",
            409: "The job has other data",
            411: "The length is not announced",
        },
        signed=True,
    ),
    "get_result": _Described(
        "Fetch a query's result from the object store",
        media=tuple(MEDIA_TYPES.values()),
        more={
            206: "A part of it",
            403: "The address is forged or expired",
            404: "It is removed",
            416: "It has no such part",
        },
        signed=True,
    ),
    "create_table": _Described(
        "Create a table",
        201,
        TableBody,
        TableBody,
        refusals=(errors.ValidationFailed,),
        links={"info": {"table_id": "$response.body#/table_id"}, "upload": {"table_id": "$response.body#/table_id"}},
    ),
    "list_tables": _Described("All tables with their statistics"),
    "list_jobs": _Described("The newest jobs"),
    "list_requests": _Described("The requests so far"),
    "add_fault": _Described("Script a fault", 201, Fault, Fault, refusals=(errors.ValidationFailed,)),
    "list_faults": _Described("The faults, and how often each has happened"),
    "clear_faults": _Described("Forget all faults", 204),
    "page": _Described("The page for people", media=("text/html",), open=True),
    "openapi": _Described("This document", open=True),
}


def document(routes: Sequence[Route], wire: Wire) -> dict[str, Any]:
    """Give the document.

    Args:
        routes: What is served; each is described here by its name.
        wire: Says which status a refusal has.
    """
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        for method in sorted((route.methods or set()) - {"HEAD"}):
            paths.setdefault(route.path, {})[method.lower()] = _operation(route, _BY_NAME[route.name], wire)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Table Data Service (embedded, not for production)", "version": version("airflow-tds")},
        "paths": paths,
        "components": {
            "schemas": _schemas(),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(route: Route, described: _Described, wire: Wire) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": described.summary,
        "parameters": [*_parameters(route, described)],
        "responses": _answers(described, wire),
    }
    if described.body is WriteBody:
        content = {"application/json": {"schema": _write_schema(_sharing(wire, route.name))}}
        operation["requestBody"] = {"required": True, "content": content}
    elif described.body is not None:
        operation["requestBody"] = {"required": True, "content": _json(described.body)}
    elif route.name == "put_payload":
        operation["requestBody"] = {"content": {"application/octet-stream": {}}}
    if described.signed or described.open:
        operation["security"] = []
    return operation


def _sharing(wire: Wire, kind: str) -> tuple[str, ...]:
    """Give the writes that the wire map sends to the route of one of them."""
    places = {each: getattr(wire, each) for each in ("upload", "append", "overwrite", "upsert")}
    own = (places[kind].method, places[kind].path)
    return tuple(each for each, route in places.items() if (route.method, route.path) == own)


def _write_schema(kinds: Sequence[str]) -> dict[str, Any]:
    """Give what initiates a write at the route of some kinds of writes."""
    schema = WriteBody.model_json_schema()
    names = {"type": "array", "items": {"type": "string"}, "minItems": 1, "uniqueItems": True}
    keys: list[dict[str, Any]] = [{"type": "string"}, names] if "upsert" in kinds else []
    if kinds == ("upsert",):
        schema["required"].append("key_columns")
    else:
        keys.append({"type": "null"})
    schema["properties"]["key_columns"] = {"anyOf": keys}
    modes = [kind for kind in kinds if kind != "upload"]
    schema["properties"]["update_mode"] = {"enum": [*modes, None]}
    return schema


def _parameters(route: Route, described: _Described) -> Iterable[dict[str, Any]]:
    for name in re.findall(r"{(\w+)}", route.path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    if described.query is not None:
        for name, schema in described.query.model_json_schema()["properties"].items():
            yield {"name": name, "in": "query", "schema": schema}
        yield {"name": "If-None-Match", "in": "header", "schema": {"type": "string"}}
    if described.signed:
        for name in ("Expires", "Signature"):
            yield {"name": name, "in": "query", "required": True, "schema": {"type": "string"}}


def _answers(described: _Described, wire: Wire) -> dict[str, Any]:
    refusals = () if described.signed or described.open else (errors.Unauthorized, errors.Forbidden)
    answers: dict[str, Any] = {str(described.status): _success(described)}
    for kind in (*refusals, *described.refusals):
        answers[str(status_of(wire, kind))] = {"description": kind.__name__, "content": _json(Refusal)}
    for status, meaning in (described.more or {}).items():
        answers[str(status)] = {"description": meaning}
    if "307" in answers:
        location = {"description": "A presigned address", "required": True, "schema": {"type": "string"}}
        answers["307"]["headers"] = {"Location": location}
        answers["202"]["content"] = _json(DataJobResponse)
    if not described.open:
        answers["503"] = {"description": "Nothing can be written at the moment"}
    return answers


def _success(described: _Described) -> dict[str, Any]:
    success: dict[str, Any] = {"description": "Done"}
    if described.answer is not None:
        success["content"] = _json(described.answer)
    if described.media:
        success["content"] = {media: {} for media in described.media}
    if described.headers:
        told = described.headers.items()
        success["headers"] = {name: {"description": said, "schema": {"type": "string"}} for name, said in told}
    if described.links:
        links = described.links.items()
        success["links"] = {name: {"operationId": name, "parameters": dict(where)} for name, where in links}
    return success


def _json(model: type[BaseModel]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}}


def _schemas() -> dict[str, Any]:
    described = _BY_NAME.values()
    models = {model for each in described for model in (each.answer, each.body) if model is not None} | {Refusal}
    models -= {WriteBody}  # each route tells its own
    ordered = sorted(models, key=lambda model: model.__name__)
    _, found = models_json_schema(
        [(model, "validation") for model in ordered], ref_template="#/components/schemas/{model}"
    )
    schemas: dict[str, Any] = found["$defs"]
    return schemas
