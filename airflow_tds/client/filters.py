"""Filters as people write them, made into the structured predicates of §2.5.

Three forms come in: simple expressions `field:operator:value` (§2.6), plain mappings or models, and
`col("age") >= 18`, which yields plain mappings. No I/O; how a predicate travels is wire.py's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from airflow_tds.client.errors import ValidationFailed
from airflow_tds.client.models import FilterGroup, FilterLeaf, describe

__all__ = ["Column", "Condition", "Filters", "col", "parse_simple", "simple_expressions", "structured"]

#: One filter, or several that combine with AND; None for none.
Filters = str | Mapping[str, Any] | FilterLeaf | FilterGroup | Iterable[str | Mapping[str, Any]] | None
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


def parse_simple(expression: str, *, numbers: bool = True) -> Condition:
    """Read a simple filter expression, §2.6.

    Args:
        expression: `field:operator:value`; split at the first two colons, so the value may hold any.
        numbers: Whether a value may become a number; otherwise all stay text.

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
    return Condition(field=field, operator=operator, value=_number_or_text(value) if numbers else value)


def simple_expressions(filters: Filters) -> list[str]:
    """Write filters as simple expressions, which combine with AND, §2.6.

    Args:
        filters: A simple expression or a predicate, or several; None for none.

    Returns:
        The expressions; empty for none.

    Raises:
        ValidationFailed: An expression is none, or a predicate cannot be written so (an `or` group, or a
            column whose name holds a colon).
    """
    return [text for each in _several(filters) for text in _expressions(each)]


def structured(filters: Filters, *, numbers: bool = True) -> Condition | None:
    """Write filters as one structured predicate, §2.6: one is a leaf, several are an `and` group.

    Args:
        filters: A simple expression or a predicate, or several; None for none.
        numbers: Whether a simple expression's value may become a number, see `parse_simple`.

    Returns:
        The predicate; None for none.

    Raises:
        ValidationFailed: An expression is none.
    """
    parts = [
        parse_simple(each, numbers=numbers) if isinstance(each, str) else Condition(_plain(each))
        for each in _several(filters)
    ]
    if len(parts) > 1:
        return Condition(type="and", predicates=parts)
    return parts[0] if parts else None


def _several(filters: Filters) -> list[Any]:
    if filters is None:
        return []
    return [filters] if isinstance(filters, str | Mapping | BaseModel) else list(filters)


def _plain(predicate: Any) -> dict[str, Any]:
    if isinstance(predicate, BaseModel):
        return predicate.model_dump()
    if isinstance(predicate, Mapping):
        return dict(predicate)
    raise ValidationFailed(f"a filter is a simple expression or a predicate, not a {type(predicate).__name__} (§2.5)")


def _expressions(each: Any) -> list[str]:
    if isinstance(each, str):
        parse_simple(each)
        return [each]
    predicate = _plain(each)
    if predicate.get("type") == "and":
        return [text for part in predicate.get("predicates", ()) for text in _expressions(part)]
    if "type" in predicate:
        raise ValidationFailed("only AND can be written as simple filters (§2.6); cross_query takes any predicate")
    try:
        leaf = FilterLeaf.model_validate(predicate)
    except ValidationError as invalid:
        raise ValidationFailed(f"filter: {describe(invalid)}") from None
    if ":" in leaf.field:
        raise ValidationFailed(f"column {leaf.field!r} holds a colon, which a simple filter cannot say (§2.6)")
    return [f"{leaf.field}:{leaf.operator}:{leaf.value}"]


def _number_or_text(text: str) -> int | float | str:
    for number in (int, float):
        try:
            value = number(text)
        except ValueError:
            continue
        if str(value) == text and text not in ("inf", "-inf", "nan"):
            return value
    return text
