"""Out of a worker and back: what travels with a deferral, and the way on when the trigger itself failed.

Operators and sensors leave by `_leave`, with a `Watch` and what they carry. A trigger that failed has touched nothing,
so its wait goes on, a few times; what Airflow ended by its own timeout is for them to name.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow_tds.client import errors
from airflow_tds.compat import BaseOperator, Context

if TYPE_CHECKING:
    from airflow_tds.client.waiting import Watch
    from airflow_tds.durability import Record

__all__ = ["RESCUES", "Deferring", "carried", "carry"]

#: What Airflow says in place of a method's name when the trigger itself failed.
TRIGGER_FAILED = "__fail__"
#: How often in a row a trigger may fail before the try does.
RESCUES = 3
#: Where a deferred wait is kept while the trigger has it (an XCom: it survives the deferral, not the try).
WAIT_KEY = "tds.wait"
#: Airflow's own timeout of a deferral must not come before ours, which says what goes on: seconds.
DEFER_GRACE = 300.0


def carry(watch: Watch, record: Record | None = None) -> str:
    """Write what a deferral carries: the whole wait, and the record where no store keeps it."""
    return json.dumps({"watch": watch.to_json(), "record": record.to_json() if record else None})


def carried(event: Mapping[str, Any]) -> tuple[Watch, Record | None]:
    """Read what a deferral carried.

    Args:
        event: What has it under `carry`: a trigger's event, or what was kept.

    Raises:
        UnexpectedReply: It carries no wait.
    """
    from airflow_tds.client.waiting import Watch
    from airflow_tds.durability import Record

    try:
        values = json.loads(event["carry"])
        record = values["record"]
        return Watch.from_json(values["watch"]), Record.from_json(record) if record else None
    except (KeyError, TypeError, ValueError) as damaged:
        raise errors.UnexpectedReply("the trigger's event does not carry the wait") from damaged


class Deferring(BaseOperator):
    """What operators and sensors that defer share."""

    tds_conn_id: str
    _rescues = 0

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Go on after a deferral; a trigger that failed has not touched the job, so it is waited for again.

        Args:
            next_method: Airflow's: the method to go on with, or that the trigger failed.
            next_kwargs: Airflow's: the event, or why the trigger failed.
            context: Airflow's.

        Raises:
            WaitTimedOut: Airflow ended the deferral, as no trigger had answered in time.
            Exception: Airflow's own, once triggers have failed too often in a row.
        """
        kept = self._kept_wait(context) if next_method == TRIGGER_FAILED else None
        why = str((next_kwargs or {}).get("error", "unknown"))
        ended = "timeout" in why.lower()  # Airflow 2.11 says so in the text only
        if kept is None or (kept["rescues"] >= RESCUES and not ended):
            return super().resume_execution(next_method, next_kwargs, context)
        if not ended:
            self._rescues = kept["rescues"] + 1
            self.log.error("the trigger failed: %s\n%s", why, "\n".join((next_kwargs or {}).get("traceback") or ()))
            self.log.warning("waiting for the same work again, rescue %d of %d", self._rescues, RESCUES)
        return self._go_on(context, kept, ended=ended)

    def _go_on(self, context: Context, carry: Mapping[str, Any], *, ended: bool) -> Any:
        """Go on with a wait that was kept; `ended` when its time is over."""
        raise NotImplementedError

    def _leave(self, context: Context, wait: Watch, carry: str) -> NoReturn:
        """Leave the worker, to come back at `execute_complete`."""
        from airflow_tds.triggers import trigger_for

        context["ti"].xcom_push(key=WAIT_KEY, value={"carry": carry, "rescues": self._rescues})
        self.defer(
            trigger=trigger_for(self.tds_conn_id, wait, carry),
            method_name="execute_complete",
            timeout=timedelta(seconds=max(0.0, wait.deadline - time.time()) + DEFER_GRACE),
        )

    def _kept_wait(self, context: Context) -> dict[str, Any] | None:
        """Read what was kept before this deferral; None when there is nothing."""
        kept = context["ti"].xcom_pull(task_ids=self.task_id, key=WAIT_KEY, map_indexes=context["ti"].map_index)
        return kept if isinstance(kept, dict) and isinstance(kept.get("rescues"), int) else None
