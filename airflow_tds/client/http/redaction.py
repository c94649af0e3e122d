"""What httpx and httpcore log during our requests, without its secrets: a presigned URL's query is its key.

Others' use of the same loggers is left alone. Importing this room sets the filter.
"""

from __future__ import annotations

import contextvars
import logging
import re

__all__ = ["Redacted"]

_ours = contextvars.ContextVar("ours", default=False)


def _without_query(record: logging.LogRecord) -> bool:
    """Cut a line's URLs before their query; a line of somebody else's requests stays as it is."""
    if _ours.get():
        record.msg, record.args = re.sub(r"\?[^\s'\"]+", "?<redacted>", record.getMessage()), ()
    return True


for _logger in ("httpx", "httpcore.connection", "httpcore.http11", "httpcore.proxy"):
    logging.getLogger(_logger).addFilter(_without_query)


class Redacted:
    """Have lines that are logged meanwhile, in this thread or task, cut; no generator, as each poll needs one."""

    def __enter__(self) -> None:
        self._token = _ours.set(True)

    def __exit__(self, *_: object) -> None:
        _ours.reset(self._token)
