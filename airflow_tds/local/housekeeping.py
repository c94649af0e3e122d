"""What a store gets rid of: results past their time, jobs nobody asks for any more, a long log.

The writer's thread does it between jobs. What clients wait for is never touched: only final jobs and their
results go, and a result's links end no later than the result.
"""

from __future__ import annotations

from airflow_tds.local.store import Store

__all__ = ["Housekeeping"]

#: Seconds for which a final job is kept at least; beyond that while it is among so many newest.
_JOB_LIFETIME = 7 * 86_400.0
_NEWEST_JOBS = 10_000
#: Seconds between two looks at results and jobs, at most.
_INTERVAL = 3600.0
#: Bytes of the write-ahead log from which an idle writer checkpoints, and seconds that it is idle before.
_LONG_LOG = 4 << 20
_IDLE = 1.0


class Housekeeping:
    """Keeps a store small.

    Args:
        store: The store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._next_look = 0.0
        self._idle_since = store.clock()

    def due(self, *, idle: bool) -> float:
        """Give the seconds until `run` has something to do.

        Args:
            idle: The writer has no job that it could run.
        """
        now = self._store.clock()
        if not idle:
            self._idle_since = now
        log_is_long = idle and self._store.database.log_size() > _LONG_LOG
        return min(self._next_look, self._idle_since + _IDLE if log_is_long else self._next_look) - now

    def run(self) -> None:
        """Do what is due."""
        now = self._store.clock()
        if now >= self._next_look:
            next_result = self._store.remove_results()
            self._store.prune(now - _JOB_LIFETIME, _NEWEST_JOBS)
            self._next_look = min(now + _INTERVAL, now + self._store.result_lifetime, next_result)
        if now >= self._idle_since + _IDLE and self._store.database.log_size() > _LONG_LOG:
            self._idle_since = now  # a log that cannot be cut now is not tried without end
            self._store.database.checkpoint()
