"""The operators that write a payload: upload, append, overwrite, upsert, update, load."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from airflow_tds.client import errors
from airflow_tds.compat import BaseOperator
from airflow_tds.operators.base import ChangingOperator, Turn

if TYPE_CHECKING:
    from airflow_tds.client.wire import WriteOperation
    from airflow_tds.client.writes import UpdateMode
    from airflow_tds.compat import XComArg
    from airflow_tds.durability import Write, WriteOnce
    from airflow_tds.inputs import Data, Rows

__all__ = [
    "TdsAppendOperator",
    "TdsLoadOperator",
    "TdsOverwriteOperator",
    "TdsUpdateOperator",
    "TdsUploadOperator",
    "TdsUpsertOperator",
]


class WriteOperator(ChangingOperator):
    """A write with a payload: upload, append, overwrite, upsert.

    Args:
        table_id: The table (templated).
        rows: A list of mappings of column names to values (templated), such as what another task returned:
            `rows=that_task.output`. Give this, `source` or `data`.
        source: What to send (templated): a local path, or the URI of an object such as `s3://bucket/key`.
        source_conn_id: The object store's connection (templated); None for the one in the URI, or its default.
        data: Text, bytes, or a callable that gives chunks of bytes or rows; not templated.
        format: `csv`, `json` (an array of objects), `ndjson` or `parquet` (templated); None for json if there are
            rows, else csv.
        unknown_length: For data whose length is not known: `spool` reads it first, `chunked` sends it as it comes.
        wait_for_completion: False ends the task when the service has the data, for `TdsJobSensor` to wait.
        kwargs: See `TdsOperator` and Airflow's `BaseOperator`.
    """

    operation: ClassVar[WriteOperation]
    template_fields: Sequence[str] = (
        *("tds_conn_id", "store", "table_id", "rows", "source", "source_conn_id", "format"),
    )

    def __init__(
        self,
        *,
        table_id: str,
        rows: Rows | XComArg | None = None,
        source: str | os.PathLike[str] | None = None,
        source_conn_id: str | None = None,
        data: Data | None = None,
        format: str | None = None,  # noqa: A002  # the interface's word
        unknown_length: Literal["spool", "chunked"] = "spool",
        wait_for_completion: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table_id = table_id
        self.rows: Any = rows
        self.source = source
        self.source_conn_id = source_conn_id
        self.data = data
        self.format = format
        self.unknown_length = unknown_length
        self.wait_for_completion = wait_for_completion

    def _do_render_template_fields(self, parent: Any, *args: Any, **kwargs: Any) -> None:
        """Render, and hide the rows from what Airflow keeps of rendered fields; it calls this for mapped tasks too."""
        super()._do_render_template_fields(parent, *args, **kwargs)
        from airflow_tds.inputs import HiddenRows, format_of

        rows = getattr(parent, "rows", None)
        if isinstance(rows, Sequence) and not isinstance(rows, str | HiddenRows):
            parent.rows = HiddenRows(rows, format_of(parent.format, rows))

    def _operation(self) -> WriteOperation:
        return self.operation

    def _keys(self) -> tuple[str, ...]:
        return ()

    def _work(self, turn: Turn) -> dict[str, Any]:
        once = self._once_of(turn, self._write(turn))
        done = self._finish(turn, once, leave=None if self.wait_for_completion else once.hand_over)
        if not self.wait_for_completion:
            return {"table_id": self.table_id, "job_id": done.job_id}
        return once.result(done)

    def _write(self, turn: Turn) -> Write:
        from airflow_tds.durability import Write
        from airflow_tds.inputs import format_of, source_of

        data_format = format_of(self.format, self.rows)
        source = source_of(
            turn.client.wire,
            data_format,
            rows=self.rows,
            source=self.source,
            source_conn_id=self.source_conn_id,
            data=self.data,
        )
        return Write.of(
            source,
            self._operation(),
            self.table_id,
            data_format,
            service=turn.settings.base_url,
            key_columns=self._keys(),
            unknown_length=self.unknown_length,
        )

    def _once_of(self, turn: Turn, write: Write) -> WriteOnce:
        from airflow_tds.durability import WriteOnce

        return WriteOnce(self._attempt(turn), write=write, policy=turn.settings.policy())


class TdsUploadOperator(WriteOperator):
    """Load a table for the first time; it must never have had data, §3.1.

    Written once: the record is stored between the initiation and the data, so a try that dies
    anywhere leaves a job that the next try goes on with.

    Args:
        table_id: The table (templated).
        rows: A list of mappings (templated), such as `that_task.output`; give this, `source` or `data`.
        source: A local path, or the URI of an object such as `s3://bucket/key` (templated).
        source_conn_id: The object store's connection (templated); None for the one in the URI, or its default.
        data: Text, bytes, or a callable that gives chunks of bytes or rows.
        format: `csv`, `json`, `ndjson` or `parquet` (templated); None for json if there are rows, else csv.
        unknown_length: For data whose length is not known: `spool` reads it first, `chunked` sends it as it comes.
        wait_for_completion: False ends the task when the service has the data, for `TdsJobSensor` to wait.
        kwargs: `tds_conn_id`, `deferrable`, `timeout`, `poll_interval`, `durable`, `store`, `on_clear`, `on_unknown`,
            and Airflow's own.

    Returns:
        `{"table_id", "job_id", "row_count", "snapshot_id"}` of the table after it; without waiting the first two.

    Raises:
        Conflict: The table has, or ever had, data.
        JobFailed: The job failed and changed nothing.
        WaitTimedOut: The job goes on after the timeout.
        AmbiguousWriteError: It cannot be known whether the write was applied.
    """

    operation = "upload"


class TdsAppendOperator(WriteOperator):
    """Add rows to a table, without deduplication, §2.8; applied once, see `TdsUploadOperator`.

    Args:
        table_id: The table (templated).
        rows: A list of mappings (templated), such as `that_task.output`; give this, `source` or `data`.
        source: A local path, or the URI of an object such as `s3://bucket/key` (templated).
        source_conn_id: The object store's connection (templated); None for the one in the URI, or its default.
        data: Text, bytes, or a callable that gives chunks of bytes or rows.
        format: `csv`, `json`, `ndjson` or `parquet` (templated); None for json if there are rows, else csv.
        unknown_length: For data whose length is not known: `spool` reads it first, `chunked` sends it as it comes.
        wait_for_completion: False ends the task when the service has the data, for `TdsJobSensor` to wait.
        kwargs: `tds_conn_id`, `deferrable`, `timeout`, `poll_interval`, `durable`, `store`, `on_clear`, `on_unknown`,
            and Airflow's own.

    Returns:
        `{"table_id", "job_id", "row_count", "snapshot_id"}` of the table after it; without waiting the first two.

    Raises:
        JobFailed: The job failed and changed nothing.
        WaitTimedOut: The job goes on after the timeout.
        AmbiguousWriteError: It cannot be known whether the write was applied.
    """

    operation = "append"


class TdsUpsertOperator(WriteOperator):
    """Update the rows that match on all key columns, insert the others, §2.8.

    Args:
        table_id: The table (templated).
        key_columns: A column name or a list of them (templated).
        rows: A list of mappings (templated), such as `that_task.output`; give this, `source` or `data`.
        source: A local path, or the URI of an object such as `s3://bucket/key` (templated).
        source_conn_id: The object store's connection (templated); None for the one in the URI, or its default.
        data: Text, bytes, or a callable that gives chunks of bytes or rows.
        format: `csv`, `json`, `ndjson` or `parquet` (templated); None for json if there are rows, else csv.
        unknown_length: For data whose length is not known: `spool` reads it first, `chunked` sends it as it comes.
        wait_for_completion: False ends the task when the service has the data, for `TdsJobSensor` to wait.
        kwargs: `tds_conn_id`, `deferrable`, `timeout`, `poll_interval`, `durable`, `store`, `on_clear`, `on_unknown`,
            and Airflow's own.

    Returns:
        `{"table_id", "job_id", "row_count", "snapshot_id"}` of the table after it; without waiting the first two.

    Raises:
        JobFailed: The job failed and changed nothing.
        WaitTimedOut: The job goes on after the timeout.
        AmbiguousWriteError: It cannot be known whether the write was applied.
    """

    operation = "upsert"
    template_fields = (*WriteOperator.template_fields, "key_columns")

    def __init__(self, *, key_columns: str | Sequence[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.key_columns = key_columns

    def _keys(self) -> tuple[str, ...]:
        return _names(self.key_columns)


class TdsOverwriteOperator(WriteOperator):
    """Replace all rows of a table, §2.8; applied once, see `TdsUploadOperator`.

    A late second overwrite would destroy what was written after the first, so it is as guarded as an append.

    Args:
        table_id: The table (templated).
        rows: A list of mappings (templated), such as `that_task.output`; give this, `source` or `data`.
        source: A local path, or the URI of an object such as `s3://bucket/key` (templated).
        source_conn_id: The object store's connection (templated); None for the one in the URI, or its default.
        data: Text, bytes, or a callable that gives chunks of bytes or rows.
        format: `csv`, `json`, `ndjson` or `parquet` (templated); None for json if there are rows, else csv.
        unknown_length: For data whose length is not known: `spool` reads it first, `chunked` sends it as it comes.
        wait_for_completion: False ends the task when the service has the data, for `TdsJobSensor` to wait.
        kwargs: `tds_conn_id`, `deferrable`, `timeout`, `poll_interval`, `durable`, `store`, `on_clear`, `on_unknown`,
            and Airflow's own.

    Returns:
        `{"table_id", "job_id", "row_count", "snapshot_id"}` of the table after it; without waiting the first two.

    Raises:
        JobFailed: The job failed; the table is as the service left it.
        WaitTimedOut: The job goes on after the timeout.
        AmbiguousWriteError: It cannot be known whether the write was applied.
    """

    operation = "overwrite"


class TdsUpdateOperator(WriteOperator):
    """Write in the mode that is named, §2.8, for DAGs that choose it at run time; applied once.

    Args:
        update_mode: `append`, `overwrite` or `upsert` (templated).
        key_columns: For upsert: a column name or a list of them (templated). Otherwise not sent, with a warning.
        table_id: The table (templated).
        rows: A list of mappings (templated), such as `that_task.output`; give this, `source` or `data`.
        source: A local path, or the URI of an object such as `s3://bucket/key` (templated).
        source_conn_id: The object store's connection (templated); None for the one in the URI, or its default.
        data: Text, bytes, or a callable that gives chunks of bytes or rows.
        format: `csv`, `json`, `ndjson` or `parquet` (templated); None for json if there are rows, else csv.
        unknown_length: For data whose length is not known: `spool` reads it first, `chunked` sends it as it comes.
        wait_for_completion: False ends the task when the service has the data, for `TdsJobSensor` to wait.
        kwargs: `tds_conn_id`, `deferrable`, `timeout`, `poll_interval`, `durable`, `store`, `on_clear`, `on_unknown`,
            and Airflow's own.

    Returns:
        `{"table_id", "job_id", "row_count", "snapshot_id"}` of the table after it; without waiting the first two.

    Raises:
        JobFailed: The job failed and changed nothing.
        WaitTimedOut: The job goes on after the timeout.
        AmbiguousWriteError: It cannot be known whether the write was applied.
        ValidationFailed: The mode is none, or upsert has no key columns.
    """

    template_fields = (*WriteOperator.template_fields, "update_mode", "key_columns")

    def __init__(self, *, update_mode: str, key_columns: str | Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.update_mode = update_mode
        self.key_columns = key_columns

    def _operation(self) -> WriteOperation:
        return _mode(self.update_mode, "update_mode")

    def _keys(self) -> tuple[str, ...]:
        return _keys_of(self, self.update_mode, self.key_columns)


class TdsLoadOperator(WriteOperator):
    """Load a table: by upload if it never had data, else in the mode that is named; applied once.

    One task for the first run of a pipeline and all later ones. What a retry goes on with is what the earlier try
    began with, whatever the table looks like by then.

    Args:
        mode: What follows the first load: `append`, `overwrite` or `upsert` (templated). There is no default, as a
            wrong one doubles or destroys rows.
        key_columns: For upsert: a column name or a list of them (templated).
        table_id: The table (templated).
        rows: A list of mappings (templated), such as `that_task.output`; give this, `source` or `data`.
        source: A local path, or the URI of an object such as `s3://bucket/key` (templated).
        source_conn_id: The object store's connection (templated); None for the one in the URI, or its default.
        data: Text, bytes, or a callable that gives chunks of bytes or rows.
        format: `csv`, `json`, `ndjson` or `parquet` (templated); None for json if there are rows, else csv.
        unknown_length: For data whose length is not known: `spool` reads it first, `chunked` sends it as it comes.
        wait_for_completion: False ends the task when the service has the data, for `TdsJobSensor` to wait.
        kwargs: `tds_conn_id`, `deferrable`, `timeout`, `poll_interval`, `durable`, `store`, `on_clear`, `on_unknown`,
            and Airflow's own.

    Returns:
        `{"table_id", "job_id", "row_count", "snapshot_id"}` of the table after it; without waiting the first two.

    Raises:
        Conflict: The table has, or had, data, and it cannot be known whether an earlier try of this task loaded it.
        JobFailed: The job failed and changed nothing.
        WaitTimedOut: The job goes on after the timeout.
        AmbiguousWriteError: It cannot be known whether the write was applied.
        ValidationFailed: The mode is none, or upsert has no key columns.
    """

    operation = "upload"
    template_fields = (*WriteOperator.template_fields, "mode", "key_columns")

    def __init__(
        self,
        *,
        mode: Literal["append", "overwrite", "upsert"],
        key_columns: str | Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.mode = mode
        self.key_columns = key_columns

    def _keys(self) -> tuple[str, ...]:
        return _keys_of(self, _mode(self.mode, "mode"), self.key_columns)

    def _once_of(self, turn: Turn, write: Write) -> WriteOnce:
        from airflow_tds.durability import LoadOnce

        return LoadOnce(self._attempt(turn), write=write, policy=turn.settings.policy(), mode=self.mode)


def _mode(given: str, name: str) -> UpdateMode:
    modes: dict[str, UpdateMode] = {"append": "append", "overwrite": "overwrite", "upsert": "upsert"}
    if given not in modes:
        raise errors.ValidationFailed(f"{name} is append, overwrite or upsert, not {given!r} (§2.8)")
    return modes[given]


def _keys_of(task: BaseOperator, mode: str, columns: str | Sequence[str]) -> tuple[str, ...]:
    """Give the key columns of a mode: upsert needs some, the others take none."""
    if mode != "upsert":
        if columns:
            task.log.warning("%s takes no key_columns (§2.8): they are not sent", mode)
        return ()
    if not columns:
        raise errors.ValidationFailed("upsert needs key_columns (§2.8)")
    return _names(columns)


def _names(columns: str | Sequence[str]) -> tuple[str, ...]:
    return (columns,) if isinstance(columns, str) else tuple(columns)
