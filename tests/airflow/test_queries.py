"""Queries of one table, and results that others have asked for: rows, files, objects, and nothing if unchanged."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException, TaskDeferred
from harness import TaskRun, needs_store, objects_in_memory

from airflow_tds import etags
from airflow_tds.client import errors
from airflow_tds.hooks import TdsHook
from airflow_tds.local import Service
from airflow_tds.operators import TdsCrossQueryOperator, TdsDownloadOperator, TdsQueryOperator

ROWS = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}, {"id": 3, "name": "ü"}]


@pytest.fixture
def pace(deferrable: bool) -> dict[str, Any]:
    """Mode and pace of an operator under test."""
    return {"task_id": "it", "deferrable": deferrable, "poll_interval": 0.05}


@pytest.fixture
def loaded(table: str) -> str:
    """A table with three rows."""
    TdsHook().upload(table, ROWS, poll_interval=0.05)
    return table


def sent(service: Service, operation: str) -> int:
    return len([request for request in service.requests if request.operation == operation])


class TestRows:
    def query(self, table: str, **given: Any) -> TdsQueryOperator:
        return TdsQueryOperator(task_id="it", table_id=table, **given)

    def test_a_few_rows_are_returned(self, loaded: str, task: TaskRun) -> None:
        assert task.execute(self.query(loaded)) == ROWS

    @pytest.mark.parametrize("filters", ["id:gte:2", ["id:gte:2", "name:ne:x"]])
    def test_filters_choose_rows(self, loaded: str, task: TaskRun, filters: Any) -> None:
        assert task.execute(self.query(loaded, filters=filters)) == ROWS[1:]

    def test_a_limit_cuts(self, loaded: str, task: TaskRun) -> None:
        assert task.execute(self.query(loaded, limit=2, max_rows=2)) == ROWS[:2]

    def test_as_many_as_may_be_are_returned(self, loaded: str, task: TaskRun) -> None:
        assert task.execute(self.query(loaded, max_rows=3)) == ROWS

    def test_more_rows_than_an_xcom_may_hold_are_an_error_that_names_the_way(self, loaded: str, task: TaskRun) -> None:
        with pytest.raises(errors.ValidationFailed, match=r"more than 2 rows .* give a destination") as raised:
            task.execute(self.query(loaded, max_rows=2))
        assert isinstance(raised.value, AirflowFailException)

    def test_no_more_is_read_than_is_needed_to_see_that(self, service: Service, task: TaskRun, table: str) -> None:
        TdsHook().upload(table, [{"id": n} for n in range(50)], poll_interval=0.05)
        before = sent(service, "query_json")

        with pytest.raises(errors.ValidationFailed, match="more than 5 rows"):
            task.execute(self.query(table, max_rows=5))
        assert sent(service, "query_json") == before + 1

    def test_rows_are_written_to_a_file_as_one_array(self, loaded: str, task: TaskRun, tmp_path: Path) -> None:
        target = tmp_path / "r.json"

        kept = task.execute(self.query(loaded, destination=target))

        assert json.loads(target.read_text()) == ROWS
        assert kept == {"uri": str(target), "size": target.stat().st_size, "format": "json", "job_id": ""}

    def test_no_rows_are_an_empty_array(self, loaded: str, task: TaskRun, tmp_path: Path) -> None:
        task.execute(self.query(loaded, destination=tmp_path / "r.json", filters="id:gt:99"))

        assert json.loads((tmp_path / "r.json").read_text()) == []

    def test_pages_are_put_together(
        self, service: Service, loaded: str, task: TaskRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("airflow_tds.operators.queries.LARGEST_PAGE", 2)
        before = sent(service, "query_json")

        task.execute(self.query(loaded, destination=tmp_path / "r.json"))

        assert json.loads((tmp_path / "r.json").read_text()) == ROWS
        assert sent(service, "query_json") == before + 2
        assert TaskRun().execute(self.query(loaded, limit=3)) == ROWS

    def test_skip_leaves_what_is_there(self, service: Service, loaded: str, task: TaskRun, tmp_path: Path) -> None:
        (tmp_path / "r.json").write_text("mine")
        before = sent(service, "query_json")

        kept = task.execute(self.query(loaded, destination=tmp_path / "r.json", if_exists="skip"))

        assert (kept["size"], (tmp_path / "r.json").read_text()) == (4, "mine")
        assert sent(service, "query_json") == before

    @pytest.mark.parametrize(
        ("given", "text"),
        [
            ({"format": "orc"}, "format is json, parquet or csv, not 'orc'"),
            ({"format": "csv"}, "csv needs a destination"),
            ({"format": "parquet", "limit": 5}, "limit is for json, not for parquet"),
            ({"limit": 0}, "limit is a number of rows from 1 on, not 0"),
            ({"max_rows": 0}, "max_rows is a number of rows from 1 on, not 0"),
        ],
    )
    def test_bad_input_is_refused_before_anything_is_sent(
        self, service: Service, loaded: str, task: TaskRun, given: dict[str, Any], text: str
    ) -> None:
        before = len(service.requests)

        with pytest.raises(errors.ValidationFailed, match=text) as raised:
            task.execute(self.query(loaded, **given))
        assert isinstance(raised.value, AirflowFailException)
        assert len(service.requests) == before


class TestFiles:
    def test_a_file_is_kept(self, loaded: str, task: TaskRun, pace: dict[str, Any], tmp_path: Path) -> None:
        target = tmp_path / "r.csv"

        kept = task.execute(
            TdsQueryOperator(table_id=loaded, format="csv", filters=["id:lte:2"], destination=target, **pace)
        )

        assert list(csv.DictReader(target.read_text().splitlines())) == [
            {"id": "1", "name": "a"},
            {"id": "2", "name": "b"},
        ]
        assert (kept["uri"], kept["format"], kept["size"]) == (str(target), "csv", target.stat().st_size)
        assert kept["job_id"]

    def test_an_object_is_kept(self, loaded: str, task: TaskRun, pace: dict[str, Any]) -> None:
        store, uri = objects_in_memory(), f"memory://out/{loaded}.parquet"

        kept = task.execute(TdsQueryOperator(table_id=loaded, format="parquet", destination=uri, **pace))

        assert store.cat(f"/out/{loaded}.parquet")[:4] == b"PAR1"
        assert (kept["uri"], kept["size"]) == (uri, store.size(f"/out/{loaded}.parquet"))

    def test_a_cross_query_keeps_an_object_too(self, loaded: str, task: TaskRun, pace: dict[str, Any]) -> None:
        store, uri = objects_in_memory(), f"memory://out/{loaded}.csv"
        request = {"table_id": loaded, "format": "csv"}

        task.execute(TdsCrossQueryOperator(request=request, destination=uri, destination_conn_id="own", **pace))

        assert store.cat(f"/out/{loaded}.csv").startswith(b"id,name\n")

    def test_a_task_may_end_when_the_query_is_started_and_another_keeps_its_result(
        self, loaded: str, pace: dict[str, Any], tmp_path: Path
    ) -> None:
        asked = TaskRun().execute(TdsQueryOperator(table_id=loaded, format="csv", wait_for_completion=False, **pace))
        crossed = TaskRun().execute(
            TdsCrossQueryOperator(request={"table_id": loaded, "format": "csv"}, wait_for_completion=False, **pace)
        )

        for number, started in enumerate((asked, crossed)):
            target = tmp_path / f"{number}.csv"
            kept = TaskRun().execute(
                TdsDownloadOperator(job_id=started["job_id"], destination=target, format="csv", **pace)
            )
            assert len(target.read_text().splitlines()) == 4
            assert kept == {"uri": str(target), "size": target.stat().st_size, "format": "csv", **started}

    def test_a_missing_destination_is_named(self, service: Service, task: TaskRun, pace: dict[str, Any]) -> None:
        with pytest.raises(errors.ValidationFailed, match="destination is missing"):
            task.execute(TdsCrossQueryOperator(request={"table_id": "t"}, **pace))


class TestDownloads:
    def test_skip_leaves_what_is_there(self, service: Service, task: TaskRun, tmp_path: Path) -> None:
        (tmp_path / "r.csv").write_text("mine")
        download = TdsDownloadOperator(task_id="it", job_id="j", destination=tmp_path / "r.csv", if_exists="skip")

        assert task.execute(download) == {"uri": str(tmp_path / "r.csv"), "size": 4, "format": "parquet", "job_id": ""}

    def test_a_query_that_failed_is_a_failed_job(
        self, loaded: str, task: TaskRun, pace: dict[str, Any], tmp_path: Path, service: Service
    ) -> None:
        job = TdsHook().submit_query(loaded, format="csv")
        service.fault("poll_query", status=307)  # without a target the job has failed, §7

        with pytest.raises(errors.JobFailed, match=f"job {job} failed"):
            task.execute(TdsDownloadOperator(job_id=job, destination=tmp_path / "r.csv", **pace))
        assert list(tmp_path.iterdir()) == []

    def test_a_job_that_is_not_known_is_not_found(
        self, service: Service, task: TaskRun, pace: dict[str, Any], tmp_path: Path
    ) -> None:
        with pytest.raises(errors.JobNotFound):
            task.execute(TdsDownloadOperator(job_id="none", destination=tmp_path / "r.csv", **pace))

    def test_it_is_waited_for(
        self, service: Service, loaded: str, task: TaskRun, pace: dict[str, Any], tmp_path: Path
    ) -> None:
        service.fault("poll_query", status=202, times=3)
        job = TdsHook().submit_query(loaded, format="csv")

        task.execute(TdsDownloadOperator(job_id=job, destination=tmp_path / "r.csv", **pace))

        assert (tmp_path / "r.csv").read_text().startswith("id,name")


class Variables:
    """Airflow's Variables, without its database."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def get(self, key: str, default: Any = None) -> Any:
        return self.values.get(key, default)

    def set(self, key: str, value: str) -> None:
        self.values[key] = value


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> Variables:
    """The Variables of a test."""
    kept = Variables()
    monkeypatch.setattr(etags, "variables", lambda: kept)
    return kept


class TestUnchanged:
    """Runs of one task, one after the other."""

    def query(self, table: str, pace: dict[str, Any], tmp_path: Path, kind: str, **given: Any) -> TdsQueryOperator:
        place: dict[str, Any] = {}
        if kind != "rows":
            place = {"format": kind, "destination": tmp_path / f"r.{kind}", "if_exists": "replace"}
        return TdsQueryOperator(table_id=table, skip_if_unchanged=True, **(place | pace | given))

    @pytest.fixture(params=["rows", "json", "csv"])
    def kind(self, request: pytest.FixtureRequest) -> str:
        """What the query gives."""
        return str(request.param)

    def test_an_unchanged_table_skips_and_a_changed_one_does_not(
        self, loaded: str, pace: dict[str, Any], tmp_path: Path, kind: str, variables: Variables
    ) -> None:
        query = self.query(loaded, pace, tmp_path, kind)
        assert TaskRun().execute(query)
        assert list(variables.values) == ["tds_etag__dag__it__-1"]

        with pytest.raises(AirflowSkipException, match=f"table {loaded} is unchanged"):
            TaskRun().execute(query)
        TdsHook().append(loaded, [{"id": 4, "name": "d"}], poll_interval=0.05)

        assert TaskRun().execute(query)
        with pytest.raises(AirflowSkipException):
            TaskRun().execute(query)

    def test_another_query_is_not_skipped(
        self, loaded: str, pace: dict[str, Any], tmp_path: Path, kind: str, variables: Variables
    ) -> None:
        TaskRun().execute(self.query(loaded, pace, tmp_path, kind))

        assert TaskRun().execute(self.query(loaded, pace, tmp_path, kind, filters="id:gt:1"))

    def test_a_table_without_a_snapshot_is_read_each_time(
        self, table: str, pace: dict[str, Any], variables: Variables
    ) -> None:
        query = TdsQueryOperator(table_id=table, skip_if_unchanged=True, **pace)

        assert [TaskRun().execute(query), TaskRun().execute(query)] == [[], []]
        assert variables.values == {}

    def test_a_run_that_did_not_keep_its_result_leaves_nothing_to_skip_by(
        self, service: Service, loaded: str, pace: dict[str, Any], tmp_path: Path, variables: Variables
    ) -> None:
        query = self.query(loaded, pace, tmp_path, "csv")
        service.fault("poll_query", status=307)  # without a target the job has failed, §7

        with pytest.raises(errors.JobFailed):
            TaskRun().execute(query)
        assert variables.values == {}

    def test_what_was_left_alone_leaves_nothing_to_skip_by(
        self, loaded: str, pace: dict[str, Any], tmp_path: Path, variables: Variables
    ) -> None:
        (tmp_path / "r.csv").write_text("mine")
        TaskRun().execute(self.query(loaded, pace, tmp_path, "csv", if_exists="skip"))

        assert variables.values == {}

    @pytest.mark.parametrize(
        "kept", ["no json", "[]", "{}", '"text"', '{"query": "another", "etag": "x"}'], ids=list("abcde")
    )
    def test_what_a_person_wrote_there_is_read_over(
        self, loaded: str, pace: dict[str, Any], variables: Variables, kept: str
    ) -> None:
        variables.set("tds_etag__dag__it__-1", kept)

        assert TaskRun().execute(TdsQueryOperator(table_id=loaded, skip_if_unchanged=True, **pace)) == ROWS

    @needs_store
    def test_a_retry_keeps_the_etag_of_the_query_that_it_goes_on_with(
        self, service: Service, loaded: str, task: TaskRun, tmp_path: Path, variables: Variables
    ) -> None:
        query = self.query(loaded, {"task_id": "it", "deferrable": True, "poll_interval": 0.05}, tmp_path, "csv")
        service.fault("poll_query", status=202)
        with pytest.raises(TaskDeferred):
            query.execute(task.context())
        before = sent(service, "start_query")
        task.execute(query)

        assert sent(service, "start_query") == before
        with pytest.raises(AirflowSkipException):
            TaskRun().execute(query)

    def test_a_name_too_long_for_a_variable_is_cut_and_stays_its_own(self, variables: Variables) -> None:
        context: Any = TaskRun().context()
        names = set()
        for end in "ab":
            context["ti"].task_id = "x" * 250 + end
            etag = etags.Etag.of(context, "q")
            etag.seen = "e"
            etag.keep()
            names |= set(variables.values)

        assert [len(name) for name in names] == [250, 250]
