"""What every error of ours is, whatever caused it: fit to travel, one line that a person can act on, no secrets."""

from __future__ import annotations

import pickle
from typing import Any

__all__ = ["CANARY", "check_readable"]

#: Stands in every secret that a test makes up: tokens, signatures, passwords.
CANARY = "s3cret"
#: An error's text is read in a log.
LONGEST_LINE = 4096


def check_readable(error: Any) -> None:
    """Check an error, and all that it was raised from.

    Raises:
        AssertionError: It says nothing, more than a line, or a secret; or it does not survive pickling.
    """
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301  # our own bytes
    assert (type(copy), str(copy), copy.__dict__) == (type(error), str(error), error.__dict__)
    text = str(error)
    assert text.strip()
    assert len(text.splitlines()) == 1
    assert "\x1b" not in text
    assert len(text) < LONGEST_LINE
    while error is not None:
        assert CANARY not in f"{error!r} {error} {error.__dict__}"
        error = error.__cause__ or error.__context__
