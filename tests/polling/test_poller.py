"""The shared poller over real sockets: who asks, how often, who is told, and how it ends."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

import pytest

from airflow_tds import polling
from airflow_tds.client import errors
from airflow_tds.client.http.lanes import Lane
from airflow_tds.client.waiting import GRACE, Reading, Verdict
from airflow_tds.local import Service
from airflow_tds.triggers import TdsJobTrigger

CONN = "tds_default"

# ---- who asks


def test_a_word_that_a_changed_connection_takes_for_the_end_is_the_end(bench: Any) -> None:
    """The same bytes, read before: what they mean is the connection's to say."""

    async def test() -> None:
        async def answer(job_id: str, count: int) -> Any:
            return (401, {}, b"") if count == 3 else bench.status("ready")

        async with bench.scripted(answer) as origin:
            bench.connect(origin.port)
            waiting = bench.start(bench.watch())
            await origin.asked(1)
            bench.connect(origin.port, password="new", extra={"wire": {"completed": "ready"}})
            assert (await waiting).kind == "completed"

    bench.run(test())


def test_two_subscribers_to_one_job_make_one_request_per_interval(bench: Any) -> None:
    async def test() -> None:
        async with bench.origin("QUEUED", "RUNNING", "RUNNING", "COMPLETED") as origin:
            bench.connect(origin.port)
            outcomes = await asyncio.gather(bench.wait(bench.watch()), bench.wait(bench.watch()))
            assert [outcome.kind for outcome in outcomes] == ["completed", "completed"]
            assert len(origin.reads) == 4

    bench.run(test())


def test_a_subscriber_is_told_each_new_status_once(bench: Any) -> None:
    async def test() -> None:
        told: list[str] = []
        async with bench.origin("QUEUED", "QUEUED", "RUNNING", "COMPLETED") as origin:
            bench.connect(origin.port)
            await bench.wait(bench.watch(), lambda reading: told.append(reading.status))
        assert told == ["QUEUED", "RUNNING", "COMPLETED"]

    bench.run(test())


def test_a_failed_job_ends_the_wait_with_its_reason(bench: Any) -> None:
    async def test() -> None:
        async with bench.origin("FAILED") as origin:
            bench.connect(origin.port)
            outcome = await bench.wait(bench.watch())
        assert (outcome.kind, outcome.error, outcome.message) == ("failed", "JobFailed", "job j1 failed: bad row")

    bench.run(test())


def test_many_jobs_share_the_few_connections_of_the_workers(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "WORKERS", 4)

    async def test() -> None:
        async with bench.origin("RUNNING", "COMPLETED") as origin:
            bench.connect(origin.port)
            outcomes = await asyncio.gather(*[bench.wait(bench.watch(f"j{n}")) for n in range(40)])
            assert {outcome.kind for outcome in outcomes} == {"completed"}
            assert len(origin.reads) == 80
            assert origin.connections <= 4

    bench.run(test())


def test_one_job_is_polled_over_one_connection(bench: Any) -> None:
    async def test() -> None:
        async with bench.origin(*["RUNNING"] * 5, "COMPLETED") as origin:
            bench.connect(origin.port)
            assert (await bench.wait(bench.watch())).kind == "completed"
            assert (len(origin.reads), origin.connections) == (6, 1)

    bench.run(test())


def test_a_job_that_has_ended_is_not_asked_for_again_however_short_the_pause(bench: Any) -> None:
    async def test() -> None:
        async with bench.origin("COMPLETED") as origin:
            bench.connect(origin.port)
            restless = replace(bench.watch(), poll_interval=0.0, first_pause=0.0)
            assert (await bench.wait(restless)).kind == "completed"
            assert (await bench.wait(bench.watch("another"))).kind == "completed"
            assert origin.counts["j1"] == 1

    bench.run(test())


def test_hundreds_of_subscribers_to_one_job_are_all_woken_by_one_request(bench: Any) -> None:
    async def test() -> None:
        async with bench.origin("COMPLETED") as origin:
            bench.connect(origin.port)
            outcomes = await asyncio.gather(*[bench.wait(bench.watch()) for _ in range(3 * polling.SLICE)])
            assert {outcome.kind for outcome in outcomes} == {"completed"}
            assert len(origin.reads) == 1

    bench.run(test())


# ---- cancelling


def held(bench: Any, words: tuple[str, ...] = ("COMPLETED",)) -> tuple[Any, asyncio.Event]:
    """Give an origin that answers once it is allowed to."""
    allowed = asyncio.Event()

    async def answer(job_id: str, count: int) -> Any:  # the same for every job
        await allowed.wait()
        return bench.status(words[min(count, len(words)) - 1])

    return bench.scripted(answer), allowed


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_law_1_a_cancelled_subscriber_harms_no_other_and_cancels_no_request(bench: Any) -> None:
    async def test() -> None:
        origin, allowed = held(bench)
        async with origin:
            bench.connect(origin.port)
            first, second = bench.start(bench.watch()), bench.start(bench.watch())
            await origin.asked(1)
            await cancelled(first)
            allowed.set()
            assert (await second).kind == "completed"
            assert (len(origin.reads), origin.connections, len(origin.open)) == (1, 1, 1)

    bench.run(test())


def test_law_2_a_subscriber_that_arrives_while_its_job_is_being_read_queues_nothing(bench: Any) -> None:
    async def test() -> None:
        origin, allowed = held(bench)
        async with origin:
            bench.connect(origin.port)
            first = bench.start(bench.watch())
            await origin.asked(1)
            late = bench.start(bench.watch())
            await asyncio.sleep(0)  # the poller is open, so this subscribes it
            allowed.set()
            assert [(await first).kind, (await late).kind] == ["completed", "completed"]
            assert len(origin.reads) == 1

    bench.run(test())


def test_a_job_that_all_have_left_is_not_read_again(bench: Any) -> None:
    async def test() -> None:
        origin, allowed = held(bench, ("RUNNING",))
        async with origin:
            bench.connect(origin.port)
            only = bench.start(bench.watch())
            await origin.asked(1)
            await cancelled(only)
            allowed.set()
            assert (await bench.wait(bench.watch("j2", seconds=0.1))).kind == "timed_out"
            assert origin.counts["j1"] == 1

    bench.run(test())


def test_law_5_a_job_that_was_left_while_queued_is_dropped_and_the_others_go_on(bench: Any) -> None:
    async def test() -> None:
        async with bench.origin(*["RUNNING"] * 6, "COMPLETED") as origin:
            bench.connect(origin.port)
            left, stays = bench.start(bench.watch("left")), bench.start(bench.watch("stays"))
            await origin.until(lambda: origin.counts["left"] == 2)
            await cancelled(left)
            assert (await stays).kind == "completed"
            assert origin.counts["left"] <= 3

    bench.run(test())


def test_who_comes_back_to_a_job_that_is_still_being_read_is_served(bench: Any) -> None:
    async def test() -> None:
        origin, allowed = held(bench)
        async with origin:
            bench.connect(origin.port)
            first = bench.start(bench.watch())
            await origin.asked(1)
            await cancelled(first)
            again = bench.start(bench.watch())
            await origin.asked(2)
            allowed.set()
            assert (await again).kind == "completed"

    bench.run(test())


def test_two_changes_in_quick_succession_wake_the_subscriber_to_the_latest(bench: Any) -> None:
    async def test() -> None:
        told: list[str] = []
        origin, _ = held(bench)
        async with origin:
            bench.connect(origin.port)
            waiting = bench.start(bench.watch(), lambda reading: told.append(reading.status))
            await origin.asked(1)
            poller = await polling.poller_for(CONN)
            entry = next(iter(poller._entries.values()))
            readings = Reading(Verdict.RUNNING, "RUNNING"), Reading(Verdict.COMPLETED, "COMPLETED")
            await asyncio.gather(*[poller._publish(entry, reading) for reading in readings])
            assert (await waiting).kind == "completed"
            assert told == ["COMPLETED"]

    bench.run(test())


# ---- the deadline


def test_the_deadline_ends_the_wait(bench: Any) -> None:
    async def test() -> None:
        async with bench.origin("RUNNING") as origin:
            bench.connect(origin.port)
            await polling.poller_for(CONN)  # making connections may take its time
            outcome = await bench.wait(bench.watch(seconds=3))
        assert (outcome.kind, outcome.status, outcome.error) == ("timed_out", "RUNNING", "WaitTimedOut")

    bench.run(test())


def test_the_deadline_ends_a_wait_whose_first_answer_never_comes(bench: Any) -> None:
    async def test() -> None:
        origin, _ = held(bench)
        async with origin:
            bench.connect(origin.port)
            outcome = await bench.wait(bench.watch(seconds=0.05))
        assert (outcome.kind, outcome.status) == ("timed_out", "not read")

    bench.run(test())


def test_a_deadline_that_has_passed_ends_the_wait_at_once(bench: Any) -> None:
    async def test() -> None:
        async with bench.origin("RUNNING") as origin:
            bench.connect(origin.port)
            assert (await bench.wait(bench.watch(seconds=-1))).kind == "timed_out"

    bench.run(test())


# ---- what goes wrong


def refusing(bench: Any, code: int, times: int, **headers: str) -> Any:
    """Give an origin that refuses some reads, then says COMPLETED."""

    async def answer(job_id: str, count: int) -> Any:  # the same for every job
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        return (code, names, b"{}") if count <= times else bench.status("COMPLETED")

    return bench.scripted(answer)


def test_a_job_that_is_not_known_yet_is_waited_for(bench: Any) -> None:
    async def test() -> None:
        async with refusing(bench, 404, 3) as origin:
            bench.connect(origin.port)
            assert (await bench.wait(bench.watch())).kind == "completed"

    bench.run(test())


def test_a_page_of_something_in_between_is_no_answer(bench: Any) -> None:
    async def answer(job_id: str, count: int) -> Any:
        return (200, {"Content-Type": "text/html"}, b"<html>Back soon") if count <= 3 else bench.status("COMPLETED")

    async def test() -> None:
        async with bench.scripted(answer) as origin:
            bench.connect(origin.port)
            assert (await bench.wait(bench.watch())).kind == "completed"

    bench.run(test())


def test_a_job_that_is_not_known_after_the_grace_ends_the_wait(bench: Any) -> None:
    async def test() -> None:
        async with refusing(bench, 404, 99) as origin:
            bench.connect(origin.port)
            outcome = await bench.wait(bench.watch(age=GRACE + 1))
        assert (outcome.kind, outcome.error) == ("error", "JobNotFound")

    bench.run(test())


def test_a_job_that_is_not_known_until_the_deadline_is_not_said_to_go_on(bench: Any) -> None:
    async def answer(job_id: str, count: int) -> Any:
        return bench.status("COMPLETED") if job_id == "known" else (404, {}, b"{}")

    async def test() -> None:
        async with bench.scripted(answer) as origin:
            bench.connect(origin.port)
            await bench.wait(bench.watch("known"))  # the first look takes its time: connections are made
            outcome = await bench.wait(bench.watch(seconds=3.0))
        assert (outcome.kind, outcome.error) == ("error", "JobNotFound")

    bench.run(test())


def test_the_grace_is_that_of_the_youngest_wait(bench: Any) -> None:
    async def test() -> None:
        async with refusing(bench, 404, 3) as origin:
            bench.connect(origin.port)
            old, young = bench.watch(age=GRACE + 1), bench.watch()
            outcomes = await asyncio.gather(bench.wait(old), bench.wait(young))
        assert [outcome.kind for outcome in outcomes] == ["completed", "completed"]

    bench.run(test())


def test_a_refusal_ends_all_waits_at_once(bench: Any) -> None:
    async def test() -> None:
        async with refusing(bench, 403, 99) as origin:
            bench.connect(origin.port)
            outcomes = await asyncio.gather(bench.wait(bench.watch()), bench.wait(bench.watch()))
            assert [outcome.error for outcome in outcomes] == ["Forbidden", "Forbidden"]
            assert len(origin.reads) == 1

    bench.run(test())


def test_an_outage_is_ridden_out(bench: Any, service: Service, heard: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "airflow_tds.polling")
    service.hold()
    job = service._store.enqueue("truncate", "t", {})

    async def test() -> None:
        queued = asyncio.Event()
        bench.connect(urlsplit(service.url).port, password=service.token)
        waiting = bench.start(bench.watch(job.job_id), lambda _: queued.set())
        await queued.wait()
        async with heard("polling goes on") as failure, heard("can be read again") as recovery:
            await asyncio.to_thread(service.stop)
            await failure.heard.wait()
            await asyncio.to_thread(service.start)
            await recovery.heard.wait()
        assert (await waiting).kind == "completed"

    bench.run(test())


@pytest.mark.parametrize("code", [500, 0])
def test_an_outage_that_lasts_ends_the_wait(bench: Any, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr(polling, "OUTAGE", 0.3)

    async def test() -> None:
        async with refusing(bench, code, 99) as origin:
            bench.connect(origin.port if code else 1)  # nobody listens on port 1
            outcome = await bench.wait(bench.watch())
            assert (outcome.kind, outcome.error) == ("error", "ServerError" if code else "TransportFailed")
            assert outcome.waited > 0.3

    bench.run(test())


def test_a_side_that_is_not_trusted_ends_the_wait_at_once(bench: Any, service: Service) -> None:
    async def test() -> None:
        bench.connect(int(service.url.rsplit(":", 1)[1]), schema="https")  # it answers, but not in TLS
        outcome = await bench.wait(bench.watch())
        assert (outcome.kind, outcome.error) == ("error", "TlsFailed")

    bench.run(test())


def test_law_9_retry_after_holds_all_workers(bench: Any) -> None:
    async def test() -> None:
        refused = asyncio.Event()

        async def answer(job_id: str, count: int) -> Any:
            if job_id == "busy" and count == 1:
                refused.set()
                return 503, {"Retry-After": "1"}, b"{}"
            await refused.wait()
            return bench.status("COMPLETED" if count > 3 else "RUNNING")

        async with bench.scripted(answer) as origin:
            bench.connect(origin.port)
            waits = [bench.start(bench.watch(job_id)) for job_id in ("other", "busy")]
            assert [(await wait).kind for wait in waits] == ["completed", "completed"]
            asked = [moment for _, moment in origin.reads]
            gaps = [later - sooner for sooner, later in pairwise(asked)]
            assert max(gaps) > 0.99

    bench.run(test())


def test_a_senseless_retry_after_does_not_end_all_waits(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "OUTAGE", 0.2)

    async def test() -> None:
        async with refusing(bench, 503, 1, Retry_After="999999999") as origin:
            bench.connect(origin.port)
            assert (await bench.wait(bench.watch())).kind == "completed"

    bench.run(test())


def test_being_too_busy_without_saying_for_how_long_holds_nobody(bench: Any) -> None:
    async def test() -> None:
        async with refusing(bench, 429, 2) as origin:
            bench.connect(origin.port)
            assert (await bench.wait(bench.watch())).kind == "completed"

    bench.run(test())


def test_law_11_a_bug_ends_the_waits_that_it_concerns_and_no_worker(
    bench: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(polling, "WORKERS", 1)
    read = Lane.read

    async def buggy(lane: Lane, request: Any, kept: Any) -> Any:
        if request.subject == "job bug":
            raise KeyError("bug")
        return await read(lane, request, kept)

    monkeypatch.setattr(Lane, "read", buggy)

    async def test() -> None:
        async with bench.origin("COMPLETED") as origin:
            bench.connect(origin.port)
            broken = await bench.wait(bench.watch("bug"))
            assert (broken.kind, broken.error) == ("error", "UnexpectedReply")
            assert broken.message == "job bug: polling broke: KeyError"
            assert (await bench.wait(bench.watch())).kind == "completed"

    bench.run(test())
    assert "polling job bug broke" in caplog.text


# ---- opening and closing


async def ended(poller: polling.Poller) -> None:
    """Wait until a poller has closed itself."""
    await asyncio.gather(*poller._workers, return_exceptions=True)
    await poller._closing


def test_law_3_a_poller_closes_itself_and_leaves_no_task_and_no_connection(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polling, "LINGER", 0.01)

    async def test() -> None:
        async with bench.origin("COMPLETED") as origin:
            bench.connect(origin.port)
            await bench.wait(bench.watch())
            poller = await polling.poller_for(CONN)
            await ended(poller)
            await origin.until(lambda: not origin.open)
            assert [task for task in asyncio.all_tasks() if "polling.py" in repr(task)] == []
            assert poller.closed
            assert await polling.poller_for(CONN) is not poller

    bench.run(test())


def test_law_4_a_poller_whose_openers_all_left_closes_itself(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "LINGER", 0.01)

    async def test() -> None:
        bench.connect(1)
        opener = bench.start(bench.watch())
        await asyncio.sleep(0)  # it starts to open
        await cancelled(opener)
        await ended(await polling._BY_LOOP[asyncio.get_running_loop()].openings[CONN].poller)

    bench.run(test())


def test_a_subscriber_keeps_a_poller_that_was_about_to_close(bench: Any) -> None:
    async def test() -> None:
        origin, allowed = held(bench)
        async with origin:
            bench.connect(origin.port)
            poller = await polling.poller_for(CONN)
            waiting = bench.start(bench.watch())
            await origin.asked(1)
            assert poller._linger is None
            allowed.set()
            await waiting

    bench.run(test())


def test_a_poller_that_is_closed_in_the_middle_of_a_read_ends(bench: Any) -> None:
    async def test() -> None:
        origin, _ = held(bench)
        async with origin:
            bench.connect(origin.port)
            waiting = bench.start(bench.watch())
            await origin.asked(1)
            poller = await polling.poller_for(CONN)
            await poller.close()
            assert all(worker.done() for worker in poller._workers)
            await cancelled(waiting)

    bench.run(test())


def test_many_callers_at_once_open_one_poller_and_read_the_connection_once(bench: Any, reads: list[str]) -> None:
    async def test() -> None:
        bench.connect(1)
        pollers = await asyncio.gather(*[polling.poller_for(CONN) for _ in range(50)])
        assert len(set(pollers)) == 1
        assert reads == [CONN]

    bench.run(test())


def test_a_failed_opening_goes_to_all_callers_and_is_tried_again_by_the_next(bench: Any) -> None:
    async def test() -> None:
        bench.connect(1, schema="gopher")
        failed = await asyncio.gather(*[polling.poller_for(CONN) for _ in range(3)], return_exceptions=True)
        assert {type(error) for error in failed} == {errors.ValidationFailed}
        bench.connect(1)
        assert isinstance(await polling.poller_for(CONN), polling.Poller)

    bench.run(test())


def test_a_connection_that_cannot_be_read_in_time_is_an_error(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(conn_id: str) -> Any:  # as the original
        await asyncio.Event().wait()

    monkeypatch.setattr(polling, "OPENING", 0.01)
    monkeypatch.setattr(polling, "async_settings", never)

    async def test() -> None:
        with pytest.raises(errors.TransportFailed, match="could not be read within"):
            await polling.poller_for(CONN)

    bench.run(test())


def test_a_connection_that_is_read_again_and_says_the_same_keeps_its_poller(
    bench: Any, monkeypatch: pytest.MonkeyPatch, reads: list[str]
) -> None:
    monkeypatch.setattr(polling, "SETTINGS_AGE", -1.0)

    async def test() -> None:
        origin, allowed = held(bench)
        async with origin:
            bench.connect(origin.port)
            poller = await polling.poller_for(CONN)
            waiting = bench.start(bench.watch())
            await origin.asked(1)
            assert await polling.poller_for(CONN) is poller
            allowed.set()
            await waiting
            assert await polling.poller_for(CONN) is poller
            assert len(reads) == 4

    bench.run(test())


def test_a_poller_that_ends_before_its_opener_comes_to_it_is_opened_again(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lingers = iter([0.0, 0.0])  # it is kept when it is made, and when it is given

    class Linger:
        """No time for the first poller: a loop that is held up looks like this."""

        def __radd__(self, now: float) -> float:
            return now + next(lingers, 30.0)

    monkeypatch.setattr(polling, "LINGER", Linger())

    async def test() -> None:
        async with bench.origin("COMPLETED") as origin:
            bench.connect(origin.port)
            assert (await bench.wait(bench.watch())).kind == "completed"

    bench.run(test())


def test_a_connection_that_was_changed_gets_another_poller(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "SETTINGS_AGE", -1.0)

    async def test() -> None:
        bench.connect(1)
        poller = await polling.poller_for(CONN)
        bench.connect(1, password="another")
        assert await polling.poller_for(CONN) is not poller

    bench.run(test())


def test_law_6_another_loop_gets_another_poller_and_drops_what_the_ended_one_left(bench: Any) -> None:
    pollers = []

    async def test() -> None:
        bench.connect(1)
        pollers.append(await polling.poller_for(CONN))

    bench.run(test())
    bench.run(test())
    assert pollers[0] is not pollers[1]
    assert len(polling._BY_LOOP) == 1


def test_a_loop_that_ends_takes_the_workers_and_their_connections_along(bench: Any) -> None:
    async def test() -> None:
        async with bench.origin("COMPLETED") as origin:
            bench.connect(origin.port)
            await bench.wait(bench.watch())
            pollers.append(await polling.poller_for(CONN))

    pollers: list[polling.Poller] = []
    bench.run(test())
    assert all(worker.done() for worker in pollers[0]._workers)


# ---- what the task's log has of it


def test_a_triggers_log_has_each_new_status_once_and_nothing_per_poll(
    bench: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with bench.origin("QUEUED", "QUEUED", "RUNNING", "RUNNING", "RUNNING", "COMPLETED") as origin:
            bench.connect(origin.port)
            values = bench.watch().to_json()
            trigger = TdsJobTrigger(CONN, **{name: values[name] for name in values if name != "kind"})
            assert [event.payload["kind"] async for event in trigger.run()] == ["completed"]

    with caplog.at_level(logging.INFO):
        bench.run(test())
    said = [record.getMessage() for record in caplog.records if record.name == "airflow_tds.triggers"]
    assert said == ["j1 is QUEUED", "j1 is RUNNING", "j1 is COMPLETED"]
