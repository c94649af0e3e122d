"""How a payload gets to the service: the steps of each strategy of the wire map, §4.2 rule 1, and their order.

What protects a write across crashes is durability's, which takes the steps one by one. What each operation asks for
is writes.py's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from airflow_tds.client import errors
from airflow_tds.client.calls import TRANSFER_TRIES, Calls
from airflow_tds.client.messages import Reply, Request
from airflow_tds.client.payloads import Body, Keeper, Payload, body_of
from airflow_tds.client.wire import Initiation, WriteOperation

__all__ = ["Sending", "UnknownLength"]

log = logging.getLogger(__name__)

#: What a store says to a PUT that must not replace anything, when there is something.
PRECONDITION_FAILED = 412
UnknownLength = Literal["chunked", "spool"]


class Sending(Calls):
    """The steps of a write, and all of them in one."""

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


def _lower(headers: Mapping[str, str]) -> set[tuple[str, str]]:
    return {(name.lower(), value) for name, value in headers.items()}


def _format(data: Any, asked: str | None) -> str:
    """Say in which format data travels; rows keep the types of their values in json only."""
    if asked is not None:
        return asked
    rows = isinstance(data, Sequence) and not isinstance(data, str | bytes | bytearray | memoryview)
    return "json" if rows and all(isinstance(item, Mapping) for item in data[:1]) else "csv"
