"""How far a transfer is, told while it lasts; and whether it is too slow to go on.

Counts and judges only. It is given every moment that it compares, save its own stopwatch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from airflow_tds.client import errors

__all__ = ["Meter", "Progress", "Report"]

log = logging.getLogger(__name__)

#: Seconds between two reports to a callback, and between two lines of the log.
REPORTED_EVERY = 0.5
LOGGED_EVERY = 30.0
#: Seconds over which the rate is judged: a store may pause, but not crawl.
RATE_WINDOW = 30.0


@dataclass(frozen=True)
class Progress:
    """How far a transfer is.

    Attributes:
        operation: `put` or `download`.
        subject: What it is about, such as `job 17`.
        done: Bytes that have passed; a try that starts again counts from zero.
        total: Bytes in all; None when that is not known.
        seconds: Since this try began.
        rate: Bytes per second of this try.
    """

    operation: str
    subject: str
    done: int
    total: int | None
    seconds: float
    rate: float

    @property
    def share(self) -> float | None:
        """Part that is done, 0 to 1; None when the total is not known."""
        if self.total is None:
            return None
        return self.done / self.total if self.total else 1.0

    def __str__(self) -> str:
        of = "" if self.total is None or self.share is None else f" of {_size(self.total)} ({self.share:.0%})"
        return f"{self.operation}, {self.subject}: {_size(self.done)}{of}, {_size(self.rate)}/s"


Report = Callable[[Progress], None]


class Meter:
    """The stopwatch of one try of a transfer.

    Args:
        operation: For the reports.
        subject: For the reports.
        done: Bytes that earlier tries have brought.
        total: Bytes in all; None when that is not known.
        minimum_rate: Bytes per second below which the transfer is given up; 0 for none.
        report: Called from the thread that transfers, at most twice a second and at the end; None for nobody.
    """

    def __init__(
        self,
        operation: str,
        subject: str,
        *,
        done: int = 0,
        total: int | None = None,
        minimum_rate: float = 0.0,
        report: Report | None = None,
    ) -> None:
        self._names = (operation, subject)
        self._done = self._before = done
        self.total = total
        self._minimum_rate = minimum_rate
        self._report = report
        self._began = self._resumed = self._reported = self._logged = time.monotonic()
        self._window_bytes = 0
        self._window_seconds = 0.0

    def resume(self) -> None:
        """Start the stopwatch: what passed since the last `count` was not the network's time."""
        self._resumed = time.monotonic()

    def count(self, size: int) -> None:
        """Count what has just passed.

        Args:
            size: Bytes.

        Raises:
            TransportFailed: Less than the minimum rate passed in the last half minute.
        """
        now = time.monotonic()
        self._done += size
        self._window_bytes += size
        self._window_seconds += now - self._resumed
        self._resumed = now
        if self._report is not None and now - self._reported >= REPORTED_EVERY:
            self._reported = now
            self._report(self._progress(now))
        if now - self._logged >= LOGGED_EVERY:
            self._logged = now
            log.info("%s", self._progress(now))
        if self._window_seconds >= RATE_WINDOW:
            self._judge()

    def _judge(self) -> None:
        rate = self._window_bytes / self._window_seconds
        if rate < self._minimum_rate:
            operation, subject = self._names
            raise errors.TransportFailed(
                f"{operation}, {subject}: {_size(rate)}/s, less than the minimum rate of {_size(self._minimum_rate)}/s"
            )
        self._window_bytes, self._window_seconds = 0, 0.0

    def end(self) -> None:
        """Report the last time: all has passed."""
        if self._report is not None:
            self._report(self._progress(time.monotonic()))

    def _progress(self, now: float) -> Progress:
        seconds = now - self._began
        rate = (self._done - self._before) / seconds if seconds > 0 else 0.0
        return Progress(*self._names, self._done, self.total, seconds, rate)


def _size(size: float) -> str:
    """Write bytes for a person."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:  # noqa: PLR2004  # each unit is 1024 of the one before
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
