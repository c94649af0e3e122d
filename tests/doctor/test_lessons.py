"""What readings of jobs teach: a status means "no data" only where the readings prove it."""

from __future__ import annotations

import pytest

from airflow_tds.doctor.waiting import Seen, lesson


def seen(*words: str) -> list[Seen]:
    return [Seen(float(second), word) for second, word in enumerate(words)]


def test_a_word_that_only_a_job_without_data_says_is_learned() -> None:
    learned = lesson(["OPEN", "OPEN"], {"1": seen("QUEUED", "COMPLETED"), "2": seen("QUEUED", "RUNNING", "COMPLETED")})

    assert (learned.status, learned.delay) == ("OPEN", 0.0)
    assert "one with data QUEUED, RUNNING" in learned.text


@pytest.mark.parametrize(
    ("idle", "jobs", "why"),
    [
        (["OPEN"], {"1": seen("OPEN", "OPEN", "RUNNING", "COMPLETED")}, "with data too for 2.0 s"),
        (["OPEN"], {"1": seen("OPEN", "OPEN")}, "with data too for 1.0 s"),
        (["OPEN"], {"1": seen("COMPLETED")}, "none with data was seen before it was final"),
        (["OPEN"], {}, "none with data was seen before it was final"),
        (["OPEN", "EXPIRED"], {"1": seen("RUNNING")}, "is EXPIRED and then OPEN"),
        (["FAILED"], {"1": seen("RUNNING")}, "a job without data is FAILED: nothing is learned"),
        ([], {"1": seen("RUNNING")}, "not seen"),
    ],
)
def test_what_proves_nothing_is_not_learned(idle: list[str], jobs: dict[str, list[Seen]], why: str) -> None:
    learned = lesson(idle, jobs)

    assert learned.status == ""
    assert why in learned.text
