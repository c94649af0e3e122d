"""A service in this process, a clock that tests turn, and a store that outlives tries and refuses stale ones."""

from __future__ import annotations

import json
import logging
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, cast
from uuid import uuid4

import pytest
from other_service import KEY, KEY_HEADER, OtherService, Sheet, other_service

from airflow_tds.client.access import Timeouts, Tls
from airflow_tds.client.client import TableClient
from airflow_tds.client.credentials import ApiKey
from airflow_tds.client.messages import Reply, Request
from airflow_tds.client.payloads import body_of
from airflow_tds.client.waiting import Watch
from airflow_tds.client.wire import Wire, WriteOperation
from airflow_tds.durability import (
    Attempt,
    Choices,
    DeleteOnce,
    Done,
    Generation,
    Policy,
    QueryOnce,
    Record,
    TruncateOnce,
    Wait,
    Write,
    WriteOnce,
)
from airflow_tds.local import Service

LIFETIME, TRANSFER, MARGIN = 60.0, 30.0, 5.0
OTHER_WIRE = json.loads((Path(__file__).parents[1] / "support" / "other_wire.json").read_text())
CONTEXT = ssl.create_default_context()
Point = Callable[[str], None]


def nothing_happens(where: str) -> None:
    """Be the boundary at which nothing goes wrong."""


class SharedTls(Tls):
    """One context for all clients: building one per client would take most of the time."""

    def context(self, of: str) -> ssl.SSLContext:
        return CONTEXT


class Clock:
    """The time; a test turns it on instead of sleeping."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead

    def turn_to(self, moment: float) -> None:
        self.ahead += max(0.0, moment - self()) + 0.001


class Disk:
    """What outlives the tries: the record as JSON, and which try may still store."""

    def __init__(self) -> None:
        self.text: str | None = None
        self.owner: object = None
        self.phases: list[str] = []

    @property
    def record(self) -> Record:
        assert self.text is not None
        return Record.from_json(json.loads(self.text))


class Fenced(Exception):  # a state, told in one word
    """The store refused a try that has been superseded."""


class TryStore:
    """One try's view of the disk, as Airflow gives it: stale, it reads None and cannot store."""

    name = "the test's disk"

    def __init__(self, disk: Disk, at: Point) -> None:
        self._disk = disk
        self._at = at
        disk.owner = self

    def load(self) -> Record | None:
        if self._disk.owner is not self or self._disk.text is None:
            return None
        return self._disk.record

    def save(self, record: Record) -> None:
        self._at(f"before {record.phase} is stored")
        if self._disk.owner is not self:
            raise Fenced
        self._disk.text = json.dumps(record.to_json())
        self._disk.phases.append(record.phase)
        self._at(f"after {record.phase} is stored")


class Once(Protocol):
    def advance(self, watch: Watch) -> Wait | Done: ...


@dataclass
class World:
    """A service, a clock and the disk; each try gets a client and a store of its own."""

    service: Service
    clock: Clock
    table_id: str
    disk: Disk = field(default_factory=Disk)
    clients: list[TableClient] = field(default_factory=list)
    generation: Generation = field(default_factory=lambda: Generation(1, 0))
    no_data: tuple[str, ...] = ("AWAITING",)
    policy: Policy = field(default_factory=lambda: Policy(lease_margin=MARGIN))

    def __post_init__(self) -> None:
        self.reader = self.client()

    def reach(self) -> TableClient:
        wire = Wire(no_data_statuses=self.no_data)
        timeouts = Timeouts(transfer=TRANSFER)
        return TableClient(self.service.url, token=self.service.token, wire=wire, timeouts=timeouts, tls=SharedTls())

    def client(self, at: Point = nothing_happens) -> TableClient:
        client = self.reach()
        runtime = client._runtime
        send = runtime.send

        async def sends(request: Request) -> Reply:
            at(f"before {request.operation} is sent")
            reply = await send(request)
            at(f"after {request.operation} is sent")
            return reply

        runtime.send = sends  # type: ignore[method-assign]  # the seam where a process dies
        runtime.now = self.clock  # type: ignore[method-assign]  # the seam of the clock
        self.clients.append(client)
        return client

    def attempt(self, at: Point = nothing_happens, choices: Choices = Choices()) -> Attempt:  # noqa: B008  # frozen
        client, store = self.client(at), TryStore(self.disk, at)
        return Attempt(client, store, self.generation, logging.getLogger("once"), choices, self.clock)

    def write(
        self,
        op: WriteOperation = "append",
        data: bytes = b"id,name\n2,b\n3,c\n",
        at: Point = nothing_happens,
        choices: Choices = Choices(),  # noqa: B008  # frozen
        **changes: Any,
    ) -> WriteOnce:
        def pieces() -> Iterator[bytes]:
            yield data[:9]
            at("within the data")
            yield data[9:]

        keys = ("id",) if op == "upsert" else ()
        content = str(hash(data))
        write = Write(op, self.table_id, "csv", keys, "this", content, lambda: body_of(pieces), "chunked")
        return WriteOnce(self.attempt(at, choices), write=replace(write, **changes), policy=self.policy)

    def truncation(
        self,
        at: Point = nothing_happens,
        identity: str = "this",
        choices: Choices = Choices(),  # noqa: B008  # frozen
        *,
        force: bool = False,
    ) -> TruncateOnce:
        return TruncateOnce(self.attempt(at, choices), table_id=self.table_id, identity=identity, force=force)

    def deletion(
        self,
        at: Point = nothing_happens,
        filters: Any = "id:eq:1",
        choices: Choices = Choices(),  # noqa: B008  # frozen
    ) -> DeleteOnce:
        return DeleteOnce(self.attempt(at, choices), table_id=self.table_id, identity="this", filters=filters)

    def query(self, at: Point = nothing_happens, identity: str = "this") -> QueryOnce:
        request = {"table_id": self.table_id, "format": "csv"}
        return QueryOnce(self.attempt(at), request=request, identity=identity)

    def watch(self, seconds: float = 600.0) -> Watch:
        now = self.clock()
        return Watch("write", "", now, now + seconds, 0.02, 0.01)

    def finish(self, once: Once, watch: Watch | None = None) -> Done:
        """Take a try to its end: a job that works is waited for, for anything else the clock is turned."""
        whole = watch or self.watch()
        while isinstance(step := once.advance(whole), Wait):
            self.pass_time(step.watch)
        return step

    def pass_time(self, watch: Watch) -> None:
        status = self.reader.look(watch).status
        if status in ("AWAITING", "FAILED"):
            self.turn_to(watch.deadline)
        else:
            self.reader.watch(watch)

    def turn_to(self, moment: float) -> None:
        self.clock.turn_to(moment)
        self.service._worker._notify()

    def rows(self) -> list[str]:
        request = {"table_id": self.table_id, "format": "csv"}
        if not self.reader.info(self.table_id).row_count:
            return []
        job_id = self.reader.submit_cross_query(request)
        self.reader.watch(replace(self.watch(), kind="query", subject=job_id)).check()
        with TemporaryDirectory() as folder:
            return sorted(self.reader.poll_download_to(job_id, f"{folder}/rows").read_text().split()[1:])

    def settled_rows(self, expected: int) -> list[str]:
        """Give the rows once no job is under way: a write that is queued must not be overlooked."""
        store = self.service._store
        with store.changed:
            settled = store.changed.wait_for(
                lambda: not any(j.status == "queued" for j in store.newest_jobs(10_000)), 30
            )
        assert settled
        rows = self.rows()
        assert len(rows) == expected, rows
        return rows

    def requested(self, operation: str) -> int:
        return sum(request.operation == operation for request in self.service.requests)

    def close(self) -> None:
        for client in self.clients:
            client.close()


@dataclass
class OtherWorld(World):
    """A world whose service appends by `put_commit` and uploads by `direct`; a job works once it is looked at."""

    other: OtherService = field(default_factory=OtherService)

    overrides: dict[str, Any] = field(default_factory=dict)

    def reach(self) -> TableClient:
        wire = Wire.from_setting(OTHER_WIRE | self.overrides)
        return TableClient(self.other.url, credentials=ApiKey(KEY, KEY_HEADER), wire=wire, tls=SharedTls())

    def pass_time(self, watch: Watch) -> None:
        self.reader.watch(watch)

    def rows(self) -> list[str]:
        """Give the rows once every job that was ever started has worked."""
        for ticket in self.other.tickets:
            while ticket.state() == "WORKING":
                pass
        return sorted(",".join(row) for row in self.other.sheets[self.table_id].rows)


class OtherWorlds:
    """Makes a world per case over one service: a table that has rows, or never had any."""

    def __init__(self, service: OtherService) -> None:
        self._service = service
        self._made: list[OtherWorld] = []

    def __call__(self, op: str = "append") -> OtherWorld:
        table_id = f"t{uuid4().hex}"
        never = op == "upload"
        self._service.sheets[table_id] = Sheet() if never else Sheet(["id", "name"], [["1", "a"]], 1)
        world = OtherWorld(cast("Service", None), Clock(), table_id, other=self._service)
        self._made.append(world)
        return world

    def close(self) -> None:
        for world in self._made:
            world.close()


class Worlds:
    """Makes a world per case over one service: a table, a disk and a clock of its own."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._made: list[World] = []

    def __call__(self, rows: bytes = b"id,name\n1,a\n") -> World:
        world = World(self._service, Clock(), f"t{uuid4().hex}")
        self._made.append(world)
        self._service.create_table(world.table_id)
        self._service._store.clock = world.clock
        self._service._log.clear()
        if rows:
            job_id = world.reader.submit_upload(world.table_id, rows)
            world.reader.watch(replace(world.watch(), subject=job_id)).check()
            self._service._log.clear()
        return world

    def close(self) -> None:
        for world in self._made:
            world.close()


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(upload_url_lifetime=LIFETIME) as service:
        yield service


@pytest.fixture
def worlds(service: Service) -> Iterator[Worlds]:
    worlds = Worlds(service)
    yield worlds
    worlds.close()
    service._store.clock = time.time
    service.release()  # a test that ended while it held the jobs would hold those of the next one
    service.release()  # what one test held, the next one waits for


@pytest.fixture
def others() -> Iterator[OtherWorlds]:
    with other_service() as service:
        worlds = OtherWorlds(service)
        yield worlds
        worlds.close()


@pytest.fixture
def world(worlds: Worlds) -> World:
    return worlds()


@pytest.fixture
def fenced() -> type[Exception]:
    return Fenced
