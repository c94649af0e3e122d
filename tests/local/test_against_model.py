"""The running service says what a plain-Python model says, whatever is done to it, also after kill -9."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from model_machine import COUNTS, ServiceAgainstModel
from service_forms import Form


def few(examples: int, steps: int) -> settings:
    """Give the settings for a few steps, the same ones each time."""
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.timeout(900)  # many starts of the service, on a machine that may be busy
def test_the_service_does_what_the_model_does() -> None:
    """A few steps and kills; `tests/run.py prove` makes thousands."""
    run_state_machine_as_test(ServiceAgainstModel, settings=few(4, 7))
    assert COUNTS["step"] >= 15
    assert COUNTS["kill -9"] >= 4


class Otherwise(ServiceAgainstModel):
    """In another form."""

    form = Form("put_commit", "oauth2")


@pytest.mark.timeout(900)
def test_the_service_in_another_form_does_what_the_model_does() -> None:
    """As before; which forms there are says `tests/proofs/kills.py --help`."""
    before = COUNTS["step"]
    run_state_machine_as_test(Otherwise, settings=few(2, 4))
    assert COUNTS["step"] - before >= 4
