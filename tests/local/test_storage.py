"""Presigned URLs and the object store behind them: who may send and fetch what, and for how long."""

from __future__ import annotations

import socket
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from caller import Caller
from service_memory import measured

from airflow_tds.local import Service
from airflow_tds.local.signing import LinkRefused, Signer

ROWS = b"a\n1\n2\n"


@pytest.fixture
def upload_url(caller: Caller, table: str) -> str:
    url: str = caller.initiate("append", table).json()["upload_url"]
    return url


@pytest.fixture
def result_url(caller: Caller, table: str) -> str:
    caller.write("upload", table, ROWS)
    job_id = caller.http.post("/data/queries", json={"table_id": table, "format": "csv"}).json()["job_id"]
    caller.settled(job_id)
    url: str = caller.http.get(f"/data/query/{job_id}").headers["location"]
    return url


def is_refused(reply: httpx.Response, code: str) -> bool:
    assert reply.headers["content-type"] == "application/xml"
    return reply.status_code == 403 and f"<Error><Code>{code}</Code>" in reply.text


@pytest.mark.parametrize("change", ["Signature=A", "Expires=9", "Expires=x&Expires=y"])
def test_a_forged_link_is_refused_as_object_stores_do(caller: Caller, upload_url: str, change: str) -> None:
    name = change.partition("=")[0]
    assert is_refused(caller.put(upload_url.replace(f"{name}=", change, 1), ROWS), "SignatureDoesNotMatch")


def test_a_link_without_its_signature_is_refused(caller: Caller, upload_url: str) -> None:
    assert is_refused(caller.put(upload_url.partition("?")[0], ROWS), "SignatureDoesNotMatch")


def test_a_link_serves_its_own_job_only(caller: Caller, table: str, upload_url: str) -> None:
    other = caller.initiate("append", table).json()["job_id"]
    mine = urlsplit(upload_url).path.rpartition("/")[2]
    assert is_refused(caller.put(upload_url.replace(mine, other), ROWS), "SignatureDoesNotMatch")


def test_a_link_to_send_cannot_fetch_and_one_to_fetch_cannot_send(
    caller: Caller, upload_url: str, result_url: str
) -> None:
    assert caller.store.get(upload_url).status_code == 405
    assert caller.put(result_url, ROWS).status_code == 405
    assert is_refused(caller.put(result_url.replace("/results/", "/payloads/"), ROWS), "SignatureDoesNotMatch")


def test_a_link_ends_at_its_expiry() -> None:
    signer = Signer(b"key")
    query = httpx.URL(signer.link("PUT", "/p", "payload", "j", 100.0)).params
    signer.check("PUT", "/p", "payload", "j", given=query, now=99.9)
    with pytest.raises(LinkRefused, match="expired"):
        signer.check("PUT", "/p", "payload", "j", given=query, now=100.0)


def test_a_link_serves_one_purpose() -> None:
    signer = Signer(b"key")
    query = httpx.URL(signer.link("PUT", "/p", "payload", "j", 100.0)).params
    with pytest.raises(LinkRefused, match="signature"):
        signer.check("PUT", "/p", "result", "j", given=query, now=0.0)


def test_an_expired_link_is_refused_and_its_job_fails() -> None:
    with Service(tables=["t"], token="token", upload_url_lifetime=0.0) as brief:
        headers = {"Authorization": "Bearer token"}
        begun = httpx.patch(f"{brief.url}/tables/t/data", json={"format": "csv"}, headers=headers).json()
        assert is_refused(httpx.put(begun["upload_url"], content=ROWS), "AccessDenied")
        while (job := httpx.get(f"{brief.url}/data/jobs/{begun['job_id']}", headers=headers).json())[
            "status"
        ] != "FAILED":
            pass
        assert "no data arrived" in job["error"]


def test_links_carry_no_credentials_and_need_none(service: Service, caller: Caller, upload_url: str) -> None:
    assert service.token not in upload_url
    assert "authorization" not in caller.store.headers
    assert caller.put(upload_url, ROWS).status_code == 200


def test_a_payload_of_unknown_length_is_taken(caller: Caller, table: str) -> None:
    begun = caller.initiate("append", table).json()
    assert caller.store.put(begun["upload_url"], content=iter([b"a\n", b"1\n"])).status_code == 200
    assert caller.settled(begun["job_id"])["status"] == "COMPLETED"


def test_a_transfer_that_breaks_off_leaves_its_job_waiting(caller: Caller, table: str) -> None:
    begun = caller.initiate("append", table).json()
    target = urlsplit(begun["upload_url"])
    with socket.create_connection((str(target.hostname), target.port or 0)) as connection:
        head = f"PUT {target.path}?{target.query} HTTP/1.1\r\nHost: {target.netloc}\r\nContent-Length: 100\r\n\r\n"
        connection.sendall(head.encode() + b"a\n1\n")
    assert caller.put(begun["upload_url"], ROWS).status_code == 200
    assert caller.settled(begun["job_id"])["status"] == "COMPLETED"
    assert caller.info(table)["row_count"] == 2


def test_a_download_can_be_continued(caller: Caller, result_url: str) -> None:
    whole = caller.store.get(result_url)
    rest = caller.store.get(result_url, headers={"Range": "bytes=2-", "If-Range": whole.headers["etag"]})
    assert (rest.status_code, rest.content) == (206, whole.content[2:])


def test_a_large_payload_and_its_result_come_back_unchanged(caller: Caller, table: str) -> None:
    data = b"a,b\n" + b"".join(b"%d,%s\n" % (n, b"x" * 90) for n in range(60_000))
    assert caller.write("upload", table, data)["status"] == "COMPLETED"
    assert caller.ask(table_id=table, format="csv").content == data


@pytest.mark.parametrize("skew", [7200.0, -7200.0])
def test_a_clock_that_is_off_is_off_everywhere(skew: float) -> None:
    with Service(tables=["t"], clock_skew=skew, upload_url_lifetime=600) as service:
        caller = Caller(service.url, service.token)
        begun = caller.initiate("append", "t")
        told = parsedate_to_datetime(begun.headers["date"])
        assert abs((told - datetime.now(UTC)).total_seconds() - skew) < 300
        assert 595 < (datetime.fromisoformat(begun.json()["expires_at"]) - told).total_seconds() <= 601
        assert caller.put(begun.json()["upload_url"], ROWS).status_code == 200
        assert caller.settled(begun.json()["job_id"])["status"] == "COMPLETED"
        caller.close()


def test_a_transfer_takes_no_memory_for_its_size(tmp_path: Path) -> None:
    """64 MiB each way; `tests/benchmarks/service_memory.py` does the same with 1 GiB."""
    growth = {phase.name: phase.growth for phase in measured(tmp_path, 64 << 20)}
    assert max(growth["PUT"], growth["GET"]) < 24, growth
