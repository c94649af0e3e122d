"""How much a test tries: a sample in the ordinary suite; all, where `TDS_THOROUGH` is set (tests/proofs/client.py)."""

from __future__ import annotations

import os

__all__ = ["THOROUGH", "examples"]

THOROUGH = bool(os.environ.get("TDS_THOROUGH"))


def examples(ordinary: int, thorough: int = 100_000) -> int:
    """Give how many examples a property is tried with."""
    return thorough if THOROUGH else ordinary
