"""Conditions on a table's statistics: read as people write them, judged from one `info`, carried as text."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_tds.client import errors
from airflow_tds.client.conditions import Conditions
from airflow_tds.client.models import DatasetInfoResponse
from airflow_tds.client.waiting import Verdict, judge_table

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
INFO = DatasetInfoResponse(
    row_count=5, total_size_bytes=100, last_updated=NOW - timedelta(hours=1), snapshot_id="s1", data_files=1
)
NOTHING = DatasetInfoResponse(row_count=0, total_size_bytes=0)


def asked(**given: Any) -> Conditions:
    return Conditions.of(now=NOW.timestamp(), **given)


@pytest.mark.parametrize(
    ("given", "unmet"),
    [
        ({"min_rows": 5, "max_rows": 5}, []),
        ({"min_rows": "6"}, ["row_count is 5, wanted at least 6"]),
        ({"max_rows": 4}, ["row_count is 5, wanted at most 4"]),
        ({"empty": True}, ["row_count is 5, wanted at most 0"]),
        ({"empty": False}, []),
        ({"min_bytes": 100, "max_bytes": 100}, []),
        ({"min_bytes": 101}, ["total_size_bytes is 100, wanted at least 101"]),
        ({"max_bytes": 99}, ["total_size_bytes is 100, wanted at most 99"]),
        ({"max_age": 3601}, []),
        ({"max_age": timedelta(minutes=59)}, ["last_updated is 2026-01-31T11:00:00+00:00, wanted after"]),
        ({"updated_after": "2026-01-31T10:59:59"}, []),
        ({"updated_after": NOW}, ["last_updated is 2026-01-31T11:00:00+00:00, wanted after 2026-01-31T12:00:00+00:00"]),
        ({"updated_after": "2026-01-01", "max_age": 60}, ["last_updated is 2026-01-31T11:00:00+00:00, wanted after"]),
        ({"changed_from": "s0"}, []),
        ({"changed_from": ""}, []),
        ({"changed_from": "s1"}, ["snapshot_id is still s1"]),
        ({"min_rows": 9, "changed_from": "s1"}, ["row_count is 5, wanted at least 9", "snapshot_id is still s1"]),
    ],
)
def test_what_the_statistics_fail_to_say_is_told(given: dict[str, Any], unmet: list[str]) -> None:
    found = asked(**given).unmet(INFO)

    assert len(found) == len(unmet)
    assert all(text.startswith(start) for text, start in zip(found, unmet, strict=True))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"updated_after": NOW}, "last_updated is not told"),
        ({"changed_from": ""}, "snapshot_id is still none"),
        ({"empty": False}, "row_count is 0, wanted at least 1"),
    ],
)
def test_a_table_that_never_had_data_is_neither_fresh_nor_changed_nor_filled(given: dict[str, Any], text: str) -> None:
    assert [unmet[: len(text)] for unmet in asked(**given).unmet(NOTHING)] == [text]


def test_an_empty_table_is_empty() -> None:
    assert asked(empty=True).unmet(NOTHING) == []


@pytest.mark.parametrize(("given", "field"), [({"min_rows": 1}, "row_count"), ({"max_bytes": 1}, "total_size_bytes")])
def test_a_number_that_the_service_does_not_tell_is_no_answer(given: dict[str, Any], field: str) -> None:
    with pytest.raises(errors.UnexpectedReply, match=f"{field} is missing") as raised:
        asked(**given).unmet(DatasetInfoResponse())

    assert raised.value.field == field


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "no condition: give one of min_rows, .* changed_from"),
        ({"empty": True, "min_rows": 1}, "give empty, or min_rows and max_rows, not both"),
        ({"min_rows": 2, "max_rows": 1}, "min_rows is 2, more than max_rows, 1"),
        ({"min_bytes": 2, "max_bytes": 1}, "min_bytes is 2, more than max_bytes, 1"),
        ({"min_rows": -1}, "min_rows is a whole number from 0 on, not -1"),
        ({"max_rows": "many"}, "max_rows is a whole number from 0 on, not 'many'"),
        ({"min_bytes": 1.5}, "min_bytes is a whole number from 0 on, not 1.5"),
        ({"min_rows": [1]}, "min_rows is a whole number"),
        ({"max_age": 0}, "max_age is a number of seconds above zero, or a timedelta, not 0"),
        ({"max_age": "soon"}, "max_age is a number of seconds"),
        ({"updated_after": "yesterday"}, "updated_after is a time in ISO 8601, not 'yesterday'"),
    ],
)
def test_wrong_conditions_are_refused_with_what_is_right(given: dict[str, Any], text: str) -> None:
    with pytest.raises(errors.ValidationFailed, match=text):
        asked(**given)


def test_conditions_travel_as_text() -> None:
    conditions = asked(min_rows=1, updated_after=NOW, changed_from="s0")

    assert Conditions.from_text(conditions.to_text()) == conditions
    assert Conditions.from_text('{"min_rows": 1, "of_a_later_version": 2}') == Conditions(min_rows=1)
    assert Conditions.from_text("") == Conditions()


def test_a_reading_says_what_is_missing() -> None:
    reading = judge_table(INFO, asked(min_rows=6, max_bytes=1))

    assert reading.verdict is Verdict.RUNNING
    assert reading.status == "row_count is 5, wanted at least 6; total_size_bytes is 100, wanted at most 1"
    assert judge_table(INFO, asked(min_rows=5)).verdict is Verdict.COMPLETED
