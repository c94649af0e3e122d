"""The client's two faces: `TableClient` for threads, `AsyncTableClient` for coroutines.

`Operations` gathers every operation, each written once (writes.py, queries.py, calls.py); the faces add
nothing to them but the pages behind one iterator.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from types import TracebackType
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Self, TypeVar, overload

from airflow_tds.client import errors
from airflow_tds.client.access import Access, Timeouts, Tls
from airflow_tds.client.calls import POLL_INTERVAL, TIMEOUT, Tally
from airflow_tds.client.credentials import Bearer, Credentials
from airflow_tds.client.filters import Filters
from airflow_tds.client.models import QueryResponse
from airflow_tds.client.progress import Report
from airflow_tds.client.queries import Pages, Queries
from airflow_tds.client.runtime import AsyncRuntime, BlockingRuntime, finish
from airflow_tds.client.wire import LARGEST_PAGE, Wire
from airflow_tds.client.writes import Writes

__all__ = ["AsyncTableClient", "Operations", "TableClient"]

P = ParamSpec("P")
R = TypeVar("R")


def _one(token: str | None, credentials: Credentials | None) -> Credentials | None:
    if token is not None and credentials is not None:
        raise errors.ValidationFailed("give a token or credentials, not both")
    return credentials if token is None else Bearer(token)


class Operations(Writes, Queries):
    """All operations of §4.1, over a runtime."""


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
        token: Bearer token, short for `credentials=Bearer(token)`; None for none.
        credentials: What lets us in, for instance `ApiKey(...)` or an object of your own (§5 names no scheme).
        wire: The wire map; None for the default one.
        tls: Whom we trust, and our own certificate; None for the usual certificates.
        storage_tls: The same for the object store; None for the same without our certificate.
        proxy: URL of a proxy; None for the environment's, `none` for no proxy.
        storage_proxy: The same for the object store; None for the same.
        storage_hosts: Hosts that may be an object store, with their subdomains; empty for any.
        timeouts: How patient to be; None for the defaults.
        progress: Called with how far a transfer is, twice a second and at its end, in the thread that transfers.
        learned: Called with each secret that comes up, such as a token that was given or a presigned URL's signature.

    Raises:
        ValidationFailed: The base URL or the proxy is no address, or two credentials are given.
    """

    def __init__(
        self,
        base_url: str,
        *,
        token: str | None = None,
        credentials: Credentials | None = None,
        wire: Wire | None = None,
        tls: Tls | None = None,
        storage_tls: Tls | None = None,
        proxy: str | None = None,
        storage_proxy: str | None = None,
        storage_hosts: Sequence[str] = (),
        timeouts: Timeouts | None = None,
        progress: Report | None = None,
        learned: Callable[[str], None] | None = None,
    ) -> None:
        access = Access(
            base_url,
            _one(token, credentials),
            tls or Tls(),
            storage_tls,
            proxy,
            storage_proxy,
            tuple(storage_hosts),
            timeouts or Timeouts(),
            learned=learned,
        )
        self._runtime = BlockingRuntime(access, progress)
        self._operations = Operations(self._runtime, wire, timeouts=access.timeouts)

    info = blocking(Operations.info)
    get_job = blocking(Operations.get_job)
    truncate = blocking(Operations.truncate)
    initiate = blocking(Operations.initiate)
    send_data = blocking(Operations.send_data)
    presign = blocking(Operations.presign)
    commit = blocking(Operations.commit)
    submit_direct = blocking(Operations.submit_direct)
    submit_upload = blocking(Operations.submit_upload)
    submit_append = blocking(Operations.submit_append)
    submit_upsert = blocking(Operations.submit_upsert)
    upload = blocking(Operations.upload)
    append = blocking(Operations.append)
    upsert = blocking(Operations.upsert)
    overwrite = blocking(Operations.overwrite)
    submit_overwrite = blocking(Operations.submit_overwrite)
    update = blocking(Operations.update)
    submit_update = blocking(Operations.submit_update)
    delete_rows = blocking(Operations.delete_rows)
    submit_query = blocking(Operations.submit_query)
    submit_cross_query = blocking(Operations.submit_cross_query)
    next_page = blocking(Operations.next_page)
    poll_download = blocking(Operations.poll_download)
    cross_query = blocking(Operations.cross_query)
    poll_download_to = blocking(Operations.poll_download_to)
    look = blocking(Operations.look)
    watch = blocking(Operations.watch)
    wait = blocking(Operations.wait)
    wait_until_truncated = blocking(Operations.wait_until_truncated)

    @overload
    def query(
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
    def query(
        self,
        table_id: str,
        *,
        filters: Filters = None,
        format: Literal["parquet", "csv"],
        etag: str | None = None,
        timeout: float = TIMEOUT,
        poll_interval: float = POLL_INTERVAL,
    ) -> bytes: ...

    @functools.wraps(Operations.query)
    def query(self, *args: Any, **kwargs: Any) -> Any:  # noqa: D102  # its docstring is the operation's
        return finish(self._operations.query(*args, **kwargs))

    def iter_rows(
        self, table_id: str, *, filters: Filters = None, page_size: int = LARGEST_PAGE
    ) -> Iterator[dict[str, Any]]:
        """Read all rows of a table, page by page, of one snapshot.

        Args:
            table_id: The table.
            filters: Simple filters, which combine with AND; None for all rows.
            page_size: Rows a page, 1 to 10 000.

        Yields:
            Rows.

        Raises:
            SnapshotChanged: The table has changed since the first page.
        """
        pages = Pages(table_id, filters, page_size)
        while (rows := self.next_page(pages)) is not None:
            yield from rows

    @property
    def wire(self) -> Wire:
        """The wire map in use."""
        return self._operations.wire

    @property
    def transfer_timeout(self) -> float:
        """Seconds that one upload may take at most."""
        return self._operations.transfer_timeout

    @property
    def tally(self) -> Tally:
        """What it has done so far: requests, repetitions, bytes."""
        return self._operations.tally

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
        credentials: As for `TableClient`.
        wire: As for `TableClient`.
        tls: As for `TableClient`.
        storage_tls: As for `TableClient`.
        proxy: As for `TableClient`.
        storage_proxy: As for `TableClient`.
        storage_hosts: As for `TableClient`.
        timeouts: As for `TableClient`.
        progress: As for `TableClient`.

    Raises:
        ValidationFailed: As for `TableClient`.
    """

    def __init__(
        self,
        base_url: str,
        *,
        token: str | None = None,
        credentials: Credentials | None = None,
        wire: Wire | None = None,
        tls: Tls | None = None,
        storage_tls: Tls | None = None,
        proxy: str | None = None,
        storage_proxy: str | None = None,
        storage_hosts: Sequence[str] = (),
        timeouts: Timeouts | None = None,
        progress: Report | None = None,
        learned: Callable[[str], None] | None = None,
    ) -> None:
        access = Access(
            base_url,
            _one(token, credentials),
            tls or Tls(),
            storage_tls,
            proxy,
            storage_proxy,
            tuple(storage_hosts),
            timeouts or Timeouts(),
            learned=learned,
        )
        self._async_runtime = AsyncRuntime(access, progress)
        super().__init__(self._async_runtime, wire, timeouts=access.timeouts)

    async def iter_rows(
        self, table_id: str, *, filters: Filters = None, page_size: int = LARGEST_PAGE
    ) -> AsyncIterator[dict[str, Any]]:
        """Read all rows of a table, page by page, of one snapshot; the next page is fetched meanwhile.

        Args:
            table_id: The table.
            filters: Simple filters, which combine with AND; None for all rows.
            page_size: Rows a page, 1 to 10 000.

        Yields:
            Rows.

        Raises:
            SnapshotChanged: The table has changed since the first page.
        """
        pages = Pages(table_id, filters, page_size)
        coming = asyncio.ensure_future(self.next_page(pages))
        try:
            while (rows := await coming) is not None:
                coming = asyncio.ensure_future(self.next_page(pages))
                for row in rows:
                    yield row
        finally:
            coming.cancel()

    async def close(self) -> None:
        """Close the connections."""
        await self._async_runtime.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
