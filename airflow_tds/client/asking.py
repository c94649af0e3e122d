"""The wire map's requests: pure functions that build each of them, by the forms of forms.py.

What breaks a rule of the interface is refused here, before anything is sent. Replies are read by wire.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pydantic import ValidationError

from airflow_tds.client import errors
from airflow_tds.client.downloads import Download
from airflow_tds.client.filters import Filters, simple_expressions, structured
from airflow_tds.client.forms import Forms
from airflow_tds.client.messages import Request, SecretUrl
from airflow_tds.client.models import CrossQueryRequest, describe
from airflow_tds.client.payloads import Body
from airflow_tds.client.routes import Route, Strategy, merged, pointer_keys
from airflow_tds.client.rows import RowLayout, RowStyle

__all__ = ["LARGEST_PAGE", "Asking", "Initiation", "WriteOperation"]

WriteOperation = Literal["upload", "append", "overwrite", "upsert"]

#: The most rows that one page may hold, §8; and the most bytes, 6.5 KiB a row.
LARGEST_PAGE = 10_000
LARGEST_PAGE_BYTES = 64 * 1024 * 1024
#: The media type of a format that has none.
UNKNOWN_MEDIA = "application/octet-stream"
#: What may stand in an entity tag, quoted or not.
_ETAG = re.compile(r'(W/)?"[\x21\x23-\x7e]*"|[\x21\x23-\x7e]+')


@dataclass(frozen=True)
class Initiation:
    """The answer to a write's initiation: where its data goes.

    Attributes:
        job_id: The job that waits for the data; empty with the strategy `put_commit`, whose commit answers it.
        upload_url: Where the payload is PUT.
        upload_headers: Header fields that the PUT must carry.
        lifetime: Seconds from the answer on for which the URL can be used.
        upload_object: With `put_commit`: the name under which the commit speaks of the data.
    """

    job_id: str
    upload_url: SecretUrl
    upload_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    lifetime: float = 3600.0
    upload_object: str = ""


class Asking(Forms):
    """The wire map, as far as it builds requests."""

    def info_request(self, table_id: str) -> Request:
        """Ask for a table's statistics, §2.2."""
        return self._to_table("info", table_id)

    def truncate_request(self, table_id: str) -> Request:
        """Ask for all rows of a table to be removed, §3.1."""
        return self._to_table("truncate", table_id)

    def strategy(self, operation: WriteOperation) -> Strategy:
        """Say how a write's payload gets to the service."""
        return self._route(operation).strategy or "initiate_put"

    def check_strategy(self, operation: WriteOperation, needed: Strategy) -> None:
        """Refuse a step of a strategy that is not the one by which a write's payload gets to the service.

        Raises:
            ValidationFailed: The map says another strategy for the operation.
        """
        strategy = self.strategy(operation)
        if strategy != needed:
            raise errors.ValidationFailed(
                f"{operation}: the wire map says the strategy {strategy}; this is a step of {needed}."
                f" submit_{operation} and {operation} of the client follow every strategy"
            )

    def initiate_request(
        self,
        operation: WriteOperation,
        table_id: str,
        data_format: str,
        key_columns: str | Sequence[str] | None,
    ) -> Request:
        """Announce a write; the answer names its job and where to PUT the data, §4.2 rule 1.

        Args:
            operation: `upload`, `append`, `overwrite` or `upsert`.
            table_id: The table.
            data_format: One of `write_formats`.
            key_columns: A name or a list of names, for upsert only; None otherwise.

        Raises:
            ValidationFailed: Unknown format, upsert without keys, keys where none belong, or another strategy.
        """
        self.check_strategy(operation, "initiate_put")
        return self._to_table(operation, table_id, self._write(operation, data_format, key_columns))

    def presign_request(
        self,
        operation: WriteOperation,
        table_id: str,
        data_format: str,
        key_columns: str | Sequence[str] | None,
    ) -> Request:
        """Ask where to PUT the data of a write that is committed afterwards; as `initiate_request`."""
        self.check_strategy(operation, "put_commit")
        self._write(operation, data_format, key_columns)  # refused now, not after the data is sent
        inputs = {"table_id": table_id, "format": self._format(self.presign, data_format)}
        return self._request("presign", f"table {table_id}", {}, inputs)

    def commit_request(
        self,
        operation: WriteOperation,
        table_id: str,
        data_format: str,
        key_columns: str | Sequence[str] | None,
        upload_object: str,
    ) -> Request:
        """Submit a write whose data is in the store; the answer names its job."""
        self.check_strategy(operation, "put_commit")
        inputs = self._write(operation, data_format, key_columns)
        return self._to_table(operation, table_id, inputs | {"object": upload_object})

    def direct_request(
        self,
        operation: WriteOperation,
        table_id: str,
        data_format: str,
        key_columns: str | Sequence[str] | None,
    ) -> Request:
        """Submit a write whose data is the request's body, to be added; the answer names its job."""
        self.check_strategy(operation, "direct")
        request = self._to_table(operation, table_id, self._write(operation, data_format, key_columns))
        media_type = self.media_types.get(data_format, UNKNOWN_MEDIA)
        return replace(request, headers=merged({"Content-Type": media_type}, request.headers))

    def put_request(self, initiation: Initiation, body: Body, *, limit: float) -> Request:
        """Send a write's payload to the object store, without credentials."""
        return Request(
            "put",
            f"job {initiation.job_id}" if initiation.job_id else f"object {initiation.upload_object}",
            "PUT",
            initiation.upload_url,
            "always",  # the same bytes to the same URL: a job applies its data at most once (assumed)
            headers=merged(self.put_headers, initiation.upload_headers),
            body=body,
            limit=limit,
        )

    def job_request(self, job_id: str) -> Request:
        """Ask for a job's record, §2.3."""
        return self._to_job("get_job", job_id)

    def poll_request(self, job_id: str) -> Request:
        """Ask how a query stands: the poll path of §4.2, or the job's record where the map says so."""
        return self._to_job(self.poll_by, job_id)

    def result_request(self, job_id: str) -> Request:
        """Ask where the result of a query is, §4.2."""
        return self._to_job("poll_query", job_id)

    def page_request(self, table_id: str, filters: Filters, limit: int | None, offset: int, etag: str) -> Request:
        """Ask for one page of a table, §4.2 rules 2 and 3.

        Args:
            table_id: The table.
            filters: Filters, which combine with AND.
            limit: Rows at most, 1 to 10 000; None leaves it to the service.
            offset: Rows to leave out at the start.
            etag: What an earlier page carried; empty asks unconditionally.

        Raises:
            ValidationFailed: Limit or offset is out of range, the etag cannot stand in a header, or a filter
                cannot be written as the map says.
        """
        if limit is not None and not 1 <= limit <= LARGEST_PAGE:
            raise errors.ValidationFailed(f"limit is 1 to {LARGEST_PAGE}, not {limit} (§8)")
        if offset < 0:
            raise errors.ValidationFailed(f"offset is 0 or more, not {offset}")
        if etag and not _ETAG.fullmatch(etag):
            raise errors.ValidationFailed("the etag is not one that a service gave")
        inputs = {
            "filters": self._filters(self.query_json, table_id, filters),
            "limit": limit,
            "offset": offset or None,
            "etag": etag or None,
            "format": self._format(self.query_json, "json"),
        }
        return replace(self._to_table("query_json", table_id, inputs), largest=LARGEST_PAGE_BYTES)

    def delete_request(self, table_id: str, filters: Filters) -> Request:
        """Ask for the rows that match all filters to be deleted, §4.2 rule 5.

        Raises:
            ValidationFailed: There is no filter, or one that cannot be written as the map says.
        """
        written = self._filters(self.delete_rows, table_id, filters)
        if not written:
            raise errors.ValidationFailed("delete_rows needs at least one filter (§8); truncate removes all rows")
        return self._to_table("delete_rows", table_id, {"filters": written})

    def start_query_request(self, query: CrossQueryRequest) -> Request:
        """Start an asynchronous query, §4.2."""
        body = query.model_dump(mode="json", exclude_none=True)
        if query.format is not None:
            body["format"] = self.format_tokens.get(query.format, query.format)
        return self._request(
            "start_query", f"table {query.table_id}", {}, {}, operation="submit_cross_query", document=body
        )

    def predicate(self, filters: Filters) -> Mapping[str, Any] | None:
        """Write filters as one structured predicate, §2.6."""
        return structured(filters, numbers=self.filter_values == "number_or_text")

    def keyed(self, request: Request, key: str) -> Request:
        """Give a request that changes data an idempotency key, where the service takes one.

        Args:
            request: To be sent, perhaps several times.
            key: The same one each time.
        """
        if not self.idempotency_header or request.method == "GET" or isinstance(request.target, SecretUrl):
            return request
        return replace(request, headers=merged(request.headers, {self.idempotency_header: key}))

    def download_request(self, job_id: str, url: SecretUrl, sink: Download) -> Request:
        """Fetch a result, or the rest of one, from the object store, without credentials."""
        headers = {"Accept-Encoding": "identity", **sink.fields()}  # as it is stored; no decoder, no bomb
        return Request("download", f"job {job_id}", "GET", url, headers=headers, sink=sink)

    def _write(
        self, operation: WriteOperation, data_format: str, key_columns: str | Sequence[str] | None
    ) -> dict[str, Any]:
        """Check what a write asks for, and give its inputs."""
        if data_format not in self.write_formats:
            raise errors.ValidationFailed(f"format {data_format!r} is none of {', '.join(self.write_formats)}")
        keys = [key_columns] if isinstance(key_columns, str) else list(key_columns or ())
        if (operation == "upsert") != bool(keys):
            rule = "needs key_columns" if operation == "upsert" else "takes no key_columns"
            raise errors.ValidationFailed(f"{operation} {rule} (§2.8)")
        return {
            "format": self._format(self._route(operation), data_format),
            "update_mode": self.mode_tokens.get(operation, operation),
            "key_columns": keys or None,
        }

    def row_layout_of(self, data_format: str) -> RowLayout | None:
        """Say how rows are laid out in a write payload; None for a format in which rows are not written."""
        if data_format == "json" and self.row_layout != "lines":
            rows_at, columns_at = pointer_keys(self.rows_at), pointer_keys(self.columns_at)
            return RowLayout(self.row_layout, tuple(rows_at) if self.rows_at else (), tuple(columns_at))
        styles: Mapping[str, RowStyle] = {"json": "lines", "ndjson": "lines", "csv": "csv"}
        return RowLayout(styles[data_format]) if data_format in styles else None

    def _format(self, at_route: Route, name: str) -> str:
        if at_route.style("format") == "media":
            return self.media_types.get(name, UNKNOWN_MEDIA)
        return self.format_tokens.get(name, name)

    def _filters(self, at_route: Route, table_id: str, filters: Filters) -> Any:
        """Write filters in the style of a route; None for none."""
        if at_route.style("filters") != "structured":
            return simple_expressions(filters) or None
        try:
            query = CrossQueryRequest(table_id=table_id, filters=self.predicate(filters))
        except ValidationError as invalid:
            raise errors.ValidationFailed(describe(invalid)) from None
        return query.model_dump(mode="json", exclude_none=True).get("filters")

    def _route(self, name: str) -> Route:
        found: Route = getattr(self, name)
        return found

    def _to_table(self, name: str, table_id: str, inputs: Mapping[str, Any] | None = None) -> Request:
        return self._request(name, f"table {table_id}", {"table_id": table_id}, inputs or {})

    def _to_job(self, name: str, job_id: str) -> Request:
        return self._request(name, f"job {job_id}", {"job_id": job_id}, {})

    def _request(
        self,
        name: str,
        subject: str,
        ids: Mapping[str, str],
        inputs: Mapping[str, Any],
        *,
        operation: str = "",
        document: Any = None,
    ) -> Request:
        at_route = self._route(name)
        try:
            placed = at_route.place(ids, inputs)
            body = placed.body if document is None else document
            json.dumps(body, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise errors.ValidationFailed(f"{name}: a text in it is no valid Unicode, so it cannot be sent") from None
        return Request(
            operation or name,
            subject,
            at_route.method,
            placed.target,
            at_route.repeat,
            headers=merged(self.headers, placed.headers),
            json=body,
        )
