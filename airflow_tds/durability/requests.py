"""Work that is one request without a job: its intent is stored before it is sent, and it is sent at most once.

A request that had no answer can not be asked about afterwards, so no lease helps: only the table tells, or
a person.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from airflow_tds.client import errors
from airflow_tds.client.client import TableClient
from airflow_tds.client.filters import Filters
from airflow_tds.client.waiting import Verdict, Watch, judge_truncated
from airflow_tds.durability.decisions import Attach, Choices
from airflow_tds.durability.records import Generation, Record
from airflow_tds.durability.steps import Done, Log, Once, Wait, known
from airflow_tds.durability.stores import RecordStore

__all__ = ["DeleteOnce", "TruncateOnce"]


class _RequestOnce(Once):
    """What a truncation and a deletion share: the table, the intent, and that nobody knows of a lost answer."""

    def __init__(
        self,
        client: TableClient,
        store: RecordStore,
        generation: Generation,
        log: Log,
        *,
        table_id: str,
        identity: str,
        choices: Choices = Choices(),  # noqa: B008  # frozen
    ) -> None:
        super().__init__(client, store, generation, log, choices=choices)
        self._table_id = table_id
        self._identity = identity


class TruncateOnce(_RequestOnce):
    """A truncation, sent at most once per record: a late second one would destroy later writes.

    Args:
        client: The service.
        store: Where its record is kept.
        generation: This try's.
        log: Says which case was taken.
        table_id: The table.
        identity: See `Record`.
        force: Send it even if the table says that it has no rows.
        choices: What a person has decided beforehand.
    """

    def __init__(
        self,
        client: TableClient,
        store: RecordStore,
        generation: Generation,
        log: Log,
        *,
        table_id: str,
        identity: str,
        force: bool = False,
        choices: Choices = Choices(),  # noqa: B008  # frozen
    ) -> None:
        super().__init__(client, store, generation, log, table_id=table_id, identity=identity, choices=choices)
        self._force = force

    def advance(self, watch: Watch) -> Wait | Done:
        """Go as far as possible without waiting; see `WriteOnce.advance`.

        Raises:
            AmbiguousWriteError: The request was about to be sent when an earlier try ended, and the table
                still has rows at the deadline.
            WaitTimedOut: The deadline has passed, and the table still has rows.
        """
        record, step = self._begin(self._table_id, self._identity, "")
        if isinstance(step, Done):
            return step
        return self._follow(known(record) if isinstance(step, Attach) else self._start(), watch)

    def _follow(self, record: Record, watch: Watch) -> Wait | Done:
        if record.phase == "done":
            return Done("")
        now = self._now()
        reading = judge_truncated(self._client.info(self._table_id), record.snapshot)
        if reading.verdict is Verdict.COMPLETED:
            self._save(record, "done")
            return Done("")
        if now < watch.deadline:
            return Wait(replace(watch, kind="truncation", subject=self._table_id, snapshot=record.snapshot))
        if record.phase == "intent":
            return self._give_up(record)
        raise errors.WaitTimedOut(
            f"table {self._table_id} still has {reading.status} after {now - watch.started:.0f} s; the truncation was"
            " sent once and is not sent again: to send another, delete the record in"
            f" {self._store.name} and clear the task"
        )

    def _start(self) -> Record:
        before = self._client.info(self._table_id)
        empty = judge_truncated(before).verdict is Verdict.COMPLETED  # a service that does not tell is sent nothing
        snapshot, rows = before.snapshot_id or "", before.row_count
        record = Record("truncate", self._table_id, self._identity, "", "intent", snapshot=snapshot, rows=rows)
        if empty and not self._force:
            self._log.info("%s: has no rows, so nothing is sent", self._table_id)
            return self._save(record, "done")
        return self._send(record, "intent", partial(self._client.truncate, self._table_id))


class DeleteOnce(_RequestOnce):
    """A deletion of rows, sent at most once per record: a late second one would delete rows that came later.

    It has taken effect when it is answered (assumed, §4.2 rule 5). An answer that was lost can not be asked for
    again, and the table does not tell, as others write to it too: that is ambiguous.

    Args:
        client: The service.
        store: Where its record is kept.
        generation: This try's.
        log: Says which case was taken.
        table_id: The table.
        identity: See `Record`.
        filters: Which rows, §2.6; at least one filter.
        choices: What a person has decided beforehand.
    """

    def __init__(
        self,
        client: TableClient,
        store: RecordStore,
        generation: Generation,
        log: Log,
        *,
        table_id: str,
        identity: str,
        filters: Filters,
        choices: Choices = Choices(),  # noqa: B008  # frozen
    ) -> None:
        super().__init__(client, store, generation, log, table_id=table_id, identity=identity, choices=choices)
        self._filters = filters

    def advance(self, watch: Watch) -> Wait | Done:  # noqa: ARG002  # nothing is waited for
        """Send the request, unless it was sent; see `WriteOnce.advance`.

        Raises:
            AmbiguousWriteError: The request had no answer, now or in an earlier try.
            TableServiceError: Whatever else the service or the network said; then nothing was deleted.
        """
        record, step = self._begin(self._table_id, self._identity, "")
        if isinstance(step, Done):
            return step
        found = known(record) if isinstance(step, Attach) else self._start()
        if found.phase == "intent":
            return self._give_up(found)
        self._save(found, "done")
        return Done("")

    def _start(self) -> Record:
        before = self._client.info(self._table_id)
        snapshot, rows = before.snapshot_id or "", before.row_count
        record = Record("delete_rows", self._table_id, self._identity, "", "intent", snapshot=snapshot, rows=rows)
        return self._send(record, "intent", partial(self._client.delete_rows, self._table_id, self._filters))
