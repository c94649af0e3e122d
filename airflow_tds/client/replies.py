"""Replies read: JSON pointers, times, header fields, and texts made fit for a log.

Pure functions over one reply; which value stands where is wire.py's. What cannot be read raises
`UnexpectedReply`, which never shows a body: it may hold a presigned URL.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import parse_qs, parse_qsl, quote, urlsplit

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import from_json

from airflow_tds.client import errors
from airflow_tds.client.messages import Reply
from airflow_tds.client.models import describe
from airflow_tds.client.routes import CONTROL, is_header, pointer_keys

__all__ = [
    "at",
    "clean",
    "date_of",
    "document_of",
    "find",
    "fit",
    "lifetime_in",
    "lines_of",
    "model_of",
    "moment_of",
    "put_headers",
    "reason_of",
    "record_of",
    "required",
    "retry_after",
    "shown",
    "unsigned",
]

#: An error's text keeps this much of the answer's body: enough to act on, too little to flood a log.
ERROR_TEXT = 2048
#: Of a body that is no known error this much is shown in one line.
SHOWN_TEXT = 200
#: Of an answer's media type this much is shown.
LONGEST_KIND = 64
#: A presigned URL's parameter of this many characters or more is taken for a secret.
SHORTEST_SECRET = 8
_TIME = TypeAdapter(datetime)
_M = TypeVar("_M", bound=BaseModel)


def document_of(reply: Reply, operation: str) -> Any:
    """Read a reply's JSON."""
    try:
        return from_json(reply.content, cache_strings="keys", allow_inf_nan=False)
    except ValueError:
        kind = fit(reply.headers.get("content-type", ""))[:LONGEST_KIND]
        raise errors.UnreadableReply(  # without the body: it may be a bare presigned URL
            f"{operation}: HTTP {reply.status} with {len(reply.content)} bytes{kind and f' of {kind}'} that are no JSON"
            "; does the address lead to the service?"
        ) from None


def lines_of(reply: Reply, operation: str) -> list[Any]:
    """Read a reply's JSON values, one a line; a blank line is none."""
    lines = (replace(reply, content=line) for line in reply.content.split(b"\n") if line.strip())
    return [document_of(line, operation) for line in lines]


def record_of(reply: Reply, operation: str) -> Any:
    """Read a reply's JSON that decides how a job went: of a name given twice, either value may be the true one."""
    document = document_of(reply, operation)
    try:
        _ONCE.decode(reply.content.decode())
    except ValueError:
        raise errors.UnexpectedReply(f"{operation}: the reply gives a name twice") from None
    return document


def _each_once(pairs: list[tuple[str, Any]]) -> None:
    if len({name for name, _ in pairs}) != len(pairs):
        raise ValueError


#: Made once, not for each record.
_ONCE = json.JSONDecoder(object_pairs_hook=_each_once)


def find(document: Any, pointers: Sequence[str], operation: str) -> Any:
    """Read the value at whichever pointer has one; two different values contradict each other."""
    found = [value for pointer in pointers if (value := at(document, pointer)) is not None]
    if any(value != found[0] for value in found):
        raise errors.UnexpectedReply(f"{operation}: the reply holds different values at {', '.join(pointers)}")
    return found[0] if found else None


def at(document: Any, pointer: str) -> Any:
    """Read the value at one pointer; None where there is none. The empty pointer is a bare JSON string."""
    if not pointer:
        return document if isinstance(document, str) else None
    for key in pointer_keys(pointer):
        if isinstance(document, list):
            document = document[int(key)] if key.isdecimal() and int(key) < len(document) else None
        else:
            document = document.get(key) if isinstance(document, dict) else None
    return document


def required(document: Any, pointers: Sequence[str], operation: str, name: str) -> str:
    """Read a text, or a number as one, that must be there."""
    value = find(document, pointers, operation)
    if not isinstance(value, str | int) or isinstance(value, bool) or value == "":
        raise errors.UnexpectedReply(
            f"{operation}: the reply holds no {name} at {', '.join(p or 'its top' for p in pointers)}; the connection's"
            f" wire setting '{name}' says where it stands, see docs/wire.md",
            field=name,
        )
    return str(value)


def model_of(kind: type[_M], document: Any, operation: str) -> _M:
    """Make a value of §2 of what was read."""
    try:
        return kind.model_validate(document)
    except ValidationError as invalid:
        raise errors.UnexpectedReply(f"{operation}: {describe(invalid)}") from None


def put_headers(found: Any) -> dict[str, str]:
    """Read the header fields of a PUT; its framing is ours to choose, so fields that frame are left out."""
    fields = {} if found is None else found
    if not isinstance(fields, dict) or not all(is_header(name, value) for name, value in fields.items()):
        raise errors.UnexpectedReply("initiation: upload_headers is no object of header fields", field="upload_headers")
    framing = ("content-length", "transfer-encoding", "host", "connection")
    return {name: str(value) for name, value in fields.items() if name.lower() not in framing}


def reason_of(error: Any) -> str:
    """Make one text of an error of any shape."""
    return str(error.get("message") or error) if isinstance(error, dict) else str(error)


def moment_of(value: Any, name: str) -> datetime:
    """Read a moment: ISO 8601, or epoch in seconds or milliseconds, as a number or its digits."""
    try:
        found = _TIME.validate_python(float(value) if _is_digits(value) else value)
    except ValidationError:
        raise errors.UnexpectedReply(f"{name} is no time", field=name) from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _is_digits(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)?", value) is not None


def date_of(value: str) -> datetime | None:
    """Read a date as HTTP writes it; None when it is none."""
    try:
        found = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def retry_after(reply: Reply) -> float | None:
    """Read `Retry-After`, seconds or a date, by the server's own clock where it tells its time.

    Returns:
        Seconds, not negative; None when the header is missing or senseless.
    """
    value = reply.headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d{1,9}", value):
        return float(value)
    until = date_of(value)
    if until is None:
        return None
    now = date_of(reply.headers.get("date", "")) or datetime.now(UTC)
    return max(0.0, (until - now).total_seconds())


def lifetime_in(url: str, now: datetime) -> float | None:
    """Find the expiry in a presigned URL's own parameters: S3 and GCS (date + seconds), Azure (se), S3 v2.

    Returns:
        Seconds; None when the URL does not tell, or not in a form that is known.
    """
    try:
        query = {name.lower(): values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        for prefix in ("x-amz-", "x-goog-"):
            if f"{prefix}date" in query:
                begun = datetime.strptime(query[f"{prefix}date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
                return (begun - now).total_seconds() + int(query[f"{prefix}expires"])
        until = query.get("se") or query.get("expires")
        return (moment_of(until, "upload_url") - now).total_seconds() if until else None
    except (KeyError, ValueError, errors.UnexpectedReply):
        return None


def unsigned(text: str, url: str) -> str:
    """Take a presigned URL's parameters out of a text: stores like to quote what they refuse."""
    for _, value in parse_qsl(urlsplit(url).query):
        if len(value) >= SHORTEST_SECRET:
            text = text.replace(value, "<redacted>").replace(quote(value, safe=""), "<redacted>")
    return text


def clean(content: bytes) -> str:
    """Take as much of an answer as an error keeps."""
    return fit(content[:ERROR_TEXT].decode(errors="replace"))


def fit(text: str) -> str:
    """Make text fit for a log: no control characters."""
    return CONTROL.sub(" ", text).strip()


def shown(text: str, pointers: Sequence[str]) -> str:
    """Take what an error's body says: the text at a pointer, else its beginning."""
    try:
        document = from_json(text)
    except ValueError:
        return text[:SHOWN_TEXT]
    said = next((value for pointer in pointers if isinstance(value := at(document, pointer), str)), None)
    return fit(said) if said and document != said else text[:SHOWN_TEXT]
