"""The operators that look at a table's statistics: no rows are read, nothing is scanned, nothing is waited for."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow_tds.client import errors
from airflow_tds.compat import BaseOperator, Context
from airflow_tds.operators.failures import raising

if TYPE_CHECKING:
    from airflow_tds.client.conditions import Conditions
    from airflow_tds.client.models import DatasetInfoResponse
    from airflow_tds.compat import XComArg

__all__ = ["Asking", "TdsCheckOperator", "TdsTableInfoOperator", "statistics"]


def statistics(table_id: str, info: DatasetInfoResponse) -> dict[str, Any]:
    """Write a table's statistics for an XCom: small, as data files are counted.

    Args:
        table_id: The table.
        info: Its statistics.
    """
    files = info.data_files
    return {
        "table_id": table_id,
        "row_count": info.row_count,
        "total_size_bytes": info.total_size_bytes,
        "data_files": len(files) if isinstance(files, list) else files,
        "last_updated": info.last_updated.isoformat() if info.last_updated else None,
        "snapshot_id": info.snapshot_id,
    }


class Asking(BaseOperator):
    """What asks for a table to be as it should: the conditions, which are templated and read in `execute` only."""

    CONDITIONS = (
        *("min_rows", "max_rows", "min_bytes", "max_bytes", "empty"),
        *("updated_after", "max_age", "changed_from"),
    )

    def __init__(
        self,
        *,
        min_rows: int | str | None = None,
        max_rows: int | str | None = None,
        min_bytes: int | str | None = None,
        max_bytes: int | str | None = None,
        empty: bool | None = None,
        updated_after: datetime | str | None = None,
        max_age: float | timedelta | None = None,
        changed_from: str | Mapping[str, Any] | XComArg | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.min_rows = min_rows
        self.max_rows = max_rows
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.empty = empty
        self.updated_after = updated_after
        self.max_age = max_age
        self.changed_from = changed_from

    def _conditions(self, now: float) -> Conditions:
        from airflow_tds.client.conditions import Conditions
        from airflow_tds.inputs import taken_from

        asked = {name: getattr(self, name) for name in self.CONDITIONS}
        if isinstance(self.changed_from, Mapping):
            asked["changed_from"] = taken_from(self.changed_from, "snapshot_id") or ""  # None: it had no snapshot
        return Conditions.of(now=now, **asked)


class _InfoOperator(BaseOperator):
    """What both operators share: one `info` over a connection."""

    def __init__(self, *, table_id: str, tds_conn_id: str = "tds_default", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.table_id = table_id
        self.tds_conn_id = tds_conn_id

    def _info(self) -> DatasetInfoResponse:
        from airflow_tds.hooks import TdsHook

        return TdsHook(self.tds_conn_id).info(self.table_id)


class TdsTableInfoOperator(_InfoOperator):
    """Look at a table's statistics, §2.2, such as for a branch, or to remember a snapshot.

    Args:
        table_id: The table (templated).
        tds_conn_id: The connection's id (templated).
        kwargs: Airflow's own.

    Returns:
        `{"table_id", "row_count", "total_size_bytes", "data_files", "last_updated", "snapshot_id"}`: `data_files` is
        their number, `last_updated` text in ISO 8601; what the service does not tell is None.

    Raises:
        TableNotFound: There is no such table.
    """

    template_fields: Sequence[str] = ("tds_conn_id", "table_id")

    def execute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002  # Airflow's signature
        """Look; see the class."""
        with raising(self):
            return statistics(self.table_id, self._info())


class TdsCheckOperator(Asking, _InfoOperator):
    """Fail if a table is not as it should be, from its statistics alone: a gate before what builds on it.

    Args:
        table_id: The table (templated, as are all conditions).
        tds_conn_id: The connection's id (templated).
        min_rows: Rows at least.
        max_rows: Rows at most.
        min_bytes: Bytes at least.
        max_bytes: Bytes at most.
        empty: True: no rows. False: at least one.
        updated_after: Updated later than this: a time, or text in ISO 8601 such as `{{ data_interval_start }}`.
        max_age: Updated no longer ago than this: seconds, or a timedelta.
        changed_from: The snapshot is another than this one: its id, or what a task returned that has it.
        kwargs: Airflow's own.

    Returns:
        The table's statistics, as `TdsTableInfoOperator` gives them.

    Raises:
        CheckFailed: It is not; the text names every condition that does not hold. Follows the task's retries.
        ValidationFailed: There is no condition, or one that has a wrong form.
        TableNotFound: There is no such table.
    """

    template_fields: Sequence[str] = ("tds_conn_id", "table_id", *Asking.CONDITIONS)

    def execute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002  # Airflow's signature
        """Check; see the class."""
        with raising(self):
            conditions, info = self._conditions(time.time()), self._info()
            if unmet := conditions.unmet(info):
                raise errors.CheckFailed(f"table {self.table_id}: {'; '.join(unmet)}")
        return statistics(self.table_id, info)
