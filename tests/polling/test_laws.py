"""The poller's laws, each by a test that fails without it; laws 1 to 6, 9 and 11 stand in test_poller.py, too.

tests/proofs/laws.py takes each law out of the poller and sees these tests fail.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from poller_laws import LAWS, Law, without

from airflow_tds import polling
from airflow_tds.client.errors import ServerError, ValidationFailed
from airflow_tds.client.http.lanes import polled_over
from airflow_tds.client.waiting import Reading, Verdict, Watch

CONN = "tds_default"


def failing(bench: Any, until: asyncio.Event) -> Any:
    """Give an origin that is out of order until told otherwise, then says COMPLETED."""

    async def answer(job_id: str, count: int) -> Any:  # the same for every job
        return bench.status("COMPLETED") if until.is_set() else (500, {}, b"{}")

    return bench.scripted(answer)


def letting_in(bench: Any, token: str) -> Any:
    """Give an origin that answers COMPLETED to one token, and 401 to all others."""

    async def answer(job_id: str, count: int) -> Any:  # the same for every job
        said = origin.heads[-1].get("authorization")
        return bench.status("COMPLETED") if said == f"Bearer {token}" else (401, {}, b"{}")

    origin = bench.scripted(answer)
    return origin


def queued(bench: Any, poller: polling.Poller, job_id: str) -> polling.Entry:
    """Give what somebody waits for, without anybody who reads it."""
    subscription = polling.Subscription(bench.watch(job_id), asyncio.get_running_loop().create_future())
    entry = polling.Entry(subscription.watch, subscription.watch.request(poller._wire), subscriptions={subscription})
    return poller._entries.setdefault(entry.key, entry)


def clock_at(now: float) -> Any:
    """Give the one thing of a loop that a judgement needs: what time it is."""
    return SimpleNamespace(time=lambda: now)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Any:
    """Give what the poller has logged."""
    caplog.set_level(logging.INFO, "airflow_tds.polling")
    ours = "airflow_tds.polling"
    return lambda text: [one for one in caplog.records if one.name == ours and text in one.getMessage()]


# ---- law 2: only an idle entry may be queued, once


def test_law_2_a_shorter_interval_takes_effect_at_once(bench: Any) -> None:
    async def test() -> None:
        async with bench.origin("RUNNING", "COMPLETED") as origin:
            bench.connect(origin.port)
            now = time.time()
            patient = Watch("write", "j1", now, now + 60, poll_interval=30, first_pause=30)
            told = asyncio.Event()
            slow = bench.start(patient, lambda _: told.set())
            await told.wait()
            assert (await bench.wait(bench.watch("j1"))).kind == "completed"
            assert (await slow).kind == "completed"
            assert len(origin.reads) == 2

    bench.run(test())


def test_law_2_an_entry_that_was_queued_anew_is_taken_once(bench: Any) -> None:
    async def test() -> None:
        bench.connect(1)
        poller = await polling.poller_for(CONN)
        subscription = polling.Subscription(bench.watch("j1"), asyncio.get_running_loop().create_future())
        entry = poller._subscribe(subscription)
        poller._push(entry, 0.0)
        assert (poller._take(), poller._take()) == (entry, None)

    bench.run(test())


def test_law_2_whoever_comes_while_an_entry_is_read_queues_it_not_again(bench: Any) -> None:
    async def test() -> None:
        bench.connect(1)
        poller = await polling.poller_for(CONN)
        first, second = (
            polling.Subscription(bench.watch("j1"), asyncio.get_running_loop().create_future()) for _ in range(2)
        )
        entry = poller._subscribe(first)
        assert poller._take() is entry
        assert poller._subscribe(second) is entry
        assert (entry.turn, poller._take()) == (None, None)

    bench.run(test())


# ---- law 3: a poller closes itself, a while after its last subscriber


def test_law_3_waits_one_after_the_other_share_a_poller_and_its_connections(bench: Any) -> None:
    async def test() -> None:
        async with bench.origin("COMPLETED") as origin:
            bench.connect(origin.port)
            for number in range(polling.WORKERS + 1):
                assert (await bench.wait(bench.watch(f"j{number}"))).kind == "completed"
            assert origin.connections <= polling.WORKERS

    bench.run(test())


# ---- law 5: a timer that finds nothing due arms the next one


def test_law_5_a_place_that_does_not_count_any_more_does_not_stop_the_timer(bench: Any) -> None:
    async def test() -> None:
        async with bench.origin("COMPLETED") as origin:
            bench.connect(origin.port)
            poller = await polling.poller_for(CONN)
            await asyncio.sleep(0)  # the workers begin, and wait: nothing is due
            now, loop = poller._loop.time(), asyncio.get_running_loop()
            left, stays = (polling.Subscription(bench.watch(name), loop.create_future()) for name in ("left", "stays"))
            for subscription, due in ((left, 0.02), (stays, 0.2)):
                entry = poller._subscribe(subscription)
                poller._push(entry, now + due)  # its first place, which is due now, does not count any more
                if subscription is left:
                    poller._leave(entry, left)
            assert await stays.changed is None
            assert origin.counts == {"stays": 1}

    bench.run(test())


# ---- law 7: one budget of failures for the service


def test_law_7_a_thousand_waits_ride_out_an_outage_with_few_polls_and_one_warning(
    bench: Any, monkeypatch: pytest.MonkeyPatch, lines: Any
) -> None:
    monkeypatch.setattr(polling, "OUTAGE", 0.5)

    async def test() -> None:
        async with failing(bench, asyncio.Event()) as origin:
            bench.connect(origin.port)
            outcomes = await asyncio.gather(*[bench.wait(bench.watch(f"j{n}")) for n in range(1000)])
            assert {outcome.error for outcome in outcomes} == {"ServerError"}
            assert len(origin.reads) < 1000  # budget of the service: not each wait had to fail for itself

    bench.run(test())
    assert len(lines("polling goes on")) == 1


def test_law_7_what_another_job_answers_makes_the_budget_whole(bench: Any) -> None:
    """A job that fails among others is told of it by a budget of its own, and the others' waits go on."""

    async def test() -> None:
        bench.connect(1)
        poller = await polling.poller_for(CONN)
        broken, fine = (queued(bench, poller, name) for name in ("broken", "fine"))
        now = poller._loop.time()
        found = []
        for second in (0, 0.4, 0.8, 1.2):
            poller._loop = clock_at(now + second * polling.OUTAGE)
            found.append(await poller._ride_out(broken, ServerError("out of order")))
            poller._answered(fine)
        assert [type(error) for error in found] == [type(None), type(None), type(None), ServerError]
        assert not any(one.changed.done() for one in fine.subscriptions)

    bench.run(test())


def test_law_7_each_subscriber_has_an_error_of_its_own(bench: Any) -> None:
    async def test() -> None:
        bench.connect(1)
        poller = await polling.poller_for(CONN)
        loop = asyncio.get_running_loop()
        both = [polling.Subscription(bench.watch(), loop.create_future()) for _ in range(2)]
        await poller._wake(both, ServerError("too busy"))
        first, second = (one.changed.result() for one in both)
        assert (type(first), str(first)) == (type(second), str(second)) == (ServerError, "too busy")
        assert first is not second

    bench.run(test())


def test_law_7_a_401_reads_the_connection_again_and_goes_on(bench: Any) -> None:
    async def test() -> None:
        async with letting_in(bench, "new") as origin:
            bench.connect(origin.port, password="old")
            poller = await polling.poller_for(CONN)
            bench.connect(origin.port, password="new")
            outcomes = await asyncio.gather(*[bench.wait(bench.watch(f"j{n}")) for n in range(50)])
            assert {outcome.kind for outcome in outcomes} == {"completed"}
            assert await polling.poller_for(CONN) is poller
            assert len(origin.open) <= polling.WORKERS

    bench.run(test())


def test_law_7_a_401_that_stays_ends_the_waits_after_one_reading_of_the_connection(
    bench: Any, reads: list[str]
) -> None:
    async def test() -> None:
        async with letting_in(bench, "another") as origin:
            bench.connect(origin.port)
            outcomes = await asyncio.gather(*[bench.wait(bench.watch(f"j{n}")) for n in range(50)])
            assert {outcome.error for outcome in outcomes} == {"Unauthorized"}
            assert len(origin.reads) == 50
            assert reads == [CONN, CONN]

    bench.run(test())


def test_law_7_a_401_stands_where_the_connection_cannot_be_read_again(bench: Any, lines: Any) -> None:
    async def test() -> None:
        async with letting_in(bench, "another") as origin:
            bench.connect(origin.port)
            await polling.poller_for(CONN)
            bench.connect(origin.port, schema="gopher")
            assert (await bench.wait(bench.watch())).error == "Unauthorized"

    bench.run(test())
    assert len(lines("its connection cannot be used: ValidationFailed")) == 1


# ---- law 8: fan-out in slices


def test_law_8_the_loop_turns_between_the_slices_of_a_fan_out(bench: Any) -> None:
    async def test() -> None:
        bench.connect(1)
        poller = await polling.poller_for(CONN)
        loop = asyncio.get_running_loop()
        many = [polling.Subscription(bench.watch(), loop.create_future()) for _ in range(5 * polling.SLICE)]
        woken = [0]

        async def look() -> None:
            while woken[-1] < len(many):
                await asyncio.sleep(0)
                woken.append(sum(one.changed.done() for one in many))

        looking = loop.create_task(look())
        await asyncio.sleep(0)
        await poller._wake(many, None)
        await looking
        assert {later - sooner for sooner, later in pairwise(woken)} <= {0, polling.SLICE}
        assert all(one.changed.done() for one in many)

    bench.run(test())


# ---- law 9: the service says when


def test_law_9_while_there_is_no_answer_the_service_is_asked_less_and_less(bench: Any) -> None:
    async def test() -> None:
        order = asyncio.Event()
        async with failing(bench, order) as origin:
            bench.connect(origin.port)
            waiting = bench.start(bench.watch())
            await origin.asked(9)
            order.set()
            assert (await waiting).kind == "completed"
            asked = [moment for _, moment in origin.reads]
            gaps = [later - sooner for sooner, later in pairwise(asked)]
            assert gaps[7] > gaps[0]  # each is half of all before it, so also where the first took long

    bench.run(test())


def test_law_9_the_release_is_spread(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        bench.connect(1)
        poller = await polling.poller_for(CONN)
        gates = set()
        for _ in range(5):
            poller._gate = 0.0
            poller._hold_back(ServerError("too busy", retry_after=100.0), 0.0)
            gates.add(round(poller._gate - poller._loop.time(), 3))
        assert len(gates) > 1
        assert all(100.0 <= gate <= 100.0 * (1 + polling.SPREAD) for gate in gates)

    bench.run(test())


def test_the_pause_grows_with_the_wait_up_to_the_interval() -> None:
    watch = Watch("write", "j1", 0.0, 9999.0, poll_interval=30.0, first_pause=1.0)

    assert [watch.pause(now) for now in (0.0, 10.0, 40.0, 1000.0)] == [1.0, 5.0, 20.0, 30.0]


# ---- law 10: what is logged


def test_law_10_a_quiet_wait_logs_nothing_per_poll(bench: Any, lines: Any) -> None:
    async def test() -> None:
        async with bench.origin(*["RUNNING"] * 20, "COMPLETED") as origin:
            bench.connect(origin.port)
            await bench.wait(bench.watch())

    bench.run(test())
    assert [record.getMessage().split(" (")[1] for record in lines("")] == [f"{bench.transport} transport)"]


def test_law_10_a_job_that_fails_again_and_again_among_others_is_one_warning(bench: Any, lines: Any) -> None:
    async def answer(job_id: str, count: int) -> Any:
        if ended.is_set():
            return bench.status("COMPLETED")
        return (500, {}, b"{}") if job_id == "broken" else bench.status("RUNNING")

    ended = asyncio.Event()

    async def test() -> None:
        async with bench.scripted(answer) as origin:
            bench.connect(origin.port)
            waits = [bench.start(bench.watch(job_id)) for job_id in ("broken", "fine")]
            await origin.until(lambda: min(origin.counts["broken"], origin.counts["fine"]) > 5)
            ended.set()
            assert [(await wait).kind for wait in waits] == ["completed", "completed"]

    bench.run(test())
    assert (len(lines("polling goes on")), len(lines("can be read again"))) == (1, 1)


def test_law_10_a_long_outage_and_a_long_wait_are_mentioned_from_time_to_time(
    bench: Any, monkeypatch: pytest.MonkeyPatch, lines: Any
) -> None:
    monkeypatch.setattr(polling, "LOG_EVERY", 0.1)

    async def test() -> None:
        order = asyncio.Event()
        async with failing(bench, order) as origin:
            bench.connect(origin.port)
            waiting = bench.start(bench.watch())
            said = "polling goes on", "1 waits for 1 jobs and tables"
            await origin.until(lambda: all(len(lines(text)) >= 2 for text in said))
            order.set()
            assert (await waiting).kind == "completed"

    bench.run(test())


# ---- one poller for what connections say, whatever their ids


def test_two_connections_that_say_the_same_share_a_poller(bench: Any) -> None:
    async def test() -> None:
        bench.connect(1)
        bench.connect(1, name="OTHER")
        bench.connect(2, name="THIRD")
        ids = (CONN, "other", "third")
        first, second, third = await asyncio.gather(*[polling.poller_for(conn_id) for conn_id in ids])
        assert first is second
        assert third is not first

    bench.run(test())


def test_where_a_poll_goes_is_written_down_once_and_each_has_an_id_of_its_own(bench: Any) -> None:
    async def test() -> None:
        async with bench.origin("RUNNING", "RUNNING", "COMPLETED") as origin:
            bench.connect(origin.port)
            waiting = bench.start(bench.watch())
            poller = await polling.poller_for(CONN)
            await origin.asked(1)
            entry = next(iter(poller._entries.values()))
            place = entry.kept._place
            await waiting
            assert entry.kept._place is place
            assert len({head["x-request-id"] for head in origin.heads}) == 3

    bench.run(test())


@pytest.mark.parametrize(("length", "kept"), [(4000, True), (5000, False)])
def test_an_answer_is_kept_until_the_next_one_unless_it_is_long(bench: Any, *, length: int, kept: bool) -> None:
    """A thousand waits must not hold a thousand long answers."""

    async def test() -> None:
        async def answer(job_id: str, count: int) -> Any:
            return (*bench.status("RUNNING")[:2], json.dumps({"status": "RUNNING", "more": "x" * length}).encode())

        async with bench.scripted(answer) as origin:
            bench.connect(origin.port)
            waiting = bench.start(bench.watch())
            poller = await polling.poller_for(CONN)
            await origin.asked(2)
            entry = next(iter(poller._entries.values()))
            assert (entry.heard is not None) is kept
            waiting.cancel()

    bench.run(test())


def test_a_failed_job_is_judged_again_when_its_lease_has_ended(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that the test sets: the lease ends once the job has been read three times."""
    began = time.time()
    now = [began]
    monkeypatch.setattr(polling, "time", SimpleNamespace(time=lambda: now[0]))

    async def test() -> None:
        async with bench.origin("FAILED") as origin:
            bench.connect(origin.port)
            leased = Watch("write", "j1", began, began + 600, poll_interval=0.02, first_pause=0.01, lease=began + 300)
            waiting = bench.start(leased)
            await origin.asked(3)
            assert not waiting.done()
            now[0] = began + 301
            outcome = await waiting
            assert (outcome.kind, outcome.waited) == ("failed", 301)

    bench.run(test())


def test_a_reading_that_says_the_same_wakes_nobody(bench: Any) -> None:
    async def test() -> None:
        bench.connect(1)
        poller = await polling.poller_for(CONN)
        subscription = polling.Subscription(bench.watch(), asyncio.get_running_loop().create_future())
        entry = polling.Entry(subscription.watch, subscription.watch.request(poller._wire))
        entry.subscriptions, entry.reading = {subscription}, Reading(Verdict.RUNNING, "RUNNING")
        await poller._publish(entry, Reading(Verdict.RUNNING, "RUNNING"))
        assert not subscription.changed.done()

    bench.run(test())


# ---- the transport


def test_aiohttp_that_is_wished_for_and_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_tds.client.http.lanes.find_spec", lambda name: None)

    assert (polled_over("auto"), polled_over("httpx")) == ("httpx", "httpx")
    with pytest.raises(ValidationFailed, match=r"pip install 'airflow-tds\[aiohttp\]'"):
        polled_over("aiohttp")


def test_aiohttp_is_taken_where_it_is_installed() -> None:
    assert (polled_over("auto"), polled_over("httpx"), polled_over("aiohttp")) == ("aiohttp", "httpx", "aiohttp")


def test_a_transport_that_does_not_exist_is_refused(bench: Any) -> None:
    async def test() -> None:
        bench.connect(1, extra={"poll_transport": "carrier pigeon"})
        with pytest.raises(ValidationFailed, match="poll_transport"):
            await polling.poller_for(CONN)

    bench.run(test())


@pytest.mark.parametrize("raw", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 X\r\nContent-Length: 99\r\n\r\n{"])
def test_an_answer_that_breaks_is_no_answer_and_the_wait_goes_on(bench: Any, raw: bytes) -> None:
    async def answer(job_id: str, count: int) -> Any:  # the same for every job
        return raw if count < 3 else bench.status("COMPLETED")

    async def test() -> None:
        async with bench.scripted(answer) as origin:
            bench.connect(origin.port)
            assert (await bench.wait(bench.watch())).kind == "completed"

    bench.run(test())


# ---- the table of laws, from which tests/proofs/laws.py works


@pytest.mark.parametrize("law", LAWS, ids=lambda law: str(law.number))
def test_a_law_can_be_taken_out_of_the_source_as_it_is(law: Law) -> None:
    source = Path(polling.__file__).read_text()

    for removal in law.removals:
        compile(without(source, removal), "polling.py", "exec")
