"""A request as httpx takes it: its whole address, header fields and patience.

What may be asked of whom is decided before anything leaves: an address that httpx would rewrite, a place that
no object store may have, a header field that cannot be sent are refused here. Nothing is sent.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx

from airflow_tds import __version__
from airflow_tds.client import errors
from airflow_tds.client.access import Access, is_internal, is_never_store, literal, peer, refused
from airflow_tds.client.messages import Request, SecretUrl, TokenUrl

__all__ = ["address", "arguments", "check_peer"]

#: A header field that can be sent.
_FIELD = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+: (?! )[\x20-\x7e]*")


def address(access: Access, request: Request) -> str:
    """Give the whole URL of a request; see `Access.address`.

    Raises:
        UnexpectedReply: Also where httpx would rewrite a presigned URL, so that its signature no longer fits,
            or where it names an address that no object store may have.
    """
    url = access.address(request)
    if isinstance(request.target, SecretUrl):
        if not _kept_as_is(url):
            raise refused(request, "is refused")
        found = literal(httpx.URL(url).host)
        if found is not None:
            check_peer(access, request, found)
    return url


def _kept_as_is(url: str) -> bool:
    """Say whether httpx sends path and query as they are."""
    try:
        parts = httpx.URL(url)
        sent, _ = parts.raw_path.decode(), parts.host  # which it decodes where it looks for a proxy
    except (httpx.InvalidURL, UnicodeError):
        return False
    written = url.partition("://")[2][len(urlsplit(url).netloc) :]
    return sent == (written if written.startswith("/") else "/" + written)


def check_peer(access: Access, request: Request, found: Any) -> None:
    """Refuse a presigned URL that would lead us where only we can reach, or to a cloud's own credentials."""
    if is_never_store(found) or (is_internal(found) and not _is_inside(access.host)):
        raise refused(request, f"leads to {found}, which is no place for an object store; refused")


def _is_inside(host: str) -> bool:
    """Say whether the service itself is at an address that cannot be reached from everywhere."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return any(is_internal(peer(str(at[4][0]))) for at in found)


def arguments(access: Access, request: Request, own: Mapping[str, str], request_id: str) -> dict[str, Any]:
    """Give the arguments of httpx's `stream`, without content.

    Args:
        access: The service.
        request: What to send.
        own: The credentials' header fields; they go to the service only.
        request_id: For the service's log and ours.
    """
    return {
        "method": request.method,
        "url": address(access, request),
        "headers": _fields(request, own, request_id),
        "json": request.json,
        "timeout": _timeout(access, request),
    }


def _fields(request: Request, own: Mapping[str, str], request_id: str) -> httpx.Headers:
    """Give a request's header fields; credentials and our own names go to the service only."""
    fields = {"User-Agent": f"airflow-tds/{__version__} httpx/{httpx.__version__}", "Accept-Encoding": "identity"}
    if isinstance(request.target, str):
        fields |= {"Accept": "application/json", "X-Request-Id": request_id, **own}
    found = httpx.Headers()
    for name, value in (*fields.items(), *request.headers.items()):
        if not _FIELD.fullmatch(f"{name}: {value}"):
            raise errors.ValidationFailed(f"{request.operation}, {request.subject}: header {name!r} cannot be sent")
        found[name] = value
    if request.body is not None and request.body.length is not None:
        found["Content-Length"] = str(request.body.length)
    return found


def _timeout(access: Access, request: Request) -> httpx.Timeout:
    """Give the socket's patience: no single step takes longer than the whole request may."""
    times = access.timeouts
    uploads = request.body is not None and not isinstance(request.target, TokenUrl)
    steps = {"connect": times.connect, "read": times.commit if uploads else times.read, "write": times.write}
    limit = float("inf") if request.limit is None else request.limit
    return httpx.Timeout(**{step: min(seconds, limit) for step, seconds in steps.items()}, pool=times.connect)
