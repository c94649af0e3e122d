"""What the tests of the scripts share: the scripts are found from the clone's root, as they find each other."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))


@pytest.fixture
def root() -> Path:
    """The clone."""
    return ROOT


@pytest.fixture
def living() -> Callable[[], set[int]]:
    """Read the ids of the processes that run now; one that ended and waits for its parent does not count."""
    from requirements.processes import table

    return lambda: {process.pid for process in table() if not process.ended}
