"""What travels: the values of §2, under the interface's own names.

Requests are checked here, before anything is sent; replies are read here, and fields that we do not
know are kept. No I/O, no URL, no route: how a value looks on the wire is wire.py's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    StrictFloat,
    StrictInt,
    StrictStr,
    Tag,
    ValidationError,
)

__all__ = [
    "Comparison",
    "CrossQueryRequest",
    "DataJobResponse",
    "DatasetInfoResponse",
    "FilterGroup",
    "FilterLeaf",
    "JoinSpec",
    "PageMetadata",
    "Predicate",
    "QueryResponse",
    "ResultFormat",
    "describe",
]

Comparison = Literal["eq", "ne", "lt", "lte", "gt", "gte"]
ResultFormat = Literal["parquet", "csv", "json"]


class _Reply(BaseModel):
    """A reply: unknown fields are kept (`model_extra`), since the interface shows only some (§2.2, §2.3)."""

    model_config = ConfigDict(extra="allow", frozen=True, coerce_numbers_to_str=True)


class _Asked(BaseModel):
    """A request: unknown fields are refused, since a misspelt one would be ignored in silence."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)  # JSON has neither


class DatasetInfoResponse(_Reply):
    """Statistics of one table, made without a scan, §2.2.

    Attributes:
        row_count: Rows; falsy once a truncation has taken effect. None when not told.
        total_size_bytes: Bytes. None when not told.
        data_files: The table's data files, a list or their number. None when not told.
        last_updated: Time of the last update. None when not told.
        snapshot_id: The current snapshot. None when not told or when the table has none yet.
    """

    row_count: int | None = None
    total_size_bytes: int | None = None
    data_files: list[Any] | int | None = None
    last_updated: datetime | None = None
    snapshot_id: str | None = None


class DataJobResponse(_Reply):
    """A background job, §2.3.

    Attributes:
        status: COMPLETED, FAILED, or anything else, which means running.
        error: Why it FAILED. None otherwise.
    """

    status: str
    error: str | None = None


class PageMetadata(_Reply):
    """Where a page stands, §2.4.

    Attributes:
        total_count: Rows that match, on all pages. None when not told.
        has_next: True when more rows follow.
    """

    total_count: int | None = None
    has_next: bool


class QueryResponse(_Reply):
    """One page of a JSON query, §2.4.

    Attributes:
        items: Rows, column name to value.
        metadata: Where the page stands.
        etag: Tied to the table's snapshot; empty while the table never had data.
    """

    items: list[dict[str, Any]]
    metadata: PageMetadata
    etag: str = ""


class FilterLeaf(_Asked):
    """One condition, §2.5.

    Attributes:
        field: Column name.
        operator: `eq`, `ne`, `lt`, `lte`, `gt` or `gte`.
        value: A number or text.
    """

    field: str = Field(min_length=1)
    operator: Comparison
    value: StrictInt | StrictFloat | StrictStr


def _shape(value: Any) -> str:
    """Which of the two a predicate is, so that an error names the fields of that one only."""
    keys = value if isinstance(value, Mapping) else getattr(value, "__dict__", {})
    return "group" if "predicates" in keys or "type" in keys else "leaf"


class FilterGroup(_Asked):
    """Several conditions in one, §2.5.

    Attributes:
        type: `and` or `or`.
        predicates: Leaves or groups, at least two (§8); a single condition is given as a leaf.
    """

    type: Literal["and", "or"]
    predicates: Sequence[Predicate] = Field(min_length=2)


Predicate = Annotated[Annotated[FilterLeaf, Tag("leaf")] | Annotated[FilterGroup, Tag("group")], Discriminator(_shape)]


class JoinSpec(_Asked):
    """A table to join, §2.5.

    Attributes:
        table_id: The table.
        how: `inner`, `left`, `right`, `full`, `cross`, `semi` or `anti`; None leaves it to the service.
        left_on: Join column of the left side; None for a cross join.
        right_on: Join column of the right side; None for a cross join.
    """

    table_id: str = Field(min_length=1)
    how: Literal["inner", "left", "right", "full", "cross", "semi", "anti"] | None = None
    left_on: str | None = None
    right_on: str | None = None


class CrossQueryRequest(_Asked):
    """A query over one or several tables, §2.5.

    Attributes:
        table_id: Primary table.
        filters: A FilterLeaf or a FilterGroup; None for all rows.
        joins: Tables to join, in order; None for none.
        select: Columns to return, in order; None for all.
        format: `parquet`, `csv` or `json`; None leaves it to the service.
    """

    table_id: str = Field(min_length=1)
    filters: Predicate | None = None
    joins: Sequence[JoinSpec] | None = None
    select: Sequence[str] | None = None
    format: ResultFormat | None = None


FilterGroup.model_rebuild()


def describe(invalid: ValidationError) -> str:
    """Put pydantic's findings into one line: field, rule, and not the value."""
    return "; ".join(": ".join(filter(None, (".".join(map(str, e["loc"])), _rule(e["msg"])))) for e in invalid.errors())


def _rule(said: str) -> str:
    """Put a rule as pydantic words it into the words of who wrote JSON."""
    return said.removeprefix("Value error, ").replace("valid tuple", "valid list")
