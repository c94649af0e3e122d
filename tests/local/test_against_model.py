"""The running service says what a plain-Python model says, whatever is done to it, also after kill -9."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from model_machine import COUNTS, ServiceAgainstModel


@pytest.mark.timeout(900)  # many starts of the service, on a machine that may be busy
def test_the_service_does_what_the_model_does() -> None:
    """A few steps and kills; `tests/run.py prove` makes thousands."""
    run_state_machine_as_test(
        ServiceAgainstModel,
        settings=settings(
            max_examples=4,
            stateful_step_count=7,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert COUNTS["step"] >= 15
    assert COUNTS["kill -9"] >= 4
