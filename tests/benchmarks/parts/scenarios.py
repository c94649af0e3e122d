"""What is measured: for each part of the page, its runs, the columns that are shown, and what is aimed at."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["KINDS", "PARTS", "THEIRS", "Aim", "Scenario", "median"]

KINDS = {
    "ours-aiohttp": "airflow-tds, [aiohttp]",
    "ours-httpx": "airflow-tds, httpx",
    "raw-aiohttp": "our poller on bare aiohttp",
    "null": "our poller without HTTP",
    "databricks": "Databricks",
    "dbt-cloud": "dbt Cloud",
    "http-sensor": "HTTP sensor",
    "sleep": "a trigger of Airflow's that only sleeps",
}
THEIRS = ("databricks", "dbt-cloud", "http-sensor")
OURS = ("ours-aiohttp", "ours-httpx")
ALL = tuple(kind for kind in KINDS if kind != "sleep")
FEW = (*OURS, "raw-aiohttp", "null", "databricks")
PAIR = (*OURS, "databricks")
SATURATION = 0.001
WORKERS = 16

#: Of each kind, its runs; of each run, its figures.
Found = Mapping[str, list[dict[str, Any]]]
COST = {
    "us_per_poll": "CPU us/poll",
    "polls_per_cpu_s": "polls per CPU s",
    "peak": "connections",
    "block_ms": "longest block ms",
    "block_own_ms": "own part, no gc, ms",
    "block_p99_ms": "own part p99 ms",
}


def median(runs: list[dict[str, Any]], column: str) -> float:
    """Give the middle of a column."""
    return float(statistics.median(one[column] for one in runs))


@dataclass(frozen=True)
class Aim:
    """Something aimed at: words, how it is computed, the bound; `least` says on which side of it is good."""

    words: str
    value: Callable[[Found], float]
    bound: float
    least: bool = False

    def row(self, found: Found) -> str:
        """Say what came of it."""
        value = self.value(found)
        met = value >= self.bound if self.least else value <= self.bound
        bound = f"{'at least' if self.least else 'at most'} {self.bound:g}"
        return f"| {self.words} | {bound} | {value:.3g} | {'met' if met else '**missed**'} |"


@dataclass(frozen=True)
class Scenario:
    """Runs that take turns.

    Attributes:
        title: What is shown above the table.
        kinds: What takes part.
        given: What stub and load are told.
        columns: Figures that are shown, with their headings; the first one's spread is shown, too.
        rounds: How often at most; fewer where time is short.
        weight: Its part of the time, about its minutes.
        full: Whether only the full run has it.
    """

    title: str
    kinds: tuple[str, ...]
    given: dict[str, Any]
    columns: dict[str, str] = field(default_factory=lambda: COST)
    rounds: int = 5
    weight: float = 1.0
    full: bool = False
    aims: tuple[Aim, ...] = ()


def best(found: Found, column: str) -> float:
    """Give the least of the other providers'."""
    return min(median(found[kind], column) for kind in THEIRS if kind in found)


def gain(kind: str, column: str = "us_per_poll") -> Callable[[Found], float]:
    """How many times less than the best of the others."""
    return lambda found: best(found, column) / median(found[kind], column)


def share(kind: str, column: str) -> Callable[[Found], float]:
    """Which part of the best of the others, in per cent."""
    return lambda found: 100 * median(found[kind], column) / best(found, column)


def beyond(kind: str) -> Callable[[Found], float]:
    """How many times less than the other's, both without what any trigger takes."""

    def value(found: Found) -> float:
        least = median(found["sleep"], "cpu_s")
        return (best(found, "cpu_s") - least) / max(0.01, median(found[kind], "cpu_s") - least)

    return value


def worst(column: str) -> Callable[[Found], float]:
    """Give the most of our two."""
    return lambda found: max(median(found[kind], column) for kind in OURS)


def saturated(count: int, kinds: tuple[str, ...], **more: Any) -> Scenario:
    """So many triggers, as fast as they can; they come at once, or the first would be done before the last is there."""
    title = f"{count:,} triggers, as fast as they can"
    return Scenario(title, kinds, {"count": count, "interval": SATURATION, "polls": 9, "burst": True}, **more)


def paced(count: int, kinds: tuple[str, ...], **more: Any) -> Scenario:
    """So many triggers, a poll each five seconds."""
    given = {"count": count, "interval": 5.0, "polls": 2}
    return Scenario(f"{count:,} triggers, a poll each 5 s", kinds, given, **more)


def slow(delay: float) -> Scenario:
    """A service that takes its time."""
    given = {"count": 100, "interval": 1.0, "polls": 2, "delay": delay}
    columns = {"us_per_poll": "CPU us/poll", "peak": "connections", "wall_s": "s to the end"}
    return Scenario(f"100 triggers, a poll a second, answered in {delay * 1e3:.0f} ms", PAIR, given, columns, 2, 0.8)


def held(count: int, *, tls: bool, aim: float) -> Scenario:
    """Look at memory while all wait."""
    given = {"count": count, "interval": 2.0, "polls": None, "mode": "memory", "tls": tls}
    columns = {"kib_per_trigger": "KiB/trigger", "peak": "connections"}
    title = f"{count:,} triggers that wait{', TLS' if tls else ''}"
    aims = tuple(
        Aim(f"memory of {KINDS[kind]}, % of the best other", share(kind, "kib_per_trigger"), aim)
        for kind in (*OURS, *(["sleep"] if not tls else []))
    )
    kinds = PAIR if tls else (*PAIR, "dbt-cloud", "http-sensor", "sleep")
    return Scenario(title, kinds, given, columns, weight=2.5 if tls else 5.5, aims=aims)


AT_1000 = (
    Aim("polls per CPU s with [aiohttp], times the best other", gain("ours-aiohttp"), 3.0, least=True),
    Aim("the same with httpx", gain("ours-httpx"), 1.4, least=True),
    Aim(
        "cost of a poll with [aiohttp], times bare aiohttp in the same poller",
        lambda found: median(found["ours-aiohttp"], "us_per_poll") / median(found["raw-aiohttp"], "us_per_poll"),
        1.5,
    ),
    Aim("connections", worst("peak"), WORKERS),
    Aim("longest block, own part without gc, ms", worst("block_own_ms"), 50),
)
AT_5000 = (
    Aim("block, own part in 99 of 100 ticks, ms", worst("block_p99_ms"), 50),
    Aim("connections", worst("peak"), WORKERS),
)
STORM = {
    "refused": "refused in 5 s",
    "lost": "waits lost",
    "storm_cpu_ms": "CPU ms in the storm",
    "recovery_s": "s from its end to the last wait's",
    "peak": "connections",
}
SHARED = {
    "polls_per_interval": "polls per interval",
    "block_own_ms": "block of the fan-out ms, own part without gc",
    "gc_ms": "longest gc ms",
    "creation_block_ms": "block while created ms",
    "peak": "connections",
}
REAL = {
    "cpu_s": "CPU s, both",
    "runner_s": "runner",
    "supervisor_s": "supervisor",
    "kib_per_trigger": "KiB/trigger",
    "wall_s": "s to the end",
    "peak": "connections",
}

#: The parts of the page, in its order.
PARTS: dict[str, tuple[Scenario, ...]] = {
    "sizes": (
        saturated(100, ALL, rounds=3, weight=1.5),
        saturated(1000, ALL, weight=9.0, aims=AT_1000),
        saturated(5000, PAIR, weight=12.5, full=True, aims=AT_5000),
        saturated(10_000, PAIR, rounds=1, weight=4.0, full=True),
    ),
    "pace": (
        paced(100, PAIR, rounds=2, weight=2.0),
        paced(1000, FEW, rounds=2, weight=3.5),
        paced(5000, PAIR, rounds=2, weight=4.5, full=True, aims=AT_5000),
        paced(10_000, PAIR, rounds=1, weight=3.5, full=True),
    ),
    "tls": (
        Scenario(
            "500 triggers over TLS, as fast as they can",
            PAIR,
            {"count": 500, "interval": SATURATION, "polls": 9, "burst": True, "tls": True},
            weight=3.0,
        ),
    ),
    "delay": (slow(0.0), slow(0.05), slow(0.5)),
    "storm": (
        Scenario(
            "300 triggers at a poll a second; for 5 s everybody gets 429 with Retry-After: 1",
            (*PAIR, "http-sensor"),
            {"count": 300, "interval": 1.0, "polls": None, "mode": "storm"},
            STORM,
            2,
            2.0,
        ),
    ),
    "memory": (held(1000, tls=False, aim=33), held(500, tls=True, aim=10)),
    "fan-out": (
        Scenario(
            "5,000 triggers that wait for one job, a poll a second",
            OURS,
            {"count": 5000, "interval": 1.0, "polls": None, "mode": "fan-out"},
            SHARED,
            weight=4.0,
            aims=(
                Aim("polls of the job per interval", worst("polls_per_interval"), 1.2),
                Aim("block of the fan-out, own part without gc, ms", worst("block_own_ms"), 20),
            ),
        ),
    ),
    "triggerer": (
        Scenario(
            "500 triggers in a real triggerer, a poll a second",
            (*PAIR, "sleep"),
            {"count": 500, "interval": 1.0, "polls": 3, "mode": "real"},
            REAL,
            weight=11.0,
            aims=(
                Aim("CPU with [aiohttp], times less than the best other", gain("ours-aiohttp", "cpu_s"), 4, least=True),
                Aim("the same with httpx", gain("ours-httpx", "cpu_s"), 3, least=True),
                Aim("the same with a trigger that only sleeps", gain("sleep", "cpu_s"), 4, least=True),
                Aim(
                    "CPU beyond a trigger that sleeps, times less than the other", beyond("ours-aiohttp"), 4, least=True
                ),
                Aim("that with httpx", beyond("ours-httpx"), 3, least=True),
                Aim("memory with [aiohttp], % of the best other", share("ours-aiohttp", "kib_per_trigger"), 40),
                Aim("memory of a trigger that only sleeps, the same", share("sleep", "kib_per_trigger"), 40),
            ),
        ),
    ),
}
