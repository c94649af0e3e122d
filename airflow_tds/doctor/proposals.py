"""Routes and names that a service's OpenAPI document suggests for what the interface leaves open; nothing is proven.

Pure: a document comes in, proposals go out. A route of the wire map that the document has is confirmed; for another,
the one that is named most like the operation is proposed, if there is exactly one. What is fixed is never proposed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from airflow_tds.client.wire import Wire

__all__ = ["PLACES", "Proposals", "proposals"]

#: Where services serve the document, below their base path or at the top.
PLACES = ("/openapi.json", "/v3/api-docs", "/swagger.json", "/api-docs")
#: How operations are called, the most telling word first, and the methods that may stand for them.
_WORDS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "info": (("GET",), ("info", "stats", "statistics", "describe", "metadata", "summary")),
    "upload": (("POST", "PUT"), ("upload", "initial", "first", "load", "ingest")),
    "overwrite": (("POST", "PUT"), ("overwrite", "replace", "swap")),
    "upsert": (("POST", "PUT", "PATCH"), ("upsert", "merge")),
    "truncate": (("POST", "PUT", "DELETE"), ("truncate", "truncation", "empty", "emptied", "clear")),
    "delete_rows": (("POST", "DELETE"), ("delete", "rows", "remove")),
    "get_job": (("GET",), ("job", "jobs", "ticket", "tickets", "task", "tasks")),
}
#: The names of the job and of the upload's address in what a write answers.
_NAMES: Mapping[str, str] = {"job_id": r"job|ticket|task", "upload_url": r"ur[li]$|href"}


@dataclass(frozen=True)
class Proposals:
    """What a document says.

    Attributes:
        confirmed: Keys of the wire map whose routes it has.
        wire: Overrides that it suggests.
        unclear: Keys that several of its routes could be, or none.
    """

    confirmed: list[str] = field(default_factory=list)
    wire: dict[str, Any] = field(default_factory=dict)
    unclear: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Offered:
    method: str
    path: str
    described: Mapping[str, Any]

    @property
    def shape(self) -> tuple[str, str]:
        return self.method, re.sub(r"{\w+}", "{}", self.path)

    def line(self, name: str) -> str:
        return f"{self.method} {re.sub(r'{[^}]+}', '{' + name + '}', self.path)}"


def proposals(document: Any, wire: Wire, base_path: str = "") -> Proposals:
    """Read a document.

    Args:
        document: An OpenAPI document, version 2 or 3.
        wire: The wire map that it is compared with.
        base_path: What stands before every route; a document may repeat it.

    Returns:
        What it confirms and suggests.
    """
    offered, found = list(_offered(document, base_path)), Proposals()
    shapes = {one.shape for one in offered}
    for key in _WORDS:
        route = getattr(wire, key)
        if (route.method, re.sub(r"{\w+}", "{}", route.path.partition("?")[0])) in shapes:
            found.confirmed.append(key)
            continue
        best = _most_like(key, offered, wire)
        if best is None:
            found.unclear.append(key)
        else:
            found.wire[key] = best.line("job_id" if key == "get_job" else "table_id")
    found.wire.update(_names(document, offered, wire, found))
    return found


def _offered(document: Any, base_path: str) -> Iterator[_Offered]:
    paths = document.get("paths") if isinstance(document, Mapping) else None
    for path, item in (paths or {}).items():
        below = path.removeprefix(base_path.rstrip("/")) if base_path.strip("/") else path
        for method, described in item.items() if isinstance(item, Mapping) else ():
            if method.upper() in ("GET", "POST", "PUT", "PATCH", "DELETE") and isinstance(described, Mapping):
                yield _Offered(method.upper(), below, described)


def _most_like(key: str, offered: list[_Offered], wire: Wire) -> _Offered | None:
    """Give the one route that is most like an operation; None for none, or for several that are alike."""
    scored = sorted(((_likeness(key, one, wire), one) for one in offered), key=lambda pair: -pair[0])
    if not scored or scored[0][0] == 0 or (len(scored) > 1 and scored[1][0] == scored[0][0]):
        return None
    return scored[0][1]


def _likeness(key: str, one: _Offered, wire: Wire) -> float:
    """Say how much a route is named like an operation; 0 for not at all."""
    methods, words = _WORDS[key]
    of_table = _first(one.path) == _first(wire.query_json.path)
    if one.method not in methods or one.path.count("{") != 1 or of_table == (key == "get_job"):
        return 0
    named = set(
        re.split(r"[^a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", str(one.described.get("operationId", ""))).lower())
    )
    segments = set(re.split(r"[^a-z]+", re.sub(r"{[^}]+}", "", one.path).lower()))
    points = [3 * (word in named) + 2 * (word in segments) for word in words]
    exact = 10 * ("_".join(sorted(named)) == key)
    # A path that goes on behind the id of a job is something about it: its result, its log.
    behind = 4 if key == "get_job" and not one.path.endswith("}") else 0
    return max(0.0, max(points) + exact - behind + 0.1 * (one.method == methods[0])) if max(points) else 0


def _first(path: str) -> str:
    return urlsplit(path).path.strip("/").partition("/")[0]


def _names(document: Any, offered: list[_Offered], wire: Wire, found: Proposals) -> Iterator[tuple[str, Any]]:
    """Propose where the answer to an append, whose route is fixed, holds its job and its upload address."""
    append = (wire.append.method, re.sub(r"{\w+}", "{}", wire.append.path))
    answers = [_answer(document, one.described) for one in offered if one.shape == append]
    properties = dict(_properties(document, answers[0])) if answers else {}
    for key, word in _NAMES.items():
        pointers = getattr(wire, key)
        fitting = [pointer for pointer in properties if re.search(word, pointer)]
        if properties and not set(pointers) & set(properties) and len(fitting) == 1:
            yield key, fitting[0]
        elif set(pointers) & set(properties):
            found.confirmed.append(key)


def _answer(document: Any, described: Mapping[str, Any]) -> Any:
    """Give the schema of the answer that means success."""
    for status, answer in sorted((described.get("responses") or {}).items()):
        if str(status).startswith("2"):
            resolved = _resolved(document, answer)
            media = next(iter((resolved.get("content") or {}).values()), resolved)
            return media.get("schema") or {}
    return {}


def _properties(document: Any, schema: Any, above: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Name every value of a schema by its pointer, three levels deep."""
    for name, inner in (_resolved(document, schema).get("properties") or {}).items():
        pointer, resolved = f"{above}/{name}", _resolved(document, inner)
        if "properties" in resolved and depth < 2:  # noqa: PLR2004  # counts from 0
            yield from _properties(document, resolved, pointer, depth + 1)
        else:
            yield pointer, resolved


def _resolved(document: Any, schema: Any) -> Mapping[str, Any]:
    """Follow a reference inside the document."""
    for _ in range(8):  # a circle ends
        if not (isinstance(schema, Mapping) and "$ref" in schema):
            break
        target: Any = document
        for key in str(schema["$ref"]).removeprefix("#/").split("/"):
            target = target.get(key, {}) if isinstance(target, Mapping) else {}
        schema = target
    return schema if isinstance(schema, Mapping) else {}
