"""Rows as a payload: mappings written as JSON, as lines of JSON, or as CSV, a slice at a time.

Only what text can carry exactly is written; all else is refused with its row and column, never rounded, cut or
left out. Which layout a service takes is the wire map's; how the bytes travel is payloads.py's.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from functools import partial
from itertools import chain, islice
from numbers import Integral, Real
from typing import Any, Literal
from uuid import UUID, uuid4

from airflow_tds.client.errors import ValidationFailed

__all__ = ["Row", "RowLayout", "RowStyle", "written"]

Row = Mapping[str, Any]
RowStyle = Literal["records", "columns", "lines", "csv"]

#: Rows that are written at once: enough to keep the encoder busy, few enough to stay small.
SLICE = 1000
#: A text that needs no quotes in CSV: an empty one must differ from None, and readers may trim blanks at the ends.
_BARE = re.compile(r'[^\s,"]([^,"\r\n]*[^\s,"])?').fullmatch


@dataclass(frozen=True)
class RowLayout:
    """How rows are laid out.

    Attributes:
        style: `records` (an array of objects), `columns` (names once, each row a list of values), `lines` (an object
            a line), or `csv`.
        rows_at: JSON keys down to the rows; empty where they are the whole document. For `records` and `columns`.
        columns_at: JSON keys down to the names. For `columns`.
    """

    style: RowStyle
    rows_at: tuple[str, ...] = ()
    columns_at: tuple[str, ...] = ()


def written(rows: Iterable[Row], layout: RowLayout) -> Iterator[bytes]:
    """Write rows.

    Args:
        rows: Mappings of column names to values; one that lacks a column of the others is None there. Of a sequence,
            the columns are all that its rows name; of any other iterable, where the layout begins with them, those of
            its first row.
        layout: How.

    Yields:
        Pieces, a slice of rows each.

    Raises:
        ValidationFailed: A row is none, or holds what the layout cannot carry; the text names row and column.
    """
    columns, rows = _columns(rows) if layout.style in ("csv", "columns") else (None, rows)
    before, make, between, after = _frame(columns or [], layout)
    yield before.encode()
    source, number = iter(rows), 0
    while part := list(islice(source, SLICE)):
        try:
            _check(part, columns)
            piece = ((between if number else "") + make(part)).encode()
        except (ValueError, TypeError, RecursionError) as wrong:
            raise _faulty(part, number, columns, make, wrong) from None
        yield piece
        number += len(part)
    yield after.encode()


def _columns(rows: Iterable[Row]) -> tuple[list[str], Iterable[Row]]:
    """Give the columns of rows, in the order in which they are first named, and the rows again."""
    if isinstance(rows, Sequence):
        return list(dict.fromkeys(chain.from_iterable(rows))), rows
    source = iter(rows)
    first = next(source, {})
    return list(first), chain([first] if first else [], source)


def _frame(columns: Sequence[str], layout: RowLayout) -> tuple[str, Callable[[list[Any]], str], str, str]:
    """Give what stands before the rows, what writes some, what stands between two slices, and what after all."""
    if layout.style == "csv":
        if not columns:
            raise ValidationFailed("no rows cannot be written as csv, which begins with their columns: use json")
        return ",".join(map(_cell, columns)) + "\n", partial(_csv, columns), "", ""
    if layout.style == "lines":
        return "", _lines, "", ""
    before, after = _around(columns, layout)
    return before, _records if layout.style == "records" else partial(_lists, columns), ",", after


def _around(columns: Sequence[str], layout: RowLayout) -> tuple[str, str]:
    """Write the document without its rows, in two parts."""
    if not layout.rows_at:
        return "[", "]"
    place, document = uuid4().hex, dict[str, Any]()
    if layout.style == "columns":
        _put(document, layout.columns_at, list(columns))
    _put(document, layout.rows_at, [place])
    before, _, after = _ENCODER.encode(document).partition(f'"{place}"')
    return before, after


def _put(document: dict[str, Any], keys: Sequence[str], value: Any) -> None:
    *above, last = keys
    for key in above:
        document = document.setdefault(key, {})
    document[last] = value


def _check(rows: Iterable[Row], columns: Sequence[str] | None) -> None:
    if not all(isinstance(row, Mapping) for row in rows):
        raise TypeError
    names = set(chain.from_iterable(rows))
    if any(not isinstance(name, str) for name in names):
        raise ValueError("has a key that is no text, as the name of a column is")
    if columns is not None and (others := names.difference(columns)):
        raise ValueError(f"has the column {min(others)!r}, which the first row has not")


# ---- JSON


def _plain(value: Any) -> Any:
    """Make JSON of what the encoder does not know; see docs/client.md."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, datetime | date | time | UUID):
        return _text(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Decimal):
        return _number(value)
    if isinstance(value, Real):
        return float(value)
    raise TypeError(f"is a {type(value).__name__}, which has no agreed form: make text or a number of it")


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)


def _records(rows: list[Any]) -> str:
    return _ENCODER.encode(rows)[1:-1]


def _lines(rows: list[Any]) -> str:
    return "".join([_ENCODER.encode(row) + "\n" for row in rows])


def _lists(columns: Sequence[str], rows: list[Any]) -> str:
    return _records([[row.get(name) for name in columns] for row in rows])


def _number(value: Decimal) -> int | float:
    """Give a number that JSON writes with the same value."""
    if not value.is_finite():
        raise ValueError(f"is {value}, which is no number")
    if value == value.to_integral_value():
        return int(value)
    if Decimal(repr(float(value))) != value:
        raise ValueError("is a decimal of more digits than JSON numbers keep: use csv, or give it as text")
    return float(value)


# ---- CSV


def _csv(columns: Sequence[str], rows: list[Any]) -> str:
    return "".join([",".join([_cell(row.get(name)) for name in columns]) + "\n" for row in rows])


def _cell(value: Any) -> str:
    """Write a field: None is empty, an empty text is quoted."""
    if isinstance(value, str):
        return value if _BARE(value) else '"' + value.replace('"', '""') + '"'
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"is {value}, which is no number")
        return float.__repr__(value)
    return _other_cell(value)


def _other_cell(value: Any) -> str:
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise ValueError(f"is {value}, which is no number")
        return f"{value:f}"
    if isinstance(value, list | tuple | Mapping):
        return _cell(_ENCODER.encode(value))
    if isinstance(value, datetime | date | time | UUID):
        return _text(value)
    return _cell(_plain(value))


def _text(value: Any) -> str:
    """Write a time by ISO 8601, or an id; what differs from itself is no time (pandas' NaT)."""
    if value != value:  # noqa: PLR0124  # that is how it is told
        raise ValueError("is no time: give None")
    return str(value) if isinstance(value, UUID) else str(value.isoformat())


# ---- what is wrong


def _faulty(
    rows: list[Any], before: int, columns: Sequence[str] | None, make: Callable[[list[Any]], str], wrong: Exception
) -> ValidationFailed:
    """Find the row and the column that cannot be written."""
    faults = (_fault(row, columns, make) for row in rows)
    found = ((number, fault) for number, fault in enumerate(faults, before + 1) if fault)
    number, fault = next(found, (before + 1, f" and those after it cannot be written: {wrong}"))
    return ValidationFailed(f"row {number}{fault}")


def _fault(row: Any, columns: Sequence[str] | None, make: Callable[[list[Any]], str]) -> str:
    """Say what is wrong with a row; empty if nothing."""
    if not isinstance(row, Mapping):
        return f" is a {type(row).__name__}, the rows before are mappings"
    try:
        _check([row], columns)
    except ValueError as other:
        return f" {other}"
    for name, value in row.items():
        try:
            make([{name: value}]).encode()
        except (ValueError, TypeError, RecursionError) as why:
            return f", column {name!r} {_said(value, why)}"
    return ""


def _said(value: Any, why: Exception) -> str:
    if isinstance(why, UnicodeEncodeError):
        return "is not valid text"
    if isinstance(why, RecursionError) or "Circular" in str(why):
        return "is nested too deeply"
    if isinstance(value, float) or "Out of range" in str(why):
        return "holds a number that is not finite: give None"
    return str(why)
