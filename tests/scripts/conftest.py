"""What the tests of the scripts share."""

from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def root() -> Path:
    """The clone."""
    return ROOT


@pytest.fixture
def living() -> Callable[[], set[int]]:
    """Read the ids of the processes that run now; one that ended and waits for its parent does not count."""
    from processes import table

    return lambda: {process.pid for process in table() if not process.ended}
