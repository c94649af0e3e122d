"""Take each law out of the poller, and see its tests fail.

    python tests/proofs/laws.py             some minutes
    python tests/proofs/laws.py --law 5     one law

In a copy of the package, the poller's source is changed as tests/support/poller_laws.py says; then the tests of that
law run there. A removal that no test notices is an error, and so is a test that fails while the law stands.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from poller_laws import LAWS, SOURCE, Law, without

ROOT = Path(__file__).parents[2]
PARTS = ("airflow_tds", "tests/polling", "tests/support", "example_dags", "requirements")
FAILED = 1
#: Without a law, some wait for ever: this ends them sooner.
HANGS = "--timeout=60"


def copied(folder: Path) -> None:
    """Copy what the tests of the poller need."""
    for part in PARTS:
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    shutil.copy(ROOT / "tests" / "conftest.py", folder / "tests")


def failed(folder: Path, law: Law) -> str:
    """Run a law's tests in the copy, up to the first that fails; name it, empty if none does."""
    words = ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", HANGS, "tests/polling", "-k", law.tests)
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([sys.executable, *words], cwd=folder, env=env, capture_output=True, text=True, check=False)
    if done.returncode not in (0, FAILED):
        sys.exit(f"law {law.number}: the tests cannot run\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return next((line.split("::")[1] for line in done.stdout.splitlines() if line.startswith("FAILED")), "")


def tried(folder: Path, law: Law) -> list[str]:
    """Say what is wrong with a law: nothing, if its tests pass with it and fail without it."""
    source = (ROOT / SOURCE).read_text()
    (folder / SOURCE).write_text(source)
    standing = failed(folder, law)
    wrong = [f"{standing} fails although it stands"] if standing else []
    for number, removal in enumerate(law.removals, start=1):
        (folder / SOURCE).write_text(without(source, removal))
        if not failed(folder, law):
            wrong.append(f"removal {number} goes unnoticed")
    return wrong


def main() -> int:
    """Try the laws, a row each."""
    parser = argparse.ArgumentParser(description="See each law of the poller missed by its tests.")
    parser.add_argument("--law", type=int, action="append", choices=range(1, 12), help="only this one")
    only = parser.parse_args().law
    missed = 0
    with tempfile.TemporaryDirectory(prefix="airflow-tds-laws-") as home:
        copied(Path(home))
        for law in LAWS:
            if only is None or law.number in only:
                wrong = tried(Path(home), law)
                missed += len(wrong)
                times = f"removed in {len(law.removals)} ways, each makes a test fail"
                print(f"law {law.number:2}  {law.words:82}  {'; '.join(wrong) or times}", flush=True)
    print(f"{missed} not as expected")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
