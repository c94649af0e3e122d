"""Tries that die, and clears, at every boundary of every kind of life, in virtual time; test_crashes.py has some of it
over real sockets."""

from __future__ import annotations

import pytest
from simulation.faults import WRITES, Life
from simulation.schedules import LIVES, TWICE, Lived, schedules


def fits(life: Life, lived: Lived) -> bool:
    """Say whether a life ended as it may."""
    if lived.state == "success":
        return "clear" in lived.name or life.op == "truncate" or lived.done == 1
    if "clear" in lived.name:  # done and cleared: an upload is no later load; or it is not certain that it was cleared
        return lived.outcome in ("FinalConflict", "FinalAmbiguousWriteError")
    asks = life.op not in WRITES or life.strategy != "initiate_put"
    return asks and lived.outcome == "FinalAmbiguousWriteError"


@pytest.mark.parametrize("life", LIVES, ids=lambda life: f"{life.op}-{life.strategy}-{life.deferred}")
def test_no_schedule_of_deaths_and_clears_breaks_a_promise(life: Life) -> None:
    lived = list(schedules(life))
    assert [one for one in lived if one.broken or not fits(life, one)] == []
    assert len(lived) > (600 if life in TWICE else 40)


def test_a_life_that_is_only_cut_short_before_its_request_needs_nobody() -> None:
    commit = [one for one in schedules(Life("append", deferred=True, strategy="put_commit")) if "clear" not in one.name]
    doubted = [one.name for one in commit if one.state == "failed"]
    assert doubted == [
        "die after store committing",
        "die before commit",
        "die after commit",
        "die before store sent",
    ]
