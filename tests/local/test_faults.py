"""Faults on purpose: each kind is what a caller sees, is accounted for, and changes nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, get_args

import httpx
import pytest
from caller import Caller

from airflow_tds.client.errors import ValidationFailed
from airflow_tds.local import Service
from airflow_tds.local.faults import Operation

ROWS = b"a\n1\n2\n"
ROUTES = {
    "info": "GET /tables/t/data/info",
    "upload": "POST /tables/t/data/upload",
    "append": "PATCH /tables/t/data",
    "overwrite": "POST /tables/t/data/overwrite",
    "upsert": "POST /tables/t/data/upsert",
    "delete_rows": "POST /tables/t/data/delete",
    "truncate": "POST /tables/t/data/truncate",
    "get_job": "GET /data/jobs/j",
    "query_json": "GET /tables/t/data/query",
    "start_query": "POST /data/queries",
    "poll_query": "GET /data/query/j",
    "put_payload": "PUT /storage/payloads/j",
    "get_result": "GET /storage/results/j",
}


@pytest.fixture
def faulty(service: Service) -> Iterator[Service]:
    """The service, and the promise that every fault of the test happened."""
    yield service
    assert [fault for fault in service.faults if fault.left] == []
    service.clear_faults()


@pytest.fixture
def loaded(caller: Caller, table: str) -> str:
    caller.write("upload", table, ROWS)
    return table


def result_url(caller: Caller, table: str) -> str:
    job_id = caller.http.post("/data/queries", json={"table_id": table, "format": "csv"}).json()["job_id"]
    caller.settled(job_id)
    url: str = caller.http.get(f"/data/query/{job_id}").headers["location"]
    return url


def test_a_status_is_answered_instead_and_nothing_is_done(faulty: Service, caller: Caller, table: str) -> None:
    fault = faulty.fault("append", status=503, times=2)
    assert [caller.initiate("append", table).status_code for _ in range(3)] == [503, 503, 200]
    assert (fault.consumed, fault.left) == (2, 0)


def test_a_busy_service_says_when_to_come_again(faulty: Service, caller: Caller, table: str) -> None:
    faulty.fault("info", status=429, headers={"Retry-After": "7"})
    reply = caller.http.get(f"/tables/{table}/data/info")
    assert (reply.status_code, reply.headers["retry-after"]) == (429, "7")


@pytest.mark.parametrize(("applied", "count"), [(False, 0), (True, 2)])
def test_a_payload_may_be_applied_or_not_before_its_refusal(
    faulty: Service, caller: Caller, table: str, applied: bool, count: int
) -> None:
    begun = caller.initiate("append", table).json()
    faulty.fault("put_payload", status=500, applied=applied)
    assert caller.put(begun["upload_url"], ROWS).status_code == 500
    if applied:
        caller.settled(begun["job_id"])
    assert caller.info(table)["row_count"] == count


@pytest.mark.parametrize(("applied", "status"), [(False, "AWAITING"), (True, "COMPLETED")])
def test_a_connection_is_cut_before_or_after_a_payload_is_applied(
    faulty: Service, caller: Caller, table: str, applied: bool, status: str
) -> None:
    begun = caller.initiate("append", table).json()
    faulty.fault("put_payload", cut=True, applied=applied)
    with pytest.raises(httpx.TransportError):
        caller.put(begun["upload_url"], ROWS)
    job = caller.settled(begun["job_id"]) if applied else caller.job(begun["job_id"])
    assert job["status"] == status


def test_a_cut_connection_is_noted_without_a_status(faulty: Service, caller: Caller, table: str) -> None:
    faulty.fault("info", cut=True)
    with pytest.raises(httpx.TransportError):
        caller.http.get(f"/tables/{table}/data/info")
    record = next(record for record in reversed(faulty.requests) if record.path.startswith(f"/tables/{table}"))
    assert (record.operation, record.status) == ("info", 0)


def test_an_answer_may_come_late(faulty: Service, caller: Caller, table: str) -> None:
    faulty.fault("info", delay=0.3)
    begun = time.monotonic()
    assert caller.info(table)["row_count"] == 0
    assert time.monotonic() - begun >= 0.3


def test_a_body_may_break_off(faulty: Service, caller: Caller, loaded: str) -> None:
    url = result_url(caller, loaded)
    faulty.fault("get_result", truncate=3)
    with pytest.raises(httpx.RemoteProtocolError, match="received 3 bytes, expected 6"):
        caller.store.get(url)
    assert caller.store.get(url).content == ROWS


@pytest.mark.parametrize(("length", "content"), [(3, ROWS[:3]), (6, ROWS)])
def test_a_length_may_be_forged(faulty: Service, caller: Caller, loaded: str, length: int, content: bytes) -> None:
    faulty.fault("get_result", length=length)
    assert caller.store.get(result_url(caller, loaded)).content == content


def test_a_length_beyond_the_body_shows(faulty: Service, caller: Caller, loaded: str) -> None:
    faulty.fault("get_result", length=100)
    with pytest.raises(httpx.RemoteProtocolError, match="expected 100"):
        caller.store.get(result_url(caller, loaded))


@pytest.mark.parametrize("location", [None, "", "http://192.0.2.1/"], ids=["none", "empty", "elsewhere"])
def test_a_result_may_be_nowhere_or_elsewhere(
    faulty: Service, caller: Caller, loaded: str, location: str | None
) -> None:
    job_id = caller.http.post("/data/queries", json={"table_id": loaded}).json()["job_id"]
    caller.settled(job_id)
    faulty.fault("poll_query", headers={"Location": location})
    reply = caller.http.get(f"/data/query/{job_id}")
    assert (reply.status_code, reply.headers.get("location")) == (307, location)


def test_a_job_may_have_a_status_and_fields_that_nobody_knows(faulty: Service, caller: Caller, loaded: str) -> None:
    job_id = caller.submit("append", loaded, ROWS)
    caller.settled(job_id)
    faulty.fault("get_job", fields={"status": "PONDERING", "mood": {"of": "the day"}})
    record = caller.job(job_id)
    assert (record["status"], record["mood"], record["job_id"]) == ("PONDERING", {"of": "the day"}, job_id)
    assert caller.job(job_id)["status"] == "COMPLETED"


@pytest.mark.parametrize(("kind", "count"), [("upload", 2), ("append", 2), ("overwrite", 2)])
def test_a_job_may_fail_after_it_was_applied(
    faulty: Service, caller: Caller, table: str, kind: str, count: int
) -> None:
    faulty.fault(kind, job="fails_after_applying")
    job = caller.write(kind, table, ROWS)
    assert (job["status"], "on purpose" in job["error"]) == ("FAILED", True)
    assert caller.info(table)["row_count"] == count
    assert caller.info(table)["snapshot_id"] == job["snapshot_id"]


@pytest.mark.parametrize("kind", ["upload", "append"])
def test_a_job_may_be_applied_twice(faulty: Service, caller: Caller, table: str, kind: str) -> None:
    faulty.fault(kind, job="applies_twice")
    assert caller.write(kind, table, ROWS)["status"] == "COMPLETED"
    assert caller.info(table)["row_count"] == 4
    assert [row["a"] for row in caller.rows(table)] == [1, 2, 1, 2]


def test_faults_of_other_operations_wait(faulty: Service, caller: Caller, table: str) -> None:
    fault = faulty.fault("truncate", status=500)
    assert caller.info(table)["row_count"] == 0
    assert fault.left == 1
    assert caller.http.post(f"/tables/{table}/data/truncate").status_code == 500


@pytest.mark.parametrize(("operation", "line"), ROUTES.items())
def test_every_operation_can_go_wrong(faulty: Service, caller: Caller, operation: str, line: str) -> None:
    method, path = line.split()
    faulty.fault(operation, status=555)
    url = httpx.URL(faulty.url).join(path)
    assert caller.http.request(method, url).status_code == 555


def test_no_operation_is_left_out() -> None:
    assert {*ROUTES, "presign"} == set(get_args(Operation))


def test_faults_can_be_scripted_over_http(service: Service, caller: Caller, table: str) -> None:
    scripted: dict[str, Any] = {"operation": "info", "status": 503}
    assert caller.http.post("/admin/faults", json=scripted).status_code == 201
    assert caller.http.get(f"/tables/{table}/data/info").status_code == 503
    assert caller.http.get("/admin/faults").json() == [{**scripted, "consumed": 1, "left": 0}]
    assert caller.http.delete("/admin/faults").status_code == 204
    assert caller.http.get("/admin/faults").json() == []


@pytest.mark.parametrize(
    "fault",
    [
        {"operation": "append"},
        {"operation": "nothing", "status": 500},
        {"operation": "append", "status": 99},
        {"operation": "append", "stats": 500},
        {"operation": "append", "times": 0, "status": 500},
        {"operation": "append", "applied": True},
        {"operation": "append", "delay": -1},
        {"operation": "get_job", "job": "applies_twice"},
        {"operation": "append", "job": "applies_twice", "status": 500},
        {"operation": "append", "headers": {"X-Name": "no latin: ł"}},
        {"operation": "append", "headers": {"a b": "c"}},
    ],
)
def test_what_is_no_fault_is_refused(service: Service, caller: Caller, fault: dict[str, Any]) -> None:
    assert caller.http.post("/admin/faults", json=fault).status_code == 422
    with pytest.raises(ValidationFailed):
        service.fault(fault.pop("operation"), **fault)
