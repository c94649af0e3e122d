"""A load: the first one by upload, later ones in the mode that is named; at most once, whichever it is.

Which of the two is decided when a write starts, never when one goes on. A conflict (409) leads from upload to the mode
only where the record proves that no upload of ours is open: else the data could be in the table already.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from airflow_tds.client import errors
from airflow_tds.client.models import DatasetInfoResponse
from airflow_tds.durability.decisions import Policy
from airflow_tds.durability.records import Record, digest
from airflow_tds.durability.steps import Attempt
from airflow_tds.durability.stores import MemoryStore
from airflow_tds.durability.writes import Write, WriteOnce

__all__ = ["LoadOnce", "Mode"]

Mode = Literal["append", "overwrite", "upsert"]


class LoadOnce(WriteOnce):
    """A load from its first request to its end, at most once.

    Args:
        attempt: The try that makes it.
        write: What was asked for; it names upload, and the key columns of the mode.
        policy: What the connection says of the service.
        mode: What follows the first load.
    """

    def __init__(self, attempt: Attempt, *, write: Write, policy: Policy, mode: Mode) -> None:
        super().__init__(attempt, write=write, policy=policy)
        self._mode = mode
        self._keys = self._write.key_columns
        self._write = replace(self._write, identity=digest(self._write.identity, mode))

    def _start(self) -> Record:
        table_id = self._write.table_id
        if _had_data(self._client.info(table_id)):
            self._log.info("%s: has, or had, data: %s", table_id, self._mode)
            return self._start_as(self._mode)
        try:
            return self._start_as("upload")
        except errors.Conflict as conflict:
            if not self._is_settled():
                text = (
                    f"{conflict}; perhaps by an earlier try of this task, of which there is no record: no {self._mode}"
                )
                raise errors.Conflict(text, status=conflict.status, body=conflict.body) from conflict
            self._log.info("%s: %s; no upload of ours is open: %s", table_id, conflict, self._mode)
        return self._start_as(self._mode)

    def _start_as(self, op: Literal["upload", "append", "overwrite", "upsert"]) -> Record:
        keys = self._keys if op == "upsert" else ()
        self._write = replace(self._write, op=op, key_columns=keys)
        return super()._start()

    def _is_settled(self) -> bool:
        """Say whether a record that outlives the process proves that no upload of ours may have caused the conflict."""
        if isinstance(self._store, MemoryStore):
            return False
        record = self._store.load()
        return record is None or record.phase in ("failed_clean", "done")


def _had_data(info: DatasetInfoResponse) -> bool:
    """Say whether a table certainly has, or had, data: a table without a snapshot never had any (§2.4)."""
    return bool(info.row_count or info.snapshot_id)
