"""A connection becomes settings, and settings become a client.

What a connection may say is settings.py's. `TdsHook` does no I/O before it is asked for a client or an operation
(operations.py). What a write must remember is durability's: `durable_write` only puts the two together for a task's own
code.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal

from airflow_tds.compat import BaseHook, Context, async_connection, configured, hide, hide_here, hide_soon
from airflow_tds.operations import ClientOperations
from airflow_tds.settings import CONFIGURABLE, Settings, settings_of

if TYPE_CHECKING:
    from airflow_tds.client.client import AsyncTableClient, TableClient
    from airflow_tds.client.wire import WriteOperation
    from airflow_tds.inputs import Data, Rows

__all__ = ["TdsHook", "async_settings"]


async def async_settings(conn_id: str) -> Settings:
    """Read a connection without blocking the event loop.

    Args:
        conn_id: Its id.
    """
    conn, extra = await async_connection(conn_id)
    settings = settings_of(conn, extra, configured(CONFIGURABLE))
    await hide_soon(settings.secrets())
    settings.learned = hide_here
    return settings


class TdsHook(ClientOperations, BaseHook):
    """The Table Data Service behind an Airflow connection, with every operation: `TdsHook().info("flights")`.

    Args:
        tds_conn_id: The connection's id.
    """

    conn_name_attr = "tds_conn_id"
    default_conn_name = "tds_default"
    conn_type = "tds"
    hook_name = "Table Data Service"

    def __init__(self, tds_conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.tds_conn_id = tds_conn_id

    def settings(self) -> Settings:
        """Read the connection."""
        conn = self.get_connection(self.tds_conn_id)
        settings = settings_of(conn, conn.extra_dejson, configured(CONFIGURABLE))
        hide(settings.secrets())
        settings.learned = hide_here
        return settings

    def get_conn(self) -> TableClient:
        """Make a client for this thread; close it, or use it in a `with`."""
        return self.settings().client()

    @asynccontextmanager
    async def async_client(self) -> AsyncIterator[AsyncTableClient]:
        """Open a client for this coroutine: `async with hook.async_client() as client:`."""
        async with (await async_settings(self.tds_conn_id)).async_client() as client:
            yield client

    def durable_write(
        self,
        context: Context,
        op: WriteOperation,
        table_id: str,
        *,
        rows: Rows | None = None,
        source: str | os.PathLike[str] | None = None,
        source_conn_id: str | None = None,
        data: Data | None = None,
        format: str | None = None,  # noqa: A002  # the interface's word
        key_columns: str | Sequence[str] = (),
        slot: str | None = None,
        unknown_length: Literal["spool", "chunked"] = "spool",
        timeout: float | None = None,
        poll_interval: float | None = None,
        durable: bool = True,
        store: str | None = None,
        on_clear: Literal["auto", "resume", "new"] = "auto",
        on_unknown: Literal["fail", "resubmit", "assume_done"] = "fail",
    ) -> dict[str, Any]:
        """Write from a task's own code as the operators do, at most once; waits in the worker.

        Args:
            context: Airflow's, such as `get_current_context()`.
            op: `upload`, `append`, `overwrite` or `upsert`.
            table_id: The table.
            rows: A list of mappings of column names to values; give this, `source` or `data`.
            source: What to send: a local path, or the URI of an object such as `s3://bucket/key`.
            source_conn_id: The object store's connection; None for the one in the URI, or its default.
            data: Text, bytes, or a callable that gives chunks of bytes or rows.
            format: `csv`, `json` (an array of objects), `ndjson` or `parquet`; None for json if there are rows, else
                csv.
            key_columns: For upsert: a column name or a list of them.
            slot: Which of several writes of one task this is; None means operation and table. It must be the same
                in every try.
            unknown_length: For data whose length is not known: `spool` reads it first, `chunked` sends it as it comes.
            timeout: Seconds; None means the connection's, else the task's `execution_timeout`, else 7 days.
            poll_interval: Seconds between two reads at most; None means the connection's, else 5.
            durable: As for the operators.
            store: As for the operators.
            on_clear: As for the operators.
            on_unknown: As for the operators.

        Returns:
            `{"table_id", "job_id", "row_count", "snapshot_id"}` of the table after it.

        Raises:
            ValidationFailed: A parameter is invalid, or this execution has used the slot already.
            JobFailed: The job failed and changed nothing.
            WaitTimedOut: The job goes on after the timeout.
            AmbiguousWriteError: It cannot be known whether the write was applied.
        """
        from airflow_tds.durability import Attempt, Choices, Write, WriteOnce
        from airflow_tds.inputs import format_of, source_of
        from airflow_tds.tasks import BLOCKING_INTERVAL, claim, generation_of, store_of, watch_of

        settings, choices = self.settings(), Choices.of(on_clear, on_unknown)
        keys = (key_columns,) if isinstance(key_columns, str) else tuple(key_columns)
        data_format = format_of(format, rows)
        given = source_of(
            settings.wire(), data_format, rows=rows, source=source, source_conn_id=source_conn_id, data=data
        )
        write = Write.of(
            given,
            op,
            table_id,
            data_format,
            service=settings.base_url,
            key_columns=keys,
            unknown_length=unknown_length,
        )
        watch = watch_of(
            settings.timeout if timeout is None else timeout,
            context["task"].execution_timeout,
            poll_interval or settings.poll_interval or BLOCKING_INTERVAL,
        )
        slot = slot or f"{op}:{table_id}"
        claim(context, slot)
        place = store_of(context, self.log, place=store or settings.store, durable=durable, slot=slot)
        with settings.client() as client:
            attempt = Attempt(client, place, generation_of(context), self.log, choices)
            once = WriteOnce(attempt, write=write, policy=settings.policy())
            return once.result(once.complete(watch))

    def test_connection(self) -> tuple[bool, str]:
        """Try the connection within five seconds, by asking for rows of a table that is not there.

        Returns:
            Whether the service was reached and lets us in, and one sentence that says what and as whom, or what to
            change; it holds no secret.
        """
        from airflow_tds.client.errors import TableServiceError
        from airflow_tds.trial import try_out

        try:
            return try_out(self.settings())
        except TableServiceError as error:
            return False, str(error)

    @classmethod
    def get_connection_form_widgets(cls) -> dict[str, Any]:
        """Give the form's fields to Airflow below 3.2; later versions read them in the provider info."""
        from airflow_tds.form import widgets
        from airflow_tds.provider_info import CONN_FIELDS

        return widgets(CONN_FIELDS)

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """Give the form's labels to Airflow below 3.2; later versions read them in the provider info."""
        from airflow_tds.provider_info import UI_FIELD_BEHAVIOUR

        return {
            "hidden_fields": UI_FIELD_BEHAVIOUR["hidden-fields"],
            "relabeling": UI_FIELD_BEHAVIOUR["relabeling"],
            "placeholders": UI_FIELD_BEHAVIOUR["placeholders"],
        }
