"""Operators against the embedded service, in both modes: what they return, refuse and leave behind."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import time
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, TaskDeferred
from harness import HAS_STORE, TaskRun, acting_once, connect, needs_store

from airflow_tds.client import errors
from airflow_tds.hooks import TdsHook
from airflow_tds.local import Service
from airflow_tds.operators import (
    RESCUES,
    TdsAppendOperator,
    TdsCrossQueryOperator,
    TdsDeleteRowsOperator,
    TdsOverwriteOperator,
    TdsTruncateOperator,
    TdsUpdateOperator,
    TdsUploadOperator,
    TdsUpsertOperator,
)
from airflow_tds.triggers import TdsJobTrigger

ROWS = "id,name\n1,a\n2,b\n"


def writes(service: Service, table: str) -> list[str]:
    """The operations that were initiated on a table, in order."""
    changing = ("upload", "append", "overwrite", "upsert", "truncate", "delete_rows")
    return [r.operation for r in service.requests if r.operation in changing and f"/{table}/" in r.path]


def clear(task: TaskRun) -> None:
    """Do what a person's clear does to a task instance."""
    task.max_tries += 2
    task.clear_number += 1


def deleted_later(service: Service, table: str, looks: int) -> AbstractContextManager[None]:
    """Answer the next deletion at once, and do it when the table's statistics were looked at so often."""
    service.fault("delete_rows", status=204)
    before = len(service.requests)
    return acting_once(
        lambda: sum(one.operation == "info" for one in service.requests[before:]) >= looks,
        lambda: TdsHook().delete_rows(table, "id:eq:1"),
    )


@pytest.fixture
def pace(deferrable: bool) -> dict[str, Any]:
    """Mode and pace of an operator under test."""
    return {"task_id": "it", "deferrable": deferrable, "poll_interval": 0.05}


@pytest.fixture
def loaded(table: str) -> str:
    """A table with two rows."""
    TaskRun().execute(TdsUploadOperator(task_id="load", table_id=table, data=ROWS, poll_interval=0.05))
    return table


class TestWrites:
    def test_upload_returns_a_reference_to_the_table(self, table: str, task: TaskRun, pace: dict[str, Any]) -> None:
        result = task.execute(TdsUploadOperator(table_id=table, data=ROWS, **pace))

        assert (result["table_id"], result["row_count"]) == (table, 2)
        assert result["job_id"]
        assert result["snapshot_id"]

    def test_upload_sends_a_file(self, table: str, task: TaskRun, pace: dict[str, Any], tmp_path: Path) -> None:
        source = tmp_path / "rows.csv"
        source.write_text(ROWS)

        assert task.execute(TdsUploadOperator(table_id=table, source=str(source), **pace))["row_count"] == 2

    def test_append_adds_rows(self, loaded: str, task: TaskRun, pace: dict[str, Any]) -> None:
        assert task.execute(TdsAppendOperator(table_id=loaded, data=ROWS, **pace))["row_count"] == 4

    def test_data_of_unknown_length_is_sent(self, loaded: str, task: TaskRun, pace: dict[str, Any]) -> None:
        result = task.execute(TdsAppendOperator(table_id=loaded, data=lambda: [b"id,name\n", b"3,c\n"], **pace))

        assert result["row_count"] == 3

    @pytest.mark.parametrize("keys", ["id", ["id"], ["id", "name"]])
    def test_upsert_matches_on_all_keys(self, loaded: str, task: TaskRun, pace: dict[str, Any], keys: Any) -> None:
        changed = "id,name\n2,b\n3,c\n"

        result = task.execute(TdsUpsertOperator(table_id=loaded, data=changed, key_columns=keys, **pace))

        assert result["row_count"] == 3

    def test_overwrite_replaces_all_rows(self, loaded: str, task: TaskRun, pace: dict[str, Any]) -> None:
        assert task.execute(TdsOverwriteOperator(table_id=loaded, data="id,name\n9,z\n", **pace))["row_count"] == 1

    @pytest.mark.parametrize("mode", ["append", "overwrite", "upsert"])
    def test_update_writes_in_the_mode_that_is_named(
        self, service: Service, loaded: str, task: TaskRun, pace: dict[str, Any], mode: str
    ) -> None:
        update = TdsUpdateOperator(
            table_id=loaded, data="id,name\n2,b\n3,c\n", update_mode=mode, key_columns="id", **pace
        )

        assert task.execute(update)["row_count"] == {"append": 4, "overwrite": 2, "upsert": 3}[mode]
        assert writes(service, loaded) == ["upload", mode]

    def test_an_update_mode_that_is_none_is_refused(self, service: Service, loaded: str, task: TaskRun) -> None:
        update = TdsUpdateOperator(task_id="it", table_id=loaded, data=ROWS, update_mode="merge")

        with pytest.raises(errors.ValidationFailed, match="append, overwrite or upsert, not 'merge'"):
            task.execute(update)
        assert writes(service, loaded) == ["upload"]

    def test_the_mode_of_an_update_may_be_a_template(self) -> None:
        assert {"update_mode", "key_columns"} <= set(TdsUpdateOperator.template_fields)

    @needs_store
    @pytest.mark.parametrize("filters", ["id:eq:1", ["id:gte:1", {"field": "name", "operator": "eq", "value": "a"}]])
    def test_delete_rows_deletes_the_rows_that_match_all_filters(
        self, service: Service, loaded: str, task: TaskRun, pace: dict[str, Any], filters: Any
    ) -> None:
        delete = TdsDeleteRowsOperator(table_id=loaded, filters=filters, **pace)

        assert task.execute(delete)["row_count"] == 1
        assert task.execute(delete)["row_count"] == 1
        assert writes(service, loaded) == ["upload", "delete_rows"]

    def test_delete_rows_waits_for_another_snapshot_if_asked(
        self, service: Service, loaded: str, task: TaskRun, pace: dict[str, Any]
    ) -> None:
        deletion = TdsDeleteRowsOperator(table_id=loaded, filters="id:eq:1", wait_for_snapshot=True, **pace)
        with deleted_later(service, loaded, looks=4):
            found = task.execute(deletion)

        assert found["row_count"] == 1
        assert writes(service, loaded).count("delete_rows") == 2  # the other one is the service's own, late

    def test_delete_rows_without_a_filter_is_refused(
        self, service: Service, loaded: str, task: TaskRun, pace: dict[str, Any]
    ) -> None:
        with pytest.raises(errors.ValidationFailed, match="at least one filter") as raised:
            task.execute(TdsDeleteRowsOperator(table_id=loaded, filters=[], **pace))
        assert isinstance(raised.value, AirflowFailException)
        assert writes(service, loaded) == ["upload"]

    def test_truncate_returns_when_it_has_taken_effect(self, loaded: str, task: TaskRun, pace: dict[str, Any]) -> None:
        assert task.execute(TdsTruncateOperator(table_id=loaded, **pace))["row_count"] == 0

    def test_truncate_of_an_empty_table_sends_nothing(
        self, service: Service, table: str, task: TaskRun, pace: dict[str, Any]
    ) -> None:
        task.execute(TdsTruncateOperator(table_id=table, **pace))

        assert writes(service, table) == []

    def test_truncate_of_an_empty_table_is_sent_where_that_is_forced(
        self, service: Service, table: str, task: TaskRun, pace: dict[str, Any]
    ) -> None:
        task.execute(TdsTruncateOperator(table_id=table, force=True, **pace))

        assert writes(service, table) == ["truncate"]

    def test_a_second_upload_ends_the_task_at_once(self, loaded: str, task: TaskRun, pace: dict[str, Any]) -> None:
        with pytest.raises(errors.Conflict, match="initial load") as raised:
            task.execute(TdsUploadOperator(table_id=loaded, data=ROWS, **pace))

        assert isinstance(raised.value, AirflowFailException)

    def test_a_failed_job_follows_the_retries(self, loaded: str, task: TaskRun, pace: dict[str, Any]) -> None:
        with pytest.raises(errors.JobFailed, match="row 1, column 'id'") as raised:
            task.execute(TdsAppendOperator(table_id=loaded, data="id,name\nx,y\n", **pace))

        assert not isinstance(raised.value, AirflowFailException)

    def test_a_missing_table_is_not_found(self, service: Service, task: TaskRun, pace: dict[str, Any]) -> None:
        with pytest.raises(errors.TableNotFound, match="nowhere"):
            task.execute(TdsAppendOperator(table_id="nowhere", data=ROWS, **pace))

    def test_a_wait_ends_at_its_deadline(
        self, service: Service, loaded: str, task: TaskRun, pace: dict[str, Any]
    ) -> None:
        service.hold()
        try:
            with pytest.raises(errors.WaitTimedOut, match=r"QUEUED after \d s; it goes on"):
                task.execute(TdsAppendOperator(table_id=loaded, data=ROWS, timeout=0.4, **pace))
        finally:
            service.release()

    def test_execution_timeout_bounds_the_wait(
        self, service: Service, loaded: str, task: TaskRun, pace: dict[str, Any]
    ) -> None:
        service.hold()
        try:
            begun = time.monotonic()
            with pytest.raises(errors.WaitTimedOut):
                task.execute(
                    TdsAppendOperator(table_id=loaded, data=ROWS, execution_timeout=timedelta(seconds=2.5), **pace)
                )
        finally:
            service.release()

        assert time.monotonic() - begun < 2.5


@needs_store
class TestOnce:
    """Tries of one task: the record decides, at the level of the operator."""

    def test_a_retry_after_success_writes_nothing(
        self, service: Service, loaded: str, task: TaskRun, pace: dict[str, Any]
    ) -> None:
        append = TdsAppendOperator(table_id=loaded, data=ROWS, **pace)
        task.execute(append)

        assert task.execute(append)["row_count"] == 4
        assert writes(service, loaded) == ["upload", "append"]

    def test_a_clear_after_success_writes_again(self, loaded: str, task: TaskRun, pace: dict[str, Any]) -> None:
        append = TdsAppendOperator(table_id=loaded, data=ROWS, **pace)
        task.execute(append)
        clear(task)

        assert task.execute(append)["row_count"] == 6

    def test_a_clear_after_success_resumes_where_it_is_said(
        self, service: Service, loaded: str, task: TaskRun, pace: dict[str, Any]
    ) -> None:
        append = TdsAppendOperator(table_id=loaded, data=ROWS, on_clear="resume", **pace)
        first = task.execute(append)
        clear(task)

        assert task.execute(append) == first
        assert writes(service, loaded) == ["upload", "append"]

    def test_a_clear_of_an_unfinished_write_writes_again_after_it_where_it_is_said(
        self, service: Service, loaded: str, task: TaskRun, pace: dict[str, Any]
    ) -> None:
        service.hold()
        with pytest.raises(errors.WaitTimedOut):
            task.execute(TdsAppendOperator(table_id=loaded, data=ROWS, on_clear="new", timeout=0.3, **pace))
        service.release()
        clear(task)

        assert task.execute(TdsAppendOperator(table_id=loaded, data=ROWS, on_clear="new", **pace))["row_count"] == 6

    def test_a_retry_of_an_overwrite_does_not_replace_later_rows(
        self, service: Service, loaded: str, task: TaskRun, pace: dict[str, Any]
    ) -> None:
        overwrite = TdsOverwriteOperator(table_id=loaded, data=ROWS, **pace)
        task.execute(overwrite)
        TaskRun().execute(TdsAppendOperator(table_id=loaded, data=ROWS, **pace))

        assert task.execute(overwrite)["row_count"] == 4

    @pytest.mark.parametrize(("on_unknown", "rows"), [("resubmit", 6), ("assume_done", 4)])
    def test_a_doubt_about_a_finished_write_is_settled_as_it_was_said_beforehand(
        self, loaded: str, task: TaskRun, pace: dict[str, Any], on_unknown: Any, rows: int
    ) -> None:
        append = TdsAppendOperator(table_id=loaded, data=ROWS, **pace)
        task.execute(append)
        task.clear_number += 1
        with pytest.raises(errors.AmbiguousWriteError, match="perhaps this one"):
            task.execute(append)

        settled = TdsAppendOperator(table_id=loaded, data=ROWS, on_unknown=on_unknown, **pace)

        assert task.execute(settled)["row_count"] == rows
        assert task.execute(append)["row_count"] == rows

    def test_a_try_after_a_timeout_adopts_the_job(
        self, service: Service, loaded: str, task: TaskRun, pace: dict[str, Any]
    ) -> None:
        service.hold()
        with pytest.raises(errors.WaitTimedOut):
            task.execute(TdsAppendOperator(table_id=loaded, data=ROWS, timeout=0.3, **pace))
        service.release()

        assert task.execute(TdsAppendOperator(table_id=loaded, data=ROWS, **pace))["row_count"] == 4
        assert writes(service, loaded) == ["upload", "append"]

    def test_a_try_after_a_failed_job_loads_the_mended_data(
        self, loaded: str, task: TaskRun, pace: dict[str, Any]
    ) -> None:
        with pytest.raises(errors.JobFailed):
            task.execute(TdsAppendOperator(table_id=loaded, data="id,name\nx,y\n", **pace))

        assert task.execute(TdsAppendOperator(table_id=loaded, data=ROWS, **pace))["row_count"] == 4

    def test_execute_may_run_twice_in_one_try(self, service: Service, loaded: str, task: TaskRun) -> None:
        append = TdsAppendOperator(task_id="it", table_id=loaded, data=ROWS, deferrable=True, poll_interval=0.05)
        task.leave(append, service)

        assert task.execute(append)["row_count"] == 4

    def test_a_stale_try_sends_no_data(
        self, service: Service, loaded: str, task: TaskRun, pace: dict[str, Any]
    ) -> None:
        task.stale = True
        before = len([r for r in service.requests if r.method == "PUT"])

        with pytest.raises(RuntimeError, match="superseded"):
            task.execute(TdsAppendOperator(table_id=loaded, data=ROWS, **pace))

        assert len([r for r in service.requests if r.method == "PUT"]) == before

    def test_without_a_store_the_record_travels_with_the_deferral(
        self, service: Service, loaded: str, task: TaskRun, pace: dict[str, Any]
    ) -> None:
        task.execute(TdsAppendOperator(table_id=loaded, data=ROWS, durable=False, **pace))

        assert task.values == {}
        assert writes(service, loaded) == ["upload", "append"]

    def test_a_truncation_is_not_sent_again(
        self, service: Service, loaded: str, task: TaskRun, pace: dict[str, Any]
    ) -> None:
        service.hold()
        with pytest.raises(errors.WaitTimedOut):
            task.execute(TdsTruncateOperator(table_id=loaded, timeout=0.3, **pace))
        service.release()

        assert task.execute(TdsTruncateOperator(table_id=loaded, **pace))["row_count"] == 0
        assert writes(service, loaded) == ["upload", "truncate"]

    def test_another_write_in_place_of_an_unfinished_one_is_refused(
        self, service: Service, loaded: str, task: TaskRun, pace: dict[str, Any]
    ) -> None:
        service.create_table("elsewhere")
        service.hold()
        try:
            with pytest.raises(errors.WaitTimedOut):
                task.execute(TdsAppendOperator(table_id=loaded, data=ROWS, timeout=0.3, **pace))
            with pytest.raises(errors.DifferentWrite, match="another write") as raised:
                task.execute(TdsAppendOperator(table_id="elsewhere", data=ROWS, **pace))
        finally:
            service.release()

        assert isinstance(raised.value, AirflowFailException)


in_memory = pytest.mark.skipif(not HAS_STORE, reason="older Airflow has no object storage in memory")


@pytest.fixture(params=["path", "file", pytest.param("memory", marks=in_memory)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A folder of the user's for records."""
    places = {"path": str(tmp_path), "file": f"file://{tmp_path}", "memory": f"memory://records/{tmp_path.name}"}
    return places[request.param]


class TestStore:
    """A record in a place of the user's, on an Airflow without a task state store."""

    @pytest.fixture
    def old(self, task: TaskRun) -> TaskRun:
        task.has_store = False
        return task

    def test_a_retry_after_success_writes_nothing(
        self, service: Service, loaded: str, old: TaskRun, pace: dict[str, Any], place: str
    ) -> None:
        append = TdsAppendOperator(table_id=loaded, data=ROWS, store=place, **pace)
        old.execute(append)

        assert old.execute(append)["row_count"] == 4
        assert writes(service, loaded) == ["upload", "append"]

    def test_each_task_instance_has_a_record_of_its_own(
        self, loaded: str, old: TaskRun, pace: dict[str, Any], tmp_path: Path
    ) -> None:
        old.execute(TdsAppendOperator(table_id=loaded, data=ROWS, store=str(tmp_path), **pace))

        files = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()]
        assert files == ["dag/run/it/-1/tds.write.v1.json"]

    def test_the_place_may_be_a_template(self) -> None:
        assert "store" in TdsTruncateOperator.template_fields

    @pytest.mark.parametrize("arguments", [{}, {"durable": False}])
    def test_without_any_store_the_weaker_promise_is_told_once(
        self, loaded: str, old: TaskRun, capsys: pytest.CaptureFixture[str], arguments: dict[str, Any]
    ) -> None:
        append = TdsAppendOperator(
            task_id="it", table_id=loaded, data=ROWS, deferrable=True, poll_interval=0.05, **arguments
        )
        old.execute(append)

        assert capsys.readouterr().out.count("rows may double") == 1


class TestInput:
    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            ({}, "exactly one of rows"),
            ({"source": "/x", "data": "y"}, "exactly one of rows"),
            ({"source": "/there/is/none.csv"}, "there is no file /there/is/none.csv"),
            ({"source": "s3://bucket/key?sig=secret"}, "no file system is known for s3://"),
            ({"data": ROWS, "format": "xls"}, "format 'xls' is none of"),
            ({"data": ROWS, "timeout": 0}, "seconds above zero"),
            ({"data": ROWS, "on_clear": "never"}, "on_clear is one of auto, resume, new, not 'never'"),
            ({"data": ROWS, "on_unknown": "guess"}, "on_unknown is one of fail, resubmit, assume_done, not 'guess'"),
        ],
    )
    def test_bad_input_is_refused_before_anything_is_sent(
        self, service: Service, table: str, task: TaskRun, arguments: dict[str, Any], text: str
    ) -> None:
        with pytest.raises(errors.ValidationFailed, match=text.replace("?", r"\?")) as raised:
            task.execute(TdsUploadOperator(task_id="it", table_id=table, **arguments))

        assert isinstance(raised.value, AirflowFailException)
        assert writes(service, table) == []

    def test_upsert_without_keys_is_refused(self, table: str, task: TaskRun) -> None:
        with pytest.raises(errors.ValidationFailed, match="upsert needs key_columns"):
            task.execute(TdsUpsertOperator(task_id="it", table_id=table, data=ROWS, key_columns=[]))

    def test_a_constructor_checks_nothing_that_a_template_may_fill(self) -> None:
        operator = TdsUploadOperator(task_id="it", table_id="{{ x }}", source="{{ y }}", format="{{ z }}")

        assert (operator.table_id, operator.source, operator.format) == ("{{ x }}", "{{ y }}", "{{ z }}")

    def test_a_task_with_a_retry_policy_gets_the_plain_error(self, loaded: str, task: TaskRun) -> None:
        upload = TdsUploadOperator(task_id="it", table_id=loaded, data=ROWS)
        upload.retry_policy = object()  # type: ignore[assignment]  # any policy: only its presence counts

        with pytest.raises(errors.Conflict) as raised:
            task.execute(upload)

        assert not isinstance(raised.value, AirflowFailException)


class TestTriggers:
    @pytest.fixture
    def deferred(self, service: Service, loaded: str, task: TaskRun) -> tuple[str, dict[str, Any]]:
        """What a task leaves with while its job certainly goes on: its trigger's path and arguments."""
        append = TdsAppendOperator(task_id="it", table_id=loaded, data=ROWS, deferrable=True, poll_interval=0.05)
        path, kwargs = task.leave(append, service).trigger.serialize()
        return path, kwargs

    def test_a_deferral_carries_json_scalars_only(self, deferred: tuple[str, dict[str, Any]]) -> None:
        path, kwargs = deferred

        assert path == "airflow_tds.triggers.TdsJobTrigger"
        assert all(isinstance(value, str | int | float) for value in kwargs.values())

    def test_no_secret_travels(self, service: Service, task: TaskRun, deferred: tuple[str, dict[str, Any]]) -> None:
        everything = json.dumps([task.values, task.xcoms, deferred])

        assert service.token not in everything
        assert "signature" not in everything
        assert "http" not in everything

    @pytest.mark.parametrize(
        "event",
        [
            {"status": "success"},
            {"kind": "fine", "subject": "x", "status": "COMPLETED", "waited": 1.0, "carry": "{}"},
            {"kind": "completed", "subject": "x", "status": "COMPLETED", "waited": 1.0},
            {"kind": "completed", "subject": "x", "status": "COMPLETED", "waited": 1.0, "carry": "{}"},
            {"kind": "completed", "subject": "x", "status": "COMPLETED", "waited": 1.0, "carry": "no json"},
        ],
    )
    def test_an_event_that_is_none_is_an_error(self, loaded: str, task: TaskRun, event: dict[str, Any]) -> None:
        append = TdsAppendOperator(task_id="it", table_id=loaded, data=ROWS, deferrable=True)

        with pytest.raises(errors.UnexpectedReply, match="trigger's event"):
            append.execute_complete(task.context(), event=event)

    def test_a_trigger_that_cannot_be_read_fails_alone(self) -> None:
        damaged = TdsJobTrigger("tds_default", subject="j")
        _, kwargs = damaged.serialize()

        assert kwargs == {"tds_conn_id": "tds_default", "carry": "", "subject": "j"}
        with pytest.raises(errors.UnexpectedReply, match="watch is none"):
            asyncio.run(anext(damaged.run()))  # type: ignore[arg-type]  # an async generator's next is a coroutine

    def test_a_forged_success_is_not_believed(self, service: Service, loaded: str, task: TaskRun) -> None:
        service.hold()
        append = TdsAppendOperator(task_id="it", table_id=loaded, data=ROWS, deferrable=True)
        try:
            with pytest.raises(TaskDeferred) as deferred:
                append.execute(task.context())
            carry = deferred.value.trigger.serialize()[1]["carry"]
            forged = {"kind": "completed", "subject": "x", "status": "COMPLETED", "waited": 1.0, "carry": carry}

            with pytest.raises(TaskDeferred):
                append.execute_complete(task.context(), event=forged)
        finally:
            service.release()


class TestRescue:
    """A trigger that crashed has changed nothing, so the try goes on with the same job."""

    def append(self, table: str, **more: Any) -> TdsAppendOperator:
        return TdsAppendOperator(task_id="it", table_id=table, data=ROWS, deferrable=True, poll_interval=0.05, **more)

    @pytest.mark.parametrize("durable", [True, False])
    def test_a_crashed_trigger_does_not_end_the_try(
        self, service: Service, loaded: str, task: TaskRun, durable: bool
    ) -> None:
        task.crashes = 1

        assert task.execute(self.append(loaded, durable=durable))["row_count"] == 4
        assert writes(service, loaded) == ["upload", "append"]

    @pytest.fixture
    def exhausted(self, service: Service, loaded: str, task: TaskRun) -> TaskRun:
        """A task instance whose first try has lost one trigger too many."""
        service.hold()
        task.crashes = RESCUES + 1
        try:
            with pytest.raises(AirflowException, match="Trigger failure"):
                task.execute(self.append(loaded))
        finally:
            service.release()
        return task

    def test_triggers_that_keep_crashing_end_the_try(self, exhausted: TaskRun) -> None:
        assert exhausted.crashes == 0

    @needs_store
    def test_the_next_try_goes_on_with_the_job(self, service: Service, loaded: str, exhausted: TaskRun) -> None:
        assert exhausted.execute(self.append(loaded))["row_count"] == 4
        assert writes(service, loaded) == ["upload", "append"]

    @pytest.mark.parametrize("error", ["Trigger timeout", "Trigger/execution timeout"])
    def test_a_deferral_that_timed_out_is_a_wait_that_timed_out(
        self, service: Service, loaded: str, task: TaskRun, error: str
    ) -> None:
        service.hold()
        append = self.append(loaded)
        try:
            with pytest.raises(TaskDeferred):
                append.execute(task.context())
            with pytest.raises(errors.WaitTimedOut, match=r"QUEUED after .* it goes on"):
                append.resume_execution("__fail__", {"error": error}, task.context())
        finally:
            service.release()

    def test_a_job_that_completed_before_the_deferral_timed_out_is_adopted(
        self, service: Service, loaded: str, task: TaskRun
    ) -> None:
        append = self.append(loaded)
        task._fire(task.leave(append, service).trigger)

        done = append.resume_execution("__fail__", {"error": "Trigger timeout"}, task.context())

        assert done["row_count"] == 4

    def test_without_a_kept_wait_airflow_says_what_failed(self, loaded: str, task: TaskRun) -> None:
        with pytest.raises(AirflowException, match="Trigger failure"):
            self.append(loaded).resume_execution("__fail__", {"error": "Trigger failure"}, task.context())


class TestCrossQuery:
    def request(self, table: str, **more: Any) -> dict[str, Any]:
        return {"table_id": table, "format": "csv", **more}

    def test_the_result_is_kept_and_referred_to(
        self, loaded: str, task: TaskRun, pace: dict[str, Any], tmp_path: Path
    ) -> None:
        target = tmp_path / "result.csv"
        request = self.request(loaded, filters={"field": "id", "operator": "gt", "value": 1})

        result = task.execute(TdsCrossQueryOperator(request=request, destination=target, **pace))

        assert list(csv.DictReader(io.StringIO(target.read_text()))) == [{"id": "2", "name": "b"}]
        assert (result["uri"], result["size"], result["format"]) == (str(target), target.stat().st_size, "csv")

    def test_nothing_but_the_result_is_left(
        self, loaded: str, task: TaskRun, pace: dict[str, Any], tmp_path: Path
    ) -> None:
        task.execute(TdsCrossQueryOperator(request=self.request(loaded), destination=tmp_path / "r.csv", **pace))

        assert [path.name for path in tmp_path.iterdir()] == ["r.csv"]

    def test_a_file_that_is_there_is_not_replaced_unasked(
        self, service: Service, loaded: str, task: TaskRun, pace: dict[str, Any], tmp_path: Path
    ) -> None:
        target = tmp_path / "r.csv"
        target.write_text("mine")

        with pytest.raises(errors.ValidationFailed, match="if_exists"):
            task.execute(TdsCrossQueryOperator(request=self.request(loaded), destination=target, **pace))
        assert target.read_text() == "mine"

    def test_skip_leaves_the_file_that_is_there(
        self, loaded: str, task: TaskRun, pace: dict[str, Any], tmp_path: Path
    ) -> None:
        target = tmp_path / "r.csv"
        target.write_text("mine")

        query = TdsCrossQueryOperator(request=self.request(loaded), destination=target, if_exists="skip", **pace)

        assert task.execute(query) == {"uri": str(target), "size": 4, "format": "csv", "job_id": ""}

    def test_replace_replaces(self, loaded: str, task: TaskRun, pace: dict[str, Any], tmp_path: Path) -> None:
        target = tmp_path / "r.csv"
        target.write_text("mine")

        task.execute(
            TdsCrossQueryOperator(request=self.request(loaded), destination=target, if_exists="replace", **pace)
        )

        assert target.read_text().startswith("id,name")

    @needs_store
    def test_a_retry_goes_on_with_the_query(self, service: Service, loaded: str, task: TaskRun, tmp_path: Path) -> None:
        query = TdsCrossQueryOperator(
            task_id="it",
            request=self.request(loaded),
            destination=tmp_path / "r.csv",
            deferrable=True,
            poll_interval=0.05,
        )
        task.leave(query, service)
        before = len([r for r in service.requests if r.operation == "start_query"])

        task.execute(query)

        assert len([r for r in service.requests if r.operation == "start_query"]) == before

    @needs_store
    def test_a_retry_after_success_returns_the_same_reference(
        self, loaded: str, task: TaskRun, pace: dict[str, Any], tmp_path: Path
    ) -> None:
        query = TdsCrossQueryOperator(request=self.request(loaded), destination=tmp_path / "r.csv", **pace)

        assert task.execute(query) == task.execute(query)

    @needs_store
    def test_a_retry_that_does_not_find_the_file_fetches_it_again(
        self, loaded: str, task: TaskRun, pace: dict[str, Any], tmp_path: Path
    ) -> None:
        query = TdsCrossQueryOperator(request=self.request(loaded), destination=tmp_path / "r.csv", **pace)
        first = task.execute(query)
        (tmp_path / "r.csv").unlink()

        assert task.execute(query) == first
        assert (tmp_path / "r.csv").exists()

    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            ({"destination": "s3://bucket/key"}, "no file system is known for s3://"),
            ({"destination": "/there/is/none/r.csv"}, "not in a local directory that exists"),
            ({"if_exists": "append"}, "if_exists is fail, replace or skip, not 'append'"),
            ({"request": "{}"}, "request is a mapping as in §2.5, not a str"),
        ],
    )
    def test_bad_input_is_refused_before_anything_is_sent(
        self, service: Service, task: TaskRun, tmp_path: Path, arguments: dict[str, Any], text: str
    ) -> None:
        given: dict[str, Any] = {"request": {"table_id": "t"}, "destination": tmp_path / "r.csv"} | arguments
        before = len(service.requests)

        with pytest.raises(errors.ValidationFailed, match=text):
            task.execute(TdsCrossQueryOperator(task_id="it", **given))
        assert len(service.requests) == before

    def test_a_failed_query_is_a_failed_job(
        self, service: Service, loaded: str, task: TaskRun, pace: dict[str, Any], tmp_path: Path
    ) -> None:
        request = self.request(loaded, select=["nothing_of_the_kind"])

        with pytest.raises(errors.TableServiceError, match="nothing_of_the_kind"):
            task.execute(TdsCrossQueryOperator(request=request, destination=tmp_path / "r.csv", **pace))
        assert list(tmp_path.iterdir()) == []

    def test_a_wrong_request_names_field_and_rule(self, loaded: str, task: TaskRun, tmp_path: Path) -> None:
        request = self.request(loaded, filters={"type": "and", "predicates": []})

        with pytest.raises(errors.ValidationFailed, match=r"filters\.group\.predicates"):
            task.execute(TdsCrossQueryOperator(task_id="it", request=request, destination=tmp_path / "r.csv"))


class TestErrorsAreEqualInBothModes:
    """The same class and the same text, whichever way it waited."""

    def run(self, table: str, *, deferrable: bool, **arguments: Any) -> BaseException:
        pace: dict[str, Any] = {"task_id": "it", "deferrable": deferrable, "poll_interval": 0.05}
        with pytest.raises(errors.TableServiceError) as raised:
            TaskRun().execute(TdsAppendOperator(table_id=table, **pace, **arguments))
        return raised.value

    def test_a_failed_job(self, loaded: str) -> None:
        texts = []
        for mode in (False, True):
            error = self.run(loaded, deferrable=mode, data="id,name\nx,y\n")
            texts.append((type(error), str(error).replace(getattr(error, "job_id", ""), "JOB")))

        assert texts[0] == texts[1]

    def test_a_service_that_is_gone(self, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
        with Service(tables=["t"]) as other:
            connect(other, monkeypatch)

        blocking = self.run("t", deferrable=False, data=ROWS)
        deferred = self.run("t", deferrable=True, data=ROWS)

        assert (type(blocking), str(blocking)) == (type(deferred), str(deferred))


class TestKill:
    def test_on_kill_before_execute_is_harmless(self) -> None:
        TdsAppendOperator(task_id="it", table_id="t", data=ROWS).on_kill()

    def test_on_kill_names_the_job_that_goes_on(
        self, service: Service, loaded: str, task: TaskRun, capsys: pytest.CaptureFixture[str]
    ) -> None:
        append = TdsAppendOperator(task_id="it", table_id=loaded, data=ROWS, poll_interval=0.05)
        job_id = task.execute(append)["job_id"]
        requests = len(service.requests)

        append.on_kill()

        assert f"job {job_id} goes on" in capsys.readouterr().out
        assert len(service.requests) == requests

    def test_on_kill_denies_no_truncation_that_goes_on(
        self, loaded: str, task: TaskRun, capsys: pytest.CaptureFixture[str]
    ) -> None:
        truncate = TdsTruncateOperator(task_id="it", table_id=loaded, poll_interval=0.05)
        task.execute(truncate)

        truncate.on_kill()

        assert "killed: nothing more is sent; what the service has accepted goes on" in capsys.readouterr().out

    def test_after_on_kill_nothing_more_is_sent(self, service: Service, loaded: str, task: TaskRun) -> None:
        def chunks() -> Any:
            yield b"id,name\n"
            append.on_kill()
            yield b"3,c\n"

        append = TdsAppendOperator(task_id="it", table_id=loaded, data=chunks, unknown_length="chunked")
        with pytest.raises(errors.Stopped):
            task.execute(append)

        assert writes(service, loaded) == ["upload", "append"]
        assert service.requests[-1].method != "PUT" or service.requests[-1].status != 200
