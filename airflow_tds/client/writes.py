"""The writes of §2.8, §3.1 and §4.2: announce, send the data, and wait if the caller wants to.

Each is a job of the service. What protects a write across crashes is durability's, which calls
`initiate` and `send_data` itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, get_args

from airflow_tds.client import errors
from airflow_tds.client.calls import POLL_INTERVAL, TIMEOUT, TRANSFER_TRIES, Calls
from airflow_tds.client.conditions import Conditions
from airflow_tds.client.filters import Filters
from airflow_tds.client.messages import Reply, Request
from airflow_tds.client.models import DataJobResponse
from airflow_tds.client.payloads import Body, Keeper, Payload, body_of
from airflow_tds.client.wire import Initiation, WriteOperation

__all__ = ["UnknownLength", "UpdateMode", "Writes"]

log = logging.getLogger(__name__)

#: What a store says to a PUT that must not replace anything, when there is something.
PRECONDITION_FAILED = 412
UnknownLength = Literal["chunked", "spool"]
UpdateMode = Literal["append", "overwrite", "upsert"]


class Writes(Calls):
    """The operations that change a table."""

    async def initiate(
        self,
        operation: WriteOperation,
        table_id: str,
        format: str = "csv",  # noqa: A002  # the interface's word
        key_columns: str | Sequence[str] | None = None,
    ) -> Initiation:
        """Announce a write: its job then waits for the data, and nothing is applied (assumed, §4.2).

        For the strategy `initiate_put` only; `submit_upload` and its kin follow every strategy.

        Args:
            operation: `upload`, `append`, `overwrite` or `upsert`.
            table_id: The table.
            format: `csv`, `json`, `ndjson` or `parquet`.
            key_columns: For upsert: a column name or a list of them. None otherwise.

        Returns:
            The job's id and where to send the data.

        Raises:
            Conflict: Upload on a table that has, or ever had, data, §3.1.
            ValidationFailed: A parameter is invalid, or the wire map says another strategy.
        """
        return self.wire.read_initiation(
            await self._call(self.wire.initiate_request(operation, table_id, format, key_columns))
        )

    async def presign(
        self,
        operation: WriteOperation,
        table_id: str,
        format: str = "csv",  # noqa: A002  # the interface's word
        key_columns: str | Sequence[str] | None = None,
    ) -> Initiation:
        """Ask where to send the data of a write that `commit` submits afterwards (assumed, §4.2 rule 1).

        For the strategy `put_commit` only.

        Args:
            operation: As for `initiate`.
            table_id: The table.
            format: As for `initiate`.
            key_columns: As for `initiate`.

        Returns:
            Where `send_data` sends the data, and what `commit` calls it; no job.

        Raises:
            ValidationFailed: A parameter is invalid, or the wire map says another strategy.
        """
        return self.wire.read_presigned(
            await self._call(self.wire.presign_request(operation, table_id, format, key_columns))
        )

    async def commit(
        self,
        operation: WriteOperation,
        table_id: str,
        presigned: Initiation,
        format: str = "csv",  # noqa: A002  # the interface's word
        key_columns: str | Sequence[str] | None = None,
    ) -> str:
        """Submit a write whose data is in the store; only now may it be applied.

        For the strategy `put_commit` only. Sent again only if it certainly was not processed.

        Args:
            operation: As for `presign`.
            table_id: The table.
            presigned: What `presign` returned.
            format: As for `presign`.
            key_columns: As for `presign`.

        Returns:
            The job's id.

        Raises:
            Conflict: Upload on a table that has, or ever had, data, §3.1.
        """
        asked = (operation, table_id, format, key_columns)
        reply = await self._call(self.wire.commit_request(*asked, presigned.upload_object))
        return self.wire.read_job_id(reply, operation)

    async def submit_direct(
        self,
        operation: WriteOperation,
        table_id: str,
        data: Payload | Body,
        format: str | None = None,  # noqa: A002  # the interface's word
        key_columns: str | Sequence[str] | None = None,
        *,
        unknown_length: UnknownLength = "chunked",
    ) -> str:
        """Submit a write with its data in the request.

        For the strategy `direct` only. Sent again only if it certainly was not processed.

        Args:
            operation: As for `initiate`.
            table_id: The table.
            data: As for `submit_upload`.
            format: As for `submit_upload`.
            key_columns: As for `initiate`.
            unknown_length: See `send_data`.

        Returns:
            The job's id.

        Raises:
            Conflict: Upload on a table that has, or ever had, data, §3.1.
        """
        data_format = _format(data, format)
        request = self.wire.direct_request(operation, table_id, data_format, key_columns)
        body, send = await self._body(data, data_format), partial(self._send_direct, request)
        return self.wire.read_job_id(await self._deliver(send, body, unknown_length), operation)

    async def send_data(
        self,
        initiation: Initiation,
        data: Payload | Body,
        *,
        format: str | None = None,  # noqa: A002  # the interface's word
        unknown_length: UnknownLength = "chunked",
    ) -> None:
        """Send the data of a write that was announced; may be repeated with the same data.

        Args:
            initiation: What `initiate` returned.
            data: As for `submit_upload`.
            format: For rows: what was announced. None where data is not rows.
            unknown_length: For data whose length is not known: `spool` reads it first, `chunked` sends it
                as it comes and, should the store refuse that with 411 or 501, again with its length.
                Either way it is kept, in a temporary file beyond 1 MiB, until it is sent.

        Raises:
            StorageRefused: The store refused it, for instance because the URL expired.
            TransportFailed: No complete answer came; `.outcome` says whether data may have arrived.
        """
        body = await self._body(data, format)
        await self._deliver(partial(self._put, initiation), body, unknown_length)

    async def _body(self, data: Payload | Body, data_format: str | None) -> Body:
        """Make a body of a payload; rows are written once to be measured, and a stream is begun."""
        if isinstance(data, Body):
            return data
        layout = self.wire.row_layout_of(data_format) if data_format else None
        return await self._runtime.aside(lambda _: body_of(data, layout))

    async def _deliver(
        self, send: Callable[[Body], Coroutine[Any, Any, Reply]], body: Body, unknown_length: UnknownLength
    ) -> Reply:
        """Send a payload by a call that takes it; see `send_data` for one whose length is not known."""
        if body.length is not None:
            return await send(body)
        keeper = Keeper(body)
        try:
            if unknown_length == "chunked":
                try:
                    return await send(keeper.body())
                except errors.LengthRequired as refused:
                    log.info("%s; sent again with its length", refused)
            return await send(await self._runtime.aside(keeper.measured))
        finally:
            keeper.close()

    async def _put(self, initiation: Initiation, body: Body) -> Reply:
        request = self.wire.put_request(initiation, body, limit=self.transfer_timeout)
        try:
            return await self._call(request, TRANSFER_TRIES)
        except errors.StorageRefused as refused:
            if refused.status != PRECONDITION_FAILED or ("if-none-match", "*") not in _lower(request.headers):
                raise
            log.info("%s; the object is there already, as an earlier try left it", refused)
            return Reply(PRECONDITION_FAILED)

    async def _submit(
        self,
        operation: WriteOperation,
        table_id: str,
        data: Payload,
        asked_format: str | None,
        *,
        unknown_length: UnknownLength,
        key_columns: str | Sequence[str] | None = None,
    ) -> str:
        """Submit a write by the strategy that the wire map says for it; give the job's id."""
        asked, strategy = (operation, table_id), self.wire.strategy(operation)
        data_format = _format(data, asked_format)
        if strategy == "direct":
            return await self.submit_direct(*asked, data, data_format, key_columns, unknown_length=unknown_length)
        announce = self.presign if strategy == "put_commit" else self.initiate
        body = await self._body(data, data_format)
        initiation = await announce(*asked, data_format, key_columns)
        await self.send_data(initiation, body, unknown_length=unknown_length)
        if strategy == "put_commit":
            return await self.commit(*asked, initiation, data_format, key_columns)
        return initiation.job_id

    async def _send_direct(self, request: Request, body: Body) -> Reply:
        return await self._call(replace(request, body=body, limit=self.transfer_timeout))

    async def submit_upload(
        self,
        table_id: str,
        data: Payload,
        format: str | None = None,  # noqa: A002  # the interface's word
        *,
        unknown_length: UnknownLength = "chunked",
    ) -> str:
        """Start the initial load of a table; return once the data has reached the server, §4.2 rule 9.

        Args:
            table_id: The table; it must never have had data.
            data: Bytes, text, a path, a binary file, rows (mappings of column names to values), chunks of bytes, or
                a callable that gives rows or chunks. On the async face they may come from an async iterable.
            format: `csv`, `json`, `ndjson` or `parquet`; rows are written as json, ndjson or csv. None for json
                where data is a list of rows, for csv where it is anything else.
            unknown_length: See `send_data`.

        Returns:
            The job's id.

        Raises:
            Conflict: The table has, or ever had, data, §3.1.
        """
        return await self._submit("upload", table_id, data, format, unknown_length=unknown_length)

    async def upload(
        self,
        table_id: str,
        data: Payload,
        format: str | None = None,  # noqa: A002  # the interface's word
        *,
        unknown_length: UnknownLength = "chunked",
        timeout: float = TIMEOUT,
        poll_interval: float = POLL_INTERVAL,
    ) -> DataJobResponse:
        """Load a table for the first time and wait for it, §3.1.

        Args:
            table_id: The table; it must never have had data.
            data: As for `submit_upload`.
            format: As for `submit_upload`.
            unknown_length: See `send_data`.
            timeout: Seconds from now after which waiting ends.
            poll_interval: Seconds between two reads of the status, at most.

        Returns:
            The completed job.

        Raises:
            Conflict: The table has, or ever had, data.
            JobFailed: The job failed.
            WaitTimedOut: The job goes on after the timeout.
        """
        watch = self._watch(timeout, poll_interval)
        return await self._completed(
            watch, await self.submit_upload(table_id, data, format, unknown_length=unknown_length)
        )

    async def submit_append(
        self,
        table_id: str,
        data: Payload,
        format: str | None = None,  # noqa: A002  # the interface's word
        *,
        unknown_length: UnknownLength = "chunked",
    ) -> str:
        """Start adding rows, without deduplication; not idempotent, §2.8.

        Args:
            table_id: The table.
            data: As for `submit_upload`.
            format: As for `submit_upload`.
            unknown_length: See `send_data`.

        Returns:
            The job's id.
        """
        return await self._submit("append", table_id, data, format, unknown_length=unknown_length)

    async def append(
        self,
        table_id: str,
        data: Payload,
        format: str | None = None,  # noqa: A002  # the interface's word
        *,
        unknown_length: UnknownLength = "chunked",
        timeout: float = TIMEOUT,
        poll_interval: float = POLL_INTERVAL,
    ) -> DataJobResponse:
        """Add rows and wait for it; not idempotent, §2.8.

        Args:
            table_id: The table.
            data: As for `submit_upload`.
            format: As for `submit_upload`.
            unknown_length: See `send_data`.
            timeout: Seconds from now after which waiting ends.
            poll_interval: Seconds between two reads of the status, at most.

        Returns:
            The completed job.

        Raises:
            JobFailed: The job failed.
            WaitTimedOut: The job goes on after the timeout.
        """
        watch = self._watch(timeout, poll_interval)
        return await self._completed(
            watch, await self.submit_append(table_id, data, format, unknown_length=unknown_length)
        )

    async def submit_overwrite(
        self,
        table_id: str,
        data: Payload,
        format: str | None = None,  # noqa: A002  # the interface's word
        *,
        unknown_length: UnknownLength = "chunked",
    ) -> str:
        """Start replacing all rows of a table, §2.8.

        Args:
            table_id: The table.
            data: As for `submit_upload`.
            format: As for `submit_upload`.
            unknown_length: See `send_data`.

        Returns:
            The job's id.
        """
        return await self._submit("overwrite", table_id, data, format, unknown_length=unknown_length)

    async def overwrite(
        self,
        table_id: str,
        data: Payload,
        format: str | None = None,  # noqa: A002  # the interface's word
        *,
        unknown_length: UnknownLength = "chunked",
        timeout: float = TIMEOUT,
        poll_interval: float = POLL_INTERVAL,
    ) -> DataJobResponse:
        """Replace all rows of a table and wait for it, §2.8.

        Args:
            table_id: The table.
            data: As for `submit_upload`.
            format: As for `submit_upload`.
            unknown_length: See `send_data`.
            timeout: Seconds from now after which waiting ends.
            poll_interval: Seconds between two reads of the status, at most.

        Returns:
            The completed job.

        Raises:
            JobFailed: The job failed.
            WaitTimedOut: The job goes on after the timeout.
        """
        watch = self._watch(timeout, poll_interval)
        job_id = await self.submit_overwrite(table_id, data, format, unknown_length=unknown_length)
        return await self._completed(watch, job_id)

    async def submit_upsert(
        self,
        table_id: str,
        data: Payload,
        format: str | None = None,  # noqa: A002  # the interface's word
        *,
        key_columns: str | Sequence[str],
        unknown_length: UnknownLength = "chunked",
    ) -> str:
        """Start updating the rows that match on all key columns and inserting the others, §2.8.

        Args:
            table_id: The table.
            data: As for `submit_upload`.
            format: As for `submit_upload`.
            key_columns: A column name or a list of them.
            unknown_length: See `send_data`.

        Returns:
            The job's id.
        """
        return await self._submit(
            "upsert", table_id, data, format, unknown_length=unknown_length, key_columns=key_columns
        )

    async def upsert(
        self,
        table_id: str,
        data: Payload,
        format: str | None = None,  # noqa: A002  # the interface's word
        *,
        key_columns: str | Sequence[str],
        unknown_length: UnknownLength = "chunked",
        timeout: float = TIMEOUT,
        poll_interval: float = POLL_INTERVAL,
    ) -> DataJobResponse:
        """Update the rows that match on all key columns, insert the others, and wait for it, §2.8.

        Args:
            table_id: The table.
            data: As for `submit_upload`.
            format: As for `submit_upload`.
            key_columns: A column name or a list of them.
            unknown_length: See `send_data`.
            timeout: Seconds from now after which waiting ends.
            poll_interval: Seconds between two reads of the status, at most.

        Returns:
            The completed job.

        Raises:
            JobFailed: The job failed.
            WaitTimedOut: The job goes on after the timeout.
        """
        watch = self._watch(timeout, poll_interval)
        job_id = await self.submit_upsert(
            table_id, data, format, key_columns=key_columns, unknown_length=unknown_length
        )
        return await self._completed(watch, job_id)

    async def submit_update(
        self,
        table_id: str,
        data: Payload,
        format: str | None = None,  # noqa: A002  # the interface's word
        *,
        update_mode: UpdateMode,
        key_columns: str | Sequence[str] | None = None,
        unknown_length: UnknownLength = "chunked",
    ) -> str:
        """Start a write in the mode that is named, §2.8; it takes that mode's route.

        Args:
            table_id: The table.
            data: As for `submit_upload`.
            format: As for `submit_upload`.
            update_mode: `append`, `overwrite` or `upsert`.
            key_columns: For upsert: a column name or a list of them. Otherwise not sent, with a warning.
            unknown_length: See `send_data`.

        Returns:
            The job's id.

        Raises:
            ValidationFailed: The mode is none, or upsert has no key columns.
        """
        if update_mode not in get_args(UpdateMode):
            raise errors.ValidationFailed(f"update_mode is append, overwrite or upsert, not {update_mode!r} (§2.8)")
        if update_mode != "upsert" and key_columns:
            log.warning("%s takes no key_columns (§2.8): they are not sent", update_mode)
            key_columns = None
        return await self._submit(
            update_mode, table_id, data, format, unknown_length=unknown_length, key_columns=key_columns
        )

    async def update(
        self,
        table_id: str,
        data: Payload,
        format: str | None = None,  # noqa: A002  # the interface's word
        *,
        update_mode: UpdateMode,
        key_columns: str | Sequence[str] | None = None,
        unknown_length: UnknownLength = "chunked",
        timeout: float = TIMEOUT,
        poll_interval: float = POLL_INTERVAL,
    ) -> DataJobResponse:
        """Write in the mode that is named and wait for it, §2.8.

        Args:
            table_id: The table.
            data: As for `submit_upload`.
            format: As for `submit_upload`.
            update_mode: `append`, `overwrite` or `upsert`.
            key_columns: For upsert: a column name or a list of them. Otherwise not sent, with a warning.
            unknown_length: See `send_data`.
            timeout: Seconds from now after which waiting ends.
            poll_interval: Seconds between two reads of the status, at most.

        Returns:
            The completed job.

        Raises:
            JobFailed: The job failed.
            WaitTimedOut: The job goes on after the timeout.
            ValidationFailed: The mode is none, or upsert has no key columns.
        """
        watch = self._watch(timeout, poll_interval)
        job_id = await self.submit_update(
            table_id, data, format, update_mode=update_mode, key_columns=key_columns, unknown_length=unknown_length
        )
        return await self._completed(watch, job_id)

    async def delete_rows(
        self,
        table_id: str,
        filters: Filters,
        *,
        wait_for_snapshot: bool = False,
        timeout: float = TIMEOUT,
        poll_interval: float = POLL_INTERVAL,
    ) -> None:
        """Delete the rows that match all filters, §4.2 rule 5; taken to be in effect with the answer (assumed).

        Args:
            table_id: The table.
            filters: One simple filter or several, which combine with AND: `"age:lt:18"`, `col("age") < 18`, or
                a list of them. At least one.
            wait_for_snapshot: True to wait until `info` tells another snapshot, for a service that deletes later.
                Unfit where no row may match: a service that then makes no snapshot is waited for in vain.
            timeout: With `wait_for_snapshot`: seconds from now after which waiting ends.
            poll_interval: With `wait_for_snapshot`: seconds between two reads of the statistics, at most.

        Raises:
            ValidationFailed: There is no filter, or one that cannot be written as a simple filter.
            TableNotFound: There is no such table.
            UnexpectedReply: With `wait_for_snapshot`: the service tells no snapshot; nothing was deleted.
            WaitTimedOut: The snapshot is the same after the timeout.
        """
        request = self.wire.delete_request(table_id, filters)
        if not wait_for_snapshot:
            await self._call(request)
            return
        watch = self._watch(timeout, poll_interval)
        before = (await self.info(table_id)).snapshot_id
        if before is None:
            text = f"delete_rows, table {table_id}: info tells no snapshot_id, so wait_for_snapshot cannot be kept"
            raise errors.UnexpectedReply(text, field="snapshot_id")
        await self._call(request)
        changed = Conditions(changed_from=before).to_text()
        await self._awaited(replace(watch, kind="table", subject=table_id, conditions=changed))

    async def truncate(self, table_id: str) -> None:
        """Ask for all rows of a table to be removed; it takes effect later, §3.1.

        Args:
            table_id: The table.

        Raises:
            TableNotFound: There is no such table.
        """
        await self._call(self.wire.truncate_request(table_id))


def _lower(headers: Mapping[str, str]) -> set[tuple[str, str]]:
    return {(name.lower(), value) for name, value in headers.items()}


def _format(data: Any, asked: str | None) -> str:
    """Say in which format data travels; rows keep the types of their values in json only."""
    if asked is not None:
        return asked
    rows = isinstance(data, Sequence) and not isinstance(data, str | bytes | bytearray | memoryview)
    return "json" if rows and all(isinstance(item, Mapping) for item in data[:1]) else "csv"
