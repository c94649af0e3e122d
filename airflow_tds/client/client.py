"""Every operation, once: `TableClient` for threads, `AsyncTableClient` for coroutines.

`Operations` holds the sequences of requests, over a `Runtime`; the two faces add nothing to them. An
operation is a sequence: no task groups and no async generators here, so that the blocking face can step
it to its end. Which bytes travel is wire.py's, how they travel runtime.py's.
"""

from __future__ import annotations

import functools
import inspect
import io
import logging
import os
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Concatenate, Generic, Literal, ParamSpec, Self, TypeVar

from pydantic import ValidationError

from airflow_tds.client import errors
from airflow_tds.client.messages import Reply, Request, SecretUrl
from airflow_tds.client.models import CrossQueryRequest, DataJobResponse, DatasetInfoResponse
from airflow_tds.client.payloads import Body, Keeper, Payload, body_of
from airflow_tds.client.runtime import Access, AsyncRuntime, BlockingRuntime, Runtime, finish
from airflow_tds.client.waiting import Outcome, Reading, Verdict, Watch
from airflow_tds.client.wire import Initiation, Wire, WriteOperation, describe

__all__ = ["AsyncTableClient", "Operations", "TableClient"]

log = logging.getLogger(__name__)

#: botocore's standard mode: three tries for a call, five for a transfer, full jitter, at most 20 s apart.
CALL_TRIES = 3
TRANSFER_TRIES = 5
LONGEST_BACKOFF = 20.0
#: A wait rides out an outage: this many reads in a row may fail, about ten minutes with the backoff above.
WATCH_TRIES = 60
#: Without a deadline a `Retry-After` beyond this many seconds ends the call: the caller decides.
LONGEST_RETRY_AFTER = 300.0
#: Seconds that one read of a wait gets at least, so that the last one, at the deadline, can be answered.
SHORTEST_LOOK = 1.0
#: Client defaults, seconds (§8 leaves them open): a notebook user waits minutes, not days.
TIMEOUT = 600.0
POLL_INTERVAL = 5.0
#: The longest that one upload may take, seconds; part of the lease of a durable write.
TRANSFER_TIMEOUT = 900.0

UnknownLength = Literal["chunked", "spool"]
P = ParamSpec("P")
R = TypeVar("R")


def backoff(tries: int, retry_after: float | None) -> float:
    """Say how long to wait before trying again, seconds: what the service asks, else full jitter."""
    if retry_after is not None:
        return retry_after
    return random.uniform(0, min(2.0**tries, LONGEST_BACKOFF))  # noqa: S311  # spreads load, hides nothing


def may_repeat(request: Request, error: errors.TableServiceError) -> bool:
    """Say whether a request may be sent again after an error, without doing anything twice."""
    if not isinstance(error, errors.TransportFailed | errors.ServerError):
        return False
    if request.sink is not None or (request.body is not None and not request.body.replayable):
        return False
    unsent = error.outcome in ("not_sent", "refused")
    return request.repeat == "always" or (request.repeat == "if_unsent" and unsent)


def _asked(error: errors.TableServiceError) -> float | None:
    """Say how many seconds the service asks to wait; None when it does not."""
    return error.retry_after if isinstance(error, errors.ServerError) else None


class Operations:
    """The operations of §4.1 over a runtime.

    Args:
        runtime: The outside world.
        wire: The wire map; None for the default one.
        transfer_timeout: Seconds that one upload may take at most.
    """

    def __init__(
        self, runtime: Runtime, wire: Wire | None = None, *, transfer_timeout: float = TRANSFER_TIMEOUT
    ) -> None:
        self._runtime = runtime
        self.wire = wire or Wire()
        self.transfer_timeout = transfer_timeout

    # ---- one request

    async def _call(self, request: Request, tries: int = CALL_TRIES, deadline: float | None = None) -> Reply:
        """Send, again where that is harmless, and raise what the reply means.

        A pause that would pass the deadline ends with it, and nothing more is sent.
        """
        for attempt in range(1, tries + 1):
            try:
                return await self._once(request)
            except (errors.TransportFailed, errors.ServerError) as failed:
                wait = backoff(attempt, _asked(failed))
                left = LONGEST_RETRY_AFTER if deadline is None else deadline - self._runtime.now()
                if attempt == tries or not may_repeat(request, failed) or (deadline is None and wait > left):
                    raise
                if wait > left:
                    await self._runtime.pause(max(0.0, left))
                    raise
                log.warning("%s; again in %.1f s", failed, wait)
            await self._runtime.pause(wait)
        raise AssertionError("unreachable: the last try returns or raises")

    async def _once(self, request: Request) -> Reply:
        reply = await self._runtime.send(request)
        error = self.wire.error(request, reply)
        if error is not None:
            raise error
        return reply

    # ---- tables and jobs

    async def info(self, table_id: str) -> DatasetInfoResponse:
        """Get a table's statistics, without a scan.

        Args:
            table_id: The table.

        Returns:
            Its statistics, §2.2.

        Raises:
            TableNotFound: There is no such table.
        """
        return self.wire.read_info(await self._call(self.wire.info_request(table_id)))

    async def get_job(self, job_id: str) -> DataJobResponse:
        """Get a job's record.

        Args:
            job_id: The job.

        Returns:
            Its record, §2.3; any status but COMPLETED and FAILED means that it goes on.

        Raises:
            JobNotFound: There is no such job.
        """
        return self.wire.read_job(await self._call(self.wire.job_request(job_id)))

    async def truncate(self, table_id: str) -> None:
        """Ask for all rows of a table to be removed; it takes effect later, §3.1.

        Args:
            table_id: The table.

        Raises:
            TableNotFound: There is no such table.
        """
        await self._call(self.wire.truncate_request(table_id))

    # ---- writes, §4.2 rule 1

    async def initiate(
        self,
        operation: WriteOperation,
        table_id: str,
        format: str = "csv",  # noqa: A002  # the interface's word
        key_columns: str | Sequence[str] | None = None,
    ) -> Initiation:
        """Announce a write: its job then waits for the data, and nothing is applied (assumed, §4.2).

        Args:
            operation: `upload`, `append` or `upsert`.
            table_id: The table.
            format: `csv`, `json`, `ndjson` or `parquet`.
            key_columns: For upsert: a column name or a list of them. None otherwise.

        Returns:
            The job's id and where to send the data.

        Raises:
            Conflict: Upload on a table that has, or ever had, data, §3.1.
            ValidationFailed: A parameter is invalid.
        """
        return self.wire.read_initiation(
            await self._call(self.wire.initiate_request(operation, table_id, format, key_columns))
        )

    async def send_data(
        self, initiation: Initiation, data: Payload | Body, *, unknown_length: UnknownLength = "chunked"
    ) -> None:
        """Send the data of a write that was announced; may be repeated with the same data.

        Args:
            initiation: What `initiate` returned.
            data: Bytes, text, a path, a binary file, an iterable of bytes, or a callable that gives one.
            unknown_length: For data whose length is not known: `spool` reads it first, `chunked` sends it
                as it comes and, should the store refuse that with 411 or 501, again with its length.
                Either way it is kept, in a temporary file beyond 1 MiB, until it is sent.

        Raises:
            StorageRefused: The store refused it, for instance because the URL expired.
            TransportFailed: No complete answer came; `.outcome` says whether data may have arrived.
        """
        body = data if isinstance(data, Body) else body_of(data)
        if body.length is not None:
            await self._put(initiation, body)
            return
        with Keeper(body) as keeper:
            if unknown_length == "chunked":
                try:
                    await self._put(initiation, keeper.body())
                except errors.LengthRequired as refused:
                    log.info("%s; sent again with its length", refused)
                else:
                    return
            for _ in keeper.rest():
                await self._runtime.pause(0.0)  # a stop is seen, and other work of an event loop goes on
            await self._put(initiation, keeper.measured())

    async def _put(self, initiation: Initiation, body: Body) -> None:
        await self._call(self.wire.put_request(initiation, body, limit=self.transfer_timeout), TRANSFER_TRIES)

    async def _submit(
        self,
        operation: WriteOperation,
        table_id: str,
        data: Payload,
        data_format: str,
        *,
        unknown_length: UnknownLength,
        key_columns: str | Sequence[str] | None = None,
    ) -> str:
        body = body_of(data)
        initiation = await self.initiate(operation, table_id, data_format, key_columns)
        await self.send_data(initiation, body, unknown_length=unknown_length)
        return initiation.job_id

    async def submit_upload(
        self,
        table_id: str,
        data: Payload,
        format: str = "csv",  # noqa: A002  # the interface's word
        *,
        unknown_length: UnknownLength = "chunked",
    ) -> str:
        """Start the initial load of a table; return once the data has reached the server, §4.2 rule 9.

        Args:
            table_id: The table; it must never have had data.
            data: Bytes, text, a path, a binary file, an iterable of bytes, or a callable that gives one.
            format: `csv`, `json`, `ndjson` or `parquet`.
            unknown_length: See `send_data`.

        Returns:
            The job's id.

        Raises:
            Conflict: The table has, or ever had, data, §3.1.
        """
        return await self._submit("upload", table_id, data, format, unknown_length=unknown_length)

    async def submit_append(
        self,
        table_id: str,
        data: Payload,
        format: str = "csv",  # noqa: A002  # the interface's word
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

    async def submit_upsert(
        self,
        table_id: str,
        data: Payload,
        format: str = "csv",  # noqa: A002  # the interface's word
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

    async def upload(
        self,
        table_id: str,
        data: Payload,
        format: str = "csv",  # noqa: A002  # the interface's word
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

    async def append(
        self,
        table_id: str,
        data: Payload,
        format: str = "csv",  # noqa: A002  # the interface's word
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

    async def upsert(
        self,
        table_id: str,
        data: Payload,
        format: str = "csv",  # noqa: A002  # the interface's word
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

    # ---- queries

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
        return self.wire.read_job_id(await self._call(self.wire.start_query_request(query)))

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
        watch = replace(watch, kind="query", subject=await self.submit_cross_query(request))
        sink = io.BytesIO()
        await self._fetch(watch, await self._result_url(watch), sink)
        return sink.getvalue()

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

    async def _fetch(self, watch: Watch, url: SecretUrl, sink: BinaryIO) -> None:
        """Pour a result; a link that expired or broke is asked for again, and the result from its start."""
        for attempt in range(1, TRANSFER_TRIES + 1):
            try:
                await self._once(self.wire.download_request(watch.subject, url, sink))
            except (errors.StorageRefused, errors.TransportFailed, errors.ServerError) as failed:
                wait = backoff(attempt, _asked(failed))
                if attempt == TRANSFER_TRIES or wait > LONGEST_RETRY_AFTER:
                    raise
                log.warning("%s; the result is asked for again in %.1f s", failed, wait)
            else:
                return
            sink.seek(0)
            sink.truncate()
            await self._runtime.pause(wait)
            url = await self._result_url(watch)
        raise AssertionError("unreachable: the last try returns or raises")

    async def _result_url(self, watch: Watch) -> SecretUrl:
        url = self.wire.read_poll(await self._awaited(watch)).result
        if url is None:
            raise AssertionError("unreachable: a query is COMPLETED only by its redirect")
        return url

    # ---- waiting

    async def look(self, watch: Watch) -> Reading:
        """Look once at what a watch names.

        Args:
            watch: What to look at; its deadline ends repeated tries.

        Returns:
            What was read, judged.
        """
        return watch.read(self.wire, await self._look(watch))

    async def watch(self, watch: Watch) -> Outcome:
        """Wait for what a watch names; how it ended is a value, not an error.

        Args:
            watch: What to wait for, and until when.

        Returns:
            How it ended. A service that does not answer when the deadline comes is a wait that timed out.

        Raises:
            TransportFailed: The service did not answer for about ten minutes.
        """
        outcome, _ = await self._until(watch)
        return outcome

    async def _until(self, watch: Watch) -> tuple[Outcome, Reply]:
        """Look until a wait is over; give how it ended, and the last answer."""
        reading, reply = Reading(Verdict.RUNNING, "not read"), Reply(0)
        while True:
            try:
                reply = await self._look(watch)
                reading = watch.read(self.wire, reply)
            except (errors.TransportFailed, errors.ServerError):
                if not watch.over(self._runtime.now()):
                    raise
            now = self._runtime.now()
            outcome = watch.outcome(reading, now)
            if outcome is not None:
                return outcome, reply
            await self._runtime.pause(watch.pause(now))

    async def _look(self, watch: Watch) -> Reply:
        limit = max(SHORTEST_LOOK, watch.deadline - self._runtime.now())
        return await self._call(replace(watch.request(self.wire), limit=limit), WATCH_TRIES, watch.deadline)

    async def _awaited(self, watch: Watch) -> Reply:
        """Give the answer that says that all went well, or raise how it went."""
        outcome, reply = await self._until(watch)
        outcome.check()
        return reply

    async def wait(
        self, job_id: str, *, timeout: float = TIMEOUT, poll_interval: float = POLL_INTERVAL
    ) -> DataJobResponse:
        """Wait for a write's job.

        Args:
            job_id: The job.
            timeout: Seconds from now after which waiting ends.
            poll_interval: Seconds between two reads of the status, at most.

        Returns:
            The completed job.

        Raises:
            JobFailed: The job failed.
            WaitTimedOut: The job goes on after the timeout.
            JobNotFound: There is no such job.
        """
        return await self._completed(self._watch(timeout, poll_interval), job_id)

    async def wait_until_truncated(
        self, table_id: str, *, timeout: float = TIMEOUT, poll_interval: float = POLL_INTERVAL
    ) -> DatasetInfoResponse:
        """Wait until a truncation has taken effect: row_count is falsy then, §3.1.

        Args:
            table_id: The table.
            timeout: Seconds from now after which waiting ends.
            poll_interval: Seconds between two reads of the statistics, at most.

        Returns:
            The statistics of the empty table.

        Raises:
            WaitTimedOut: The table still has rows after the timeout.
        """
        watch = replace(self._watch(timeout, poll_interval), kind="truncation", subject=table_id)
        return self.wire.read_info(await self._awaited(watch))

    def _watch(self, timeout: float, poll_interval: float) -> Watch:
        if not timeout > 0 or not poll_interval > 0:
            raise errors.ValidationFailed("timeout and poll_interval are seconds above zero (§4.2 rule 8)")
        now = self._runtime.now()
        return Watch("write", "", started=now, deadline=now + timeout, poll_interval=poll_interval)

    async def _completed(self, watch: Watch, job_id: str) -> DataJobResponse:
        return self.wire.read_job(await self._awaited(replace(watch, subject=job_id)))


class blocking(Generic[P, R]):  # noqa: N801  # reads as a decorator
    """The blocking form of an operation: the same signature, without `await`."""

    def __init__(self, operation: Callable[Concatenate[Operations, P], Coroutine[Any, Any, R]]) -> None:
        self._operation = operation
        self.__doc__ = operation.__doc__
        signature = inspect.signature(operation)
        self._signature = signature.replace(parameters=list(signature.parameters.values())[1:])

    def __get__(self, client: TableClient | None, owner: type) -> Callable[P, R]:
        operation = self._operation

        @functools.wraps(operation)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if client is None:
                raise TypeError(f"{operation.__name__} needs a client: TableClient(...).{operation.__name__}(...)")
            return finish(operation(client._operations, *args, **kwargs))  # noqa: SLF001  # a method of that class

        call.__signature__ = self._signature  # type: ignore[attr-defined]  # read by inspect.signature
        return call


class TableClient:
    """The service for a thread that may wait.

    Args:
        base_url: Scheme, host, port and base path, such as `https://host:8443/api/v1`.
        token: Bearer token (assumed scheme, §5 is silent); None for no credentials.
        wire: The wire map; None for the default one.
        ca_bundle: Path of a file with trusted certificates; None for the default ones.
        transfer_timeout: Seconds that one upload may take at most.

    Raises:
        ValidationFailed: The base URL is none.
    """

    def __init__(
        self,
        base_url: str,
        *,
        token: str | None = None,
        wire: Wire | None = None,
        ca_bundle: str | None = None,
        transfer_timeout: float = TRANSFER_TIMEOUT,
    ) -> None:
        self._runtime = BlockingRuntime(Access(base_url, token, ca_bundle))
        self._operations = Operations(self._runtime, wire, transfer_timeout=transfer_timeout)

    info = blocking(Operations.info)
    get_job = blocking(Operations.get_job)
    truncate = blocking(Operations.truncate)
    initiate = blocking(Operations.initiate)
    send_data = blocking(Operations.send_data)
    submit_upload = blocking(Operations.submit_upload)
    submit_append = blocking(Operations.submit_append)
    submit_upsert = blocking(Operations.submit_upsert)
    upload = blocking(Operations.upload)
    append = blocking(Operations.append)
    upsert = blocking(Operations.upsert)
    submit_cross_query = blocking(Operations.submit_cross_query)
    cross_query = blocking(Operations.cross_query)
    poll_download_to = blocking(Operations.poll_download_to)
    look = blocking(Operations.look)
    watch = blocking(Operations.watch)
    wait = blocking(Operations.wait)
    wait_until_truncated = blocking(Operations.wait_until_truncated)

    @property
    def wire(self) -> Wire:
        """The wire map in use."""
        return self._operations.wire

    @property
    def transfer_timeout(self) -> float:
        """Seconds that one upload may take at most."""
        return self._operations.transfer_timeout

    def stop(self) -> None:
        """End the work of another frame of this thread before its next request, piece or pause.

        Touches memory only, so that a signal handler may call it.
        """
        self._runtime.stopping = True

    def close(self) -> None:
        """Close the connections."""
        self._runtime.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncTableClient(Operations):
    """The service for a coroutine; the same operations, awaited.

    Args:
        base_url: As for `TableClient`.
        token: As for `TableClient`.
        wire: As for `TableClient`.
        ca_bundle: As for `TableClient`.
        transfer_timeout: As for `TableClient`.

    Raises:
        ValidationFailed: The base URL is none.
    """

    def __init__(
        self,
        base_url: str,
        *,
        token: str | None = None,
        wire: Wire | None = None,
        ca_bundle: str | None = None,
        transfer_timeout: float = TRANSFER_TIMEOUT,
    ) -> None:
        self._async_runtime = AsyncRuntime(Access(base_url, token, ca_bundle))
        super().__init__(self._async_runtime, wire, transfer_timeout=transfer_timeout)

    async def close(self) -> None:
        """Close the connections."""
        await self._async_runtime.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
