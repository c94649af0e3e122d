"""What is written: checked, told apart from other content, and opened; no service and no record."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from airflow_tds.client import errors
from airflow_tds.client.payloads import Body, body_of
from airflow_tds.durability.records import digest

__all__ = ["Source"]


@dataclass(frozen=True)
class Source:
    """The payload of a write as it was asked for.

    Attributes:
        path: Path of a local file; None if `data` is given.
        data: Text, bytes, or a callable that gives chunks of bytes; None if `path` is given.
    """

    path: str | os.PathLike[str] | None = None
    data: str | bytes | Callable[[], Iterable[bytes]] | None = None

    def check(self) -> None:
        """Return if exactly one is given, and can be sent.

        Raises:
            ValidationFailed: Otherwise; the text says which.
        """
        if (self.path is None) == (self.data is None):
            raise errors.ValidationFailed("give exactly one of source (a path) and data (text, bytes or a callable)")
        if self.path is not None and "://" in str(self.path):
            raise errors.ValidationFailed(f"source is the path of a local file, not {str(self.path).split('?')[0]!r}")

    @property
    def origin(self) -> str:
        """Name where the payload comes from, whatever it holds now."""
        return "data" if self.path is None else str(self.path)

    def content(self) -> str:
        """Hash the payload, or what tells that a file changed; empty for a callable, which tells nothing."""
        if self.path is not None:
            known = Path(self.path).stat() if Path(self.path).is_file() else None
            return digest(known.st_size, known.st_mtime_ns) if known else ""
        if callable(self.data):
            return ""
        data = self.data.encode() if isinstance(self.data, str) else self.data or b""
        return hashlib.sha256(data).hexdigest()[:16]

    def body(self) -> Body:
        """Open the payload."""
        if self.path is not None:
            return body_of(Path(self.path))
        return body_of(self.data if self.data is not None else b"")
