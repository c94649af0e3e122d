"""The operators that read: queries of one table or several, and results that others have asked for.

Rows come back small or not at all: as many as an XCom may hold, else as a file or object (outputs.py). A query changes
nothing, so a retry goes on with the one that an earlier try started, and a clear starts another.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TextIO

from airflow_tds.client import errors
from airflow_tds.compat import AirflowSkipException
from airflow_tds.operators.base import TdsOperator, Turn

if TYPE_CHECKING:
    from airflow_tds.client.client import TableClient
    from airflow_tds.client.filters import Filters
    from airflow_tds.client.models import QueryResponse
    from airflow_tds.compat import XComArg
    from airflow_tds.durability import QueryOnce
    from airflow_tds.etags import Etag
    from airflow_tds.outputs import Output

    JobId = str | Mapping[str, Any] | XComArg

__all__ = ["MAX_ROWS", "TdsCrossQueryOperator", "TdsDownloadOperator", "TdsQueryOperator"]

#: A download gets this long at least, seconds, however late its wait ended.
LEAST_DOWNLOAD = 2.0
#: Rows that may go into an XCom, unless the task says otherwise: XComs lie in the metadata database.
MAX_ROWS = 1000
#: Rows that are asked for at once (§8).
LARGEST_PAGE = 10_000


def job_of(given: JobId) -> str:
    """Give a job's id, wherever it was named.

    Args:
        given: The id, or what the task returned that started the job.

    Raises:
        ValidationFailed: It is neither.
    """
    from airflow_tds.inputs import taken_from

    found = taken_from(given, "job_id")
    if not isinstance(found, str):
        raise errors.ValidationFailed(f"job_id is text, not a {type(found).__name__}")
    return found


class ResultOperator(TdsOperator):
    """What keeps a result as a file or object, which appears whole or not at all.

    Args:
        destination: Where to keep it (templated): a local path, whose directory exists, or the URI of an object.
        destination_conn_id: The object store's connection (templated); None for the one in the URI, or its default.
        if_exists: What to do about what is there: `fail`, `replace` or `skip` the work.
        kwargs: See `TdsOperator` and Airflow's `BaseOperator`.
    """

    starts_anew_harmlessly = True

    def __init__(
        self,
        *,
        destination: str | os.PathLike[str] | None = None,
        destination_conn_id: str | None = None,
        if_exists: Literal["fail", "replace", "skip"] = "fail",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.destination = destination
        self.destination_conn_id = destination_conn_id
        self.if_exists = if_exists
        self._left_alone = False

    def _output(self) -> Output:
        from airflow_tds.outputs import output_of

        if self.destination is None:
            raise errors.ValidationFailed("destination is missing: give a path or URI to keep the result at")
        return output_of(self.destination, self.destination_conn_id, self.if_exists)

    def _fetch(self, turn: Turn, job_id: str, output: Output, data_format: str) -> None:
        """Stream a query's result to where it goes."""
        from airflow_tds.outputs import check_whole

        watch = turn.watch
        left = max(LEAST_DOWNLOAD, watch.deadline - time.time())
        with output.filling() as file:
            turn.client.poll_download_to(job_id, file, timeout=left, poll_interval=watch.poll_interval)
            check_whole(file, data_format)

    def _reference(self, output: Output, data_format: str, job_id: str) -> dict[str, Any]:
        """Describe a result: small enough for an XCom."""
        return {"uri": output.uri, "size": output.size(), "format": data_format, "job_id": job_id}

    def _skipped(self, output: Output, data_format: str) -> dict[str, Any]:
        self._left_alone = True
        self.log.info("%s is there: skipped", output.uri)
        return self._reference(output, data_format, "")


class AskingOperator(ResultOperator):
    """What starts a query's job, and keeps its result unless nobody is to wait for it."""

    def __init__(self, *, wait_for_completion: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.wait_for_completion = wait_for_completion

    def _keep(self, turn: Turn, query: QueryOnce, data_format: str) -> dict[str, Any]:
        """Take a query to its end, and keep its result."""
        if not self.wait_for_completion:
            return {"job_id": query.begin()}
        output = self._output()
        if not query.is_begun() and output.keeps_existing():
            return self._skipped(output, data_format)
        done = self._finish(turn, query)
        if not query.is_finished() or not output.exists():
            self._fetch(turn, done.job_id, output, data_format)
            query.finish()
        return self._reference(output, data_format, done.job_id)

    def _query(self, turn: Turn, request: Mapping[str, Any]) -> QueryOnce:
        """Make a query of a `CrossQueryRequest`; nothing is sent yet."""
        from airflow_tds.durability import QueryOnce, digest

        identity = digest(turn.settings.base_url, "query", json.dumps(request, sort_keys=True, default=str))
        return QueryOnce(self._attempt(turn), request=request, identity=identity)


class TdsCrossQueryOperator(AskingOperator):
    """Query one or several tables and keep the result as a file or object, §2.5.

    It appears whole or not at all. A retry goes on with the query that an earlier try started; a clear starts another.

    Args:
        request: A `CrossQueryRequest` as a plain mapping (templated).
        destination: Where to keep the result (templated): a local path, whose directory exists, or the URI of an
            object such as `s3://bucket/key`. Not needed without waiting.
        destination_conn_id: The object store's connection (templated); None for the one in the URI, or its default.
        if_exists: What to do about what is there: `fail`, `replace` or `skip` the query.
        wait_for_completion: False ends the task when the query is started, for `TdsDownloadOperator` to go on.
        kwargs: `tds_conn_id`, `deferrable`, `timeout`, `poll_interval`, `durable`, `store`, and Airflow's own.

    Returns:
        `{"uri", "size", "format", "job_id"}`: place, bytes, format and job; `job_id` is empty if skipped. Without
        waiting `{"job_id"}`.

    Raises:
        ValidationFailed: The request breaks a rule of §2.5, or something is there and `if_exists` is `fail`.
        JobFailed: The query failed.
        WaitTimedOut: The query goes on after the timeout.
    """

    template_fields: Sequence[str] = ("tds_conn_id", "store", "request", "destination", "destination_conn_id")
    template_fields_renderers: ClassVar[dict[str, str]] = {"request": "json"}

    def __init__(self, *, request: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.request = request

    def _work(self, turn: Turn) -> dict[str, Any]:
        if not isinstance(self.request, Mapping):
            raise errors.ValidationFailed(f"request is a mapping as in §2.5, not a {type(self.request).__name__}")
        return self._keep(turn, self._query(turn, self.request), str(self.request.get("format") or "parquet"))


class TdsDownloadOperator(ResultOperator):
    """Wait for a query that something else started, and keep its result as a file or object, §4.2.

    Args:
        job_id: The query's job (templated): its id, or what the task returned that started it, as in
            `job_id=asked.output`.
        destination: Where to keep the result (templated); see `TdsCrossQueryOperator`.
        destination_conn_id: The object store's connection (templated); None for the one in the URI, or its default.
        if_exists: What to do about what is there: `fail`, `replace` or `skip` the download.
        format: What the query was asked for, for the reference only (templated).
        kwargs: `tds_conn_id`, `deferrable`, `timeout`, `poll_interval`, and Airflow's own.

    Returns:
        `{"uri", "size", "format", "job_id"}`; `job_id` is empty if skipped.

    Raises:
        ValidationFailed: Something is there and `if_exists` is `fail`.
        JobFailed: The query failed.
        JobNotFound: There is no such job.
        WaitTimedOut: The query goes on after the timeout.
    """

    template_fields: Sequence[str] = ("tds_conn_id", "job_id", "destination", "destination_conn_id", "format")

    def __init__(self, *, job_id: JobId, format: str = "parquet", **kwargs: Any) -> None:  # noqa: A002  # the interface's word
        super().__init__(**kwargs)
        self.job_id = job_id
        self.format = format

    def _work(self, turn: Turn) -> dict[str, Any]:
        from airflow_tds.durability import GivenQuery

        output = self._output()
        if output.keeps_existing():
            return self._skipped(output, self.format)
        job_id = job_of(self.job_id)
        self._finish(turn, GivenQuery(self._attempt(turn), job_id))
        self._fetch(turn, job_id, output, data_format="")  # what `format` says of another's job is a guess
        return self._reference(output, self.format, job_id)


class TdsQueryOperator(AskingOperator):
    """Query one table: a few rows for the next task, or a file or object, §2.4.

    Args:
        table_id: The table (templated).
        filters: A filter or a list of them, which combine with AND, as text such as `day:eq:2026-01-31` or as a
            mapping (templated); None for all rows.
        format: `json`, `parquet` or `csv` (templated).
        limit: For json: rows at most; None for all.
        max_rows: For json without a destination: rows that may be returned, as XComs lie in the metadata database.
            More are an error.
        destination: Where to keep the result (templated), needed for parquet and csv; json goes there as an array of
            objects, read page by page from one snapshot. See `TdsCrossQueryOperator`.
        destination_conn_id: The object store's connection (templated); None for the one in the URI, or its default.
        if_exists: What to do about what is there: `fail`, `replace` or `skip` the query.
        skip_if_unchanged: Skip this task, and what depends on it, if the table is as it was when this task last
            succeeded with the same query. Its etag is kept in the Variable `tds_etag__{dag}__{task}__{map_index}`.
        wait_for_completion: For parquet and csv: False ends the task when the query is started.
        kwargs: `tds_conn_id`, `deferrable`, `timeout`, `poll_interval`, `durable`, `store`, and Airflow's own.

    Returns:
        For json without a destination the rows, a list of mappings. Else `{"uri", "size", "format", "job_id"}`;
        `job_id` is empty for json and if skipped.

    Raises:
        AirflowSkipException: The table is unchanged, and `skip_if_unchanged` is set.
        ValidationFailed: There are more rows than may be returned, a parameter is invalid, or something is there.
        SnapshotChanged: The table changed between two pages; a retry reads it again.
        JobFailed: The query failed.
        WaitTimedOut: The query goes on after the timeout.
    """

    template_fields: Sequence[str] = (
        *("tds_conn_id", "store", "table_id", "filters", "format", "destination", "destination_conn_id"),
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"filters": "json"}

    def __init__(
        self,
        *,
        table_id: str,
        filters: Filters = None,
        format: Literal["json", "parquet", "csv"] = "json",  # noqa: A002  # the interface's word
        limit: int | None = None,
        max_rows: int = MAX_ROWS,
        skip_if_unchanged: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table_id = table_id
        self.filters = filters
        self.format = format
        self.limit = limit
        self.max_rows = max_rows
        self.skip_if_unchanged = skip_if_unchanged

    def _work(self, turn: Turn) -> Any:
        from airflow_tds.etags import Etag

        self._check_input()
        etag = None
        if self.skip_if_unchanged:
            etag = Etag.of(turn.context, (turn.settings.base_url, self.table_id, self.filters, self.format, self.limit))
        if self.format == "json":
            result = self._rows(turn.client, etag)
        else:
            predicate = turn.client.wire.predicate(self.filters)
            request = {"table_id": self.table_id, "filters": predicate, "format": self.format}
            query = self._query(turn, request)
            if etag:
                query = self._conditional(query, turn.client, etag)
            result = self._keep(turn, query, self.format)
        if etag and not self._left_alone:
            etag.keep()
        return result

    def _conditional(self, query: QueryOnce, client: TableClient, etag: Etag) -> QueryOnce:
        """Ask first whether the table has changed: a file's query ignores an etag (§4.2 rule 3)."""
        if query.is_begun():
            etag.seen = query.content
            return query
        self._first_page(client, etag, 1)
        return query.remembering(etag.seen)

    def _check_input(self) -> None:
        if self.format not in ("json", "parquet", "csv"):
            raise errors.ValidationFailed(f"format is json, parquet or csv, not {self.format!r} (§2.7)")
        if self.format != "json" and self.limit is not None:
            raise errors.ValidationFailed(f"limit is for json, not for {self.format} (§4.2)")
        if self.format != "json" and self.destination is None and self.wait_for_completion:
            raise errors.ValidationFailed(f"{self.format} needs a destination: a path or URI to keep the result at")
        for name, value in (("limit", self.limit), ("max_rows", self.max_rows)):
            if value is not None and value < 1:
                raise errors.ValidationFailed(f"{name} is a number of rows from 1 on, not {value}")

    def _first_page(self, client: TableClient, etag: Etag | None, size: int) -> QueryResponse:
        """Read the first page, unless the table is unchanged: that skips the task."""
        page = client.query(self.table_id, filters=self.filters, limit=size, etag=etag.known if etag else None)
        if page is None:
            raise AirflowSkipException(f"table {self.table_id} is unchanged since this task last read it")
        if etag:
            etag.seen = page.etag
        return page

    def _rows(self, client: TableClient, etag: Etag | None) -> Any:
        """Give the rows, or write them to the destination."""
        if self.destination is None:
            return self._returned(client, etag)
        output = self._output()
        if output.keeps_existing():
            return self._skipped(output, "json")
        pages = self._pages(client, etag)
        first = next(pages)  # before anything is written
        with output.filling() as file, file.open("w", encoding="utf-8") as text:
            text.write("[")
            self._write_rows(text, first, pages)
            text.write("\n]\n")
        return self._reference(output, "json", "")

    def _write_rows(self, text: TextIO, first: list[dict[str, Any]], pages: Iterator[list[dict[str, Any]]]) -> None:
        between = "\n"
        for rows in chain([first], pages):
            for row in rows:
                text.write(between + json.dumps(row, ensure_ascii=False))
                between = ",\n"

    def _returned(self, client: TableClient, etag: Etag | None) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for page in self._pages(client, etag, most=self.max_rows + 1):
            rows += page
        if len(rows) > self.max_rows:
            raise errors.ValidationFailed(
                f"table {self.table_id} has more than {self.max_rows} rows for this query, too many to return into an"
                " XCom: give a destination to keep them at, a limit, or a larger max_rows"
            )
        return rows

    def _pages(self, client: TableClient, etag: Etag | None, most: int | None = None) -> Iterator[list[dict[str, Any]]]:
        """Read page by page, up to the limit, from one snapshot."""
        from airflow_tds.client.queries import Pages

        left = min((n for n in (self.limit, most) if n is not None), default=None)
        size = min(LARGEST_PAGE, left or LARGEST_PAGE)
        first = self._first_page(client, etag, size)
        over = not (first.metadata.has_next and first.items)
        pages = Pages(self.table_id, self.filters, size, len(first.items), first.etag, over)
        rows: list[dict[str, Any]] | None = first.items
        while rows is not None:
            yield rows if left is None else rows[:left]
            left = None if left is None else left - len(rows)
            rows = None if left is not None and left <= 0 else client.next_page(pages)
