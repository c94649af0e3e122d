"""The operators that write a payload: upload, append, overwrite, upsert, update."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from airflow_tds.client import errors
from airflow_tds.compat import Context
from airflow_tds.operators.base import ChangingOperator

if TYPE_CHECKING:
    from airflow_tds.client.client import TableClient
    from airflow_tds.client.waiting import Watch
    from airflow_tds.client.wire import WriteOperation
    from airflow_tds.durability import RecordStore
    from airflow_tds.settings import Settings

__all__ = [
    "TdsAppendOperator",
    "TdsOverwriteOperator",
    "TdsUpdateOperator",
    "TdsUploadOperator",
    "TdsUpsertOperator",
]


class _WriteOperator(ChangingOperator):
    """A write with a payload: upload, append, overwrite, upsert.

    Args:
        table_id: The table (templated).
        source: Path of a local file to send (templated); give this or `data`.
        data: Text, bytes, or a callable that gives chunks of bytes; give this or `source`.
        format: `csv`, `json` (an array of objects), `ndjson` or `parquet`.
        unknown_length: For data whose length is not known: `spool` reads it first, `chunked` sends it as it comes.
        kwargs: See `TdsOperator` and Airflow's `BaseOperator`.
    """

    operation: ClassVar[WriteOperation]
    template_fields: Sequence[str] = ("tds_conn_id", "store", "table_id", "source", "format")

    def __init__(
        self,
        *,
        table_id: str,
        source: str | os.PathLike[str] | None = None,
        data: str | bytes | Callable[[], Iterable[bytes]] | None = None,
        format: str = "csv",  # noqa: A002  # the interface's word
        unknown_length: Literal["spool", "chunked"] = "spool",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table_id = table_id
        self.source = source
        self.data = data
        self.format = format
        self.unknown_length = unknown_length

    def _operation(self) -> WriteOperation:
        return self.operation

    def _keys(self) -> tuple[str, ...]:
        return ()

    def _work(
        self, context: Context, settings: Settings, client: TableClient, store: RecordStore, watch: Watch
    ) -> dict[str, Any]:
        from airflow_tds.durability import Source, Write, WriteOnce

        write = Write.of(
            Source(self.source, self.data),
            self._operation(),
            self.table_id,
            self.format,
            service=settings.base_url,
            key_columns=self._keys(),
            unknown_length=self.unknown_length,
        )
        once = WriteOnce(
            client,
            store,
            self._generation(context),
            self.log,
            write=write,
            policy=settings.policy(),
            choices=self._choices(),
        )
        return once.result(self._finish(context, client, store, watch, once))


class TdsUploadOperator(_WriteOperator):
    """Load a table for the first time; it must never have had data, §3.1.

    Written once: the record is stored between the initiation and the data, so a try that dies
    anywhere leaves a job that the next try goes on with.

    Args:
        table_id: The table (templated).
        source: Path of a local file to send (templated); give this or `data`.
        data: Text, bytes, or a callable that gives chunks of bytes; give this or `source`.
        format: `csv`, `json` (an array of objects), `ndjson` or `parquet`.
        unknown_length: For data whose length is not known: `spool` reads it first, `chunked` sends it as it comes.
        kwargs: `tds_conn_id`, `deferrable`, `timeout`, `poll_interval`, `durable`, `store`, `on_clear`, `on_unknown`,
            and Airflow's own.

    Returns:
        `{"table_id", "job_id", "row_count", "snapshot_id"}` of the table after it.

    Raises:
        Conflict: The table has, or ever had, data.
        JobFailed: The job failed and changed nothing.
        WaitTimedOut: The job goes on after the timeout.
        AmbiguousWriteError: It cannot be known whether the write was applied.
    """

    operation = "upload"


class TdsAppendOperator(_WriteOperator):
    """Add rows to a table, without deduplication, §2.8; applied once, see `TdsUploadOperator`.

    Args:
        table_id: The table (templated).
        source: Path of a local file to send (templated); give this or `data`.
        data: Text, bytes, or a callable that gives chunks of bytes; give this or `source`.
        format: `csv`, `json` (an array of objects), `ndjson` or `parquet`.
        unknown_length: For data whose length is not known: `spool` reads it first, `chunked` sends it as it comes.
        kwargs: `tds_conn_id`, `deferrable`, `timeout`, `poll_interval`, `durable`, `store`, `on_clear`, `on_unknown`,
            and Airflow's own.

    Returns:
        `{"table_id", "job_id", "row_count", "snapshot_id"}` of the table after it.

    Raises:
        JobFailed: The job failed and changed nothing.
        WaitTimedOut: The job goes on after the timeout.
        AmbiguousWriteError: It cannot be known whether the write was applied.
    """

    operation = "append"


class TdsUpsertOperator(_WriteOperator):
    """Update the rows that match on all key columns, insert the others, §2.8.

    Args:
        table_id: The table (templated).
        key_columns: A column name or a list of them (templated).
        source: Path of a local file to send (templated); give this or `data`.
        data: Text, bytes, or a callable that gives chunks of bytes; give this or `source`.
        format: `csv`, `json` (an array of objects), `ndjson` or `parquet`.
        unknown_length: For data whose length is not known: `spool` reads it first, `chunked` sends it as it comes.
        kwargs: `tds_conn_id`, `deferrable`, `timeout`, `poll_interval`, `durable`, `store`, `on_clear`, `on_unknown`,
            and Airflow's own.

    Returns:
        `{"table_id", "job_id", "row_count", "snapshot_id"}` of the table after it.

    Raises:
        JobFailed: The job failed and changed nothing.
        WaitTimedOut: The job goes on after the timeout.
        AmbiguousWriteError: It cannot be known whether the write was applied.
    """

    operation = "upsert"
    template_fields = (*_WriteOperator.template_fields, "key_columns")

    def __init__(self, *, key_columns: str | Sequence[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.key_columns = key_columns

    def _keys(self) -> tuple[str, ...]:
        return _names(self.key_columns)


class TdsOverwriteOperator(_WriteOperator):
    """Replace all rows of a table, §2.8; applied once, see `TdsUploadOperator`.

    A late second overwrite would destroy what was written after the first, so it is as guarded as an append.

    Args:
        table_id: The table (templated).
        source: Path of a local file to send (templated); give this or `data`.
        data: Text, bytes, or a callable that gives chunks of bytes; give this or `source`.
        format: `csv`, `json` (an array of objects), `ndjson` or `parquet`.
        unknown_length: For data whose length is not known: `spool` reads it first, `chunked` sends it as it comes.
        kwargs: `tds_conn_id`, `deferrable`, `timeout`, `poll_interval`, `durable`, `store`, `on_clear`, `on_unknown`,
            and Airflow's own.

    Returns:
        `{"table_id", "job_id", "row_count", "snapshot_id"}` of the table after it.

    Raises:
        JobFailed: The job failed; the table is as the service left it.
        WaitTimedOut: The job goes on after the timeout.
        AmbiguousWriteError: It cannot be known whether the write was applied.
    """

    operation = "overwrite"


class TdsUpdateOperator(_WriteOperator):
    """Write in the mode that is named, §2.8, for DAGs that choose it at run time; applied once.

    Args:
        update_mode: `append`, `overwrite` or `upsert` (templated).
        key_columns: For upsert: a column name or a list of them (templated). Otherwise not sent, with a warning.
        table_id: The table (templated).
        source: Path of a local file to send (templated); give this or `data`.
        data: Text, bytes, or a callable that gives chunks of bytes; give this or `source`.
        format: `csv`, `json` (an array of objects), `ndjson` or `parquet`.
        unknown_length: For data whose length is not known: `spool` reads it first, `chunked` sends it as it comes.
        kwargs: `tds_conn_id`, `deferrable`, `timeout`, `poll_interval`, `durable`, `store`, `on_clear`, `on_unknown`,
            and Airflow's own.

    Returns:
        `{"table_id", "job_id", "row_count", "snapshot_id"}` of the table after it.

    Raises:
        JobFailed: The job failed and changed nothing.
        WaitTimedOut: The job goes on after the timeout.
        AmbiguousWriteError: It cannot be known whether the write was applied.
        ValidationFailed: The mode is none, or upsert has no key columns.
    """

    template_fields = (*_WriteOperator.template_fields, "update_mode", "key_columns")

    def __init__(self, *, update_mode: str, key_columns: str | Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.update_mode = update_mode
        self.key_columns = key_columns

    def _operation(self) -> WriteOperation:
        modes: dict[str, WriteOperation] = {"append": "append", "overwrite": "overwrite", "upsert": "upsert"}
        if self.update_mode not in modes:
            raise errors.ValidationFailed(
                f"update_mode is append, overwrite or upsert, not {self.update_mode!r} (§2.8)"
            )
        return modes[self.update_mode]

    def _keys(self) -> tuple[str, ...]:
        if self.update_mode == "upsert":
            return _names(self.key_columns)
        if self.key_columns:
            self.log.warning("%s takes no key_columns (§2.8): they are not sent", self.update_mode)
        return ()


def _names(columns: str | Sequence[str]) -> tuple[str, ...]:
    return (columns,) if isinstance(columns, str) else tuple(columns)
