"""Seeded worlds in virtual time over the provider's own code; `python3 tests/run.py simulate` lives many more."""

from __future__ import annotations

import pytest
from simulation.faults import CELLS
from simulation.world import story

SLICES = pytest.mark.parametrize("first", range(0, 2000, 250))


@SLICES
def test_no_seed_breaks_a_promise(first: int) -> None:
    told = [story(seed) for seed in range(first, first + 250)]
    assert [f"{one.broken}: python3 tests/run.py simulate -- --seed {one.seed}" for one in told if one.broken] == []


def test_a_seed_tells_the_same_story_again() -> None:
    assert story(8, trace=True).lines == story(8, trace=True).lines
    assert story(8, trace=True).lines != story(9, trace=True).lines


def test_the_seeds_take_the_faults_in_turn() -> None:
    happened = {cell for seed in range(len(CELLS)) for cell in story(seed).hits}
    assert len(happened) > 0.9 * len(CELLS)


@pytest.mark.parametrize("without", ["record", "fence", "A1", "A2", "A3", "A4"])
def test_without_a_rule_or_an_assumption_some_seed_breaks_a_promise(without: str) -> None:
    broken = (told.broken for seed in range(4000) if (told := story(seed, without=without)).broken)
    assert "applied 2 times, asked for 1" in next(broken, "no seed breaks one")
