"""What is written: told apart from other content, and opened; no service, no record and no Airflow."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from airflow_tds.client import errors
from airflow_tds.client.payloads import CHUNK, Body, Payload, Pieces, body_of
from airflow_tds.client.rows import RowLayout
from airflow_tds.durability.records import digest

__all__ = ["Source"]


@dataclass(frozen=True)
class Source:
    """The payload of a write as it was asked for; one of the three is given.

    Attributes:
        path: A local `Path`, or the path of an object, which has `fs` and `path` (as `universal_pathlib` has them).
        rows: Mappings of column names to values.
        data: Text, bytes, or a callable that gives chunks of bytes.
        layout: How rows are written; None for a format in which they are not.
    """

    path: Any = None
    rows: Sequence[Any] | None = None
    data: Payload | None = None
    layout: RowLayout | None = None

    @property
    def _is_object(self) -> bool:
        return hasattr(self.path, "fs")  # its class is a `Path` too, in Airflow 2.11

    @property
    def origin(self) -> str:
        """Name where the payload comes from, whatever it holds now."""
        if self.path is None:
            return "data" if self.rows is None else "rows"
        return str(self.path)

    def content(self) -> str:
        """Hash the payload, or what tells that a file changed; empty where nothing tells.

        Raises:
            ValidationFailed: Rows that cannot be written.
        """
        if self.path is not None:
            return self._version()
        if callable(self.data):
            return ""
        seen = hashlib.sha256()
        with closing(self.body().open()) as pieces:
            for piece in pieces:
                seen.update(piece)
        return seen.hexdigest()[:16]

    def body(self) -> Body:
        """Open the payload.

        Raises:
            ValidationFailed: It can not be sent; the text says why.
        """
        if self._is_object:
            return self._object()
        if self.path is not None:
            return body_of(self.path)
        return body_of((self.data or b"") if self.rows is None else self.rows, self.layout)

    def _version(self) -> str:
        """Tell one version of a file or object from another, without reading it."""
        try:
            if self._is_object:
                return digest(self.path.fs.size(self.path.path), self.path.fs.checksum(self.path.path))
            known = self.path.stat()
        except OSError:
            return ""
        return digest(known.st_size, known.st_mtime_ns)

    def _object(self) -> Body:
        fs, path = self.path.fs, self.path.path
        try:
            length = fs.size(path)
        except FileNotFoundError:
            raise errors.ValidationFailed(f"there is no object {self.path}") from None

        def again() -> Pieces:
            with closing(fs.open(path, "rb")) as file:
                while piece := file.read(CHUNK):
                    yield piece

        return Body(again, length, replayable=True)
