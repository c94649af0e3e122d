"""The queries of §2.4, §2.5 and §4.2: pages of JSON at once, files through jobs and a redirect."""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Literal, overload

from pydantic import ValidationError

from airflow_tds.client import errors
from airflow_tds.client.calls import (
    LONGEST_RETRY_AFTER,
    POLL_INTERVAL,
    SHORTEST_LOOK,
    TIMEOUT,
    TRANSFER_TRIES,
    Calls,
    asked,
    backoff,
)
from airflow_tds.client.downloads import Download
from airflow_tds.client.filters import Filters
from airflow_tds.client.messages import SecretUrl
from airflow_tds.client.models import CrossQueryRequest, QueryResponse, describe
from airflow_tds.client.waiting import Watch

__all__ = ["Pages", "Queries"]

log = logging.getLogger(__name__)
#: What a store says of a link that is no longer good (Azure and GCS: 400), or of a result that has moved or changed.
STALE = (400, 401, 403, 404, 410, 416)


@dataclass
class Pages:
    """Where the reading of a table page by page stands.

    Attributes:
        table_id: The table.
        filters: Simple filters; None for all rows.
        page_size: Rows a page, 1 to 10 000.
        offset: Rows read so far.
        etag: The first page's; None before it. Every page must carry it, else two snapshots would mix.
        over: Whether the last page was read.
    """

    table_id: str
    filters: Filters
    page_size: int
    offset: int = 0
    etag: str | None = None
    over: bool = False


class Queries(Calls):
    """The operations that read a table's rows."""

    @overload
    async def query(
        self,
        table_id: str,
        *,
        filters: Filters = None,
        format: Literal["json"] = "json",
        limit: int | None = None,
        offset: int = 0,
        etag: str | None = None,
        timeout: float = TIMEOUT,
        poll_interval: float = POLL_INTERVAL,
    ) -> QueryResponse | None: ...

    @overload
    async def query(
        self,
        table_id: str,
        *,
        filters: Filters = None,
        format: Literal["parquet", "csv"],
        etag: str | None = None,
        timeout: float = TIMEOUT,
        poll_interval: float = POLL_INTERVAL,
    ) -> bytes: ...

    async def query(
        self,
        table_id: str,
        *,
        filters: Filters = None,
        format: Literal["json", "parquet", "csv"] = "json",  # noqa: A002  # the interface's word
        limit: int | None = None,
        offset: int = 0,
        etag: str | None = None,
        timeout: float = TIMEOUT,
        poll_interval: float = POLL_INTERVAL,
    ) -> QueryResponse | bytes | None:
        """Query one table: a page of JSON at once, or a parquet or CSV file through a job, §4.2 rules 2-4.

        Args:
            table_id: The table.
            filters: Simple filters or predicates, which combine with AND; for json only what simple filters
                can say (§2.6). None for all rows.
            format: `json`, `parquet` or `csv`.
            limit: For json: rows at most, 1 to 10 000; None leaves it to the service.
            offset: For json: rows to leave out at the start.
            etag: For json: what an earlier page carried, to learn whether the table has changed. Ignored for
                parquet and csv (§4.2 rule 3). None or empty asks unconditionally.
            timeout: For parquet and csv: seconds from now after which waiting ends.
            poll_interval: For parquet and csv: seconds between two reads of the status, at most.

        Returns:
            For json a page, or None when the table has not changed since the etag. Otherwise the file's bytes.

        Raises:
            ValidationFailed: A parameter is out of range, or limit or offset is given for a file.
            JobFailed: The query failed.
            WaitTimedOut: The query goes on after the timeout.
        """
        if format == "json":
            request = self.wire.page_request(table_id, filters, limit, offset, etag or "")
            page = await self._read(request, self.wire.read_page)
            if page is None and not etag:
                raise errors.UnexpectedReply("query: 304 although no etag was sent")
            return page
        if limit is not None or offset:
            raise errors.ValidationFailed(f"limit and offset are for json, not for {format} (§4.2)")
        watch = self._watch(timeout, poll_interval)
        return await self._downloaded(watch, await self.submit_query(table_id, filters=filters, format=format))

    async def next_page(self, pages: Pages) -> list[dict[str, Any]] | None:
        """Read the next page of a table; used by `iter_rows`.

        Args:
            pages: Which rows, and where the reading stands; it is moved on.

        Returns:
            Rows; None at the end.

        Raises:
            SnapshotChanged: The table has changed since the first page.
        """
        if pages.over:
            return None
        page = await self.query(pages.table_id, filters=pages.filters, limit=pages.page_size, offset=pages.offset)
        if page is None:
            raise AssertionError("unreachable: without an etag there is a page")
        if pages.etag is not None and page.etag != pages.etag:
            raise errors.SnapshotChanged(
                f"table {pages.table_id} changed after {pages.offset} rows were read; read it again from the start"
            )
        pages.etag, pages.over = page.etag, not (page.metadata.has_next and page.items)
        pages.offset += len(page.items)
        return page.items

    async def submit_query(
        self,
        table_id: str,
        *,
        filters: Filters = None,
        format: Literal["parquet", "csv"] = "parquet",  # noqa: A002  # the interface's word
    ) -> str:
        """Start a query of one table into a file, §4.2.

        Args:
            table_id: The table.
            filters: Simple filters or predicates, which combine with AND; None for all rows.
            format: `parquet` or `csv`.

        Returns:
            The job's id.

        Raises:
            ValidationFailed: The format is another, or a filter breaks a rule of §2.5.
        """
        if format not in ("parquet", "csv"):
            raise errors.ValidationFailed(f"format is parquet or csv, not {format!r} (§2.7)")
        return await self.submit_cross_query(
            {"table_id": table_id, "filters": self.wire.predicate(filters), "format": format}
        )

    async def submit_cross_query(self, request: CrossQueryRequest | Mapping[str, Any]) -> str:
        """Start a query over one or several tables, §2.5.

        Args:
            request: A `CrossQueryRequest`, or a plain mapping of the same shape.

        Returns:
            The job's id.

        Raises:
            ValidationFailed: The request breaks a rule of §2.5; the text names field and rule.
        """
        try:
            query = CrossQueryRequest.model_validate(request)
        except ValidationError as invalid:
            raise errors.ValidationFailed(f"cross query: {describe(invalid)}") from None
        return await self._read(self.wire.start_query_request(query), self.wire.read_job_id)

    async def cross_query(
        self,
        request: CrossQueryRequest | Mapping[str, Any],
        *,
        timeout: float = TIMEOUT,
        poll_interval: float = POLL_INTERVAL,
    ) -> bytes:
        """Query one or several tables and wait for the result, §2.5.

        Args:
            request: A `CrossQueryRequest`, or a plain mapping of the same shape.
            timeout: Seconds from now after which waiting ends.
            poll_interval: Seconds between two reads of the status, at most.

        Returns:
            The result file's bytes, in the format asked for.

        Raises:
            ValidationFailed: The request breaks a rule of §2.5.
            JobFailed: The query failed.
            WaitTimedOut: The query goes on after the timeout.
        """
        watch = self._watch(timeout, poll_interval)
        return await self._downloaded(watch, await self.submit_cross_query(request))

    async def poll_download(
        self, job_id: str, *, timeout: float = TIMEOUT, poll_interval: float = POLL_INTERVAL
    ) -> bytes:
        """Wait for a query and read its result into memory, §4.2.

        Args:
            job_id: The query's job.
            timeout: Seconds from now after which waiting ends.
            poll_interval: Seconds between two reads of the status, at most.

        Returns:
            The result file's bytes.

        Raises:
            JobFailed: The query failed, or its redirect names no result, §7.
            WaitTimedOut: The query goes on after the timeout.
        """
        return await self._downloaded(self._watch(timeout, poll_interval), job_id)

    async def poll_download_to(
        self,
        job_id: str,
        destination: str | os.PathLike[str],
        *,
        timeout: float = TIMEOUT,
        poll_interval: float = POLL_INTERVAL,
    ) -> Path:
        """Wait for a query and stream its result to a file, §4.2.

        A failed download can leave a partial file: no temporary name is used (§4.2 rule 7).

        Args:
            job_id: The query's job.
            destination: The file to write; once the result is there to be fetched, it is replaced.
            timeout: Seconds from now after which waiting ends.
            poll_interval: Seconds between two reads of the status, at most.

        Returns:
            The written path.

        Raises:
            JobFailed: The query failed, or its redirect names no result, §7.
            WaitTimedOut: The query goes on after the timeout.
        """
        path = Path(destination)
        watch = replace(self._watch(timeout, poll_interval), kind="query", subject=job_id)
        url = await self._result_url(watch)
        with path.open("wb") as sink:
            await self._fetch(watch, url, sink)
        return path

    async def _downloaded(self, watch: Watch, job_id: str) -> bytes:
        watch = replace(watch, kind="query", subject=job_id)
        sink = io.BytesIO()
        await self._fetch(watch, await self._result_url(watch), sink)
        return sink.getvalue()

    async def _fetch(self, watch: Watch, url: SecretUrl, sink: BinaryIO) -> None:
        """Pour a result; one that broke off is asked for again: its rest where the store can, else all of it.

        A try that brought a part which is kept does not count, so that a large result comes through a bad line.
        """
        download = Download(sink)
        ends = self._runtime.now() + self._timeouts.download
        failures = 0
        while True:
            kept = download.received
            request = self.wire.download_request(watch.subject, url, download)
            try:
                await self._once(replace(request, limit=max(SHORTEST_LOOK, ends - self._runtime.now())))
            except (errors.StorageRefused, errors.TransportFailed, errors.ServerError) as failed:
                failures = 1 if download.resumable and download.received > kept else failures + 1
                wait = backoff(failures, asked(failed))
                out_of_time = wait > min(LONGEST_RETRY_AFTER, ends - self._runtime.now())
                if failures == TRANSFER_TRIES or out_of_time or _is_final(failed):
                    raise
                if not download.resumable or _out_of_range(failed):
                    download.restart()
                log.warning("%s; the result is asked for again from byte %d in %.1f s", failed, download.received, wait)
            else:
                return
            await self._runtime.pause(wait)
            url = await self._result_url(watch)

    async def _result_url(self, watch: Watch) -> SecretUrl:
        reply = await self._awaited(watch)
        if self.wire.poll_by == "get_job":  # the record says when; where, only the redirect does
            reply = await self._call(self.wire.result_request(watch.subject))
        poll = self.wire.read_poll(reply)
        if poll.result is None:
            why = poll.job.error or f"it is COMPLETED, yet the poll path says {poll.job.status}"
            raise errors.JobFailed(f"job {watch.subject} failed: {why}", job_id=watch.subject)
        return poll.result


def _is_final(error: errors.TableServiceError) -> bool:
    """Say whether asking for another link changes nothing: it may have expired, and nothing else mends by itself."""
    refused = isinstance(error, errors.StorageRefused) and error.status not in STALE
    return refused or isinstance(error, errors.TlsFailed)


def _out_of_range(error: errors.TableServiceError) -> bool:
    """Say whether a store has no bytes where we wanted to go on: what it has now is another result."""
    return isinstance(error, errors.StorageRefused) and error.status == 416  # noqa: PLR2004  # Range Not Satisfiable
