"""Where a record outlives the process that wrote it.

A store loads and saves one record; what the record means is decided elsewhere. Whoever cannot store must
not go on, so `save` raises.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Protocol

from airflow_tds.durability.records import Record

__all__ = ["MemoryStore", "RecordStore", "TaskStore"]


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
