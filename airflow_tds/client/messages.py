"""One request and one reply, as values; and the URLs that are not the service's own.

Built and read by wire.py, carried by runtime.py. Nothing here knows the interface.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import unquote_plus, urlsplit

from airflow_tds.client.downloads import Download
from airflow_tds.client.payloads import Body

__all__ = ["Repeat", "Reply", "Request", "SecretUrl", "TokenUrl"]

#: Parameters that stores sign with: S3, GCS, Azure, CloudFront and their kin.
_SIGNS = re.compile("sig|token|credential|secret|policy|hmac|key", re.IGNORECASE)

#: A job, statistics, or the start of something have a few hundred bytes; what has more than this is none of them.
LARGEST_ANSWER = 16 * 1024 * 1024
Repeat = Literal["always", "if_unsent", "never"]


class SecretUrl:
    """A presigned URL: whoever holds it may read or write, so it shows only its host.

    Args:
        url: The whole URL.
    """

    __slots__ = ("_url",)

    def __init__(self, url: str) -> None:
        self._url = url

    def reveal(self) -> str:
        """Give the whole URL, to be sent and never to be logged."""
        return self._url

    def secrets(self) -> set[str]:
        """Give the parts of its query that let somebody in, as they stand there and decoded."""
        pairs = [pair.partition("=") for pair in self._url.partition("?")[2].split("&")]
        kept = {value for name, _, value in pairs if _SIGNS.search(name) and value}
        return kept | {unquote_plus(value) for value in kept}

    def __repr__(self) -> str:
        try:
            parts = urlsplit(self._url)
        except ValueError:
            return "<no address>"
        return f"{parts.scheme}://{parts.hostname or ''}/…?<redacted>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError("a presigned URL must not be stored or sent to another process")


@dataclass(frozen=True)
class TokenUrl:
    """Where tokens are given: a whole address that the user set; it gets no credentials of the service.

    Attributes:
        url: The whole URL.
    """

    url: str


@dataclass(frozen=True)
class Request:
    """What is to be sent.

    Attributes:
        operation: The operation's name, §4.1, for logs and errors.
        subject: What it is about, such as `table flights`, for logs and errors.
        method: HTTP method.
        target: A path below the service's base path; or a presigned or a token URL, which get no credentials.
        repeat: Whether the request may be sent again: `always`, only `if_unsent`, or `never`.
        headers: Header fields beside those of the runtime.
        json: A JSON document to send; None for none.
        body: A payload to send; None for none.
        sink: What a successful reply's body is poured into; None keeps it in the reply.
        limit: Seconds that the whole request may take; None for no limit beyond the socket's own.
        largest: Bytes that a successful reply without sink may have; a longer one is refused.
    """

    operation: str
    subject: str
    method: str
    target: str | SecretUrl | TokenUrl
    repeat: Repeat = "never"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    json: Any = None
    body: Body | None = None
    sink: Download | None = None
    limit: float | None = None
    largest: int = LARGEST_ANSWER


@dataclass(frozen=True)
class Reply:
    """What came back, whole.

    Attributes:
        status: HTTP status.
        headers: Header fields, found by their names in lower case.
        content: The body; empty if it was poured into the request's sink.
        received: Bytes of the body, also of a poured one.
        request_id: The id that was sent with the request.
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes = b""
    received: int = 0
    request_id: str = ""
