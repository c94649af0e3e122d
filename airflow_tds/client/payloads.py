"""What a write sends: a `Body` knows its length, whether it can be opened again, and how to open itself.

Nothing is read before it is opened, except to measure; no more than `CHUNK`, or one piece of the caller's,
is held in memory.
Sending is runtime.py's. The layouts of rows (CSV, JSON) are the caller's.
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, Self, cast

from airflow_tds.client.errors import ValidationFailed

__all__ = ["CHUNK", "Body", "Keeper", "Payload", "Pieces", "body_of"]

#: 256 KiB pieces upload fastest over httpx: fewer calls than 64 KiB, and h11 copies each piece.
CHUNK = 256 * 1024
#: A payload of unknown length is kept in memory up to here while it is sent, then on disk.
KEPT_IN_MEMORY = 1024 * 1024

#: A generator, so that whoever gives up on it can close it, and with it the file that it reads.
Pieces = Generator[bytes, None, None]
Payload = bytes | bytearray | memoryview | str | os.PathLike[str] | BinaryIO | Iterable[bytes] | Callable[[], Any]


@dataclass(frozen=True)
class Body:
    """A payload that can be sent.

    Attributes:
        open: Gives a fresh stream of pieces; may be called again only if `replayable`.
        length: Bytes; None when it is not known before it is read.
        replayable: Whether `open` gives the same bytes each time.
    """

    open: Callable[[], Pieces]
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
    if isinstance(data, bytes | bytearray | memoryview):
        whole = bytes(data)
        return Body(lambda: _pieces(io.BytesIO(whole)), len(whole), replayable=True)
    if isinstance(data, os.PathLike):
        return _body_of_path(Path(data))
    if hasattr(data, "read"):
        return _body_of_file(cast("BinaryIO", data))
    if callable(data):
        make = data
        return Body(lambda: _gathered(make()), None, replayable=True)
    chunks = cast("object", data)
    if isinstance(chunks, Iterable) and not isinstance(chunks, dict):
        stream = _gathered(chunks)
        return Body(lambda: stream, None, replayable=False)
    raise ValidationFailed(f"cannot send a {type(data).__name__}: give bytes, text, a path, a binary file or chunks")


class Keeper:
    """Keeps what a body of unknown length gives, so that it can be given again, and measured.

    Kept in memory up to 1 MiB, else in a temporary file, until `close`.

    Args:
        body: The body; it is opened once.
    """

    def __init__(self, body: Body) -> None:
        self._source = body.open()
        self._kept = tempfile.SpooledTemporaryFile(max_size=KEPT_IN_MEMORY)  # noqa: SIM115  # closed by close()
        self._broken = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Give up the source and what was kept."""
        self._source.close()
        self._kept.close()

    def body(self) -> Body:
        """Give a body of unknown length: what was kept so far, then the rest, as the source gives it."""
        return Body(self._pieces, None, replayable=True)

    def rest(self) -> Pieces:
        """Read what the source has left, piece by piece, and keep it."""
        if self._broken:
            raise ValidationFailed("the payload's source broke off; what it gave is not the whole payload")
        self._kept.seek(0, io.SEEK_END)
        while piece := self._next():
            self._kept.write(piece)
            yield piece

    def measured(self) -> Body:
        """Read the source to its end, and give a body whose length is known."""
        for _ in self.rest():
            pass
        return Body(self._pieces, self._kept.seek(0, io.SEEK_END), replayable=True)

    def _pieces(self) -> Pieces:
        self._kept.seek(0)
        while piece := self._kept.read(CHUNK):
            yield piece
        yield from self.rest()

    def _next(self) -> bytes:
        """Read on; a source that raised looks as if it had ended, so that is remembered."""
        self._broken = True
        piece = next(self._source, b"")
        self._broken = False
        return piece


def _gathered(source: Iterable[bytes]) -> Pieces:
    """Gather small pieces, such as lines, up to `CHUNK`: each one costs a system call, on the async face a thread."""
    held = bytearray()
    for piece in source:
        held += _checked(piece)
        if len(held) >= CHUNK:
            yield bytes(held)
            held.clear()
    if held:
        yield bytes(held)


def _pieces(file: IO[bytes]) -> Pieces:
    while piece := _checked(file.read(CHUNK)):
        yield piece


def _checked(piece: Any) -> bytes:
    """Refuse what is not bytes; None would come from a file that does not wait for its data."""
    if not isinstance(piece, bytes | bytearray | memoryview):
        raise ValidationFailed(f"the payload gave a {type(piece).__name__} where bytes are needed")
    return bytes(piece)


def _body_of_path(path: Path) -> Body:
    if not path.is_file():
        raise ValidationFailed(f"there is no file {path}")

    def again() -> Pieces:
        with closing(path.open("rb", buffering=0)) as file:
            yield from _pieces(file)

    return Body(again, path.stat().st_size, replayable=True)


def _body_of_file(file: IO[bytes]) -> Body:
    if isinstance(cast("object", file.read(0)), str):
        raise ValidationFailed("the file is open as text: open it with mode 'rb'")
    seekable = getattr(file, "seekable", None)
    if seekable is None or not seekable():
        stream = _pieces(file)
        return Body(lambda: stream, None, replayable=False)
    start = file.tell()
    length = file.seek(0, io.SEEK_END) - start
    file.seek(start)

    def again() -> Pieces:
        file.seek(start)
        yield from _pieces(file)

    return Body(again, length, replayable=True)
