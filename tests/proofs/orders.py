"""Every order of every step of a write, in large bounds: what holds, and what falls without each rule.

    python tests/proofs/orders.py             minutes, and some 2 GB
    python tests/proofs/orders.py --traces    each counterexample, step by step

The worlds, the rules and the assumptions are tests/support/orders'; the decisions are the provider's own.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from orders.rules import ASSUMPTIONS, LARGE_WORLDS, RULES, WORLDS, Case


def show(title: str, cases: Iterable[Case], *, traces: bool) -> tuple[int, int]:
    """Search each case and print what was found; give the states, and how many were not as expected."""
    print(f"\n{title}")
    states = wrong = 0
    for case in cases:
        begun = time.monotonic()
        found = case.search()
        expected = found.broken == case.law
        mark, verdict = "  " if expected else "! ", found.broken or "safe"
        given = f" (and {case.given})" if case.given else ""
        print(
            f"{mark}{case.name + given:98} {found.states:>9,}  {verdict}  {time.monotonic() - begun:.1f} s", flush=True
        )
        if not expected or (traces and found.broken):
            print(found)
        states, wrong = states + found.states, wrong + (not expected)
    return states, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--traces", action="store_true", help="print each counterexample")
    traces = parser.parse_args().traces
    parts = {
        "Nothing must fall, small bounds": WORLDS,
        "Nothing must fall, large bounds": LARGE_WORLDS,
        "Without a rule: what falls": RULES,
        "Without an assumption: what falls": ASSUMPTIONS,
    }
    found = [show(title, cases, traces=traces) for title, cases in parts.items()]
    wrong = sum(each for _, each in found)
    cases = sum(len(part) for part in parts.values())
    print(f"\n{cases} cases, {sum(states for states, _ in found):,} states, {wrong} not as expected")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
