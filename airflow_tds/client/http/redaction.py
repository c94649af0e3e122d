"""What httpx and httpcore log during our requests, without its secrets: a presigned URL's query is its key.

Others' use of the same loggers is left alone. Importing this room sets the filter.
"""

from __future__ import annotations

import contextvars
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["redacted"]

_ours = contextvars.ContextVar("ours", default=False)


def _without_query(record: logging.LogRecord) -> bool:
    """Cut a line's URLs before their query; a line of somebody else's requests stays as it is."""
    if _ours.get():
        record.msg, record.args = re.sub(r"\?[^\s'\"]+", "?<redacted>", record.getMessage()), ()
    return True


for _logger in ("httpx", "httpcore.connection", "httpcore.http11", "httpcore.proxy"):
    logging.getLogger(_logger).addFilter(_without_query)


@contextmanager
def redacted() -> Iterator[None]:
    """Have lines that are logged meanwhile, in this thread or task, cut."""
    token = _ours.set(True)
    try:
        yield
    finally:
        _ours.reset(token)
