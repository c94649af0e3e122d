"""The client's properties and hostile answers, all of them: what the ordinary suite tries a sample of.

    python tests/proofs/client.py                    10,000 examples of each property, about half an hour
    python tests/proofs/client.py --examples 100     a quick look
    python tests/proofs/client.py --examples 100000  some hours

Addresses and headers are looked at on a bare socket; answers come from one.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ("tests/client/test_properties.py", "tests/client/test_closure.py")


def main() -> int:
    """Run the tests without a bound on their time."""
    parser = argparse.ArgumentParser(description="Try the client's properties at length.")
    parser.add_argument("--examples", type=int, default=10_000, help="of each property (%(default)s)")
    options = parser.parse_args()
    command = [sys.executable, "-m", "pytest", "-q", "--timeout=0", "--hypothesis-show-statistics", *TESTS]
    environment = os.environ | {"TDS_THOROUGH": str(options.examples)}
    return subprocess.run(command, check=False, cwd=ROOT, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
