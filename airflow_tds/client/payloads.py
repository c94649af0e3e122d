"""What a write sends: a `Body` knows its length, whether it can be opened again, and how to open itself.

Nothing is read before it is opened, except to measure; nothing larger than `CHUNK` is held in memory.
Sending is runtime.py's. The layouts of rows (CSV, JSON) are the caller's.
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, cast

from airflow_tds.client.errors import ValidationFailed

__all__ = ["CHUNK", "Body", "Payload", "body_of", "spool"]

#: 256 KiB pieces upload fastest over httpx: fewer calls than 64 KiB, and h11 copies each piece.
CHUNK = 256 * 1024
#: A payload of unknown length is kept in memory up to here while it is measured, then on disk.
SPOOL_IN_MEMORY = 1024 * 1024

Payload = bytes | str | os.PathLike[str] | BinaryIO | Iterable[bytes] | Callable[[], Iterable[bytes]]


@dataclass(frozen=True)
class Body:
    """A payload that can be sent.

    Attributes:
        open: Gives a fresh stream of pieces; may be called again only if `replayable`.
        length: Bytes; None when it is not known before it is read.
        replayable: Whether `open` gives the same bytes each time.
    """

    open: Callable[[], Iterator[bytes]]
    length: int | None
    replayable: bool


def body_of(data: Payload) -> Body:
    """Make a body of whatever a caller has.

    Args:
        data: Bytes; text, sent as UTF-8; a path; a binary file, sent from where it stands; an iterable of
            bytes, which can be sent once; or a callable that gives a fresh iterable of bytes.

    Returns:
        The body.

    Raises:
        ValidationFailed: It is none of these, or a file opened as text.
    """
    if isinstance(data, str):
        data = data.encode()
    if isinstance(data, bytes):
        whole = data
        return Body(lambda: _pieces(io.BytesIO(whole)), len(whole), replayable=True)
    if isinstance(data, os.PathLike):
        return _body_of_path(Path(data))
    if hasattr(data, "read"):
        return _body_of_file(cast("BinaryIO", data))
    if callable(data):
        make = data
        return Body(lambda: iter(make()), None, replayable=True)
    if isinstance(data, Iterable):
        stream = iter(data)
        return Body(lambda: stream, None, replayable=False)
    raise ValidationFailed(f"cannot send a {type(data).__name__}: give bytes, text, a path, a binary file or chunks")


def spool(body: Body) -> Body:
    """Read a body of unknown length once, so that it has a length and can be sent again.

    Args:
        body: Any body.

    Returns:
        The same bytes with a length. Kept in memory up to 1 MiB, else in a temporary file.
    """
    kept = tempfile.SpooledTemporaryFile(max_size=SPOOL_IN_MEMORY)  # noqa: SIM115  # lives as long as the body
    for piece in body.open():
        kept.write(piece)
    length = kept.tell()

    def again() -> Iterator[bytes]:
        kept.seek(0)
        return _pieces(kept, close=False)

    return Body(again, length, replayable=True)


def _pieces(file: IO[bytes], *, close: bool = True) -> Iterator[bytes]:
    try:
        while piece := file.read(CHUNK):
            yield piece
    finally:
        if close:
            file.close()


def _body_of_path(path: Path) -> Body:
    if not path.is_file():
        raise ValidationFailed(f"there is no file {path}")
    return Body(lambda: _pieces(path.open("rb", buffering=0)), path.stat().st_size, replayable=True)


def _body_of_file(file: IO[bytes]) -> Body:
    if isinstance(cast("object", file), io.TextIOBase):
        raise ValidationFailed("the file is open as text: open it with mode 'rb'")
    if not file.seekable():
        return Body(lambda: _pieces(file, close=False), None, replayable=False)
    start = file.tell()
    length = file.seek(0, io.SEEK_END) - start
    file.seek(start)

    def again() -> Iterator[bytes]:
        file.seek(start)
        return _pieces(file, close=False)

    return Body(again, length, replayable=True)
