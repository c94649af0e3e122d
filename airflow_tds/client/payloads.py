"""What a write sends: a `Body` knows its length, whether it can be opened again, and how to open itself.

Nothing is read before it is opened, except to measure, and the first item of a stream, to learn what it is; no
more than `CHUNK`, one piece of the caller's or one slice of rows is held in memory. Sending is runtime.py's, how rows
are written rows.py's.
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import AsyncIterable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, BinaryIO, Self, cast

from airflow_tds.client.errors import ValidationFailed
from airflow_tds.client.rows import Row, RowLayout, written
from airflow_tds.client.threads import pulled

__all__ = ["CHUNK", "Body", "Keeper", "Payload", "Pieces", "body_of"]

#: 256 KiB pieces upload fastest over httpx: fewer calls than 64 KiB, and h11 copies each piece.
CHUNK = 256 * 1024
#: Text beyond this is no name of a file.
LONGEST_NAME = 255
#: A payload of unknown length is kept in memory up to here while it is sent, then on disk.
KEPT_IN_MEMORY = 1024 * 1024

#: A generator, so that whoever gives up on it can close it, and with it the file that it reads.
Pieces = Generator[bytes, None, None]
_BYTES = bytes | bytearray | memoryview
Payload = (
    bytes
    | bytearray
    | memoryview
    | str
    | os.PathLike[str]
    | BinaryIO
    | Iterable[bytes | Row]
    | AsyncIterable[bytes | Row]
    | Callable[[], Any]
)


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


def body_of(data: Payload, layout: RowLayout | None = None) -> Body:
    """Make a body of whatever a caller has.

    Args:
        data: Bytes; text, sent as UTF-8; a path; a binary file, sent from where it stands; rows, or chunks of bytes,
            in a list, another iterable or an async one (a list of rows can be sent again, the others once); or a
            callable that gives a fresh iterable.
        layout: How rows are written; None where there are none.

    Returns:
        The body.

    Raises:
        ValidationFailed: It is none of these, text that names a file, a file opened as text, rows and bytes mixed,
            rows that cannot be written, or an async iterable outside of `AsyncTableClient`.
    """
    if isinstance(data, str):
        data = _text(data)
    if isinstance(data, _BYTES):
        whole = bytes(data)
        return Body(lambda: _pieces(io.BytesIO(whole)), len(whole), replayable=True)
    if isinstance(data, os.PathLike):
        return _body_of_path(Path(data))
    if hasattr(data, "read"):
        return _body_of_file(cast("BinaryIO", data))
    if callable(data):
        make = data
        return Body(lambda: _made(make, layout), None, replayable=True)
    return _body_of_items(data, layout)


def _text(data: str) -> bytes:
    """Encode text; a file's name is taken for a mistake, which would make a table of one line."""
    if len(data) <= LONGEST_NAME and "\n" not in data and os.path.isfile(data):  # noqa: PTH113  # never raises
        raise ValidationFailed(f"the data is the text {data!r}, and there is a file of that name: give Path({data!r})")
    try:
        return data.encode()
    except UnicodeEncodeError:
        raise ValidationFailed("the data is text that is no valid Unicode") from None


def _body_of_items(data: Any, layout: RowLayout | None) -> Body:
    if isinstance(data, Sequence) and _are_rows(data) and (data or layout):
        rows = _laid_out(data, layout)
        return Body(rows, sum(map(len, rows())), replayable=True)
    items = _items(data)
    first = list(islice(items, 1))
    _are_rows(first)
    stream = _stream(items, layout, first)
    return Body(lambda: stream, None, replayable=False)


def _are_rows(items: Sequence[Any]) -> bool:
    """Say whether items are rows; no items are no rows.

    Raises:
        ValidationFailed: They are neither all rows nor all bytes.
    """
    rows = [isinstance(item, Mapping) for item in items]
    for row, item in zip(rows, items, strict=True):
        if row != rows[0] or not (row or isinstance(item, _BYTES)):
            kinds = f"a {type(item).__name__}" if row == rows[0] else "rows and chunks"
            raise ValidationFailed(f"the payload holds {kinds}: give rows (mappings), or chunks of bytes")
    return rows == [] or rows[0]


def _items(data: Any) -> Iterator[Any]:
    if isinstance(data, AsyncIterable):
        return pulled(data)
    if isinstance(data, Iterable) and not isinstance(data, Mapping | str | bytes):
        return iter(data)
    raise ValidationFailed(
        f"cannot send a {type(data).__name__}: give bytes, text, a path, a binary file, rows (a list of mappings) or"
        " chunks"
    )


def _stream(items: Iterator[Any], layout: RowLayout | None, read: Sequence[Any] = ()) -> Pieces:
    """Give what comes, rows or chunks; the first item tells which."""
    try:
        first = list(read) or list(islice(items, 1))
        whole = chain(first, items)
        yield from _laid_out(whole, layout)() if first and isinstance(first[0], Mapping) else _gathered(whole)
    finally:
        if isinstance(items, Generator):
            items.close()


def _made(make: Callable[[], Any], layout: RowLayout | None) -> Pieces:
    yield from _stream(_items(make()), layout)  # made by who reads it, in the thread that may ask for it


def _laid_out(rows: Iterable[Row], layout: RowLayout | None) -> Callable[[], Pieces]:
    if layout is None:
        raise ValidationFailed(
            "rows are written as json, ndjson or csv: name one as the format; for parquet, write a file, for instance"
            " with pyarrow, and give its path"
        )
    return lambda: _gathered(written(rows, layout))


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

    def measured(self, check: Callable[[], None] = lambda: None) -> Body:
        """Read the source to its end, and give a body whose length is known.

        Args:
            check: Called for each piece; may raise to end it.
        """
        for _ in self.rest():
            check()
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
    if not isinstance(piece, _BYTES):
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
