"""Each assumption of a durable write can be switched off, and what it excludes then happens."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from caller import Caller

from airflow_tds.local import Service

ROWS = b"a\n1\n2\n"


@pytest.fixture
def loaded(caller: Caller, table: str) -> str:
    caller.write("upload", table, ROWS)
    return table


@pytest.fixture
def faulty(service: Service) -> Iterator[Service]:
    """The service, and the promise that every fault of the test happened."""
    yield service
    assert [fault for fault in service.faults if fault.left] == []
    service.clear_faults()


@pytest.mark.parametrize("kind", ["append", "overwrite", "upsert"])
def test_a1_a_job_without_its_data_may_change_the_table(
    faulty: Service, caller: Caller, loaded: str, kind: str
) -> None:
    before = caller.info(loaded)
    faulty.fault(kind, job="applies_without_data")
    begun = caller.initiate(kind, loaded, **({"key_columns": "a"} if kind == "upsert" else {})).json()
    assert caller.settled(begun["job_id"])["status"] == "COMPLETED"
    assert [row["a"] for row in caller.rows(loaded)] == [1, 2, None]
    assert caller.info(loaded)["snapshot_id"] != before["snapshot_id"]
    assert caller.put(begun["upload_url"], ROWS).status_code == 409


def test_a1_on_a_table_without_columns_nothing_is_there_to_change(faulty: Service, caller: Caller, table: str) -> None:
    faulty.fault("append", job="applies_without_data")
    assert caller.settled(caller.initiate("append", table).json()["job_id"])["status"] == "COMPLETED"
    assert caller.info(table)["row_count"] == 0


def test_a2_a_failed_job_may_have_applied_its_data(faulty: Service, caller: Caller, loaded: str) -> None:
    faulty.fault("append", job="fails_after_applying")
    assert caller.write("append", loaded, ROWS)["status"] == "FAILED"
    assert caller.info(loaded)["row_count"] == 4


def test_a3_data_may_land_after_the_url_expired() -> None:
    with Service(tables=["t"], upload_url_lifetime=0.0) as service:
        caller = Caller(service.url, service.token)
        service.fault("append", job="takes_late_data")
        late = caller.initiate("append", "t").json()
        dead = caller.initiate("append", "t").json()
        assert caller.settled(dead["job_id"])["status"] == "FAILED"
        assert caller.put(dead["upload_url"], ROWS).status_code == 403
        assert caller.job(late["job_id"])["status"] == "AWAITING"
        assert caller.put(late["upload_url"], ROWS).status_code == 200
        assert caller.settled(late["job_id"])["status"] == "COMPLETED"
        caller.close()


def test_a4_a_job_may_apply_its_data_twice(faulty: Service, caller: Caller, loaded: str) -> None:
    faulty.fault("append", job="applies_twice")
    assert caller.write("append", loaded, ROWS)["status"] == "COMPLETED"
    assert caller.info(loaded)["row_count"] == 6


@pytest.mark.parametrize("kind", ["append", "overwrite", "delete_rows", "truncate"])
def test_a5_a_change_may_leave_the_snapshot_as_it_is(faulty: Service, caller: Caller, loaded: str, kind: str) -> None:
    before = caller.info(loaded)
    path = f"/tables/{loaded}/data/query?filters=a:gt:1"
    old = caller.http.get(path)
    faulty.fault(kind, job="keeps_snapshot")
    if kind == "delete_rows":
        caller.http.post(f"/tables/{loaded}/data/delete", json={"filters": ["a:eq:1"]})
    elif kind == "truncate":
        caller.truncate(loaded)
    else:
        caller.write(kind, loaded, b"a\n5\n6\n7\n")
    after = caller.info(loaded)
    assert (after["snapshot_id"], after["row_count"] != before["row_count"]) == (before["snapshot_id"], True)
    assert caller.http.get(path, headers={"If-None-Match": old.headers["etag"]}).status_code == 304
    assert caller.http.get(path).json()["metadata"]["total_count"] == {"delete_rows": 1, "truncate": 0}.get(
        kind, {"append": 4, "overwrite": 3}.get(kind)
    )


def test_a6_a_status_may_say_that_no_data_came_although_it_did(faulty: Service, caller: Caller, loaded: str) -> None:
    faulty.hold()
    faulty.fault("append", job="hides_its_data")
    job_id = caller.submit("append", loaded, ROWS)
    assert caller.job(job_id)["status"] == "AWAITING"
    faulty.release()
    assert caller.settled(job_id)["status"] == "COMPLETED"
    assert caller.info(loaded)["row_count"] == 4


def test_a_fault_of_a_job_is_noted_with_the_request_that_made_it(faulty: Service, caller: Caller, loaded: str) -> None:
    faulty.fault("append", job="applies_twice")
    faulty.fault("info", status=503)
    caller.write("append", loaded, ROWS)
    assert caller.http.get(f"/tables/{loaded}/data/info").status_code == 503
    noted = {record.operation: record.fault for record in faulty.requests if record.fault}
    assert noted["append"] == {"operation": "append", "job": "applies_twice"}
    assert noted["info"] == {"operation": "info", "status": 503}
