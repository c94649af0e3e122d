"""What a request asks for, read from wherever the wire map lets it travel: the other side of the map's places.

First each input as it was written (`inputs_of`), then checked and typed, one class for what each kind of
operation asks. What has no place is refused with its name: ignored, it would be lost in silence. Whether a
table or a column exists is for others to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qs

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import from_json
from starlette.datastructures import Headers

from airflow_tds.client.errors import ValidationFailed
from airflow_tds.client.models import CrossQueryRequest, FilterGroup, Predicate, describe
from airflow_tds.client.wire import Route, Wire
from airflow_tds.local.filters import parse_simple
from airflow_tds.local.pages import Asked
from airflow_tds.local.payloads.formats import FORMATS
from airflow_tds.local.records import Kind

__all__ = ["AskedWrite", "Reader", "Sent", "document_of", "given_mode", "inputs_of", "places_of", "pointer_keys"]

#: Rows of a page where the request does not say.
DEFAULT_LIMIT = 1000
#: Rows of a page at most, §8.
LARGEST_LIMIT = 10_000
#: The engine's integers end here.
LARGEST_OFFSET = 2**63 - 1
#: The condition that HTTP itself knows: several tags, weak ones, and `*`.
_CONDITION = "if-none-match"
_M = TypeVar("_M", bound="_Inputs")


@dataclass(frozen=True)
class Sent:
    """A request, as far as it says what it means.

    Attributes:
        method: HTTP method.
        path: As it was sent, encoded.
        query: Parameters by name, decoded.
        headers: Header fields.
        document: The body, a JSON document; None for no body, or for one that is a payload.
    """

    method: str
    path: str
    query: Mapping[str, Sequence[str]]
    headers: Headers
    document: Any = None

    @staticmethod
    def parameters(query: str) -> dict[str, list[str]]:
        """Read a query string.

        Raises:
            ValidationFailed: It is not valid UTF-8.
        """
        try:
            return parse_qs(query, keep_blank_values=True, errors="strict")
        except UnicodeDecodeError:
            raise ValidationFailed("the query is not valid UTF-8") from None


def document_of(body: bytes) -> Any:
    """Read a JSON body; None where there is none.

    Raises:
        ValidationFailed: It is no JSON.
    """
    if not body:
        return None
    try:
        return from_json(body, allow_inf_nan=False)
    except ValueError as wrong:
        raise ValidationFailed(f"the body is no JSON: {wrong}") from None


def given_mode(route: Route, sent: Sent) -> object:
    """Read the update mode that a request gives at a route; None where it gives none."""
    at = route.places.get("update_mode")
    if at is None or "{update_mode}" in route.path:  # a path holds the route's own mode, or is not its path
        return None
    given = _found(at.where, at.name, sent)
    return given[0] if at.where == "query" and given and len(given) == 1 else given


def inputs_of(route: Route, sent: Sent, ids: Mapping[str, str], fixed: Sequence[str] = ()) -> dict[str, Any]:
    """Read all that a request gives at a route, each by its name.

    Args:
        route: The route that it came by.
        sent: The request.
        ids: What stands in the path.
        fixed: Names of parameters that are part of the route itself.

    Raises:
        ValidationFailed: Something is given that has no place, twice, or not as the map writes it.
    """
    found: dict[str, Any] = {
        name: text.split(",") if _is_list(route, name) else text for name, text in ids.items() if name in route.places
    }
    places = places_of(route)
    _refuse_unknown(sent, [at.name for at in places.values() if at.where == "query"], fixed)
    _refuse_unplaced(sent.document, [at.name for at in places.values() if at.where == "body"])
    for name, at in places.items():
        given = _found(at.where, at.name, sent)
        if given is not None:
            found[name] = _unwritten(name, given, route.style(name), at)
    return found


def places_of(route: Route) -> dict[str, Any]:
    """Give the places at which inputs of a route travel, beside those in its path."""
    return {
        name: at
        for name, at in route.places.items()
        if at is not None and f"{{{name}}}" not in route.path and (name != "object" or route.strategy == "put_commit")
    }


def _is_list(route: Route, name: str) -> bool:
    return route.style(name) in ("repeated", "joined", "json")


def _found(where: str, name: str, sent: Sent) -> Any:
    """Give what stands at a place, as it stands there; None for nothing."""
    if where == "query":
        return sent.query.get(name)
    if where == "header":
        values = sent.headers.getlist(name)
        return ",".join(values) if values else None
    document = sent.document
    for key in pointer_keys(name):
        document = document.get(key) if isinstance(document, dict) else None
    return document


def _unwritten(name: str, given: Any, style: str, at: Any) -> Any:
    """Turn what stands at a place back into the input that was written there."""
    if style == "repeated":
        return given.split(",") if at.where == "header" else given
    if at.where == "query":
        if len(given) > 1:
            raise ValidationFailed(f"{name}: the parameter {at.name} is given {len(given)} times")
        given = given[0]
    if style == "joined":
        return given.split(at.separator) if isinstance(given, str) else given
    if style == "json" or (style == "structured" and at.where != "body"):
        try:
            return from_json(given, allow_inf_nan=False)
        except (TypeError, ValueError):
            raise ValidationFailed(f"{name}: no JSON at {at.where} {at.name}") from None
    return given


def _refuse_unknown(sent: Sent, known: Sequence[str], fixed: Sequence[str]) -> None:
    unknown = [name for name in sent.query if name not in known and name not in fixed]
    if unknown:
        raise ValidationFailed(f"{unknown[0]}: there is no such parameter; there are {', '.join(known) or 'none'}")


def _refuse_unplaced(document: Any, pointers: Sequence[str]) -> None:
    """Refuse a document that holds more than what has a place in it."""
    if document is None:
        return
    if not isinstance(document, dict):
        raise ValidationFailed("the body is no JSON object")
    known = [pointer_keys(pointer) for pointer in pointers]
    for keys in _leaves(document, known):
        where = "/".join(keys)
        raise ValidationFailed(f"/{where}: nothing is asked for there; known: {', '.join(pointers) or 'no body'}")


def _leaves(
    document: Mapping[str, Any], known: Sequence[tuple[str, ...]], above: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """Give the places of a document at which and above which nothing is known."""
    for key, value in document.items():
        here = (*above, key)
        below = [keys for keys in known if keys[: len(here)] == here]
        if not below:
            yield here
        elif here not in below and isinstance(value, dict):
            yield from _leaves(value, below, here)


@cache
def pointer_keys(pointer: str) -> tuple[str, ...]:
    """Take a JSON pointer (RFC 6901) apart; there are only those of the wire map."""
    return tuple(key.replace("~1", "/").replace("~0", "~") for key in pointer.removeprefix("/").split("/"))


# ---- what each kind of operation asks


class _Inputs(BaseModel):
    """Inputs; those that came by no place of this operation were refused before."""

    model_config = ConfigDict(extra="ignore", strict=True)


def _digits(value: object) -> object:
    if isinstance(value, str):
        if not re.fullmatch(r"[+-]?[0-9]+", value, re.ASCII):
            raise ValueError("not a whole number")
        return int(value)
    return value


class _Page(_Inputs):
    limit: Annotated[int, Field(ge=1, le=LARGEST_LIMIT), BeforeValidator(_digits)] = DEFAULT_LIMIT
    offset: Annotated[int, Field(ge=0, le=LARGEST_OFFSET), BeforeValidator(_digits)] = 0


class _Write(_Inputs):
    format: str | None = None
    update_mode: str | None = None
    key_columns: list[str] | str | None = None
    object: str | None = None


@dataclass(frozen=True)
class AskedWrite:
    """A write that is asked for.

    Attributes:
        format: The payload's, by the interface's word.
        key_columns: For an upsert; else none.
        object: The name of the data, where it was sent before.
    """

    format: str
    key_columns: tuple[str, ...] = ()
    object: str = ""


class Reader:
    """Reads inputs as the wire map writes them.

    Args:
        wire: The map.
    """

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def formats(self, route: Route) -> dict[str, str]:
        """Give the words that may stand for the formats of a write at a route, and what they mean."""
        return {self._word(route, name): name for name in self._wire.write_formats if name in FORMATS}

    def page_formats(self) -> tuple[str, ...]:
        """Give the words that may stand for the format of a page."""
        return (self._word(self._wire.query_json, "json"),)

    def mode(self, kind: Kind) -> str:
        """Give the map's word for the mode of a write."""
        return self._wire.mode_tokens.get(kind, kind)

    def write(self, kind: Kind, route: Route, inputs: Mapping[str, Any], media_type: str = "") -> AskedWrite:
        """Read what a write asks for.

        Args:
            kind: Which write.
            route: Of it.
            inputs: As they were given.
            media_type: Where the payload is the request's body, what the request says that it is.

        Raises:
            ValidationFailed: The format is missing or none that is taken, the mode is that of another write, or
                keys are given to a write that takes none.
        """
        given = _checked(_Write, inputs)
        if given.update_mode not in (None, self.mode(kind)):
            raise ValidationFailed(f"update_mode: {given.update_mode!r} at the route of {kind}")
        data_format = self._format(route, given.format, media_type)
        keys = [given.key_columns] if isinstance(given.key_columns, str) else given.key_columns
        if kind != "upsert" and keys is not None:
            raise ValidationFailed(f"key_columns: {kind} takes none")
        return AskedWrite(data_format, tuple(keys or ()), given.object or "")

    def layout(self, data_format: str) -> str | dict[str, str] | None:
        """Say how rows lie in a payload: `lines`, or pointers to `rows` and `columns`; None for the format itself."""
        wire = self._wire
        if data_format != "json" or (wire.row_layout == "records" and not wire.rows_at):
            return None
        if wire.row_layout == "lines":
            return "lines"
        return {"rows": wire.rows_at} | ({"columns": wire.columns_at} if wire.row_layout == "columns" else {})

    def presigned_format(self, route: Route, inputs: Mapping[str, Any]) -> str | None:
        """Read the format of data whose write is committed later; None where it is said then."""
        given = _checked(_Write, inputs).format
        return self._format(route, given) if given is not None else None

    def page(self, inputs: Mapping[str, Any]) -> Asked:
        """Read what a page asks for.

        Raises:
            ValidationFailed: Something is out of range (§8), or a filter is none.
        """
        given = _checked(_Page, inputs)
        route = self._wire.query_json
        if inputs.get("format") not in (None, self._word(route, "json")):
            raise ValidationFailed(f"format: {inputs['format']!r} is not {self._word(route, 'json')!r}")
        return Asked(self.filters(route, inputs), given.limit, given.offset)

    def filters(self, route: Route, inputs: Mapping[str, Any]) -> Predicate | None:
        """Read filters in the style of a route; None for none.

        Raises:
            ValidationFailed: One is none.
        """
        given = inputs.get("filters")
        if given is None:
            return None
        if route.style("filters") == "structured":
            try:
                return CrossQueryRequest.model_validate({"table_id": "-", "filters": given}).filters
            except ValidationError as invalid:
                raise ValidationFailed(describe(invalid)) from None
        if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
            raise ValidationFailed("filters: not a list of simple expressions (§2.6)")
        leaves = [parse_simple(expression) for expression in given]
        if len(leaves) > 1:
            return FilterGroup(type="and", predicates=leaves)
        return leaves[0] if leaves else None

    def query(self, document: Any) -> CrossQueryRequest:
        """Read what starts a query, §2.5.

        Raises:
            ValidationFailed: It breaks a rule; the text names field and rule.
        """
        if isinstance(document, dict) and "format" in document:
            words = {self._wire.format_tokens.get(name, name): name for name in ("parquet", "csv", "json")}
            given = document["format"]
            if given is not None and (not isinstance(given, str) or given not in words):
                raise ValidationFailed(f"format: {given!r} is none of {', '.join(words)}")
            document = document | {"format": words.get(given) if given is not None else None}
        try:
            return CrossQueryRequest.model_validate(document, strict=True)
        except ValidationError as invalid:
            raise ValidationFailed(describe(invalid)) from None

    def names_snapshot(self, inputs: Mapping[str, Any], snapshot_id: str) -> bool:
        """Tell whether a request's condition names a snapshot: as one of several tags, weak or not, or as any."""
        at, given = self._wire.query_json.places.get("etag"), inputs.get("etag")
        if at is None or not isinstance(given, str):
            return False
        several = at.where == "header" and at.name.lower() == _CONDITION
        tags = [tag.strip().removeprefix("W/") for tag in (given.split(",") if several else [given])]
        own = snapshot_id if self._wire.query_json.style("etag") == "plain" else f'"{snapshot_id}"'
        return own in tags or (several and "*" in tags)

    def _format(self, route: Route, given: str | None, media_type: str = "") -> str:
        known = self.formats(route)
        if given is None and media_type:
            known = {self._wire.media_types.get(name, ""): name for name in known.values()}
            given = media_type.partition(";")[0].strip()
        if given is None and len(known) == 1:
            return next(iter(known.values()))
        if given is None or given not in known:
            raise ValidationFailed(f"format: {given!r} is none of {', '.join(known)}")
        return known[given]

    def _word(self, route: Route, name: str) -> str:
        tokens = self._wire.media_types if route.style("format") == "media" else self._wire.format_tokens
        return tokens.get(name, name)


def _checked(kind: type[_M], inputs: Mapping[str, Any]) -> _M:
    try:
        return kind.model_validate(dict(inputs))
    except ValidationError as invalid:
        raise ValidationFailed(describe(invalid)) from None
