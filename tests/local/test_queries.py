"""Cross queries: joins, names, filters, selection, formats (§2.5), compared with rows worked out by hand."""

from __future__ import annotations

import io
from pathlib import Path

import duckdb
import pytest
from caller import Caller

from airflow_tds.local import Service

FLIGHTS = b"id,carrier,delay,name,day\n1,AA,10.5,x,2024-01-01\n2,BB,200,y,2024-01-02\n3,,,z,2024-01-03\n"
CARRIERS = b"carrier,name\nAA,American\nBB,Blue\nDD,Delta\n,Nobody\n"


@pytest.fixture(scope="module")
def tables(caller: Caller) -> str:
    for table, data in (("flights", FLIGHTS), ("carriers", CARRIERS)):
        caller.create(table)
        assert caller.write("upload", table, data)["status"] == "COMPLETED"
    return "flights"


def join(how: str | None = "inner", **fields: str) -> list[dict[str, str | None]]:
    return [{"table_id": "carriers", "how": how, "left_on": "carrier", "right_on": "carrier", **fields}]


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("inner", {(1, "American"), (2, "Blue")}),
        (None, {(1, "American"), (2, "Blue")}),
        ("left", {(1, "American"), (2, "Blue"), (3, None)}),
        ("right", {(1, "American"), (2, "Blue"), (None, "Delta"), (None, "Nobody")}),
        ("full", {(1, "American"), (2, "Blue"), (3, None), (None, "Delta"), (None, "Nobody")}),
    ],
)
def test_joins_keep_the_rows_that_their_kind_keeps_and_null_keys_never_match(
    caller: Caller, tables: str, how: str | None, expected: set[tuple[int | None, str | None]]
) -> None:
    found = caller.rows(tables, joins=join(how))
    assert {(row["id"], row["carriers.name"]) for row in found} == expected
    assert len(found) == len(expected)


@pytest.mark.parametrize(("how", "expected"), [("semi", [1, 2]), ("anti", [3])])
def test_semi_and_anti_joins_filter_and_add_no_columns(
    caller: Caller, tables: str, how: str, expected: list[int]
) -> None:
    found = caller.rows(tables, joins=join(how))
    assert [row["id"] for row in found] == expected
    assert list(found[0]) == ["id", "carrier", "delay", "name", "day"]


def test_a_cross_join_pairs_all_rows(caller: Caller, tables: str) -> None:
    assert len(caller.rows(tables, joins=[{"table_id": "carriers", "how": "cross"}])) == 12


def test_several_joins_follow_one_another_and_every_column_has_a_name_of_its_own(caller: Caller, tables: str) -> None:
    twice = [*join(), *join(left_on="flights.carrier")]
    assert list(caller.rows(tables, joins=twice)[0]) == [
        *("id", "carrier", "delay", "name", "day"),
        *("carriers.carrier", "carriers.name", "carriers#3.carrier", "carriers#3.name"),
    ]


def test_a_table_can_be_joined_with_itself(caller: Caller, tables: str) -> None:
    itself = [{"table_id": tables, "how": "inner", "left_on": "id", "right_on": "id"}]
    assert [(row["id"], row["flights.id"]) for row in caller.rows(tables, joins=itself)] == [(1, 1), (2, 2), (3, 3)]


def test_select_gives_the_columns_asked_for_in_their_order_and_by_their_names(caller: Caller, tables: str) -> None:
    found = caller.rows(tables, joins=join(), select=["carriers.name", "id"])
    assert list(found[0].items()) == [("carriers.name", "American"), ("id", 1)]


@pytest.mark.parametrize(
    ("leaf", "expected"),
    [
        (("id", "eq", 2), [2]),
        (("id", "ne", 2), [1, 3]),
        (("id", "lt", 2), [1]),
        (("id", "lte", 2), [1, 2]),
        (("id", "gt", 2), [3]),
        (("id", "gte", 2), [2, 3]),
        (("id", "eq", 1.5), []),
        (("id", "lt", 2.5), [1, 2]),
        (("id", "eq", "2"), [2]),
        (("delay", "gte", 10.5), [1, 2]),
        (("delay", "ne", 200), [1]),
        (("name", "eq", "y"), [2]),
        (("name", "eq", "' OR 1=1 --"), []),
        (("day", "gt", "2024-01-01"), [2, 3]),
    ],
)
def test_filters_compare_as_the_columns_type(
    caller: Caller, tables: str, leaf: tuple[str, str, object], expected: list[int]
) -> None:
    asked = dict(zip(("field", "operator", "value"), leaf, strict=True))
    assert [row["id"] for row in caller.rows(tables, filters=asked)] == expected


def test_groups_nest(caller: Caller, tables: str) -> None:
    leaf = [{"field": "id", "operator": "eq", "value": number} for number in (1, 2, 3)]
    both = {"type": "and", "predicates": [leaf[1], {"field": "name", "operator": "eq", "value": "y"}]}
    found = caller.rows(tables, filters={"type": "or", "predicates": [leaf[0], both]})
    assert [row["id"] for row in found] == [1, 2]


def test_filters_see_the_joined_rows(caller: Caller, tables: str) -> None:
    blue = {"field": "carriers.name", "operator": "eq", "value": "Blue"}
    assert [row["id"] for row in caller.rows(tables, joins=join("left"), filters=blue)] == [2]


@pytest.mark.parametrize(
    "leaf",
    [
        ("id", "eq", "x"),
        ("id", "eq", 10**60),
        ("delay", "eq", "nan"),
        ("id", "eq", "1e999999999"),
        ("id", "eq", "1e-999999999"),
        ("id", "eq", "9" * 5000),
        ("day", "eq", "2024-13-01"),
        ("day", "eq", 5),
        ("nope", "eq", 1),
    ],
)
def test_a_value_that_the_columns_type_cannot_hold_is_refused(
    caller: Caller, tables: str, leaf: tuple[str, str, object]
) -> None:
    asked = dict(zip(("field", "operator", "value"), leaf, strict=True))
    reply = caller.ask(table_id=tables, filters=asked)
    assert reply.status_code == 422
    assert repr(leaf[0]) in reply.json()["detail"]


@pytest.mark.parametrize(
    "query",
    [
        {"select": []},
        {"select": ["id", "ID"]},
        {"select": ["id", "id"]},
        {"select": ["nope"]},
        {"joins": join(left_on="id")},
        {"joins": join(right_on="nope")},
        {"joins": join("cross")},
        {"joins": [{"table_id": "carriers", "how": "inner", "left_on": "carrier"}]},
        {"joins": join("outer")},
        {"format": "xml"},
        {"limit": 5},
        {"filters": {"type": "and", "predicates": [{"field": "id", "operator": "eq", "value": 1}]}},
    ],
)
def test_a_query_that_does_not_fit_is_refused_at_once(caller: Caller, tables: str, query: dict[str, object]) -> None:
    assert caller.ask(table_id=tables, **query).status_code == 422


@pytest.mark.parametrize("depth", [40, 500, 50_000])
def test_groups_nested_without_end_are_refused(caller: Caller, tables: str, depth: int) -> None:
    leaf = '{"field":"id","operator":"eq","value":1}'
    nested = f'{{"type":"or","predicates":[{leaf},' * depth + leaf + "]}" * depth
    body = f'{{"table_id":"{tables}","filters":{nested}}}'
    assert caller.http.post("/data/queries", content=body).status_code == 422


def test_a_table_that_does_not_exist_is_not_found(caller: Caller, tables: str) -> None:
    assert caller.ask(table_id="nowhere").status_code == 404
    assert caller.ask(table_id=tables, joins=[{"table_id": "nowhere", "how": "cross"}]).status_code == 404


def test_a_table_that_never_had_data_has_no_columns_to_query(caller: Caller, table: str) -> None:
    assert caller.ask(table_id=table).status_code == 422


def test_a_truncated_table_gives_its_columns_and_no_rows(caller: Caller, table: str) -> None:
    caller.write("upload", table, CARRIERS)
    caller.truncate(table)
    assert caller.ask(table_id=table, format="csv").text == "carrier,name\n"


def test_the_result_is_parquet_unless_told_otherwise(caller: Caller, tables: str, tmp_path: Path) -> None:
    reply = caller.ask(table_id=tables)
    (tmp_path / "result.parquet").write_bytes(reply.content)
    found = duckdb.read_parquet(str(tmp_path / "result.parquet")).select("id", "delay").fetchall()
    assert reply.headers["content-type"] == "application/vnd.apache.parquet"
    assert found == [(1, 10.5), (2, 200.0), (3, None)]


def test_csv_has_a_header(caller: Caller, tables: str) -> None:
    reply = caller.ask(table_id=tables, format="csv", select=["id", "name"])
    assert io.StringIO(reply.text).readlines() == ["id,name\n", "1,x\n", "2,y\n", "3,z\n"]


def test_json_has_null_where_a_number_is_not_finite(caller: Caller, table: str, tmp_path: Path) -> None:
    duckdb.execute(f"COPY (SELECT 'nan'::DOUBLE AS v) TO '{tmp_path / 'nan.parquet'}' (FORMAT parquet)")
    caller.write("upload", table, (tmp_path / "nan.parquet").read_bytes(), "parquet")
    assert caller.rows(table) == [{"v": None}]


def test_polling_says_pending_until_the_result_is_ready(service: Service, caller: Caller, tables: str) -> None:
    service.hold()
    try:
        job_id = caller.http.post("/data/queries", json={"table_id": tables}).json()["job_id"]
        pending = caller.http.get(f"/data/query/{job_id}")
    finally:
        service.release()
    assert (pending.status_code, pending.json()["status"]) == (202, "QUEUED")
    caller.settled(job_id)
    ready = caller.http.get(f"/data/query/{job_id}")
    assert ready.status_code == 307
    assert ready.headers["location"].startswith(service.url)


def test_a_write_is_no_query_to_poll(caller: Caller, table: str) -> None:
    job_id = caller.submit("append", table, CARRIERS)
    assert caller.http.get(f"/data/query/{job_id}").status_code == 404
