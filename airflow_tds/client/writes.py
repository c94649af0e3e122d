"""The writes of §2.8, §3.1 and §4.2: submit, and wait if the caller wants to.

Each is a job of the service. How its data gets there is sending.py's.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, get_args

from airflow_tds.client import errors
from airflow_tds.client.calls import POLL_INTERVAL, TIMEOUT
from airflow_tds.client.conditions import Conditions
from airflow_tds.client.filters import Filters
from airflow_tds.client.models import DataJobResponse
from airflow_tds.client.payloads import Payload
from airflow_tds.client.sending import Sending, UnknownLength

__all__ = ["UnknownLength", "UpdateMode", "Writes"]

log = logging.getLogger(__name__)

UpdateMode = Literal["append", "overwrite", "upsert"]


class Writes(Sending):
    """The operations that change a table."""

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
