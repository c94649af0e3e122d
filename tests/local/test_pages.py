"""JSON queries of one table: pages, filters, totals and etags (§2.4, §2.6, §4.2 rules 2 and 3)."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import duckdb
import httpx
import pytest
from caller import Caller

PEOPLE = b"id,name,born\n" + b"".join(b"%d,n%d,2024-01-%02d\n" % (n, n % 3, n) for n in range(1, 11))


@pytest.fixture(scope="module")
def people(caller: Caller) -> str:
    caller.create("people")
    assert caller.write("upload", "people", PEOPLE)["status"] == "COMPLETED"
    return "people"


def ask(caller: Caller, table_id: str, *filters: str, etag: str | None = None, **parameters: object) -> httpx.Response:
    headers = {} if etag is None else {"If-None-Match": etag}
    query: dict[str, Any] = {"filters": list(filters), **parameters}
    return caller.http.get(f"/tables/{quote(table_id, safe='')}/data/query", params=query, headers=headers)


def ids(reply: httpx.Response) -> list[int]:
    assert reply.status_code == 200, reply.text
    return [row["id"] for row in reply.json()["items"]]


def test_a_page_holds_rows_in_order_with_their_total_and_the_snapshot(caller: Caller, people: str) -> None:
    reply = ask(caller, people, limit=2)
    snapshot = caller.info(people)["snapshot_id"]
    assert reply.json() == {
        "items": [{"id": 1, "name": "n1", "born": "2024-01-01"}, {"id": 2, "name": "n2", "born": "2024-01-02"}],
        "metadata": {"total_count": 10, "has_next": True},
        "etag": snapshot,
    }
    assert reply.headers["etag"] == f'"{snapshot}"'


@pytest.mark.parametrize("limit", [1, 3, 5, 10, 11, 10_000])
@pytest.mark.parametrize("filters", [[], ["id:gt:2"]])
def test_pages_together_hold_every_row_once(caller: Caller, people: str, limit: int, filters: list[str]) -> None:
    found: list[int] = []
    more = True
    while more:
        reply = ask(caller, people, *filters, limit=limit, offset=len(found))
        found += ids(reply)
        more = reply.json()["metadata"]["has_next"]
        assert reply.json()["metadata"]["total_count"] == 10 - 2 * len(filters)
    assert found == list(range(1 + 2 * len(filters), 11))


def test_all_rows_come_where_no_limit_is_set(caller: Caller, people: str) -> None:
    assert ids(ask(caller, people)) == list(range(1, 11))


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (["id:eq:3"], [3]),
        (["id:ne:3", "id:lte:4"], [1, 2, 4]),
        (["name:eq:n0", "id:gt:3"], [6, 9]),
        (["born:gte:2024-01-09"], [9, 10]),
        (["name:eq:a:b"], []),
        (["name:eq:' OR 1=1 --"], []),
        (["name:eq:"], []),
        (["id:lt:2.5"], [1, 2]),
    ],
)
def test_filters_combine_with_and(caller: Caller, people: str, filters: list[str], expected: list[int]) -> None:
    reply = ask(caller, people, *filters)
    assert ids(reply) == expected
    assert reply.json()["metadata"] == {"total_count": len(expected), "has_next": False}


def test_the_total_counts_matching_rows_beyond_the_page_and_follows_the_data(caller: Caller, table: str) -> None:
    caller.write("upload", table, PEOPLE)
    assert ask(caller, table, "id:gt:5", limit=2).json()["metadata"] == {"total_count": 5, "has_next": True}
    caller.write("append", table, PEOPLE)
    assert ask(caller, table, "id:gt:5", limit=2).json()["metadata"] == {"total_count": 10, "has_next": True}


def test_an_offset_beyond_the_last_row_gives_an_empty_page(caller: Caller, people: str) -> None:
    for filters in ([], ["id:gt:5"]):
        reply = ask(caller, people, *filters, offset=100).json()
        assert reply["items"] == []
        assert reply["metadata"] == {"total_count": 5 if filters else 10, "has_next": False}


@pytest.mark.parametrize(
    "parameters",
    [
        {"limit": 10_001},
        {"limit": 0},
        {"limit": -1},
        {"limit": "many"},
        {"limit": "1_0"},
        {"limit": "5.0"},
        {"limit": ""},
        {"limit": [1, 2]},
        {"offset": -1},
        {"offset": 2**63},
        {"format": "csv"},
        {"select": "id"},
        {"filters": "id:eq"},
        {"filters": "id:like:1"},
        {"filters": ""},
        {"filters": "nope:eq:1"},
        {"filters": "id:eq:x"},
        {"filters": "id:eq:nan"},
    ],
)
def test_a_parameter_that_does_not_fit_is_refused(caller: Caller, people: str, parameters: dict[str, object]) -> None:
    reply = caller.http.get(f"/tables/{people}/data/query", params=parameters)  # type: ignore[arg-type]
    assert reply.status_code == 422
    assert reply.json()["detail"]


def test_a_query_that_is_no_text_is_refused(caller: Caller, people: str) -> None:
    assert caller.http.get(f"/tables/{people}/data/query?filters=name:eq:%FF").status_code == 422


def test_a_table_that_does_not_exist_is_not_found(caller: Caller) -> None:
    assert ask(caller, "nowhere").status_code == 404


@pytest.mark.parametrize("form", ['"{}"', 'W/"{}"', '"other", "{}"', "*"])
def test_an_unchanged_table_is_not_sent_again(caller: Caller, people: str, form: str) -> None:
    etag = ask(caller, people).json()["etag"]
    reply = ask(caller, people, "id:eq:1", etag=form.format(etag), offset=5)
    assert (reply.status_code, reply.content, reply.headers["etag"]) == (304, b"", f'"{etag}"')


def test_a_changed_table_is_sent_again_with_its_new_etag(caller: Caller, table: str) -> None:
    caller.write("upload", table, PEOPLE)
    old = ask(caller, table).json()["etag"]
    caller.write("append", table, PEOPLE)
    reply = ask(caller, table, etag=f'"{old}"')
    assert len(ids(reply)) == 20
    assert reply.json()["etag"] != old


def test_a_failed_job_leaves_the_etag_as_it_was(caller: Caller, table: str) -> None:
    caller.write("upload", table, PEOPLE)
    old = ask(caller, table).json()["etag"]
    assert caller.write("append", table, b"id\nx\n")["status"] == "FAILED"
    assert ask(caller, table, etag=f'"{old}"').status_code == 304


@pytest.mark.parametrize("etag", [None, '""', "*"])
def test_before_any_data_the_etag_is_empty_and_nothing_matches_it(caller: Caller, table: str, etag: str | None) -> None:
    reply = ask(caller, table, "id:eq:1", etag=etag)
    assert reply.status_code == 200
    assert reply.json() == {"items": [], "metadata": {"total_count": 0, "has_next": False}, "etag": ""}
    assert "etag" not in reply.headers


def test_a_truncated_table_still_has_a_snapshot(caller: Caller, table: str) -> None:
    caller.write("upload", table, PEOPLE)
    caller.truncate(table)
    page = ask(caller, table).json()
    assert (page["items"], page["metadata"]["total_count"]) == ([], 0)
    assert page["etag"] == caller.info(table)["snapshot_id"]


def test_column_names_are_data(caller: Caller, table: str) -> None:
    names = ["_r", "rowid", 'a"b', "it's", "x:y", "?", "$1", "; DROP TABLE x", "ü", "to_json"]
    header = ",".join('"' + name.replace('"', '""') + '"' for name in names)
    caller.write("upload", table, f"{header}\n{','.join(map(str, range(len(names))))}\n".encode())
    filters = [f"{name}:eq:{number}" for number, name in enumerate(names)]
    assert ask(caller, table, *filters).json()["items"] == [{name: number for number, name in enumerate(names)}]


def test_values_come_as_json_has_them(caller: Caller, table: str, tmp_path: Any) -> None:
    values = "9007199254740993::BIGINT AS big, 'nan'::DOUBLE AS nan, NULL::VARCHAR AS none, 'a\"\n\u2028' AS text"
    duckdb.execute(f"COPY (SELECT {values}, true AS yes, [1, 2] AS list) TO '{tmp_path / 'v.parquet'}'")
    caller.write("upload", table, (tmp_path / "v.parquet").read_bytes(), "parquet")
    assert ask(caller, table).json()["items"] == [
        {"big": 9007199254740993, "nan": None, "none": None, "text": 'a"\n\u2028', "yes": True, "list": [1, 2]}
    ]


NESTED = "['nan'::DOUBLE, 1.5, NULL] AS a, {'x y': 'inf'::FLOAT, 's': 'NaN'} AS b, NULL::STRUCT(v DOUBLE) AS c, "
NESTED += "[{'v': ['-inf'::DOUBLE]}, NULL] AS d, MAP {'NaN': 'nan'::DOUBLE, 'l': 2.5} AS e"


def test_what_json_cannot_carry_is_null_at_any_depth(caller: Caller, table: str, tmp_path: Any) -> None:
    duckdb.execute(f"COPY (SELECT {NESTED}) TO '{tmp_path / 'v.parquet'}'")
    caller.write("upload", table, (tmp_path / "v.parquet").read_bytes(), "parquet")
    expected = [
        {
            "a": [None, 1.5, None],
            "b": {"x y": None, "s": "NaN"},
            "c": None,
            "d": [{"v": [None]}, None],
            "e": {"NaN": None, "l": 2.5},
        }
    ]
    assert ask(caller, table).json()["items"] == expected
    assert caller.rows(table) == expected
