"""Layouts of JSON payloads that the wire map may say: what they hold arrives exactly, and what is amiss is named."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from caller import Caller

from airflow_tds.local import Service

LINES = {"row_layout": "lines"}
COLUMNS = {"row_layout": "columns", "rows_at": "/sheet/body", "columns_at": "/sheet/head"}
RECORDS = {"row_layout": "records", "rows_at": "/data"}


@pytest.fixture(scope="module")
def calling(request: pytest.FixtureRequest) -> Iterator[Caller]:
    with Service(wire=request.param) as service:
        caller = Caller(service.url, service.token)
        yield caller
        caller.close()


@pytest.mark.parametrize(
    ("calling", "payload"),
    [
        (LINES, b'{"n": 1, "d": 0.1, "t": "x"}\n{"n": 12345678901234567890123, "d": 2}\n'),
        (RECORDS, b'{"data": [{"n": 1, "d": 0.1, "t": "x"}, {"n": 12345678901234567890123, "d": 2}], "more": {}}'),
        (COLUMNS, b'{"sheet": {"head": ["n", "d", "t"], "body": [[1, 0.1, "x"], [12345678901234567890123, 2, null]]}}'),
    ],
    indirect=["calling"],
)
def test_a_payload_arrives_as_it_is_laid_out(calling: Caller, payload: bytes) -> None:
    calling.create("t")
    assert calling.write("upload", "t", payload, "json")["status"] == "COMPLETED"
    rows = [{"n": 1, "d": 0.1, "t": "x"}, {"n": 12345678901234567890123, "d": 2.0, "t": None}]
    assert calling.http.get("/tables/t/data/query").json()["items"] == rows
    assert calling.write("append", "t", payload, "json")["status"] == "COMPLETED"
    assert calling.info("t")["row_count"] == 4


@pytest.mark.parametrize(
    ("calling", "payload", "reason"),
    [
        (RECORDS, b"[1", "no valid JSON document"),
        (RECORDS, b'[{"a": 1}]', "no list of rows at /data"),
        (RECORDS, b'{"data": {"a": 1}}', "no list of rows at /data"),
        (RECORDS, b'{"data": [{"a": 1, "a": 2}]}', "has a key twice"),
        (RECORDS, b'{"data": [{"a": NaN}]}', "row 1"),
        (COLUMNS, b'{"sheet": {"head": ["a"], "body": [[1], [1, 2]]}}', "row 2: is no list of 1 values"),
        (COLUMNS, b'{"sheet": {"head": ["a"], "body": [{"a": 1}]}}', "row 1: is no list of 1 values"),
        (COLUMNS, b'{"sheet": {"head": [1], "body": []}}', "are not all texts"),
        (COLUMNS, b'{"sheet": {"body": []}}', "no list of names of columns at /sheet/head"),
    ],
    indirect=["calling"],
)
def test_what_is_laid_out_otherwise_fails_and_says_why(calling: Caller, payload: bytes, reason: str) -> None:
    calling.create("one")
    calling.write("overwrite", "one", b'{"a": 1}\n', "ndjson")
    job: dict[str, Any] = calling.write("append", "one", payload, "json")
    assert (job["status"], reason in job["error"]) == ("FAILED", True), job["error"]
    assert calling.info("one")["row_count"] == 1
