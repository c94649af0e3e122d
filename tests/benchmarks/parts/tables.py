"""How results are shown: tables and aims for a page, bars as SVG; and where they stand on the page."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

from scenarios import KINDS, THEIRS, Found, Scenario, median

__all__ = ["machine", "plot", "put", "shown"]


def machine() -> str:
    """Say where it is measured, and with what."""
    names = ("apache-airflow", "httpx", "httpcore", "aiohttp")
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in names)
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown")
    return f"{os.cpu_count()} cores ({model}), Python {platform.python_version()}, {versions}"


def number(value: float) -> str:
    """Write a figure: whole where it is large."""
    return f"{value:,.0f}" if abs(value) >= 10 or value == int(value) else f"{value:.1f}"


def shown(scenario: Scenario, found: Found, load: float) -> list[str]:
    """Write medians as a table, with the spread of the first column; then what was aimed at."""
    first = next(iter(scenario.columns))
    others = [median(found[kind], first) for kind in THEIRS if kind in found]
    rounds = len(next(iter(found.values())))
    lines = [
        f"**{scenario.title}** ({'one run' if rounds == 1 else f'median of {rounds} rounds'}, load {load:.1f})",
        "",
    ]
    lines.append("| | " + " | ".join([*scenario.columns.values(), "spread of the first", "best other / it"]) + " |")
    lines.append("|---|" + "---:|" * (len(scenario.columns) + 2))
    for kind, runs in found.items():
        cells = [number(median(runs, column)) for column in scenario.columns]
        costs, middle = [one[first] for one in runs], median(runs, first)
        ratio = f"{min(others) / middle:.1f} x" if others and middle > 0 else ""
        spread = f"{number(min(costs))} - {number(max(costs))}"
        lines.append("| " + " | ".join([KINDS[kind], *cells, spread, ratio]) + " |")
    if scenario.aims and others:
        lines += ["", "| aim | bound | measured | |", "|---|---:|---:|---|"]
        lines += [aim.row(found) for aim in scenario.aims]
    elif scenario.aims:
        own = [aim for aim in scenario.aims if "other" not in aim.words and "httpx" not in aim.words]
        lines += ["", "| aim | bound | measured | |", "|---|---:|---:|---|", *(aim.row(found) for aim in own)]
    return [*lines, ""]


def plot(scenario: Scenario, found: Found) -> str:
    """Draw the first two columns, or the first and the longest block, as bars side by side."""
    columns = [name for name in scenario.columns if name != "polls_per_cpu_s"]
    second = "block_own_ms" if "block_own_ms" in columns[1:] else columns[1]
    high = 44 + 34 * len(found)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 {high}" font-family="sans-serif" font-size="13">'
    ]
    parts.append(f'<rect width="900" height="{high}" fill="white"/>')
    for left, column in ((190, columns[0]), (560, second)):
        most = max(1e-9, *(median(runs, column) for runs in found.values()))
        title = f"{scenario.columns[column]} ({scenario.given['count']:,} triggers)"
        parts.append(f'<text x="{left}" y="24" font-weight="bold">{title}</text>')
        for row, (kind, runs) in enumerate(found.items()):
            value, top = median(runs, column), 42 + row * 34
            fill = "#1f77b4" if kind.startswith("ours") else "#bbbbbb"
            width = max(1.0, value / most * 260)
            parts.append(f'<rect x="{left}" y="{top}" width="{width:.0f}" height="22" fill="{fill}"/>')
            parts.append(f'<text x="{left + width + 6:.0f}" y="{top + 16}">{number(value)}</text>')
            if column == columns[0]:
                parts.append(f'<text x="{left - 8}" y="{top + 16}" text-anchor="end">{KINDS[kind]}</text>')
    return "\n".join([*parts, "</svg>", ""])


def put(page: Path, part: str, lines: list[str]) -> None:
    """Put a part's results between its marks on the page.

    Raises:
        ValueError: The page has no such marks.
    """
    begin, end = f"<!-- polling.py: {part} -->", "<!-- end -->"
    head, mark, rest = page.read_text().partition(begin)
    if not mark or end not in rest:
        raise ValueError(f"{page} has no marks for {part}")
    page.write_text(f"{head}{begin}\n\n" + "\n".join(lines).rstrip() + f"\n\n{end}{rest.partition(end)[2]}")
