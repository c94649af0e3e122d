"""A result on its way into its sink: what has come of it, and how to ask for the rest.

Which bytes are kept is decided here; nothing is sent. A result is resumed only where the store said that
it can (`Accept-Ranges: bytes`) and named the version that it gave (a strong `ETag`), so that halves of two
versions never meet (RFC 9110 §13.1.5, §14).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, BinaryIO

__all__ = ["Download"]


class Download:
    """A result on its way.

    Args:
        sink: Where it is written, from the start; it must be able to seek for a second try.

    Attributes:
        received: Bytes that have come and are kept.
        total: Bytes that there are in all; None while that is not known.
    """

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self._version = ""
        self.received = 0
        self.total: int | None = None

    @property
    def resumable(self) -> bool:
        """Whether only the rest need be asked for."""
        return self._version != "" and self.received > 0

    def fields(self) -> dict[str, str]:
        """Give the header fields that ask for the rest; none where all must come again."""
        return {"Range": f"bytes={self.received}-", "If-Range": self._version} if self.resumable else {}

    def restart(self) -> None:
        """Give up what has come."""
        if self.received:
            self._sink.seek(0)
            self._sink.truncate()
        self._version = ""
        self.received = 0
        self.total = None

    def begin_whole(self, headers: Mapping[str, str]) -> None:
        """Take the head of an answer that brings all.

        Args:
            headers: Its fields, names in lower case.
        """
        self.restart()
        length = headers.get("content-length", "")
        self.total = int(length) if length.isdecimal() and "transfer-encoding" not in headers else None
        etag = headers.get("etag", "")
        if headers.get("accept-ranges", "").lower() == "bytes" and re.fullmatch(r'"[\x21\x23-\x7e]*"', etag):
            self._version = etag

    def continues(self, headers: Mapping[str, str]) -> bool:
        """Say whether an answer with a part brings just the rest of what has come; see `begin_whole`."""
        found = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", headers.get("content-range", ""))
        if found is None or headers.get("etag", self._version) != self._version:
            return False
        first, last, total = map(int, found.groups())
        return (first, last + 1) == (self.received, total) and self.total in (None, total)

    def write(self, piece: Any) -> None:
        """Keep a piece.

        Args:
            piece: Bytes, or a view of them that is used again afterwards.
        """
        self._sink.write(piece)
        self.received += len(piece)
