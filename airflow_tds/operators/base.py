"""What all operators share: connection, pace, deadline, waiting in either mode, and the way on after a trigger.

An operator builds what is asked for and hands it to durability; it waits by deferring or by blocking, and
takes the same steps either way. Nothing heavy is imported when a DAG is parsed: models, client and triggers
stand inside functions. Nothing is read or checked before `execute`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from airflow_tds.client import errors
from airflow_tds.compat import BaseOperator, Context, conf
from airflow_tds.operators.failures import final

if TYPE_CHECKING:
    from airflow_tds.client.client import TableClient
    from airflow_tds.client.waiting import Watch
    from airflow_tds.durability import Choices, Done, Generation, Once, Record, RecordStore
    from airflow_tds.settings import Settings

__all__ = ["RESCUES", "ChangingOperator", "TdsOperator"]

#: Seconds between two reads at most: a deferred wait costs no worker, a blocking one should end soon.
DEFERRED_INTERVAL = 30.0
BLOCKING_INTERVAL = 5.0
#: What Airflow says in place of a method's name when the trigger itself failed.
TRIGGER_FAILED = "__fail__"
#: How often in a row a trigger may fail before the try does.
RESCUES = 3
#: Where a deferred wait is kept while the trigger has it (an XCom: it survives the deferral, not the try).
WAIT_KEY = "tds.wait"
#: Airflow's own timeout of a deferral must not come before ours, which says what goes on: seconds.
DEFER_GRACE = 300.0


class TdsOperator(BaseOperator):
    """What all operators share: connection, pace, deadline, errors.

    Args:
        tds_conn_id: The connection's id.
        deferrable: Wait in the triggerer, which holds no worker; default `[operators] default_deferrable`.
        timeout: Seconds after which waiting ends; None means the task's `execution_timeout`, else 7 days.
        poll_interval: Seconds between two reads at most; None means 30 when deferred, 5 when blocking.
        durable: Keep a record of the work in the task's state store (Airflow 3.3 and later), so that a retry
            goes on where an earlier try ended. Without it, a retry starts anew: rows may double.
        store: Where else to keep the record (templated): `variable`, or the path or object-storage URI of a
            folder. These work on every Airflow and protect from crashes, but not from a lost try that is still
            alive. None for the task's state store.
    """

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
        self._rescues = 0

    def execute(self, context: Context) -> Any:
        """Do the work; see the class."""
        with self._raising():
            return self._run(context, self._new_watch(), None)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Go on after a deferral: the event says only that something happened, the service is asked what.

        Args:
            context: Airflow's.
            event: An `Outcome`, and what the deferral carried.
        """
        from airflow_tds.client.waiting import Outcome

        with self._raising():
            outcome = Outcome.from_json(event)
            self.log.info("%s: %s after %.0f s", outcome.subject, outcome.status or outcome.kind, outcome.waited)
            if outcome.kind == "error":
                outcome.check()
            return self._run(context, *_carried(event))

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
        with self._raising():
            watch, record = _carried(kept)
            if ended:
                return self._run(context, replace(watch, deadline=min(watch.deadline, time.time())), record)
            self._rescues = kept["rescues"] + 1
            self.log.error("the trigger failed: %s\n%s", why, "\n".join((next_kwargs or {}).get("traceback") or ()))
            self.log.warning("waiting for the same work again, rescue %d of %d", self._rescues, RESCUES)
            return self._run(context, watch, record)

    def on_kill(self) -> None:
        """Send nothing more. The service has no cancel: a job that has its data goes on, and is named."""
        if self._client is not None:
            self._client.stop()
        job_id = self._once.job_id if self._once is not None else ""
        goes_on = f"job {job_id} goes on if it has its data" if job_id else "no job is known that goes on"
        self.log.warning("killed: nothing more is sent; %s", goes_on)

    def _run(self, context: Context, watch: Watch, record: Record | None) -> Any:
        """Connect, and go on from wherever the record says."""
        from airflow_tds.hooks import TdsHook

        settings = TdsHook(self.tds_conn_id).settings()
        with settings.client() as client:
            self._client = client
            return self._work(context, settings, client, self._store(context, record), watch)

    def _work(self, context: Context, settings: Settings, client: TableClient, store: RecordStore, watch: Watch) -> Any:
        raise NotImplementedError

    def _finish(self, context: Context, client: TableClient, store: RecordStore, watch: Watch, once: Once) -> Done:
        """Take durable work to its end, waiting where it has to."""
        from airflow_tds.durability import Done

        self._once = once
        while not isinstance(step := once.advance(watch), Done):
            self._wait(context, client, store, watch, step.watch)
        return step

    def _wait(self, context: Context, client: TableClient, store: RecordStore, watch: Watch, wait: Watch) -> None:
        """Wait here, or leave to wait in the triggerer and never return; what became of it is read afterwards.

        Args:
            context: Airflow's.
            client: The service.
            store: The record's.
            watch: Pace and deadline of the whole wait.
            wait: What to wait for now.
        """
        if self.deferrable:
            self._defer(context, store, watch, wait)
        client.watch(wait)

    def _defer(self, context: Context, store: RecordStore, watch: Watch, wait: Watch) -> NoReturn:
        from airflow_tds.durability import MemoryStore
        from airflow_tds.triggers import trigger_for

        kept = store.record.to_json() if isinstance(store, MemoryStore) and store.record else None
        carry = json.dumps({"watch": watch.to_json(), "record": kept})
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

    def _store(self, context: Context, record: Record | None) -> RecordStore:
        from airflow_tds.tasks import store_of

        return store_of(context, self.log, place=self.store, durable=self.durable, record=record)

    def _new_watch(self) -> Watch:
        from airflow_tds.tasks import watch_of

        interval = self.poll_interval or (DEFERRED_INTERVAL if self.deferrable else BLOCKING_INTERVAL)
        return watch_of(self.timeout, self.execution_timeout, interval)

    def _generation(self, context: Context) -> Generation:
        from airflow_tds.tasks import generation_of

        return generation_of(context)

    @contextmanager
    def _raising(self) -> Iterator[None]:
        """Raise what no retry can mend so that Airflow does not retry, unless the task has a policy for that."""
        try:
            yield
        except errors.TableServiceError as error:
            ending = error if getattr(self, "retry_policy", None) is not None else final(error)
            if ending is error:
                raise
            raise ending from error


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


def _carried(event: Mapping[str, Any]) -> tuple[Watch, Record | None]:
    """Read what a deferral carried: the whole wait, and the record where no store keeps it."""
    from airflow_tds.client.waiting import Watch
    from airflow_tds.durability import Record

    try:
        carried = json.loads(event["carry"])
        record = carried["record"]
        return Watch.from_json(carried["watch"]), Record.from_json(record) if record else None
    except (KeyError, TypeError, ValueError) as damaged:
        raise errors.UnexpectedReply("the trigger's event does not carry the wait") from damaged
