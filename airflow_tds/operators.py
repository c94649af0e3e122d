"""One class per operation, over one base that writes once, waits, and says how it ended.

An operator builds what is asked for and hands it to durability; it waits by deferring or by blocking,
and takes the same steps either way. Nothing heavy is imported when a DAG is parsed: models, client and
triggers stand inside functions. Nothing is read or checked before `execute`.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn

from airflow_tds.client import errors
from airflow_tds.compat import (
    AirflowFailException,
    BaseOperator,
    Context,
    conf,
)

if TYPE_CHECKING:
    from airflow_tds.client.client import TableClient
    from airflow_tds.client.filters import Filters
    from airflow_tds.client.waiting import Watch
    from airflow_tds.client.wire import WriteOperation
    from airflow_tds.durability import Choices, Done, Generation, Once, Record, RecordStore
    from airflow_tds.hooks import Settings

__all__ = [
    "TdsAppendOperator",
    "TdsCrossQueryOperator",
    "TdsDeleteRowsOperator",
    "TdsOverwriteOperator",
    "TdsTruncateOperator",
    "TdsUpdateOperator",
    "TdsUploadOperator",
    "TdsUpsertOperator",
]

#: Seconds between two reads at most: a deferred wait costs no worker, a blocking one should end soon.
DEFERRED_INTERVAL = 30.0
BLOCKING_INTERVAL = 5.0
#: What Airflow says in place of a method's name when the trigger itself failed.
TRIGGER_FAILED = "__fail__"
#: How often in a row a trigger may fail before the try does.
RESCUES = 3
#: Where a deferred wait is kept while the trigger has it (an XCom: it survives the deferral, not the try).
WAIT_KEY = "tds.wait"
#: A download gets this long at least, seconds, however late its wait ended.
LEAST_DOWNLOAD = 2.0
#: Airflow's own timeout of a deferral must not come before ours, which says what goes on: seconds.
DEFER_GRACE = 300.0


class FinalValidationFailed(errors.ValidationFailed, AirflowFailException):
    """`ValidationFailed` that ends the task at once: a retry would be refused as well."""


class FinalDifferentWrite(errors.DifferentWrite, AirflowFailException):
    """`DifferentWrite` that ends the task at once."""


class FinalConflict(errors.Conflict, AirflowFailException):
    """`Conflict` that ends the task at once: upload is the initial load only, §3.1."""


class FinalWireMismatch(errors.WireMismatch, AirflowFailException):
    """`WireMismatch` that ends the task at once: the connection must say another route."""


class FinalAmbiguousWriteError(errors.AmbiguousWriteError, AirflowFailException):
    """`AmbiguousWriteError` that ends the task at once: a person must look."""


_FINAL: dict[type[errors.TableServiceError], type[errors.TableServiceError]] = {
    errors.DifferentWrite: FinalDifferentWrite,
    errors.ValidationFailed: FinalValidationFailed,
    errors.Conflict: FinalConflict,
    errors.WireMismatch: FinalWireMismatch,
    errors.AmbiguousWriteError: FinalAmbiguousWriteError,
}


def final(error: errors.TableServiceError) -> errors.TableServiceError:
    """Give the form of an error that ends the task at once, if a retry could not help.

    Args:
        error: What went wrong.

    Returns:
        The same class, text and values as an `AirflowFailException`; the error itself if retries may help.
    """
    kind = _FINAL.get(type(error))
    if kind is None:
        return error
    ending = kind(*error.args)
    ending.__dict__.update(error.__dict__)
    return ending


class _TdsOperator(BaseOperator):
    """What all operators share: connection, pace, deadline, errors.

    Args:
        tds_conn_id: The connection's id.
        deferrable: Wait in the triggerer, which holds no worker; default `[operators] default_deferrable`.
        timeout: Seconds after which waiting ends; None means the task's `execution_timeout`, else 7 days.
        poll_interval: Seconds between two reads at most; None means 30 when deferred, 5 when blocking.
        durable: Keep a record of the work in the task's state store (Airflow 3.3 and later), so that a retry
            goes on where an earlier try ended. Without it, a retry starts anew: rows may double.
        store: Where else to keep the record (templated): `variable`, or the path or object-storage URI of a
            folder. These work on every Airflow and protect from crashes, but not from a lost try that is still
            alive. None for the task's state store.
    """

    def __init__(
        self,
        *,
        tds_conn_id: str = "tds_default",
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        timeout: float | None = None,
        poll_interval: float | None = None,
        durable: bool = True,
        store: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.tds_conn_id = tds_conn_id
        self.deferrable = deferrable
        self.timeout = timeout
        self.poll_interval = poll_interval
        self.durable = durable
        self.store = store
        self._client: TableClient | None = None
        self._once: Once | None = None
        self._rescues = 0

    def execute(self, context: Context) -> Any:
        """Do the work; see the class."""
        with self._raising():
            return self._run(context, self._new_watch(), None)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Go on after a deferral: the event says only that something happened, the service is asked what.

        Args:
            context: Airflow's.
            event: An `Outcome`, and what the deferral carried.
        """
        from airflow_tds.client.waiting import Outcome

        with self._raising():
            outcome = Outcome.from_json(event)
            self.log.info("%s: %s after %.0f s", outcome.subject, outcome.status or outcome.kind, outcome.waited)
            if outcome.kind == "error":
                outcome.check()
            return self._run(context, *_carried(event))

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Go on after a deferral; a trigger that failed has not touched the job, so it is waited for again.

        Args:
            next_method: Airflow's: the method to go on with, or that the trigger failed.
            next_kwargs: Airflow's: the event, or why the trigger failed.
            context: Airflow's.

        Raises:
            WaitTimedOut: Airflow ended the deferral, as no trigger had answered in time.
            Exception: Airflow's own, once triggers have failed too often in a row.
        """
        kept = self._kept_wait(context) if next_method == TRIGGER_FAILED else None
        why = str((next_kwargs or {}).get("error", "unknown"))
        ended = "timeout" in why.lower()  # Airflow 2.11 says so in the text only
        if kept is None or (kept["rescues"] >= RESCUES and not ended):
            return super().resume_execution(next_method, next_kwargs, context)
        with self._raising():
            watch, record = _carried(kept)
            if ended:
                return self._run(context, replace(watch, deadline=min(watch.deadline, time.time())), record)
            self._rescues = kept["rescues"] + 1
            self.log.error("the trigger failed: %s\n%s", why, "\n".join((next_kwargs or {}).get("traceback") or ()))
            self.log.warning("waiting for the same work again, rescue %d of %d", self._rescues, RESCUES)
            return self._run(context, watch, record)

    def on_kill(self) -> None:
        """Send nothing more. The service has no cancel: a job that has its data goes on, and is named."""
        if self._client is not None:
            self._client.stop()
        job_id = self._once.job_id if self._once is not None else ""
        goes_on = f"job {job_id} goes on if it has its data" if job_id else "no job is known that goes on"
        self.log.warning("killed: nothing more is sent; %s", goes_on)

    def _run(self, context: Context, watch: Watch, record: Record | None) -> Any:
        """Connect, and go on from wherever the record says."""
        from airflow_tds.hooks import TdsHook

        settings = TdsHook(self.tds_conn_id).settings()
        with settings.client() as client:
            self._client = client
            return self._work(context, settings, client, self._store(context, record), watch)

    def _work(self, context: Context, settings: Settings, client: TableClient, store: RecordStore, watch: Watch) -> Any:
        raise NotImplementedError

    def _finish(self, context: Context, client: TableClient, store: RecordStore, watch: Watch, once: Once) -> Done:
        """Take durable work to its end, waiting where it has to."""
        from airflow_tds.durability import Done

        self._once = once
        while not isinstance(step := once.advance(watch), Done):
            self._wait(context, client, store, watch, step.watch)
        return step

    def _wait(self, context: Context, client: TableClient, store: RecordStore, watch: Watch, wait: Watch) -> None:
        """Wait here, or leave to wait in the triggerer and never return; what became of it is read afterwards.

        Args:
            context: Airflow's.
            client: The service.
            store: The record's.
            watch: Pace and deadline of the whole wait.
            wait: What to wait for now.
        """
        if self.deferrable:
            self._defer(context, store, watch, wait)
        client.watch(wait)

    def _defer(self, context: Context, store: RecordStore, watch: Watch, wait: Watch) -> NoReturn:
        from airflow_tds.durability import MemoryStore
        from airflow_tds.triggers import trigger_for

        kept = store.record.to_json() if isinstance(store, MemoryStore) and store.record else None
        carry = json.dumps({"watch": watch.to_json(), "record": kept})
        context["ti"].xcom_push(key=WAIT_KEY, value={"carry": carry, "rescues": self._rescues})
        self.defer(
            trigger=trigger_for(self.tds_conn_id, wait, carry),
            method_name="execute_complete",
            timeout=timedelta(seconds=max(0.0, wait.deadline - time.time()) + DEFER_GRACE),
        )

    def _kept_wait(self, context: Context) -> dict[str, Any] | None:
        """Read what was kept before this deferral; None when there is nothing."""
        kept = context["ti"].xcom_pull(task_ids=self.task_id, key=WAIT_KEY, map_indexes=context["ti"].map_index)
        return kept if isinstance(kept, dict) and isinstance(kept.get("rescues"), int) else None

    def _store(self, context: Context, record: Record | None) -> RecordStore:
        from airflow_tds.tasks import store_of

        return store_of(context, self.log, place=self.store, durable=self.durable, record=record)

    def _new_watch(self) -> Watch:
        from airflow_tds.tasks import watch_of

        interval = self.poll_interval or (DEFERRED_INTERVAL if self.deferrable else BLOCKING_INTERVAL)
        return watch_of(self.timeout, self.execution_timeout, interval)

    def _generation(self, context: Context) -> Generation:
        from airflow_tds.tasks import generation_of

        return generation_of(context)

    @contextmanager
    def _raising(self) -> Iterator[None]:
        """Raise what no retry can mend so that Airflow does not retry, unless the task has a policy for that."""
        try:
            yield
        except errors.TableServiceError as error:
            ending = error if getattr(self, "retry_policy", None) is not None else final(error)
            if ending is error:
                raise
            raise ending from error


class _ChangingOperator(_TdsOperator):
    """What changes a table: what happens after a clear, and where it cannot be known whether it was applied.

    Args:
        on_clear: After a clear: `auto`, `resume` or `new`; see `Choices`.
        on_unknown: What cannot be known: `fail`, `resubmit` or `assume_done`; see `Choices`.
        kwargs: See `_TdsOperator` and Airflow's `BaseOperator`.
    """

    def __init__(
        self,
        *,
        on_clear: Literal["auto", "resume", "new"] = "auto",
        on_unknown: Literal["fail", "resubmit", "assume_done"] = "fail",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.on_clear = on_clear
        self.on_unknown = on_unknown

    def _choices(self) -> Choices:
        from airflow_tds.durability import Choices

        return Choices.of(self.on_clear, self.on_unknown)


class _WriteOperator(_ChangingOperator):
    """A write with a payload: upload, append, overwrite, upsert.

    Args:
        table_id: The table (templated).
        source: Path of a local file to send (templated); give this or `data`.
        data: Text, bytes, or a callable that gives chunks of bytes; give this or `source`.
        format: `csv`, `json` (an array of objects), `ndjson` or `parquet`.
        unknown_length: For data whose length is not known: `spool` reads it first, `chunked` sends it as it comes.
        kwargs: See `_TdsOperator` and Airflow's `BaseOperator`.
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

    Written once: the record of DESIGN's order lies between the initiation and the data, so a try that dies
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


class TdsTruncateOperator(_ChangingOperator):
    """Remove all rows of a table, keep its schema, and wait until it has taken effect, §3.1.

    The request is sent at most once per record: a late second one would destroy what was written after the
    first. A table that has no rows is left alone.

    Args:
        table_id: The table (templated).
        kwargs: `tds_conn_id`, `deferrable`, `timeout`, `poll_interval`, `durable`, `store`, `on_clear`, `on_unknown`,
            and Airflow's own.

    Returns:
        `{"table_id", "row_count", "snapshot_id"}` of the empty table.

    Raises:
        WaitTimedOut: The table still has rows after the timeout.
        AmbiguousWriteError: It cannot be known whether the request was sent, and the table still has rows.
    """

    template_fields: Sequence[str] = ("tds_conn_id", "store", "table_id")

    def __init__(self, *, table_id: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.table_id = table_id

    def _work(
        self, context: Context, settings: Settings, client: TableClient, store: RecordStore, watch: Watch
    ) -> dict[str, Any]:
        from airflow_tds.durability import TruncateOnce, digest

        identity = digest(settings.base_url, "truncate", self.table_id)
        once = TruncateOnce(
            client,
            store,
            self._generation(context),
            self.log,
            table_id=self.table_id,
            identity=identity,
            choices=self._choices(),
        )
        self._finish(context, client, store, watch, once)
        info = client.info(self.table_id)
        return {"table_id": self.table_id, "row_count": info.row_count, "snapshot_id": info.snapshot_id}


class TdsDeleteRowsOperator(_ChangingOperator):
    """Delete the rows that match all filters, §4.2 rule 5.

    The request is sent at most once per record: a late second one would delete rows that were written after the
    first. It has no job to ask about, so an answer that was lost is ambiguous.

    Args:
        table_id: The table (templated).
        filters: One filter or a list of them, which combine with AND, as text such as `day:eq:2026-01-31` or as
            a mapping with `field`, `operator` and `value` (templated). At least one.
        kwargs: `tds_conn_id`, `deferrable`, `timeout`, `poll_interval`, `durable`, `store`, `on_clear`, `on_unknown`,
            and Airflow's own.

    Returns:
        `{"table_id", "row_count", "snapshot_id"}` of the table after it.

    Raises:
        ValidationFailed: There is no filter, or one that cannot be sent.
        AmbiguousWriteError: It cannot be known whether the rows were deleted.
    """

    template_fields: Sequence[str] = ("tds_conn_id", "store", "table_id", "filters")

    def __init__(self, *, table_id: str, filters: Filters, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.table_id = table_id
        self.filters = filters

    def _work(
        self, context: Context, settings: Settings, client: TableClient, store: RecordStore, watch: Watch
    ) -> dict[str, Any]:
        from airflow_tds.client.filters import simple_expressions
        from airflow_tds.durability import DeleteOnce, digest

        asked = simple_expressions(self.filters)
        once = DeleteOnce(
            client,
            store,
            self._generation(context),
            self.log,
            table_id=self.table_id,
            identity=digest(settings.base_url, "delete_rows", self.table_id, asked),
            filters=asked,
            choices=self._choices(),
        )
        self._finish(context, client, store, watch, once)
        info = client.info(self.table_id)
        return {"table_id": self.table_id, "row_count": info.row_count, "snapshot_id": info.snapshot_id}


class TdsCrossQueryOperator(_TdsOperator):
    """Query one or several tables and keep the result as a file, §2.5.

    The file appears whole or not at all: it is written under a temporary name beside its own and renamed.
    A retry goes on with the query that an earlier try started; a clear starts another.

    Args:
        request: A `CrossQueryRequest` as a plain mapping (templated).
        destination: Path of the local file to write (templated); its directory must exist.
        if_exists: What to do about a file that is there: `fail`, `replace` or `skip` the query.
        kwargs: `tds_conn_id`, `deferrable`, `timeout`, `poll_interval`, `durable`, `store`, and Airflow's own.

    Returns:
        `{"uri", "size", "format", "job_id"}`: path, bytes, format and job; `job_id` is empty if skipped.

    Raises:
        ValidationFailed: The request breaks a rule of §2.5, or the file is there and `if_exists` is `fail`.
        JobFailed: The query failed.
        WaitTimedOut: The query goes on after the timeout.
    """

    template_fields: Sequence[str] = ("tds_conn_id", "store", "request", "destination")
    template_fields_renderers: ClassVar[dict[str, str]] = {"request": "json"}

    def __init__(
        self,
        *,
        request: Mapping[str, Any],
        destination: str | os.PathLike[str],
        if_exists: Literal["fail", "replace", "skip"] = "fail",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.request = request
        self.destination = destination
        self.if_exists = if_exists

    def _work(
        self, context: Context, settings: Settings, client: TableClient, store: RecordStore, watch: Watch
    ) -> dict[str, Any]:
        from airflow_tds.durability import QueryOnce, digest

        self._check_input()
        identity = digest(settings.base_url, "query", json.dumps(self.request, sort_keys=True, default=str))
        query = QueryOnce(client, store, self._generation(context), self.log, request=self.request, identity=identity)
        if not query.is_begun() and self._is_settled_by_existing():
            return self._reference("")
        done = self._finish(context, client, store, watch, query)
        if not query.is_finished() or not Path(self.destination).exists():
            self._download(client, done.job_id, watch)
            query.finish()
        return self._reference(done.job_id)

    def _check_input(self) -> None:
        if not isinstance(self.request, Mapping):
            raise errors.ValidationFailed(f"request is a mapping as in §2.5, not a {type(self.request).__name__}")
        if self.if_exists not in ("fail", "replace", "skip"):
            raise errors.ValidationFailed(f"if_exists is fail, replace or skip, not {self.if_exists!r}")
        if not Path(self.destination).parent.is_dir():
            raise errors.ValidationFailed(
                f"destination {str(self.destination)!r} is not in a local directory that exists"
            )

    def _is_settled_by_existing(self) -> bool:
        """Look at the file that is there: True ends the task, an error refuses."""
        if not Path(self.destination).exists() or self.if_exists == "replace":
            return False
        if self.if_exists == "fail":
            raise errors.ValidationFailed(f"{self.destination} is there; if_exists='replace' or 'skip' allows that")
        self.log.info("%s is there: skipped", self.destination)
        return True

    def _download(self, client: TableClient, job_id: str, watch: Watch) -> None:
        """Stream the result to a temporary name in the same directory, force it to disk, rename it."""
        target = Path(self.destination)
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
        try:
            left = max(LEAST_DOWNLOAD, watch.deadline - time.time())
            client.poll_download_to(job_id, name, timeout=left, poll_interval=watch.poll_interval)
            os.fsync(handle)
            Path(name).chmod(0o666 & ~_umask())
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        finally:
            os.close(handle)

    def _reference(self, job_id: str) -> dict[str, Any]:
        size = Path(self.destination).stat().st_size
        return {
            "uri": str(self.destination),
            "size": size,
            "format": self.request.get("format", "parquet"),
            "job_id": job_id,
        }


def _carried(event: Mapping[str, Any]) -> tuple[Watch, Record | None]:
    """Read what a deferral carried: the whole wait, and the record where no store keeps it."""
    from airflow_tds.client.waiting import Watch
    from airflow_tds.durability import Record

    try:
        carried = json.loads(event["carry"])
        record = carried["record"]
        return Watch.from_json(carried["watch"]), Record.from_json(record) if record else None
    except (KeyError, TypeError, ValueError) as damaged:
        raise errors.UnexpectedReply("the trigger's event does not carry the wait") from damaged


def _names(columns: str | Sequence[str]) -> tuple[str, ...]:
    return (columns,) if isinstance(columns, str) else tuple(columns)


def _umask() -> int:
    """The process's umask, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
