"""JSON payloads whose rows are not the whole document, or whose columns are named once: made into one object per line.

Numbers keep their text, and a key that is given twice stays twice, so that nothing is rounded or lost on the way.
The document is held in memory; the layouts that are read as they lie, an array of objects and lines, are json.py's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow_tds.local.payloads.payload import BadPayload, Fault, check_names, refusal

__all__ = ["as_lines"]


class _Number(str):
    """A number as its text."""

    __slots__ = ()


class _Object(list[tuple[str, Any]]):
    """An object as its pairs."""


def as_lines(path: Path, layout: Mapping[str, str], lines: Path) -> None:
    """Write a payload's rows as one object per line.

    Args:
        path: The payload.
        layout: `rows`, the JSON pointer to the rows, empty for the whole document; and `columns`, the pointer to the
            names where each row is a list of values.
        lines: The file to write.

    Raises:
        BadPayload: It is not laid out so.
    """
    document = _read(path)
    rows = _list_at(document, layout["rows"], "rows")
    if "columns" in layout:
        names = _list_at(document, layout["columns"], "names of columns")
        if not all(isinstance(name, str) and not isinstance(name, _Number) for name in names):
            raise BadPayload(f"the names of columns at {layout['columns']} are not all texts")
        check_names(names)
        rows = [_object(names, row, number) for number, row in enumerate(rows, 1)]
    lines.write_text("".join(f"{_written(row)}\n" for row in rows), encoding="utf-8")


def _read(path: Path) -> Any:
    numbers: dict[str, Any] = dict.fromkeys(("parse_int", "parse_float", "parse_constant"), _Number)
    try:
        return json.loads(path.read_bytes(), object_pairs_hook=_Object, **numbers)
    except (ValueError, RecursionError):
        raise BadPayload("the payload is no valid JSON document") from None


def _list_at(document: Any, pointer: str, what: str) -> list[Any]:
    for key in pointer.split("/")[1:]:
        name = key.replace("~1", "/").replace("~0", "~")
        document = next((value for known, value in document if known == name), None) if _is_object(document) else None
    if not isinstance(document, list) or _is_object(document):
        raise BadPayload(f"the payload has no list of {what} at {pointer or 'its top'}")
    return document


def _is_object(value: Any) -> bool:
    return isinstance(value, _Object)


def _object(names: list[str], row: Any, number: int) -> _Object:
    if not isinstance(row, list) or _is_object(row) or len(row) != len(names):
        raise refusal([Fault(number, "", None, f"is no list of {len(names)} values")])
    return _Object(zip(names, row, strict=True))


def _written(value: Any) -> str:
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, _Object):
        return "{" + ", ".join(f"{json.dumps(name)}: {_written(each)}" for name, each in value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_written, value)) + "]"
    return json.dumps(value)
