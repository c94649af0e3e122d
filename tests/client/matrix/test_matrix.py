"""Every step of the client meets every fault, over real sockets, on both faces, in virtual time; see cells.txt.

Only the client's pauses are virtual: they move a clock of the test's, and the first one ends the fault.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority
from faces import ACTS, Clock
from faults import WAYS, Trust, World
from faulty import RESULT
from reading import CANARY, check_readable

from airflow_tds.client import errors
from airflow_tds.client.messages import SecretUrl
from airflow_tds.client.wire import Initiation

Client = Any  # either face: what is awaited on one is there at once on the other
#: Header fields that are for the service and never for a store.
SERVICE_ONLY = {"authorization", "proxy-authorization", "cookie", "x-request-id", "x-api-key"}
WAIT = {"timeout": 10.0, "poll_interval": 5.0}


@dataclass(frozen=True)
class Step:
    """Something that a client does.

    Attributes:
        line: Method and path of its requests, or their beginning.
        call: Does it.
        good: What comes of it when all goes well.
        stores: Whether it talks to the store.
    """

    line: str
    call: Callable[[Client, World], Any]
    good: Callable[[Any], object]
    stores: bool = False


def put(client: Client, world: World) -> Any:
    initiation = Initiation("j", SecretUrl(f"{world.store.url}/put?sig=s3cretsig"), world.upload_headers)
    return client.send_data(initiation, world.data)


def pour(client: Client, world: World) -> Any:
    return client.poll_download_to("q", world.destination or world.folder / "out", **WAIT)


def result(path: Path) -> object:
    return path.read_bytes() == RESULT


def status(job: Any) -> object:
    return job.status in ("COMPLETED", "PONDERING")


def nothing(returned: object) -> object:
    return returned is None


STEPS: dict[str, Step] = {
    "W1": Step("GET /tables/t/data/info", lambda c, _: c.info("t"), lambda info: info.row_count == 0),
    "W2": Step("PATCH /tables/t/data", lambda c, _: c.initiate("append", "t"), lambda made: made.job_id == "j"),
    "W4": Step("GET /data/jobs/j", lambda c, _: c.get_job("j"), status),
    "W5": Step("PUT /put", put, nothing, stores=True),
    "W6": Step("PUT /put", put, nothing, stores=True),
    "W8": Step("GET /data/jobs/j", lambda c, _: c.wait("j", **WAIT), status),
    "Q1": Step("POST /data/queries", lambda c, _: c.submit_query("t"), lambda job_id: job_id == "q"),
    "Q2": Step("GET /data/query/q", pour, result),
    "Q3": Step("GET /get", pour, result, stores=True),
    "Q4": Step("GET /get", pour, result, stores=True),
    "J1": Step("GET /tables/t/data/query", lambda c, _: c.query("t"), lambda page: page.items == [{"a": 1}]),
    "D1": Step("POST /tables/t/data/delete", lambda c, _: c.delete_rows("t", "a:eq:1"), nothing),
    "T1": Step("POST /tables/t/data/truncate", lambda c, _: c.truncate("t"), nothing),
    "T2": Step(
        "GET /tables/t/data/info", lambda c, _: c.wait_until_truncated("t", **WAIT), lambda info: info.row_count == 0
    ),
}


def act(step: Step, world: World, clock: Clock, face: str) -> Any:
    settings = {"token": f"{CANARY}-token"} if "credentials" not in world.settings else {}
    return ACTS[face](world.service.url, lambda client: step.call(client, world), clock, **settings, **world.settings)


@pytest.fixture(scope="module")
def trust(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return Trust(Authority(tmp_path_factory.mktemp("known")), Authority(tmp_path_factory.mktemp("stranger")))


@pytest.fixture
def world_of(trust: Trust, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., World]]:
    """Make worlds, in which jitter always chooses the longest pause."""
    worlds: list[World] = []

    def make(step: Step, fault: str, *, lasting: bool) -> World:
        world = World(step.line, step.stores, lasting, trust, tmp_path)
        worlds.append(world)
        WAYS[fault](world)
        world.open()
        monkeypatch.setattr(socket, "getaddrinfo", world.look_up)
        return world

    monkeypatch.setattr(random, "uniform", lambda _, longest: longest)
    monkeypatch.setenv("SSL_CERT_FILE", trust.known.bundle)
    yield make
    for world in worlds:
        world.close()


def raises(cell: Any) -> AbstractContextManager[Any]:
    return pytest.raises(getattr(errors, cell.error, OSError))


def check_error(error: Any, cell: Any) -> None:
    """Check that an error is what is stated; what is not ours comes through as it is."""
    assert type(error).__name__ == cell.error
    assert getattr(error, "outcome", "-") == cell.outcome
    if cell.outcome != "-":
        check_readable(error)


def check_world(world: World, clock: Clock, requests: int) -> None:
    world.close()
    assert sum(line.startswith(world.line) for line in world.peer.lines) == requests
    assert not [line for line in world.peer.lines if "elsewhere" in line]
    assert world.pause is None or clock.pauses[0] == world.pause
    for heard in world.store.whole:  # whatever went wrong before
        assert not SERVICE_ONLY & set(heard.headers)
        assert CANARY not in str(heard.headers)


@pytest.mark.parametrize("face", ACTS)
def test_a_fault_that_ends_after_the_first_time(cell: Any, face: str, world_of: Any, tried: Any) -> None:
    step = STEPS[cell.step]
    world = world_of(step, cell.fault, lasting=False)
    clock = Clock(world.heal)

    if cell.action == "X":
        with raises(cell) as raised:
            act(step, world, clock, face)
        check_error(raised.value, cell)
    else:
        assert step.good(act(step, world, clock, face))
    check_world(world, clock, cell.once)
    tried.add((str(cell), face))


@pytest.mark.parametrize("face", ACTS)
def test_a_fault_that_lasts(passing: Any, face: str, world_of: Any) -> None:
    step = STEPS[passing.step]
    world = world_of(step, passing.fault, lasting=True)
    clock = Clock(world.heal)

    with raises(passing) as raised:
        act(step, world, clock, face)
    check_error(raised.value, passing)
    check_world(world, clock, passing.lasting)


def test_every_cell_is_tried_or_said_to_be_impossible(request: pytest.FixtureRequest) -> None:
    plugin = next(p for p in request.config.pluginmanager.get_plugins() if hasattr(p, "IMPOSSIBLE"))
    cells = [(cell.step, cell.fault) for cell in plugin.CELLS]
    columns = {(step, fault.partition(".")[0]) for step, fault in [*cells, *plugin.IMPOSSIBLE]}

    assert columns == {(step, fault) for step in plugin.STEPS for fault in plugin.FAULTS}
    assert len(set(cells)) == len(cells)
    assert {fault for _, fault in cells} == set(WAYS)
    assert not {(step, fault) for step, fault in plugin.IMPOSSIBLE} & {(s, f.partition(".")[0]) for s, f in cells}
