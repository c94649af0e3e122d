"""How a write's data gets to the service, beside a presigned address: as the request's body, or first and committed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from caller import Caller

from airflow_tds.local import Rights, Service

ROWS = b"a\n1\n2\n"
CSV = {"Content-Type": "text/csv"}
WIRE: dict[str, Any] = {
    "upload": {"strategy": "direct"},
    "append": {"strategy": "put_commit"},
    "overwrite": {"strategy": "direct"},
    "idempotency_header": "X-Once",
}


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(wire=WIRE, tokens={"guest": Rights(read=["*"])}) as running:
        yield running


def presigned(caller: Caller, table: str) -> tuple[str, str]:
    told = caller.http.post(f"/tables/{table}/data/uploads", json={"format": "csv"}).json()
    return told["object"], told["upload_url"]


def commit(caller: Caller, table: str, name: str, key: str = "") -> httpx.Response:
    headers = {"X-Once": key} if key else {}
    body = {"format": "csv", "object": name}
    return caller.http.patch(f"/tables/{table}/data", json=body, headers=headers)


def overwrite(caller: Caller, table: str, data: Any, **headers: str) -> httpx.Response:
    return caller.http.post(f"/tables/{table}/data/overwrite", content=data, headers=CSV | headers)


def test_data_is_sent_first_and_committed_once(caller: Caller, table: str) -> None:
    name, url = presigned(caller, table)
    assert commit(caller, table, name).status_code == 409  # nothing has arrived
    assert caller.put(url, ROWS).status_code == 200
    assert caller.put(url, ROWS).status_code == 200
    assert caller.put(url, b"a\n9\n").status_code == 409
    assert caller.info(table)["row_count"] == 0
    begun = commit(caller, table, name)
    assert caller.settled(begun.json()["job_id"])["status"] == "COMPLETED"
    assert caller.info(table)["row_count"] == 2
    assert commit(caller, table, name).status_code == 409


def test_an_object_is_no_job_and_is_in_no_list(caller: Caller, table: str) -> None:
    name, _ = presigned(caller, table)
    assert caller.http.get(f"/data/jobs/{name}").status_code == 404
    assert name not in caller.http.get("/admin/jobs").text


def test_what_was_never_presigned_or_for_another_table_is_refused(caller: Caller, table: str) -> None:
    other = caller.create(f"{table} 2")
    name, url = presigned(caller, other)
    caller.put(url, ROWS)
    assert commit(caller, table, "nothing").status_code == 422
    assert commit(caller, table, name).status_code == 422


def test_only_who_may_write_gets_an_address(service: Service, table: str) -> None:
    guest = Caller(service.url, "guest")
    assert guest.http.post(f"/tables/{table}/data/uploads", json={"format": "csv"}).status_code == 403
    guest.close()


@pytest.mark.parametrize("data", [ROWS, iter([b"a\n", b"1\n2\n"])], ids=["measured", "chunked"])
def test_a_payload_may_be_the_request_itself(caller: Caller, table: str, data: Any) -> None:
    begun = overwrite(caller, table, data)
    assert begun.status_code == 202
    assert caller.settled(begun.json()["job_id"])["status"] == "COMPLETED"
    assert caller.info(table)["row_count"] == 2


def test_a_payload_without_a_known_type_is_refused(caller: Caller, table: str) -> None:
    assert overwrite(caller, table, ROWS, **{"Content-Type": "text/plain"}).status_code == 422
    assert overwrite(caller, "nowhere", ROWS).status_code == 404


def test_a_length_that_is_not_announced_may_be_refused() -> None:
    with Service(tables=["t"], wire=WIRE, chunked=False) as service:
        caller = Caller(service.url, service.token)
        assert overwrite(caller, "t", iter([ROWS])).status_code == 411
        assert overwrite(caller, "t", ROWS).status_code == 202
        caller.close()


def test_the_same_key_makes_the_same_job(caller: Caller, table: str) -> None:
    first, second = (overwrite(caller, table, ROWS, **{"X-Once": f"{table} k"}).json() for _ in range(2))
    assert first == second
    assert overwrite(caller, table, b"a\n9\n", **{"X-Once": f"{table} k"}).status_code == 409
    name, url = presigned(caller, table)
    caller.put(url, ROWS)
    caller.settled(first["job_id"])
    jobs = [commit(caller, table, name, f"{table} c").json()["job_id"] for _ in range(2)]
    assert jobs[0] == jobs[1]
    caller.settled(jobs[0])
    assert caller.info(table)["row_count"] == 4
    assert commit(caller, table, name, f"{table} k").status_code == 409


def test_an_upload_that_is_sent_again_with_its_key_is_no_conflict(caller: Caller, table: str) -> None:
    def upload(key: str) -> httpx.Response:
        path = f"/tables/{table}/data/upload"
        return caller.http.post(path, content=ROWS, headers=CSV | {"X-Once": f"{table} {key}"})

    begun = upload("1").json()
    assert caller.settled(begun["job_id"])["status"] == "COMPLETED"
    assert upload("1").json() == begun
    assert upload("2").status_code == 409


def test_a_key_and_an_object_outlive_a_restart() -> None:
    with Service(tables=["t"], wire=WIRE) as service:
        caller = Caller(service.url, service.token)
        kept = overwrite(caller, "t", ROWS, **{"X-Once": "k"}).json()
        caller.settled(kept["job_id"])
        name, url = presigned(caller, "t")
        caller.put(url, ROWS)
        service.stop()
        service.start()
        assert overwrite(caller, "t", ROWS, **{"X-Once": "k"}).json() == kept
        assert caller.settled(commit(caller, "t", name).json()["job_id"])["status"] == "COMPLETED"
        assert caller.info("t")["row_count"] == 4
        caller.close()
