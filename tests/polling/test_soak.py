"""A little of the soak that tests/proofs/soak.py runs at length."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from soak import Soak

from airflow_tds import polling


@pytest.fixture(autouse=True)
def _short_lives(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(polling, "LINGER", 0.05)
    yield
    polling._BY_LOOP.clear()


@pytest.mark.parametrize("transport", ["httpx", "aiohttp"])
def test_no_wait_is_lost_no_poll_doubled_and_nothing_left_whatever_happens(transport: str) -> None:
    tally = asyncio.run(Soak(60, 8, seed=3, transport=transport).run())

    assert tally.wrong == []
    assert {"cancels", "restarts", "refusals", "clock jumps"} <= set(tally.counts)
