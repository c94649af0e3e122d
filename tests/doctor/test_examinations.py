"""An examination finds what a service does, proves it by its rows, and never shows a secret."""

from __future__ import annotations

import json
import ssl
import sys
import time
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority
from other_service import KEY, KEY_HEADER, Sheet, other_service
from stand_in import Answer, stand_in

from airflow_tds.client.wire import Wire
from airflow_tds.doctor.command import main
from airflow_tds.doctor.reports import Report
from airflow_tds.local import Service
from airflow_tds.trial import NO_TABLE

TOKEN = "sec/ret+token="
OTHER_WIRE = json.loads((Path(__file__).parents[1] / "support" / "other_wire.json").read_text())
LATER_WRITES = "PATCH /tables/{table_id}/data"


class Examined:
    """What the command said of a service."""

    def __init__(self, code: int, text: str) -> None:
        self.code = code
        document = json.loads(text)
        self.extra, self.proposed = document["extra"], document["proposed"]
        self.findings = [(one["check"], one["verdict"], one["text"]) for one in document["findings"]]

    def of(self, check: str) -> list[tuple[str, str]]:
        return [(verdict, text) for name, verdict, text in self.findings if name == check]

    @property
    def failed(self) -> dict[str, str]:
        return {name: text for name, verdict, text in self.findings if verdict == "failed"}


@pytest.fixture
def examine(capsys: pytest.CaptureFixture[str]) -> Any:
    def examined(url: str, *options: str, token: str = TOKEN, **extra: Any) -> Examined:
        arguments = [
            "doctor",
            "--url",
            url,
            "--token",
            token,
            "--json",
            "--timeout",
            "30",
            "--extra",
            json.dumps(extra),
        ]
        code = main([*arguments, *options])
        text = capsys.readouterr().out
        assert token not in text
        return Examined(code, text)

    return examined


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(tables=["read"], token=TOKEN) as service:
        yield service


@pytest.fixture
def scratch(service: Service, request: pytest.FixtureRequest) -> str:
    service.create_table(request.node.name)
    return str(request.node.name)


def test_every_assumed_form_of_the_service_is_proven(service: Service, scratch: str, examine: Any) -> None:
    found = examine(service.url, "--scratch-table", scratch)

    assert (found.code, found.failed) == (0, {})
    assert found.of("upload") == [("ok", "0 -> 3 rows")]
    assert found.of("append") == [("ok", f"{LATER_WRITES}: 3 -> 6 rows")]
    assert found.of("upsert") == [("ok", "POST /tables/{table_id}/data/upsert: 6 -> 7 rows")]
    assert found.of("overwrite") == [("ok", "POST /tables/{table_id}/data/overwrite: 7 -> 4 rows")]
    assert found.of("delete_rows") == [("ok", "POST /tables/{table_id}/data/delete: 4 -> 3 rows")]
    assert found.of("filters")[0][0] == found.of("presigned PUT")[0][0] == "ok"
    assert "20007 -> 0 rows" in found.of("truncate")[0][1]


def test_what_a_job_without_data_says_is_learned(scratch: str, service: Service, examine: Any) -> None:
    found = examine(service.url, "--scratch-table", scratch)

    assert found.extra == {"wire": {"no_data_statuses": ["AWAITING"]}}
    assert not examine(service.url, "--scratch-table", scratch, wire=found.extra["wire"]).extra


def test_another_word_for_no_data_than_the_connections_is_a_fault(service: Service, scratch: str, examine: Any) -> None:
    found = examine(service.url, "--scratch-table", scratch, wire={"no_data_statuses": ["QUEUED"]})

    assert found.failed == {"no data": "the connection's no_data_statuses QUEUED is another"}


def test_the_profile_of_a_service_without_routes_of_their_own_is_found(examine: Any) -> None:
    with Service(tables=["t"], token=TOKEN, wire=Wire.from_setting("patch")) as service:
        found = examine(service.url, "--scratch-table", "t")

    assert (found.code, found.failed) == (0, {})
    assert found.extra == {"wire": {"profile": "patch", "no_data_statuses": ["AWAITING"]}}
    assert found.of("upsert")[1] == ("ok", f"{LATER_WRITES}: 6 -> 7 rows")


def test_a_service_that_ignores_the_mode_is_found_out_by_its_rows(examine: Any) -> None:
    ignores = {"profile": "patch", "mode_tokens": {"overwrite": "append", "upsert": "append"}}
    with Service(tables=["t"], token=TOKEN, wire=Wire.from_setting("patch")) as service:
        found = examine(service.url, "--scratch-table", "t", wire=ignores)

    assert found.code == 1
    assert "it appended: update_mode is ignored" in found.failed["overwrite"]


MOVED = {
    "info": "GET /tables/{table_id}/stats",
    "get_job": "GET /jobs/{job_id}",
    "upsert": "PUT /tables/{table_id}/data/merge",
    "delete_rows": "POST /tables/{table_id}/rows/remove",
    "truncate": "DELETE /tables/{table_id}/all/clear",
}


def test_routes_that_a_document_names_are_proposed_and_proven(examine: Any) -> None:
    with Service(tables=["t"], token=TOKEN, base_path="/api/v2", wire=Wire.from_setting(MOVED)) as service:
        looked_at = examine(service.url)
        found = examine(service.url, "--scratch-table", "t")

    assert looked_at.proposed == MOVED
    assert looked_at.extra == {}
    assert (found.code, found.failed, found.proposed) == (0, {}, {})
    assert found.extra == {"wire": MOVED | {"no_data_statuses": ["AWAITING"]}}


def test_a_route_that_nobody_names_is_a_fault_with_its_setting(examine: Any) -> None:
    with Service(tables=["t"], token=TOKEN, wire=Wire.from_setting({"upsert": "PUT /x/{table_id}"})) as service:
        found = examine(service.url, "--scratch-table", "t")

    assert found.code == 1
    assert "The connection's wire setting 'upsert' overrides it" in found.failed["upsert"]
    assert list(found.failed) == ["upsert"]


def test_what_cannot_be_tried_fails_under_the_name_that_it_has_when_it_works(examine: Any) -> None:
    with Service(tables=["t"], token=TOKEN, wire=Wire.from_setting({"job_id": "/job/number"})) as service:
        found = examine(service.url, "--scratch-table", "t")

    tried = {"get_job", "upload", "append", "second upload", "upsert", "overwrite", "chunked PUT", "no data"}
    assert tried | {"failed job"} == set(found.failed)
    assert found.of("filters") == found.of("delete_rows") == [("skipped", "no row could be written to look for")]
    assert "wire setting 'job_id' says where it stands" in found.failed["append"]


def test_a_service_that_does_everything_otherwise_is_proven_by_its_settings(examine: Any) -> None:
    with other_service(t=Sheet()) as other:
        found = examine(other.url, "--scratch-table", "t", token=KEY, api_key_header=KEY_HEADER, wire=OTHER_WIRE)

    assert (found.code, found.failed) == (0, {})
    assert found.of("append") == [("ok", "POST /sheets/{table_id}/ops: 3 -> 6 rows")]
    assert found.of("chunked PUT")[0][0] == found.of("openapi")[0][0] == "skipped"


def test_a_store_that_wants_the_length_is_noted(examine: Any) -> None:
    with Service(tables=["t"], token=TOKEN, chunked=False) as service:
        found = examine(service.url, "--scratch-table", "t")

    assert (found.code, found.of("chunked PUT")[0][0]) == (0, "note")
    assert "refused (HTTP 411)" in found.of("chunked PUT")[0][1]
    assert found.of("presigned PUT") == [("ok", "3 -> 4 rows")]


def test_a_table_with_rows_is_left_alone_unless_told(service: Service, scratch: str, examine: Any) -> None:
    from airflow_tds.client.client import TableClient

    with TableClient(service.url, token=TOKEN) as client:
        client.upload(scratch, "id,name\n1,a\n")
        found = examine(service.url, "--scratch-table", scratch)
        assert "has 1 rows, which would all be removed" in found.failed["scratch table"]
        assert client.info(scratch).row_count == 1

        found = examine(service.url, "--scratch-table", scratch, "--even-with-rows")
        assert found.failed == {}
        assert client.info(scratch).row_count == 0
    assert found.of("upload") == [("ok", "refused with a conflict: the table has, or had, data (§3.1)")]


def test_reading_a_table_changes_nothing(service: Service, scratch: str, examine: Any) -> None:
    from airflow_tds.client.client import TableClient

    with TableClient(service.url, token=TOKEN) as client:
        client.upload(scratch, "id,name\n1,a\n2,b\n")
        before = client.info(scratch)
        found = examine(service.url, "--table", scratch)
        assert client.info(scratch) == before

    assert (found.code, found.failed) == (0, {})
    assert found.of("presigned GET")[0][1].startswith("csv, 2 of 2 rows")
    assert found.of("query")[1] == ("ok", "an unchanged table is told by 304")


@pytest.mark.parametrize(("days", "verdict"), [(400, "ok"), (3, "warning")])
def test_a_certificate_that_ends_soon_is_told(days: int, verdict: str, examine: Any, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("server", days=(-1, days)))

    def service(method: str, path: str) -> Answer:
        return Answer(404, "no such table" if path.startswith("/tables/") else "no such path")

    with stand_in(service, context) as url:
        found = examine(url, ca_bundle=authority.bundle)

    assert found.of("tls")[0][0] == verdict
    assert found.of("tls")[0][1].startswith("TLSv1.3; the certificate holds until 20")


def test_without_tls_nothing_is_said_of_certificates(service: Service, examine: Any) -> None:
    assert examine(service.url).of("tls")[0][0] == "skipped"
    assert examine(service.url, insecure_tls=True).of("address")[1][0] == "warning"


def test_http_to_a_host_that_is_not_near_is_unsafe(examine: Any) -> None:
    found = examine("http://tds.invalid")

    assert found.of("address")[1] == ("warning", "http: credentials and data travel in clear; set schema to https")
    assert list(found.failed) == ["connection"]


@pytest.mark.parametrize(("seconds", "verdict"), [(0, "ok"), (3600, "warning"), (-3600, "warning")])
def test_a_clock_that_is_off_is_told(seconds: int, verdict: str, examine: Any) -> None:
    def service(method: str, path: str) -> Answer:
        moment = formatdate(time.time() + seconds, usegmt=True)
        return Answer(404, "no such table" if path.startswith("/tables/") else "no such path", {"Date": moment})

    with stand_in(service) as url:
        found = examine(url)

    assert found.of("clock")[0][0] == verdict


def test_without_a_table_only_the_door_is_tried(service: Service, examine: Any) -> None:
    found = examine(service.url)

    assert found.code == 0
    assert found.of("operations")[0][0] == "skipped"
    assert found.of("credentials") == [("ok", "who has none is refused")]


def test_a_table_that_is_not_there_is_a_fault(service: Service, examine: Any) -> None:
    found = examine(service.url, "--table", "nowhere", "--scratch-table", "neither")

    assert found.code == 1
    assert set(found.failed) == {"info", "query", "scratch table"}


def test_a_wrong_token_ends_the_examination(service: Service, examine: Any) -> None:
    found = examine(service.url, "--scratch-table", "read", token="wro/ng+token")

    assert (found.code, list(found.failed)) == (1, ["connection"])


def test_a_service_that_lets_everybody_in_is_told(examine: Any) -> None:
    def open_to_all(method: str, path: str) -> Answer:
        if path.startswith("/tables/"):
            return Answer(404, '{"detail": "no such table"}')
        return Answer(404, '{"detail": "no such path"}')

    with stand_in(open_to_all) as url:
        found = examine(url)

    assert found.of("credentials") == [("warning", "who has none gets HTTP 404: they prove nothing here")]
    assert found.of("clock")[0][0] == "note"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--url", "ftp://h"], "schema is http or https, not 'ftp'"),
        (["--url", "http://h", "--extra", "[]"], "--extra is no JSON object"),
        (["--url", "http://h", "--extra", "{"], "--extra is no JSON object"),
        (["--url", "http://h", "--extra", '{"wire": {"trunkate": "POST /x"}}'], "unknown 'trunkate'"),
    ],
)
def test_what_cannot_begin_has_an_exit_code_of_its_own(
    arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", *arguments]) == 2
    assert why in capsys.readouterr().err


def test_a_token_may_come_from_the_environment(
    service: Service, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TDS_TOKEN", TOKEN)

    assert main(["doctor", "--url", service.url]) == 0
    assert "ok    connection" in capsys.readouterr().out


def test_a_connection_of_airflows_is_examined(
    service: Service, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_TDS_DEFAULT", service.connection_json)

    assert main(["doctor"]) == 0
    assert f"{service.url} lets us in" in capsys.readouterr().out


def test_a_connection_that_is_not_there_cannot_be_examined(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "nowhere"]) == 2
    assert "nowhere" in capsys.readouterr().err


def test_without_airflow_there_is_no_connection_to_examine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "airflow_tds.hooks", None)  # as where Airflow is not installed

    assert main(["doctor"]) == 2
    assert "connection 'tds_default' cannot be read: import of airflow_tds.hooks" in capsys.readouterr().err


def test_what_a_service_lacks_is_told_of_each_reading(examine: Any) -> None:
    page = {"items": [{"id": 1}], "metadata": {"total_count": 1, "has_next": False}, "etag": "e"}
    answers = {
        "/tables/t/data/info": {"total_size_bytes": 1},
        "/tables/u/data/info": {"row_count": 1},
        "/data/jobs/00000000-0000-0000-0000-000000000000": {"status": "RUNNING"},
        "/tables/t/data/query": page,
        "/tables/u/data/query": page,
        "/data/queries": {"job_id": "1"},
        "/data/query/1": {"status": "FAILED", "error": "no"},
    }

    def careless(method: str, path: str) -> Answer:
        found = answers.get(path.partition("?")[0])
        return Answer(404, f"nothing here: {path}") if found is None else Answer(200, json.dumps(found))

    with stand_in(lambda method, path: careless(method, path.replace(NO_TABLE, "t"))) as url:
        without_count, without_snapshot = examine(url, "--table", "t"), examine(url, "--table", "u")

    assert "no row_count" in without_count.failed["info"]
    assert without_count.failed["presigned GET"] == "job 1 failed: no"
    assert without_count.of("get_job") == [("warning", "a job that nobody started is RUNNING")]
    assert without_count.of("query")[1] == ("warning", "an etag is ignored: nothing is skipped by it")
    assert without_snapshot.of("info")[1][0] == "warning"


def test_the_report_for_people_tells_proven_from_proposed(capsys: pytest.CaptureFixture[str]) -> None:
    with Service(tables=["t"], token=TOKEN, wire=Wire.from_setting({"truncate": MOVED["truncate"]})) as service:
        main(["doctor", "--url", service.url, "--token", TOKEN])
        looked_at = capsys.readouterr().out
        main(["doctor", "--url", service.url, "--token", TOKEN, "--scratch-table", "t"])
        proven = capsys.readouterr().out

    assert "not proven" in looked_at
    assert f'"truncate": "{MOVED["truncate"]}"' in looked_at.splitlines()[-1]
    assert "Proven; put it into the connection's extra:" in proven
    assert "not proven" not in proven
    assert TOKEN not in looked_at + proven


def test_a_secret_of_a_few_letters_does_not_spoil_the_report() -> None:
    report = Report(["a", "canary"])
    report.add("a", "ok", "a canary and a half")

    assert report.as_text().endswith("a *** and a half")
