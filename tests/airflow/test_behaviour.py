"""The page of what differs says of this version what this version shows."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from behaviour import observed, page, told

PAGE = (Path(__file__).parents[2] / "docs" / "behaviour-by-version.md").read_text()


def test_the_page_says_what_this_version_shows() -> None:
    assert told(PAGE)[version("apache-airflow")] == observed()


def test_the_page_is_as_it_was_written() -> None:
    assert page(told(PAGE)) == PAGE
