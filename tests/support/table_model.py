"""What the interface says about tables, in plain Python: lists of rows, loops and comparisons.

It stands beside the embedded service and shares nothing with it, so that a mistake of one shows in the other.
What the interface leaves open follows the rules of docs/local-service.md. A predicate has the form of §2.5, but
its values are Python's: dates are dates.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import product
from typing import Any

__all__ = ["COMPARE", "Joined", "Row", "Table", "TooLarge", "Value", "bag", "holds"]

Value = int | float | str | bool | date | None
Row = dict[str, Value]
COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "lte": operator.le,
    "gt": operator.gt,
    "gte": operator.ge,
}
#: Pairs of rows that a join looks at, at most.
_LARGEST_JOIN = 200_000


class TooLarge(Exception):  # not wrong, only slow
    """A join that plain Python takes too long for."""


@dataclass
class Table:
    """A table.

    Attributes:
        columns: Names and types, which the first load will have.
        rows: Those that there are.
        ingested: Whether it ever had data, §3.1.
    """

    columns: Mapping[str, type]
    rows: list[Row] = field(default_factory=list)
    ingested: bool = False

    def write(self, mode: str, rows: Sequence[Row], keys: Sequence[str] = ()) -> bool:
        """Apply a write as §2.8 has it; False when its job fails and nothing is applied."""
        if mode == "upload" and self.ingested:
            return False
        if mode == "upsert":
            given = [tuple(row[key] for key in keys) for row in rows]
            if len(set(given)) < len(given):
                return False
            self._upsert(dict(zip(given, rows, strict=True)), keys)
        else:
            self.rows = [*([] if mode == "overwrite" else self.rows), *rows]
        self.ingested = True
        return True

    def _upsert(self, given: Mapping[tuple[Value, ...], Row], keys: Sequence[str]) -> None:
        """Update every row that has a given key, NULL matching NULL; insert the others."""
        held = [tuple(row[key] for key in keys) for row in self.rows]
        new = given.keys() - set(held)
        self.rows = [given.get(key, row) for key, row in zip(held, self.rows, strict=True)]
        self.rows += [row for key, row in given.items() if key in new]

    def delete(self, predicates: Sequence[Mapping[str, Any]]) -> None:
        """Delete the rows that match all, §4.2 rule 5."""
        self.rows = [row for row in self.rows if not all(holds(each, row) for each in predicates)]


class Joined:
    """The rows of a table and of those joined to it so far, and what their columns are called.

    Args:
        tables: All tables.
        table_id: The primary one.
    """

    def __init__(self, tables: Mapping[str, Table], table_id: str) -> None:
        self._tables = tables
        self.types: dict[str, type] = {}
        called = self._call(table_id, 0)
        self.rows = [_renamed(row, called) for row in tables[table_id].rows]

    def join(self, place: int, spec: Mapping[str, Any]) -> None:
        """Join another table, §2.5.

        Args:
            place: Which join it is, from 1.
            spec: A JoinSpec.

        Raises:
            TooLarge: It would take too long.
        """
        how, left_on, right_on = spec.get("how") or "inner", spec.get("left_on"), spec.get("right_on")
        left, right = self.rows, self._tables[spec["table_id"]].rows
        if len(left) * len(right) > _LARGEST_JOIN:
            raise TooLarge
        pairs = [
            (one, two)
            for (one, a), (two, b) in product(enumerate(left), enumerate(right))
            if how == "cross" or (a[str(left_on)] is not None and a[str(left_on)] == b[str(right_on)])
        ]
        met = {one for one, _ in pairs}
        if how in ("semi", "anti"):
            self.rows = [row for number, row in enumerate(left) if (number in met) is (how == "semi")]
            return
        no_left: Row = dict.fromkeys(self.types)
        called = self._call(spec["table_id"], place)
        no_right: Row = dict.fromkeys(called.values())
        self.rows = [{**left[one], **_renamed(right[two], called)} for one, two in pairs]
        if how in ("left", "full"):
            self.rows += [{**row, **no_right} for number, row in enumerate(left) if number not in met]
        if how in ("right", "full"):
            met = {two for _, two in pairs}
            self.rows += [{**no_left, **_renamed(row, called)} for number, row in enumerate(right) if number not in met]

    def _call(self, table_id: str, place: int) -> dict[str, str]:
        """Name a table's columns: as they are, else `<table>.<column>`, else with the join's place."""
        called = {}
        for column, kind in self._tables[table_id].columns.items():
            taken = {name.lower() for name in self.types}
            names = (column, f"{table_id}.{column}", f"{table_id}#{place + 1}.{column}")
            called[column] = next(name for name in names if name.lower() not in taken)
            self.types[called[column]] = kind
        return called


def _renamed(row: Row, called: Mapping[str, str]) -> Row:
    return {called[column]: value for column, value in row.items()}


def holds(predicate: Mapping[str, Any], row: Row) -> bool:
    """Tell whether a row matches; NULL never does, by `ne` neither."""
    if "predicates" in predicate:
        parts = (holds(part, row) for part in predicate["predicates"])
        return all(parts) if predicate["type"] == "and" else any(parts)
    value = row[predicate["field"]]
    return value is not None and COMPARE[predicate["operator"]](value, predicate["value"])


def bag(rows: Iterable[Row], names: Iterable[str]) -> Counter[tuple[Value, ...]]:
    """Give rows without their order, by columns."""
    names = list(names)
    return Counter(tuple(row[name] for name in names) for row in rows)
