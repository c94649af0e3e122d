"""Sensors: wait for a job that something else started, or for a table to be as it should.

One look (`poke`) serves all modes: `poke` and `reschedule` are Airflow's own, `deferrable` leaves the worker after the
first look and looks once more when the trigger says that something happened. Timeouts, failures and what `soft_fail`
and `never_fail` make of them are the same in each. They only read.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from airflow_tds.client import errors
from airflow_tds.compat import (
    AirflowSensorTimeout,
    AirflowSkipException,
    BaseSensorOperator,
    Context,
    PokeReturnValue,
    conf,
)
from airflow_tds.operators.deferring import Deferring, carried, carry
from airflow_tds.operators.failures import raising
from airflow_tds.operators.queries import job_of
from airflow_tds.operators.tables import Asking, statistics

if TYPE_CHECKING:
    from airflow_tds.client.client import TableClient
    from airflow_tds.client.waiting import Reading, Watch
    from airflow_tds.operators.queries import JobId

__all__ = ["TdsJobSensor", "TdsTableSensor"]


def late_text(watch: Watch, status: str) -> str:
    """Say what was still missing at the deadline; the same whenever somebody notices."""
    from airflow_tds.client.waiting import Reading, Verdict

    late = watch.outcome(Reading(Verdict.RUNNING, status), watch.deadline)
    return late.message if late else ""


class _TdsSensor(Deferring, BaseSensorOperator):
    """What both sensors share.

    Args:
        tds_conn_id: The connection's id (templated).
        deferrable: Wait in the triggerer, which holds no worker; default `[operators] default_deferrable`.
        poll_interval: The operators' word for `poke_interval`: seconds between two looks. None leaves Airflow's.
        kwargs: `timeout`, `mode`, `soft_fail`, `never_fail` and what else Airflow's `BaseSensorOperator` takes.
    """

    def __init__(
        self,
        *,
        tds_conn_id: str = "tds_default",
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        poll_interval: float | None = None,
        **kwargs: Any,
    ) -> None:
        if poll_interval is not None:
            kwargs["poke_interval"] = poll_interval
        super().__init__(**kwargs)
        self.tds_conn_id = tds_conn_id
        self.deferrable = deferrable
        self._watch: Watch | None = None
        self._broken: errors.TableServiceError | None = None
        self._late = ""

    def execute(self, context: Context) -> Any:
        """Wait; see the class."""
        return self._sense(context, None)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Go on after a deferral: the event says only that something happened, the service is asked what.

        Args:
            context: Airflow's.
            event: An `Outcome`, and what the deferral carried.
        """
        from airflow_tds.client.waiting import Outcome

        outcome = Outcome.from_json(event)
        self.log.info("%s: %s after %.0f s", outcome.subject, outcome.status or outcome.kind, outcome.waited)
        if outcome.kind == "error":
            self._broken = errors.rebuild(outcome.error, outcome.message)
        watch = carried(event)[0]
        self._late = late_text(watch, outcome.status) if outcome.status else ""
        return self._sense(context, watch)

    def poke(self, context: Context) -> PokeReturnValue:
        """Look once; a deferrable sensor that has to wait leaves here."""
        with raising(self, only_looks=True):
            return self._look(context)

    def _go_on(self, context: Context, carry: Mapping[str, Any], *, ended: bool) -> Any:
        watch = carried(carry)[0]
        return self._sense(context, replace(watch, deadline=min(watch.deadline, time.time())) if ended else watch)

    def _sense(self, context: Context, watch: Watch | None) -> Any:
        """Let Airflow look; its timeout gets our text, and `never_fail` covers it in all modes."""
        self._watch = watch
        try:
            return super().execute(context)
        except AirflowSensorTimeout:
            if self.never_fail:
                raise AirflowSkipException(self._late) from None
            raise AirflowSensorTimeout(self._late) from None

    def _look(self, context: Context) -> PokeReturnValue:
        from airflow_tds.hooks import TdsHook

        if self._broken is not None:
            raise self._broken
        watch = self._watch or self._new_watch()
        with TdsHook(self.tds_conn_id).get_conn() as client:
            now, reading = time.time(), self._read(client, watch)
            outcome = watch.outcome(reading, now)
            if outcome is not None and outcome.kind != "timed_out":
                outcome.check()
                return PokeReturnValue(is_done=True, xcom_value=self._found(client, reading.status))
        self.log.info("%s: %s", watch.subject, reading.status)
        self._late = late_text(watch, reading.status)
        if outcome is not None:
            raise AirflowSensorTimeout(self._late)
        if self.deferrable:
            self._leave(context, watch, carry(watch))
        return PokeReturnValue(is_done=False)

    def _read(self, client: TableClient, watch: Watch) -> Reading:
        """Look; a service that gives no answer at the deadline is late, as it is for operators."""
        try:
            return client.look(watch)
        except (errors.TransportFailed, errors.ServerError) as failed:
            if self._late and watch.over(time.time()):
                raise AirflowSensorTimeout(self._late) from failed
            raise

    def _new_watch(self) -> Watch:
        from airflow_tds.tasks import watch_of

        return self._asked(watch_of(self.timeout, self.execution_timeout, self.poke_interval, deferred=self.deferrable))

    def _asked(self, watch: Watch) -> Watch:
        """Fill in what is waited for."""
        raise NotImplementedError

    def _found(self, client: TableClient, status: str) -> dict[str, Any]:
        """Give what goes into the XCom."""
        raise NotImplementedError


class TdsJobSensor(_TdsSensor):
    """Wait until a job has ended: a write of `wait_for_completion=False`, or of another system.

    Args:
        job_id: The job (templated): its id, or what the task returned that started it, as in `job_id=append.output`.
        kind: `write`, or `query` for a query's job, which is asked about elsewhere (§4.2).
        kwargs: `tds_conn_id`, `deferrable`, `poll_interval`, `timeout`, and what else sensors take.

    Returns:
        `{"job_id", "status"}`.

    Raises:
        JobFailed: The job failed, which ends the task at once: it stays FAILED.
        AirflowSensorTimeout: The job goes on after the timeout.
        JobNotFound: There is no such job.
    """

    template_fields: Sequence[str] = ("tds_conn_id", "job_id", "kind")

    def __init__(self, *, job_id: JobId, kind: Literal["write", "query"] = "write", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.job_id = job_id
        self.kind = kind

    def _asked(self, watch: Watch) -> Watch:
        if self.kind not in ("write", "query"):
            raise errors.ValidationFailed(f"kind is write or query, not {self.kind!r}")
        return replace(watch, kind=self.kind, subject=job_of(self.job_id))

    def _found(self, client: TableClient, status: str) -> dict[str, Any]:  # noqa: ARG002  # all is known
        return {"job_id": job_of(self.job_id), "status": status}


class TdsTableSensor(Asking, _TdsSensor):
    """Wait until a table is as it should be, from its statistics alone: no rows are read, nothing is scanned.

    All conditions that are given must hold at once.

    Args:
        table_id: The table (templated, as are all conditions).
        min_rows: Rows at least.
        max_rows: Rows at most.
        min_bytes: Bytes at least.
        max_bytes: Bytes at most.
        empty: True: no rows. False: at least one.
        updated_after: Updated later than this: a time, or text in ISO 8601 such as `{{ data_interval_start }}`.
        max_age: Updated no longer ago than this: seconds, or a timedelta.
        changed_from: The snapshot is another than this one: its id, or what a task returned that has it, such as
            `changed_from=before.output` of a `TdsTableInfoOperator`.
        kwargs: `tds_conn_id`, `deferrable`, `poll_interval`, `timeout`, and what else sensors take.

    Returns:
        The table's statistics, as `TdsTableInfoOperator` gives them.

    Raises:
        AirflowSensorTimeout: The table is not as it should be after the timeout; the text names what is missing.
        TableNotFound: There is no such table.
        ValidationFailed: There is no condition, or one that has a wrong form.
        UnexpectedReply: The service does not tell a number that is asked for.
    """

    template_fields: Sequence[str] = ("tds_conn_id", "table_id", *Asking.CONDITIONS)

    def __init__(self, *, table_id: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.table_id = table_id

    def _asked(self, watch: Watch) -> Watch:
        return replace(watch, kind="table", subject=self.table_id, conditions=self._conditions(watch.started).to_text())

    def _found(self, client: TableClient, status: str) -> dict[str, Any]:  # noqa: ARG002  # all is as wanted
        return statistics(self.table_id, client.info(self.table_id))
