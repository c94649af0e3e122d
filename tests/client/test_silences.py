"""Every silence of the interface has its row, and docs/wire.md says what the map says."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

from airflow_tds.client import silences
from airflow_tds.client.silences import SILENCES, page
from airflow_tds.client.wire import Wire

PAGE = Path(__file__).parents[2] / "docs" / "wire.md"


def test_the_page_is_what_the_map_says() -> None:
    assert PAGE.read_text() == page(), "python -m airflow_tds.client.silences > docs/wire.md"


def test_the_command_writes_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(silences.__file__, run_name="__main__")

    assert capsys.readouterr().out == page()


def test_the_example_is_a_wire_map() -> None:
    example = page().partition("```json\n")[2].partition("```")[0]

    assert Wire.from_setting(json.loads(example)).strategy("append") == "direct"


def test_every_key_of_the_map_has_its_row() -> None:
    assert {key for silence in SILENCES for key in silence.keys} == set(Wire.model_fields)


def test_a_row_without_a_key_says_what_is_assumed() -> None:
    assert [silence.what for silence in SILENCES if not silence.keys and not silence.otherwise] == []


def test_fixed_routes_stand_as_literals_in_the_page() -> None:
    fixed = [line for line in page().replace("<br>", "\n").splitlines() if "(fixed by §4.2)" in line]

    assert [line.split("`: `")[-1].split("`")[0] for line in fixed] == [
        "PATCH /tables/{table_id}/data",
        "POST /data/queries",
        "GET /data/query/{job_id}",
        "GET /tables/{table_id}/data/query",
    ]
