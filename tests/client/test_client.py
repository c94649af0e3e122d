"""Every operation over a scripted runtime with a clock of its own, stepped by both faces."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scripted import Run, Step, answer

from airflow_tds.client import errors
from airflow_tds.client.access import Timeouts
from airflow_tds.client.calls import POLL_INTERVAL, backoff, may_repeat
from airflow_tds.client.downloads import Download
from airflow_tds.client.messages import Reply, Request, SecretUrl
from airflow_tds.client.models import CrossQueryRequest, DataJobResponse, DatasetInfoResponse
from airflow_tds.client.payloads import CHUNK, Body, body_of
from airflow_tds.client.waiting import Verdict, Watch
from airflow_tds.client.wire import Initiation, Wire

DOWN = errors.TransportFailed("down")
UNSENT = errors.TransportFailed("refused", outcome="not_sent")

URL = "https://store.example/1"
INITIATED = answer({"job_id": "j1", "upload_url": URL})
STORED = Reply(200)
MAINTENANCE = Reply(200, {"content-type": "text/html"}, b"<html>We are back soon")
QUEUED = answer({"status": "QUEUED"})
DONE = answer({"status": "COMPLETED", "rows": 2})
FAILED = answer({"status": "FAILED", "error": "row 7"})
STARTED = answer({"job_id": "q1"}, 202)
READY = Reply(307, {"location": URL})
RESULT = Reply(200, content=b"a,b\n")


@pytest.fixture(autouse=True)
def longest_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let jitter always choose the longest pause, so that pauses can be told."""
    monkeypatch.setattr(random, "uniform", lambda _, longest: longest)


# ---- operations


def test_info_reads_the_statistics(scripted: Any, run: Run) -> None:
    runtime, client = scripted(answer({"row_count": 3}))

    assert run(client.info("t")) == DatasetInfoResponse(row_count=3)
    assert runtime.lines == ["GET /tables/t/data/info"]


def test_get_job_reads_the_record(scripted: Any, run: Run) -> None:
    _, client = scripted(QUEUED)

    assert run(client.get_job("j")) == DataJobResponse(status="QUEUED")


def test_truncate_takes_an_empty_answer(scripted: Any, run: Run) -> None:
    runtime, client = scripted(Reply(202))

    assert run(client.truncate("t")) is None
    assert runtime.lines == ["POST /tables/t/data/truncate"]


@pytest.mark.parametrize(
    ("operation", "keys", "line"),
    [
        ("upload", {}, "POST /tables/t/data/upload"),
        ("append", {}, "PATCH /tables/t/data"),
        ("overwrite", {}, "POST /tables/t/data/overwrite"),
        ("update", {"update_mode": "append"}, "PATCH /tables/t/data"),
        ("update", {"update_mode": "overwrite"}, "POST /tables/t/data/overwrite"),
        ("update", {"update_mode": "upsert", "key_columns": "a"}, "POST /tables/t/data/upsert"),
        ("upsert", {"key_columns": "a"}, "POST /tables/t/data/upsert"),
    ],
)
def test_a_submitted_write_is_initiated_then_put(
    scripted: Any, run: Run, operation: str, keys: dict[str, str], line: str
) -> None:
    runtime, client = scripted(INITIATED, STORED)

    assert run(getattr(client, f"submit_{operation}")("t", b"a\n1\n", **keys)) == "j1"
    assert runtime.lines == [line, "PUT https://store.example/…?<redacted>"]
    assert runtime.payloads[1] == b"a\n1\n"


@pytest.mark.parametrize(
    ("operation", "keys"),
    [
        ("upload", {}),
        ("append", {}),
        ("overwrite", {}),
        ("update", {"update_mode": "overwrite"}),
        ("upsert", {"key_columns": ["a"]}),
    ],
)
def test_a_blocking_write_waits_and_returns_the_job_as_it_was_read(
    scripted: Any, run: Run, operation: str, keys: dict[str, Any]
) -> None:
    runtime, client = scripted(INITIATED, STORED, QUEUED, DONE)

    job = run(getattr(client, operation)("t", b"a\n1\n", **keys))

    assert (job.status, job.rows) == ("COMPLETED", 2)
    assert runtime.lines[2:] == ["GET /data/jobs/j1"] * 2


def test_what_cannot_be_sent_is_refused_before_a_job_exists(scripted: Any, run: Run) -> None:
    runtime, client = scripted()

    with pytest.raises(errors.ValidationFailed):
        run(client.submit_append("t", 7))
    assert runtime.requests == []


def test_a_cross_query_travels_as_it_was_asked(scripted: Any, run: Run) -> None:
    runtime, client = scripted(STARTED)

    assert run(client.submit_cross_query({"table_id": "t", "format": "csv"})) == "q1"
    assert runtime.lines == ["POST /data/queries"]
    assert runtime.requests[0].json == {"table_id": "t", "format": "csv"}


def test_a_cross_query_that_breaks_a_rule_is_refused_by_field(scripted: Any, run: Run) -> None:
    runtime, client = scripted()

    with pytest.raises(errors.ValidationFailed, match=r"cross query: joins\.0\.how"):
        run(client.submit_cross_query({"table_id": "t", "joins": [{"table_id": "u", "how": "outer"}]}))
    assert runtime.requests == []


def test_a_cross_query_returns_the_bytes_of_its_result(scripted: Any, run: Run) -> None:
    runtime, client = scripted(STARTED, Reply(202), READY, RESULT)

    assert run(client.cross_query(CrossQueryRequest(table_id="t"))) == b"a,b\n"
    assert runtime.lines[1:3] == ["GET /data/query/q1"] * 2


def test_poll_download_to_writes_its_destination(scripted: Any, run: Run, tmp_path: Path) -> None:
    _, client = scripted(READY, RESULT)

    written = run(client.poll_download_to("q1", str(tmp_path / "out.csv")))

    assert written == tmp_path / "out.csv"
    assert written.read_bytes() == b"a,b\n"


# ---- repeating


@pytest.mark.parametrize("failure", [DOWN, UNSENT, Reply(500), Reply(503), Reply(429), Reply(408), MAINTENANCE])
def test_a_read_is_repeated(scripted: Any, run: Run, failure: Step) -> None:
    runtime, client = scripted(failure, failure, QUEUED)

    run(client.get_job("j"))

    assert runtime.pauses == [2.0, 4.0]


def test_a_read_is_given_up_after_three_tries(scripted: Any, run: Run) -> None:
    runtime, client = scripted(DOWN, DOWN, DOWN)

    with pytest.raises(errors.TransportFailed):
        run(client.get_job("j"))
    assert len(runtime.requests) == 3


@pytest.mark.parametrize("failure", [UNSENT, Reply(429), Reply(503, {"retry-after": "3"})])
def test_a_request_that_changes_data_is_repeated_when_it_did_nothing(scripted: Any, run: Run, failure: Step) -> None:
    runtime, client = scripted(failure, Reply(202))

    run(client.truncate("t"))

    assert len(runtime.requests) == 2


@pytest.mark.parametrize("failure", [DOWN, Reply(500), Reply(503), Reply(504), Reply(408)])
@pytest.mark.parametrize("call", ["truncate", "initiate"])
def test_a_request_that_changes_data_is_not_repeated_when_it_may_have_done_so(
    scripted: Any, run: Run, failure: Step, call: str
) -> None:
    runtime, client = scripted(failure)

    with pytest.raises(errors.TableServiceError) as raised:
        run(client.truncate("t") if call == "truncate" else client.initiate("append", "t"))
    assert raised.value.outcome == "unknown"
    assert len(runtime.requests) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 405, 409, 422])
def test_a_no_is_final(scripted: Any, run: Run, status: int) -> None:
    runtime, client = scripted(Reply(status))

    with pytest.raises(errors.Refused):
        run(client.initiate("upload", "t"))
    assert len(runtime.requests) == 1


def test_a_conflict_is_a_conflict(scripted: Any, run: Run) -> None:
    _, client = scripted(Reply(409))

    with pytest.raises(errors.Conflict):
        run(client.submit_upload("t", b"a\n"))


def test_the_pause_that_the_service_asks_for_is_kept(scripted: Any, run: Run) -> None:
    runtime, client = scripted(Reply(429, {"retry-after": "17"}), QUEUED)

    run(client.get_job("j"))

    assert runtime.pauses == [17.0]


def test_a_pause_beyond_patience_ends_the_call_at_once(scripted: Any, run: Run) -> None:
    runtime, client = scripted(Reply(503, {"retry-after": "301"}))

    with pytest.raises(errors.ServerError) as raised:
        run(client.info("t"))
    assert raised.value.retry_after == 301.0
    assert runtime.pauses == []


@pytest.mark.parametrize(("tries", "longest"), [(1, 2.0), (2, 4.0), (4, 16.0), (5, 20.0), (60, 20.0)])
def test_backoff_doubles_up_to_a_cap(tries: int, longest: float) -> None:
    assert backoff(tries, None) == longest


@pytest.mark.parametrize(
    ("repeat", "error", "expected"),
    [
        ("always", DOWN, True),
        ("always", errors.UnexpectedReply("x"), False),
        ("always", errors.Stopped("x"), False),
        ("if_unsent", DOWN, False),
        ("if_unsent", UNSENT, True),
        ("never", UNSENT, False),
    ],
)
def test_a_route_says_whether_its_request_may_be_repeated(
    repeat: Any, error: errors.TableServiceError, expected: bool
) -> None:
    assert may_repeat(Request("x", "t", "GET", "/", repeat), error) is expected


def test_a_request_whose_body_is_gone_or_whose_sink_is_dirty_is_not_repeated(tmp_path: Path) -> None:
    once = Request("put", "j", "PUT", SecretUrl(URL), "always", body=body_of([b"x"]))
    with (tmp_path / "x").open("wb") as sink:
        poured = Request("download", "j", "GET", SecretUrl(URL), "always", sink=Download(sink))

    assert not may_repeat(once, UNSENT)
    assert not may_repeat(poured, UNSENT)


# ---- sending data


@pytest.mark.parametrize("failure", [DOWN, UNSENT, Reply(500), Reply(503)])
def test_data_is_put_again_whole(scripted: Any, run: Run, failure: Step) -> None:
    runtime, client = scripted(failure, STORED)

    run(client.send_data(Initiation("j1", SecretUrl(URL)), b"abc"))

    assert runtime.payloads == [b"abc", b"abc"]


def test_data_is_put_five_times_at_most(scripted: Any, run: Run) -> None:
    runtime, client = scripted(*[DOWN] * 5)

    with pytest.raises(errors.TransportFailed):
        run(client.send_data(Initiation("j1", SecretUrl(URL)), b"abc"))
    assert len(runtime.requests) == 5


def chunks() -> Iterator[bytes]:
    for number in range(9):
        yield bytes([number]) * CHUNK


WHOLE = b"".join(chunks())


@pytest.mark.parametrize("status", [411, 501])
@pytest.mark.parametrize("data", [chunks, "generator"])
def test_chunks_that_the_store_refuses_are_sent_again_whole_with_their_length(
    scripted: Any, run: Run, status: int, data: Any
) -> None:
    runtime, client = scripted(Reply(status), STORED)

    run(client.send_data(Initiation("j1", SecretUrl(URL)), chunks() if data == "generator" else data))

    assert [request.body and request.body.length for request in runtime.requests] == [None, len(WHOLE)]
    assert runtime.payloads == [WHOLE, WHOLE]


def test_chunks_are_sent_as_they_come_and_again_after_a_cut(scripted: Any, run: Run) -> None:
    runtime, client = scripted(DOWN, STORED)

    run(client.send_data(Initiation("j1", SecretUrl(URL)), chunks()))

    assert [request.body and request.body.length for request in runtime.requests] == [None, None]
    assert runtime.payloads == [WHOLE, WHOLE]


def test_spooled_data_is_sent_with_its_length(scripted: Any, run: Run) -> None:
    runtime, client = scripted(STORED)

    run(client.send_data(Initiation("j1", SecretUrl(URL)), chunks(), unknown_length="spool"))

    assert runtime.requests[0].body is not None
    assert (runtime.requests[0].body.length, runtime.payloads) == (len(WHOLE), [WHOLE])


def test_a_store_that_refuses_even_a_length_is_an_error(scripted: Any, run: Run) -> None:
    runtime, client = scripted(Reply(411))

    with pytest.raises(errors.LengthRequired):
        run(client.send_data(Initiation("j1", SecretUrl(URL)), b"abc"))
    assert len(runtime.requests) == 1


@pytest.mark.parametrize("name", ["If-None-Match", "if-none-match"])
def test_an_object_that_must_not_be_replaced_and_is_there_was_put_by_an_earlier_try(
    scripted: Any, run: Run, name: str
) -> None:
    runtime, client = scripted(DOWN, Reply(412))

    run(client.send_data(Initiation("j1", SecretUrl(URL), {name: "*"}), b"abc"))

    assert len(runtime.requests) == 2


@pytest.mark.parametrize("headers", [{}, {"If-None-Match": '"v1"'}, {"If-Match": "*"}])
def test_another_condition_that_does_not_hold_is_a_refusal(scripted: Any, run: Run, headers: dict[str, str]) -> None:
    _, client = scripted(Reply(412))

    with pytest.raises(errors.StorageRefused):
        run(client.send_data(Initiation("j1", SecretUrl(URL), headers), b"abc"))


def test_a_body_made_elsewhere_is_sent_as_it_is(scripted: Any, run: Run) -> None:
    runtime, client = scripted(STORED, timeouts=Timeouts(transfer=7.0))
    body = Body(body_of(b"abc").open, 3, replayable=False)

    run(client.send_data(Initiation("j1", SecretUrl(URL)), body))

    assert (runtime.requests[0].body, runtime.requests[0].limit) == (body, 7.0)


# ---- waiting


def test_a_wait_polls_slower_and_slower(scripted: Any, run: Run) -> None:
    runtime, client = scripted(*[QUEUED] * 12, DONE)

    run(client.wait("j1", timeout=100.0, poll_interval=3.0))

    assert runtime.pauses[:3] == [0.5, 0.5, 0.5]
    assert runtime.pauses == sorted(runtime.pauses)
    assert runtime.pauses[-1] == 3.0


def test_a_wait_ends_at_its_deadline_and_the_job_goes_on(scripted: Any, run: Run) -> None:
    runtime, client = scripted(*[QUEUED] * 50)

    with pytest.raises(errors.WaitTimedOut, match="job j1 still QUEUED after 10 s; it goes on") as raised:
        run(client.wait("j1", timeout=10.0))
    assert raised.value.job_id == "j1"
    assert runtime.clock == 1010.0


def test_a_failed_job_is_raised_with_its_reason(scripted: Any, run: Run) -> None:
    _, client = scripted(FAILED)

    with pytest.raises(errors.JobFailed, match="job j1 failed: row 7"):
        run(client.wait("j1"))


def test_a_wait_for_a_job_that_does_not_exist_is_not_found_after_a_minute(scripted: Any, run: Run) -> None:
    runtime, client = scripted(*[Reply(404)] * 100)

    with pytest.raises(errors.JobNotFound):
        run(client.wait("j1"))
    assert 1060.0 <= runtime.clock <= 1060.0 + POLL_INTERVAL


def test_a_job_whose_record_appears_late_is_waited_for(scripted: Any, run: Run) -> None:
    _, client = scripted(Reply(404), Reply(404), QUEUED, DONE)

    assert run(client.wait("j1")).status == "COMPLETED"


def test_a_job_that_was_known_and_is_not_any_more_is_not_found(scripted: Any, run: Run) -> None:
    runtime, client = scripted(*[QUEUED] * 30, *[Reply(404)] * 30)

    with pytest.raises(errors.JobNotFound):
        run(client.wait("j1"))
    assert runtime.script[-1].status == 404


def test_a_job_that_is_not_found_until_the_deadline_is_not_said_to_go_on(scripted: Any, run: Run) -> None:
    runtime, client = scripted(*[Reply(404)] * 100)

    with pytest.raises(errors.JobNotFound):
        run(client.wait("j1", timeout=10.0))
    assert runtime.clock == 1010.0


def test_a_wait_rides_out_an_outage(scripted: Any, run: Run) -> None:
    _, client = scripted(*[DOWN] * 20, Reply(502), MAINTENANCE, DONE)

    assert run(client.wait("j1")).status == "COMPLETED"


def test_a_wait_gives_up_after_an_outage_of_sixty_reads(scripted: Any, run: Run) -> None:
    runtime, client = scripted(*[DOWN] * 60)

    with pytest.raises(errors.TransportFailed):
        run(client.wait("j1", timeout=1e6))
    assert len(runtime.requests) == 60


@pytest.mark.parametrize("failure", [DOWN, Reply(500), Reply(429, {"retry-after": "1000"}), MAINTENANCE])
def test_a_service_that_is_out_at_the_deadline_is_a_wait_that_timed_out_then(
    scripted: Any, run: Run, failure: Step
) -> None:
    runtime, client = scripted(QUEUED, *[failure] * 50)

    with pytest.raises(errors.WaitTimedOut, match="still QUEUED after 30 s"):
        run(client.wait("j1", timeout=30.0))
    assert runtime.clock == 1030.0


def test_a_wait_that_never_got_an_answer_says_so(scripted: Any, run: Run) -> None:
    _, client = scripted(*[DOWN] * 50)

    with pytest.raises(errors.WaitTimedOut, match="still not read after 5 s"):
        run(client.wait("j1", timeout=5.0))


def test_each_read_of_a_wait_is_limited_by_the_deadline(scripted: Any, run: Run) -> None:
    runtime, client = scripted(*[QUEUED] * 50)

    with pytest.raises(errors.WaitTimedOut):
        run(client.wait("j1", timeout=10.0, poll_interval=9.0))
    assert runtime.requests[0].limit == 10.0
    assert runtime.requests[-1].limit == 1.0


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan")])
@pytest.mark.parametrize("name", ["timeout", "poll_interval"])
def test_a_time_that_is_none_is_refused_before_anything_is_sent(
    scripted: Any, run: Run, name: str, seconds: float
) -> None:
    runtime, client = scripted()

    with pytest.raises(errors.ValidationFailed, match="above zero"):
        run(client.append("t", b"a\n", **{name: seconds}))
    assert runtime.requests == []


def test_how_a_watch_ended_is_a_value(scripted: Any, run: Run) -> None:
    _, client = scripted(FAILED)

    outcome = run(client.watch(Watch("write", "j1", 1000.0, 1010.0)))

    assert (outcome.kind, outcome.error) == ("failed", "JobFailed")


def test_a_look_is_one_reading(scripted: Any, run: Run) -> None:
    _, client = scripted(QUEUED)

    assert run(client.look(Watch("write", "j1", 1000.0, 1010.0))).verdict is Verdict.RUNNING


def test_a_look_that_gets_no_answer_raises(scripted: Any, run: Run) -> None:
    _, client = scripted(*[DOWN] * 10)

    with pytest.raises(errors.TransportFailed):
        run(client.look(Watch("write", "j1", 1000.0, 1010.0)))


def test_a_truncation_is_waited_for_until_no_row_is_left(scripted: Any, run: Run) -> None:
    runtime, client = scripted(answer({"row_count": 7}), answer({"row_count": 0}))

    assert run(client.wait_until_truncated("t")).row_count == 0
    assert runtime.lines == ["GET /tables/t/data/info"] * 2


def test_a_truncation_that_takes_too_long_times_out(scripted: Any, run: Run) -> None:
    _, client = scripted(*[answer({"row_count": 7})] * 50)

    with pytest.raises(errors.WaitTimedOut, match="still 7 rows"):
        run(client.wait_until_truncated("t", timeout=5.0))


# ---- downloading


def test_a_redirect_without_a_target_is_a_failed_job(scripted: Any, run: Run, tmp_path: Path) -> None:
    _, client = scripted(Reply(307))

    with pytest.raises(errors.JobFailed, match="names no result"):
        run(client.poll_download_to("q1", tmp_path / "out"))


@pytest.mark.parametrize("failure", [FAILED, Reply(404), Reply(307)])
def test_a_query_that_has_no_result_leaves_the_destination_as_it_was(
    scripted: Any, run: Run, failure: Step, tmp_path: Path
) -> None:
    _, client = scripted(*[failure] * 100)
    out = tmp_path / "out"
    out.write_bytes(b"yesterday's")

    with pytest.raises(errors.TableServiceError):
        run(client.poll_download_to("q1", out))
    assert out.read_bytes() == b"yesterday's"


@pytest.mark.parametrize("failure", [Reply(403), Reply(404), Reply(500), DOWN])
def test_a_link_that_no_longer_works_is_asked_for_again(scripted: Any, run: Run, failure: Step, tmp_path: Path) -> None:
    runtime, client = scripted(READY, failure, Reply(307, {"location": "https://store.example/2"}), RESULT)

    run(client.poll_download_to("q1", tmp_path / "out"))

    assert (tmp_path / "out").read_bytes() == b"a,b\n"
    assert runtime.requests[-1].target.reveal() == "https://store.example/2"


@pytest.mark.parametrize("failure", [Reply(301), Reply(307), Reply(405), Reply(411), Reply(412)])
def test_what_another_link_does_not_mend_ends_the_download_at_once(
    scripted: Any, run: Run, failure: Step, tmp_path: Path
) -> None:
    runtime, client = scripted(READY, failure)

    with pytest.raises(errors.StorageRefused):
        run(client.poll_download_to("q1", tmp_path / "out"))
    assert len(runtime.requests) == 2


def test_a_download_is_given_up_after_five_tries_and_leaves_what_came(scripted: Any, run: Run, tmp_path: Path) -> None:
    runtime, client = scripted(*[READY, DOWN] * 5)

    with pytest.raises(errors.TransportFailed):
        run(client.poll_download_to("q1", tmp_path / "out"))
    assert len(runtime.requests) == 10
    assert (tmp_path / "out").read_bytes() == b"half"


def test_a_store_that_asks_for_an_hour_ends_the_download(scripted: Any, run: Run, tmp_path: Path) -> None:
    runtime, client = scripted(READY, Reply(503, {"retry-after": "3600"}))

    with pytest.raises(errors.ServerError):
        run(client.poll_download_to("q1", tmp_path / "out"))
    assert runtime.pauses == []


def test_a_query_that_takes_too_long_times_out(scripted: Any, run: Run, tmp_path: Path) -> None:
    _, client = scripted(*[Reply(202)] * 50)

    with pytest.raises(errors.WaitTimedOut, match="job q1 still PENDING after 5 s"):
        run(client.poll_download_to("q1", tmp_path / "out", timeout=5.0))


def test_a_map_of_ones_own_is_used(scripted: Any, run: Run) -> None:
    runtime, client = scripted(QUEUED, wire=Wire.from_setting({"get_job": "GET /jobs/{job_id}/status"}))

    run(client.get_job("j"))

    assert runtime.lines == ["GET /jobs/j/status"]


# ---- deleting, where it takes effect later


def snapshot(number: str | None) -> Reply:
    return answer({"row_count": 1, "snapshot_id": number})


def test_a_deletion_is_waited_for_by_the_snapshot_where_that_is_asked_for(scripted: Any, run: Run) -> None:
    runtime, client = scripted(snapshot("s1"), Reply(204), snapshot("s1"), snapshot("s1"), snapshot("s2"))

    run(client.delete_rows("t", "a:eq:1", wait_for_snapshot=True))

    assert [line.rpartition("/")[2] for line in runtime.lines] == ["info", "delete", "info", "info", "info"]


def test_a_deletion_that_makes_no_snapshot_times_out(scripted: Any, run: Run) -> None:
    _, client = scripted(snapshot("s1"), Reply(204), *[snapshot("s1")] * 20)

    with pytest.raises(errors.WaitTimedOut, match="table t"):
        run(client.delete_rows("t", "a:eq:1", wait_for_snapshot=True, timeout=10.0))


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"filters": "a:eq:1"}, errors.UnexpectedReply),
        ({"filters": []}, errors.ValidationFailed),
        ({"filters": "a:eq:1", "timeout": 0}, errors.ValidationFailed),
    ],
)
def test_a_deletion_that_cannot_be_waited_for_is_not_asked_for(
    scripted: Any, run: Run, arguments: Any, kind: type[Exception]
) -> None:
    runtime, client = scripted(snapshot(None))

    with pytest.raises(kind):
        run(client.delete_rows("t", **arguments, wait_for_snapshot=True))
    assert not [line for line in runtime.lines if line.startswith("POST")]


# ---- the budget of repeated calls


def test_a_client_repeats_calls_within_a_budget(scripted: Any, run: Run) -> None:
    runtime, client = scripted(*[DOWN] * 400)

    for _ in range(100):
        with pytest.raises(errors.TransportFailed):
            run(client.info("t"))
    assert len(runtime.requests) == 100 + 500 // 5


def test_calls_that_go_well_at_once_earn_repeats(scripted: Any, run: Run) -> None:
    runtime, client = scripted(*[DOWN] * 150, *[answer({})] * 5, DOWN, answer({}), DOWN)
    for _ in range(50):
        with pytest.raises(errors.TransportFailed):
            run(client.info("t"))
    for _ in range(6):
        run(client.info("t"))

    with pytest.raises(errors.TransportFailed):
        run(client.info("t"))
    assert runtime.script == []


def test_waiting_costs_no_budget(scripted: Any, run: Run) -> None:
    _, client = scripted(*[QUEUED, *[DOWN] * 50] * 4, DONE, DOWN, answer({}))

    run(client.wait("j1", timeout=1e6))
    run(client.info("t"))
