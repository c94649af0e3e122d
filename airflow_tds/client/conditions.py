"""What a table's statistics are asked to say, and what they fail to say.

Pure: judged from one `info` (§2.2), without a scan and without a clock. A sensor waits until nothing is unmet; a check
fails if something is. How often, and what then, is theirs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from airflow_tds.client import errors
from airflow_tds.client.models import DatasetInfoResponse

__all__ = ["Conditions"]


@dataclass(frozen=True)
class Conditions:
    """What the statistics must say; None asks nothing.

    Attributes:
        min_rows: Rows at least.
        max_rows: Rows at most.
        min_bytes: Bytes at least.
        max_bytes: Bytes at most.
        updated_after: The last update must be later than this, POSIX seconds.
        changed_from: The snapshot must be another than this one; the empty string is a table without one.
    """

    min_rows: int | None = None
    max_rows: int | None = None
    min_bytes: int | None = None
    max_bytes: int | None = None
    updated_after: float | None = None
    changed_from: str | None = None

    @classmethod
    def of(
        cls,
        *,
        now: float,
        min_rows: Any = None,
        max_rows: Any = None,
        min_bytes: Any = None,
        max_bytes: Any = None,
        empty: bool | None = None,
        updated_after: Any = None,
        max_age: Any = None,
        changed_from: str | None = None,
    ) -> Self:
        """Read conditions as people, and rendered templates, write them.

        Args:
            now: The clock, POSIX seconds.
            min_rows: Rows at least; a number, or text that is one.
            max_rows: Rows at most.
            min_bytes: Bytes at least.
            max_bytes: Bytes at most.
            empty: True: no rows. False: at least one.
            updated_after: A time, or text in ISO 8601; without a zone it is UTC.
            max_age: Seconds or a timedelta: updated no longer ago than this. An update that is too old now will only
                be older later, so this too is a fixed time.
            changed_from: A snapshot's id, or empty.

        Raises:
            ValidationFailed: One has a wrong form, two contradict each other, or there is none.
        """
        if empty is not None and not (min_rows is None and max_rows is None):
            raise errors.ValidationFailed("give empty, or min_rows and max_rows, not both")
        after = _moment(updated_after)
        if max_age is not None:
            after = max(now - _seconds(max_age), after or 0.0)
        found = cls(
            1 if empty is False else _count("min_rows", min_rows),
            0 if empty else _count("max_rows", max_rows),
            _count("min_bytes", min_bytes),
            _count("max_bytes", max_bytes),
            after,
            changed_from,
        )
        found._check()
        return found

    def _check(self) -> None:
        if self == type(self)():
            raise errors.ValidationFailed(
                "no condition: give one of min_rows, max_rows, min_bytes, max_bytes, empty, updated_after, max_age,"
                " changed_from"
            )
        for least, most, what in (
            (self.min_rows, self.max_rows, "min_rows"),
            (self.min_bytes, self.max_bytes, "min_bytes"),
        ):
            if least is not None and most is not None and least > most:
                raise errors.ValidationFailed(f"{what} is {least}, more than {what.replace('min', 'max')}, {most}")

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read conditions that `to_text` wrote; names that this version does not know are left out."""
        values = json.loads(text or "{}")
        return cls(**{name: values[name] for name in cls.__dataclass_fields__ if name in values})

    def to_text(self) -> str:
        """Write the conditions as one JSON text, the same for the same conditions."""
        return json.dumps({name: value for name, value in asdict(self).items() if value is not None})

    def unmet(self, info: DatasetInfoResponse) -> list[str]:
        """Say what the statistics fail to say, each as a person reads it; empty if nothing.

        Args:
            info: The table's statistics.

        Raises:
            UnexpectedReply: A number that is asked for is missing, so that it never will be met.
        """
        return [
            *_bounds("row_count", info.row_count, self.min_rows, self.max_rows),
            *_bounds("total_size_bytes", info.total_size_bytes, self.min_bytes, self.max_bytes),
            *self._stale(info.last_updated),
            *self._unchanged(info.snapshot_id or ""),
        ]

    def _stale(self, updated: datetime | None) -> Iterator[str]:
        if self.updated_after is None:
            return
        if updated is None:
            yield f"last_updated is not told, wanted after {_written(self.updated_after)}"
        elif _posix(updated) <= self.updated_after:
            yield f"last_updated is {_written(_posix(updated))}, wanted after {_written(self.updated_after)}"

    def _unchanged(self, snapshot: str) -> Iterator[str]:
        if self.changed_from is not None and snapshot == self.changed_from:
            yield f"snapshot_id is still {snapshot or 'none'}"


def _bounds(name: str, value: int | None, least: int | None, most: int | None) -> Iterator[str]:
    if least is None and most is None:
        return
    if value is None:
        raise errors.UnexpectedReply(f"info: {name} is missing, so it cannot be judged", field=name)
    if least is not None and value < least:
        yield f"{name} is {value}, wanted at least {least}"
    if most is not None and value > most:
        yield f"{name} is {value}, wanted at most {most}"


def _count(name: str, given: Any) -> int | None:
    if given is None:
        return None
    try:
        number = int(given) if not isinstance(given, bool | float) else -1
    except (TypeError, ValueError):
        number = -1
    if number < 0:
        raise errors.ValidationFailed(f"{name} is a whole number from 0 on, not {given!r}")
    return number


def _seconds(given: Any) -> float:
    try:
        seconds = given.total_seconds() if isinstance(given, timedelta) else float(given)
    except (TypeError, ValueError):
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise errors.ValidationFailed(f"max_age is a number of seconds above zero, or a timedelta, not {given!r}")
    return seconds


def _moment(given: Any) -> float | None:
    if given is None:
        return None
    try:
        return _posix(given if isinstance(given, datetime) else datetime.fromisoformat(str(given)))
    except ValueError:
        raise errors.ValidationFailed(f"updated_after is a time in ISO 8601, not {given!r}") from None


def _posix(moment: datetime) -> float:
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _written(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat()
