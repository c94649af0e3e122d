"""Filters as people write them, made into the structured predicates of §2.5.

Three forms come in: simple expressions `field:operator:value` (§2.6), plain mappings or models, and
`col("age") >= 18`, which yields plain mappings. No I/O; how a predicate travels is wire.py's.
"""

from __future__ import annotations

from typing import Any

from airflow_tds.client.errors import ValidationFailed

__all__ = ["Column", "Condition", "col", "parse_simple"]

OPERATORS = ("eq", "ne", "lt", "lte", "gt", "gte")


class Condition(dict[str, Any]):
    """A predicate as a plain mapping that combines with `&` and `|`."""

    def __and__(self, other: Condition) -> Condition:
        return _group("and", self, other)

    def __or__(self, other: Condition) -> Condition:  # type: ignore[override]  # a predicate is combined, not merged
        return _group("or", self, other)

    __ior__ = __or__  # type: ignore[assignment]  # a mapping's |= would overwrite this condition with the other

    def __ror__(self, other: dict[str, Any]) -> Condition:  # type: ignore[override]  # as above
        return _group("or", Condition(other), self)

    def __rand__(self, other: dict[str, Any]) -> Condition:
        return _group("and", Condition(other), self)

    def __bool__(self) -> bool:
        raise TypeError("a condition has no truth value: combine conditions with & and |, in parentheses")


def _group(kind: str, left: Condition, right: Condition) -> Condition:
    parts = [*_parts(kind, left), *_parts(kind, right)]
    return Condition(type=kind, predicates=parts)


def _parts(kind: str, condition: Condition) -> list[Any]:
    """A group of the same kind is taken apart, so that `a & b & c` is one group of three."""
    return list(condition["predicates"]) if condition.get("type") == kind else [condition]


class Column:
    """A column in an expression such as `col("age") >= 18`."""

    __hash__ = None  # type: ignore[assignment]  # == makes a condition, so columns cannot be compared

    def __init__(self, name: str) -> None:
        self._name = name

    def _leaf(self, operator: str, value: float | str) -> Condition:
        return Condition(field=self._name, operator=operator, value=value)

    def __eq__(self, value: object) -> Condition:  # type: ignore[override]  # builds a condition
        return self._leaf("eq", value)  # type: ignore[arg-type]  # the request model checks it

    def __ne__(self, value: object) -> Condition:  # type: ignore[override]  # builds a condition
        return self._leaf("ne", value)  # type: ignore[arg-type]  # the request model checks it

    def __lt__(self, value: float | str) -> Condition:
        return self._leaf("lt", value)

    def __le__(self, value: float | str) -> Condition:
        return self._leaf("lte", value)

    def __gt__(self, value: float | str) -> Condition:
        return self._leaf("gt", value)

    def __ge__(self, value: float | str) -> Condition:
        return self._leaf("gte", value)


def col(name: str) -> Column:
    """Begin a filter expression: `(col("age") >= 18) & (col("city") != "x")`.

    Args:
        name: Column name.

    Returns:
        A column; comparing it gives a plain mapping in the form of §2.5.
    """
    return Column(name)


def parse_simple(expression: str) -> Condition:
    """Read a simple filter expression, §2.6.

    Args:
        expression: `field:operator:value`; split at the first two colons, so the value may hold any.

    Returns:
        The condition. Its value is a number only if writing the number back gives the same text
        (assumed: `0123` stays text).

    Raises:
        ValidationFailed: The text has no two colons, no field, or an unknown operator.
    """
    field, _, rest = expression.partition(":")
    operator, colon, value = rest.partition(":")
    if not field or not colon or operator not in OPERATORS:
        raise ValidationFailed(
            f"filter {expression!r} is not field:operator:value, operator one of {', '.join(OPERATORS)} (§2.6)"
        )
    return Condition(field=field, operator=operator, value=_number_or_text(value))


def _number_or_text(text: str) -> int | float | str:
    for number in (int, float):
        try:
            value = number(text)
        except ValueError:
            continue
        if str(value) == text and text not in ("inf", "-inf", "nan"):
            return value
    return text
