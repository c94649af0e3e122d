"""What a write takes: rows, a file, an object, or data; rows show nothing of what they hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from harness import TaskRun, needs_store, objects_in_memory

from airflow_tds.client import errors
from airflow_tds.hooks import TdsHook
from airflow_tds.inputs import HiddenRows
from airflow_tds.local import Service
from airflow_tds.operators import TdsAppendOperator, TdsUploadOperator, TdsUpsertOperator

ROWS: list[dict[str, Any]] = [{"id": 1, "name": "a"}, {"id": 2, "name": None}]
CSV = "id,name\n1,a\n2,\n"


def rendered(operator: Any, context: dict[str, Any] | None = None) -> Any:
    """Render an operator as Airflow does before it runs."""
    operator._do_render_template_fields(
        operator, operator.template_fields, context or {}, operator.get_template_env(), set()
    )
    return operator


def read(table: str) -> list[dict[str, Any]]:
    return list(TdsHook().iter_rows(table))


class TestRows:
    @pytest.mark.parametrize("data_format", [None, "json", "ndjson", "csv"])
    def test_rows_are_written_in_the_format_that_is_named(
        self, table: str, task: TaskRun, deferrable: bool, data_format: str | None
    ) -> None:
        upload = TdsUploadOperator(
            task_id="it", table_id=table, rows=ROWS, format=data_format, deferrable=deferrable, poll_interval=0.05
        )

        assert task.execute(rendered(upload))["row_count"] == 2
        assert read(table) == ROWS

    def test_rendered_rows_show_how_many_they_are_and_nothing_else(self) -> None:
        rows = [{"secret": "planted-value"}] * 1234
        upload = rendered(TdsUploadOperator(task_id="it", table_id="t", rows=rows))

        assert str(upload.rows) == upload.rows.serialize() == "<1,234 rows, json>"
        assert "planted" not in repr(upload.rows)
        with pytest.raises(TypeError):
            json.dumps(upload.rows)  # Airflow 2.11 keeps the text of what is no JSON

    def test_what_airflow_keeps_of_rendered_rows_has_no_value(self) -> None:
        upload = rendered(TdsUploadOperator(task_id="it", table_id="t", rows=[{"secret": "planted-value"}]))
        try:
            from airflow.sdk.execution_time.task_runner import _serialize_template_field as kept
        except ImportError:
            from airflow.serialization.helpers import serialize_template_field as kept

        assert kept(upload.rows, "rows") == "<1 rows, json>"

    def test_rendered_twice_they_are_hidden_once(self) -> None:
        upload = rendered(rendered(TdsUploadOperator(task_id="it", table_id="t", rows=ROWS)))

        assert upload.rows.rows is not upload.rows
        assert not isinstance(upload.rows.rows, HiddenRows)

    def test_values_of_literal_rows_are_templates(self, table: str, task: TaskRun) -> None:
        upload = TdsUploadOperator(
            task_id="it", table_id=table, rows=[{"day": "{{ ds }}"}], deferrable=False, poll_interval=0.05
        )
        task.execute(rendered(upload, {"ds": "2026-01-31"}))

        assert [row["day"] for row in read(table)] == ["2026-01-31"]

    @needs_store
    def test_a_retry_with_the_same_rows_writes_nothing(self, table: str, task: TaskRun) -> None:
        upload = TdsUploadOperator(task_id="it", table_id=table, rows=ROWS, poll_interval=0.05)
        task.execute(upload)

        assert task.execute(upload)["row_count"] == 2

    @pytest.mark.parametrize(
        ("rows", "text"),
        [
            ("[{}]", "rows is a list of mappings, not a str; a template gives text"),
            ({"id": 1}, "rows is a list of mappings, not a dict"),
            (5, "rows is a list of mappings, not a int"),
            ([[1]], "give rows"),
            ([{"id": float("nan")}], "row 1"),
        ],
    )
    def test_what_are_no_rows_is_refused_before_anything_is_sent(
        self, service: Service, table: str, task: TaskRun, rows: Any, text: str
    ) -> None:
        before = len(service.requests)

        with pytest.raises(errors.ValidationFailed, match=text) as raised:
            task.execute(TdsUploadOperator(task_id="it", table_id=table, rows=rows))
        assert isinstance(raised.value, AirflowFailException)
        assert len(service.requests) == before

    def test_rows_are_not_written_as_parquet(self, table: str, task: TaskRun) -> None:
        with pytest.raises(errors.ValidationFailed, match="parquet"):
            task.execute(TdsUploadOperator(task_id="it", table_id=table, rows=ROWS, format="parquet"))

    def test_a_tasks_own_code_writes_rows(self, table: str, task: TaskRun) -> None:
        written = TdsHook().durable_write(task.context(), "upload", table, rows=ROWS, poll_interval=0.05)

        assert written["row_count"] == 2


class TestSources:
    def test_an_object_is_sent(self, table: str, task: TaskRun, deferrable: bool) -> None:
        objects_in_memory().pipe_file(f"/in/{table}.csv", CSV.encode())
        upload = TdsUploadOperator(
            task_id="it", table_id=table, source=f"memory://in/{table}.csv", deferrable=deferrable, poll_interval=0.05
        )

        assert task.execute(upload)["row_count"] == 2

    def test_an_object_is_sent_with_its_length(self, service: Service, table: str, task: TaskRun) -> None:
        objects_in_memory().pipe_file(f"/in/{table}.csv", CSV.encode())
        task.execute(
            TdsUploadOperator(task_id="it", table_id=table, source=f"memory://in/{table}.csv", poll_interval=0.05)
        )

        put = next(request for request in reversed(service.requests) if request.method == "PUT")
        assert put.headers["content-length"] == str(len(CSV))

    def test_a_file_may_be_a_uri(self, table: str, task: TaskRun, tmp_path: Path) -> None:
        (tmp_path / "rows.csv").write_text(CSV)
        upload = TdsUploadOperator(
            task_id="it", table_id=table, source=f"file://{tmp_path}/rows.csv", poll_interval=0.05
        )

        assert task.execute(upload)["row_count"] == 2

    @needs_store
    def test_an_object_that_changed_under_a_retry_is_adopted_as_it_was(self, table: str, task: TaskRun) -> None:
        store = objects_in_memory()
        store.pipe_file(f"/in/{table}.csv", CSV.encode())
        upload = TdsUploadOperator(task_id="it", table_id=table, source=f"memory://in/{table}.csv", poll_interval=0.05)
        task.execute(upload)
        store.pipe_file(f"/in/{table}.csv", (CSV + "3,c\n").encode())

        assert task.execute(upload)["row_count"] == 2

    def test_an_object_that_is_missing_is_refused(self, service: Service, table: str, task: TaskRun) -> None:
        objects_in_memory()
        before = len(service.requests)

        with pytest.raises(errors.ValidationFailed, match=r"there is no object memory://?/?in/none\.csv"):
            task.execute(TdsUploadOperator(task_id="it", table_id=table, source="memory://in/none.csv"))
        assert len(service.requests) == before

    def test_a_store_that_no_provider_knows_is_named(self, table: str, task: TaskRun) -> None:
        with pytest.raises(errors.ValidationFailed, match=r"source: no file system is known for s3://.*amazon\[s3fs\]"):
            task.execute(TdsUploadOperator(task_id="it", table_id=table, source="s3://bucket/key"))


class TestData:
    @pytest.mark.parametrize("data", [CSV, CSV.encode(), lambda: [CSV.encode()]])
    def test_text_bytes_and_callables_are_sent(self, table: str, task: TaskRun, data: Any) -> None:
        assert (
            task.execute(TdsUploadOperator(task_id="it", table_id=table, data=data, poll_interval=0.05))["row_count"]
            == 2
        )

    def test_a_callable_may_give_rows(self, table: str, task: TaskRun) -> None:
        upload = TdsUploadOperator(
            task_id="it", table_id=table, data=lambda: iter(ROWS), format="ndjson", poll_interval=0.05
        )

        assert task.execute(upload)["row_count"] == 2

    def test_anything_else_is_refused(self, table: str, task: TaskRun) -> None:
        with pytest.raises(
            errors.ValidationFailed, match="data is text, bytes or a callable that gives chunks or rows, not a list"
        ):
            task.execute(TdsUploadOperator(task_id="it", table_id=table, data=[b"x"]))  # type: ignore[arg-type]  # wrong


class TestNotWaiting:
    def test_a_task_may_end_when_the_service_has_the_data(
        self, service: Service, table: str, task: TaskRun, deferrable: bool
    ) -> None:
        service.hold()
        try:
            left = task.execute(
                TdsUploadOperator(
                    task_id="it", table_id=table, rows=ROWS, wait_for_completion=False, deferrable=deferrable
                )
            )
        finally:
            service.release()
        TdsHook().wait(left["job_id"], poll_interval=0.05)

        assert set(left) == {"table_id", "job_id"}
        assert task.deferrals == []
        assert TdsHook().info(table).row_count == 2

    @needs_store
    def test_its_retry_writes_nothing_and_its_clear_writes_again(self, table: str, task: TaskRun) -> None:
        TdsHook().upload(table, CSV, "csv", poll_interval=0.05)
        append = TdsAppendOperator(task_id="it", table_id=table, rows=ROWS, wait_for_completion=False)
        first = task.execute(append)["job_id"]
        again = task.execute(append)["job_id"]
        task.max_tries += 2
        task.clear_number += 1
        second = task.execute(append)["job_id"]
        for job in (first, second):
            TdsHook().wait(job, poll_interval=0.05)

        assert (again, TdsHook().info(table).row_count) == (first, 6)


def test_an_upserts_keys_go_with_rows(table: str, task: TaskRun) -> None:
    TdsHook().upload(table, CSV, "csv", poll_interval=0.05)
    task.execute(
        TdsUpsertOperator(
            task_id="it", table_id=table, rows=[{"id": 2, "name": "b"}], key_columns="id", poll_interval=0.05
        )
    )

    assert sorted((row["id"], row["name"]) for row in read(table)) == [(1, "a"), (2, "b")]
