"""Who is let in: credentials put to a request that goes to the service, renewed in time, and once on a 401.

Renewing is an exchange like any other; which fields let us in is credentials.py's.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus
from typing import Any

from airflow_tds.client import errors
from airflow_tds.client.access import Access
from airflow_tds.client.credentials import Credentials
from airflow_tds.client.messages import Reply, Request, SecretUrl

__all__ = ["Exchange", "let_in"]

#: One request, with these header fields of ours, and its reply.
Exchange = Callable[[Request, Mapping[str, str]], Awaitable[Reply]]


async def let_in(access: Access, request: Request, exchange: Exchange, turn: AbstractAsyncContextManager[Any]) -> Reply:
    """Send a request with credentials if it goes to the service; a 401 is answered once, with renewed ones."""
    if isinstance(request.target, SecretUrl):
        access.tell(request.target.secrets())
    if not isinstance(request.target, str) or access.credentials is None:
        return await exchange(request, {})
    own = await _credentials(access, access.credentials, exchange, turn)
    reply = await exchange(request, own)
    again = request.body is None or request.body.replayable
    if reply.status != HTTPStatus.UNAUTHORIZED or not again or not access.credentials.drop(own):
        return reply
    return await exchange(request, await _credentials(access, access.credentials, exchange, turn))


async def _credentials(
    access: Access, credentials: Credentials, exchange: Exchange, turn: AbstractAsyncContextManager[Any]
) -> Mapping[str, str]:
    """Give the header fields, renewed if need be; what fails here left nothing at the service."""
    if credentials.renewal(time.time()) is None:
        return credentials.fields()
    async with turn:
        renewal = credentials.renewal(time.time())
        if renewal is not None:
            try:
                reply = await exchange(renewal, {})
            except errors.TransportFailed as failed:
                failed.outcome = "not_sent"
                raise
            credentials.renew(reply, time.time())
            access.tell(value.rpartition(" ")[2] for value in credentials.fields().values())
    return credentials.fields()
