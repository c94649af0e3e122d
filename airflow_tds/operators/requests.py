"""The operators that change a table by one request without a job: truncate and delete rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_tds.operators.base import ChangingOperator, Turn

if TYPE_CHECKING:
    from airflow_tds.client.filters import Filters

__all__ = ["TdsDeleteRowsOperator", "TdsTruncateOperator"]


class TdsTruncateOperator(ChangingOperator):
    """Remove all rows of a table, keep its schema, and wait until it has taken effect, §3.1.

    The request is sent at most once per record: a late second one would destroy what was written after the
    first. A table that has no rows is left alone.

    Args:
        table_id: The table (templated).
        force: Send it even if the table says that it has no rows.
        kwargs: `tds_conn_id`, `deferrable`, `timeout`, `poll_interval`, `durable`, `store`, `on_clear`, `on_unknown`,
            and Airflow's own.

    Returns:
        `{"table_id", "row_count", "snapshot_id"}` of the empty table.

    Raises:
        WaitTimedOut: The table still has rows after the timeout.
        AmbiguousWriteError: It cannot be known whether the request was sent, and the table still has rows.
    """

    template_fields: Sequence[str] = ("tds_conn_id", "store", "table_id")

    def __init__(self, *, table_id: str, force: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.table_id = table_id
        self.force = force

    def _work(self, turn: Turn) -> dict[str, Any]:
        from airflow_tds.durability import TruncateOnce, digest

        identity = digest(turn.settings.base_url, "truncate", self.table_id)
        once = TruncateOnce(self._attempt(turn), table_id=self.table_id, identity=identity, force=self.force)
        self._finish(turn, once)
        return {"table_id": self.table_id, **once.left(self.table_id)}


class TdsDeleteRowsOperator(ChangingOperator):
    """Delete the rows that match all filters, §4.2 rule 5.

    The request is sent at most once per record: a late second one would delete rows that were written after the
    first. It has no job to ask about, so an answer that was lost is ambiguous.

    Args:
        table_id: The table (templated).
        filters: One filter or a list of them, which combine with AND, as text such as `day:eq:2026-01-31` or as
            a mapping with `field`, `operator` and `value` (templated). At least one.
        wait_for_snapshot: Wait until the table has another snapshot, for a service that deletes after its answer.
            Unfit where no row may match: a service that then makes no snapshot is waited for in vain.
        kwargs: `tds_conn_id`, `deferrable`, `timeout`, `poll_interval`, `durable`, `store`, `on_clear`, `on_unknown`,
            and Airflow's own.

    Returns:
        `{"table_id", "row_count", "snapshot_id"}` of the table after it.

    Raises:
        ValidationFailed: There is no filter, or one that cannot be sent.
        UnexpectedReply: With `wait_for_snapshot`: the service tells no snapshot; nothing was deleted.
        WaitTimedOut: With `wait_for_snapshot`: the table still has the snapshot that it had.
        AmbiguousWriteError: It cannot be known whether the rows were deleted.
    """

    template_fields: Sequence[str] = ("tds_conn_id", "store", "table_id", "filters")

    def __init__(self, *, table_id: str, filters: Filters, wait_for_snapshot: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.table_id = table_id
        self.filters = filters
        self.wait_for_snapshot = wait_for_snapshot

    def _work(self, turn: Turn) -> dict[str, Any]:
        from airflow_tds.client.filters import simple_expressions
        from airflow_tds.durability import DeleteOnce, digest

        asked = simple_expressions(self.filters)
        identity = digest(turn.settings.base_url, "delete_rows", self.table_id, asked)
        once = DeleteOnce(
            self._attempt(turn),
            table_id=self.table_id,
            identity=identity,
            filters=asked,
            wait_for_snapshot=self.wait_for_snapshot,
        )
        self._finish(turn, once)
        return {"table_id": self.table_id, **once.left(self.table_id)}
