"""The waits of the operators, in the triggerer.

A trigger carries a `Watch` as flat JSON (ids and times; no row, URL or header) and emits one `Outcome`.
It reads only, through the loop's shared poller, and owns nothing that a cancellation could break: a
trigger that is taken over by another triggerer simply waits there again, until the same deadline.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, ClassVar, Literal

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_tds.client.errors import TableServiceError
from airflow_tds.client.waiting import Outcome, Reading, Watch

__all__ = ["TdsJobTrigger", "TdsQueryTrigger", "TdsTableTrigger", "TdsTruncationTrigger", "trigger_for"]

#: One for all: `self.log` would make one for each trigger, which lives as long as it waits.
log = logging.getLogger(__name__)


class _WatchTrigger(BaseTrigger):
    """Waits for what its `Watch` names.

    Args:
        tds_conn_id: The connection's id.
        carry: Text that the event gives back to the operator. Airflow's own `defer(kwargs=...)` does not reach
            it under `dag.test()` (3.3.2).
        watch: The fields of a `Watch`; unknown ones are ignored, as another version may have written them.
    """

    kind: ClassVar[Literal["write", "query", "truncation", "table"]]

    def __init__(self, tds_conn_id: str, carry: str = "", **watch: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's constructor
        self.tds_conn_id = tds_conn_id
        self.carry = carry
        self._values = watch

    @property
    def watch(self) -> Watch:
        """What is waited for; read when it is needed, as a constructor that raises ends the whole triggerer (3.3.2).

        Raises:
            UnexpectedReply: The values are no watch.
        """
        return Watch.from_json({**self._values, "kind": self.kind})

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Give the class path and the keyword arguments that make this trigger again."""
        path = f"{type(self).__module__}.{type(self).__qualname__}"
        return path, {"tds_conn_id": self.tds_conn_id, "carry": self.carry, **self._values}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, and emit how it ended."""
        outcome = (await self._outcome()).to_json()
        yield TriggerEvent({**outcome, "carry": self.carry})  # type: ignore[no-untyped-call]  # Airflow's constructor

    async def _outcome(self) -> Outcome:
        import time

        from airflow_tds.polling import poller_for

        watch = self.watch
        try:
            poller = await poller_for(self.tds_conn_id)
        except TableServiceError as error:
            return watch.broken(error, time.time())
        return await poller.wait(watch, partial(_say, watch.subject))


def _say(subject: str, reading: Reading) -> None:
    log.info("%s is %s", subject, reading.status)


class TdsJobTrigger(_WatchTrigger):
    """Waits until a write's job is COMPLETED or FAILED, §3.2.

    Args:
        tds_conn_id: The connection's id.
        carry: Text that the event gives back.
        watch: `subject` (the job's id), `started` and `deadline` (POSIX seconds), `poll_interval` and
            `first_pause` (seconds).
    """

    kind = "write"


class TdsQueryTrigger(_WatchTrigger):
    """Waits until a query's result can be fetched; the redirect itself is followed by a worker, §4.2.

    Args:
        tds_conn_id: The connection's id.
        carry: As for `TdsJobTrigger`.
        watch: As for `TdsJobTrigger`.
    """

    kind = "query"


class TdsTableTrigger(_WatchTrigger):
    """Waits until a table's statistics say what they are asked to say.

    Args:
        tds_conn_id: The connection's id.
        carry: As for `TdsJobTrigger`.
        watch: As for `TdsJobTrigger`, with the table's id as `subject`, and `conditions`, as `Conditions.to_text`
            writes them.
    """

    kind = "table"


class TdsTruncationTrigger(_WatchTrigger):
    """Waits until a truncation has taken effect: row_count is falsy then, §3.1.

    Args:
        tds_conn_id: The connection's id.
        carry: As for `TdsJobTrigger`.
        watch: As for `TdsJobTrigger`, with the table's id as `subject`, and `snapshot`, the snapshot that
            must have been replaced (empty for any).
    """

    kind = "truncation"


def trigger_for(tds_conn_id: str, watch: Watch, carry: str) -> BaseTrigger:
    """Make the trigger that waits for a watch.

    Args:
        tds_conn_id: The connection's id.
        watch: What to wait for.
        carry: Text that the event gives back.
    """
    classes = (TdsJobTrigger, TdsQueryTrigger, TdsTableTrigger, TdsTruncationTrigger)
    kinds: dict[str, type[_WatchTrigger]] = {c.kind: c for c in classes}
    values = watch.to_json()
    return kinds[values.pop("kind")](tds_conn_id, carry, **values)
