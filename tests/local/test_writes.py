"""Writes and what they leave: §2.8, §3.1."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from caller import Caller

from airflow_tds.local import Service

TWO = b"id,name\n1,one\n2,two\n"


def test_a_table_without_data_has_no_rows_and_no_snapshot(caller: Caller, table: str) -> None:
    info = caller.info(table)
    assert (info["row_count"], info["total_size_bytes"], info["data_files"]) == (0, 0, [])
    assert (info["snapshot_id"], info["last_updated"]) == (None, None)


def test_an_upload_is_the_initial_load(caller: Caller, table: str) -> None:
    job = caller.write("upload", table, TWO)
    info = caller.info(table)
    assert job["status"] == "COMPLETED"
    assert (info["row_count"], info["snapshot_id"]) == (2, job["snapshot_id"])
    assert info["total_size_bytes"] > 0
    assert caller.rows(table) == [{"id": 1, "name": "one"}, {"id": 2, "name": "two"}]


def test_a_second_upload_is_a_conflict(caller: Caller, table: str) -> None:
    caller.write("upload", table, TWO)
    assert caller.initiate("upload", table).status_code == 409


def test_an_upload_after_truncate_is_a_conflict(caller: Caller, table: str) -> None:
    caller.write("upload", table, TWO)
    caller.truncate(table)
    assert caller.initiate("upload", table).status_code == 409


def test_of_two_uploads_at_once_the_first_to_arrive_is_applied(caller: Caller, table: str) -> None:
    first, second = (caller.initiate("upload", table).json() for _ in range(2))
    caller.put(second["upload_url"], TWO)
    caller.put(first["upload_url"], b"id,name\n9,nine\n")
    assert caller.settled(second["job_id"])["status"] == "COMPLETED"
    late = caller.settled(first["job_id"])
    assert late["status"] == "FAILED"
    assert "initial load only" in late["error"]
    assert caller.info(table)["row_count"] == 2


def test_an_append_adds_rows_without_deduplication(caller: Caller, table: str) -> None:
    caller.write("upload", table, TWO)
    caller.write("append", table, TWO, update_mode="append")
    assert [row["id"] for row in caller.rows(table)] == [1, 2, 1, 2]


def test_an_append_to_a_table_without_data_loads_it(caller: Caller, table: str) -> None:
    assert caller.write("append", table, TWO)["status"] == "COMPLETED"
    assert caller.info(table)["row_count"] == 2
    assert caller.initiate("upload", table).status_code == 409


def test_columns_are_matched_by_name_in_any_order(caller: Caller, table: str) -> None:
    caller.write("upload", table, TWO)
    caller.write("append", table, b"name,id\nthree,3\n")
    assert caller.rows(table)[2] == {"id": 3, "name": "three"}


def test_an_upsert_updates_matching_rows_and_inserts_the_others(caller: Caller, table: str) -> None:
    caller.write("upload", table, TWO)
    caller.write("upsert", table, b"id,name\n2,deux\n3,trois\n", key_columns="id")
    found = sorted(caller.rows(table), key=lambda row: row["id"])
    assert [row["name"] for row in found] == ["one", "deux", "trois"]
    assert caller.info(table)["row_count"] == 3


def test_an_upsert_matches_on_all_keys_and_null_matches_null(caller: Caller, table: str) -> None:
    caller.write("upload", table, b"a,b,v\n1,,old\n1,x,old\n2,x,old\n")
    caller.write("upsert", table, b"a,b,v\n1,,new\n2,y,new\n", key_columns=["a", "b"])
    found = {(row["a"], row["b"]): row["v"] for row in caller.rows(table)}
    assert found == {(1, None): "new", (1, "x"): "old", (2, "x"): "old", (2, "y"): "new"}


def test_an_upsert_updates_every_row_that_has_the_key(caller: Caller, table: str) -> None:
    caller.write("upload", table, b"id,v\n1,a\n1,b\n2,c\n")
    job = caller.write("upsert", table, b"id,v\n1,new\n3,new\n", key_columns="id")
    found = sorted((row["id"], row["v"]) for row in caller.rows(table))
    assert job["status"] == "COMPLETED"
    assert found == [(1, "new"), (1, "new"), (2, "c"), (3, "new")]
    assert caller.info(table)["row_count"] == 4


@pytest.mark.parametrize("loaded", [True, False])
def test_an_upsert_that_gives_a_key_twice_fails_and_changes_nothing(caller: Caller, loaded: bool) -> None:
    table = caller.create(f"twice-{loaded}")
    if loaded:
        caller.write("upload", table, TWO)
    before = caller.info(table)
    job = caller.write("upsert", table, b"id,name\n1,a\n1,b\n", key_columns="id")
    assert job["status"] == "FAILED"
    assert "2 rows with the key id='1'" in job["error"]
    assert caller.info(table) == before


@pytest.mark.parametrize("keys", [[], ["nope"], ["id", "id"], None])
def test_keys_that_are_no_columns_are_refused(caller: Caller, keys: list[str] | None) -> None:
    table = caller.create("refused-keys")
    if not caller.info(table)["row_count"]:
        caller.write("upload", table, TWO)
    assert caller.initiate("upsert", table, key_columns=keys).status_code == 422


def test_truncate_removes_the_rows_and_keeps_the_columns(caller: Caller, table: str) -> None:
    caller.write("upload", table, TWO)
    before = caller.info(table)["snapshot_id"]
    caller.truncate(table)
    after = caller.info(table)
    assert (after["row_count"], after["total_size_bytes"]) == (0, 0)
    assert after["snapshot_id"] not in (None, before)
    assert caller.write("append", table, b"other,columns\n1,2\n")["status"] == "FAILED"
    assert caller.write("append", table, TWO)["status"] == "COMPLETED"


def test_truncate_of_a_table_without_data_leaves_it_without_a_snapshot(caller: Caller, table: str) -> None:
    caller.truncate(table)
    caller.write("upload", table, TWO)
    assert caller.info(table)["row_count"] == 2


def test_a_write_is_applied_once_however_often_its_data_is_sent(caller: Caller, table: str) -> None:
    begun = caller.initiate("append", table).json()
    replies = [caller.put(begun["upload_url"], TWO).status_code for _ in range(3)]
    caller.settled(begun["job_id"])
    assert replies == [200, 200, 200]
    assert caller.put(begun["upload_url"], TWO).status_code == 200
    assert caller.info(table)["row_count"] == 2


def test_a_job_never_changes_its_data(caller: Caller, table: str) -> None:
    begun = caller.initiate("append", table).json()
    caller.put(begun["upload_url"], TWO)
    assert caller.put(begun["upload_url"], b"id,name\n5,five\n").status_code == 409
    caller.settled(begun["job_id"])
    assert caller.info(table)["row_count"] == 2


def test_a_job_awaits_its_data_then_queues_then_completes(service: Service, caller: Caller, table: str) -> None:
    begun = caller.initiate("append", table).json()
    assert caller.job(begun["job_id"])["status"] == "AWAITING"
    service.hold()
    try:
        caller.put(begun["upload_url"], TWO)
        assert caller.job(begun["job_id"])["status"] == "QUEUED"
        assert caller.info(table)["row_count"] == 0
    finally:
        service.release()
    record = caller.settled(begun["job_id"])
    assert (record["status"], record["kind"], record["table_id"]) == ("COMPLETED", "append", table)
    assert record["created_at"] <= record["finished_at"]


def test_jobs_are_applied_in_the_order_in_which_their_data_arrived(
    service: Service, caller: Caller, table: str
) -> None:
    early, late = (caller.initiate("append", table).json() for _ in range(2))
    service.hold()
    try:
        caller.put(late["upload_url"], b"id\n1\n")
        caller.put(early["upload_url"], b"id\n2\n")
    finally:
        service.release()
    caller.settled(early["job_id"])
    assert caller.rows(table) == [{"id": 1}, {"id": 2}]


def test_an_overwrite_puts_its_rows_in_place_of_all(caller: Caller, table: str) -> None:
    caller.write("upload", table, TWO)
    before = caller.info(table)
    job = caller.write("overwrite", table, b"name,id\nnine,9\n", update_mode="overwrite")
    info = caller.info(table)
    assert caller.rows(table) == [{"id": 9, "name": "nine"}]
    assert (info["row_count"], info["snapshot_id"]) == (1, job["snapshot_id"])
    assert info["data_files"] != before["data_files"]


def test_an_overwrite_that_fails_leaves_the_rows_as_they_were(caller: Caller, table: str) -> None:
    caller.write("upload", table, TWO)
    before = caller.info(table)
    for data in (b"id,name\nx,one\n", b"id\n1\n", b""):
        assert caller.write("overwrite", table, data)["status"] == "FAILED"
    assert caller.info(table) == before
    assert caller.rows(table) == [{"id": 1, "name": "one"}, {"id": 2, "name": "two"}]


def test_an_overwrite_with_no_rows_keeps_the_columns(caller: Caller, table: str) -> None:
    caller.write("upload", table, TWO)
    caller.write("overwrite", table, b"id,name\n")
    assert caller.ask(table_id=table, format="csv").text == "id,name\n"


def test_an_overwrite_of_a_table_without_data_loads_it(caller: Caller, table: str) -> None:
    assert caller.write("overwrite", table, TWO)["status"] == "COMPLETED"
    assert caller.initiate("upload", table).status_code == 409


def test_overwrites_do_not_make_the_file_grow(service: Service, caller: Caller, table: str) -> None:
    noise = random.Random(1).randbytes(640_000).hex()  # noqa: S311  # incompressible, no secret
    data = ("a\n" + "".join(f"{noise[n : n + 64]}\n" for n in range(0, len(noise), 64))).encode()
    before = stored(service)
    for _ in range(10):
        caller.write("overwrite", table, data)
    assert stored(service) < before + 4 * len(data)


def stored(service: Service) -> int:
    """Give the bytes of the database and its log."""
    return sum(path.stat().st_size for path in service._store.directory.path.glob("store.duckdb*"))


@pytest.mark.parametrize(
    ("filters", "left"),
    [(["id:eq:1"], [2]), (["id:gt:0", "name:eq:two"], [1]), (["id:gt:5"], [1, 2]), (["id:gt:0"], [])],
)
def test_deleted_rows_are_gone_once_it_is_answered(
    caller: Caller, table: str, filters: list[str], left: list[int]
) -> None:
    caller.write("upload", table, TWO)
    reply = caller.http.post(f"/tables/{table}/data/delete", json={"filters": filters})
    assert (reply.status_code, reply.content) == (204, b"")
    assert caller.info(table)["row_count"] == len(left)
    assert [row["id"] for row in caller.rows(table)] == left


def test_a_delete_sees_the_writes_that_came_before_it(service: Service, caller: Caller, table: str) -> None:
    caller.write("upload", table, TWO)
    jobs = [caller.submit("append", table, TWO) for _ in range(5)]
    assert caller.http.post(f"/tables/{table}/data/delete", json={"filters": ["id:eq:1"]}).status_code == 204
    assert [caller.job(job)["status"] for job in jobs] == ["COMPLETED"] * 5
    assert [row["id"] for row in caller.rows(table)] == [2] * 6


@pytest.mark.parametrize(
    "body",
    [
        {"filters": []},
        {},
        {"filters": "id:eq:1"},
        {"filters": ["id"]},
        {"filters": ["no:eq:1"]},
        {"filters": ["id:eq:x"]},
    ],
)
def test_a_delete_needs_filters_that_fit(caller: Caller, table: str, body: dict[str, object]) -> None:
    caller.write("upload", table, TWO)
    assert caller.http.post(f"/tables/{table}/data/delete", json=body).status_code == 422
    assert caller.info(table)["row_count"] == 2


def test_a_delete_on_a_table_without_data_changes_nothing(caller: Caller, table: str) -> None:
    assert caller.http.post(f"/tables/{table}/data/delete", json={"filters": ["id:eq:1"]}).status_code == 204
    assert caller.info(table)["snapshot_id"] is None
    assert caller.initiate("upload", table).status_code == 200


def test_a_delete_that_no_longer_fits_when_it_runs_says_so(service: Service, caller: Caller, table: str) -> None:
    service.hold()
    try:
        caller.submit("upload", table, TWO)
        with ThreadPoolExecutor() as pool:
            reply = pool.submit(caller.http.post, f"/tables/{table}/data/delete", json={"filters": ["id:eq:x"]})
            while sum(job["status"] == "QUEUED" for job in caller.http.get("/admin/jobs").json()) < 2:
                pass
            service.release()
            assert reply.result().status_code == 422
    finally:
        service.release()
    assert caller.info(table)["row_count"] == 2
