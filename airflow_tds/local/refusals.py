"""What is refused, as an answer: its status is what the wire map says of its kind, §7."""

from __future__ import annotations

from starlette.responses import JSONResponse, Response

from airflow_tds.client import errors
from airflow_tds.client.wire import Wire

__all__ = ["answer", "status_of"]

#: The wire map's words for what is refused, the most special first.
_KINDS: dict[type[errors.Refused], tuple[str, ...]] = {
    errors.Unauthorized: ("unauthorized",),
    errors.Forbidden: ("forbidden",),
    errors.TableNotFound: ("table_not_found", "not_found"),
    errors.JobNotFound: ("job_not_found", "not_found"),
    errors.Conflict: ("conflict",),
    errors.ValidationFailed: ("validation",),
}
#: Where the map has no status for a kind.
_BAD_REQUEST = 400


def status_of(wire: Wire, kind: type[errors.Refused]) -> int:
    """Give the HTTP status of a kind of refusal.

    Args:
        wire: The map; of several statuses for a kind the last is answered.
        kind: A class of client.errors.
    """
    words = next(words for known, words in _KINDS.items() if issubclass(kind, known))
    said = {word: int(code) for code, word in wire.error_kinds.items() if code.isdigit()}
    return next((said[word] for word in words if word in said), _BAD_REQUEST)


def answer(wire: Wire, refused: errors.Refused) -> Response:
    """Give the answer to a request that is refused."""
    headers = {"WWW-Authenticate": "Bearer"} if isinstance(refused, errors.Unauthorized) else None
    return JSONResponse({"detail": str(refused)}, status_of(wire, type(refused)), headers)
