"""Sensors against the embedded service: poked, rescheduled and deferred, they find, fail and time out alike."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    TaskDeferred,
)
from harness import TaskRun, acting_once, connect

from airflow_tds.client import errors
from airflow_tds.hooks import TdsHook
from airflow_tds.local import Service
from airflow_tds.operators import RESCUES
from airflow_tds.sensors import TdsJobSensor, TdsTableSensor

ROWS = "id,name\n1,a\n2,b\n"
#: A table of two rows is not as wanted in time; a busy machine takes a second for a look.
LATE = {"min_rows": 3, "timeout": 2}


@pytest.fixture
def pace(deferrable: bool) -> dict[str, Any]:
    """Mode and pace of a sensor under test."""
    return {"task_id": "it", "deferrable": deferrable, "poll_interval": 0.05, "timeout": 60}


@pytest.fixture
def loaded(table: str) -> str:
    """A table with two rows."""
    TdsHook().upload(table, ROWS, "csv", poll_interval=0.05)
    return table


def released_after_looks(service: Service) -> AbstractContextManager[None]:
    """Let a held service go on once it was looked at three times."""
    before = len(service.requests)
    return acting_once(lambda: len(service.requests) >= before + 3, service.release)


class TestJobs:
    def test_a_write_is_waited_for(self, service: Service, table: str, task: TaskRun, pace: dict[str, Any]) -> None:
        job = TdsHook().submit_upload(table, ROWS, "csv")

        assert task.execute(TdsJobSensor(job_id=job, **pace)) == {"job_id": job, "status": "COMPLETED"}

    def test_a_query_is_waited_for(self, loaded: str, task: TaskRun, pace: dict[str, Any]) -> None:
        job = TdsHook().submit_query(loaded, format="csv")

        assert task.execute(TdsJobSensor(job_id=job, kind="query", **pace))["job_id"] == job

    def test_a_job_is_named_by_what_the_task_returned_that_started_it(self, loaded: str, task: TaskRun) -> None:
        job = TdsHook().submit_append(loaded, ROWS, "csv")
        sensor = TdsJobSensor(task_id="it", job_id={"table_id": loaded, "job_id": job}, poll_interval=0.05)

        assert task.execute(sensor)["job_id"] == job

    def test_a_job_that_has_ended_defers_nothing(self, loaded: str, task: TaskRun) -> None:
        job = TdsHook().submit_append(loaded, ROWS, "csv")
        TdsHook().wait(job, poll_interval=0.05)

        task.execute(TdsJobSensor(task_id="it", job_id=job, deferrable=True))

        assert task.deferrals == []

    def test_a_failed_job_ends_the_sensor_at_once(self, loaded: str, task: TaskRun, pace: dict[str, Any]) -> None:
        job = TdsHook().submit_append(loaded, "id,name\nx,y\n", "csv")

        with pytest.raises(errors.JobFailed, match="row 1, column 'id'") as raised:
            task.execute(TdsJobSensor(job_id=job, **pace))
        assert isinstance(raised.value, AirflowFailException)
        assert raised.value.job_id == job

    def test_a_job_that_is_not_known_is_not_found(self, service: Service, task: TaskRun, pace: dict[str, Any]) -> None:
        with pytest.raises(errors.JobNotFound):
            task.execute(TdsJobSensor(job_id="none", **pace))

    @pytest.mark.parametrize(
        ("given", "text"),
        [
            ({"kind": "job"}, "kind is write or query, not 'job'"),
            ({"job_id": 5}, "job_id is text, not a int"),
            ({"job_id": {"table_id": "t"}}, "job_id is text, or what another task returned with a 'job_id' in it"),
        ],
    )
    def test_wrong_input_is_refused(
        self, service: Service, task: TaskRun, pace: dict[str, Any], given: dict[str, Any], text: str
    ) -> None:
        with pytest.raises(errors.ValidationFailed, match=text) as raised:
            task.execute(TdsJobSensor(**({"job_id": "j"} | pace | given)))
        assert isinstance(raised.value, AirflowFailException)

    def test_the_plain_error_is_for_a_task_with_a_retry_policy(self, service: Service, task: TaskRun) -> None:
        sensor = TdsJobSensor(task_id="it", job_id="j", kind="job")  # type: ignore[arg-type]  # wrong on purpose
        sensor.retry_policy = object()  # type: ignore[assignment]  # any policy: only its presence counts

        with pytest.raises(errors.ValidationFailed) as raised:
            task.execute(sensor)
        assert not isinstance(raised.value, AirflowFailException)


class TestTables:
    @pytest.mark.parametrize(
        "given",
        [
            {"min_rows": 2, "max_rows": 2},
            {"empty": False},
            {"min_bytes": 1},
            {"max_age": timedelta(hours=1)},
            {"updated_after": "2020-01-01"},
            {"changed_from": ""},
            {"changed_from": {"table_id": "t", "snapshot_id": None}},
            {"changed_from": {"table_id": "t", "snapshot_id": "another"}},
        ],
    )
    def test_a_table_that_is_as_wanted_is_described(
        self, loaded: str, task: TaskRun, pace: dict[str, Any], given: dict[str, Any]
    ) -> None:
        found = task.execute(TdsTableSensor(table_id=loaded, **given, **pace))

        assert (found["table_id"], found["row_count"]) == (loaded, 2)
        assert json.dumps(found)
        assert task.deferrals == []

    def test_a_table_is_waited_for(self, service: Service, loaded: str, task: TaskRun, pace: dict[str, Any]) -> None:
        before = TdsHook().info(loaded).snapshot_id
        service.hold()
        TdsHook().submit_append(loaded, ROWS, "csv")
        with released_after_looks(service):
            found = task.execute(TdsTableSensor(table_id=loaded, min_rows=3, changed_from=before, **pace))

        assert found["row_count"] == 4

    @pytest.mark.parametrize(
        "given",
        [{"min_rows": 3}, {"empty": True}, {"updated_after": datetime(2100, 1, 1, tzinfo=UTC)}, {"max_bytes": 0}],
    )
    def test_a_table_that_is_not_as_wanted_times_out_with_what_is_missing(
        self, loaded: str, task: TaskRun, pace: dict[str, Any], given: dict[str, Any]
    ) -> None:
        with pytest.raises(AirflowSensorTimeout, match=rf"table {loaded}: still .* wanted .* after 2 s$"):
            task.execute(TdsTableSensor(table_id=loaded, **given, **(pace | {"timeout": 2})))

    def test_a_sensor_without_a_condition_is_refused(self, loaded: str, task: TaskRun, pace: dict[str, Any]) -> None:
        with pytest.raises(errors.ValidationFailed, match="no condition: give one of") as raised:
            task.execute(TdsTableSensor(table_id=loaded, **pace))
        assert isinstance(raised.value, AirflowFailException)

    def test_a_missing_table_is_not_found(self, service: Service, task: TaskRun, pace: dict[str, Any]) -> None:
        with pytest.raises(errors.TableNotFound, match="nowhere"):
            task.execute(TdsTableSensor(table_id="nowhere", min_rows=1, **pace))

    def test_a_trigger_waits_for_a_table_by_its_statistics(self, loaded: str, task: TaskRun) -> None:
        with pytest.raises(AirflowSensorTimeout):
            task.execute(
                TdsTableSensor(
                    task_id="it", table_id=loaded, min_rows=3, timeout=2, poll_interval=0.05, deferrable=True
                )
            )

        path, kwargs = task.deferrals[0]
        assert path == "airflow_tds.triggers.TdsTableTrigger"
        assert all(isinstance(value, str | int | float) for value in kwargs.values())


class TestWhatBecomesOfFailures:
    """The same in all modes, also where Airflow's own modes differ."""

    @pytest.mark.parametrize("given", [{"soft_fail": True}, {"never_fail": True}])
    def test_a_timeout_is_skipped_if_asked(
        self, loaded: str, task: TaskRun, pace: dict[str, Any], given: dict[str, Any]
    ) -> None:
        with pytest.raises(AirflowSkipException):
            task.execute(TdsTableSensor(table_id=loaded, **(pace | LATE | given)))

    @pytest.mark.parametrize("given", [{"soft_fail": True}, {"never_fail": True}])
    def test_a_failed_job_is_skipped_if_asked(
        self, loaded: str, task: TaskRun, pace: dict[str, Any], given: dict[str, Any]
    ) -> None:
        job = TdsHook().submit_append(loaded, "id,name\nx,y\n", "csv")

        with pytest.raises(AirflowSkipException):
            task.execute(TdsJobSensor(job_id=job, **(pace | given)))

    def test_a_missing_table_is_not_skipped_softly(self, service: Service, task: TaskRun, pace: dict[str, Any]) -> None:
        with pytest.raises(errors.TableNotFound):
            task.execute(TdsTableSensor(table_id="nowhere", min_rows=1, soft_fail=True, **pace))

    def test_a_missing_table_is_skipped_by_what_never_fails(
        self, service: Service, task: TaskRun, pace: dict[str, Any]
    ) -> None:
        with pytest.raises(AirflowSkipException):
            task.execute(TdsTableSensor(table_id="nowhere", min_rows=1, never_fail=True, **pace))

    def text(self, loaded: str, *, deferrable: bool, **given: Any) -> tuple[type, str]:
        pace: dict[str, Any] = {"task_id": "it", "deferrable": deferrable, "poll_interval": 0.05}
        with pytest.raises(Exception, match=r"\w") as raised:
            TaskRun().execute(TdsTableSensor(**({"table_id": loaded} | pace | given)))
        return type(raised.value), str(raised.value)

    @pytest.mark.parametrize("given", [LATE, {"table_id": "nowhere", "min_rows": 1}, {"min_rows": "x"}, {}])
    def test_class_and_text_are_equal_in_both_modes(self, service: Service, loaded: str, given: dict[str, Any]) -> None:
        assert self.text(loaded, deferrable=False, **given) == self.text(loaded, deferrable=True, **given)

    def test_a_service_that_lets_nobody_in_any_more_is_told_by_the_trigger(
        self, service: Service, loaded: str, task: TaskRun, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sensor = TdsTableSensor(task_id="it", table_id=loaded, min_rows=3, deferrable=True, poll_interval=0.05)
        with pytest.raises(TaskDeferred) as deferred:
            sensor.execute(task.context())
        connect(service, monkeypatch, auth="api_key")
        event = task._fire(deferred.value.trigger)

        with pytest.raises(errors.Unauthorized):
            sensor.execute_complete(task.context(), event=event)

    def test_a_service_without_an_answer_at_the_deadline_is_late(
        self, service: Service, loaded: str, task: TaskRun
    ) -> None:
        sensor = TdsTableSensor(task_id="it", table_id=loaded, **LATE, poll_interval=0.05, deferrable=True)
        event = task._fire(task.leave(sensor, service).trigger)
        again = TdsTableSensor(task_id="it", table_id=loaded, **LATE, poll_interval=0.05, deferrable=True)
        service.fault("info", status=503, times=100)
        try:
            with pytest.raises(AirflowSensorTimeout, match=rf"table {loaded}: still .* wanted at least 3.* after 2 s$"):
                again.execute_complete(task.context(), event=event)
        finally:
            service.clear_faults()

    def test_an_event_that_is_none_is_an_error(self, loaded: str, task: TaskRun) -> None:
        sensor = TdsTableSensor(task_id="it", table_id=loaded, min_rows=1, deferrable=True)

        with pytest.raises(errors.UnexpectedReply, match="trigger's event"):
            sensor.execute_complete(task.context(), event={"status": "success"})

    def test_a_forged_success_is_not_believed(self, loaded: str, task: TaskRun) -> None:
        sensor = TdsTableSensor(task_id="it", table_id=loaded, min_rows=3, deferrable=True, poll_interval=0.05)
        with pytest.raises(TaskDeferred) as deferred:
            sensor.execute(task.context())
        carry = deferred.value.trigger.serialize()[1]["carry"]
        forged = {"kind": "completed", "subject": loaded, "status": "as wanted", "waited": 1.0, "carry": carry}

        with pytest.raises(TaskDeferred):
            sensor.execute_complete(task.context(), event=forged)


class TestModes:
    def test_each_poke_of_a_rescheduled_sensor_is_one_look(self, service: Service, loaded: str, task: TaskRun) -> None:
        sensor = TdsTableSensor(task_id="it", table_id=loaded, min_rows=3, mode="reschedule", poll_interval=60)
        before = len(service.requests)

        assert not sensor.poke(task.context())
        assert len(service.requests) == before + 1
        TdsHook().append(loaded, ROWS, "csv", poll_interval=0.05)
        assert sensor.poke(task.context())

    def test_poll_interval_is_the_poke_interval(self) -> None:
        assert TdsTableSensor(task_id="it", table_id="t", poll_interval=7).poke_interval == 7
        assert TdsTableSensor(task_id="it", table_id="t", poke_interval=8).poke_interval == 8
        assert TdsTableSensor(task_id="it", table_id="t").poke_interval == 60

    def test_the_timeout_is_kept_while_deferred(self, loaded: str, task: TaskRun) -> None:
        sensor = TdsTableSensor(task_id="it", table_id=loaded, min_rows=3, deferrable=True, timeout=100)
        with pytest.raises(TaskDeferred) as deferred:
            sensor.execute(task.context())
        watch = deferred.value.trigger.serialize()[1]

        assert watch["deadline"] - watch["started"] == 100
        assert deferred.value.timeout > timedelta(seconds=100)

    def test_a_crashed_trigger_does_not_end_the_sensor(self, loaded: str, task: TaskRun) -> None:
        task.crashes = 1
        job = TdsHook().submit_append(loaded, ROWS, "csv")

        found = task.execute(TdsJobSensor(task_id="it", job_id=job, deferrable=True, poll_interval=0.05))

        assert found["status"] == "COMPLETED"

    def test_triggers_that_keep_crashing_end_it(self, loaded: str, task: TaskRun) -> None:
        task.crashes = RESCUES + 1

        with pytest.raises(AirflowException, match="Trigger failure"):
            task.execute(TdsTableSensor(task_id="it", table_id=loaded, min_rows=3, deferrable=True))

    def test_a_deferral_that_airflow_ended_is_a_timeout(self, loaded: str, task: TaskRun) -> None:
        sensor = TdsTableSensor(task_id="it", table_id=loaded, min_rows=3, deferrable=True)
        with pytest.raises(TaskDeferred):
            sensor.execute(task.context())

        with pytest.raises(AirflowSensorTimeout, match="wanted at least 3"):
            sensor.resume_execution("__fail__", {"error": "Trigger timeout"}, task.context())

    def test_a_constructor_checks_nothing_that_a_template_may_fill(self) -> None:
        sensor = TdsTableSensor(task_id="it", table_id="{{ t }}", min_rows="{{ n }}", updated_after="{{ ds }}")

        assert {"table_id", "min_rows", "updated_after", "changed_from"} <= set(sensor.template_fields)
