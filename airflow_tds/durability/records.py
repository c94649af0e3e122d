"""What is stored of a write, and which run of a task stored it: values, as JSON.

No decision, no store and no client; a field added here is read by whatever version finds the record later.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self, get_args

from airflow_tds.client import errors

__all__ = ["UNANSWERED", "Generation", "Phase", "Record", "digest", "utc"]

VERSION = 1

Phase = Literal["intent", "committing", "initiated", "sent", "done", "failed_clean", "doubt"]

#: A request was about to be sent, and nobody knows of an answer.
UNANSWERED: tuple[Phase, ...] = ("intent", "committing")


@dataclass(frozen=True)
class Generation:
    """Which run of a task this is: an automatic retry keeps both numbers, a person's clear raises them.

    Attributes:
        max_tries: The task instance's; a clear raises it unless the DAG could not be resolved.
        clear_number: The DAG run's; a clear of any of its tasks raises it (Airflow 3.2 and later).
    """

    max_tries: int
    clear_number: int

    def since(self, record: Record) -> Literal["same", "cleared", "perhaps"]:
        """Say what happened between a record and now."""
        if self.max_tries != record.max_tries:
            return "cleared"
        return "same" if self.clear_number == record.clear_number else "perhaps"


@dataclass(frozen=True)
class Record:
    """What is stored of a write: ids and times, no URL, no header, no row; below 1 KB.

    Attributes:
        op: The operation.
        table_id: The table.
        identity: Hash of what the write is: service, operation, table, format, keys, source.
        content: Hash of the source's content; empty when it cannot be told.
        phase: `intent` (a request is about to be sent), `committing` (the same, its data is in the store),
            `initiated` (a job waits for its data), `sent`, `done`, `failed_clean` (it failed and changed nothing),
            `doubt` (a person must decide).
        job_id: The job; empty when there is none.
        snapshot: The table's snapshot before the write; empty when unknown.
        rows: Its row count before the write; None when unknown.
        lease: POSIX seconds after which no data can arrive, or be noticed, any more; 0 when nothing tells.
        seen: The job's status before any data was sent; empty when unknown.
        max_tries: See `Generation`.
        clear_number: See `Generation`.
        at: When the record was stored, POSIX seconds.
        v: Version of the record's form.
    """

    op: str
    table_id: str
    identity: str
    content: str
    phase: Phase
    job_id: str = ""
    snapshot: str = ""
    rows: int | None = None
    lease: float = 0.0
    seen: str = ""
    max_tries: int = 0
    clear_number: int = 0
    at: float = 0.0
    v: int = VERSION

    def to_json(self) -> dict[str, Any]:
        """Write the record as a flat JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Any) -> Self:
        """Read a record.

        Raises:
            ValidationFailed: Another version of this package wrote it, or it is no record.
        """
        if not isinstance(values, Mapping) or values.get("phase") not in get_args(Phase):
            raise errors.ValidationFailed("the stored record is damaged: it names no known phase")
        if values.get("v") != VERSION:
            raise errors.ValidationFailed(
                f"the stored record has version {values.get('v')!r}, this package reads {VERSION};"
                " upgrade it, or delete the record once you know whether its write was applied"
            )
        known = {f.name for f in fields(cls)}
        try:
            return cls(**{name: value for name, value in values.items() if name in known})
        except TypeError as invalid:
            raise errors.ValidationFailed(f"the stored record is damaged: {invalid}") from None


def digest(*values: Any) -> str:
    """Give a short name to values, to tell whether they are the same as before."""
    return hashlib.sha256(json.dumps(values, default=str).encode()).hexdigest()[:16]


def utc(moment: float) -> str:
    """Write a POSIX time for people."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(moment))
