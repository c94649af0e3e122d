"""Kill a real Airflow at every step of a write, and count the rows.

    python3 tests/run.py kills                          every step x every victim, twice; about an hour on two cores
    python3 tests/run.py kills -- --steps "put within" --victims task,paused --repeat 1        a part of it

Each trial is one DAG run with one deferred append to a table of its own. The gate holds the write at a step; then the
victim is killed with SIGKILL, or paused and woken, or the task is cleared; then the write may go on. At the end every
row id must be there exactly once. A trial counts only if the write was held, its sender still connected, when the
victim was hit; else it is repeated. The same with the record switched off must double rows, else this proves nothing.

What lives here: what is done to whom, and the count. What must not: how a write is held (gate.py), how Airflow is
started (example_dags/stack.py).
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import logging
import os
import shutil
import signal
import sqlite3
import sys
import tempfile
import threading
import time
import traceback
import urllib.error
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / folder) for folder in (".", "example_dags", "requirements", "tests/support")]

from gate import STEPS, Gate, Hold  # noqa: E402  # found by the line above
from processes import Child, table  # noqa: E402
from stack import FAST_RECOVERY, FINAL, Run, Stack, StackError  # noqa: E402

from airflow_tds.client.client import TableClient  # noqa: E402
from airflow_tds.local import Service  # noqa: E402

#: Rows of a write: a PUT that has a middle, and a table that is read in one page.
ROWS = 6000
#: Seconds for which an upload URL is good, and until a job starts: a worker has to see it under way first.
LIFETIME, JOB_DELAY = 30.0, 5.0
#: Seconds that an upload may take at most: the client ends it then, and so does the store.
TRANSFER = 40.0
EXTRA = {
    "wire": {"no_data_statuses": ["AWAITING"]},
    "transfer_timeout": TRANSFER,
    "lease_margin": 0,
    "read_timeout": 600,  # longer than any hold
}
CONFIG = FAST_RECOVERY | {
    "core.parallelism": "24",
    "scheduler.task_instance_heartbeat_timeout": "20",
    "scheduler.job_heartbeat_sec": "1",
    "scheduler.scheduler_heartbeat_sec": "1",
    "scheduler.scheduler_health_check_threshold": "15",
    "scheduler.orphaned_tasks_check_interval": "5",
}
#: While the trigger waits, no process of the task lives that could be hit.
DEFERRED = ("polled", "completed polled")
#: Cleared now, a write that was stored as done, or whose try reports success meanwhile, is asked for once more.
DONE = ("result asked", "returned")
PATIENCE = 420.0
ROUNDS = 4


class Missed(Exception):
    """The victim was not hit at the step; the trial does not count."""


@dataclass
class Trial:
    """One write, one step, one victim.

    Attributes:
        step: where the write is held.
        victim: what is hit there.
        number: which repetition.
        dag: `recorded` or `unrecorded`.
        copies: how often rows are in the table, by number of rows; set at the end.
        state: Airflow's verdict, or `asks` where the task failed as a person must look; set at the end.
    """

    step: str
    victim: str
    number: int
    dag: str = "recorded"
    table: str = ""
    state: str = ""
    tries: int = 0
    copies: dict[int, int] = field(default_factory=dict)

    @property
    def doubled(self) -> bool:
        return any(number > self.wanted for number in self.copies)

    @property
    def lost(self) -> bool:
        return self.state == "success" and any(number < 1 for number in self.copies)

    @property
    def wanted(self) -> int:
        """How often the write was asked for: a clear of a done write may ask again."""
        return 2 if self.victim == "cleared" and self.step in DONE else 1

    @property
    def good(self) -> bool:
        asks = self.wanted == 2 and self.state == "asks"  # done, and perhaps cleared: a person is asked
        return (self.state == "success" or asks) and not self.doubled and set(self.copies) <= {1, self.wanted}

    def line(self) -> str:
        copies = " and ".join(f"{number}x" for number in sorted(self.copies)) or "no rows"
        verdict = "" if self.good else "  <-- " + ("DOUBLED" if self.doubled else "LOST" if self.lost else "NOT DONE")
        return (
            f"{self.dag:<10} {self.victim:<10} at {self.step:<17} #{self.number}:"
            f" {self.state}, {self.tries} tries, {copies}{verdict}"
        )


class PatientStack(Stack):
    """An Airflow whose database is SQLite: many at once may find it locked."""

    def start(self, timeout: float = 300.0) -> None:
        """Let readers and a writer of the database work at once."""
        self.migrate(timeout)
        with contextlib.closing(sqlite3.connect(self.home / "airflow.db")) as database:
            database.execute("PRAGMA journal_mode=WAL")
        super().start(timeout)
        for dag in ("recorded", "unrecorded"):
            self._until(lambda dag=dag: self._is_known(dag), timeout, f"no DAG {dag}")  # type: ignore[misc]

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Send a request to the REST API, again where it says that it failed; what was done already is done."""
        for left in range(9, -1, -1):
            try:
                return super().call(method, path, body)
            except urllib.error.HTTPError as refused:
                if refused.code == 409 and left < 9:
                    return None
                if refused.code < 500 or not left:
                    raise
            except (ConnectionError, TimeoutError):
                if not left:
                    raise
            time.sleep(0.5)
        raise AssertionError("unreachable")


class Watchdog:
    """What every deployment has: it starts Airflow's components again. SQLite may end a scheduler by itself.

    Args:
        stack: the components; whoever else ends one of them holds `lock` meanwhile.
    """

    def __init__(self, stack: Stack) -> None:
        self.lock = threading.Lock()
        self._stack = stack
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        sick = 0
        while not self._over.wait(5.0):
            with self.lock:
                for role, child in list(self._stack._children.items()):
                    if child.exit_code() is not None:
                        self._restart(role)
                sick = 0 if self._has_scheduler() else sick + 1
                if sick > 5:
                    self._restart("scheduler")
                    sick = 0

    def _has_scheduler(self) -> bool:
        with contextlib.suppress(OSError):
            return str(self._stack.get("monitor/health")["scheduler"]["status"]) == "healthy"
        return True  # the API server is asked again

    def _restart(self, role: str) -> None:
        print(f"{role} had ended by itself and is started again", flush=True)
        self._stack.kill(role)
        self._stack.launch(role)


class World:
    """A service behind a gate, and an Airflow that writes to it."""

    def __init__(self, service: Service, gate: Gate, stack: Stack, watchdog: Watchdog) -> None:
        self.watchdog = watchdog
        self.service = service
        self.gate = gate
        self.stack = stack
        self.graves: list[Child] = []
        self._numbers = itertools.count(1)
        self._changing = threading.Lock()

    def begin(self, trial: Trial) -> tuple[Run, Hold]:
        """Start a trial's run, to be held at its step."""
        trial.table = f"t{next(self._numbers)}"
        self.service.create_table(trial.table)
        hold = self.gate.hold(trial.table, trial.step)
        named = {"dag_run_id": trial.table, "logical_date": None, "conf": {"table": trial.table}}
        self.change(f"dags/{trial.dag}/dagRuns", named)
        return Run(self.stack, trial.dag, trial.table), hold

    def bury(self) -> None:
        """End what is left of killed schedulers."""
        while self.graves:
            self.graves.pop().kill()

    def change(self, path: str, asked: object) -> None:
        """Ask Airflow for a change, one at a time: two at once lock SQLite against each other."""
        with self._changing:
            self.stack.call("POST", path, asked)

    def copies(self, trial: Trial) -> dict[int, int]:
        """Count how many rows are in the table how often."""
        with TableClient(self.service.url, token=self.service.token) as client:
            found = Counter(int(row["id"]) for row in client.iter_rows(trial.table))
        return dict(Counter(found.get(number, 0) for number in range(ROWS)))

    def finish(self, trial: Trial, run: Run) -> Trial:
        """Wait for a run's end and count."""
        run.wait(PATIENCE)
        task = run.tasks()["append"]
        trial.state, trial.tries = task["state"] or "none", task["try_number"]
        if trial.state == "failed" and "AmbiguousWriteError" in run.task_log("append", trial.tries):
            trial.state = "asks"
        trial.copies = self.copies(trial)
        return trial


# ---- victims of one run


def identity(run: Run) -> str:
    return str(run.tasks()["append"]["id"])


def hit(hold: Hold, *pids: int, number: int = signal.SIGKILL) -> None:
    """Send a signal to processes of a write that is held."""
    if not hold.holds:
        raise Missed("not held any more")
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            raise Missed(f"process {pid} is gone") from None


def until(condition: Callable[[], bool], seconds: float, otherwise: str) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise Missed(otherwise)
        time.sleep(0.3)


def is_gone(pid: int) -> bool:
    return not any(process.pid == pid and not process.ended for process in table())


def kill_task(world: World, trial: Trial, run: Run, hold: Hold) -> None:
    hit(hold, run.task_process("append").pid)
    hold.released.set()


def kill_supervisor(world: World, trial: Trial, run: Run, hold: Hold) -> None:
    """The task is an orphan then, and goes on until it next needs its supervisor."""
    hit(hold, run.task_process("append").parent)
    hold.released.set()


def pause_and_wake(world: World, trial: Trial, run: Run, hold: Hold) -> None:
    """Pause task and supervisor until Airflow has given them up; wake them beside, or after, the try that follows."""
    before, task = identity(run), run.task_process("append")
    hit(hold, task.parent, task.pid, number=signal.SIGSTOP)
    try:
        until(lambda: identity(run) != before, 120, "no other try began")
        until(lambda: run.tasks()["append"]["state"] not in ("queued", "scheduled"), 120, "no other try began")
        if trial.number % 2 == 0:
            run.wait(PATIENCE)
    finally:
        hold.released.set()
        for pid in (task.parent, task.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    until(lambda: is_gone(task.pid), 180, "the woken task did not end")


def clear(world: World, trial: Trial, run: Run, hold: Hold) -> None:
    """Clear the task; the write is held until the process of the cleared try is gone."""
    before = identity(run)
    pid = None if trial.step in DEFERRED else run.task_process("append").pid
    if not hold.holds:
        raise Missed("not held any more")
    asked = {
        "dry_run": False,
        "dag_run_id": run.run_id,
        "task_ids": ["append"],
        "only_failed": False,
        "reset_dag_runs": True,
    }
    world.change(f"dags/{run.dag_id}/clearTaskInstances", asked)
    if pid is not None:
        until(lambda: is_gone(pid), 120, "the cleared task did not end")
    hold.released.set()
    until(lambda: identity(run) != before, 120, "no other try began")


# ---- victims that all runs share


def kill_triggerer(world: World) -> None:
    world.stack.kill("triggerer")
    world.stack.launch("triggerer")


def kill_scheduler(world: World) -> None:
    """Kill the scheduler alone: tasks under way go on, and another scheduler starts them anew."""
    child = world.stack._children.pop("scheduler")
    child.family()  # seen, so that what is left of it can be ended
    os.kill(child.pid, signal.SIGKILL)
    world.graves.append(child)
    world.stack.launch("scheduler")


def kill_machine(world: World) -> None:
    """Kill the scheduler with all workers and tasks, as when their machine is lost."""
    world.stack.kill("scheduler")
    world.stack.launch("scheduler")


ALONE: dict[str, Callable[[World, Trial, Run, Hold], None]] = {
    "task": kill_task,
    "supervisor": kill_supervisor,
    "paused": pause_and_wake,
    "cleared": clear,
}
SHARED: dict[str, Callable[[World], None]] = {
    "triggerer": kill_triggerer,
    "scheduler": kill_scheduler,
    "machine": kill_machine,
}


def can(victim: str, step: str) -> bool:
    return not (step in DEFERRED and victim in ("task", "supervisor", "paused"))


# ---- rounds


def arrive(run: Run, hold: Hold, seconds: float) -> None:
    """Wait until a write is held at its step; one that ended went another way, and its victim is missed."""
    end = time.monotonic() + seconds
    while not hold.reached.wait(5.0) and time.monotonic() < end and run.state() not in FINAL:
        pass


def try_alone(world: World, trial: Trial) -> Trial | None:
    """Do one trial; None if its victim was missed."""
    run, hold = world.begin(trial)
    try:
        arrive(run, hold, PATIENCE)
        ALONE[trial.victim](world, trial, run, hold)
        return world.finish(trial, run)
    except (Missed, StackError, OSError, KeyError) as missed:
        print(f"{trial.dag:<10} {trial.victim:<10} at {trial.step:<17} #{trial.number}: missed: {missed}", flush=True)
        return None
    finally:
        hold.released.set()


def try_together(world: World, trials: Sequence[Trial]) -> Iterator[Trial]:
    """Hold one run at each step, hit the victim once, and give those trials that count."""
    begun = [(trial, *world.begin(trial)) for trial in trials]
    end = time.monotonic() + PATIENCE
    for _, run, hold in begun:
        arrive(run, hold, end - time.monotonic())
    counts = [hold.holds for _, _, hold in begun]
    with world.watchdog.lock:
        SHARED[trials[0].victim](world)
    for _, _, hold in begun:
        hold.released.set()
    for (trial, run, _), held in zip(begun, counts, strict=True):
        try:
            world.finish(trial, run)
        except StackError as stuck:
            print(f"{trial.line()}: {stuck}", flush=True)
        else:
            if held:
                yield trial
                continue
        print(f"{trial.victim:<10} at {trial.step:<17} #{trial.number}: missed: not held", flush=True)
    world.bury()


def play(world: World, wanted: Sequence[Trial], at_once: int) -> Iterator[Trial]:
    """Do trials, repeating those that missed, up to a number of rounds."""
    for _ in range(ROUNDS):
        done: list[Trial] = []
        for victim in SHARED:
            for number in sorted({t.number for t in wanted if t.victim == victim}):
                batch = [t for t in wanted if t.victim == victim and t.number == number]
                done += tell(try_together(world, batch))
        with ThreadPoolExecutor(at_once) as pool:
            alone = [t for t in wanted if t.victim in ALONE]
            done += tell(t for t in pool.map(lambda t: try_alone(world, t), alone) if t is not None)
        yield from done
        wanted = [t for t in wanted if t not in done]
        if not wanted:
            return


def tell(trials: Iterator[Trial]) -> list[Trial]:
    """Print each trial as it ends."""
    done = []
    for trial in trials:
        print(trial.line(), flush=True)
        done.append(trial)
    return done


# ---- the whole


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Kill a real Airflow at every step of a write, and count the rows.")
    parser.add_argument("--steps", default=",".join(STEPS))
    parser.add_argument("--victims", default=",".join([*SHARED, *ALONE]))
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--at-once", type=int, default=6)
    parser.add_argument("--keep", action="store_true", help="keep Airflow's home")
    options = parser.parse_args(arguments)
    for name in ("uvicorn", "airflow_tds"):
        logging.getLogger(name).setLevel(logging.WARNING)
    steps, victims = options.steps.split(","), options.victims.split(",")
    pairs = [(victim, step) for victim in victims for step in steps if can(victim, step)]
    recorded = [Trial(s, v, n) for v, s in pairs for n in range(1, options.repeat + 1)]
    unrecorded = [Trial(s, v, 1, "unrecorded") for v, s in pairs if v == "task"]
    began = time.monotonic()
    with airflow(keep=options.keep) as world:
        done = list(play(world, recorded, options.at_once))
        without = list(play(world, unrecorded, options.at_once))
        for trial in (*done, *without):
            trial.copies = world.copies(trial)  # again: what was late then has arrived by now
    report(done, without, planned=len(recorded))
    print(f"{time.monotonic() - began:.0f} s")
    shown = not unrecorded or any(trial.doubled for trial in without)
    return 0 if len(done) == len(recorded) and all(t.good for t in done) and shown else 1


@contextlib.contextmanager
def airflow(*, keep: bool) -> Iterator[World]:
    """Start everything in a temporary folder."""
    with contextlib.ExitStack() as all_of_it:
        home = Path(tempfile.mkdtemp(prefix="airflow-tds-kills-"))
        if keep:
            print(home)
        else:
            all_of_it.callback(shutil.rmtree, home, ignore_errors=True)
        service = all_of_it.enter_context(Service(upload_url_lifetime=LIFETIME, job_delay=JOB_DELAY))
        gate = all_of_it.enter_context(Gate(service.url, TRANSFER))
        host, port = gate.url.removeprefix("http://").split(":")
        values = {"conn_type": "tds", "schema": "http", "host": host, "port": int(port), "password": service.token}
        env = {
            "AIRFLOW_CONN_TDS_DEFAULT": json.dumps(values | {"extra": EXTRA}),
            "GATE": gate.url,
            "ROWS": str(ROWS),
            "PYTHONPATH": str(ROOT),
        }
        dags = Path(__file__).parent / "kill_dags"
        database = {"database.sql_alchemy_conn": f"sqlite:///{home}/airflow/airflow.db?timeout=20"}
        stack = PatientStack(Path(sys.executable), home / "airflow", dags, config=CONFIG | database, env=env)
        all_of_it.enter_context(stack)
        world = World(service, gate, stack, all_of_it.enter_context(Watchdog(stack)))
        all_of_it.callback(world.bury)
        yield world


def report(done: Sequence[Trial], without: Sequence[Trial], planned: int) -> None:
    """Print what came of it."""
    victims = [victim for victim in (*SHARED, *ALONE) if any(t.victim == victim for t in done)]
    print(f"\n{'counted trials':<18}" + "".join(f"{victim:>11}" for victim in victims))
    for step in STEPS:
        counts = [sum(t.step == step and t.victim == victim for t in done) for victim in victims]
        print(f"{step:<18}" + "".join(f"{count or '-':>11}" for count in counts))
    again = sum(t.wanted == 2 for t in done)
    print(
        f"\nwith the record: {len(done)} of {planned} trials counted,"
        f" {sum(t.doubled for t in done)} doubled, {sum(t.lost for t in done)} lost,"
        f" {sum(not t.good for t in done)} otherwise not as promised"
        f" ({again} of them cleared when the write was done: written again or left to a person)"
    )
    print(
        f"without it: {len(without)} trials counted, {sum(t.doubled for t in without)} doubled,"
        f" {sum(t.lost for t in without)} lost"
    )
    for trial in done:
        if not trial.good:
            print(trial.line())


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(f"signal {number}"))  # what was started is stopped
    try:
        sys.exit(main(sys.argv[1:]))
    except StackError:
        traceback.print_exc()
        sys.exit(1)
