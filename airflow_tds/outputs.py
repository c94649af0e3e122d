"""Where a result goes: a local file or an object, whole or not at all.

A result is first written to a local file under a temporary name, so that a download that breaks off can resume and
memory stays constant. A local one is renamed; an object is put in one piece by stores that do that, elsewhere under a
temporary name and moved. What is there already is never touched before the new result is complete.
"""

from __future__ import annotations

import glob
import os
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from airflow_tds.client.errors import UnexpectedReply, ValidationFailed
from airflow_tds.inputs import place_of

__all__ = ["Output", "check_whole", "output_of"]

#: Stores in which an object appears whole, under its own name, or not at all; moving would copy it.
WHOLE = {"s3", "s3a", "s3n", "gs", "gcs", "abfs", "abfss", "az", "azure", "oss", "oci"}
#: How the name of what is not complete ends.
PART = ".part"
#: Seconds after which an incomplete file is nobody's: no download lasts so long, so its process was killed.
OLD = 86_400.0
#: What every parquet file begins and ends with.
_PARQUET = b"PAR1"
IF_EXISTS = ("fail", "replace", "skip")


class Output(ABC):
    """A place for a result.

    Attributes:
        uri: Its path or URI, as it was given.
        if_exists: What to do about what is there: `fail`, `replace` or `skip`.
    """

    def __init__(self, uri: str, if_exists: str) -> None:
        self.uri = uri
        self.if_exists = if_exists

    def keeps_existing(self) -> bool:
        """Look at what is there: True if the work is to be skipped.

        Raises:
            ValidationFailed: Something is there, and it is not said what to do about it.
        """
        if self.if_exists == "replace" or not self.exists():
            return False
        if self.if_exists == "fail":
            raise ValidationFailed(f"{self.uri} is there; if_exists='replace' or 'skip' allows that")
        return True

    @abstractmethod
    def exists(self) -> bool:
        """Say whether something is there."""

    @abstractmethod
    def size(self) -> int:
        """Say how many bytes are there."""

    @abstractmethod
    def filling(self) -> Any:
        """Give, as a context, a local file to write to; at its good end the result is in place."""


class _File(Output):
    """A local file."""

    def __init__(self, uri: str, if_exists: str, path: Path) -> None:
        super().__init__(uri, if_exists)
        self._path = path
        if not _can_be_named(path) or not path.parent.is_dir():
            raise ValidationFailed(f"destination {uri!r} is not in a local directory that exists")

    def exists(self) -> bool:
        return self._path.exists()

    def size(self) -> int:
        return self._path.stat().st_size

    @contextmanager
    def filling(self) -> Iterator[Path]:
        """Write beside the file, so that a rename is enough; what is renamed is on disk."""
        _remove_old_parts(self._path)
        handle, name = tempfile.mkstemp(prefix=f".{self._path.name}.", suffix=PART, dir=self._path.parent)
        try:
            yield Path(name)
            os.fsync(handle)
            Path(name).chmod(0o666 & ~_umask())
            Path(name).replace(self._path)  # a link there is replaced, never followed
            _sync_folder(self._path.parent)
        except IsADirectoryError:
            Path(name).unlink(missing_ok=True)
            raise ValidationFailed(f"destination {self.uri!r} is a directory") from None
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        finally:
            os.close(handle)


def _can_be_named(path: Path) -> bool:
    """Say whether a file system could take a path, its temporary name included."""
    longest = 255 - len("..12345678") - len(PART)
    return "\0" not in str(path) and path.name not in ("", "..") and len(os.fsencode(path.name)) <= longest


def _sync_folder(folder: Path) -> None:
    """Put a rename on disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove_old_parts(path: Path) -> None:
    """Remove what tries that were killed have left of this very file."""
    for part in path.parent.glob(f".{glob.escape(path.name)}.*{PART}"):
        with suppress(OSError):  # another try removes it, or it is somebody else's
            if time.time() - part.lstat().st_mtime > OLD:
                part.unlink()


def check_whole(file: Path, data_format: str) -> None:
    """Refuse a result that cannot be whole, before it takes anybody's place.

    Its length was compared with what the store announced. A parquet file also tells where it begins and ends.

    Args:
        file: What was fetched.
        data_format: Its format; empty where it is not known, and then a file that begins as parquet must end so.

    Raises:
        UnexpectedReply: One of them is missing.
    """
    if data_format not in ("parquet", ""):
        return
    size = file.stat().st_size
    with file.open("rb") as opened:
        begins = opened.read(len(_PARQUET)) == _PARQUET
        opened.seek(max(0, size - len(_PARQUET)))
        ends = opened.read() == _PARQUET and size >= 3 * len(_PARQUET)
    if (begins or data_format) and not (begins and ends):
        raise UnexpectedReply("the result is no whole parquet file; nothing was kept of it")


class _Object(Output):
    """An object of an object store."""

    def __init__(self, uri: str, if_exists: str, path: Any) -> None:
        super().__init__(uri, if_exists)
        self._fs = path.fs
        self._key = path.path

    def exists(self) -> bool:
        return bool(self._fs.exists(self._key))

    def size(self) -> int:
        return int(self._fs.size(self._key))

    @contextmanager
    def filling(self) -> Iterator[Path]:
        """Write to a local file, then put it into the store."""
        handle, name = tempfile.mkstemp(prefix="airflow-tds-", suffix=PART)
        os.close(handle)
        try:
            yield Path(name)
            self._put(name)
        finally:
            Path(name).unlink(missing_ok=True)

    def _put(self, name: str) -> None:
        try:
            self._put_whole(name)
        except FileNotFoundError as nowhere:  # a bucket, most likely: the local file is there
            raise ValidationFailed(f"destination {self.uri!r} cannot be written: {nowhere}") from nowhere

    def _put_whole(self, name: str) -> None:
        protocols = self._fs.protocol
        if {protocols} & WHOLE if isinstance(protocols, str) else WHOLE.intersection(protocols):
            self._fs.put_file(name, self._key)
            return
        folder, _, own = self._key.rpartition("/")
        partial = f"{folder}/.{own}.{uuid4().hex}.part"
        self._fs.makedirs(folder, exist_ok=True)
        try:
            self._fs.put_file(name, partial)
            self._fs.mv(partial, self._key)
        except BaseException:
            with suppress(Exception):
                self._fs.rm_file(partial)
            raise


def output_of(destination: str | os.PathLike[str], conn_id: str | None, if_exists: str) -> Output:
    """Find a place for a result.

    Args:
        destination: A local path, or the URI of an object such as `s3://bucket/key`.
        conn_id: The object store's connection; None for the one in the URI, or the store's default.
        if_exists: `fail`, `replace` or `skip`.

    Raises:
        ValidationFailed: The place cannot be, or `if_exists` is another word.
    """
    if if_exists not in IF_EXISTS:
        raise ValidationFailed(f"if_exists is fail, replace or skip, not {if_exists!r}")
    place, uri = place_of(destination, conn_id, "destination"), str(destination)
    make = _Object if hasattr(place, "fs") else _File  # an object's path is a `Path` too, in Airflow 2.11
    return make(uri, if_exists, place)


def _umask() -> int:
    """The process's umask, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
