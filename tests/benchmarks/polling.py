"""What a wait costs the triggerer, side by side with the triggers of other providers, against one stub service.

    python tests/benchmarks/polling.py                          within 12 minutes
    python tests/benchmarks/polling.py --full                   also 5,000 and 10,000 triggers, within 70 minutes
    python tests/benchmarks/polling.py --only pace,tls --write  some parts; puts tables and plots into docs/

The others' own classes are installed once into a folder beside the environment, without what they depend on
beyond Airflow and aiohttp. Each run is a process of its own; kinds take turns within a round. Rounds are left out
where time is short, and the tables say how many there were. Trust ratios within one run.

What is measured stands in parts/scenarios.py, how it is shown in parts/tables.py, one run in parts/load.py, or in
parts/triggerer.py for a real triggerer.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE / "parts"), str(ROOT / "tests" / "support")]

from certificates import Authority  # noqa: E402  # found by the line above
from scenarios import PARTS, THEIRS, Scenario  # noqa: E402
from tables import machine, plot, put, shown  # noqa: E402

PEERS = ROOT / ".venv" / "peers"
PINS = (
    "apache-airflow-providers-databricks==7.23.0",
    "apache-airflow-providers-dbt-cloud==4.11.1",
    "apache-airflow-providers-http==6.3.0",
    "requests-toolbelt==1.0.0",
)
DOCS = ROOT / "docs"
#: Minutes that a run may take.
MINUTES, FULL_MINUTES = 12.0, 70.0
#: Parts of the page that are scripts of their own, with a weight in time.
SCRIPTS = {"pages": ("pages.py", 0.5), "worker": ("worker.py", 2.0)}
Found = dict[str, list[dict[str, Any]]]


def installed() -> bool:
    """Install the other providers, once; say whether they are there."""
    if not (PEERS / "airflow").exists():
        base = str(getattr(sys, "_base_executable", sys.executable))  # the environment itself has no pip
        pip = (base, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(PEERS), *PINS)
        if subprocess.run(pip, check=False).returncode:
            print("The other providers cannot be installed; measuring ours only.")
            return False
    return True


@contextlib.contextmanager
def stub(given: dict[str, Any], certificate: str | None) -> Iterator[dict[str, Any]]:
    """Start a stub service; give where it is."""
    told = json.dumps({"polls": given["polls"], "delay": given.get("delay", 0.0), "certificate": certificate})
    command = [sys.executable, str(HERE / "parts" / "stub.py"), told]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
        try:
            assert service.stdout is not None
            port, control = map(int, service.stdout.readline().split())
            yield {"port": port, "control": control, "url": f"{'https' if certificate else 'http'}://127.0.0.1:{port}"}
        finally:
            service.kill()


def run(kind: str, given: dict[str, Any]) -> dict[str, Any]:
    """Measure one kind once, with a stub and a process of its own."""
    with tempfile.TemporaryDirectory(prefix="airflow-tds-bench-") as home, contextlib.ExitStack() as stack:
        env = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
        env |= {"AIRFLOW_HOME": home, "PYTHONPATH": str(PEERS), "PYTHONWARNINGS": "ignore"}
        env["AIRFLOW__LOGGING__LOGGING_LEVEL"] = "ERROR"  # the line per poll that some write is not what is measured
        authority = Authority(Path(home)) if given.get("tls") else None
        certificate = None if authority is None else authority.issue("service")
        where = stack.enter_context(stub(given, certificate))
        whole = {"mode": "run", "ca": None if authority is None else authority.bundle} | given | where | {"kind": kind}
        if authority:
            env["SSL_CERT_FILE"] = authority.bundle  # whom the others trust
        script = HERE / "parts" / ("triggerer.py" if whole["mode"] == "real" else "load.py")
        command = [sys.executable, str(script), json.dumps(whole)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{kind} broke:\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if whole["mode"] == "run":
        expected = given["count"] * (given["polls"] + (2 if kind == "databricks" else 1))
        assert found["polls"] >= expected, f"{kind}: {found['polls']} polls of {expected}"
    return found


def measure(scenario: Scenario, seconds: float, most: int | None, *, peers: bool, count: int | None) -> Found:
    """Let the kinds take turns, for as many rounds as there is time, but one at least."""
    kinds = [kind for kind in scenario.kinds if peers or kind not in THEIRS]
    given = scenario.given | ({} if count is None else {"count": min(count, scenario.given["count"])})
    found: Found = {kind: [] for kind in kinds}
    begun = time.monotonic()
    for number in range(most or scenario.rounds):
        spent = time.monotonic() - begun
        if number and spent + spent / number > seconds:
            break
        for kind in kinds if number % 2 == 0 else kinds[::-1]:
            found[kind].append(run(kind, given))
            print(".", end="", flush=True)
    print(flush=True)
    return found


def scripted(part: str) -> list[str]:
    """Run a script that is a part of the page; give what it printed."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    env |= {"PYTHONPATH": str(PEERS), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, str(HERE / SCRIPTS[part][0])]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"{part} broke")
    return [*done.stdout.splitlines(), ""]


class Session:
    """One run of this command: its parts, its time, what it has written down."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.peers = installed()
        self.minutes = options.minutes or (FULL_MINUTES if options.full else MINUTES)
        self._end = time.monotonic() + self.minutes * 60
        self.wanted = {part: self._scenarios(part) for part in options.only if part in PARTS}
        self.scripts = [part for part in options.only if part in SCRIPTS and (options.full or part != "worker")]
        self._left = sum(one.weight for scenarios in self.wanted.values() for one in scenarios)
        self._left += sum(SCRIPTS[part][1] for part in self.scripts)

    def _scenarios(self, part: str) -> list[Scenario]:
        return [scenario for scenario in PARTS[part] if self.options.full or not scenario.full]

    def measure(self) -> None:
        """Measure all that is wanted."""
        for part, scenarios in self.wanted.items():
            lines = [machine(), ""]
            for number, scenario in enumerate(scenarios):
                lines += self._scenario(scenario, f"performance-{part}{number or ''}.svg")
            self._write(part, lines)
        for part in self.scripts:
            load = os.getloadavg()[0]
            lines = scripted(part)
            print("\n".join(lines), flush=True)
            self._write(part, [f"{machine()}, load {load:.1f}", "", *lines])

    def _scenario(self, scenario: Scenario, plotted: str) -> list[str]:
        seconds = max(0.0, self._end - time.monotonic()) * scenario.weight / self._left
        self._left -= scenario.weight
        load, options = os.getloadavg()[0], self.options
        found = measure(scenario, seconds, options.rounds, peers=self.peers, count=options.count)
        lines = shown(scenario, found, load)
        print("\n".join(lines), flush=True)
        if options.write:
            (DOCS / plotted).write_text(plot(scenario, found))
            lines += [f"![{scenario.title}]({plotted})", ""]
        return lines

    def _write(self, part: str, lines: list[str]) -> None:
        if self.options.write:
            put(DOCS / "performance.md", part, lines)


def main() -> None:
    """Measure, print, and write if told to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = [*PARTS, *SCRIPTS]
    parser.add_argument("--full", action="store_true", help="5,000 and 10,000 triggers too, and a worker's part")
    parser.add_argument("--only", type=lambda text: text.split(","), default=every, help=f"of {','.join(every)}")
    parser.add_argument("--rounds", type=int, help="at most; default: as each part has it")
    parser.add_argument("--minutes", type=float, help=f"rounds are left out to keep it; {MINUTES:g}, {FULL_MINUTES:g}")
    parser.add_argument("--count", type=int, help="triggers at most, for a try")
    parser.add_argument("--write", action="store_true", help="put tables and plots into docs/")
    options = parser.parse_args()
    if unknown := set(options.only) - set(every):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    Session(options).measure()


if __name__ == "__main__":
    main()
