"""The matrix of steps and faults, rows between Airflow and us, columns of processes: a test or a reason each.

Rows W0, W3, W7 and W9 to W14 are what a worker or triggerer does with Airflow; columns F15 (kill -9) and F16 (paused,
woken when superseded) are tried at every row. The other cells are the client's (tests/client). Each cell is a short
life in which that one thing goes wrong once; its verdict is what the task does then.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from simulation.faults import Cell, Life, Plan, Planned
from simulation.world import KEY, World, in_time_of

#: How a task ends and in which try: R goes on in the same one, S in the next, X ends at once, A asks a person next.
VERDICTS = {
    "R": {("success", 1)},
    "S": {("success", 2)},
    "X": {("failed", 1)},
    "A": {("failed", 2)},
    "R or S": {("success", 1), ("success", 2)},
    "R or A": {("success", 1), ("failed", 2)},
}
COLUMNS = tuple(f"F{number}" for number in range(1, 18))
AIRFLOW = "Airflow's own: the SDK repeats it five times, and what it raises then is the row's `store away`"
SMALL = "a record is below 1 KB: it is written in one piece"
NO_LIMIT = "Airflow's API has no rate limit"
NOT_OURS = "a request of Airflow's own, which the provider neither sends nor reads"
REPORT = "Airflow's own: the supervisor repeats the report, and plays it again when it starts anew"
NO_DISK = "nothing is written to a disk of ours there"

STORED = {
    **dict.fromkeys(("F1", "F2", "F3", "F9", "F10"), "store away: S"),
    "F4": SMALL,
    **dict.fromkeys(("F5", "F6", "F7"), "store answer lost: S"),
    "F8": NO_LIMIT,
    "F11": "paused before: R or S",
    "F12": NOT_OURS,
    "F13": NOT_OURS,
    "F14": "an answer to set has no content that we read",
    "F15": "killed before: S, killed after: S",
    "F16": "paused before: R or S, paused after: R or S",
    "F17": NO_DISK,
}
ROWS: dict[str, tuple[str, dict[str, str]]] = {
    "W0": (
        "load",
        STORED
        | dict.fromkeys(("F1", "F2", "F3", "F5", "F6", "F7", "F9", "F10"), "store away: S")
        | {"F14": "a record of an unknown version: X", "F17": "an expired record: R"},
    ),
    "W3": ("store initiated", STORED | {"F17": "clock skew: R"}),
    "W7": ("store sent", STORED),
    "W9": (
        "defer",
        {
            **dict.fromkeys(("F1", "F2", "F3", "F4", "F9", "F10"), REPORT),
            **dict.fromkeys(("F5", "F6", "F7", "F14"), "report lost: S"),
            "F8": NO_LIMIT,
            "F11": "paused before: R or S",
            "F12": "paused before: R or S",
            "F13": NOT_OURS,
            "F15": "killed before: S",
            "F16": "paused before: R or S",
            "F17": NO_DISK,
        },
    ),
    "W10": (
        "trigger",
        {
            "F1": "unreachable: R",
            "F2": "unreachable: R",
            "F3": "untrusted: S",
            "F4": "stalled: R",
            "F5": "reset: R",
            "F6": "answer lost: R",
            "F7": "answer cut: S",
            "F8": "busy: R",
            "F9": "unavailable: R, failed after all: R",
            "F10": "unauthorized: S, forbidden: S",
            "F11": "not found: R",
            "F12": "a job is read without a condition, a length or an input that could be refused",
            "F13": "redirected: S",
            "F14": "malformed: S, odd status: R",
            "F15": "triggerer killed: R",
            "F16": "triggerer paused: R",
            "F17": "clock skew: R",
        },
    ),
    "W11": (
        "event",
        {
            **dict.fromkeys(("F1", "F2", "F3", "F4", "F8", "F9", "F10", "F12", "F13"), NOT_OURS),
            **dict.fromkeys(("F5", "F6", "F7"), "event lost: R"),
            "F11": "event twice: R",
            "F14": "event garbled: S, trigger failed: R",
            "F15": "event lost: R",
            "F16": "event twice: R",
            "F17": NO_DISK,
        },
    ),
    "W12": (
        "resume",
        {
            **dict.fromkeys(("F1", "F2", "F3", "F4", "F8", "F9", "F10", "F11", "F12", "F13"), NOT_OURS),
            **dict.fromkeys(("F5", "F6", "F7", "F14"), "dag unloadable: R"),
            "F15": "killed before: S",
            "F16": "paused before: R or S",
            "F17": NO_DISK,
        },
    ),
    "W13": ("store done", STORED),
    "W14": (
        "report",
        {
            **dict.fromkeys(("F1", "F2", "F3", "F4", "F9", "F10"), REPORT),
            **dict.fromkeys(("F5", "F6", "F7", "F14"), "report lost: S"),
            "F8": NO_LIMIT,
            "F11": "paused before: R or S",
            "F12": NOT_OURS,
            "F13": NOT_OURS,
            "F15": "killed before: S",
            "F16": "paused before: R or S",
            "F17": NO_DISK,
        },
    ),
}
KILLED, PAUSED = "killed before: S, killed after: S", "paused before: R or S, paused after: R or S"
READS_ONLY = "a query changes nothing; test_crashes.py kills it at each boundary over real sockets"
DOWNLOADS = "the target is renamed into place whole: tests/client/test_transfers.py"
#: The rows of which only the columns of processes are ours: phase, life, F15, F16.
PROCESSES: dict[str, tuple[str, Life, str, str]] = {
    "W1": ("info", Life("append", deferred=True), KILLED, PAUSED),
    "W2": ("initiate", Life("append", deferred=True), KILLED, PAUSED),
    "W4": ("seen", Life("append", deferred=True), KILLED, PAUSED),
    "W5": ("source", Life("append", deferred=True), KILLED, PAUSED),
    "W6": ("put", Life("append", deferred=True), f"{KILLED}, killed within: S", f"{PAUSED}, paused within: R or S"),
    "W8": ("poll", Life("append", deferred=False), KILLED, PAUSED),
    "Q1": ("", Life("", deferred=True), READS_ONLY, READS_ONLY),
    "Q2": ("", Life("", deferred=True), READS_ONLY, READS_ONLY),
    **dict.fromkeys(("Q3", "Q4", "Q5"), ("", Life("", deferred=True), DOWNLOADS, DOWNLOADS)),
    "J1": ("", Life("", deferred=True), "a page is read again, from its beginning", "a read harms nobody"),
    "D1": (
        "delete",
        Life("delete_rows", deferred=True),
        "killed before: A, killed after: A",
        "paused before: R or A, paused after: R or A",
    ),
    "T1": ("truncate", Life("truncate", deferred=True), "killed before: A, killed after: S", PAUSED),
    "T2": ("truncated", Life("truncate", deferred=True), KILLED, PAUSED),
}


def cells() -> list[tuple[str, str, Life, str]]:
    """Give every cell: its name, phase, life, and what is tried, or why nothing is."""
    append = Life("append", deferred=True)
    found = [(f"{r} {c}", phase, append, row[c]) for r, (phase, row) in ROWS.items() for c in COLUMNS]
    for name, (phase, life, killed, paused) in PROCESSES.items():
        found += [(f"{name} F15", phase, life, killed), (f"{name} F16", phase, life, paused)]
    return found


def tries() -> list[tuple[str, str, Life, str, str]]:
    """Give every fault that is tried: its cell, phase, life, fault and verdict."""
    parts = [(name, phase, life, part) for name, phase, life, what in cells() for part in what.split(", ")]
    split = [(name, phase, life, *part.rpartition(": ")[::2]) for name, phase, life, part in parts]
    return [one for one in split if one[4] in VERDICTS]


def outdated(world: World) -> None:
    world.values[KEY] = {"v": 99, "phase": "sent", "max_tries": 4, "clear_number": 0}


def expired(world: World) -> None:
    world.values.clear()


PREPARED: dict[str, Callable[[World], None]] = {
    "a record of an unknown version": outdated,
    "an expired record": expired,
}


def live(life: Life, phase: str, fault: str, chance: int) -> World | None:
    """Live a life in which one thing goes wrong; give the world after it, None if life took another way."""
    cell = Cell("world" if fault == "clock skew" else phase, fault)
    plan = Plan([] if fault in PREPARED else [Planned(cell)])
    world = World(random.Random(chance), life, plan)  # noqa: S311  # repeatable, and no secret
    if fault in PREPARED:
        PREPARED[fault](world)
    with in_time_of(world):
        world.run()
    return world if all(planned.happened for planned in plan.faults) else None


@pytest.mark.parametrize(
    ("name", "phase", "life", "fault", "verdict"),
    tries(),
    ids=lambda value: "" if isinstance(value, Life) else str(value),
)
def test_a_fault_at_a_step_ends_as_the_matrix_says(name: str, phase: str, life: Life, fault: str, verdict: str) -> None:
    worlds = [world for chance in range(1, 7) if (world := live(life, phase, fault, chance))]
    assert len(worlds) > 1
    assert {world.ends[0] for world in worlds} <= VERDICTS[verdict]
    assert {world.done for world in worlds} <= ({0, 1} if verdict in ("A", "R or A", "X") else {1})


def test_a_paused_try_is_superseded_in_some_of_these_lives() -> None:
    worlds = [live(Life("append", deferred=True), "put", "paused within", chance) for chance in range(1, 9)]
    assert {world.number for world in worlds if world} == {1, 2}


@pytest.mark.parametrize("fault", ["untrusted", "unauthorized", "forbidden", "not found", "refused", "redirected"])
@pytest.mark.parametrize("op", ["append", "truncate", "delete_rows"])
def test_what_is_done_succeeds_although_its_table_cannot_be_read_then(op: str, fault: str) -> None:
    worlds = [live(Life(op, deferred=True), "result", fault, chance) for chance in range(1, 5)]
    assert {end for world in worlds if world for end in world.ends} == {("success", 1)}


def test_every_cell_is_tried_or_its_reason_is_stated(say: Callable[[str], None]) -> None:
    tried = {name for name, *_ in tries()}
    stated = {name for name, _, _, what in cells() if name not in tried and what}
    assert len(tried) + len(stated) == len(cells()) == 9 * 17 + 15 * 2
    say(f"matrix of steps and faults: {len(tried)} cells tried in {len(tries())} ways, {len(stated)} reasons")
