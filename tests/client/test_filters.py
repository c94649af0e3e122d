"""Filters as people write them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_tds.client.errors import ValidationFailed
from airflow_tds.client.filters import col, parse_simple
from airflow_tds.client.models import CrossQueryRequest

A = {"field": "a", "operator": "eq", "value": 1}
B = {"field": "b", "operator": "eq", "value": 2}
C = {"field": "c", "operator": "eq", "value": 3}
a, b, c = (col("a") == 1), (col("b") == 2), (col("c") == 3)


@pytest.mark.parametrize(
    ("condition", "operator"),
    [
        (col("n") == 5, "eq"),
        (col("n") != 5, "ne"),
        (col("n") < 5, "lt"),
        (col("n") <= 5, "lte"),
        (col("n") > 5, "gt"),
        (col("n") >= 5, "gte"),
        (5 <= col("n"), "gte"),  # noqa: SIM300  # the other way round is the point
    ],
)
def test_a_comparison_gives_a_leaf(condition: Any, operator: str) -> None:
    assert condition == {"field": "n", "operator": operator, "value": 5}


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (a & b, {"type": "and", "predicates": [A, B]}),
        (a | b, {"type": "or", "predicates": [A, B]}),
        (a & b & c, {"type": "and", "predicates": [A, B, C]}),
        ((a | b) & c, {"type": "and", "predicates": [{"type": "or", "predicates": [A, B]}, C]}),
        (dict(A) | b, {"type": "or", "predicates": [A, B]}),
        (dict(A) & b, {"type": "and", "predicates": [A, B]}),
    ],
)
def test_conditions_combine(condition: Any, expected: dict[str, Any]) -> None:
    assert condition == expected


def test_combining_in_place_keeps_both_conditions() -> None:
    where = a
    where |= b

    assert where == {"type": "or", "predicates": [A, B]}
    assert a == A


def test_a_condition_has_no_truth_value() -> None:
    with pytest.raises(TypeError, match="combine conditions with &"):
        _ = a and b


def test_a_chained_comparison_is_refused_rather_than_halved() -> None:
    with pytest.raises(TypeError, match="no truth value"):
        _ = 1 < col("n") < 5


def test_a_column_cannot_be_hashed() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(col("n"))


def test_a_condition_is_a_plain_mapping_for_json_and_for_a_request() -> None:
    assert json.loads(json.dumps(a & b)) == {"type": "and", "predicates": [A, B]}
    request = CrossQueryRequest.model_validate({"table_id": "t", "filters": a & b})
    assert request.model_dump(exclude_none=True)["filters"] == {"type": "and", "predicates": [A, B]}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("f:eq:12", 12),
        ("f:eq:-3", -3),
        ("f:eq:1.5", 1.5),
        ("f:eq:0123", "0123"),
        ("f:eq:1.50", "1.50"),
        ("f:eq:1_000", "1_000"),
        ("f:eq:nan", "nan"),
        ("f:eq:inf", "inf"),
        ("f:eq:-inf", "-inf"),
        ("f:eq: 1", " 1"),
        ("f:eq:", ""),
        ("f:eq:10:30:00", "10:30:00"),
    ],
)
def test_a_value_is_a_number_only_if_it_is_written_as_one(expression: str, value: float | str) -> None:
    found = parse_simple(expression)["value"]

    assert (type(found), found) == (type(value), value)


@given(st.text())
def test_no_value_is_lost_in_reading_it(value: str) -> None:
    assert str(parse_simple(f"f:eq:{value}")["value"]) == value


@pytest.mark.parametrize("expression", ["", "f", "f:eq", "f:like:x", ":eq:x", "f=1"])
def test_what_is_no_simple_expression_is_refused(expression: str) -> None:
    with pytest.raises(ValidationFailed, match="field:operator:value"):
        parse_simple(expression)
