"""Predicates as SQL: which rows match, for cross queries, pages of one table and deletions.

A value is compared as the column's type; one that the type cannot hold is refused, not rounded. NULL is
never matched, by `ne` neither. A simple expression (§2.6) is split at the first operator between colons,
so a value may hold any text; whether it is a number is the column's to say.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from duckdb import DuckDBPyConnection

from airflow_tds.client.errors import ValidationFailed
from airflow_tds.client.models import FilterGroup, FilterLeaf, Predicate
from airflow_tds.local.columns import Column
from airflow_tds.local.records import Table

__all__ = ["SIMPLE", "Find", "Operand", "Where", "matching", "parse_simple", "where"]

_OPERATORS = {"eq": "=", "ne": "<>", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
#: A simple expression, §2.6, as a pattern that JSON Schema understands as well.
SIMPLE = rf"^([\s\S]+?):({'|'.join(_OPERATORS)}):([\s\S]*)$"
#: Deeper groups are refused: the engine's parser has its own, worse limit.
_DEEPEST = 32
_MOST_DIGITS = 38
_INTEGRAL = re.compile(r"[+-]?[0-9]+")


@dataclass(frozen=True)
class Operand:
    """What a condition compares.

    Attributes:
        sql: An expression.
        column: Whose values it gives.
    """

    sql: str
    column: Column


@dataclass(frozen=True)
class Where:
    """A clause and its values.

    Attributes:
        sql: ` WHERE ...` with a `?` per value, or nothing.
        values: Texts, in order.
    """

    sql: str
    values: tuple[str, ...]


#: Looks a filter's field up; raises ValidationFailed where there is none.
Find = Callable[[str], Operand]


def parse_simple(expression: str) -> FilterLeaf:
    """Read a simple expression, §2.6; its value stays text.

    Raises:
        ValidationFailed: It is none.
    """
    found = re.fullmatch(SIMPLE, expression)
    if found is None:
        raise ValidationFailed(f"filters: {expression!r} is not field:operator:value (§2.6)")
    return FilterLeaf.model_validate({"field": found[1], "operator": found[2], "value": found[3]})


def matching(cursor: DuckDBPyConnection, table: Table, predicate: Predicate | None) -> Where:
    """Give the rows of one table that a predicate matches; None for all rows.

    Raises:
        ValidationFailed: It does not fit the table's columns.
    """
    columns = {column.name: column for column in table.columns}

    def find(name: str) -> Operand:
        if name not in columns:
            raise ValidationFailed(f"filters: {name!r} names no column; there are {', '.join(columns)}")
        return Operand(columns[name].quoted, columns[name])

    return where(cursor, predicate, find)


def where(cursor: DuckDBPyConnection, predicate: Predicate | None, find: Find) -> Where:
    """Turn a predicate into a WHERE clause.

    Args:
        cursor: Asked whether a type can hold a value.
        predicate: A leaf or a group; None for all rows.
        find: Gives the fields.

    Raises:
        ValidationFailed: A field or a value does not fit, or groups are nested too deep.
    """
    if predicate is None:
        return Where("", ())
    clause = _Clause(cursor, find)
    return Where(f" WHERE {clause.of(predicate, 1)}", tuple(clause.values))


class _Clause:
    """Turns predicates into SQL, and collects their values."""

    def __init__(self, cursor: DuckDBPyConnection, find: Find) -> None:
        self._cursor = cursor
        self._find = find
        self.values: list[str] = []

    def of(self, predicate: Predicate, depth: int) -> str:
        if depth > _DEEPEST:
            raise ValidationFailed(f"filters: groups are nested deeper than {_DEEPEST}")
        if isinstance(predicate, FilterGroup):
            parts = [self.of(part, depth + 1) for part in predicate.predicates]
            return f"({f' {predicate.type.upper()} '.join(parts)})"
        return self._leaf(predicate)

    def _leaf(self, leaf: FilterLeaf) -> str:
        operand = self._find(leaf.field)
        text, kind = _bound(operand.column, leaf.value)
        found = self._cursor.execute(f"SELECT TRY_CAST(? AS {kind}) IS NOT NULL", [text]).fetchone()
        if not (found and found[0]):
            raise _unfit(operand.column, leaf.value)
        self.values.append(text)
        return f"{operand.sql} {_OPERATORS[leaf.operator]} CAST(? AS {kind})"


def _bound(column: Column, value: float | str) -> tuple[str, str]:
    """Give a filter's value as text, and the type as which it is compared."""
    text = value if isinstance(value, str) else _number_text(column, value)
    if column.kind in ("json", "other") or (column.kind in ("boolean", "time", "clock") and not isinstance(value, str)):
        raise _unfit(column, value)
    if column.kind == "number":
        if not column.is_number(text):
            raise _unfit(column, value)
        return (text, column.type) if column.floats else _exact(column, text)
    if not column.denotes(text):
        raise _unfit(column, value)
    return text, column.type


def _exact(column: Column, text: str) -> tuple[str, str]:
    """Compare whole and decimal columns with exactly the value given: 1.5 is not 2, nor is 2^53 + 1 near 2^53."""
    number = Decimal(text)
    if abs(number.adjusted()) > _MOST_DIGITS:  # before it is written out: 1e999999999 would fill the memory
        raise _unfit(column, text)
    plain = format(number, "f")
    if _INTEGRAL.fullmatch(plain):
        return plain, "HUGEINT"
    return plain, f"DECIMAL({_MOST_DIGITS},{min(len(plain.partition('.')[2]), _MOST_DIGITS)})"


def _number_text(column: Column, value: float) -> str:
    if not math.isfinite(value):
        raise _unfit(column, value)
    return repr(value)


def _unfit(column: Column, value: float | str) -> ValidationFailed:
    return ValidationFailed(
        f"filters: {value!r} cannot be compared with column {column.name!r}, which is {column.type}"
    )
