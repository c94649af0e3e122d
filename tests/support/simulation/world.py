"""Airflow, people and the clock around the tries; what must never happen; and one story from its seed.

Airflow as it is measured to be (3.3): a new id per try, which the store and every report are checked by; a try that is
lost is given up at its heartbeat's end; a deferred task's event counts once; a resumed task whose DAG cannot be loaded
begins again; a clear raises max_tries, mostly, and the run's clear number.
"""

from __future__ import annotations

import heapq
import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from types import ModuleType
from typing import Any

from airflow.providers.common.compat.sdk import AirflowFailException, TaskDeferred
from airflow.sdk.bases.operator import ExecutorSafeguard
from airflow.sdk.exceptions import TaskDeferralError
from greenlet import getcurrent, greenlet  # type: ignore[import-untyped]  # Airflow brings it, nobody its types

from airflow_tds import hooks, tasks
from airflow_tds.client import calls, errors
from airflow_tds.durability import steps
from airflow_tds.operators import base, deferring
from simulation.faults import CELLS, PHASES, PROCESS, WRITES, Cell, Life, Plan
from simulation.service import Service
from simulation.tries import Away, Died, SimulatedHook, context_of, operator_of, send, settings_for, wire_of

__all__ = ["Broken", "Story", "Try", "World", "story"]

#: Seconds after which Airflow gives up a task that it has not heard of.
HEARTBEAT = 300.0
#: Seconds after which another triggerer takes a trigger over.
TAKEOVER = 30.0
#: Where a request that has no job yet is about to be sent, is sent, or has been: cut off there, nobody knows.
ASKING = ("delete", "truncate", "commit", "direct", "store intent", "store committing", "store sent")
#: More steps than any story takes.
MOST_STEPS = 20_000
START = 1_800_000_000.0
KEY = "tds.write.v1"


class Broken(Exception):
    """A promise does not hold; the text says which."""


class Try:
    """One process of a task: a try, or the rest of one after a deferral.

    Args:
        world: Where it runs.
        entry: What the worker calls.
    """

    def __init__(self, world: World, entry: Callable[[Any, dict[str, Any]], Any]) -> None:
        self.world = world
        self.life = world.life
        self.ti_id = world.ti_id
        self.number, self.max_tries, self.clear_number = world.number, world.max_tries, world.clear_number
        self.skew = world.uniform(-20.0, 20.0) if world.skewed else 0.0
        self.stored = self.last = self._at = ""
        self.paused = self.ended = self.told = self.doomed = False
        self.operator = operator_of(self)
        self._entry = entry
        self._process = greenlet(self._main)

    @property
    def is_current(self) -> bool:
        """Whether Airflow takes what it says."""
        return self.world.ti_id == self.ti_id

    @property
    def may_store(self) -> bool:
        """Whether the store takes what it stores: the fence."""
        return self.is_current or not self.world.fenced

    def now(self) -> float:
        """Give this machine's time."""
        return self.world.now + self.skew

    def go(self) -> None:
        """Run until the next boundary."""
        if not self.ended:
            running, self.world.running = self.world.running, self
            self._process.parent = getcurrent()
            self._process.switch()
            self.world.running = running

    def sleep(self, seconds: float) -> None:
        """Let the world go on, and look afterwards what has become of us."""
        self.world.later(seconds, self.go)
        self._process.parent.switch()
        if self.doomed or (not self.is_current and self.world.rng.random() < 0.1):
            raise Died
        if self.told:
            self.told = False
            self.operator.on_kill()

    @contextmanager
    def boundaries(self, phase: str) -> Iterator[None]:
        """Pass the boundary before and the one after a step."""
        self.world.plan.passed[phase] += 1
        self.pass_by(phase, "before")
        yield
        self.last = phase
        self.pass_by(phase, "after")

    def within(self, phase: str, pieces: Iterator[bytes]) -> None:
        """Read a payload, with a boundary in it."""
        for _ in pieces:
            self.pass_by(phase, "within")

    def pass_by(self, phase: str, where: str) -> None:
        """Pass one boundary: the process may end here, or sleep through what Airflow does meanwhile."""
        world = self.world
        world.say(f"try {self.ti_id}: {where} {phase}")
        self._at = phase
        world.at_boundary(self, phase, where)
        fault = world.plan.take(phase, (f"killed {where}", f"paused {where}"))
        if fault.startswith("killed"):
            raise Died
        if fault:
            self.paused = True
            world.later(HEARTBEAT, partial(world.miss_heartbeat, self))
            self.sleep(world.uniform(1.0, 2 * HEARTBEAT))
            self.paused = False
        else:
            self.sleep(world.uniform(0.0, world.slowness))

    def _main(self) -> None:
        world = self.world
        try:
            self._work()
        except Died:
            world.say(f"try {self.ti_id}: dead")
            world.cut.add(self._at)
            world.later(world.rng.choice((1.0, HEARTBEAT)), partial(world.lose, self))
        except AirflowFailException as error:
            world.fail(self, error, final=True)
        except (errors.TableServiceError, Away, OSError, TaskDeferralError) as error:
            world.fail(self, error, final=False)
        self.ended = True
        world.after(self)

    def _work(self) -> None:
        world = self.world
        try:
            result = self._entry(self.operator, context_of(self))
        except TaskDeferred as deferred:
            with self.boundaries("defer"):
                if world.plan.take("defer", ("report lost",)):
                    world.later(HEARTBEAT, partial(world.lose, self))
                    return
                world.defer(self, deferred)
            return
        with self.boundaries("report"):
            if world.plan.take("report", ("report lost",)):
                world.later(HEARTBEAT, partial(world.lose, self))
                return
            world.succeed(self, result)


class World:
    """Airflow, people, and a clock over one service.

    Args:
        rng: Chooses everything.
        life: What the task does.
        plan: What goes wrong.
        without: The rule or assumption that is taken away: `record`, `fence`, `A1` to `A4`; empty for none.
        at_boundary: Told of every boundary of every try; may raise `Died`.
        trace: Takes a line for everything that happens; None for nobody.
    """

    def __init__(
        self,
        rng: random.Random,
        life: Life,
        plan: Plan,
        *,
        without: str = "",
        at_boundary: Callable[[Try, str, str], None] = lambda one, phase, where: None,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        self.rng, self.life, self.plan = rng, life, plan
        self.durable, self.fenced = without != "record", without != "fence"
        self.at_boundary = at_boundary
        self._trace = trace
        self.now = START
        self.settings = settings_for(life.strategy, not plan.has("no no-data status"))
        self.skewed = plan.has("clock skew")
        self.slowness = rng.choice((0.5, 5.0, 60.0))
        fails = int(plan.has("job fails"))
        self.service = Service(
            self, life.op, life.strategy, fails=fails, awaits_for_ever=rng.random() < 0.5, breaks=without
        )
        self.values: dict[str, Any] = {}
        self.xcoms: dict[str, Any] = {}
        self.state, self.number, self.ti_id, self.clear_number = "scheduled", 0, 0, 0
        self.retries = self.max_tries = 4
        self.running: Try | None = None
        self.trigger = 0
        self.clears = 0
        self.restarting: Try | None = None
        self.done = 0
        self.asked = 1
        self.excuses: set[str] = set() if self.settings is settings_for(life.strategy, True) else {"no no-data status"}
        self.excuses |= {without} & {"A2"}  # a failed job that changed the table is told by its snapshot
        self.cut: set[str] = set()
        self.ends: list[tuple[str, int]] = []
        self.outcomes: list[str] = []
        self._generations = {self.max_tries}
        self._ids = count(1)
        self._triggers = count(1)
        self._order = count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []

    # ---- the clock

    @property
    def asking(self) -> Try:
        """The try whose code runs now."""
        if self.running is None:
            raise AssertionError("no try runs")
        return self.running

    def uniform(self, least: float, most: float) -> float:
        """Draw a number."""
        return self.rng.uniform(least, most)

    def later(self, seconds: float, event: Callable[[], None]) -> None:
        """Let something happen later."""
        heapq.heappush(self._events, (self.now + seconds, next(self._order), event))

    def say(self, text: str) -> None:
        """Tell what happens, if somebody listens."""
        if self._trace is not None:
            self._trace(f"{self.now - START:8.1f} s  {text}")

    def fault(self, phase: str) -> str:
        """Take the fault that a request, a store or a source has now; not what happens to the process."""
        kinds = [fault for fault in PHASES[phase].faults if fault not in PROCESS]
        found = self.plan.take(phase, kinds)
        if found:
            self.say(f"FAULT at {phase}: {found}")
            if found == "not found" or (phase, found) == ("info", "malformed"):
                self.excuses.add(found)  # a 404 proves nothing; neither does an answer without a snapshot
        return found

    def run(self) -> None:
        """Live until nothing is left to happen."""
        self._begin()
        self._plan_world()
        for _ in range(MOST_STEPS):
            if not self._events:
                break
            self.now, _, event = heapq.heappop(self._events)
            event()
        if self.state not in ("success", "failed"):
            raise Broken(f"the task is {self.state} for ever")

    def _plan_world(self) -> None:
        people = {"clear": self.clear, "clear, unresolved": self.clear_unresolved, "job forgotten": self._forget}
        people |= {"clear of another task": self._clear_another, "another writer": self._write}
        for fault, event in people.items():
            if self.plan.has(fault):
                self.later(self.uniform(0.0, self.rng.choice((30.0, 300.0, 1500.0, 4000.0))), event)

    # ---- the service

    def applied(self, what: str) -> None:
        """Count what is done to the table."""
        self.done += 1
        self.say(f"APPLIED: {what}")
        if self.done > self.asked:
            raise Broken(f"applied {self.done} times, asked for {self.asked}")

    def _forget(self) -> None:
        self.excuses.add("job forgotten")
        for job in self.service.jobs.values():
            job.forgotten = True

    def _write(self) -> None:
        self.excuses.add("another writer")
        self.service.change(self.service.rows + 1)

    # ---- Airflow: tries

    def _begin(self) -> None:
        self.number += 1
        self.ti_id = next(self._ids)
        self.xcoms.clear()
        self.state = "scheduled"
        self.later(self.uniform(0.0, 5.0), partial(self._start, self.ti_id, _execute))

    def _start(self, ti_id: int, entry: Callable[[Any, dict[str, Any]], Any]) -> None:
        if ti_id != self.ti_id or self.state != "scheduled":
            return
        self._ask_again()
        self.state = "running"
        one = Try(self, entry)
        self.current = one
        self.say(f"try {one.ti_id}: starts (max_tries {one.max_tries}, clear number {one.clear_number})")
        one.go()

    def _ask_again(self) -> None:
        """Note that a clear of a write that is stored as done asks for another one: rule 2 and its limit."""
        record = self.values.get(KEY)
        if record is None or record["phase"] != "done" or self.max_tries in self._generations:
            return
        self._generations.add(self.max_tries)
        if record["max_tries"] != self.max_tries:
            self.asked += 1
            self.say("ASKED for another one")

    def miss_heartbeat(self, one: Try) -> None:
        """Give a try up whose process sleeps."""
        if one.paused and not one.ended:
            self.lose(one)

    def lose(self, one: Try) -> None:
        """Give a try up."""
        if one is self.restarting:
            self._finish_clear()
        elif one.is_current and self.state == "running" and self.current is one:
            self._retry()

    def fail(self, one: Try, error: Exception, *, final: bool) -> None:
        """Take a failure."""
        self.say(f"try {one.ti_id}: {type(error).__name__}: {error}")
        if isinstance(error, errors.AmbiguousWriteError):
            self._check_ambiguous(error)
        if not one.is_current or self.state != "running" or one is self.restarting:
            return
        self.outcomes.append(type(error).__name__)
        if final:
            self._end("failed")
            self._look_at_failure(error)
        else:
            self._retry()

    def succeed(self, one: Try, result: Any) -> None:
        """Take a success; that of a stale try is refused."""
        if not one.is_current or self.state != "running" or one is self.restarting:
            return
        self.say(f"try {one.ti_id}: success")
        json.dumps(result)
        self._end("success")
        self.outcomes.append("success")
        wanted = self.asked if self.life.op != "truncate" else min(self.asked, max(1, self.done))
        if self.done != wanted:
            raise Broken(f"success, applied {self.done} times, asked for {self.asked}")

    def _end(self, state: str) -> None:
        self.state = state
        self.ends.append((state, self.number))

    def after(self, one: Try) -> None:
        """End a clear whose try has ended."""
        if one is self.restarting:
            self._finish_clear()

    def _retry(self) -> None:
        if self.number > self.max_tries:
            self._end("failed")
            self.ti_id = next(self._ids)
            self._look_at_failure(None)
        else:
            self._begin()

    def _look_at_failure(self, error: Exception | None) -> None:
        """Let a person clear what failed, unless it says that a person must look first."""
        if self.durable and not isinstance(error, errors.AmbiguousWriteError) and self.rng.random() < 0.5:
            self.later(self.uniform(1.0, 2000.0), self.clear)

    def _check_ambiguous(self, error: errors.AmbiguousWriteError) -> None:
        asked = self.life.op not in WRITES or self.life.strategy != "initiate_put"
        happened = self.cut | {planned.cell.phase for planned in self.plan.faults if planned.happened}
        cut = asked and not happened.isdisjoint(ASKING)
        told = asked and self.clears > 0
        if not (self.excuses or cut or told):
            raise Broken(f"ambiguous, although it can be known: {error}")

    # ---- Airflow: clears

    def clear(self) -> None:
        """Clear the task, as a person does."""
        self.say("CLEARED")
        self._clear(raises=self.state != "running" or self.rng.random() < 0.8)

    def clear_unresolved(self) -> None:
        """Clear the task while Airflow cannot find its DAG: only the run's number tells."""
        self.say("CLEARED, unresolved")
        self._clear(raises=False)

    def _clear(self, *, raises: bool) -> None:
        if self.clears >= 2 or self.restarting is not None:
            return
        self.clears += 1
        self.clear_number += 1
        self._raises = raises
        self.excuses |= set() if raises else {"perhaps cleared"}
        if self.state == "running" and self.current.is_current:
            self.restarting = self.current
            self.current.told = self.rng.random() < 0.5
            self.later(self.uniform(0.0, 10.0), partial(setattr, self.current, "doomed", True))
            if self.current.ended:
                self._finish_clear()
        else:
            self._finish_clear()

    def _finish_clear(self) -> None:
        self.restarting = None
        self.trigger = 0
        if self._raises:
            self.max_tries = self.number + self.retries
        self._begin()

    def _clear_another(self) -> None:
        self.say("another task CLEARED")
        self.excuses.add("perhaps cleared")
        self.clear_number += 1

    # ---- Airflow: deferrals

    def defer(self, one: Try, deferred: Any) -> None:
        """Keep a trigger for a task."""
        if not one.is_current or self.state != "running" or one is self.restarting:
            return
        self.state = "deferred"
        self.trigger = next(self._triggers)
        _, kwargs = deferred.trigger.serialize()
        kind: Callable[..., Any] = type(deferred.trigger)
        waits = partial(kind, **json.loads(json.dumps(kwargs)))
        self.later(self.uniform(0.0, 3.0), partial(self._poll, self.trigger, waits))
        timeout = {"error": "Trigger timeout"}
        self.later(deferred.timeout.total_seconds(), partial(self._fire, self.trigger, ("__fail__", timeout)))

    def _poll(self, number: int, waits: Callable[[], Any]) -> None:
        """Look once, as the triggerer does."""
        if number != self.trigger:
            return
        self.plan.passed["trigger"] += 1
        again = partial(self._poll, number, waits)
        gone = self.plan.take("trigger", ("triggerer killed", "triggerer paused"))
        if gone:
            self.say(gone)
            self.later(TAKEOVER, again)
            if gone == "triggerer killed":
                return
        trigger = waits()
        outcome = self._look(trigger.watch)
        if outcome is None:
            self.later(max(0.1, trigger.watch.pause(self.now)), again)
            return
        self.say(f"trigger: {outcome.kind} {outcome.status}")
        self._emit(number, {**outcome.to_json(), "carry": trigger.carry}, again)

    def _look(self, watch: Any) -> Any:
        wire = wire_of(self.settings)
        request = watch.request(wire)
        try:
            reply = send(self, "trigger", request, self.now)
            refused = wire.error(request, reply)
            if refused is not None:
                raise refused
            return watch.outcome(watch.read(wire, reply), self.now)
        except errors.TableServiceError as error:
            transient = isinstance(error, errors.TransportFailed | errors.ServerError | errors.NotFound)
            if transient and not isinstance(error, errors.TlsFailed) and not watch.over(self.now):
                return None
            return watch.broken(error, self.now)

    def _emit(self, number: int, event: dict[str, Any], again: Callable[[], None]) -> None:
        self.plan.passed["event"] += 1
        fault = self.plan.take("event", PHASES["event"].faults)
        if fault:
            self.say(fault)
        if fault == "event lost":
            self.later(TAKEOVER, again)
            return
        if fault == "event garbled":
            event = {"kind": "completed"}
        goes_on: tuple[str, dict[str, Any]] = ("execute_complete", {"event": json.loads(json.dumps(event))})
        if fault == "trigger failed":
            goes_on = ("__fail__", {"error": "Trigger failure", "traceback": ["its own line"]})
        for _ in range(2 if fault == "event twice" else 1):
            self.later(self.uniform(0.0, 2.0), partial(self._fire, number, goes_on))

    def _fire(self, number: int, goes_on: tuple[str, dict[str, Any]]) -> None:
        """Take an event; one of a task that does not wait for it is dropped."""
        if number != self.trigger or self.state != "deferred":
            return
        self.trigger = 0
        self.state = "scheduled"
        self.plan.passed["resume"] += 1
        fault = self.plan.take("resume", PHASES["resume"].faults)
        if fault:
            self.say(f"FAULT at resume: {fault}")
        if fault == "dag unloadable":
            entry: Callable[[Any, dict[str, Any]], Any] = _execute
        elif fault == "killed before":
            entry = _die
        else:
            entry = partial(_resume, goes_on)
        wait = HEARTBEAT if fault == "paused before" else 0.0
        self.later(wait + self.uniform(0.0, 5.0), partial(self._start, self.ti_id, entry))


def _execute(operator: Any, context: dict[str, Any]) -> Any:
    called_by_airflow = {f"{type(operator).__name__}__sentinel": ExecutorSafeguard.sentinel_value}
    return operator.execute(context=context, **called_by_airflow)


def _resume(goes_on: tuple[str, dict[str, Any]], operator: Any, context: dict[str, Any]) -> Any:
    return operator.resume_execution(*goes_on, context)


def _die(operator: Any, context: dict[str, Any]) -> Any:
    raise Died


# ---- one story


class _Clock(ModuleType):
    """What the provider's modules know as `time`, in a world."""

    def __init__(self, world: World) -> None:
        super().__init__("time")
        self._world = world

    def time(self) -> float:
        """Give the time of whoever asks."""
        one = self._world.running
        return one.now() if one is not None else self._world.now


@contextmanager
def in_time_of(world: World) -> Iterator[None]:
    """Let the provider's modules take time and chance from a world."""
    seams: list[tuple[Any, str, Any]] = [
        *((module, "time", _Clock(world)) for module in (base, deferring, steps, tasks)),
        (calls, "random", world.rng),
        (hooks, "TdsHook", lambda conn_id: SimulatedHook(world.asking)),
    ]
    kept = [(module, name, getattr(module, name)) for module, name, _ in seams]
    try:
        for module, name, value in seams:
            setattr(module, name, value)
        yield
    finally:
        for module, name, value in kept:
            setattr(module, name, value)


@dataclass
class Story:
    """What came of a seed.

    Attributes:
        seed: the seed.
        life: what the task did.
        state: success or failed.
        hits: the faults that happened.
        outcomes: how its tries ended.
        broken: which promise does not hold; empty if all do.
        lines: what happened, if asked for.
    """

    seed: int
    life: Life
    state: str = ""
    hits: list[Cell] = field(default_factory=list)
    outcomes: list[str] = field(default_factory=list)
    broken: str = ""
    lines: list[str] = field(default_factory=list)


def story(seed: int, *, without: str = "", trace: bool = False) -> Story:
    """Live the world of a seed to its end.

    Args:
        seed: Chooses the first fault in turn, and everything else at random.
        without: The rule or assumption that is taken away; empty for none.
        trace: Whether to keep a line for everything that happens.
    """
    rng = random.Random(seed)  # noqa: S311  # repeatable, and no secret
    first = CELLS[seed % len(CELLS)]
    life = PHASES[first.phase].draw(rng)
    plan = Plan.of(rng, first, life, more=rng.choice((0, 1, 1, 2, 3)))
    told = Story(seed, life)
    world = World(rng, life, plan, without=without, trace=told.lines.append if trace else None)
    try:
        with in_time_of(world):
            world.run()
    except Broken as broken:
        told.broken = str(broken)
    told.state, told.outcomes = world.state, world.outcomes
    told.hits = [planned.cell for planned in plan.faults if planned.happened]
    return told
