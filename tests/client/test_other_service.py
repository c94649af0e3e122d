"""A service that differs from every assumed form at once is passed by settings alone, on both faces."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from other_service import KEY, KEY_HEADER, READ_ONLY_KEY, OtherService, Sheet, other_service

from airflow_tds.client import errors
from airflow_tds.client.client import AsyncTableClient, TableClient
from airflow_tds.client.credentials import ApiKey
from airflow_tds.client.filters import col
from airflow_tds.client.wire import Wire

SETTING = json.loads((Path(__file__).parents[1] / "support" / "other_wire.json").read_text())
WIRE = Wire.from_setting(SETTING)
#: What excludes a form of the first: rows as lines have no columns, and jobs are polled in one way or the other.
SECOND = Wire.from_setting(SETTING | {"poll_by": "get_job", "page_layout": "lines", "columns": []})
FIRST = b"id,name\n1,a\n2,b\n"
SOON = {"timeout": 20.0, "poll_interval": 0.01}
SHORT = {"timeout": 0.5, "poll_interval": 0.01}


@pytest.fixture
def other() -> Iterator[OtherService]:
    with other_service(t=Sheet(), u=Sheet(["id", "city"], [["1", "x"], ["2", "y"]], 1)) as service:
        yield service


class Caller:
    """Calls an operation of either face."""

    def __init__(self, client: TableClient | AsyncTableClient) -> None:
        self._client = client

    async def __call__(self, operation: str, *args: Any, **kwargs: Any) -> Any:
        found = getattr(self._client, operation)(*args, **kwargs)
        return await found if inspect.isawaitable(found) else found

    async def rows(self, table_id: str, **kwargs: Any) -> list[dict[str, Any]]:
        found = self._client.iter_rows(table_id, **kwargs)
        return [row async for row in found] if isinstance(found, AsyncIterator) else list(found)


@asynccontextmanager
async def calling(face: str, url: str, key: str = KEY, wire: Wire = WIRE) -> AsyncIterator[Caller]:
    """Give a client that was told nothing but settings."""
    credentials = ApiKey(key, KEY_HEADER)
    if face == "blocking":
        with TableClient(url, credentials=credentials, wire=wire) as client:
            yield Caller(client)
    else:
        async with AsyncTableClient(url, credentials=credentials, wire=wire) as aclient:
            yield Caller(aclient)


Scenario = Callable[[Caller], Coroutine[Any, Any, None]]


@pytest.fixture
def play(face: str, other: OtherService) -> Callable[[Scenario], None]:
    """Play a scenario with a client of a face."""

    async def played(scenario: Scenario) -> None:
        async with calling(face, other.url) as call:
            await scenario(call)

    return lambda scenario: asyncio.run(played(scenario))


def test_every_assumed_form_is_set_otherwise() -> None:
    default = Wire()

    same = {name for name in Wire.model_fields if getattr(WIRE, name) == getattr(default, name)}
    assert same == {"poll_by", "page_layout"}
    assert not [name for name in same if getattr(SECOND, name) == getattr(default, name)]


def test_every_write(play: Any, other: OtherService) -> None:
    async def scenario(call: Caller) -> None:
        assert (await call("upload", "t", FIRST, **SOON)).status == "COMPLETED"
        assert (await call("append", "t", iter([b"id,name\n", b"3,c\n"]), **SOON)).status == "COMPLETED"
        assert other.sheets["t"].rows == [["1", "a"], ["2", "b"], ["3", "c"]]
        await call("upsert", "t", b"id,name\n2,z\n", key_columns=["id", "id"], **SOON)
        assert other.sheets["t"].rows == [["1", "a"], ["3", "c"], ["2", "z"]]
        await call("update", "t", [{"id": "4", "name": "d"}], update_mode="append", **SOON)
        assert other.sheets["t"].rows[-1] == ["4", "d"]
        await call("overwrite", "t", b"id,name\n9,i\n", **SOON)
        assert other.sheets["t"].rows == [["9", "i"]]

    play(scenario)


def test_every_submission(play: Any, other: OtherService) -> None:
    async def scenario(call: Caller) -> None:
        jobs = [
            await call("submit_upload", "t", FIRST),
            await call("submit_append", "t", FIRST),
            await call("submit_overwrite", "t", FIRST),
            await call("submit_upsert", "t", b"id,name\n1,y\n", key_columns="id"),
            await call("submit_update", "t", b"id,name\n5,e\n", update_mode="append"),
        ]
        assert jobs == ["1", "2", "3", "4", "5"]
        for job_id in jobs:
            await call("wait", job_id, **SOON)
        assert other.sheets["t"].rows == [["2", "b"], ["1", "y"], ["5", "e"]]

    play(scenario)


def test_what_is_told_of_tables_and_jobs(play: Any) -> None:
    async def scenario(call: Caller) -> None:
        info = await call("info", "u")
        assert (info.row_count, info.total_size_bytes, info.data_files, info.snapshot_id) == (2, 12, 1, "1")
        assert info.last_updated.isoformat() == "2026-01-01T00:10:00+00:00"
        initiation = await call("initiate", "overwrite", "u")
        assert 200 < initiation.lifetime <= 301
        assert (await call("get_job", initiation.job_id)).status == "WAITING"
        await call("send_data", initiation, b"id,city\n7,z\n")
        assert (await call("get_job", initiation.job_id)).status == "WORKING"
        assert (await call("get_job", initiation.job_id)).status == "COMPLETED"

    play(scenario)


def test_rows_are_deleted_and_a_table_is_emptied(play: Any, other: OtherService) -> None:
    async def scenario(call: Caller) -> None:
        await call("delete_rows", "u", [col("id") == "1", "city:ne:y"])
        assert other.sheets["u"].rows == [["2", "y"]]
        await call("truncate", "u")
        assert (await call("wait_until_truncated", "u", **SOON)).row_count == 0

    play(scenario)


def test_pages(play: Any) -> None:
    async def scenario(call: Caller) -> None:
        page = await call("query", "u", filters=["id:gte:1", "city:eq:y"], limit=5)
        assert (page.items, page.etag) == ([{"id": "2", "city": "y"}], "v1")
        assert (page.metadata.total_count, page.metadata.has_next) == (1, False)
        assert await call("query", "u", etag="v1") is None
        assert (await call("query", "t")).etag == ""
        assert await call.rows("u", page_size=1) == [{"id": "1", "city": "x"}, {"id": "2", "city": "y"}]

    play(scenario)


def test_pages_of_lines(face: str, other: OtherService) -> None:
    other.lines_of_rows = True

    async def scenario() -> None:
        async with calling(face, other.url, wire=SECOND) as call:
            page = await call("query", "u", limit=1)
            assert (page.items, page.etag) == ([{"id": "1", "city": "x"}], "v1")
            assert (page.metadata.total_count, page.metadata.has_next) == (2, True)
            assert await call.rows("u", page_size=1) == [{"id": "1", "city": "x"}, {"id": "2", "city": "y"}]
            assert (await call("query", "t")).items == []

    asyncio.run(scenario())


def test_a_query_whose_record_tells_how_it_stands(face: str, other: OtherService, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with calling(face, other.url, wire=SECOND) as call:
            assert await call("query", "u", filters="id:eq:1", format="csv", **SOON) == b"id,city\n1,x\n"
            job_id = await call("submit_query", "u", format="csv")
            path = await call("poll_download_to", job_id, tmp_path / "r", **SOON)
            assert path.read_bytes() == b"id,city\n1,x\n2,y\n"
            with pytest.raises(errors.JobFailed, match="no column x"):
                await call("cross_query", {"table_id": "u", "select": ["x"]}, **SOON)

    asyncio.run(scenario())
    looks = [line for line in other.lines if "/tickets?" in line]
    files = [line for line in other.lines if line.endswith("/file")]
    assert len(looks) > len(files) == 2


def test_queries_into_files(play: Any, tmp_path: Path) -> None:
    joined = {
        "table_id": "u",
        "filters": {"field": "id", "operator": "gt", "value": 1},
        "joins": [{"table_id": "u", "how": "inner", "left_on": "id", "right_on": "id"}],
        "select": ["city"],
        "format": "csv",
    }

    async def scenario(call: Caller) -> None:
        assert await call("query", "u", filters="id:eq:1", format="csv", **SOON) == b"id,city\n1,x\n"
        assert await call("query", "u", format="parquet", **SOON) == b"PAR1id,city\n1,x\n2,y\n"
        assert await call("cross_query", joined, **SOON) == b"city\ny\n"
        assert await call("poll_download", await call("submit_query", "u"), **SOON) == b"PAR1id,city\n1,x\n2,y\n"
        path = await call("poll_download_to", await call("submit_cross_query", joined), tmp_path / "r", **SOON)
        assert path.read_bytes() == b"city\ny\n"

    play(scenario)


@pytest.mark.parametrize(
    ("operation", "args", "kind", "text"),
    [
        ("info", ("none",), errors.TableNotFound, "no sheet 'none'"),
        ("get_job", ("99",), errors.JobNotFound, "no ticket '99'"),
        ("poll_download", ("99",), errors.JobNotFound, "no ticket '99'"),
        ("submit_upload", ("u", FIRST), errors.Conflict, "it has, or had, data"),
        ("cross_query", ({"table_id": "u", "select": ["x"]},), errors.JobFailed, "no column x"),
        ("append", ("u", FIRST), errors.JobFailed, "the columns are others"),
        ("submit_append", ("u", FIRST, "parquet"), errors.ValidationFailed, "format 'parquet' is none of csv, json"),
    ],
)
def test_every_kind_of_no(play: Any, operation: str, args: Any, kind: type[Exception], text: str) -> None:
    async def scenario(call: Caller) -> None:
        patience = SHORT if operation == "poll_download" else {}  # what is missing is looked for again a while
        with pytest.raises(kind, match=text):
            await call(operation, *args, **patience)

    play(scenario)


@pytest.mark.parametrize(
    ("key", "kind"), [("wrong", errors.Unauthorized), (READ_ONLY_KEY, errors.Forbidden)], ids=["unknown", "read-only"]
)
def test_who_may_not(face: str, other: OtherService, key: str, kind: type[Exception]) -> None:
    async def scenario() -> None:
        async with calling(face, other.url, key) as call:
            with pytest.raises(kind):
                await call("truncate", "u")

    asyncio.run(scenario())
    assert other.sheets["u"].rows == [["1", "x"], ["2", "y"]]


def test_without_its_settings_nothing_is_done(face: str, other: OtherService) -> None:
    with TableClient(other.url, credentials=ApiKey(KEY, KEY_HEADER)) as client, pytest.raises(errors.Refused):
        client.truncate("u")

    assert other.sheets["u"].rows == [["1", "x"], ["2", "y"]]


def test_the_other_service_knows_nothing_of_ours() -> None:
    text = (Path(__file__).parents[1] / "support" / "other_service.py").read_text()

    assert "airflow_tds" not in text
