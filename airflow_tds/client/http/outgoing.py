"""A payload as it leaves: counted, timed, and never taken for whole before it is.

Knows nothing of HTTP but that the last piece completes the payload.
"""

from __future__ import annotations

from contextlib import closing

from airflow_tds.client import errors
from airflow_tds.client.http.failures import Guard
from airflow_tds.client.payloads import Body, Pieces
from airflow_tds.client.progress import Meter

__all__ = ["outgoing"]


class Outgoing:
    """A payload as it leaves: counted against its length, stopped by the clock or by a flag.

    One piece is held back until the next one is there: a store takes what was announced, or a last chunk,
    for a whole payload, so the last piece leaves only once it is known that it is the last.
    """

    def __init__(self, body: Body, guard: Guard) -> None:
        self._body = body
        self._guard = guard

    def pieces(self) -> Pieces:
        held, read = b"", 0
        with closing(self._body.open()) as source:
            for piece in source:
                self._guard.check()
                read += len(piece)
                if self._body.length is not None and read > self._body.length:
                    raise self._changed(f"it grew beyond the {self._body.length} bytes that were announced")
                if held:
                    yield held
                held = piece
        if self._body.length is not None and read < self._body.length:
            raise self._changed(f"it had {read} bytes, {self._body.length} were announced")
        self._guard.check()
        if held:
            yield held

    def _changed(self, what: str) -> errors.ValidationFailed:
        error = errors.ValidationFailed(f"the payload changed while it was sent: {what}; the store keeps none of it")
        error.outcome = "unknown"  # who acts on the head of a request alone may have
        return error


def outgoing(body: Body, guard: Guard, meter: Meter) -> Pieces:
    """Make a payload ready to leave; one of no bytes is whole as soon as it is announced, so it is looked at first."""
    outgoing = Outgoing(body, guard)
    if body.length == 0:
        next(outgoing.pieces(), None)
    return metered(outgoing.pieces(), meter)


def metered(pieces: Pieces, meter: Meter) -> Pieces:
    with closing(pieces):
        for piece in pieces:
            meter.resume()  # the time that the source took is not the network's
            yield piece
            meter.count(len(piece))
    meter.end()
