"""Pages of rows, deletions, and queries into files, on both faces."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from scripted import Run, answer

from airflow_tds.client import errors
from airflow_tds.client.filters import col
from airflow_tds.client.messages import Reply
from airflow_tds.client.models import FilterLeaf, PageMetadata

PAGES = "GET /tables/t/data/query"
STARTED = answer({"job_id": "q1"})
READY = Reply(307, {"location": "https://store.example/r?sig=s"})
RESULT = Reply(200, content=b"a\n1\n", received=4)


def page(*rows: int, has_next: bool = False, etag: str = "s1") -> Reply:
    """A page with a column `a`."""
    items = [{"a": row} for row in rows]
    return answer({"items": items, "metadata": {"total_count": 9, "has_next": has_next}, "etag": etag})


# ---- one page


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({}, PAGES),
        ({"limit": 5, "offset": 10}, f"{PAGES}?limit=5&offset=10"),
        ({"filters": "a:gt:1"}, f"{PAGES}?filters=a%3Agt%3A1"),
        ({"filters": ["a:gt:1", "b:eq:x:y"]}, f"{PAGES}?filters=a%3Agt%3A1&filters=b%3Aeq%3Ax%3Ay"),
        ({"filters": col("a") >= 2}, f"{PAGES}?filters=a%3Agte%3A2"),
        (
            {"filters": (col("a") == 1) & (col("b") != "é")},
            f"{PAGES}?filters=a%3Aeq%3A1&filters=b%3Ane%3A%C3%A9",
        ),
        ({"filters": FilterLeaf(field="a", operator="lt", value=1.5)}, f"{PAGES}?filters=a%3Alt%3A1.5"),
        ({"filters": []}, PAGES),
    ],
)
def test_a_page_is_asked_for_by_parameters(scripted: Any, run: Run, arguments: dict[str, Any], line: str) -> None:
    runtime, client = scripted(page(1))

    run(client.query("t", **arguments))

    assert runtime.lines == [line]


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.query("t", filters="a:eq:\ud800"),
        lambda client: client.delete_rows("t", "a:eq:\ud800"),
        lambda client: client.initiate("upsert", "t", "csv", "\ud800"),
        lambda client: client.submit_query("t", filters=["a:eq:\ud800", "b:eq:1"]),
        lambda client: client.submit_cross_query({"table_id": "t", "select": ["\ud800"]}),
        lambda client: client.submit_cross_query({"table_id": "\ud800"}),
    ],
)
def test_text_that_is_no_unicode_is_refused_before_it_is_sent(scripted: Any, run: Run, call: Any) -> None:
    runtime, client = scripted()

    with pytest.raises(errors.ValidationFailed, match=r"no valid Unicode|valid string"):
        run(call(client))
    assert runtime.requests == []


def test_a_page_holds_rows_and_where_it_stands(scripted: Any, run: Run) -> None:
    _, client = scripted(page(1, 2, has_next=True))

    found = run(client.query("t"))

    assert found.items == [{"a": 1}, {"a": 2}]
    assert found.metadata == PageMetadata(total_count=9, has_next=True)
    assert found.etag == "s1"


def test_an_etag_may_be_a_header_of_the_reply(scripted: Any, run: Run) -> None:
    reply = answer({"items": [], "metadata": {"has_next": False}})
    _, client = scripted(Reply(200, {"etag": 'W/"s7"'}, reply.content))

    assert run(client.query("t")).etag == "s7"


@pytest.mark.parametrize(("etag", "sent"), [("s1", '"s1"'), ('"s1"', '"s1"'), ('W/"s1"', 'W/"s1"')])
def test_an_etag_is_sent_quoted(scripted: Any, run: Run, etag: str, sent: str) -> None:
    runtime, client = scripted(Reply(304))

    assert run(client.query("t", etag=etag)) is None
    assert runtime.requests[0].headers == {"If-None-Match": sent}


@pytest.mark.parametrize("etag", [None, ""])
def test_nothing_can_be_unchanged_where_no_etag_was_sent(scripted: Any, run: Run, etag: str | None) -> None:
    _, client = scripted(Reply(304))

    with pytest.raises(errors.UnexpectedReply, match="304 although no etag was sent"):
        run(client.query("t", etag=etag))


@pytest.mark.parametrize("etag", [None, ""])
def test_without_an_etag_nothing_is_conditional(scripted: Any, run: Run, etag: str | None) -> None:
    runtime, client = scripted(page(1))

    run(client.query("t", etag=etag))

    assert runtime.requests[0].headers == {}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"limit": 0}, r"limit is 1 to 10000, not 0 \(§8\)"),
        ({"limit": 10_001}, r"limit is 1 to 10000, not 10001 \(§8\)"),
        ({"offset": -1}, "offset is 0 or more, not -1"),
        ({"etag": "a\r\nb"}, "not one that a service gave"),
        ({"filters": "a>1"}, "is not field:operator:value"),
        ({"filters": col("a:b") == 1}, "holds a colon"),
        ({"filters": (col("a") == 1) | (col("a") == 2)}, "only AND"),
        ({"filters": [7]}, "not a int"),
        ({"filters": {"field": "a", "operator": "like", "value": 1}}, "filter: operator"),
        ({"format": "csv", "limit": 5}, "limit and offset are for json, not for csv"),
        ({"format": "parquet", "offset": 5}, "limit and offset are for json, not for parquet"),
        ({"format": "xml"}, "format is parquet or csv, not 'xml'"),
    ],
)
def test_a_query_that_breaks_a_rule_is_refused_before_it_is_sent(
    scripted: Any, run: Run, arguments: dict[str, Any], text: str
) -> None:
    runtime, client = scripted()

    with pytest.raises(errors.ValidationFailed, match=text):
        run(client.query("t", **arguments))
    assert runtime.requests == []


@pytest.mark.parametrize("document", [{}, {"items": 7}, [], {"items": []}, {"items": [], "metadata": {}}])
def test_a_page_that_cannot_be_read_is_said(scripted: Any, run: Run, document: Any) -> None:
    _, client = scripted(answer(document))

    with pytest.raises(errors.UnexpectedReply, match="query"):
        run(client.query("t"))


# ---- files


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_a_file_comes_through_a_job(scripted: Any, run: Run, form: str) -> None:
    runtime, client = scripted(STARTED, READY, RESULT)

    assert run(client.query("t", format=form, etag="ignored")) == b"a\n1\n"
    assert runtime.requests[0].json == {"table_id": "t", "format": form}
    assert runtime.requests[0].headers == {}


@pytest.mark.parametrize(
    ("filters", "sent"),
    [
        ("a:gt:1", {"field": "a", "operator": "gt", "value": 1}),
        (
            ["a:gt:01", col("b") == 2.5],
            {
                "type": "and",
                "predicates": [
                    {"field": "a", "operator": "gt", "value": "01"},
                    {"field": "b", "operator": "eq", "value": 2.5},
                ],
            },
        ),
        (
            (col("a") == 1) | (col("b") == 2),
            {
                "type": "or",
                "predicates": [
                    {"field": "a", "operator": "eq", "value": 1},
                    {"field": "b", "operator": "eq", "value": 2},
                ],
            },
        ),
        ([], None),
    ],
)
def test_filters_of_a_file_become_one_predicate(scripted: Any, run: Run, filters: Any, sent: Any) -> None:
    runtime, client = scripted(STARTED)

    assert run(client.submit_query("t", filters=filters)) == "q1"
    assert runtime.requests[0].json.get("filters") == sent


def test_poll_download_reads_into_memory(scripted: Any, run: Run) -> None:
    _, client = scripted(READY, RESULT)

    assert run(client.poll_download("q1")) == b"a\n1\n"


# ---- deletions and modes


def test_rows_are_deleted_by_simple_filters(scripted: Any, run: Run) -> None:
    runtime, client = scripted(Reply(204))

    assert run(client.delete_rows("t", [col("a") < 2, "b:eq:x"])) is None
    assert runtime.lines == ["POST /tables/t/data/delete"]
    assert runtime.requests[0].json == {"filters": ["a:lt:2", "b:eq:x"]}


@pytest.mark.parametrize("filters", [None, []])
def test_a_deletion_without_a_filter_is_refused(scripted: Any, run: Run, filters: Any) -> None:
    runtime, client = scripted()

    with pytest.raises(errors.ValidationFailed, match="at least one filter"):
        run(client.delete_rows("t", filters))
    assert runtime.requests == []


def test_a_deletion_of_unknown_fate_is_not_sent_again(scripted: Any, run: Run) -> None:
    runtime, client = scripted(Reply(500))

    with pytest.raises(errors.ServerError):
        run(client.delete_rows("t", "a:eq:1"))
    assert len(runtime.requests) == 1


def test_an_update_needs_a_mode_that_exists(scripted: Any, run: Run) -> None:
    runtime, client = scripted()

    with pytest.raises(errors.ValidationFailed, match="update_mode is append, overwrite or upsert, not 'merge'"):
        run(client.submit_update("t", b"", update_mode="merge"))
    assert runtime.requests == []


def test_keys_that_a_mode_does_not_take_are_left_out_with_a_warning(
    scripted: Any, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    initiated = answer({"job_id": "j1", "upload_url": "https://store.example/p"})
    runtime, client = scripted(initiated, Reply(200))

    run(client.submit_update("t", b"a\n", update_mode="append", key_columns="a"))

    assert runtime.requests[0].json == {"format": "csv", "update_mode": "append"}
    assert "append takes no key_columns" in caplog.text


# ---- all rows


def rows_of(client: Any, face: str, **arguments: Any) -> list[int]:
    """Read all rows through either face's iterator."""
    if face == "blocking":
        return [row["a"] for row in client.iter_rows("t", **arguments)]

    async def gather() -> list[int]:
        return [row["a"] async for row in client.iter_rows("t", **arguments)]

    return asyncio.run(gather())


def test_all_rows_come_page_by_page(faced: Any) -> None:
    runtime, client, face = faced(page(1, 2, has_next=True), page(3, 4, has_next=True), page(5))

    assert rows_of(client, face, page_size=2, filters="a:gt:0") == [1, 2, 3, 4, 5]
    assert [line.split("limit=2")[1] for line in runtime.lines] == ["", "&offset=2", "&offset=4"]


def test_an_empty_page_ends_the_rows(faced: Any) -> None:
    _, client, face = faced(page(1, has_next=True), page(has_next=True))

    assert rows_of(client, face) == [1]


def test_two_snapshots_are_not_mixed(faced: Any) -> None:
    _, client, face = faced(page(1, has_next=True), page(2, etag="s2"))

    with pytest.raises(errors.SnapshotChanged, match="table t changed after 1 rows were read"):
        rows_of(client, face)


def test_nothing_unchanged_is_expected_where_no_etag_was_sent(faced: Any) -> None:
    _, client, face = faced(Reply(304))

    with pytest.raises(errors.UnexpectedReply, match="304"):
        rows_of(client, face)


def test_rows_that_are_not_wanted_any_more_are_not_fetched(faced: Any) -> None:
    runtime, client, face = faced(page(1, 2, has_next=True), page(3))
    if face == "blocking":
        assert next(client.iter_rows("t")) == {"a": 1}
        assert len(runtime.requests) == 1
        return

    async def first() -> Any:
        rows = client.iter_rows("t")
        row = await anext(rows)
        await rows.aclose()
        return row

    assert asyncio.run(first()) == {"a": 1}


def test_a_page_is_json_whatever_its_values(scripted: Any, run: Run) -> None:
    rows = [{"n": None, "t": "é", "x": [1, {"y": 2}], "big": 2**70}]
    _, client = scripted(Reply(200, content=json.dumps({"items": rows, "metadata": {"has_next": False}}).encode()))

    assert run(client.query("t")).items == rows


def test_both_faces_give_pages(faced: Any) -> None:
    _, client, face = faced(page(1))
    found = client.query("t") if face == "blocking" else asyncio.run(client.query("t"))

    assert found.items == [{"a": 1}]
