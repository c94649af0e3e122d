"""What a table looked like when a task last read it: an etag that outlives the DAG run.

Kept in a Variable of the task's own, as XComs and state stores end with the DAG run. It is written after the output is
complete, and counts only for the query for which it was read.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Self

from airflow_tds.compat import Context, variables
from airflow_tds.durability import digest

__all__ = ["Etag"]

#: Longest key of a Variable (Airflow's column).
LONGEST_KEY = 250


class Etag:
    """The etag of a task's query.

    Args:
        variable: The Variable's key.
        query: What tells the query from others.

    Attributes:
        known: What was kept by an earlier run; empty for nothing, or for another query.
        seen: What this run has read; empty while the table has no snapshot.
    """

    def __init__(self, variable: str, query: str) -> None:
        self._variable = variable
        self._query = query
        self.known = self._read()
        self.seen = ""

    @classmethod
    def of(cls, context: Context, asked: Any) -> Self:
        """Find a task's etag.

        Args:
            context: Airflow's.
            asked: What is asked for, and where.
        """
        ti = context["ti"]
        name = "__".join(["tds_etag", ti.dag_id, ti.task_id, str(ti.map_index)])
        if len(name) > LONGEST_KEY:
            name = f"{name[: LONGEST_KEY - 17]}_{hashlib.sha256(name.encode()).hexdigest()[:16]}"
        return cls(name, digest(asked))

    def _read(self) -> str:
        try:
            kept = json.loads(variables().get(self._variable, "{}"))
            return str(kept["etag"]) if kept["query"] == self._query else ""
        except (KeyError, TypeError, ValueError):  # nothing, or what a person wrote there: it is read again
            return ""

    def keep(self) -> None:
        """Keep what was seen, for later runs; a table without a snapshot has nothing to be kept."""
        if self.seen and self.seen != self.known:
            variables().set(self._variable, json.dumps({"query": self._query, "etag": self.seen}))
