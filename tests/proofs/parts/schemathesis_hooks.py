"""What schemathesis is told of the embedded service beside its document; see tests/proofs/openapi.py."""

from __future__ import annotations

import os
from typing import Any

import schemathesis
from schemathesis import Case, HookContext

#: Where a presigned address stands, and whose job it is of.
_SIGNED = {"put_payload": "$response.body#/upload_url", "get_result": "$response.header.Location"}
_TABLES = {"enum": ["people", "pets"]}
_COLUMNS = ["id", "name", "people.id", "pets.name"]
_SELECT = {"type": "array", "items": {"enum": _COLUMNS}, "minItems": 1}
#: What the schemas say of these fields once the document knows the tables that there are.
_NARROWED = {
    "CrossQueryRequest": {"table_id": _TABLES, "select": {"anyOf": [_SELECT, {"type": "null"}]}},
    "JoinSpec": {
        "table_id": _TABLES,
        "left_on": {"enum": [*_COLUMNS, None]},
        "right_on": {"enum": ["id", "name", None]},
    },
    "FilterLeaf": {"field": {"enum": _COLUMNS}},
}


def _link(operation: str, job_id: str) -> dict[str, Any]:
    """Lead to an object store's operation with the signature that an answer holds: an address is no parameter."""
    address = _SIGNED[operation]
    taken = {name: f"{address}#regex:{name}=([^&]+)" for name in ("Expires", "Signature")}
    return {"operationId": operation, "parameters": {"job_id": job_id, **taken}}


@schemathesis.hook
def before_load_schema(context: HookContext, raw_schema: dict[str, Any]) -> None:
    """Let the links of presigned addresses carry their signatures; name the tables and columns that there are."""
    stored = "/storage/results/{job_id}" in raw_schema["paths"]  # else a bucket serves the results
    for path in raw_schema["paths"].values():
        for operation in path.values():
            for status, answer in operation["responses"].items():
                if "put_payload" in answer.get("links", {}):
                    job_id = answer["links"]["put_payload"]["parameters"]["job_id"]
                    answer["links"]["put_payload"] = _link("put_payload", job_id)
                if status == "307" and stored:
                    answer["links"] = {"get_result": _link("get_result", "$request.path.job_id")}
    if "TDS_NARROWED" in os.environ:
        for name, fields in _NARROWED.items():
            raw_schema["components"]["schemas"][name]["properties"].update(fields)


@schemathesis.hook
def before_call(context: HookContext, case: Case[Any], kwargs: dict[str, Any]) -> None:
    """Follow no redirect: a 307 is an answer of the interface, §4.2."""
    kwargs["allow_redirects"] = False
