"""What a worker runs: the real operators over a runtime and a store that ask the world at each boundary.

Each try is a greenlet, so that it can be left at any boundary, in the middle of any call, for ever or for a while.
What Airflow does with it is the world's.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

from airflow_tds import operators
from airflow_tds.client import errors
from airflow_tds.client.client import Operations, TableClient
from airflow_tds.client.messages import Reply, Request
from airflow_tds.settings import Settings
from simulation.faults import WRITES
from simulation.service import LONGEST_UPLOAD

if TYPE_CHECKING:
    from simulation.world import Try

__all__ = ["Away", "Died", "SimulatedHook", "operator_of", "send", "settings_for", "wire_of"]

#: Phases of a request, where the operation alone tells; `info` and `get_job` depend on where the try stands.
PHASE_OF = {
    "presign": "presign",
    "put": "put",
    "delete_rows": "delete",
    "truncate": "truncate",
    "query_json": "info",
}
#: How the task waits, seconds; seldom, as each look costs the simulation time.
PACE = {"timeout": 3600, "poll_interval": 60}
#: What becomes of an answer on its way.
ALTERED: dict[str, dict[str, Any]] = {
    "failed after all": {"status": 500, "content": b""},
    "answer cut": {"content": b'{"job_'},
    "malformed": {"content": b"{}"},
    "odd status": {"status": 200, "content": b'{"status": "PONDERING"}'},
}
#: Phases of the request that starts a job.
STARTS = {"initiate_put": "initiate", "put_commit": "commit", "direct": "direct"}
#: What is answered instead, without the service having done anything.
INSTEAD = {
    "busy": (429, {"retry-after": "7"}, b""),
    "unavailable": (503, {}, b""),
    "unauthorized": (401, {}, b""),
    "forbidden": (403, {}, b""),
    "not found": (404, {}, b""),
    "redirected": (302, {"location": "http://elsewhere.test/"}, b""),
}
NETWORK_ERRORS: dict[str, tuple[type[errors.TransportFailed], Literal["not_sent", "unknown"]]] = {
    "unreachable": (errors.TransportFailed, "not_sent"),
    "untrusted": (errors.TlsFailed, "not_sent"),
    "stalled": (errors.TransportFailed, "unknown"),
    "reset": (errors.TransportFailed, "unknown"),
    "late": (errors.TransportFailed, "unknown"),
    "answer lost": (errors.TransportFailed, "unknown"),
}


class Died(BaseException):
    """The process is gone: nothing in it may catch this."""


class Away(Exception):
    """Airflow's API did not answer, or refused a try that has been superseded."""


def send(host: Any, phase: str, request: Request, begun: float) -> Reply:
    """Carry a request over a network in which a planned fault may happen.

    Args:
        host: The world.
        phase: Where the sender stands.
        request: What is sent.
        begun: Since when.

    Raises:
        TransportFailed: The fault says so.
    """
    fault = host.fault(phase)
    if fault in INSTEAD:
        return Reply(*INSTEAD[fault])
    if fault == "refused":
        return Reply(host.rng.choice((409, 411, 413, 422)), {}, b"")
    if fault == "late":
        left = LONGEST_UPLOAD - (host.now - begun)
        host.later(host.uniform(0.0, left), lambda: host.service.answer(request, begun))
    reply: Reply | None = None
    if fault not in ("unreachable", "untrusted", "stalled", "reset", "late"):
        reply = host.service.answer(request, begun)
    if fault in NETWORK_ERRORS or reply is None:
        kind, outcome = NETWORK_ERRORS[fault]
        raise kind(f"{request.operation}: {fault}", outcome=outcome)
    return replace(reply, **ALTERED.get(fault, {}))


class SimulatedRuntime:
    """The three verbs of a try.

    Args:
        one: The try.
    """

    def __init__(self, one: Try) -> None:
        self._try = one
        self.stopping = False

    async def send(self, request: Request) -> Reply:
        """Send a request through the world."""
        one = self._try
        self._check_stop()
        phase = self._phase(request)
        with one.boundaries(phase):
            begun = one.world.now
            if request.body is not None:
                one.within(phase, request.body.open())
            self._check_stop()
            if request.limit is not None and one.world.now - begun > min(request.limit, LONGEST_UPLOAD):
                raise errors.TransportFailed(f"{request.operation}: it took too long")
            return send(one.world, phase, request, begun)

    def _phase(self, request: Request) -> str:
        stored = self._try.stored
        if request.operation == "info":
            if stored == "done":
                return "result"
            return "truncated" if stored in ("intent", "sent") and self._try.life.op == "truncate" else "info"
        if request.operation == "get_job":
            return "seen" if self._try.last == "initiate" else "poll"
        if request.operation in WRITES:
            return STARTS[self._try.life.strategy]
        return PHASE_OF[request.operation]

    async def pause(self, seconds: float) -> None:
        """Let the world go on meanwhile."""
        self._check_stop()
        self._try.sleep(seconds)
        self._check_stop()

    async def aside(self, work: Callable[[Callable[[], None]], Any]) -> Any:
        """Do what may block on a file."""
        self._check_stop()
        return work(self._check_stop)

    def now(self) -> float:
        """Give this machine's time."""
        return self._try.now()

    def close(self) -> None:
        """Hold nothing."""

    def _check_stop(self) -> None:
        if self.stopping:
            raise errors.Stopped("told to stop")


class SimulatedClient(TableClient):
    """The real operations over a try's runtime."""

    def __init__(self, one: Try) -> None:
        self._runtime = SimulatedRuntime(one)  # type: ignore[assignment]  # the seam of the network
        settings = one.world.settings
        self._operations = Operations(self._runtime, wire_of(settings), timeouts=settings.timeouts())


class Accessor:
    """Airflow's task state store as one try sees it: superseded, it reads None and is refused."""

    def __init__(self, one: Try) -> None:
        self._try = one

    def get(self, key: str, default: Any = None) -> Any:
        """Read a value."""
        one = self._try
        with one.boundaries("load"):
            if one.world.fault("load"):
                raise Away("no answer")
            found = one.world.values.get(key, default) if one.may_store else None
        one.stored = found["phase"] if found else ""
        return found

    def set(self, key: str, value: Any, *, retention: timedelta | None = None) -> None:
        """Store a value, or raise."""
        one = self._try
        phase = f"store {value['phase']}"
        with one.boundaries(phase):
            fault = one.world.fault(phase)
            if not one.may_store:
                raise Away("404: superseded")
            if fault == "store away":
                raise Away("no answer")
            one.world.values[key] = json.loads(json.dumps(value))
            if fault == "store answer lost":
                raise Away("no answer")
        one.stored = value["phase"]


class SimulatedHook:
    """What an operator asks for its connection: the settings are the provider's own, the client is a try's.

    Args:
        one: The try that asks.
    """

    def __init__(self, one: Try) -> None:
        self._try = one

    def settings(self) -> Settings:
        """Give the settings."""
        settings = copy.copy(self._try.world.settings)
        settings.client = lambda: SimulatedClient(self._try)  # type: ignore[method-assign]  # the seam of the network
        return settings


class Log:
    """What a try says."""

    def __init__(self, one: Try) -> None:
        self._try = one

    def info(self, text: str, *values: object) -> None:
        """Keep a line."""
        self._try.world.say(f"try {self._try.ti_id}: {text % values if values else text}")

    warning = error = info


class _Simulated:
    """An operator that speaks to a world's log; everything else in it is the provider's own."""

    one: Try

    @property
    def log(self) -> Log:
        return Log(self.one)

    def chunks(self) -> Iterator[bytes]:
        """Give the payload, and pass the boundary of the source."""
        one = self.one
        with one.boundaries("source"):
            fault = one.world.fault("source")
            if fault:
                raise OSError(fault)
            yield b"id,name\n2,b\n3,c\n"


def operator_of(one: Try) -> Any:
    """Make the operator that a worker finds in the DAG."""
    operator = copy.copy(_operator(one.life.op, one.life.deferred, one.world.durable))
    operator.one = one
    if hasattr(operator, "data"):
        operator.data = operator.chunks
    return operator


@cache
def _operator(op: str, deferred: bool, durable: bool) -> Any:
    kinds: dict[str, tuple[Any, dict[str, Any]]] = {
        "upload": (operators.TdsUploadOperator, {"data": ""}),
        "append": (operators.TdsAppendOperator, {"data": ""}),
        "overwrite": (operators.TdsOverwriteOperator, {"data": ""}),
        "upsert": (operators.TdsUpsertOperator, {"data": "", "key_columns": "id"}),
        "truncate": (operators.TdsTruncateOperator, {}),
        "delete_rows": (operators.TdsDeleteRowsOperator, {"filters": "id:eq:1"}),
    }
    kind, values = kinds[op]
    simulated = type(f"Simulated{kind.__name__}", (_Simulated, kind), {})
    return simulated(task_id="it", table_id="t", deferrable=deferred, durable=durable, **PACE, **values)


@cache
def settings_for(strategy: str, knows_no_data: bool) -> Settings:
    """Give what the connection says: the strategy, and whether a status is known that means that no data came."""
    wire: dict[str, Any] = {"no_data_statuses": ["AWAITING"]} if knows_no_data else {}
    wire |= {op: {"strategy": strategy} for op in WRITES}
    return Settings("http://service.test", None, {"wire": wire, "transfer_timeout": 120, "lease_margin": 60})


@cache
def wire_of(settings: Settings) -> Any:
    return settings.wire()


def context_of(one: Try) -> dict[str, Any]:
    """Give what Airflow gives to a task's code."""
    world = one.world

    def push(*, key: str, value: Any) -> None:
        world.xcoms[key] = json.loads(json.dumps(value))

    ti = SimpleNamespace(
        max_tries=one.max_tries,
        try_number=one.number,
        map_index=-1,
        dag_id="dag",
        run_id="run",
        task_id="it",
        xcom_push=push,
        xcom_pull=lambda *, task_ids, key, map_indexes: world.xcoms.get(key),
    )
    dag_run = SimpleNamespace(clear_number=one.clear_number)
    task = SimpleNamespace(execution_timeout=None)
    return {"ti": ti, "dag_run": dag_run, "task": task, "task_state_store": Accessor(one)}
