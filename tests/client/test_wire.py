"""The wire map: what travels for each call, what may be overridden, and how replies are read."""

import json
import pickle
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from airflow_tds.client import errors
from airflow_tds.client.messages import Reply, Request, SecretUrl
from airflow_tds.client.models import CrossQueryRequest
from airflow_tds.client.payloads import Body, body_of
from airflow_tds.client.rows import RowLayout
from airflow_tds.client.wire import Initiation, Route, Wire, retry_after

WIRE = Wire()
URL = "https://store.example/put/1?n=1&sig=0123456789abcdef"
DATE = "Thu, 01 Jan 2026 00:00:00 GMT"


def answer(document: Any, **headers: str) -> Reply:
    return Reply(200, headers, json.dumps(document).encode(), request_id="r1")


# ---- requests


@pytest.mark.parametrize(
    ("request_", "line", "body", "repeat"),
    [
        (WIRE.info_request("t"), "GET /tables/t/data/info", None, "always"),
        (WIRE.truncate_request("t"), "POST /tables/t/data/truncate", None, "if_unsent"),
        (WIRE.job_request("j"), "GET /data/jobs/j", None, "always"),
        (WIRE.poll_request("j"), "GET /data/query/j", None, "always"),
        (
            WIRE.initiate_request("upload", "t", "csv", None),
            "POST /tables/t/data/upload",
            {"format": "csv"},
            "if_unsent",
        ),
        (
            WIRE.initiate_request("append", "t", "json", None),
            "PATCH /tables/t/data",
            {"format": "json", "update_mode": "append"},
            "if_unsent",
        ),
        (
            WIRE.initiate_request("upsert", "t", "csv", "a"),
            "POST /tables/t/data/upsert",
            {"format": "csv", "update_mode": "upsert", "key_columns": ["a"]},
            "if_unsent",
        ),
        (
            WIRE.start_query_request(CrossQueryRequest(table_id="t", select=["a"])),
            "POST /data/queries",
            {"table_id": "t", "select": ["a"]},
            "always",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_call_travels_as_this_line_and_body(request_: Request, line: str, body: Any, repeat: str) -> None:
    assert (f"{request_.method} {request_.target}", request_.json, request_.repeat) == (line, body, repeat)


def test_a_payload_travels_to_the_presigned_url_with_the_headers_that_came_with_it() -> None:
    initiation = Initiation("j1", SecretUrl(URL), {"x-ms-blob-type": "BlockBlob"})
    body = body_of(b"abc")

    request = WIRE.put_request(initiation, body, limit=5.0)

    assert (request.method, request.target, request.repeat) == ("PUT", initiation.upload_url, "always")
    assert (request.headers, request.body, request.limit) == ({"x-ms-blob-type": "BlockBlob"}, body, 5.0)


@pytest.mark.parametrize(
    ("operation", "data_format", "keys", "why"),
    [
        ("upload", "xml", None, "none of json, csv, ndjson, parquet"),
        ("upsert", "csv", None, "needs key_columns"),
        ("upsert", "csv", [], "needs key_columns"),
        ("append", "csv", ["a"], "takes no key_columns"),
        ("upload", "csv", "a", "takes no key_columns"),
    ],
)
def test_a_write_that_breaks_a_rule_is_refused_before_it_is_sent(
    operation: Any, data_format: str, keys: Any, why: str
) -> None:
    with pytest.raises(errors.ValidationFailed, match=why):
        WIRE.initiate_request(operation, "t", data_format, keys)


@given(st.text())
@example(".")
@example("..")
@example("a/../b?c#d")
@example("%2e%2e")
@example("\ud800")
@example("\x85")
def test_an_id_is_one_segment_of_the_path_or_refused(table_id: str) -> None:
    try:
        target = str(WIRE.info_request(table_id).target)
    except errors.ValidationFailed:
        return
    _, tables, segment, data, info = target.split("/")
    assert (tables, data, info) == ("tables", "data", "info")
    assert target.isascii()
    assert not set(target) & set("?#\\ ")
    assert segment not in ("", ".", "..")
    assert unquote(segment) == table_id


@pytest.mark.parametrize("table_id", ["", ".", "..", "a\nb", "a\x00", "a\x7f", "\ud800", "x" * 513, "ü" * 257])
def test_an_id_that_would_change_the_route_is_refused(table_id: str) -> None:
    with pytest.raises(errors.ValidationFailed, match="table id"):
        WIRE.info_request(table_id)


# ---- overrides


def test_a_route_is_overridden_by_a_line() -> None:
    wire = Wire.from_setting({"truncate": "DELETE /v2/{table_id}/rows"})

    request = wire.truncate_request("a b")

    assert f"{request.method} {request.target}" == "DELETE /v2/a%20b/rows"
    assert (wire.truncate.source, wire.truncate.repeat) == ("set", "if_unsent")


def test_a_map_may_be_made_with_routes_as_values() -> None:
    route = Route(method="GET", path="/x/{table_id}", source="set", repeat="always")

    assert Wire(info=route).info_request("t").target == "/x/t"


def test_a_map_that_is_a_map_already_is_taken_as_it_is() -> None:
    assert Wire.model_validate(WIRE) == WIRE


def test_what_is_no_mapping_is_no_map() -> None:
    with pytest.raises(ValidationError):
        Wire.model_validate(["truncate"])


@pytest.mark.parametrize("setting", [None, {}])
def test_no_setting_is_the_default_map(setting: Any) -> None:
    assert Wire.from_setting(setting) == WIRE


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ({"trunkate": "POST /x/{table_id}"}, "trunkate"),
        ({"truncate": "/x/{table_id}"}, "truncate: a route is written 'METHOD /path'"),
        ({"truncate": "post /x/{table_id}"}, "truncate: a route"),
        ({"truncate": "POST x/{table_id}"}, "truncate: a route"),
        ({"truncate": "POST /x y/{table_id}"}, "truncate: a route"),
        ({"truncate": "POST /x#{table_id}"}, "truncate: a route"),
        ({"truncate": "POST /x/{table_id"}, "truncate: a route"),
        ({"truncate": "POST /x/{table_id.__class__}"}, "truncate: a route"),
        ({"truncate": "POST /x"}, "truncate: the path names {table_id}"),
        ({"truncate": "POST /x/{id}"}, "truncate: the path names {table_id}"),
        ({"start_query": "POST /x/{id}"}, "start_query: the path names no id"),
        ({"truncate": 7}, "truncate"),
        ({"truncate": {"method": "POST", "path": "/x", "source": "§4.2", "repeat": "always"}}, "truncate"),
        ({"no_data_statuses": "AWAITING"}, "no_data_statuses"),
        ({"upload_url_lifetime": 0}, "upload_url_lifetime"),
        ({"upload_url_lifetime": "inf"}, "upload_url_lifetime"),
    ],
)
def test_a_setting_that_does_not_fit_is_refused_by_name(setting: Any, named: str) -> None:
    with pytest.raises(errors.ValidationFailed) as refused:
        Wire.from_setting(setting)

    assert named in str(refused.value)


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ({"no_data_statuses": "AWAITING"}, "wire map: no_data_statuses: Input should be a valid list"),
        ({"total_count": None}, "wire map: total_count: Input should be a valid list"),
        ({"page_layout": "lines"}, "wire map: with the page_layout lines, has_next_header is needed, and"),
    ],
)
def test_a_refusal_speaks_of_the_setting_and_not_of_python(setting: Any, text: str) -> None:
    with pytest.raises(errors.ValidationFailed) as refused:
        Wire.from_setting(setting)

    assert str(refused.value).startswith(text)


# ---- replies


@pytest.mark.parametrize(
    ("document", "job_id"),
    [
        ({"job_id": "j1"}, "j1"),
        ({"jobId": "j1"}, "j1"),
        ({"id": "j1"}, "j1"),
        ("j1", "j1"),
        ({"job_id": 7}, "7"),
        ({"job_id": "j1", "id": "j1"}, "j1"),
        ({"job_id": None, "id": "j1"}, "j1"),
    ],
)
def test_a_job_id_is_found_in_the_shapes_that_services_use(document: Any, job_id: str) -> None:
    assert WIRE.read_job_id(answer(document)) == job_id


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"job_id": "j1", "id": "j2"}, "different values"),
        ({}, "no job_id"),
        ("", "no job_id"),
        ({"job_id": ""}, "no job_id"),
        ({"job_id": True}, "no job_id"),
        ({"job_id": ["j1"]}, "no job_id"),
        (["j1"], "no job_id"),
        (None, "no job_id"),
    ],
)
def test_a_job_id_that_cannot_be_told_is_an_error(document: Any, why: str) -> None:
    with pytest.raises(errors.UnexpectedReply, match=why):
        WIRE.read_job_id(answer(document))


def test_a_reply_without_what_it_must_hold_names_the_setting_that_says_where_it_stands() -> None:
    with pytest.raises(errors.UnexpectedReply, match="the connection's wire setting 'job_id' says where it stands"):
        WIRE.read_job_id(answer({"job": {"number": 1}}))


@pytest.mark.parametrize(
    ("pointer", "document"),
    [("/a/b", {"a": {"b": "j1"}}), ("/a/1", {"a": ["x", "j1"]}), ("/a~1b~0", {"a/b~": "j1"})],
)
def test_a_setting_names_another_place(pointer: str, document: Any) -> None:
    assert Wire(job_id=(pointer,)).read_job_id(answer(document)) == "j1"


@pytest.mark.parametrize("document", [{"a": ["j1"]}, {"a": "j1"}, ["j1"]])
def test_a_place_that_a_reply_does_not_have_holds_nothing(document: Any) -> None:
    with pytest.raises(errors.UnexpectedReply):
        Wire(job_id=("/a/1",)).read_job_id(answer(document))


@pytest.mark.parametrize("content", [b"", b"<html>", b"{", b'{"job_id": NaN}', b"[" * 100_000, b'"\xff"'])
def test_a_body_that_is_no_json_is_an_error_that_does_not_show_it(content: bytes) -> None:
    with pytest.raises(errors.UnexpectedReply, match=f"{len(content)} bytes that are no JSON"):
        WIRE.read_job_id(Reply(200, content=content))


@pytest.mark.parametrize(
    ("error", "text"),
    [
        ("why", "why"),
        (None, None),
        ({"message": "why", "code": 7}, "why"),
        ({"code": 7}, "{'code': 7}"),
        (["why"], "['why']"),
        (7, "7"),
    ],
)
def test_the_error_of_a_job_may_have_any_shape(error: Any, text: str | None) -> None:
    assert WIRE.read_job(answer({"status": "FAILED", "error": error})).error == text


def test_the_words_of_a_job_are_made_fit_for_a_log() -> None:
    job = WIRE.read_job(answer({"status": "x" * 1000, "error": "a\n::b\x1b[2J\x9b" + "y" * 10_000}))

    assert len(job.status) == 64
    assert (job.error or "").startswith("a ::b [2J yy")
    assert len(job.error or "") == 2048


@pytest.mark.parametrize("document", [{}, [], "x", {"status": None}, {"status": ["x"]}])
def test_what_is_no_job_is_an_error_that_names_the_operation(document: Any) -> None:
    with pytest.raises(errors.UnexpectedReply, match="get_job: "):
        WIRE.read_job(answer(document))


def test_statistics_are_read() -> None:
    assert WIRE.read_info(answer({"row_count": "7"})).row_count == 7


def test_statistics_are_an_object() -> None:
    with pytest.raises(errors.UnexpectedReply, match="info: "):
        WIRE.read_info(answer([7]))


def test_statistics_that_cannot_be_read_are_an_error_that_names_the_field() -> None:
    with pytest.raises(errors.UnexpectedReply, match="info: row_count"):
        WIRE.read_info(answer({"row_count": "many"}))


def initiated(document: dict[str, Any] | None = None, url: str = URL, **headers: str) -> Initiation:
    return WIRE.read_initiation(answer({"job_id": "j1", "upload_url": url} | (document or {}), **headers))


@pytest.mark.parametrize("name", ["upload_url", "presigned_url", "url"])
def test_the_upload_url_is_found_in_the_shapes_that_services_use(name: str) -> None:
    assert WIRE.read_initiation(answer({"job_id": "j1", name: URL})).upload_url.reveal() == URL


def test_an_initiation_does_not_show_its_secrets() -> None:
    shown = repr(initiated({"upload_headers": {"x-sig": "s3cret"}}))

    assert "store.example" in shown
    assert "sig" not in shown


def test_the_headers_of_a_put_are_taken_but_for_its_framing() -> None:
    headers = {
        "x-ms-blob-type": "BlockBlob",
        "x-n": 7,
        "Content-Length": "3",
        "transfer-encoding": "chunked",
        "Host": "h",
    }

    assert initiated({"upload_headers": headers}).upload_headers == {"x-ms-blob-type": "BlockBlob", "x-n": "7"}


@pytest.mark.parametrize(
    "headers", ["x", ["x"], {"x": ["y"]}, {"x": {}}, {"x": "a\nb"}, {"x": "é"}, {"x\n": "y"}, {"x y": "z"}, {"": "y"}]
)
def test_headers_of_a_put_in_another_shape_are_an_error(headers: Any) -> None:
    with pytest.raises(errors.UnexpectedReply, match="upload_headers"):
        initiated({"upload_headers": headers})


@pytest.mark.parametrize(
    ("told", "url", "lifetime"),
    [
        ({"expires_at": "2026-01-01T00:10:00Z"}, URL, 600.0),
        ({"expires_at": "2026-01-01T00:10:00"}, URL, 600.0),
        ({"expires_at": 1767226200}, URL, 600.0),
        ({"expires_at": "1767226200"}, URL, 600.0),
        ({"expires_at": "2025-12-31T00:00:00Z"}, URL, 0.0),
        ({}, URL, 3600.0),
        ({}, "https://s/x?X-Amz-Date=20260101T000000Z&X-Amz-Expires=900", 900.0),
        ({}, "https://s/x?X-Amz-Date=20251231T235900Z&X-Amz-Expires=900", 840.0),
        ({}, "https://s/x?X-Goog-Date=20260101T000000Z&X-Goog-Expires=60", 60.0),
        ({}, "https://s/x?se=2026-01-01T00%3A05%3A00Z&sig=x", 300.0),
        ({}, "https://s/x?Expires=1767226200&Signature=x", 600.0),
        ({}, "https://s/x?X-Amz-Date=yesterday&X-Amz-Expires=900", 3600.0),
        ({}, "https://s/x?X-Amz-Date=20260101T000000Z", 3600.0),
        ({}, "https://s/x?X-Amz-Date=20260101T000000Z&X-Amz-Expires=soon", 3600.0),
        ({}, "https://s/x?expires=never", 3600.0),
        ({}, "https://[s/x", 3600.0),
    ],
)
def test_the_lifetime_of_an_upload_url_is_measured_by_the_servers_clock(
    told: dict[str, Any], url: str, lifetime: float
) -> None:
    assert initiated(told, url, date=DATE).lifetime == lifetime


@pytest.mark.parametrize(
    ("told", "url"),
    [
        ({"expires_at": 1767226200}, URL),
        ({}, "https://s/x?X-Amz-Date=20260101T000000Z&X-Amz-Expires=900"),
        ({}, URL),
    ],
)
def test_a_lifetime_by_our_own_clock_is_never_shorter_than_the_assumed_one(told: dict[str, Any], url: str) -> None:
    assert initiated(told, url).lifetime >= 3600.0


def test_an_expiry_that_is_no_time_is_an_error() -> None:
    with pytest.raises(errors.UnexpectedReply, match="expires_at is no time"):
        initiated({"expires_at": "soon"})


@pytest.mark.parametrize(
    ("reply", "status", "url"),
    [
        (Reply(307, {"location": URL}), "COMPLETED", URL),
        (Reply(307, {"location": ""}), "FAILED", None),
        (Reply(307), "FAILED", None),
        (Reply(202), "PENDING", None),
        (Reply(202, content=b"wait"), "PENDING", None),
        (Reply(202, content=b'{"status": "RUNNING"}'), "RUNNING", None),
        (Reply(202, content=b'{"status": "FAILED"}'), "FAILED", None),
        (Reply(200), "PENDING", None),
        (Reply(200, content=b'{"status": "QUEUED"}'), "QUEUED", None),
        (Reply(200, content=b'{"status": "FAILED"}'), "FAILED", None),
        (Reply(200, content=b'{"status": "Completed"}'), "PENDING", None),
    ],
)
def test_the_poll_path_is_pending_ready_or_failed(reply: Reply, status: str, url: str | None) -> None:
    poll = WIRE.read_poll(reply)

    assert poll.job.status == status
    assert (poll.result and poll.result.reveal()) == url


def test_a_poll_that_says_ok_and_nothing_readable_is_an_error() -> None:
    with pytest.raises(errors.UnexpectedReply, match="poll_query"):
        WIRE.read_poll(Reply(200, content=b"a,b"))


@pytest.mark.parametrize(
    ("setting", "document"),
    [
        ({"row_count": "/stats/rows"}, {"stats": {"rows": "7"}}),
        ({"row_count": ["/n", "/rows"]}, {"rows": 7, "row_count": 9}),
    ],
)
def test_statistics_may_stand_elsewhere(setting: Any, document: Any) -> None:
    assert Wire.from_setting(setting).read_info(answer(document)).row_count == 7


def test_what_else_a_reply_holds_is_kept() -> None:
    info = Wire.from_setting({"row_count": "/stats/rows"}).read_info(answer({"stats": {"rows": 7}, "x": 1}))

    assert info.model_extra == {"stats": {"rows": 7}, "x": 1}


def test_a_name_that_was_moved_is_not_read_at_its_old_place() -> None:
    assert Wire.from_setting({"row_count": "/rows"}).read_info(answer({"row_count": 7})).row_count is None


@pytest.mark.parametrize("moment", [1767226200, "1767226200", 1767226200000, "2026-01-01T00:10:00Z"])
def test_the_time_of_the_last_update_is_iso_or_epoch(moment: Any) -> None:
    found = WIRE.read_info(answer({"last_updated": moment})).last_updated

    assert found is not None
    assert found.isoformat() == "2026-01-01T00:10:00+00:00"


@pytest.mark.parametrize("files", [["a", "b"], 2, "2"])
def test_data_files_are_a_list_or_their_number(files: Any) -> None:
    assert WIRE.read_info(answer({"data_files": files})).data_files in (["a", "b"], 2)


def test_the_record_of_a_job_may_have_other_names_and_words() -> None:
    wire = Wire.from_setting(
        {"job_status": "/job/state", "job_error": "/job/fault", "completed": ["DONE", "OK"], "failed": "BROKEN"}
    )

    assert wire.read_job(answer({"job": {"state": "done"}})).status == "COMPLETED"
    assert wire.read_job(answer({"job": {"state": "COMPLETED"}})).status == "COMPLETED"
    broken = wire.read_job(answer({"job": {"state": "Broken", "fault": {"message": "why"}}}))
    assert (broken.status, broken.error) == ("FAILED", "why")


def test_a_page_may_have_other_names_and_rows_as_lists() -> None:
    wire = Wire.from_setting(
        {
            "items": "/data/rows",
            "columns": "/data/columns",
            "total_count": "/total",
            "has_next": "/more",
            "etag": [],
            "etag_header": "X-Snapshot",
        }
    )
    document = {"data": {"rows": [[1, "x"]], "columns": ["a", "b"]}, "total": "5", "more": "true", "etag": "old"}

    page = wire.read_page(answer(document, **{"x-snapshot": "s1"}))

    assert page is not None
    assert (page.items, page.etag) == ([{"a": 1, "b": "x"}], "s1")
    assert (page.metadata.total_count, page.metadata.has_next) == (5, True)


@pytest.mark.parametrize("document", [{"items": [[1]], "c": ["a", "b"]}, {"items": [1], "c": ["a"]}, {"items": [[1]]}])
def test_rows_that_do_not_fit_their_columns_are_an_error(document: dict[str, Any]) -> None:
    document["metadata"] = {"has_next": False}

    with pytest.raises(errors.UnexpectedReply, match="columns and rows do not fit"):
        Wire.from_setting({"columns": "/c"}).read_page(answer(document))


def test_a_put_may_have_fixed_headers() -> None:
    wire = Wire.from_setting({"put_headers": {"x-ms-blob-type": "BlockBlob", "x-a": "b"}})

    request = wire.put_request(Initiation("j1", SecretUrl(URL), {"x-a": "c"}), body_of(b""), limit=1.0)

    assert request.headers == {"x-ms-blob-type": "BlockBlob", "x-a": "c"}


@pytest.mark.parametrize(("given", "sent"), [("csv", "CSV"), ("parquet", "parquet")])
def test_the_format_of_a_file_query_has_its_token(given: Any, sent: str) -> None:
    wire = Wire.from_setting({"format_tokens": {"csv": "CSV"}})

    assert wire.start_query_request(CrossQueryRequest(table_id="t", format=given)).json["format"] == sent


class _Unusual(Wire):
    """A form that settings cannot say: a job's number inside a text."""

    def read_job_id(self, reply: Reply, operation: str = "") -> str:
        return reply.headers["x-started"].partition("#")[2]


def test_a_subclass_may_replace_one_reader() -> None:
    wire = _Unusual.from_setting({"info": "GET /i/{table_id}"})

    assert wire.read_job_id(Reply(200, {"x-started": "job#7"})) == "7"
    assert wire.info_request("t").target == "/i/t"


# ---- errors


KINDS = Wire.from_setting(
    {
        "error_kinds": {
            "410": "not_found",
            "400": "refused",
            "400 NO_TABLE": "table_not_found",
            "400 NO_JOB": "job_not_found",
            "200 BUSY": "unavailable",
            "418": "validation",
        },
        "error_code": "/fault/code",
        "error_detail": ["/fault/text", "/detail"],
    }
)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (410, None, errors.TableNotFound),
        (400, "NO_TABLE", errors.TableNotFound),
        (400, "NO_JOB", errors.JobNotFound),
        (400, "OTHER", errors.Refused),
        (200, "BUSY", errors.ServerError),
        (409, "NO_JOB", errors.Conflict),
        (411, None, errors.LengthRequired),
        (418, None, errors.ValidationFailed),
        (503, None, errors.ServerError),
    ],
)
def test_a_kind_of_error_is_a_status_or_a_status_with_a_code(status: int, code: str | None, kind: type) -> None:
    content = json.dumps({"fault": {"code": code, "text": "why"}}).encode()

    error = KINDS.error(KINDS.info_request("t"), Reply(status, content=content))

    assert type(error) is kind
    assert f"HTTP {status}: why" in str(error)


@pytest.mark.parametrize("content", [b"", b"<html>", b"{}", b'{"fault": {"code": "FINE"}}'])
def test_a_success_without_a_known_code_is_no_error(content: bytes) -> None:
    assert KINDS.error(KINDS.info_request("t"), Reply(200, content=content)) is None


def test_statuses_of_invalid_parameters_are_told() -> None:
    assert Wire().validation == (400, 422)
    assert KINDS.validation == (422, 418)


def error_of(request: Request, reply: Reply) -> errors.TableServiceError:
    return WIRE.error(request, reply) or pytest.fail("no error")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, errors.ValidationFailed),
        (401, errors.Unauthorized),
        (403, errors.Forbidden),
        (404, errors.TableNotFound),
        (405, errors.WireMismatch),
        (408, errors.ServerError),
        (409, errors.Conflict),
        (413, errors.Refused),
        (422, errors.ValidationFailed),
        (429, errors.ServerError),
        (500, errors.ServerError),
        (501, errors.ServerError),
        (503, errors.ServerError),
        (301, errors.Refused),
        (307, errors.Refused),
        (304, errors.Refused),
    ],
)
def test_a_status_is_its_error(status: int, kind: type[errors.Refused]) -> None:
    error = error_of(WIRE.info_request("t"), Reply(status, content=b"why", request_id="r1"))

    assert type(error) is kind
    assert isinstance(error, errors.Refused)
    assert (error.status, error.body, error.request_id) == (status, "why", "r1")
    assert str(error).startswith(f"info, table t: HTTP {status}: why")


@pytest.mark.parametrize("status", [200, 201, 202, 204])
def test_a_success_is_no_error(status: int) -> None:
    assert WIRE.error(WIRE.info_request("t"), Reply(status)) is None


@pytest.mark.parametrize("status", [307, 202, 425])
def test_what_the_poll_path_says_with_a_status_is_no_error(status: int) -> None:
    assert Wire(pending=(202, 425)).error(WIRE.poll_request("j"), Reply(status)) is None


def test_an_unknown_job_is_told_from_an_unknown_table() -> None:
    assert type(error_of(WIRE.job_request("j"), Reply(404))) is errors.JobNotFound


@pytest.mark.parametrize(
    ("request_", "status", "hint"),
    [
        (WIRE.info_request("t"), 404, True),
        (WIRE.info_request("t"), 405, True),
        (WIRE.info_request("t"), 403, False),
        (WIRE.initiate_request("append", "t", "csv", None), 404, False),
        (WIRE.start_query_request(CrossQueryRequest(table_id="t")), 404, False),
    ],
)
def test_a_missing_route_that_is_only_assumed_is_named_as_a_cause(request_: Request, status: int, hint: bool) -> None:
    assert ("wire setting" in str(error_of(request_, Reply(status)))) is hint


def test_a_route_that_was_set_is_not_called_assumed() -> None:
    wire = Wire.from_setting({"info": "GET /i/{table_id}"})

    assert "assumed" not in str(wire.error(wire.info_request("t"), Reply(404)))


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (b'{"detail": "why"}', "why"),
        (b'{"detail": [1]}', '{"detail": [1]}'),
        (b'{"other": 1}', '{"other": 1}'),
        (b"[1]", "[1]"),
        (b"x" * 5000, "x" * 200),
        (b"", ""),
        (b"a\r\n::error::\x1b[31m", "a  ::error:: [31m"),
        (b'{"detail": "a\\n::error::\\u001b[31m"}', "a ::error:: [31m"),
        ("a\u2028b\x9bc".encode(), "a b c"),
        (b"\xff\xfe", "��"),
    ],
)
def test_an_error_shows_a_short_text_without_controls(content: bytes, shown: str) -> None:
    error = error_of(WIRE.truncate_request("t"), Reply(409, content=content))

    assert str(error) == f"truncate, table t: HTTP 409{': ' if shown else ''}{shown}"


def test_an_error_keeps_no_more_than_two_kibibytes() -> None:
    error = error_of(WIRE.truncate_request("t"), Reply(409, content=b"x" * 5000))

    assert isinstance(error, errors.Refused)
    assert error.body == "x" * 2048


def put(length: int | None = 3) -> Request:
    return WIRE.put_request(Initiation("j1", SecretUrl(URL)), Body(body_of(b"abc").open, length, True), limit=9.0)


@pytest.mark.parametrize(
    ("length", "status", "kind"),
    [
        (None, 411, errors.LengthRequired),
        (3, 411, errors.LengthRequired),
        (None, 501, errors.LengthRequired),
        (3, 501, errors.ServerError),
        (3, 503, errors.ServerError),
        (3, 403, errors.StorageRefused),
        (3, 404, errors.StorageRefused),
        (3, 307, errors.StorageRefused),
    ],
)
def test_the_store_has_errors_of_its_own(length: int | None, status: int, kind: type[errors.Refused]) -> None:
    error = error_of(put(length), Reply(status))

    assert type(error) is kind
    assert str(error) == f"put, job j1: HTTP {status}"


def test_what_the_store_quotes_of_the_url_is_not_shown() -> None:
    error = error_of(put(), Reply(403, content=b"<StringToSign>PUT sig=0123456789abcdef</StringToSign>"))

    assert "0123456789abcdef" not in str(error) + repr(error.__dict__)
    assert "StringToSign" in str(error)


@pytest.mark.parametrize(
    ("value", "date", "seconds"),
    [
        ("7", None, 7.0),
        (" 7 ", None, 7.0),
        ("0", None, 0.0),
        ("Thu, 01 Jan 2026 00:01:00 GMT", DATE, 60.0),
        ("Thu, 01 Jan 2026 00:01:00 -0000", DATE, 60.0),
        ("Wed, 31 Dec 2025 00:00:00 GMT", DATE, 0.0),
        ("Wed, 31 Dec 2025 00:00:00 GMT", None, 0.0),
        ("", DATE, None),
        ("-5", DATE, None),
        ("nan", DATE, None),
        ("1e9", DATE, None),
        ("9" * 30, DATE, None),
        ("Thu, 01 Jan 2026 00:01:00 +99999999999999999999", DATE, None),
    ],
)
def test_retry_after_is_seconds_or_a_date_by_the_servers_clock(
    value: str, date: str | None, seconds: float | None
) -> None:
    headers = {"retry-after": value} | ({"date": date} if date else {})

    assert retry_after(Reply(429, headers)) == seconds


@given(st.text(), st.text())
def test_no_header_breaks_the_reading_of_retry_after(value: str, date: str) -> None:
    found = retry_after(Reply(429, {"retry-after": value, "date": date}))

    assert found is None or found >= 0


def test_a_server_error_carries_how_long_to_wait() -> None:
    error = error_of(WIRE.info_request("t"), Reply(503, {"retry-after": "7"}))

    assert isinstance(error, errors.ServerError)
    assert (error.retry_after, error.outcome) == (7.0, "refused")


def test_a_secret_url_shows_its_host_only() -> None:
    assert repr(SecretUrl(URL)) == "https://store.example/…?<redacted>"
    assert repr(SecretUrl("https://[x")) == "<no address>"
    assert repr(SecretUrl("file:///etc/passwd")) == "file:///…?<redacted>"


def test_a_secret_url_cannot_be_stored() -> None:
    with pytest.raises(TypeError, match="must not be stored"):
        pickle.dumps(SecretUrl(URL))


# ---- pages as lines


LINES = Wire.from_setting({"page_layout": "lines", "total_count_header": "X-Total", "has_next_header": "X-More"})


def lines(content: bytes, **headers: str) -> Reply:
    return Reply(200, headers, content)


def test_a_page_may_be_lines_and_its_headers_tell_the_rest() -> None:
    reply = lines(b'{"a": 1}\n\n{"a": "x\\ny"}\n', **{"x-total": "7", "x-more": "true", "etag": '"v1"'})

    page = LINES.read_page(reply)

    assert page is not None
    assert (page.items, page.etag) == ([{"a": 1}, {"a": "x\ny"}], "v1")
    assert (page.metadata.total_count, page.metadata.has_next) == (7, True)


def test_a_page_of_no_lines_has_no_rows() -> None:
    page = LINES.read_page(lines(b"", **{"x-more": "false"}))

    assert page is not None
    assert (page.items, page.metadata.total_count, page.metadata.has_next) == ([], None, False)


@pytest.mark.parametrize(
    ("reply", "kind", "text"),
    [
        (lines(b'{"a": 1}\n{"a"', **{"x-more": "true"}), errors.UnreadableReply, "no JSON"),
        (lines(b'{"a": 1}\n'), errors.UnexpectedReply, "has_next"),
    ],
)
def test_lines_that_are_cut_or_do_not_tell_whether_more_follow_are_an_error(
    reply: Reply, kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        LINES.read_page(reply)


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ({"page_layout": "lines"}, "has_next_header is needed"),
        ({"page_layout": "lines", "has_next_header": "X-More", "columns": "/c"}, "columns have no place"),
        ({"row_layout": "columns"}, "such as /rows and /columns"),
        ({"row_layout": "columns", "rows_at": "/a/b", "columns_at": "/a"}, "such as /rows and /columns"),
        ({"rows_at": "rows"}, "rows_at"),
        ({"has_next_header": "X: y"}, "has_next_header"),
    ],
)
def test_layouts_that_cannot_be_are_refused(setting: dict[str, Any], text: str) -> None:
    with pytest.raises(errors.ValidationFailed, match=text):
        Wire.from_setting(setting)


@pytest.mark.parametrize(
    ("setting", "data_format", "expected"),
    [
        ({}, "json", RowLayout("records", (), ("columns",))),
        ({"rows_at": "/a/r~1s"}, "json", RowLayout("records", ("a", "r/s"), ("columns",))),
        ({"row_layout": "lines"}, "json", RowLayout("lines")),
        ({}, "ndjson", RowLayout("lines")),
        ({}, "csv", RowLayout("csv")),
        ({}, "parquet", None),
    ],
)
def test_how_rows_are_laid_out(setting: dict[str, Any], data_format: str, expected: RowLayout | None) -> None:
    assert Wire.from_setting(setting).row_layout_of(data_format) == expected
