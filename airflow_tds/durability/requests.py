"""Work that is one request without a job: its intent is stored before it is sent, and it is sent at most once.

A request that had no answer can not be asked about afterwards, so no lease helps: only the table tells, or
a person.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from airflow_tds.client import errors
from airflow_tds.client.conditions import Conditions
from airflow_tds.client.filters import Filters
from airflow_tds.client.waiting import Verdict, Watch, judge_table, judge_truncated
from airflow_tds.durability.decisions import Attach
from airflow_tds.durability.records import Record
from airflow_tds.durability.steps import Attempt, Done, Once, Wait, known

__all__ = ["DeleteOnce", "TruncateOnce"]


class _RequestOnce(Once):
    """What a truncation and a deletion share: the table, the intent, and that nobody knows of a lost answer."""

    def __init__(self, attempt: Attempt, *, table_id: str, identity: str) -> None:
        super().__init__(attempt)
        self._table_id = table_id
        self._identity = identity


class TruncateOnce(_RequestOnce):
    """A truncation, sent at most once per record: a late second one would destroy later writes.

    Args:
        attempt: The try that sends it.
        table_id: The table.
        identity: See `Record`.
        force: Send it even if the table says that it has no rows.
    """

    def __init__(self, attempt: Attempt, *, table_id: str, identity: str, force: bool = False) -> None:
        super().__init__(attempt, table_id=table_id, identity=identity)
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

    It has taken effect when it is answered (assumed, §4.2 rule 5), or, if that is asked for, once the table has another
    snapshot. An answer that was lost can not be asked for again, and the table does not tell, as others write to it
    too: that is ambiguous.

    Args:
        attempt: The try that sends it.
        table_id: The table.
        identity: See `Record`.
        filters: Which rows, §2.6; at least one filter.
        wait_for_snapshot: Whether it has taken effect only when the table has another snapshot than before.
    """

    def __init__(
        self, attempt: Attempt, *, table_id: str, identity: str, filters: Filters, wait_for_snapshot: bool = False
    ) -> None:
        super().__init__(attempt, table_id=table_id, identity=identity)
        self._filters = filters
        self._waits = wait_for_snapshot

    def advance(self, watch: Watch) -> Wait | Done:
        """Send the request, unless it was sent, and go as far as possible without waiting; see `WriteOnce.advance`.

        Raises:
            AmbiguousWriteError: The request had no answer, now or in an earlier try.
            UnexpectedReply: A new snapshot is to be waited for, and the service tells none; nothing was deleted.
            WaitTimedOut: The deadline has passed, and the table has the snapshot that it had.
            TableServiceError: Whatever else the service or the network said; then nothing was deleted.
        """
        record, step = self._begin(self._table_id, self._identity, "")
        if isinstance(step, Done):
            return step
        if isinstance(step, Attach):
            found = known(record)
            if (wait := self._unseen(found, watch)) or not step.renew:
                return wait or self._finished(found)
        found = self._start()
        if found.phase == "intent":
            return self._give_up(found)
        return self._unseen(found, watch) or self._finished(found)

    def _finished(self, record: Record) -> Done:
        self._save(record, "done")
        return Done("")

    def _unseen(self, record: Record, watch: Watch) -> Wait | None:
        """Say how to wait until a deletion that was sent is seen in the table; None where nothing is waited for."""
        if not (self._waits and record.snapshot):
            return None
        changed = Conditions(changed_from=record.snapshot)
        now = self._now()
        if judge_table(self._client.info(self._table_id), changed).verdict is Verdict.COMPLETED:
            return None
        if now < watch.deadline:
            return Wait(replace(watch, kind="table", subject=self._table_id, conditions=changed.to_text()))
        raise errors.WaitTimedOut(
            f"table {self._table_id} still has snapshot {record.snapshot} after {now - watch.started:.0f} s; the"
            " deletion was sent once and is not sent again; perhaps no row matched, which makes no snapshot"
        )

    def _start(self) -> Record:
        before = self._client.info(self._table_id)
        snapshot, rows = before.snapshot_id or "", before.row_count
        if self._waits and not snapshot:
            text = f"table {self._table_id}: info tells no snapshot_id, so wait_for_snapshot cannot be kept"
            raise errors.UnexpectedReply(text, field="snapshot_id")
        record = Record("delete_rows", self._table_id, self._identity, "", "intent", snapshot=snapshot, rows=rows)
        return self._send(record, "intent", partial(self._client.delete_rows, self._table_id, self._filters))
