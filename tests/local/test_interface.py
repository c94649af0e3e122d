"""The interface document, sentence by sentence, through the client and a running service.

Here stand the sentences that need both, or that no other file of this folder states. A docstring is the sentence.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from caller import Caller

from airflow_tds.client import errors
from airflow_tds.client.client import TableClient
from airflow_tds.client.models import FilterGroup, FilterLeaf, QueryResponse
from airflow_tds.local import Service

FAST: dict[str, Any] = {"timeout": 60.0, "poll_interval": 0.01}
TWO = "id,name\n1,Ada\n2,Alan\n"


@pytest.fixture(scope="module")
def client(service: Service) -> Iterator[TableClient]:
    with TableClient(service.url, token=service.token) as talking:
        yield talking


@pytest.fixture
def loaded(client: TableClient, table: str) -> str:
    """A table with two rows."""
    client.upload(table, TWO, **FAST)
    return table


def held(service: Service, client: TableClient, table: str, act: Callable[[], Any]) -> tuple[Any, int]:
    """Act while no job may start; give what came back, and the rows that there were then."""
    service.hold()
    try:
        answer = act()
        return answer, client.info(table).row_count or 0
    finally:
        service.release()


@pytest.mark.parametrize("mode", ["append", "overwrite", "upsert"])
def test_writes_are_never_applied_inside_the_request(
    service: Service, client: TableClient, loaded: str, mode: str
) -> None:
    """§1: Writes are never applied inside the request. §4.2: A `submit_*` call returns without waiting."""
    keys = {"key_columns": ["id", "name"]} if mode == "upsert" else {}
    job_id, count = held(
        service, client, loaded, lambda: getattr(client, f"submit_{mode}")(loaded, "id,name\n3,Eve\n", **keys)
    )
    assert (type(job_id), count) == (str, 2)
    assert client.wait(job_id, **FAST).status == "COMPLETED"
    assert client.info(loaded).row_count == (1 if mode == "overwrite" else 3)


def test_a_write_returns_a_completed_job_record_if_the_caller_waits(client: TableClient, table: str) -> None:
    """§1: ... a completed job record if the caller waits."""
    assert client.upload(table, TWO, **FAST).status == "COMPLETED"


def test_job_status_can_be_read_at_any_time(service: Service, client: TableClient, loaded: str) -> None:
    """§1: Job status can be read at any time by job identifier."""
    job_id, _ = held(service, client, loaded, lambda: client.submit_append(loaded, TWO))
    assert client.wait(job_id, **FAST).status == "COMPLETED"
    assert client.get_job(job_id).status == "COMPLETED"


def test_a_failed_job_has_a_description(client: TableClient, loaded: str) -> None:
    """§2.3: error: failure description, present when status is FAILED."""
    job_id = client.submit_append(loaded, "id,name\nthree,Eve\n")
    with pytest.raises(errors.JobFailed, match=r"row 1, column 'id': 'three' is no BIGINT"):
        client.wait(job_id, **FAST)
    assert client.get_job(job_id).error


def test_statistics_are_told_without_a_job(service: Service, client: TableClient, loaded: str) -> None:
    """§2.2: A snapshot of table statistics, produced without scanning the data."""
    info, _ = held(service, client, loaded, lambda: client.info(loaded))
    assert (info.row_count, len(info.data_files)) == (2, 1)
    assert info.total_size_bytes > 0
    assert info.last_updated is not None
    assert info.snapshot_id


def test_truncate_takes_effect_later_and_keeps_the_schema(service: Service, client: TableClient, loaded: str) -> None:
    """§3.1: All rows are removed asynchronously; the schema is kept. Writes should wait for that."""
    answer, count = held(service, client, loaded, lambda: client.truncate(loaded))
    assert (answer, count) == (None, 2)
    client.wait_until_truncated(loaded, **FAST)
    assert client.query(loaded, format="csv", **FAST) == b"id,name\n"


@pytest.mark.parametrize("mode", ["append", "overwrite", "upsert"])
def test_a_truncated_table_is_loaded_again_by_other_writes(client: TableClient, loaded: str, mode: Any) -> None:
    """§3.1: Rejected with conflict (409). Reload with append, overwrite or upsert."""
    client.truncate(loaded)
    client.wait_until_truncated(loaded, **FAST)
    with pytest.raises(errors.Conflict) as refused:
        client.submit_upload(loaded, TWO)
    client.update(loaded, TWO, update_mode=mode, key_columns="id" if mode == "upsert" else None, **FAST)
    assert (refused.value.status, client.info(loaded).row_count) == (409, 2)


@pytest.mark.parametrize("mode", ["append", "overwrite", "upsert"])
def test_an_update_is_the_write_that_its_mode_names(client: TableClient, loaded: str, mode: Any) -> None:
    """§2.8: append adds, overwrite replaces, upsert updates what matches and inserts the others."""
    client.update(
        loaded, "id,name\n2,Turing\n3,Eve\n", update_mode=mode, key_columns="id" if mode == "upsert" else None, **FAST
    )
    found = client.query(loaded)
    assert found is not None
    expected = {
        "append": ["Ada", "Alan", "Turing", "Eve"],
        "overwrite": ["Turing", "Eve"],
        "upsert": ["Ada", "Turing", "Eve"],
    }
    assert sorted(row["name"] for row in found.items) == sorted(expected[mode])


def as_bytes(text: str, folder: Path) -> Any:
    return text.encode()


def as_stream(text: str, folder: Path) -> Any:
    return io.BytesIO(text.encode())


def as_chunks(text: str, folder: Path) -> Any:
    return iter([text[:5].encode(), text[5:].encode()])


@pytest.mark.parametrize("sent", [as_bytes, as_stream, as_chunks])
def test_a_payload_is_sent_in_three_ways(
    client: TableClient, service: Service, table: str, tmp_path: Path, sent: Callable[[str, Path], Any]
) -> None:
    """§4: as bytes; as a file-like stream with a known length; or as chunks with unknown total length."""
    client.upload(table, sent(TWO, tmp_path), **FAST)
    put = [record for record in service.requests if record.operation == "put_payload"][-1]
    assert ("content-length" in put.headers) is (sent is not as_chunks)
    assert put.headers.get("transfer-encoding") == ("chunked" if sent is as_chunks else None)
    assert client.info(table).row_count == 2


def test_some_stores_refuse_chunks() -> None:
    """§4: some object-storage endpoints reject it with HTTP 411; the client then sends the length."""
    with Service(tables=["t"], chunked=False) as strict, TableClient(strict.url, token=strict.token) as client:
        client.upload("t", iter([TWO.encode()]), **FAST)
        puts = [record.status for record in strict.requests if record.operation == "put_payload"]
        assert (puts, client.info("t").row_count) == ([411, 200], 2)


def test_an_upload_goes_through_a_presigned_address(client: TableClient, service: Service, table: str) -> None:
    """§4.2 rule 1: Upload first obtains a presigned URL, then sends the data to that URL with an HTTP PUT."""
    client.submit_upload(table, TWO)
    first, second = [record for record in service.requests if record.method != "GET"][-2:]
    assert (first.operation, second.operation, second.method) == ("upload", "put_payload", "PUT")
    assert "authorization" not in second.headers


def test_an_unchanged_table_returns_nothing(client: TableClient, loaded: str) -> None:
    """§4.2 rule 3: 304 Not Modified and the operation returns nothing; otherwise a fresh QueryResponse."""
    page = client.query(loaded)
    assert isinstance(page, QueryResponse)
    assert client.query(loaded, etag=page.etag) is None
    client.append(loaded, TWO, **FAST)
    fresh = client.query(loaded, etag=page.etag)
    assert fresh is not None
    assert (fresh.metadata.total_count, fresh.etag != page.etag) == (4, True)


def test_the_etag_is_empty_before_any_data(client: TableClient, table: str) -> None:
    """§2.4: It is the empty string when the table has no snapshot yet (no data was ever ingested)."""
    page = client.query(table)
    assert isinstance(page, QueryResponse)
    assert (page.items, page.etag) == ([], "")


@pytest.mark.parametrize("result_format", ["parquet", "csv"])
def test_the_etag_is_ignored_for_files(client: TableClient, caller: Caller, loaded: str, result_format: Any) -> None:
    """§4.2 rule 3: The etag is ignored for parquet and csv."""
    page = client.query(loaded)
    assert page is not None
    assert client.query(loaded, format=result_format, etag=page.etag, **FAST)
    begun = caller.http.post(
        "/data/queries",
        json={"table_id": loaded, "format": result_format},
        headers={"If-None-Match": f'"{page.etag}"'},
    )
    assert begun.status_code == 202


def test_an_asynchronous_query_gives_parquet_by_default(client: TableClient, loaded: str, tmp_path: Path) -> None:
    """§2.7: `parquet` (default for async submission)."""
    path = client.poll_download_to(client.submit_query(loaded), tmp_path / "result", **FAST)
    assert duckdb.read_parquet(str(path)).fetchall() == [(1, "Ada"), (2, "Alan")]


def test_simple_expressions_become_one_predicate(client: TableClient, loaded: str) -> None:
    """§2.6: Several expressions combine with AND. ... converted into one structured AND predicate."""
    found = client.query(loaded, filters=["id:gt:0", "name:ne:Ada"], format="csv", **FAST)
    assert found == b"id,name\n2,Alan\n"


def test_a_poll_of_a_result_redirects_to_it(caller: Caller, client: TableClient, loaded: str) -> None:
    """§4.2: When the result is ready it answers 307 with a redirect to the presigned result file."""
    job_id = client.submit_query(loaded, format="csv")
    client.wait(job_id, **FAST)
    ready = caller.http.get(f"/data/query/{job_id}")
    assert ready.status_code == 307
    assert caller.store.get(ready.headers["location"]).text == TWO


def test_a_redirect_without_a_target_is_a_job_failure(service: Service, client: TableClient, loaded: str) -> None:
    """§4.2: A redirect response without a target location is a job failure."""
    job_id = client.submit_query(loaded)
    client.wait(job_id, **FAST)
    service.fault("poll_query", headers={"Location": None})
    with pytest.raises(errors.JobFailed):
        client.poll_download(job_id, **FAST)
    service.clear_faults()


def test_a_cross_query_takes_a_mapping_and_gives_bytes(client: TableClient, loaded: str) -> None:
    """§4.1: CrossQueryRequest (or an equivalent plain mapping). §2.5: A join given without `how` is accepted."""
    join = {"table_id": loaded, "left_on": "id", "right_on": "id"}
    asked = {"table_id": loaded, "joins": [join], "select": ["name"], "format": "json"}
    assert json.loads(client.cross_query(asked, **FAST)) == [{"name": "Ada"}, {"name": "Alan"}]


@pytest.mark.parametrize(
    ("operator", "value", "left"),
    [("eq", 1, 1), ("ne", 1, 1), ("lt", 2, 1), ("lte", 2, 2), ("gt", 1, 1), ("gte", 1, 2), ("eq", "2", 1)],
)
def test_a_leaf_compares_with_a_number_or_a_string(
    client: TableClient, loaded: str, operator: Any, value: float | str, left: int
) -> None:
    """§2.5: Operators in use; value: comparison value (number or string); a leaf is given directly."""
    asked = {"table_id": loaded, "filters": FilterLeaf(field="id", operator=operator, value=value), "format": "json"}
    assert len(json.loads(client.cross_query(asked, **FAST))) == left


def test_a_group_needs_two_predicates(caller: Caller, loaded: str) -> None:
    """§8: Minimum predicates in a FilterGroup: 2."""
    leaf = {"field": "id", "operator": "eq", "value": 1}
    for count, status in ((1, 422), (2, 202)):
        asked = {"table_id": loaded, "filters": {"type": "or", "predicates": [leaf] * count}}
        assert caller.http.post("/data/queries", json=asked).status_code == status
    with pytest.raises(ValueError, match="at least 2"):
        FilterGroup.model_validate({"type": "or", "predicates": [leaf]})


@pytest.mark.parametrize(("limit", "status"), [(10_000, 200), (10_001, 422)])
def test_a_page_has_ten_thousand_rows_at_most(caller: Caller, loaded: str, limit: int, status: int) -> None:
    """§8: Maximum rows per JSON query page: 10 000; larger limits are rejected."""
    assert caller.http.get(f"/tables/{loaded}/data/query", params={"limit": limit}).status_code == status


def test_a_blocking_operation_times_out_and_its_job_goes_on(service: Service, client: TableClient, loaded: str) -> None:
    """§4.2 rule 8: They report a timeout error when the job has not completed in time."""
    service.hold()
    try:
        with pytest.raises(errors.WaitTimedOut) as late:
            client.append(loaded, TWO, timeout=0.2, poll_interval=0.05)
    finally:
        service.release()
    assert client.wait(late.value.job_id, **FAST).status == "COMPLETED"


def test_all_errors_have_one_base(client: TableClient, service: Service, loaded: str) -> None:
    """§7: All of these derive from one common base error kind. §5: unauthorized, forbidden."""
    with TableClient(service.url, token="wrong") as stranger:
        asked: list[Callable[[], Any]] = [
            lambda: client.info("nowhere"),
            lambda: client.get_job("none"),
            lambda: client.submit_upload(loaded, TWO),
            lambda: client.query(loaded, limit=10_001),
            lambda: client.delete_rows(loaded, []),
            lambda: stranger.info(loaded),
        ]
        kinds = []
        for ask in asked:
            with pytest.raises(errors.TableServiceError) as refused:
                ask()
            kinds.append(type(refused.value).__name__)
    assert kinds == [
        "TableNotFound",
        "JobNotFound",
        "Conflict",
        "ValidationFailed",
        "ValidationFailed",
        "Unauthorized",
    ]
