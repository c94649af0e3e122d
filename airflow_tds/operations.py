"""The client's operations on whatever can open a client: one call opens it, asks, and closes it.

Which operations there are, and what they do, is the client's. Nothing of it is loaded before one is called, as a DAG
that imports the hook is parsed again and again.
"""

from __future__ import annotations

import functools
import inspect
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, overload

if TYPE_CHECKING:
    from airflow_tds.client.client import Operations, TableClient
    from airflow_tds.client.filters import Filters
    from airflow_tds.client.models import QueryResponse
else:

    class _Names:
        """Gives each operation's name in place of the operation, which only type checkers need here."""

        def __getattr__(self, name: str) -> str:
            return name

    Operations = _Names()

__all__ = ["ClientOperations"]

P = ParamSpec("P")
R = TypeVar("R")


class _Forwarded(Generic[P, R]):
    """An operation of the blocking client, with its signature and text, on a client of its own."""

    def __init__(self, operation: Callable[Concatenate[Operations, P], Coroutine[Any, Any, R]]) -> None:
        self._name: str = operation  # type: ignore[assignment]  # at run time it is its name

    def __get__(self, opener: ClientOperations | None, owner: type) -> Callable[P, R]:
        from airflow_tds.client.client import TableClient

        name, operation = self._name, getattr(TableClient, self._name)

        @functools.wraps(operation)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if opener is None:
                raise TypeError(f"{name} needs a hook: {owner.__name__}(...).{name}(...)")
            with opener.get_conn() as client:
                result: R = getattr(client, name)(*args, **kwargs)
                return result

        signature = inspect.signature(operation)
        asked = [given for given in signature.parameters.values() if given.name != "self"]
        call.__signature__ = signature.replace(parameters=asked)  # type: ignore[attr-defined]  # inspect reads it
        return call


class ClientOperations:
    """Every operation of §4.1; for many calls in a row open one client: `with hook.get_conn() as client:`."""

    @abstractmethod
    def get_conn(self) -> TableClient:
        """Make a client for this thread."""

    info = _Forwarded(Operations.info)
    upload = _Forwarded(Operations.upload)
    submit_upload = _Forwarded(Operations.submit_upload)
    append = _Forwarded(Operations.append)
    submit_append = _Forwarded(Operations.submit_append)
    overwrite = _Forwarded(Operations.overwrite)
    submit_overwrite = _Forwarded(Operations.submit_overwrite)
    upsert = _Forwarded(Operations.upsert)
    submit_upsert = _Forwarded(Operations.submit_upsert)
    update = _Forwarded(Operations.update)
    submit_update = _Forwarded(Operations.submit_update)
    submit_query = _Forwarded(Operations.submit_query)
    cross_query = _Forwarded(Operations.cross_query)
    submit_cross_query = _Forwarded(Operations.submit_cross_query)
    poll_download = _Forwarded(Operations.poll_download)
    poll_download_to = _Forwarded(Operations.poll_download_to)
    get_job = _Forwarded(Operations.get_job)
    delete_rows = _Forwarded(Operations.delete_rows)
    truncate = _Forwarded(Operations.truncate)
    wait = _Forwarded(Operations.wait)
    wait_until_truncated = _Forwarded(Operations.wait_until_truncated)

    if TYPE_CHECKING:  # what it returns depends on the format

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
        ) -> QueryResponse | None: ...

        @overload
        def query(
            self,
            table_id: str,
            *,
            filters: Filters = None,
            format: Literal["parquet", "csv"],
            timeout: float = ...,
            poll_interval: float = ...,
        ) -> bytes: ...

        def query(self, *args: Any, **kwargs: Any) -> Any: ...  # noqa: D102  # its docstring is the operation's

    else:
        query = _Forwarded(Operations.query)

    def iter_rows(
        self, table_id: str, *, filters: Filters = None, page_size: int | None = None
    ) -> Iterator[dict[str, Any]]:
        """Read all rows of a table, page by page, of one snapshot; see `TableClient.iter_rows`.

        Args:
            table_id: The table.
            filters: Simple filters, which combine with AND; None for all rows.
            page_size: Rows a page, 1 to 10 000; None for 10 000.

        Yields:
            Rows.

        Raises:
            SnapshotChanged: The table has changed since the first page.
        """
        with self.get_conn() as client:
            yield from client.iter_rows(table_id, filters=filters, **({"page_size": page_size} if page_size else {}))
