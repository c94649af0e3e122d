"""With a bucket, payloads and results go through a real S3-compatible store, by addresses that it checks itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from caller import Caller

from airflow_tds.client.client import TableClient
from airflow_tds.client.errors import ValidationFailed
from airflow_tds.local import Bucket, Service
from airflow_tds.local.intake import Intake
from airflow_tds.local.store import Store

ROWS = b"a\n1\n2\n"
SOON: dict[str, Any] = {"timeout": 90.0, "poll_interval": 0.05}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = pytest.importorskip("moto.server", reason="moto comes with the extra fuzz").ThreadedMotoServer(
        ip_address="127.0.0.1", port=0, verbose=False
    )
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


@pytest.fixture(scope="module")
def bucket(endpoint: str) -> Iterator[Bucket]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ACCESS_KEY_ID", "key")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        found = Bucket("tables", "team/x", endpoint)
        found.client().create_bucket(Bucket="tables")
        yield found


@pytest.fixture(scope="module")
def service(bucket: Bucket) -> Iterator[Service]:
    with Service(bucket=bucket) as running:
        yield running


def keys(bucket: Bucket) -> list[str]:
    listed = bucket.client().list_objects_v2(Bucket=bucket.name)
    return [each["Key"] for each in listed.get("Contents", [])]


def test_a_payload_and_a_result_go_through_the_bucket(service: Service, table: str, bucket: Bucket) -> None:
    with TableClient(service.url, token=service.token) as client:
        assert client.upload(table, ROWS, **SOON).status == "COMPLETED"
        assert client.cross_query({"table_id": table, "format": "csv"}, **SOON) == ROWS
    assert [key.rpartition("/")[0] for key in keys(bucket)] == ["team/x/results"]  # the payload was taken
    assert not {"put_payload", "get_result"} & {record.operation for record in service.requests}


def test_its_addresses_are_the_stores_own(caller: Caller, table: str, bucket: Bucket) -> None:
    begun = caller.initiate("upload", table).json()
    assert begun["upload_url"].startswith(f"{bucket.endpoint}/tables/team/x/payloads/{begun['job_id']}?")
    assert "X-Amz-Signature=" in begun["upload_url"]
    assert caller.store.put(begun["upload_url"], content=ROWS).status_code == 200
    assert caller.settled(begun["job_id"])["status"] == "COMPLETED"


def test_a_part_of_a_result_can_be_fetched(caller: Caller, table: str) -> None:
    begun = caller.initiate("upload", table).json()
    caller.store.put(begun["upload_url"], content=ROWS)
    caller.settled(begun["job_id"])
    job_id = caller.http.post("/data/queries", json={"table_id": table, "format": "csv"}).json()["job_id"]
    caller.settled(job_id)
    url = caller.http.get(f"/data/query/{job_id}").headers["location"]
    rest = caller.store.get(url, headers={"Range": "bytes=2-"})
    assert (rest.status_code, rest.content) == (206, ROWS[2:])


def test_what_arrived_while_the_service_was_stopped_is_taken_at_the_next_start(bucket: Bucket, tmp_path: Path) -> None:
    with Service(tmp_path, ["t"], bucket=bucket) as service:
        caller = Caller(service.url, service.token)
        begun = caller.initiate("upload", "t").json()
        service.stop()
        assert caller.store.put(begun["upload_url"], content=ROWS).status_code == 200
        service.start()
        assert caller.settled(begun["job_id"])["status"] == "COMPLETED"
        caller.close()


def test_payloads_are_looked_for_in_the_order_in_which_they_were_announced(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.create_table("t")
        jobs = [Intake(store).initiate("append", "t", {"format": "csv"}, 60.0).job_id for _ in range(20)]
        assert [job.job_id for job in store.awaited()] == jobs


@pytest.mark.parametrize("url", ["bucket", "http://bucket", "s3://", "s3:///prefix"])
def test_what_is_no_bucket_is_refused(url: str) -> None:
    with pytest.raises(ValidationFailed, match="s3://BUCKET"):
        Bucket.of(url)


def test_a_bucket_that_is_not_there_is_told_at_the_start(bucket: Bucket) -> None:
    with pytest.raises(ValidationFailed, match="'nowhere' cannot be used"):
        Service(bucket=Bucket("nowhere", endpoint=bucket.endpoint)).start()


def test_headers_are_signed_by_the_services_own_store_only() -> None:
    with pytest.raises(ValidationFailed, match="upload_headers"):
        Service(bucket=Bucket("b"), upload_headers={"X-A": "b"})
