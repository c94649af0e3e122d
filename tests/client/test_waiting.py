"""Waiting as values: judged, paced, carried over as JSON."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_tds.client import errors
from airflow_tds.client.messages import Reply
from airflow_tds.client.models import DataJobResponse, DatasetInfoResponse
from airflow_tds.client.waiting import Outcome, Reading, Verdict, Watch, judge, judge_truncated
from airflow_tds.client.wire import Wire

WATCH = Watch("write", "j1", started=1000.0, deadline=1100.0, poll_interval=20.0)


@given(st.text())
def test_every_status_but_two_is_running(status: str) -> None:
    expected = {"completed": Verdict.COMPLETED, "failed": Verdict.FAILED}.get(status.lower(), Verdict.RUNNING)

    assert judge(DataJobResponse(status=status)).verdict is expected


@pytest.mark.parametrize(
    ("job", "reading"),
    [
        (DataJobResponse(status="COMPLETED"), Reading(Verdict.COMPLETED, "COMPLETED")),
        (DataJobResponse(status="completed", error="old"), Reading(Verdict.COMPLETED, "completed")),
        (DataJobResponse(status="Failed", error="why"), Reading(Verdict.FAILED, "Failed", "why")),
        (DataJobResponse(status="FAILED"), Reading(Verdict.FAILED, "FAILED", "no reason given")),
        (DataJobResponse(status="RUNNING", error="hm"), Reading(Verdict.RUNNING, "RUNNING")),
    ],
)
def test_a_job_is_judged_without_regard_to_case(job: DataJobResponse, reading: Reading) -> None:
    assert judge(job) == reading


@pytest.mark.parametrize(
    ("rows", "now", "before", "verdict"),
    [
        (0, "s2", "s1", Verdict.COMPLETED),
        (0, "s1", "s1", Verdict.RUNNING),
        (0, None, "s1", Verdict.COMPLETED),
        (0, "s1", "", Verdict.COMPLETED),
        (5, "s2", "s1", Verdict.RUNNING),
    ],
)
def test_a_truncation_is_judged_by_rows_and_snapshot(rows: int, now: str | None, before: str, verdict: Verdict) -> None:
    info = DatasetInfoResponse(row_count=rows, snapshot_id=now)

    assert judge_truncated(info, before).verdict is verdict


def test_statistics_without_a_row_count_are_no_proof_of_a_truncation() -> None:
    with pytest.raises(errors.UnexpectedReply, match="row_count is missing"):
        judge_truncated(DatasetInfoResponse())


@pytest.mark.parametrize(
    ("now", "pause"), [(1000.0, 0.5), (1010.0, 5.0), (1050.0, 20.0), (1095.0, 5.0), (1100.0, 0.0), (1200.0, 0.0)]
)
def test_pauses_grow_up_to_the_interval_and_end_with_the_deadline(now: float, pause: float) -> None:
    assert WATCH.pause(now) == pause


def test_a_watch_survives_json_and_names_that_are_not_known() -> None:
    assert Watch.from_json(json.loads(json.dumps(WATCH.to_json() | {"new": 1}))) == WATCH


def test_a_watch_of_an_older_version_gets_the_defaults() -> None:
    old = {"kind": "query", "subject": "j", "started": 1.0, "deadline": 2.0}

    assert Watch.from_json(old) == Watch("query", "j", 1.0, 2.0)


@pytest.mark.parametrize("values", [{}, {"kind": "write"}, WATCH.to_json() | {"kind": "dance"}, None, [1]])
def test_what_is_no_watch_is_refused(values: Any) -> None:
    with pytest.raises(errors.UnexpectedReply, match="watch"):
        Watch.from_json(values)


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("write", "/data/jobs/x"),
        ("query", "/data/query/x"),
        ("truncation", "/tables/x/data/info"),
        ("table", "/tables/x/data/info"),
    ],
)
def test_a_watch_asks_at_the_route_of_its_kind(kind: Any, path: str) -> None:
    assert Watch(kind, "x", 0.0, 1.0).request(Wire()).target == path


@pytest.mark.parametrize(
    ("kind", "reply", "verdict"),
    [
        ("write", Reply(200, content=b'{"status": "RUNNING"}'), Verdict.RUNNING),
        ("query", Reply(307, {"location": "https://store/x"}), Verdict.COMPLETED),
        ("query", Reply(307), Verdict.FAILED),
        ("truncation", Reply(200, content=b'{"row_count": 0}'), Verdict.COMPLETED),
        ("table", Reply(200, content=b'{"row_count": 0}'), Verdict.RUNNING),
    ],
)
def test_a_watch_reads_the_reply_of_its_kind(kind: Any, reply: Reply, verdict: Verdict) -> None:
    watch = Watch(kind, "x", 0.0, 1.0, conditions='{"min_rows": 1}')

    assert watch.read(Wire(), reply).verdict is verdict


@pytest.mark.parametrize(
    ("reading", "now", "kind"),
    [
        (Reading(Verdict.RUNNING, "QUEUED"), 1050.0, None),
        (Reading(Verdict.RUNNING, "QUEUED"), 1100.0, "timed_out"),
        (Reading(Verdict.COMPLETED, "COMPLETED"), 1200.0, "completed"),
        (Reading(Verdict.FAILED, "FAILED", "why"), 1200.0, "failed"),
    ],
)
def test_a_reading_ends_a_wait_or_not(reading: Reading, now: float, kind: str | None) -> None:
    outcome = WATCH.outcome(reading, now)

    assert (outcome and outcome.kind) == kind


def raised(outcome: Outcome) -> errors.TableServiceError:
    with pytest.raises(errors.TableServiceError) as caught:
        outcome.check()
    return caught.value


def test_a_late_wait_raises_that_it_timed_out_and_that_the_job_goes_on() -> None:
    error = raised(WATCH.outcome(Reading(Verdict.RUNNING, "QUEUED"), 1100.0) or pytest.fail("not over"))

    assert isinstance(error, errors.WaitTimedOut)
    assert (str(error), error.job_id) == ("job j1 still QUEUED after 100 s; it goes on", "j1")


def test_a_late_truncation_names_its_table() -> None:
    watch = Watch("truncation", "t", 0.0, 10.0)

    error = raised(watch.outcome(Reading(Verdict.RUNNING, "5 rows"), 10.0) or pytest.fail("not over"))

    assert str(error) == "truncation of table t: still 5 rows after 10 s; it goes on"


def test_a_table_that_is_not_as_wanted_in_time_names_what_is_missing() -> None:
    watch = Watch("table", "t", 0.0, 10.0)

    reading = Reading(Verdict.RUNNING, "row_count is 0, wanted at least 1")
    error = raised(watch.outcome(reading, 10.0) or pytest.fail("not over"))

    assert str(error) == "table t: still row_count is 0, wanted at least 1 after 10 s"


def test_one_look_serves_those_who_ask_for_the_same() -> None:
    table = Watch("table", "t", 0.0, 10.0, conditions='{"min_rows": 1}')

    assert table.key == Watch("table", "t", 5.0, 99.0, conditions='{"min_rows": 1}').key
    assert table.key != Watch("table", "t", 0.0, 10.0, conditions='{"min_rows": 2}').key


def test_a_failed_job_raises_its_reason() -> None:
    error = raised(WATCH.outcome(Reading(Verdict.FAILED, "FAILED", "row 7"), 1001.0) or pytest.fail("not over"))

    assert isinstance(error, errors.JobFailed)
    assert str(error) == "job j1 failed: row 7"


def test_a_wait_that_could_not_be_read_raises_the_error_that_ended_it() -> None:
    error = raised(WATCH.broken(errors.Forbidden("no", status=403), 1001.0))

    assert (type(error), str(error)) == (errors.Forbidden, "no")


def test_a_good_end_raises_nothing() -> None:
    Outcome("completed", "j1", "COMPLETED", 1.0).check()


def test_an_outcome_survives_json_and_names_that_are_not_known() -> None:
    outcome = Outcome("failed", "j1", "FAILED", 1.5, "JobFailed", "why")

    assert Outcome.from_json(json.loads(json.dumps(outcome.to_json() | {"new": 1}))) == outcome


GOOD = Outcome("completed", "j1", "COMPLETED", 1.0).to_json()


@pytest.mark.parametrize(
    "event", [None, [], "completed", {}, {"kind": "completed"}, GOOD | {"kind": "success"}, GOOD | {"kind": None}]
)
def test_an_event_that_is_no_outcome_is_an_error_and_never_a_success(event: Any) -> None:
    with pytest.raises(errors.UnexpectedReply, match="event"):
        Outcome.from_json(event)
