"""Where a record outlives the process that wrote it.

A store loads and saves one record; what the record means is decided elsewhere. Whoever cannot store must
not go on, so `save` raises.
"""

from __future__ import annotations

import json
import os
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from airflow_tds.client import errors
from airflow_tds.durability.records import Record

__all__ = ["FileStore", "MemoryStore", "ObjectStore", "RecordStore", "TaskStore", "VariableStore"]


class RecordStore(Protocol):
    """Where a record outlives the process that wrote it."""

    @property
    def name(self) -> str:
        """What a person would look for, for texts."""
        ...

    def load(self) -> Record | None:
        """Read the record; None when there is none, or when this try has been superseded."""
        ...

    def save(self, record: Record) -> None:
        """Store the record, or raise: whoever cannot store must not go on."""
        ...


class MemoryStore:
    """A record for the life of a process: protects from nothing but a second look in the same try.

    Args:
        record: What is known already; None for nothing.
    """

    name = "memory only"

    def __init__(self, record: Record | None = None) -> None:
        self.record = record

    def load(self) -> Record | None:
        """Give the record."""
        return self.record

    def save(self, record: Record) -> None:
        """Keep the record."""
        self.record = record


class TaskStore:
    """A record in Airflow's task state store: survives retries, clears, and the death of worker and node.

    A stale try reads None and cannot store: Airflow refuses it. That is the fence.

    Args:
        accessor: Airflow's accessor, `context["task_state_store"]`.
        key: Its key there.
        retention: How long Airflow keeps it.
    """

    def __init__(self, accessor: Any, key: str, retention: timedelta) -> None:
        self._accessor = accessor
        self._key = key
        self._retention = retention

    @property
    def name(self) -> str:
        """What a person would look for, for texts."""
        return f"the task's state store, key {self._key}"

    def load(self) -> Record | None:
        """Read the record."""
        values = self._accessor.get(self._key)
        return None if values is None else Record.from_json(values)

    def save(self, record: Record) -> None:
        """Store the record, or raise whatever Airflow raised."""
        self._accessor.set(self._key, record.to_json(), retention=self._retention)


class VariableStore:
    """A record in an Airflow Variable: survives what the metadata database survives, on every version.

    There is no fence: a superseded try that is still alive can store as well.

    Args:
        variables: Airflow's `Variable` class.
        key: The Variable's.
    """

    def __init__(self, variables: Any, key: str) -> None:
        self._variables = variables
        self._key = key

    @property
    def name(self) -> str:
        """What a person would look for, for texts."""
        return f"the Variable {self._key}"

    def load(self) -> Record | None:
        """Read the record."""
        text = self._variables.get(self._key, None)
        return None if text is None else _read(text)

    def save(self, record: Record) -> None:
        """Store the record, or raise whatever Airflow raised."""
        self._variables.set(self._key, json.dumps(record.to_json()))


class FileStore:
    """A record in a local file: survives the process, and a lost machine only on a file system that is shared.

    There is no fence: a superseded try that is still alive can store as well.

    Args:
        path: The file; its directory is made.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def name(self) -> str:
        """What a person would look for, for texts."""
        return f"the file {self._path}"

    def load(self) -> Record | None:
        """Read the record."""
        try:
            return _read(self._path.read_text())
        except FileNotFoundError:
            return None

    def save(self, record: Record) -> None:
        """Store the record whole: what a crash leaves is this record or the one before."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{self._path.name}.", dir=self._path.parent)
        try:
            with os.fdopen(handle, "w") as file:
                json.dump(record.to_json(), file)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(self._path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


class ObjectStore:
    """A record as an object of an object store, which appears whole or not at all.

    There is no fence: a superseded try that is still alive can store as well.

    Args:
        path: Airflow's `ObjectStoragePath` of the object.
    """

    def __init__(self, path: Any) -> None:
        self._path = path

    @property
    def name(self) -> str:
        """What a person would look for, for texts."""
        return f"the object {self._path}"

    def load(self) -> Record | None:
        """Read the record."""
        try:
            return _read(self._path.read_text())
        except FileNotFoundError:
            return None

    def save(self, record: Record) -> None:
        """Store the record, or raise whatever the store raised."""
        self._path.write_text(json.dumps(record.to_json()))


def _read(text: str) -> Record:
    try:
        values = json.loads(text)
    except ValueError:
        raise errors.ValidationFailed("the stored record is damaged: it is no JSON") from None
    return Record.from_json(values)
