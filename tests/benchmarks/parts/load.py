"""One run: so many triggers of one kind in one event loop, as Airflow's triggerer drives them; prints one line of JSON.

    python load.py '{"kind": "ours-httpx", "count": 100, "mode": "run", ...}'

CPU time is this process's, from the first trigger's creation to the last one's end, after one trigger to warm up.
How long the loop was blocked is how much too late a 10 ms ticker woke; its own part of that is what this thread
worked meanwhile (not what other processes of the machine took), without garbage collection. What is told besides, by
mode:

- `run`: cost of each poll;
- `memory`: what is added while all triggers wait, each polled at least once; what the warm-up freed is given back
  first;
- `fan-out`: all wait for one job, and are told at once;
- `storm`: for some seconds the service refuses everybody.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import resource
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import greenback
from kinds import GIVEN, KINDS, WARM, NoLane

PAGE = os.sysconf("SC_PAGE_SIZE")
#: Seconds: how long a storm blows, how long 5,000 triggers wait for one job.
STORM, SHARED = 5.0, 10.0
PATIENCE = 300.0


def told(command: str) -> dict[str, int]:
    """Tell the stub something; give what it has seen."""
    with urllib.request.urlopen(f"http://127.0.0.1:{GIVEN['control']}/{command}") as reply:
        found: dict[str, int] = json.load(reply)
    return found


async def until(condition: Callable[[dict[str, int]], bool]) -> None:
    """Wait until the stub has seen something."""
    deadline = time.monotonic() + PATIENCE
    while not condition(await asyncio.to_thread(told, "counts")):
        assert time.monotonic() < deadline, "it does not come about"
        await asyncio.sleep(0.1)


def memory() -> int:
    """Give the bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


class Watcher:
    """Ticks beside the load: how late it is woken, how much of that was garbage collection."""

    def __init__(self) -> None:
        self._begun = self._collected = 0.0
        self.reset()
        gc.callbacks.append(self._collect)

    def reset(self) -> None:
        """Forget what was seen."""
        self.late: list[float] = []
        self.own: list[float] = []
        self.longest_collection = 0.0

    def _collect(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._begun = time.perf_counter()
        else:
            took = time.perf_counter() - self._begun
            self._collected += took
            self.longest_collection = max(self.longest_collection, took)

    async def tick(self) -> None:
        """Watch until cancelled."""
        while True:
            due, collected, worked = time.perf_counter() + 0.01, self._collected, time.thread_time()
            await asyncio.sleep(0.01)
            late = time.perf_counter() - due
            self.late.append(late)
            own = min(late, time.thread_time() - worked)
            self.own.append(max(0.0, own - (self._collected - collected)))

    def said(self) -> dict[str, float]:
        """Tell what was seen, in ms."""
        ordered = sorted(self.own)
        return {
            "block_ms": max(self.late) * 1e3,
            "block_own_ms": ordered[-1] * 1e3,
            "block_p99_ms": ordered[len(ordered) * 99 // 100] * 1e3,
            "gc_ms": self.longest_collection * 1e3,
        }


async def drive(trigger: Any) -> bool:
    """Run one trigger to its end, as Airflow's runner does; say whether its job succeeded."""
    await greenback.ensure_portal()
    done = False
    try:
        async for event in trigger.run():
            done = succeeded(event.payload)
    except Exception:  # a trigger that gives up is counted
        if GIVEN["mode"] != "storm":
            raise
    return done


def succeeded(payload: Any) -> bool:
    """Read an event, in everybody's words."""
    done = payload is True or payload.get("kind") == "completed" or payload.get("status") == "success"
    return done or "SUCCESS" in str(payload.get("run_state"))


async def created(make: Callable[[int], Any]) -> list[asyncio.Task[bool]]:
    """Start all triggers, as `create_triggers` does; in a burst, all in one turn of the loop."""
    tasks = []
    for number in range(GIVEN["count"]):
        for _ in range(0 if GIVEN.get("burst") else 2):
            await asyncio.sleep(0)
        tasks.append(asyncio.create_task(drive(make(number))))
    return tasks


async def run(make: Callable[[int], Any], watcher: Watcher) -> tuple[list[bool], dict[str, float]]:
    """Let all poll until their jobs are done; how long making them at once takes is this script's, not theirs."""
    tasks = await created(make)
    if GIVEN.get("burst"):
        await asyncio.sleep(0.02)
        watcher.reset()
    return await asyncio.gather(*tasks), {}


async def remember(make: Callable[[int], Any], watcher: Watcher) -> tuple[list[bool], dict[str, float]]:
    """Let all wait, look at the memory, let them end."""
    base, before = memory(), told("begin")
    tasks = await created(make)
    if asks := GIVEN["kind"] != "sleep":
        await until(lambda seen: seen["jobs"] - before["jobs"] >= GIVEN["count"])
        await until(lambda seen: seen["requests"] - before["requests"] >= 2 * GIVEN["count"])
    grown = memory() - base
    await asyncio.to_thread(told, "finish")
    said = {"kib_per_trigger": grown / GIVEN["count"] / 1024}
    return await asyncio.gather(*tasks) if asks else [True], said


async def fan_out(make: Callable[[int], Any], watcher: Watcher) -> tuple[list[bool], dict[str, float]]:
    """Let all wait for one job, and tell them at once."""
    before = told("begin")
    tasks = await created(make)
    await until(lambda seen: seen["requests"] > before["requests"])
    before, begun = await asyncio.to_thread(told, "counts"), time.monotonic()
    await asyncio.sleep(SHARED)
    asked = (await asyncio.to_thread(told, "finish"))["requests"] - before["requests"]
    asked_per_interval = asked / (time.monotonic() - begun) * GIVEN["interval"]
    waiting = watcher.said()["block_ms"]
    watcher.reset()
    return await asyncio.gather(*tasks), {"polls_per_interval": asked_per_interval, "creation_block_ms": waiting}


async def storm(make: Callable[[int], Any], watcher: Watcher) -> tuple[list[bool], dict[str, float]]:
    """Let all poll; refuse them for a while; let them end."""
    before = told("begin")
    tasks = await created(make)
    await until(lambda seen: seen["jobs"] - before["jobs"] >= GIVEN["count"])
    cpu = time.process_time()
    await asyncio.to_thread(told, f"storm/{STORM}")
    await asyncio.sleep(STORM)
    cpu = time.process_time() - cpu
    refused = (await asyncio.to_thread(told, "finish"))["refused"]
    ended = time.perf_counter()
    done = await asyncio.gather(*tasks)
    lost = sum(not one for one in done)
    said = {"refused": refused, "lost": lost, "storm_cpu_ms": cpu * 1e3, "recovery_s": time.perf_counter() - ended}
    return [True], said


MODES = {"run": run, "memory": remember, "fan-out": fan_out, "storm": storm}


async def main() -> None:
    """Warm up, run the load, print what it took."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    make = KINDS[GIVEN["kind"]]()
    if GIVEN["kind"] != "sleep":
        await drive(make(WARM))
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what the warm-up freed would hide what the triggers take
    before, watcher = told("counts"), Watcher()
    ticking = asyncio.create_task(watcher.tick())
    cpu, wall = time.process_time(), time.perf_counter()
    done, said = await MODES[GIVEN["mode"]](make, watcher)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    ticking.cancel()
    assert all(done), f"{done.count(False)} of {len(done)} jobs did not succeed"
    after = told("counts")
    polls = after["requests"] - before["requests"] if GIVEN["kind"] != "null" else sum(NoLane.asked.values())
    polls = polls or 1  # who only sleeps asks for nothing
    costs = {"polls": polls, "us_per_poll": cpu / polls * 1e6, "polls_per_cpu_s": polls / cpu, "wall_s": wall}
    print(
        json.dumps(costs | {"connections": after["opened"], "peak": after["peak"]} | watcher.said() | said), flush=True
    )


os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # the stub has another one, where there are two
asyncio.run(main())
os._exit(0)  # what pollers and peers keep open ends here
