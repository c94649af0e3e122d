"""Routes and places: how they are written, what is refused, and where inputs go."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_tds.client import errors
from airflow_tds.client.filters import col
from airflow_tds.client.messages import Request
from airflow_tds.client.routes import Place
from airflow_tds.client.wire import Wire


def sent(request: Request) -> tuple[str, dict[str, str], Any]:
    """What travels of a request."""
    return f"{request.method} {request.target}", dict(request.headers), request.json


def append(setting: Any, keys: Any = None, operation: Any = "append") -> Any:
    wire = Wire.from_setting({operation: setting, "format_tokens": {"csv": "CSV"}, "mode_tokens": {"append": "ADD"}})
    return sent(wire.initiate_request(operation, "t", "csv", keys))


LINE = "PATCH /tables/t/data"
LINE_LATER = "PATCH /tables/{table_id}/data"


@pytest.mark.parametrize(
    ("setting", "request_"),
    [
        ({}, (LINE, {}, {"format": "CSV", "update_mode": "ADD"})),
        (
            {"places": {"format": "query fmt", "update_mode": None}},
            (f"{LINE}?fmt=CSV", {}, None),
        ),
        (
            {"places": {"format": "header X-Format", "update_mode": "body /write/mode"}},
            (LINE, {"X-Format": "CSV"}, {"write": {"mode": "ADD"}}),
        ),
        (
            {"places": {"format": "header Content-Type media", "update_mode": None}},
            (LINE, {"Content-Type": "text/csv"}, None),
        ),
        (
            {"line": "PUT /x/{table_id}/{update_mode}.{format}", "headers": {"X-A": "b"}},
            ("PUT /x/t/ADD.CSV", {"X-A": "b"}, None),
        ),
        (
            {"line": "PUT /x?table={table_id}", "places": {"format": "query f"}},
            ("PUT /x?table=t&f=CSV", {}, {"update_mode": "ADD"}),
        ),
        (
            {"places": {"format": {"where": "body", "name": "/a~1b"}, "update_mode": None}},
            (LINE, {}, {"a/b": "CSV"}),
        ),
    ],
)
def test_an_input_travels_where_its_place_says(setting: Any, request_: Any) -> None:
    assert append(setting) == request_


@pytest.mark.parametrize(
    ("place", "line", "headers", "body"),
    [
        ("body /keys", "", {}, ["a", "b"]),
        ("body /keys joined", "", {}, "a,b"),
        ("body /keys json", "", {}, '["a", "b"]'),
        ("query k", "?k=a&k=b", {}, None),
        ("query k joined ;", "?k=a%3Bb", {}, None),
        ("query k json", "?k=%5B%22a%22%2C+%22b%22%5D", {}, None),
        ("header X-Keys", "", {"X-Keys": "a,b"}, None),
    ],
)
def test_several_key_columns_are_written_in_the_style_of_their_place(
    place: str, line: str, headers: Any, body: Any
) -> None:
    setting = {"line": "PUT /t/{table_id}", "places": {"key_columns": place, "format": None, "update_mode": None}}

    found = append(setting, ["a", "b"], "upsert")

    assert found == (f"PUT /t/t{line}", headers, None if body is None else {"keys": body})


def test_key_columns_may_stand_in_the_path() -> None:
    setting = {"line": "PUT /t/{table_id}/by/{key_columns}"}

    assert append(setting, ["a", "b/c"], "upsert")[0] == "PUT /t/t/by/a%2Cb%2Fc"


def test_an_input_that_has_its_place_in_the_path_must_be_given() -> None:
    wire = Wire.from_setting({"query_json": "GET /t/{table_id}/{limit}"})

    with pytest.raises(errors.ValidationFailed, match="limit travels in the path, so it has to be given"):
        wire.page_request("t", None, None, 0, "")


def test_a_value_that_a_header_cannot_hold_is_refused() -> None:
    setting = {"places": {"key_columns": "header X-Keys"}}

    with pytest.raises(errors.ValidationFailed, match="key_columns cannot stand in the header X-Keys"):
        append(setting, ["a\r\nb"], "upsert")


@pytest.mark.parametrize("place", ["query k joined ;", "body /k joined ;"])
def test_a_value_that_holds_what_joins_is_refused(place: str) -> None:
    with pytest.raises(errors.ValidationFailed, match="'a;b' holds ';'"):
        append({"places": {"key_columns": place}}, ["a;b"], "upsert")


def test_a_filter_that_would_become_two_is_refused() -> None:
    wire = Wire.from_setting({"delete_rows": {"places": {"filters": "query f joined |"}}})

    with pytest.raises(errors.ValidationFailed, match="by which the wire map joins several"):
        wire.delete_request("t", "a:eq:x|b:ne:y")


def test_filters_that_would_be_lost_are_refused() -> None:
    wire = Wire.from_setting({"delete_rows": {"places": {"filters": None}}, "query_json": {"places": {"offset": None}}})

    with pytest.raises(errors.ValidationFailed, match=r"filters has no place on POST .*, so it would be lost"):
        wire.delete_request("t", "a:eq:x")
    with pytest.raises(errors.ValidationFailed, match="offset has no place"):
        wire.page_request("t", None, None, 5, "")


def test_a_map_without_a_limit_still_tells_a_missing_route() -> None:
    wire = Wire.from_setting({"query_json": {"places": {"limit": None}}})

    probe = wire.probe_request(wire.truncate_request("t"), errors.TableNotFound("no", status=404))

    assert probe is not None
    assert probe.target == "/tables/t/data/query"


BOTH = {
    "type": "and",
    "predicates": [{"field": "a", "operator": "eq", "value": 1}, {"field": "b", "operator": "ne", "value": "x"}],
}


@pytest.mark.parametrize(
    ("place", "query", "headers", "body"),
    [
        ("body /filters", "", {}, {"filters": ["a:eq:1", "b:ne:x"]}),
        ("body /where structured", "", {}, {"where": BOTH}),
        ("query f", "?f=a%3Aeq%3A1&f=b%3Ane%3Ax", {}, None),
        ("query f joined |", "?f=a%3Aeq%3A1%7Cb%3Ane%3Ax", {}, None),
        ("header X-F json", "", {"X-F": '["a:eq:1", "b:ne:x"]'}, None),
    ],
)
def test_filters_are_written_in_the_style_of_their_place(place: str, query: str, headers: Any, body: Any) -> None:
    wire = Wire.from_setting({"delete_rows": {"places": {"filters": place}}})

    request = wire.delete_request("t", ["a:eq:1", "b:ne:x"])

    assert sent(request) == (f"POST /tables/t/data/delete{query}", headers, body)


def test_structured_filters_in_the_query_are_json_and_may_say_or() -> None:
    wire = Wire.from_setting({"query_json": {"places": {"filters": "query where structured"}}})

    target = str(wire.page_request("t", (col("a") == 1) | (col("a") == "1"), None, 0, "").target)

    assert "%22type%22%3A+%22or%22" in target
    assert "%22value%22%3A+1%7D" in target
    assert "%22value%22%3A+%221%22%7D" in target


def test_a_structured_filter_that_is_none_is_refused() -> None:
    wire = Wire.from_setting({"delete_rows": {"places": {"filters": "body /where structured"}}})

    with pytest.raises(errors.ValidationFailed, match="operator"):
        wire.delete_request("t", {"field": "a", "operator": "like", "value": 1})


def test_values_of_simple_filters_may_stay_text() -> None:
    wire = Wire.from_setting(
        {"delete_rows": {"places": {"filters": "body /where structured"}}, "filter_values": "text"}
    )

    assert wire.delete_request("t", "a:eq:1").json == {"where": {"field": "a", "operator": "eq", "value": "1"}}


@pytest.mark.parametrize(("style", "etag"), [("", '"s1"'), (" quoted", '"s1"'), (" plain", "s1")])
def test_an_etag_is_quoted_or_plain(style: str, etag: str) -> None:
    wire = Wire.from_setting({"query_json": {"places": {"etag": f"header X-Seen{style}"}}})

    assert wire.page_request("t", None, None, 0, "s1").headers == {"X-Seen": etag}


def test_fixed_headers_go_with_every_request_and_a_routes_own_win() -> None:
    wire = Wire.from_setting({"headers": {"X-Tenant": "a", "X-B": "c"}, "info": {"headers": {"X-Tenant": "z"}}})

    assert wire.truncate_request("t").headers == {"X-Tenant": "a", "X-B": "c"}
    assert wire.info_request("t").headers == {"X-Tenant": "z", "X-B": "c"}


def test_a_header_is_replaced_whatever_the_case_of_its_name() -> None:
    wire = Wire.from_setting({"headers": {"X-A": "a"}, "append": {"strategy": "direct", "headers": {"x-a": "b"}}})
    named = Wire.from_setting({"append": {"strategy": "direct", "headers": {"content-type": "text/x"}}})

    assert wire.direct_request("append", "t", "csv", None).headers == {"x-a": "b", "Content-Type": "text/csv"}
    assert named.direct_request("append", "t", "csv", None).headers == {"content-type": "text/x"}


def test_the_route_of_a_setting_may_say_how_it_is_repeated() -> None:
    assert Wire.from_setting({"truncate": {"repeat": "always"}}).truncate_request("t").repeat == "always"


def test_a_setting_without_a_line_keeps_the_route_and_its_section() -> None:
    append_route = Wire.from_setting({"append": {"places": {"format": None}}}).append

    assert (append_route.path, append_route.source) == ("/tables/{table_id}/data", "§4.2")


def test_beside_a_payload_nothing_travels_in_the_body() -> None:
    wire = Wire.from_setting({"upsert": {"strategy": "direct"}})

    request = wire.direct_request("upsert", "t", "csv", ["a", "b"])

    line = "POST /tables/t/data/upsert?update_mode=upsert&key_columns=a&key_columns=b"
    assert sent(request) == (line, {"Content-Type": "text/csv"}, None)


def test_a_direct_strategy_may_be_set_upon_a_direct_route() -> None:
    direct = Wire.from_setting({"append": {"strategy": "direct", "places": {"format": "query f"}}}).append

    assert direct.overridden({"strategy": "direct", "line": "PUT /x/{table_id}"}).places == direct.places


def test_a_format_without_a_media_type_is_bytes() -> None:
    wire = Wire.from_setting({"append": {"strategy": "direct"}, "write_formats": ["orc"]})

    assert wire.direct_request("append", "t", "orc", None).headers == {"Content-Type": "application/octet-stream"}


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        (
            {"append": {"plases": {}}},
            "append: unknown setting 'plases'; known: line, places, headers, strategy, repeat",
        ),
        ({"info": {"strategy": "direct"}}, "info: unknown setting 'strategy'; known: line, places, headers, repeat"),
        ({"info": {"places": {"format": "query f"}}}, "info: unknown input 'format'; known: none"),
        ({"append": {"places": {"mode": "query m"}}}, "append: unknown input 'mode'; known: format, update_mode"),
        ({"append": {"places": {"format": "path f"}}}, "a place is written 'query|header|body NAME"),
        ({"append": {"places": {"format": "body fmt"}}}, "a JSON pointer such as '/fmt'"),
        ({"append": {"places": {"format": "header Authorization"}}}, "'Authorization' is no header for an input"),
        ({"append": {"places": {"format": "header a:b"}}}, "'a:b' is no header for an input"),
        ({"append": {"places": {"format": "query f joined"}}}, "format is written plain or media, not joined"),
        ({"append": {"places": {"format": 7}}}, "append: places.format"),
        ({"append": {"strategy": "guess"}}, "append: strategy"),
        ({"append": {"strategy": "direct", "places": {"format": "body /f"}}}, "format cannot travel in the body"),
        ({"append": {"headers": {"Cookie": "a"}}}, "the header 'Cookie' is refused"),
        ({"headers": {"Authorization": "Bearer x"}}, "the header 'Authorization' is refused"),
        ({"put_headers": {"x": "a\nb"}}, "the header 'x' is refused"),
        ({"append": "POST /x/{table_id}/{limit}"}, "append: the path names {table_id}"),
        ({"error_kinds": {"404": "gone"}}, "error_kinds"),
        (
            {"append": {"strategy": "put_commit", "places": {"object": None}}},
            "append: object needs",
        ),
        ({"headers": {"Content-Length": "5"}}, "the header 'Content-Length' is refused"),
        ({"overwrite": {"line": LINE_LATER, "places": {"update_mode": None}}}, "append and overwrite share a route"),
        ({"profile": "patch", "append": {"places": {"update_mode": None}}}, "append and overwrite share a route"),
        ({"upload": LINE_LATER}, "upload and append share a route, so update_mode needs a place on both"),
        ({"idempotency_header": "a: b"}, "idempotency_header"),
        ({"error_kinds": "404"}, "error_kinds"),
        ({"poll_by": "webhook"}, "poll_by"),
        ("patsch", "'patsch' is no profile; known: routes, patch"),
        ({"profile": "patsch"}, "'patsch' is no profile"),
        ({"trunkate": "x"}, "unknown 'trunkate'; known: profile, info, upload, append"),
    ],
)
def test_a_form_that_does_not_fit_is_refused_by_name(setting: Any, named: str) -> None:
    with pytest.raises(errors.ValidationFailed) as refused:
        Wire.from_setting(setting)

    assert named in str(refused.value)


def test_a_place_is_shown_as_it_is_written() -> None:
    assert str(Place.model_validate("query f joined ;")) == "query f joined ;"
    assert str(Place.model_validate("query f")) == "query f"


# ---- profiles


def test_writes_that_share_a_route_may_be_told_apart_by_a_fixed_header() -> None:
    headers = {"X-Mode": "swap"}
    wire = Wire.from_setting({"overwrite": {"line": LINE_LATER, "places": {"update_mode": None}, "headers": headers}})

    assert wire.initiate_request("overwrite", "t", "csv", None).headers == headers


@pytest.mark.parametrize("setting", ["patch", {"profile": "patch"}])
def test_the_profile_patch_takes_every_later_write_at_the_fixed_route(setting: Any) -> None:
    wire = Wire.from_setting(setting)

    assert sent(wire.initiate_request("overwrite", "t", "csv", None)) == (
        LINE,
        {},
        {"format": "csv", "update_mode": "overwrite"},
    )
    assert sent(wire.initiate_request("upsert", "t", "csv", "a")) == (
        LINE,
        {},
        {"format": "csv", "update_mode": "upsert", "key_columns": ["a"]},
    )
    assert wire.upload == Wire().upload


def test_an_override_goes_before_its_profile() -> None:
    wire = Wire.from_setting({"profile": "patch", "upsert": "PUT /u/{table_id}"})

    assert (wire.upsert.path, wire.overwrite.path) == ("/u/{table_id}", "/tables/{table_id}/data")


def test_the_profile_routes_is_the_default() -> None:
    assert Wire.from_setting("routes") == Wire()
