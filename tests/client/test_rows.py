"""Rows as text: what each layout makes of them, and what none can carry."""

import csv
import io
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_tds.client.errors import ValidationFailed
from airflow_tds.client.rows import SLICE, RowLayout, written

RECORDS, LINES, CSV = RowLayout("records"), RowLayout("lines"), RowLayout("csv")
COLUMNS = RowLayout("columns", ("data", "rows"), ("data", "names"))
ANY = (RECORDS, LINES, CSV, COLUMNS)
NAN, INFINITY = float("nan"), float("inf")


def text(rows: Any, layout: RowLayout) -> str:
    return b"".join(written(rows, layout)).decode()


ROWS: list[dict[str, Any]] = [{"a": 1, "b": "x"}, {"b": "", "c": None}]


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        (RECORDS, '[{"a":1,"b":"x"},{"b":"","c":null}]'),
        (RowLayout("records", ("data", "rows")), '{"data":{"rows":[{"a":1,"b":"x"},{"b":"","c":null}]}}'),
        (COLUMNS, '{"data":{"names":["a","b","c"],"rows":[[1,"x",null],[null,"",null]]}}'),
        (LINES, '{"a":1,"b":"x"}\n{"b":"","c":null}\n'),
        (CSV, 'a,b,c\n1,x,\n,"",\n'),
    ],
)
def test_each_layout(layout: RowLayout, expected: str) -> None:
    assert text(ROWS, layout) == expected


@pytest.mark.parametrize(
    ("layout", "expected"), [(RECORDS, "[]"), (LINES, ""), (COLUMNS, '{"data":{"names":[],"rows":[]}}')]
)
@pytest.mark.parametrize("make", [list, iter])
def test_no_rows(make: Any, layout: RowLayout, expected: str) -> None:
    assert text(make([]), layout) == expected


def test_no_rows_cannot_be_csv_which_begins_with_their_columns() -> None:
    with pytest.raises(ValidationFailed, match="use json"):
        text([], CSV)


@pytest.mark.parametrize(
    ("value", "as_json", "as_csv"),
    [
        (None, "null", ""),
        ("", '""', '""'),
        ("plain text", '"plain text"', "plain text"),
        (" blank", '" blank"', '" blank"'),
        ('a,"b"\n', r'"a,\"b\"\n"', '"a,""b""\n"'),
        ("zürich", '"zürich"', "zürich"),
        ("007", '"007"', "007"),
        (True, "true", "true"),
        (2**70, str(2**70), str(2**70)),
        (0.1, "0.1", "0.1"),
        (1e300, "1e+300", "1e+300"),
        (Decimal("1.50"), "1.5", "1.50"),
        (Decimal("1E+2"), "100", "100"),
        (Fraction(1, 4), "0.25", "0.25"),
        (date(2026, 1, 2), '"2026-01-02"', "2026-01-02"),
        (datetime(2026, 1, 2, 3, 4, tzinfo=UTC), '"2026-01-02T03:04:00+00:00"', "2026-01-02T03:04:00+00:00"),
        (time(3, 4), '"03:04:00"', "03:04:00"),
        (UUID(int=1), f'"{UUID(int=1)}"', str(UUID(int=1))),
        ([1, {"k": None}], '[1,{"k":null}]', '"[1,{""k"":null}]"'),
        ((1, 2), "[1,2]", '"[1,2]"'),
        (MappingProxyType({"k": 1}), '{"k":1}', '"{""k"":1}"'),
    ],
)
def test_each_kind_of_value(value: Any, as_json: str, as_csv: str) -> None:
    assert text([{"a": value}], RECORDS) == f'[{{"a":{as_json}}}]'
    assert text([{"a": value}], CSV) == f"a\n{as_csv}\n"


class Whole:
    """A whole number as numpy has them: registered as one, and no int."""

    def __int__(self) -> int:
        return 7


def test_numbers_of_other_libraries_are_numbers() -> None:
    from numbers import Integral

    Integral.register(Whole)

    assert (text([{"a": Whole()}], RECORDS), text([{"a": Whole()}], CSV)) == ('[{"a":7}]', "a\n7\n")


class NotATime(datetime):
    """What pandas puts in place of a missing time: a datetime that differs from itself."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return False

    def __ne__(self, other: object) -> bool:
        return True


LOOP: list[Any] = []
LOOP.append(LOOP)


@pytest.mark.parametrize("layout", ANY, ids=lambda layout: layout.style)
@pytest.mark.parametrize(
    ("value", "why"),
    [
        (NAN, "is not finite|is no number|not finite"),
        (-INFINITY, "not finite"),
        ([NAN], "not finite"),
        (Decimal("NaN"), "is NaN, which is no number"),
        (NotATime(2026, 1, 1), "is no time: give None"),
        (b"bytes", "is a bytes, which has no agreed form"),
        ({1, 2}, "is a set, which has no agreed form"),
        (object(), "is a object, which has no agreed form"),
        (LOOP, "nested too deeply"),
        ("\ud800", "is not valid text"),
    ],
)
def test_what_cannot_be_carried_is_named(layout: RowLayout, value: Any, why: str) -> None:
    rows = [{"a": 1, "b": 2}] * SLICE + [{"a": 1, "b": 2}, {"a": 1, "b": value}]

    with pytest.raises(ValidationFailed, match=rf"row {SLICE + 2}, column 'b' .*({why})"):
        text(rows, layout)


def test_a_decimal_of_more_digits_than_a_number_of_json_keeps_goes_as_csv_only() -> None:
    long = Decimal("0.12345678901234567890")

    assert text([{"a": long}], CSV) == f"a\n{long}\n"
    with pytest.raises(ValidationFailed, match=r"row 1, column 'a' .*use csv"):
        text([{"a": long}], RECORDS)


@pytest.mark.parametrize("layout", ANY, ids=lambda layout: layout.style)
@pytest.mark.parametrize("rows", [[{"a": 1}, {2: 3}], [{None: 1}]])
def test_a_name_that_is_no_text_is_refused(layout: RowLayout, rows: Any) -> None:
    with pytest.raises(ValidationFailed, match=r"key that is no text"):
        text(rows, layout)


@pytest.mark.parametrize("layout", ANY, ids=lambda layout: layout.style)
@pytest.mark.parametrize("odd", [b"a", "a", 7, None])
def test_what_is_no_row_is_refused(layout: RowLayout, odd: Any) -> None:
    with pytest.raises(ValidationFailed, match=rf"row 2 is a {type(odd).__name__}"):
        text(iter([{"a": 1}, odd]), layout)


@pytest.mark.parametrize("layout", [CSV, COLUMNS], ids=["csv", "columns"])
def test_a_stream_of_rows_has_the_columns_of_its_first_row(layout: RowLayout) -> None:
    assert text(iter([{"a": 1, "b": 2}, {"b": 3}]), CSV) == "a,b\n1,2\n,3\n"
    with pytest.raises(ValidationFailed, match="row 2 has the column 'c', which the first row has not"):
        text(iter([{"a": 1}, {"c": 2}]), layout)


def test_rows_are_taken_a_slice_at_a_time() -> None:
    taken = 0

    def rows() -> Iterator[Mapping[str, Any]]:
        nonlocal taken
        while True:
            taken += 1
            yield {"a": taken}

    pieces = written(rows(), LINES)
    next(pieces), next(pieces)

    assert taken == SLICE


VALID = st.characters(exclude_categories=["Cs"])


@given(
    st.lists(st.dictionaries(st.text(VALID), st.none() | st.integers() | st.booleans() | st.text(VALID)), min_size=1)
)
def test_json_says_what_the_rows_say(rows: list[dict[str, Any]]) -> None:
    assert json.loads(text(rows, RECORDS)) == rows
    assert [json.loads(line) for line in text(rows, LINES).split("\n")[:-1]] == rows
    laid_out = json.loads(text(rows, COLUMNS))["data"]
    assert [dict(zip(laid_out["names"], row, strict=True)) for row in laid_out["rows"]] == [
        {name: row.get(name) for name in laid_out["names"]} for row in rows
    ]


@given(st.lists(st.fixed_dictionaries({"a": st.text(VALID), "b,": st.text(VALID)}), min_size=1))
def test_csv_says_what_the_rows_say(rows: list[dict[str, str]]) -> None:
    assert list(csv.DictReader(io.StringIO(text(rows, CSV), newline=""))) == rows
