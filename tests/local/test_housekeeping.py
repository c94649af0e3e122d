"""What the service removes: results and jobs past their time, a long log; and nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from caller import Caller

from airflow_tds.client.errors import Conflict
from airflow_tds.local import Service
from airflow_tds.local.intake import Intake
from airflow_tds.local.store import Store

WEEK = 7 * 86_400.0


def eventually(condition: Callable[[], bool]) -> bool:
    """Ask until it is so, for a while."""
    deadline = time.monotonic() + 10
    while not condition():
        if time.monotonic() > deadline:
            return False
    return True


@pytest.fixture
def brief() -> Iterator[Service]:
    with Service(tables=["t"], result_lifetime=0.5) as running:
        yield running


def test_a_result_is_removed_after_its_time_and_so_are_its_links(brief: Service) -> None:
    caller = Caller(brief.url, brief.token)
    caller.write("upload", "t", b"a\n1\n")
    job_id = caller.http.post("/data/queries", json={"table_id": "t"}).json()["job_id"]
    ended = caller.settled(job_id)
    link = httpx.URL(caller.http.get(f"/data/query/{job_id}").headers["location"])
    assert eventually(lambda: caller.http.get(f"/data/query/{job_id}").status_code == 404)
    assert eventually(lambda: list(brief._store.directory.results.iterdir()) == [])
    assert caller.store.get(link).status_code == 403
    assert caller.job(job_id) == ended
    caller.close()


def test_a_result_stays_for_its_time(service: Service, caller: Caller, table: str) -> None:
    caller.write("upload", table, b"a\n1\n")
    assert caller.rows(table) == [{"a": 1}]
    service._store.remove_results()
    assert len(list(service._store.directory.results.iterdir())) == 1


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "data") as opened:
        opened.create_table("t")
        yield opened


def ended(store: Store, count: int) -> list[str]:
    jobs = [Intake(store).initiate("append", "t", {"format": "csv"}, 60.0) for _ in range(count)]
    for job in jobs:
        store.fail(job, "for the test")
    return [job.job_id for job in jobs]


def known(store: Store) -> list[str]:
    return sorted(job.job_id for job in store.newest_jobs(100))


def test_old_jobs_are_forgotten_beyond_the_newest(store: Store) -> None:
    jobs = ended(store, 5)
    store.prune(store.clock(), newest=2)
    store.reopen()
    assert known(store) == sorted(jobs[3:])


def test_jobs_that_are_not_old_are_kept(store: Store) -> None:
    jobs = ended(store, 3)
    store.prune(store.clock() - WEEK, newest=0)
    assert known(store) == sorted(jobs)


def test_jobs_that_did_not_end_are_kept_however_old(store: Store) -> None:
    waiting = Intake(store).initiate("append", "t", {"format": "csv"}, 60.0)
    ended(store, 1)
    store.prune(store.clock() + WEEK, newest=0)
    assert known(store) == [waiting.job_id]


def test_a_job_that_is_forgotten_while_it_waits_for_its_data_stops_no_other(service: Service, caller: Caller) -> None:
    caller.create("forgetful")
    begun = caller.initiate("append", "forgetful").json()
    service.forget(begun["job_id"])
    assert caller.http.get(f"/data/jobs/{begun['job_id']}").status_code == 404
    refused = caller.put(begun["upload_url"], b"a\n1\n")
    assert (refused.status_code, "NoSuchUpload" in refused.text) == (404, True)
    assert caller.write("append", "forgetful", b"a\n2\n")["status"] == "COMPLETED"


def test_a_forgotten_job_is_forgotten_after_a_restart_too(store: Store) -> None:
    waiting = Intake(store).initiate("append", "t", {"format": "csv", "key": "k"}, 60.0)
    store.forget(waiting.job_id)
    store.reopen()
    assert known(store) == []
    assert store.same("append", "t", {"format": "csv", "key": "k"}) is None


def test_a_job_that_is_under_way_is_not_forgotten(store: Store) -> None:
    queued = store.enqueue("truncate", "t", {})
    with pytest.raises(Conflict, match="under way"):
        store.forget(queued.job_id)
    assert known(store) == [queued.job_id]


def test_a_result_that_cannot_be_removed_stops_no_write(brief: Service, caplog: pytest.LogCaptureFixture) -> None:
    caller = Caller(brief.url, brief.token)
    caller.write("upload", "t", b"a\n1\n")
    brief.hold()
    job_id = caller.http.post("/data/queries", json={"table_id": "t"}).json()["job_id"]
    stubborn = brief._store.directory.results / job_id
    stubborn.mkdir()
    brief.release()
    assert caller.settled(job_id)["status"] == "FAILED"
    assert eventually(lambda: "could not keep house" in caplog.text)
    assert caller.write("append", "t", b"a\n2\n")["status"] == "COMPLETED"
    caller.close()


def test_an_idle_service_cuts_a_long_log(service: Service, caller: Caller, table: str) -> None:
    data = b"a\n" + b"".join(b"%d\n" % (n * 7919) for n in range(50_000))
    log = service._store.database.log_size
    while log() < 4 << 20:
        assert caller.write("append", table, data)["status"] == "COMPLETED"
    assert eventually(lambda: log() < 1 << 20)
