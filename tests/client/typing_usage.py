"""The documented usage of the client; never run, but type-checked with everything else."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import assert_type

from airflow_tds.client.access import Timeouts, Tls
from airflow_tds.client.client import AsyncTableClient, TableClient
from airflow_tds.client.credentials import ApiKey, Credentials, Together
from airflow_tds.client.filters import col, parse_simple
from airflow_tds.client.models import CrossQueryRequest, DataJobResponse, DatasetInfoResponse, FilterLeaf, JoinSpec
from airflow_tds.client.progress import Progress
from airflow_tds.client.waiting import Outcome, Reading, Watch
from airflow_tds.client.wire import Initiation


def blocking(watch: Watch) -> None:
    """Use the client from a thread."""
    with TableClient("https://host:8443/api/v1", token="t") as client:
        assert_type(client.info("flights"), DatasetInfoResponse)
        assert_type(client.upload("flights", Path("flights.csv")), DataJobResponse)
        assert_type(client.append("flights", "a,b\n1,2\n", timeout=60, poll_interval=1.0), DataJobResponse)
        assert_type(client.upsert("flights", b"[]", "json", key_columns=["a"]), DataJobResponse)
        assert_type(client.submit_upload("flights", io.BytesIO(b"a\n")), str)
        assert_type(client.submit_append("flights", [b"a\n", b"1\n"], unknown_length="spool"), str)
        assert_type(client.submit_upsert("flights", lambda: [b"a\n"], key_columns="a"), str)
        assert_type(client.append("flights", [{"a": 1, "b": None}, {"a": "x", "b": 0.5}]), DataJobResponse)
        assert_type(client.upsert("flights", read_rows(), "ndjson", key_columns=("a", "b")), DataJobResponse)
        assert_type(client.delete_rows("flights", "a:eq:1", wait_for_snapshot=True), None)
        assert_type(client.truncate("flights"), None)
        assert_type(client.wait_until_truncated("flights"), DatasetInfoResponse)
        assert_type(client.get_job("j"), DataJobResponse)
        assert_type(client.wait("j", timeout=5), DataJobResponse)
        assert_type(client.cross_query({"table_id": "flights", "filters": col("hour") >= 18}), bytes)
        assert_type(client.submit_cross_query(request()), str)
        assert_type(client.poll_download_to("j", "out.parquet"), Path)
        assert_type(client.initiate("append", "flights"), Initiation)
        assert_type(client.look(watch), Reading)
        assert_type(client.watch(watch), Outcome)
        client.stop()


async def awaited() -> None:
    """Use the client from a coroutine."""
    async with AsyncTableClient("https://host", token="t") as client:
        assert_type(await client.info("flights"), DatasetInfoResponse)
        assert_type(await client.append("flights", Path("flights.csv")), DataJobResponse)
        assert_type(await client.append("flights", stream()), DataJobResponse)
        assert_type(await client.poll_download_to("j", Path("out.csv")), Path)


def read_rows() -> Iterator[Mapping[str, int]]:
    """Give rows one after the other."""
    yield {"a": 1, "b": 2}


async def stream() -> AsyncIterator[bytes]:
    """Give bytes as they come."""
    yield b"a\n1\n"


def request() -> CrossQueryRequest:
    """Write a request with models."""
    return CrossQueryRequest(
        table_id="flights",
        filters=FilterLeaf(field="hour", operator="gte", value=18),
        joins=[JoinSpec(table_id="planes", how="left", left_on="tailnum", right_on="tailnum")],
        select=["flight", "model"],
        format="csv",
    )


def filters() -> object:
    """Write conditions."""
    return (col("a") == 1) & (col("b") != "x") | parse_simple("c:lt:5")


class Own(Credentials):
    """A scheme of one's own."""

    def fields(self) -> dict[str, str]:
        """Give the header fields."""
        return {"X-Signed-By": "me"}


def settings(report: Callable[[Progress], None]) -> None:
    """Say how to reach the service."""
    TableClient("https://host", credentials=Own(), timeouts=Timeouts(read=120), progress=report)
    TableClient("https://host", credentials=Together(Own(), ApiKey("k", "X-Account")))
    AsyncTableClient("https://host", tls=Tls("ca.pem", "me.pem"), proxy="none", storage_hosts=["s3.example.com"])


def refused() -> None:
    """Show that wrong calls are seen: each ignore below is needed, or the type check fails."""
    client = TableClient("https://host")
    client.info()  # type: ignore[call-arg]
    client.upsert("t", b"")  # type: ignore[call-arg]
    client.append("t", 7)  # type: ignore[arg-type]
    client.append("t", b"", tiemout=5)  # type: ignore[call-arg]
