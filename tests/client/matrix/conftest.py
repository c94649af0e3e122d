"""Counts the cells of the fault matrix that were tried, and says so at the end of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

#: The steps of a client that can meet a fault, and the faults: 210 cells.
STEPS = ("W1", "W2", "W4", "W5", "W6", "W8", "Q1", "Q2", "Q3", "Q4", "J1", "D1", "T1", "T2")
FAULTS = (*(f"F{number}" for number in range(1, 15)), "F17")


class Cell(NamedTuple):
    """What is expected of one step that meets one fault; see cells.txt."""

    step: str
    fault: str
    action: str
    once: int = 0
    lasting: int = 0
    error: str = ""
    outcome: str = ""

    def __str__(self) -> str:
        return f"{self.step} {self.fault}"


def read() -> tuple[list[Cell], set[tuple[str, str]]]:
    """Read the table: cells to try, and those that cannot be."""
    cells, impossible = [], set()
    for line in Path(__file__).with_name("cells.txt").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        steps, faults, action, *rest = line.split()
        pairs = [(step, fault) for step in steps.split(",") for fault in faults.split(",")]
        if action == "-":
            impossible |= set(pairs)
            continue
        once, lasting = map(int, rest[0].split("/"))
        cells += [Cell(step, fault, action, once, lasting, *rest[1:]) for step, fault in pairs]
    return cells, impossible


CELLS, IMPOSSIBLE = read()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "cell" in metafunc.fixturenames:
        metafunc.parametrize("cell", CELLS, ids=str)
    if "passing" in metafunc.fixturenames:  # what ends at once, ends so whether the fault lasts or not
        metafunc.parametrize("passing", [cell for cell in CELLS if cell.action in "RW"], ids=str)


@pytest.fixture(scope="session")
def tried(say: Callable[[str], None]) -> Iterator[set[tuple[str, str]]]:
    """Cells, and the face that tried them; counted at the end."""
    tried: set[tuple[str, str]] = set()
    yield tried
    cells = {(name.split(" ")[0], name.split(" ")[1].partition(".")[0]) for name, _ in tried}
    faces, ways = {face for _, face in tried}, {name for name, _ in tried}
    possible = {(cell.step, cell.fault.partition(".")[0]) for cell in CELLS}
    say(
        f"fault matrix: {len(cells)} of {len(STEPS) * len(FAULTS)} cells tried in {len(ways)} ways on {len(faces)}"
        f" faces, each fault once and lasting; {len(STEPS) * len(FAULTS) - len(possible)} impossible"
    )
