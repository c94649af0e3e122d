"""An operation's wire form as data: method, path, and where each input travels.

A route is written as a line, `PATCH /tables/{table_id}/data`; a place as a line too, `query filters joined ;`.
Lines are read and refused here, and inputs are put where their places say. Which operation has which route is
wire.py's; nothing here knows the interface.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Self
from urllib.parse import quote, urlencode

from pydantic import BaseModel, ConfigDict, model_validator

from airflow_tds.client import errors
from airflow_tds.client.messages import Repeat

__all__ = [
    "CONTROL",
    "Place",
    "Route",
    "Strategy",
    "check_headers",
    "is_header",
    "merged",
    "pointer_keys",
    "route",
]

#: How a payload gets to the service, §4.2 rule 1; only upload's presigned PUT is fixed.
Strategy = Literal["initiate_put", "put_commit", "direct"]
#: Ids beyond this are refused: no service's table is called so, and many servers cut longer paths.
LONGEST_ID = 512
#: Controls of ASCII and C1 (a terminal obeys both), and Unicode's line ends.
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
#: A header field as `name: value`, with nothing that could end it.
_FIELD = re.compile(r"[!#$%&'*+.^_`|~\w-]+: (?! )[\x20-\x7e]*", re.ASCII)
#: How each input may be written; the first is meant where a place does not say.
STYLES: Mapping[str, tuple[str, ...]] = {
    "filters": ("repeated", "joined", "json", "structured"),
    "key_columns": ("repeated", "joined", "json"),
    "format": ("plain", "media"),
    "etag": ("quoted", "plain"),
}
#: An input of these that is given and has no place is refused: without it more rows would be read or deleted.
_NEVER_LOST = ("filters", "limit", "offset", "key_columns")
#: Not to be set by a map: credentials come from the connection's password, framing is the transport's.
_RESERVED = (
    "authorization",
    "proxy-authorization",
    "cookie",
    "content-length",
    "transfer-encoding",
    "connection",
    "host",
)
_SETTINGS = ("line", "places", "headers", "strategy", "repeat")


def is_header(name: str, value: object) -> bool:
    """Say whether a name and a value make one header field, and nothing that could end it."""
    return isinstance(value, str | int) and _FIELD.fullmatch(f"{name}: {value}") is not None


def check_headers(headers: Mapping[str, str]) -> None:
    """Refuse fixed header fields that are none, that hold a credential, or that frame the request.

    Raises:
        ValueError: One is; the text names it.
    """
    for name, value in headers.items():
        if not is_header(name, value) or name.lower() in _RESERVED:
            raise ValueError(f"the header {name!r} is refused: it is no header field, a credential, or framing")


def merged(*headers: Mapping[str, str]) -> dict[str, str]:
    """Put header fields together; a later one takes the place of an earlier one, whatever the case of its name."""
    found = {name.lower(): (name, value) for fields in headers for name, value in fields.items()}
    return dict(found.values())


class Place(BaseModel):
    """Where an input travels and how it is written.

    Attributes:
        where: `query`, `header` or `body`.
        name: The parameter's or header's name; in the body a JSON pointer.
        style: `plain`; `repeated` (a list in the body), `joined` or `json` for several values; `structured` for
            filters as a predicate of §2.5; `media` for a format as its media type; `quoted` for an etag.
        separator: What joins the values of `joined`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    where: Literal["query", "header", "body"]
    name: str
    style: str = ""
    separator: str = ","

    @model_validator(mode="before")
    @classmethod
    def _read_line(cls, given: Any) -> Any:
        if not isinstance(given, str):
            return given
        found = re.fullmatch(r"(query|header|body) (\S+)(?: (\S+)(?: (\S+))?)?", given)
        if found is None:
            raise ValueError(f"a place is written 'query|header|body NAME [STYLE [SEPARATOR]]', not {given!r}")
        where, name, style, separator = found.groups()
        return {"where": where, "name": name, "style": style or "", "separator": separator or ","}

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.where == "body" and not self.name.startswith("/"):
            raise ValueError(f"a place in the body is a JSON pointer such as '/{self.name}', not {self.name!r}")
        if self.where == "header" and (not is_header(self.name, "x") or self.name.lower() in _RESERVED):
            raise ValueError(f"{self.name!r} is no header for an input")
        return self

    def __str__(self) -> str:
        separator = self.separator if self.separator != "," else ""
        return " ".join(part for part in (self.where, self.name, self.style, separator) if part)

    def written(self, value: Any, style: str) -> Any:
        """Write a value in a style: text, a list of texts that repeat, or for the body any JSON."""
        if style == "joined":
            return _joined(value, self.separator)
        if style == "json" or (self.where != "body" and style == "structured"):
            return json.dumps(value)
        if style == "quoted":
            return value if '"' in value else f'"{value}"'
        return value


class Placed(NamedTuple):
    """Where the inputs of one request went.

    Attributes:
        target: Path and query.
        headers: Header fields, the route's fixed ones included.
        body: A JSON document; None for none.
    """

    target: str
    headers: dict[str, str]
    body: Any


class Route(BaseModel):
    """An HTTP method, a path template, and where the inputs of its operation travel.

    Attributes:
        method: Such as `POST`.
        path: Such as `/tables/{table_id}/data/upload`; may name inputs beside ids, such as `{format}`.
        source: The section that fixes it, `assumed`, or `set` when overridden.
        repeat: Whether a request of this route may be sent again.
        places: Where each input travels; None for one that does not.
        headers: Fixed extra header fields.
        strategy: For a write: how its payload gets to the service. None for other operations.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: str
    path: str
    source: str
    repeat: Repeat
    places: Mapping[str, Place | None] = {}
    headers: Mapping[str, str] = {}
    strategy: Strategy | None = None

    def fill(self, **ids: str) -> str:
        """Give the path with every id percent-encoded whole, so that an id never changes the route."""
        return self.path.format(**{name: _segment(name, value) for name, value in ids.items()})

    def place(self, ids: Mapping[str, str], inputs: Mapping[str, Any]) -> Placed:
        """Put ids and inputs where they travel.

        Args:
            ids: Text for the path.
            inputs: Values by name; None for one that is not given, and is then left out.

        Raises:
            ValidationFailed: A value cannot stand where it has to travel.
        """
        lost = [name for name in _NEVER_LOST if inputs.get(name) is not None and not self.carries(name)]
        if lost:
            raise errors.ValidationFailed(f"{lost[0]} has no place on {self.method} {self.path}, so it would be lost")
        in_path = {name: _required(name, inputs[name]) for name in _names(self.path) if name in inputs}
        placed = Placed(self.fill(**ids, **in_path), {}, {})
        query: list[tuple[str, str]] = []
        for name, value in inputs.items():
            at = self.places.get(name)
            if value is None or at is None or name in in_path:
                continue
            written = at.written(value, self.style(name))
            if at.where == "query":
                query += [(at.name, str(each)) for each in (written if isinstance(written, list) else [written])]
            elif at.where == "header":
                placed.headers[at.name] = _header(name, at.name, written)
            else:
                _put(placed.body, at.name, written)
        mark = "&" if "?" in placed.target else "?"
        target = f"{placed.target}{mark}{urlencode(query)}" if query else placed.target
        return Placed(target, merged(self.headers, placed.headers), placed.body or None)

    def carries(self, name: str) -> bool:
        """Say whether an input travels."""
        return self.places.get(name) is not None or name in _names(self.path)

    def style(self, name: str) -> str:
        """Say how an input is written; empty where it does not travel."""
        at = self.places.get(name)
        return "" if at is None else at.style or _styles(name)[0]

    def overridden(self, given: str | Mapping[str, Any]) -> Route:
        """Give this route with what a setting says.

        Args:
            given: A line such as `PUT /v2/{table_id}`, or a mapping of `line`, `places`, `headers`, `strategy`
                (of a write) and `repeat`.

        Raises:
            ValueError: It is no route, names other ids than this one, or an input that it does not have.
        """
        said: dict[str, Any] = {"line": given} if isinstance(given, str) else dict(given)
        _known("setting", said, _SETTINGS if self.strategy else [name for name in _SETTINGS if name != "strategy"])
        update: dict[str, Any] = {name: said[name] for name in ("headers", "strategy", "repeat") if name in said}
        if "line" in said:
            update |= dict(zip(("method", "path"), self._line(said["line"]), strict=True)) | {"source": "set"}
        places: Mapping[str, Any] = said.get("places", {})
        _known("input", places, self.places)
        together = {**self._usual(update.get("strategy")), **places}
        return Route.model_validate(dict(self) | update | {"places": together})

    def _usual(self, strategy: str | None) -> Mapping[str, Place | None]:
        """Give the places of this route under another strategy.

        Beside a payload nothing travels in the body; its format is said by its Content-Type.
        """
        if strategy != "direct" or self.strategy == "direct":
            return self.places
        return {
            name: None if at is None or name == "format" else Place(where="query", name=name)
            for name, at in self.places.items()
        }

    def _line(self, line: Any) -> tuple[str, str]:
        method, path = _parse_line(line)
        names, ids = set(_names(path)), set(_names(self.path)) - set(self.places)
        if not ids <= names <= ids | set(self.places):
            said = " and ".join(f"{{{name}}}" for name in sorted(ids)) or "no id"
            raise ValueError(f"the path names {said}, unlike {path!r}")
        return method, path

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name, at in self.places.items():
            if at is not None and self.style(name) not in _styles(name):
                raise ValueError(f"{name} is written {' or '.join(_styles(name))}, not {at.style}")
            if at is not None and at.where == "body" and self.strategy == "direct":
                raise ValueError(f"{name} cannot travel in the body: with the strategy direct that is the payload")
        if self.strategy == "put_commit" and not self.carries("object"):
            raise ValueError("object needs a place: with the strategy put_commit the request names it")
        check_headers(self.headers)
        return self


def route(
    line: str,
    source: str = "assumed",
    repeat: Repeat = "always",
    strategy: Strategy | None = None,
    /,
    **places: str | None,
) -> Route:
    """Make a route of the map.

    Args:
        line: Such as `PATCH /tables/{table_id}/data`.
        source: The section that fixes it, or `assumed`.
        repeat: Whether a request of it may be sent again.
        strategy: For a write: how its payload gets to the service.
        **places: Where each input travels; None for one that does not.
    """
    method, path = _parse_line(line)
    values = {"method": method, "path": path, "source": source, "repeat": repeat, "strategy": strategy}
    return Route.model_validate(values | {"places": places})


def _parse_line(line: Any) -> tuple[str, str]:
    found = re.fullmatch(r"(GET|POST|PUT|PATCH|DELETE) (/(?:[^\s#{}]|{\w+})*)", str(line))
    if found is None:
        raise ValueError(f"a route is written 'METHOD /path', not {line!r}")
    return found[1], found[2]


def _styles(name: str) -> tuple[str, ...]:
    return STYLES.get(name, ("plain",))


def _names(path: str) -> list[str]:
    return re.findall(r"{(\w+)}", path)


def _known(what: str, given: Mapping[str, Any], known: Sequence[str] | Mapping[str, Any]) -> None:
    unknown = [name for name in given if name not in known]
    if unknown:
        raise ValueError(f"unknown {what} {', '.join(map(repr, unknown))}; known: {', '.join(known) or 'none'}")


def _text(value: Any) -> str:
    return _joined(value, ",") if isinstance(value, list) else str(value)


def _joined(values: Sequence[str], separator: str) -> str:
    """Join texts; one that holds the separator would be taken for two, such as a filter less strict."""
    for text in values:
        if separator in text:
            raise errors.ValidationFailed(f"{text!r} holds {separator!r}, by which the wire map joins several")
    return separator.join(values)


def _required(name: str, value: Any) -> str:
    if value is None:
        raise errors.ValidationFailed(f"{name} travels in the path, so it has to be given")
    return _text(value)


def _header(name: str, field: str, value: Any) -> str:
    text = _text(value)
    if not is_header(field, text):
        raise errors.ValidationFailed(f"{name} cannot stand in the header {field}")
    return text


def pointer_keys(pointer: str) -> list[str]:
    """Take a JSON pointer apart."""
    keys = pointer.removeprefix("/").split("/")
    return [key.replace("~1", "/").replace("~0", "~") for key in keys]


def _put(document: dict[str, Any], pointer: str, value: Any) -> None:
    *above, last = pointer_keys(pointer)
    for key in above:
        document = document.setdefault(key, {})
    document[last] = value


def _segment(name: str, value: str) -> str:
    what = name.replace("_", " ")
    if value in ("", ".", "..") or CONTROL.search(value):
        raise errors.ValidationFailed(f"{what} {value!r} cannot be part of an address")
    try:
        encoded = value.encode()
    except UnicodeEncodeError:
        raise errors.ValidationFailed(f"{what} {value!r} is not valid text") from None
    if len(encoded) > LONGEST_ID:
        raise errors.ValidationFailed(f"{what} has {len(encoded)} bytes, at most {LONGEST_ID} are sent")
    return quote(value, safe="")
