"""How an exchange ends without a reply: refused, broken, late or told to stop.

Says of each whether the request can have reached the other side; what may quote a URL or a header is not shown.
"""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Callable

import httpcore
import httpx

from airflow_tds.client import errors
from airflow_tds.client.messages import Request, SecretUrl

__all__ = ["BROKEN", "UNSENT", "Guard", "failure", "go_on"]

#: What never left: no connection was made, or the request could not be written down.
UNSENT: tuple[type[Exception], ...] = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
    httpcore.ConnectError,
    httpcore.ConnectTimeout,
)
#: All that httpx raises, and httpcore where it is used alone; and OpenSSL's refusals after the handshake, which the
#: asyncio side of both lets through.
BROKEN = (
    *(httpx.HTTPError, httpx.InvalidURL, httpx.StreamError),
    *(httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError),
    ssl.SSLError,
)
_WRITTEN_BADLY = (httpx.LocalProtocolError, httpcore.LocalProtocolError)
#: OpenSSL's words for a connection that ended, and for bytes that had not come when patience ran out.
_NO_DISTRUST = (
    ssl.SSLEOFError,
    ssl.SSLZeroReturnError,
    ssl.SSLSyscallError,
    ssl.SSLWantReadError,
    ssl.SSLWantWriteError,
)


def failure(
    request: Request, error: Exception, never_left: tuple[type[Exception], ...] = UNSENT, *, request_id: str = ""
) -> errors.TransportFailed:
    """Say what an exception means for the request: whether it can have reached the service.

    Raise what this returns outside of the `except`: httpx's exception holds the URL and the headers.

    Args:
        request: What was sent, or not.
        error: What was raised.
        never_left: What says that it was not sent.
        request_id: The id that was sent with it; it may stand in the service's log.
    """
    unsent = isinstance(error, never_left)
    text = f"{request.operation}, {request.subject}: {type(error).__name__}"
    harmless = isinstance(error, (*BROKEN, OSError)) and not isinstance(error, _WRITTEN_BADLY)
    quotes = isinstance(request.target, SecretUrl) or not harmless
    detail = "" if quotes or not str(error) else f": {error}"  # what may quote a URL or a header is not shown
    distrust = _distrust(error, in_handshake=unsent)
    if distrust is not None:
        return errors.TlsFailed(f"{text}: {distrust}", outcome="not_sent")
    if not unsent and request_id and isinstance(request.target, str):
        detail += f" (request {request_id})"
    return errors.TransportFailed(text + detail, outcome="not_sent" if unsent else "unknown")


def _distrust(error: BaseException | None, *, in_handshake: bool) -> str | None:
    """Say what one side does not like of the other; None when it is another matter, such as silence.

    With TLS 1.3 a server may refuse our certificate after the handshake: it shows on the first read.
    """
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    if error is None or isinstance(error, _NO_DISTRUST):
        return None
    reason = str(getattr(error, "reason", None) or "")
    if not in_handshake and not re.search("CERTIFICATE|UNKNOWN_CA", reason):
        return None
    return str(error)


class Guard:
    """Whether a request may go on: it is neither told to stop nor late."""

    def __init__(self, request: Request, check_stop: Callable[[], None], read: float) -> None:
        self._request = request
        self._check_stop = check_stop
        self._read = read
        self._ends = None if request.limit is None else time.monotonic() + request.limit

    @property
    def patience(self) -> float:
        """Seconds to wait for the next bytes: what is left of the whole request's time, at most a read's."""
        return self._read if self._ends is None else min(self._read, max(0.001, self._ends - time.monotonic()))

    def check(self) -> None:
        """Raise `Stopped` if told to stop, `TransportFailed` if late: the request is under way, or was answered."""
        try:
            self._check_stop()
        except errors.Stopped as stopped:
            stopped.outcome = "unknown"
            raise
        if self._ends is not None and time.monotonic() > self._ends:
            raise errors.TransportFailed(
                f"{self._request.operation}, {self._request.subject}: not done within {self._request.limit:.0f} s"
            )


def go_on() -> None:
    """Asyncio work is stopped by cancelling it; there is no flag to look at."""
