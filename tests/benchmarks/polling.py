"""What a poll costs the triggerer, side by side with the triggers of other providers, against one stub service.

    python tests/benchmarks/polling.py                      100 and 1,000 triggers, as fast as they can
    python tests/benchmarks/polling.py --full               also 5,000 and 10,000, and at a pace of 5 s
    python tests/benchmarks/polling.py --rounds 3 --write   fewer rounds; puts table and plot into docs/

The others' own classes are installed once into a folder beside the environment, without what they depend on
beyond Airflow and aiohttp. Each run is a process of its own; kinds take turns within a round. Trust ratios
within one run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PEERS = ROOT / ".venv" / "peers"
PINS = (
    "apache-airflow-providers-databricks==7.23.0",
    "apache-airflow-providers-dbt-cloud==4.11.1",
    "apache-airflow-providers-http==6.3.0",
    "requests-toolbelt==1.0.0",
)
KINDS = {
    "ours-aiohttp": "airflow-tds, [aiohttp]",
    "ours-httpx": "airflow-tds, httpx",
    "raw-aiohttp": "our poller on bare aiohttp",
    "null": "our poller without HTTP",
    "databricks": "Databricks",
    "dbt-cloud": "dbt Cloud",
    "http-sensor": "HTTP sensor",
}
THEIRS = ("databricks", "dbt-cloud", "http-sensor")
#: Polls of a job before its last one.
POLLS = 5
SATURATION = 0.001
PACE = 5.0
COLUMNS = {
    "us_per_poll": "CPU us/poll",
    "polls_per_cpu_s": "polls per CPU s",
    "kib_per_trigger": "KiB/trigger",
    "connections": "connections",
    "block_ms": "longest block ms",
    "gc_ms": "of it gc ms",
}
BEGIN, END = "<!-- printed by tests/benchmarks/polling.py -->", "<!-- end -->"


def install() -> list[str]:
    """Install the other providers, once; give the kinds that can be measured."""
    if not (PEERS / "airflow").exists():
        base = str(getattr(sys, "_base_executable", sys.executable))  # the environment itself has no pip
        pip = (base, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(PEERS), *PINS)
        if subprocess.run(pip, check=False).returncode:
            print("The other providers cannot be installed; measuring ours only.")
            return [kind for kind in KINDS if kind not in THEIRS]
    return list(KINDS)


def run(kind: str, count: int, interval: float, polls: int) -> dict[str, Any]:
    """Measure one kind once, with a stub and a process of its own."""
    with tempfile.TemporaryDirectory(prefix="airflow-tds-bench-") as home:
        env = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
        env |= {"AIRFLOW_HOME": home, "PYTHONPATH": str(PEERS), "PYTHONWARNINGS": "ignore"}
        env["AIRFLOW__LOGGING__LOGGING_LEVEL"] = "ERROR"  # the line per poll that some write is not what is measured
        with subprocess.Popen(
            [sys.executable, str(HERE / "parts" / "stub.py"), str(polls)], stdout=subprocess.PIPE, text=True
        ) as stub:
            try:
                assert stub.stdout is not None
                port = stub.stdout.readline().strip()
                command = [sys.executable, str(HERE / "parts" / "load.py"), kind, str(count), str(interval), port]
                done = subprocess.run([*command, str(polls)], env=env, capture_output=True, text=True, check=False)
            finally:
                stub.kill()
    if done.returncode:
        sys.exit(f"{kind} broke:\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    expected = count * (polls + (2 if kind == "databricks" else 1))
    assert found["polls"] >= expected, f"{kind}: {found['polls']} polls of {expected}"
    return found


def measure(count: int, interval: float, rounds: int, kinds: list[str]) -> dict[str, list[dict[str, Any]]]:
    """Let the kinds take turns."""
    polls = POLLS if interval == SATURATION else 2
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in kinds}
    for number in range(rounds):
        for kind in kinds if number % 2 == 0 else kinds[::-1]:
            found[kind].append(run(kind, count, interval, polls))
            print(".", end="", flush=True)
    print()
    return found


def median(runs: list[dict[str, Any]], column: str) -> float:
    """Give the middle of a column."""
    return float(statistics.median(one[column] for one in runs))


def table(found: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Write medians as a table; the spread is that of the CPU time, from the smallest to the largest run."""
    lines = ["| | " + " | ".join([*COLUMNS.values(), "spread us", "to the best other"]) + " |"]
    lines.append("|---|" + "---:|" * (len(COLUMNS) + 2))
    others = [median(found[kind], "us_per_poll") for kind in THEIRS if kind in found]
    for kind, runs in found.items():
        cells = [f"{median(runs, column):,.0f}" for column in COLUMNS]
        costs = [one["us_per_poll"] for one in runs]
        ratio = f"{min(others) / median(runs, 'us_per_poll'):.1f} x" if others else ""
        lines.append("| " + " | ".join([KINDS[kind], *cells, f"{min(costs):.0f}-{max(costs):.0f}", ratio]) + " |")
    return lines


def plot(found: dict[str, list[dict[str, Any]]]) -> str:
    """Draw cost per poll and the longest block as bars, side by side; memory is not to be compared (see the page)."""
    parts = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 290" font-family="sans-serif" font-size="13">']
    parts.append('<rect width="900" height="290" fill="white"/>')
    for left, column, title in (
        (190, "us_per_poll", "CPU per poll, us"),
        (560, "block_ms", "longest block of the loop, ms"),
    ):
        most = max(median(runs, column) for runs in found.values())
        parts.append(f'<text x="{left}" y="24" font-weight="bold">{title} (1,000 triggers)</text>')
        for row, (kind, runs) in enumerate(found.items()):
            value, top = median(runs, column), 42 + row * 34
            fill = "#1f77b4" if kind.startswith("ours") else "#bbbbbb"
            width = max(1.0, value / most * 260)
            parts.append(f'<rect x="{left}" y="{top}" width="{width:.0f}" height="22" fill="{fill}"/>')
            parts.append(f'<text x="{left + width + 6:.0f}" y="{top + 16}">{value:,.0f}</text>')
            if column == "us_per_poll":
                parts.append(f'<text x="{left - 8}" y="{top + 16}" text-anchor="end">{KINDS[kind]}</text>')
    return "\n".join([*parts, "</svg>", ""])


def machine() -> str:
    """Say where it was measured, and with what."""
    names = ("apache-airflow", "httpx", "httpcore", "aiohttp")
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in names)
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown")
    load = f"load {os.getloadavg()[0]:.1f} at the start"
    return f"{os.cpu_count()} cores ({model}), {load}, Python {platform.python_version()}, {versions}"


def main() -> None:
    """Measure, print, and write if told to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="5,000 and 10,000 triggers, and a pace of 5 s")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="put table and plot into docs/")
    options = parser.parse_args()
    kinds = install()
    few = [kind for kind in kinds if kind not in ("dbt-cloud", "http-sensor")]
    scenarios = [(100, SATURATION, options.rounds, kinds), (1000, SATURATION, options.rounds, kinds)]
    if options.full:
        scenarios += [(1000, PACE, 1, few), (5000, SATURATION, 1, few), (10_000, SATURATION, 1, few)]
    printed = [machine(), ""]
    for count, interval, rounds, measured in scenarios:
        found = measure(count, interval, rounds, measured)
        pace = "as fast as they can" if interval == SATURATION else f"a poll each {interval:.0f} s"
        runs = "one run" if rounds == 1 else f"median of {rounds} runs"
        printed += [f"**{count:,} triggers, {pace}** ({runs})", "", *table(found), ""]
        print("\n".join(printed[-len(found) - 5 :]), flush=True)
        if options.write and (count, interval) == (1000, SATURATION):
            (ROOT / "docs" / "performance.svg").write_text(plot(found))
    if options.write:
        page = ROOT / "docs" / "performance.md"
        head, rest = page.read_text().split(BEGIN)
        page.write_text(f"{head}{BEGIN}\n\n" + "\n".join(printed) + f"\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    main()
