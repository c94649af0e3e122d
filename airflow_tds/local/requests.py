"""What callers send, read strictly: bodies, parameters and ids. What does not fit is refused with its name.

Only forms stand here; whether a table or a column exists is for others to say.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qs, unquote

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, RootModel, ValidationError, WithJsonSchema
from starlette.requests import Request

from airflow_tds.client.errors import ValidationFailed
from airflow_tds.client.models import describe
from airflow_tds.local.filters import SIMPLE, parse_simple
from airflow_tds.local.pages import Asked
from airflow_tds.local.payloads.formats import FORMATS

__all__ = [
    "DeleteBody",
    "FaultBody",
    "PageQuery",
    "TableBody",
    "WriteBody",
    "asked_page",
    "body_of",
    "id_of",
    "names_snapshot",
]

#: Rows of a page where the request does not say.
_DEFAULT_LIMIT = 1000
#: Rows of a page at most, §8.
_LARGEST_LIMIT = 10_000
#: The engine's integers end here.
_LARGEST_OFFSET = 2**63 - 1
_M = TypeVar("_M", bound=BaseModel)
#: What the schema tells of a simple expression, §2.6; `parse_simple` reads it, and refuses in its own words.
_Simple = Annotated[str, WithJsonSchema({"type": "string", "pattern": SIMPLE})]


class _Body(BaseModel):
    """A body; a misspelt field would be ignored in silence, so unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class WriteBody(_Body):
    """What initiates a write (assumed)."""

    format: str = Field(json_schema_extra={"enum": list(FORMATS)})
    update_mode: Literal["append", "overwrite", "upsert"] | None = None
    key_columns: list[str] | str | None = None


class DeleteBody(_Body):
    """Which rows to delete: those that match all simple expressions, §4.2 rule 5 (form assumed)."""

    filters: list[_Simple] = Field(min_length=1)


class FaultBody(RootModel[dict[str, Any]]):
    """A fault to script; faults.py knows its fields."""


class TableBody(_Body):
    """Which table to create."""

    table_id: str = Field(json_schema_extra={"pattern": r"^[^\x00]+$"})


def _digits(value: object) -> object:
    if isinstance(value, str) and not re.fullmatch(r"[+-]?[0-9]+", value, re.ASCII):
        raise ValueError("not a whole number")
    return value


class PageQuery(BaseModel):
    """The parameters of a JSON query, §4.1 (names assumed)."""

    model_config = ConfigDict(extra="forbid")

    filters: list[_Simple] = []
    limit: Annotated[int, Field(ge=1, le=_LARGEST_LIMIT), BeforeValidator(_digits)] = _DEFAULT_LIMIT
    offset: Annotated[int, Field(ge=0, le=_LARGEST_OFFSET), BeforeValidator(_digits)] = 0
    format: Literal["json"] = "json"


async def body_of(request: Request, kind: type[_M]) -> _M:
    """Read a JSON body.

    Raises:
        ValidationFailed: It is no JSON, or not of this kind.
    """
    try:
        return kind.model_validate_json(await request.body())
    except ValidationError as invalid:
        raise ValidationFailed(describe(invalid)) from None


def id_of(request: Request, name: str) -> str:
    """Read an id from the path.

    Raises:
        ValidationFailed: It is no text.
    """
    try:
        return unquote(request.path_params[name], errors="strict")
    except UnicodeDecodeError:
        raise ValidationFailed(f"{name}: not valid UTF-8") from None


def asked_page(request: Request) -> Asked:
    """Read the parameters of a JSON query.

    Raises:
        ValidationFailed: One is unknown, given twice, out of range (§8), or no simple expression.
    """
    try:
        given = parse_qs(request.url.query, keep_blank_values=True, errors="strict")
        single = {name: values[0] if len(values) == 1 else values for name, values in given.items()}
        asked = PageQuery.model_validate(single | {"filters": given.get("filters", [])})
    except UnicodeDecodeError:
        raise ValidationFailed("the query is not valid UTF-8") from None
    except ValidationError as invalid:
        raise ValidationFailed(describe(invalid)) from None
    for expression in asked.filters:
        parse_simple(expression)
    return Asked(tuple(asked.filters), asked.limit, asked.offset)


def names_snapshot(conditions: Sequence[str], snapshot_id: str) -> bool:
    """Tell whether `If-None-Match` names a snapshot: as one of several tags, weak or not, or as any."""
    tags = [tag.strip().removeprefix("W/") for tag in ",".join(conditions).split(",")]
    return f'"{snapshot_id}"' in tags or "*" in tags
