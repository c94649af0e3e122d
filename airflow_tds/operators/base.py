"""What all operators share: connection, pace, deadline, waiting in either mode, and the way on after a trigger.

An operator builds what is asked for and hands it to durability; it waits by deferring or by blocking, and
takes the same steps either way. Nothing heavy is imported when a DAG is parsed: models, client and triggers
stand inside functions. Nothing is read or checked before `execute`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from airflow_tds.compat import BaseOperator, Context, conf
from airflow_tds.operators.deferring import Deferring, carried, carry
from airflow_tds.operators.failures import raising

if TYPE_CHECKING:
    from airflow_tds.client.client import TableClient
    from airflow_tds.client.waiting import Watch
    from airflow_tds.durability import Attempt, Choices, Done, Once, Record, RecordStore
    from airflow_tds.settings import Settings

__all__ = ["ChangingOperator", "TdsOperator", "Turn"]


@dataclass(frozen=True)
class Turn:
    """What an operator has at hand from its start, or its return from a trigger, until it ends or leaves.

    Attributes:
        context: Airflow's.
        settings: The connection's.
        client: The service.
        store: The record's.
        watch: Pace and deadline of the whole wait.
    """

    context: Context
    settings: Settings
    client: TableClient
    store: RecordStore
    watch: Watch


class TdsOperator(Deferring, BaseOperator):
    """What all operators share: connection, pace, deadline, errors.

    Args:
        tds_conn_id: The connection's id.
        deferrable: Wait in the triggerer, which holds no worker; default `[operators] default_deferrable`.
        timeout: Seconds after which waiting ends; None means the connection's, else the task's `execution_timeout`,
            else 7 days.
        poll_interval: Seconds between two reads at most; None means the connection's, else 30 when deferred and 5 when
            blocking.
        durable: Keep a record of the work in the task's state store (Airflow 3.3 and later), so that a retry
            goes on where an earlier try ended. Without it, a retry starts anew: rows may double.
        store: Where else to keep the record (templated): `variable`, or the path or object-storage URI of a
            folder. These work on every Airflow and protect from crashes, but not from a lost try that is still
            alive. None for the connection's, else the task's state store.
    """

    #: Whether a retry that knows of no earlier try changes nothing by it.
    starts_anew_harmlessly: ClassVar[bool] = False

    def __init__(
        self,
        *,
        tds_conn_id: str = "tds_default",
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        timeout: float | None = None,
        poll_interval: float | None = None,
        durable: bool = True,
        store: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.tds_conn_id = tds_conn_id
        self.deferrable = deferrable
        self.timeout = timeout
        self.poll_interval = poll_interval
        self.durable = durable
        self.store = store
        self._client: TableClient | None = None
        self._once: Once | None = None

    def execute(self, context: Context) -> Any:
        """Do the work; see the class."""
        with raising(self):
            return self._run(context, None, None)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Go on after a deferral: the event says only that something happened, the service is asked what.

        Args:
            context: Airflow's.
            event: An `Outcome`, and what the deferral carried.
        """
        from airflow_tds.client.waiting import Outcome

        with raising(self):
            outcome = Outcome.from_json(event)
            self.log.info("%s: %s after %.0f s", outcome.subject, outcome.status or outcome.kind, outcome.waited)
            if outcome.kind == "error":
                outcome.check()
            return self._run(context, *carried(event))

    def _go_on(self, context: Context, carry: Mapping[str, Any], *, ended: bool) -> Any:
        with raising(self):
            watch, record = carried(carry)
            if ended:
                watch = replace(watch, deadline=min(watch.deadline, time.time()))
            return self._run(context, watch, record)

    def on_kill(self) -> None:
        """Send nothing more. The service has no cancel: a job that has its data goes on, and is named."""
        if self._client is not None:
            self._client.stop()
        job_id = self._once.job_id if self._once is not None else ""
        goes_on = f"job {job_id} goes on if it has its data" if job_id else "what the service has accepted goes on"
        self.log.warning("killed: nothing more is sent; %s", goes_on)

    def _run(self, context: Context, watch: Watch | None, record: Record | None) -> Any:
        """Connect, and go on from wherever the record says."""
        from airflow_tds.hooks import TdsHook
        from airflow_tds.metrics import told

        settings = TdsHook(self.tds_conn_id).settings()
        with settings.client() as client:
            self._client = client
            store = self._store(context, settings, record)
            turn = Turn(context, settings, client, store, watch or self._new_watch(settings))
            with told(type(self).__name__, client.tally, turn.watch.started):
                return self._work(turn)

    def _work(self, turn: Turn) -> Any:
        raise NotImplementedError

    def _finish(self, turn: Turn, once: Once, leave: Callable[[], Done | None] | None = None) -> Done:
        """Take durable work to its end, waiting where it has to, or to where it may be left."""
        from airflow_tds.durability import Done

        self._once = once
        while not isinstance(step := once.advance(turn.watch), Done):
            if leave and (left := leave()) is not None:
                return left
            self._wait(turn, step.watch)
        return step

    def _wait(self, turn: Turn, wait: Watch) -> None:
        """Wait here, or leave to wait in the triggerer and never return; what became of it is read afterwards."""
        from airflow_tds.durability import MemoryStore

        if self.deferrable:
            kept = turn.store.record if isinstance(turn.store, MemoryStore) else None
            self._leave(turn.context, wait, carry(turn.watch, kept))
        turn.client.watch(wait)

    def _store(self, context: Context, settings: Settings, record: Record | None) -> RecordStore:
        from airflow_tds.tasks import store_of

        place = self.store or settings.store
        return store_of(
            context, self.log, place=place, durable=self.durable, record=record, harmless=self.starts_anew_harmlessly
        )

    def _new_watch(self, settings: Settings) -> Watch:
        from airflow_tds.tasks import BLOCKING_INTERVAL, DEFERRED_INTERVAL, watch_of

        usual = DEFERRED_INTERVAL if self.deferrable else BLOCKING_INTERVAL
        timeout = settings.timeout if self.timeout is None else self.timeout
        pace = self.poll_interval or settings.poll_interval or usual
        return watch_of(timeout, self.execution_timeout, pace, deferred=self.deferrable)

    def _attempt(self, turn: Turn) -> Attempt:
        """Gather what durable work needs of this try."""
        from airflow_tds.durability import Attempt
        from airflow_tds.tasks import generation_of

        return Attempt(turn.client, turn.store, generation_of(turn.context), self.log, self._choices())

    def _choices(self) -> Choices:
        from airflow_tds.durability import Choices

        return Choices()


class ChangingOperator(TdsOperator):
    """What changes a table: what happens after a clear, and where it cannot be known whether it was applied.

    Args:
        on_clear: After a clear: `auto`, `resume` or `new`; see `Choices`.
        on_unknown: What cannot be known: `fail`, `resubmit` or `assume_done`; see `Choices`.
        kwargs: See `TdsOperator` and Airflow's `BaseOperator`.
    """

    def __init__(
        self,
        *,
        on_clear: Literal["auto", "resume", "new"] = "auto",
        on_unknown: Literal["fail", "resubmit", "assume_done"] = "fail",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.on_clear = on_clear
        self.on_unknown = on_unknown

    def _choices(self) -> Choices:
        from airflow_tds.durability import Choices

        return Choices.of(self.on_clear, self.on_unknown)
