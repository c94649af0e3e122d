"""How much a test tries: a sample in the ordinary suite, more where `TDS_THOROUGH` says so (tests/proofs/client.py)."""

from __future__ import annotations

import os

__all__ = ["THOROUGH", "examples"]

#: Examples of each property; 0 in the ordinary suite.
THOROUGH = int(os.environ.get("TDS_THOROUGH", "0"))


def examples(ordinary: int) -> int:
    """Give how many examples a property is tried with."""
    return THOROUGH or ordinary
