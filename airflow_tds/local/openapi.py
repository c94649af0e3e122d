"""The service's OpenAPI document: its paths are the routes that are served, its schemas the models that are checked.

Every route has a description here, by its name; a test holds it to that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from airflow_tds.client import errors
from airflow_tds.client.models import CrossQueryRequest, DataJobResponse, DatasetInfoResponse, QueryResponse
from airflow_tds.client.wire import Wire
from airflow_tds.local.admin import TableBody
from airflow_tds.local.answers import Answers
from airflow_tds.local.asked import asked, schema_of
from airflow_tds.local.callers import TOKEN_PATH, Scheme
from airflow_tds.local.faults import Fault
from airflow_tds.local.routing import Served
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
    return _Described(summary, answer=Initiated, refusals=(*_TABLE, *refusals), links=links)


_BY_NAME = {
    "info": _Described("Statistics of a table, §2.2", answer=DatasetInfoResponse, refusals=_TABLE),
    "upload": _write("Start the initial load, §3.1", errors.Conflict),
    "append": _write("Start an append, §2.8"),
    "overwrite": _write("Start an overwrite, §2.8"),
    "upsert": _write("Start an upsert, §2.8"),
    "delete_rows": _Described(
        "Delete the rows that match all filters, §4.2 rule 5",
        204,
        refusals=_TABLE,
        links={"info": _SAME_TABLE},
    ),
    "truncate": _Described("Remove all rows, §3.1", 202, refusals=_TABLE, links={"info": _SAME_TABLE}),
    "get_job": _Described("A job's record, §2.3", answer=DataJobResponse, refusals=_JOB),
    "query_json": _Described(
        "A page of one table, §4.2",
        answer=QueryResponse,
        refusals=_TABLE,
        headers={"ETag": "The table's snapshot; left out while it never had data"},
        more={304: "The table has not changed since `If-None-Match`"},
        links={"query_json": {**_SAME_TABLE, "If-None-Match": "$response.header.ETag"}},
    ),
    "presign": _Described("Say where the data of a write goes that is committed afterwards", refusals=_TABLE),
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
    ),
    "put_payload": _Described(
        "Send a write's data to the object store",
        headers={"ETag": "SHA-256 of the data"},
        links={"get_job": _OF_REQUEST},
        more={
            400: "The body is shorter than announced",
            403: "The address is forged or expired",
            404: "The job is forgotten",
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
    "show_rows": _Described("A table's columns and first rows, each a list", refusals=(errors.TableNotFound,)),
    "list_jobs": _Described("The newest jobs"),
    "list_requests": _Described("The requests so far"),
    "add_fault": _Described("Script a fault", 201, Fault, Fault, refusals=(errors.ValidationFailed,)),
    "list_faults": _Described("The faults, and how often each has happened"),
    "clear_faults": _Described("Forget all faults", 204),
    "token": _Described(
        "Give an access token, RFC 6749 §4.4",
        more={400: "The grant is none of these", 401: "The client is unknown"},
        open=True,
    ),
    "page": _Described("The page for people", media=("text/html",), open=True),
    "openapi": _Described("This document", open=True),
}


#: Fields of the map on which the shape of an answer rests.
_SHAPES: Mapping[type[BaseModel], tuple[str, ...]] = {
    DatasetInfoResponse: ("row_count", "total_size_bytes", "data_files", "last_updated", "snapshot_id"),
    DataJobResponse: ("job_status", "job_error"),
    Initiated: ("job_id", "upload_url", "expires_at"),
    Started: ("job_id",),
    QueryResponse: ("items", "columns", "total_count", "has_next", "etag"),
    Refusal: ("error_detail",),
}


def document(served: Sequence[Served], wire: Wire, scheme: Scheme, base: str = "") -> dict[str, Any]:
    """Give the document.

    Args:
        served: What is served; each is described here by its name.
        wire: In which forms.
        scheme: How callers show their token.
        base: What stands before every path.
    """
    paths: dict[str, dict[str, Any]] = {}
    for first, *others in _together(served):
        methods = paths.setdefault(first.line.path, {})
        methods[first.line.method.lower()] = _operation([first, *others], wire)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Table Data Service (embedded, not for production)", "version": version("airflow-tds")},
        "paths": paths,
        "components": {"schemas": _schemas(), "securitySchemes": {"token": _security(scheme, base)}},
        "security": [{"token": []}],
    }


def _security(scheme: Scheme, base: str) -> dict[str, Any]:
    if scheme.kind == "api_key":
        return {"type": "apiKey", "in": "header", "name": scheme.header}
    if scheme.kind == "oauth2":
        flow = {"tokenUrl": base + TOKEN_PATH, "scopes": {}}
        return {"type": "oauth2", "flows": {"clientCredentials": flow}}
    return {"type": "http", "scheme": scheme.kind}


def _together(served: Sequence[Served]) -> list[list[Served]]:
    """Give the routes, those of one method and path together: the document has one operation for them."""
    found: dict[tuple[str, str], list[Served]] = {}
    for each in served:
        found.setdefault((each.line.method, each.line.path), []).append(each)
    return list(found.values())


def _operation(together: Sequence[Served], wire: Wire) -> dict[str, Any]:
    first = together[0]
    described = _described(first, wire)
    parameters, body = asked(together, wire)
    operation: dict[str, Any] = {
        "operationId": first.name,
        "summary": "; ".join(_BY_NAME[each.name].summary for each in together),
        "parameters": [*_ids(first, wire), *parameters, *_signed(described)],
        "responses": _responses(first, described, wire),
    }
    if described.body is not None:
        body = {"required": True, "content": _json(described.body)}
    elif first.name == "put_payload":
        body = {"content": {"application/octet-stream": {}}}
    if body:
        operation["requestBody"] = body
    if described.signed or described.open:
        operation["security"] = []
    return operation


def _described(served: Served, wire: Wire) -> _Described:
    """Describe a route as the map has it: the strategy of a write and the statuses of a poll are its words."""
    found = _BY_NAME[served.name]
    if served.route is not None and served.route.strategy in ("put_commit", "direct"):
        links = {"get_job": _OF_ANSWER}
        return replace(found, status=202, answer=Started, links=links)
    if served.name == "poll_query":
        more = {wire.ready[0]: "It is ready, at `Location`"}
        more |= {wire.pending[0]: "Not yet"} if wire.pending else {}
        return replace(found, more=more | ({wire.poll_failed[0]: "It failed"} if wire.poll_failed else {}))
    return found


def _ids(served: Served, wire: Wire) -> Iterable[dict[str, Any]]:
    for name in dict.fromkeys(re.findall(r"{(\w+)}", served.line.path)):
        schema = schema_of(served, name, wire) if _is_input(served, name) else {"type": "string", "minLength": 1}
        yield {"name": name, "in": "path", "required": True, "schema": schema}
    for name, template in served.line.query.items():
        schema = {"type": "string"} if "{" in template else {"const": template}
        yield {"name": name, "in": "query", "required": True, "schema": schema}
    for name, value in served.line.headers.items():
        yield {"name": name, "in": "header", "required": True, "schema": {"const": value}}


def _is_input(served: Served, name: str) -> bool:
    return served.route is not None and name in served.route.places


def _signed(described: _Described) -> Iterable[dict[str, Any]]:
    if described.signed:
        for name in ("Expires", "Signature"):
            yield {"name": name, "in": "query", "required": True, "schema": {"type": "string"}}


def _responses(served: Served, described: _Described, wire: Wire) -> dict[str, Any]:
    name = served.name
    refusals = () if described.signed or described.open else (errors.Unauthorized, errors.Forbidden)
    own = name.startswith(("create_", "list_", "show_", "add_", "clear_"))
    forms = Wire() if own else wire  # the service's own routes keep their form
    answers: dict[str, Any] = {str(described.status): _success(described, forms)}
    statuses = Answers(wire)
    for kind in (*refusals, *described.refusals):
        answers[str(statuses.status_of(kind))] = {"description": kind.__name__, "content": _shape(Refusal, wire)}
    for status, meaning in (described.more or {}).items():
        answers.setdefault(str(status), {"description": meaning})
    if name == "poll_query":
        location = {"description": "A presigned address", "required": True, "schema": {"type": "string"}}
        answers[str(wire.ready[0])]["headers"] = {"Location": location}
        if wire.pending and wire.pending[0] not in (204, 205):
            answers[str(wire.pending[0])]["content"] = _shape(DataJobResponse, wire)
    if any(_is_input(served, name) for name in re.findall(r"{(\w+)}", served.line.path)):
        answers.setdefault("404", {"description": "There is no such path"})
    if not described.open:
        answers["503"] = {"description": "Nothing can be written at the moment"}
    return answers


def _shape(model: type[BaseModel], wire: Wire) -> dict[str, Any]:
    """Give the schema of an answer, where the map leaves it in its usual form."""
    usual = Wire()
    if all(getattr(wire, name) == getattr(usual, name) for name in _SHAPES.get(model, ())):
        return _json(model)
    return {"application/json": {}}


def _success(described: _Described, wire: Wire) -> dict[str, Any]:
    success: dict[str, Any] = {"description": "Done"}
    if described.answer is not None:
        success["content"] = _shape(described.answer, wire)
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
    ordered = sorted(models, key=lambda model: model.__name__)
    _, found = models_json_schema(
        [(model, "validation") for model in ordered], ref_template="#/components/schemas/{model}"
    )
    schemas: dict[str, Any] = found["$defs"]
    return schemas
