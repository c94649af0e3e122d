"""Every order of every step of a small world, decided by the real `begin`, `weigh` and `unanswered`.

What the protocol promises holds in all of them; without any one of its rules, or of the assumptions that it rests
on, some order breaks it, and the shortest such order is printed (`-rP`). The bounds are small here; the large ones
are `python tests/proofs/orders.py`'s.
"""

from __future__ import annotations

from dataclasses import fields

import pytest
from orders.rules import ASSUMPTIONS, RULES, WORLDS, Case
from orders.tries import Order
from orders.world import Service


def named(case: Case) -> str:
    return case.name


@pytest.mark.parametrize("case", WORLDS, ids=named)
def test_no_order_of_steps_breaks_a_law_and_some_lead_to_success(case: Case) -> None:
    found = case.search()

    assert not found.broken, found
    assert "ok" in found.ends


@pytest.mark.parametrize("case", RULES, ids=named)
def test_without_one_of_the_rules_some_order_breaks_a_law(case: Case) -> None:
    found = case.search()
    print(f"without {case.name}{case.given and f' (and {case.given})'}: {found}")

    assert found.broken == case.law


@pytest.mark.parametrize("case", ASSUMPTIONS, ids=named)
def test_without_one_of_the_assumptions_some_order_breaks_a_law(case: Case) -> None:
    found = case.search()
    print(f"without {case.name}{case.given and f' (and {case.given})'}: {found}")

    assert found.broken == case.law


def test_every_rule_of_order_and_every_assumption_is_taken_away_in_turn() -> None:
    rules = {field.name for field in fields(Order) if field.type == "bool"}
    assumptions = {field.name for field in fields(Service)} - {"tells", "forgets", "prompt"}  # either way is a world

    assert rules == {name for name in rules for case in RULES if not getattr(case.order, name)}
    assert assumptions == {name for name in assumptions for case in ASSUMPTIONS if not getattr(case.service, name)}
