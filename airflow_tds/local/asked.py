"""What may be asked for at a route, as OpenAPI tells it: inputs.py reads it, here it is described.

Where an input stands is the wire map's word; which values it takes, inputs.py's. Routes of one method and path
are described together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from airflow_tds.client.wire import Route, Wire
from airflow_tds.local.filters import SIMPLE
from airflow_tds.local.inputs import DEFAULT_LIMIT, LARGEST_LIMIT, LARGEST_OFFSET, Reader, places_of, pointer_keys
from airflow_tds.local.routing import Served

__all__ = ["asked", "schema_of"]

_WRITES = ("upload", "append", "overwrite", "upsert")
_NULL = {"type": "null"}
#: What is given in any case, by operation.
_NEEDED = {"delete_rows": ("filters",), "upsert": ("key_columns",)}


def asked(together: Sequence[Served], wire: Wire) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Give the parameters and the body of the routes of one method and path.

    Args:
        together: The routes.
        wire: The map.

    Returns:
        Parameters beside those in the path; what is sent as body, None for nothing.
    """
    mapped = [each for each in together if each.route is not None]
    parameters = {name: found for each in mapped for name, found in _parameters(each, wire).items()}
    if len(mapped) > 1:
        parameters = {name: found | {"required": False} for name, found in parameters.items()}
    if any(each.name == "start_query" for each in mapped):
        return list(parameters.values()), _content("#/components/schemas/CrossQueryRequest")
    if any(each.route is not None and each.route.strategy == "direct" for each in mapped):
        return list(parameters.values()), {
            "required": True,
            "content": {name: {} for name in wire.media_types.values()},
        }
    bodies = [body for each in mapped if (body := _body(each, wire))]
    if not bodies:
        return list(parameters.values()), None
    required = len(bodies) == len(mapped) and any(body["required"] for body in bodies)
    return list(parameters.values()), {
        "required": required,
        "content": {"application/json": {"schema": _merged(bodies)}},
    }


def _content(reference: str) -> dict[str, Any]:
    return {"required": True, "content": {"application/json": {"schema": {"$ref": reference}}}}


def _parameters(served: Served, wire: Wire) -> dict[tuple[str, str], dict[str, Any]]:
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for name, at in (places_of(served.route) if served.route else {}).items():
        if at.where != "body":
            schema = schema_of(served, name, wire)
            needed = name in _needed(served, wire)
            found[at.where, at.name] = {"name": at.name, "in": at.where, "required": needed, "schema": schema}
            if not needed:
                del found[at.where, at.name]["required"]
    return found


def _body(served: Served, wire: Wire) -> dict[str, Any]:
    """Give the schema of a JSON body; empty where nothing travels in one."""
    made: dict[str, Any] = {}
    for name, at in (places_of(served.route) if served.route else {}).items():
        if at.where == "body":
            *above, last = pointer_keys(at.name)
            inner = made or _empty()
            made = inner
            for key in above:
                if name in _needed(served, wire) and key not in inner["required"]:
                    inner["required"].append(key)
                inner = inner["properties"].setdefault(key, _empty())
            inner["properties"][last] = schema_of(served, name, wire)
            if name in _needed(served, wire):
                inner["required"].append(last)
    return made


def _empty() -> dict[str, Any]:
    return {"type": "object", "properties": {}, "required": [], "additionalProperties": False}


def _merged(bodies: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Put the bodies of several operations together: any of their fields, and those that all of them need."""
    first, *others = bodies
    made = {**first, "properties": dict(first["properties"])}
    for other in others:
        for name, schema in other["properties"].items():
            made["properties"][name] = _either(made["properties"].get(name, schema), schema)
        made["required"] = [name for name in made["required"] if name in other["required"]]
    return made


def _either(left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    if left == right:
        return left
    if "enum" in left and "enum" in right:
        words = dict.fromkeys([*left["enum"], *right["enum"]])
        return {"enum": [*(word for word in words if word is not None), *([None] if None in words else [])]}
    if left.get("type") == "object" and right.get("type") == "object":
        return _merged([left, right])
    several = [each for side in (left, right) for each in side.get("anyOf", [side])]
    return {"anyOf": [each for at, each in enumerate(several) if each not in several[:at]]}


def _needed(served: Served, wire: Wire) -> Iterable[str]:
    """Name the inputs without which an operation is refused."""
    names = [*_NEEDED.get(served.name, ())]
    if served.name in _WRITES and served.route is not None:
        direct = served.route.strategy == "direct"
        names += ["object"] if served.route.strategy == "put_commit" else []
        names += ["format"] if len(Reader(wire).formats(served.route)) > 1 and not direct else []
    return names


def schema_of(served: Served, name: str, wire: Wire) -> dict[str, Any]:
    """Give the values that an input of a route takes, as JSON Schema."""
    reader = Reader(wire)
    if name == "update_mode":
        return {"enum": [served.mode, None]}
    if name == "format":
        words = reader.formats(served.route) if served.name != "query_json" and served.route else reader.page_formats()
        return {"enum": list(words)}
    if name == "key_columns":
        names = {"type": "array", "items": {"type": "string"}, "minItems": 1, "uniqueItems": True}
        return {"anyOf": [{"type": "string"}, names] if served.name == "upsert" else [_NULL]}
    if name == "limit":
        return {"type": "integer", "minimum": 1, "maximum": LARGEST_LIMIT, "default": DEFAULT_LIMIT}
    if name == "offset":
        return {"type": "integer", "minimum": 0, "maximum": LARGEST_OFFSET, "default": 0}
    if name == "filters" and served.route is not None:
        return _filters(served.route, needed=served.name == "delete_rows")
    return {"type": "string"}


def _filters(route: Route, *, needed: bool) -> dict[str, Any]:
    style, at = route.style("filters"), route.places["filters"]
    if style == "repeated" and at is not None and at.where != "header":
        simple = {"type": "string", "pattern": SIMPLE}
        return {"type": "array", "items": simple} | ({"minItems": 1} if needed else {})
    return {} if style == "structured" and at is not None and at.where == "body" else {"type": "string"}
