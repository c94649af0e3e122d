"""Each write proven by row counts, on a scratch table: what the wire map says is believed only when rows show it.

It adds rows, replaces them and in the end removes them all. Where the service lacks an assumed route, the other forms
that are known are tried, one by one and proven likewise: what is right of a form is never concluded from its answer.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from airflow_tds.client import errors
from airflow_tds.client.forms import LATER_WRITES
from airflow_tds.client.payloads import body_of
from airflow_tds.client.wire import Wire, WriteOperation
from airflow_tds.doctor.patient import Patient
from airflow_tds.doctor.reading import read_all
from airflow_tds.doctor.reports import Report
from airflow_tds.doctor.waiting import Seen, lesson

__all__ = ["Scratch"]

#: Seconds between two readings of a status or a count.
_SOON = 0.1
#: Seconds after a job is COMPLETED, or a deletion answered, that its effect may take to be seen.
_LATE = 5.0
#: Rows of the first of several jobs at once, enough for the others to be seen waiting behind it.
_MANY = 20_000
#: Jobs at once.
_AT_ONCE = 4
#: What a service answers that does not have a route.
_NO_ROUTE = (404, 405, 501)


class Scratch:
    """A scratch table, and what each write makes of it.

    Args:
        patient: The service.
        report: Is told what was found.
        table_id: The table; it takes the columns `id`, a number, and `name`, a text.
        wire: The wire map to start with.
        proposed: Routes that a document of the service suggests, by their key.
    """

    def __init__(
        self, patient: Patient, report: Report, table_id: str, proposed: Mapping[str, Any] | None = None
    ) -> None:
        self._patient = patient
        self._report = report
        self._table = table_id
        self._wire = patient.wire
        self._proposed = proposed or {}
        self._next = secrets.randbelow(10**8) * 10  # ids of an earlier examination are others
        self._waiting = {"timeout": patient.patience, "poll_interval": _SOON}

    def prove_all(self) -> None:
        """Prove every form; one that fails does not end the others."""
        steps = {
            "info": self._info,
            "get_job": self._get_job,
            "upload": self._upload,
            "append": self._append,
            "second upload": self._second_upload,
            "upsert": self._upsert,
            "overwrite": self._overwrite,
            "query": self._reads,
            "delete_rows": self._delete,
            "chunked PUT": self._chunked,
            "no data": self._idle_job,
            "failed job": self._failing_job,
            "truncate": self._truncate,
        }
        for check, step in steps.items():
            try:
                step()
            except errors.TableServiceError as error:
                self._report.add(check, "failed", str(error))

    # ---- what is there

    def count(self) -> int:
        """Count the table's rows: by its statistics, else by a query."""
        try:
            told = self._patient.do(self._operations.info(self._table)).row_count
        except errors.Refused:
            told = None
        if told is None:
            page = self._patient.do(self._operations.query(self._table, limit=1))
            told = page.metadata.total_count or len(page.items)
        return int(told)

    def _settled(self, wanted: int, patience: float) -> tuple[int, float]:
        """Count until there are as many rows as wanted, or patience ends; give the seconds that it took, too."""
        begun = self._patient.now()
        while (found := self.count()) != wanted and self._patient.now() - begun < patience:
            self._patient.pause(_SOON)
        return found, self._patient.now() - begun

    @property
    def _operations(self) -> Any:
        return self._patient.operations(self._wire)

    def _rows(self, count: int, *, again: int = 0, name: str = "new") -> bytes:
        """Make rows as CSV: the last ones of before again, then new ones."""
        first = self._next - again
        self._next = first + max(count, again)
        return b"id,name\n" + b"".join(f"{one},{name}\n".encode() for one in range(first, first + count))

    # ---- how it is looked at

    def _info(self) -> None:
        """Find the route of the statistics, by comparing its rows with those of a query."""

        def ask(operations: Any) -> str:
            return str(self._patient.do(operations.info(self._table)).row_count)

        for label, override, rows in self._accepted("info", ask):
            page = self._patient.do(self._operations.query(self._table, limit=1))
            right = rows == str(page.metadata.total_count or len(page.items))
            self._report.add("info", "ok" if right else "failed", f"{label}: {rows} rows, as a query says")
            if right:
                self._adopt(override)

    def _get_job(self) -> None:
        """Find the route of a job, by a write that is announced only: nothing comes of it."""
        if self._wire.strategy("append") != "initiate_put":
            return
        job = self._patient.do(self._operations.initiate("append", self._table)).job_id

        def ask(operations: Any) -> str:
            return str(self._patient.do(operations.get_job(job)).status)

        for label, override, status in self._accepted("get_job", ask):
            self._report.add("get_job", "ok", f"{label}: a job without data is {status}")
            self._adopt(override)

    # ---- writes

    def _upload(self) -> None:
        before = self.count()
        try:
            self._patient.do(self._operations.upload(self._table, self._rows(3), **self._waiting))
        except errors.Conflict:
            self._report.add("upload", "ok", "refused with a conflict: the table has, or had, data (§3.1)")
            return
        self._judge("upload", before, before + 3, {})

    def _append(self) -> None:
        self._prove("append", grows=3, rows=(3, 0))

    def _upsert(self) -> None:
        wrong = {2: "it appended: key_columns or update_mode is ignored", -1: "it replaced rows without their key"}
        self._prove("upsert", grows=1, rows=(2, 1), key_columns=["id"], wrong=wrong)

    def _overwrite(self) -> None:
        wrong = {4: "it appended: update_mode is ignored"}
        self._prove("overwrite", makes=4, rows=(4, 0), wrong=wrong)

    def _prove(
        self,
        operation: WriteOperation,
        *,
        rows: tuple[int, int],
        grows: int = 0,
        makes: int | None = None,
        wrong: Mapping[int, str] | None = None,
        **keys: Any,
    ) -> None:
        """Prove a write, by the first form that its rows prove."""
        before, data = self.count(), self._rows(rows[0], again=rows[1])
        wanted = before + grows if makes is None else makes

        def submit(operations: Any) -> str:
            return str(self._patient.do(getattr(operations, f"submit_{operation}")(self._table, data, **keys)))

        for label, override, job in self._accepted(operation, submit):
            self._patient.do(self._operations.wait(job, **self._waiting))
            if self._judge(operation, before, wanted, wrong or {}, label):
                self._adopt(override)
            return  # rows are there now, right or wrong: another form would start from others

    def _accepted(self, operation: str, ask: Callable[[Any], str]) -> Iterator[tuple[str, dict[str, Any], str]]:
        """Ask by one form after the other; give the first that the service takes: its name, setting and answer."""
        first: errors.Refused | None = None
        for label, override in self._forms(operation):
            try:
                answer = ask(self._patient.operations(self._with(override)))
            except errors.Refused as error:
                if first is None and error.status not in _NO_ROUTE and not isinstance(error, errors.WireMismatch):
                    raise
                first = first or error
                self._report.add(operation, "note", f"{label}: not taken (HTTP {error.status})")
            else:
                yield label, override, answer
                return
        if first is not None:
            raise first

    def _adopt(self, override: Mapping[str, Any]) -> None:
        """Go on with a form that was proven."""
        if override:
            self._wire = self._with(override)
            self._report.learn(**override)

    def _forms(self, operation: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Name the forms of an operation: the connection's, the one of the service's document, the append's route."""
        yield str(self._route(operation)), {}
        if operation in self._proposed:
            yield str(self._proposed[operation]), {operation: self._proposed[operation]}
        if operation in ("overwrite", "upsert") and self._route(operation) != LATER_WRITES:
            yield LATER_WRITES, {operation: LATER_WRITES}

    def _route(self, operation: str) -> str:
        found = getattr(self._wire, operation)
        return f"{found.method} {found.path}"

    def _with(self, override: Mapping[str, Any]) -> Wire:
        if not override:
            return self._wire
        known = {**self._patient.settings.wire_setting(), **self._report.learned.get("wire", {})}
        return Wire.from_setting({**known, **override})

    def _judge(self, check: str, before: int, wanted: int, wrong: Mapping[int, str], label: str = "") -> bool:
        """Compare counts: the only proof that there is."""
        found, spent = self._settled(wanted, min(_LATE, self._patient.patience))
        form = f"{label}: " if label else ""
        if found == wanted:
            late = f", {spent:.1f} s after the job was COMPLETED" if spent > 1 else ""
            self._report.add(check, "ok", f"{form}{before} -> {found} rows{late}")
            return True
        why = wrong.get(found - before, f"{wanted} were expected")
        self._report.add(check, "failed", f"{form}{before} -> {found} rows: {why}")
        return False

    def _second_upload(self) -> None:
        """See that upload is refused now; nothing is sent, only announced."""
        if self._wire.strategy("upload") != "initiate_put":
            self._report.add("second upload", "skipped", "not announced before it is sent, so it is not tried")
            return
        try:
            job = self._patient.do(self._operations.initiate("upload", self._table)).job_id
        except errors.Conflict:
            self._report.add("second upload", "ok", "refused with a conflict, as §3.1 says")
            return
        self._report.add("second upload", "failed", f"accepted as job {job}, although the table has data (§3.1)")

    def _reads(self) -> None:
        read_all(self._patient_now(), self._report, self._table)
        if self._is_empty("filters"):
            return
        last = self._next - 1
        found = self._patient.do(self._operations.query(self._table, filters=[f"id:eq:{last}"]))
        texts = [str(row.get("id")) for row in found.items]
        right = texts == [str(last)]
        self._report.add("filters", "ok" if right else "failed", f"id:eq:{last} finds {len(texts)} row(s), 1 is right")

    def _patient_now(self) -> Patient:
        return replace(self._patient, wire=self._wire)

    def _is_empty(self, check: str) -> bool:
        """Leave out a check that needs a row, where every write before it failed."""
        empty = self.count() == 0
        if empty:
            self._report.add(check, "skipped", "no row could be written to look for")
        return empty

    def _delete(self) -> None:
        if self._is_empty("delete_rows"):
            return
        before, last = self.count(), self._next - 1

        def ask(operations: Any) -> str:
            self._patient.do(operations.delete_rows(self._table, filters=[f"id:eq:{last}"]))
            return ""

        for label, override, _ in self._accepted("delete_rows", ask):
            at_once = self.count() == before - 1
            if self._judge("delete_rows", before, before - 1, {}, label):
                self._adopt(override)
                if not at_once:
                    late = "it takes effect after its answer; the client takes it to be in effect with it"
                    self._report.add("delete_rows", "warning", late)

    def _chunked(self) -> None:
        """Send a payload whose length is not announced, once."""
        if self._wire.strategy("append") != "initiate_put":
            self._report.add("chunked PUT", "skipped", "append has no presigned PUT of its own")
            return
        before, data = self.count(), self._rows(1)
        begun = self._patient.do(self._operations.initiate("append", self._table))
        try:
            self._patient.send_checked(self._wire, self._wire.put_request(begun, body_of(iter([data])), limit=60.0))
        except errors.LengthRequired as refused:
            text = f"refused (HTTP {refused.status}): the client sends again with the length, operators always send it"
            self._report.add("chunked PUT", "note", text)
            self._patient.do(self._operations.send_data(begun, data))
        else:
            self._report.add("chunked PUT", "ok", "taken without an announced length")
        self._patient.do(self._operations.wait(begun.job_id, **self._waiting))
        self._judge("presigned PUT", before, before + 1, {})

    def _idle_job(self) -> None:
        """Learn what a job without data says, beside several jobs with data."""
        if self._wire.strategy("append") != "initiate_put":
            self._report.add("no data", "skipped", "append's job is not known before its data is sent")
            return
        before = self.count()
        idle = self._patient.do(self._operations.initiate("append", self._table)).job_id
        said = [self._status(idle)]
        jobs = self._send_several([_MANY, *[1] * (_AT_ONCE - 1)])
        readings = self._followed(jobs)
        said.append(self._status(idle))
        learned = lesson(said, readings)
        known = self._wire.no_data_statuses
        self._report.add("no data", "ok" if learned.status or not known else "note", learned.text)
        if known and learned.status not in ("", *known):
            self._report.add("no data", "failed", f"the connection's no_data_statuses {', '.join(known)} is another")
        elif learned.status and learned.status not in known:
            self._report.learn(no_data_statuses=[learned.status])
        self._judge("several at once", before, before + _MANY + _AT_ONCE - 1, {})

    def _send_several(self, sizes: Sequence[int]) -> dict[str, float]:
        """Send some appends one after the other; give each job and when its data was acknowledged."""
        begun = [(self._patient.do(self._operations.initiate("append", self._table)), self._rows(n)) for n in sizes]
        jobs: dict[str, float] = {}
        for initiation, data in begun:
            self._patient.do(self._operations.send_data(initiation, data))
            jobs[initiation.job_id] = self._patient.now()
        return jobs

    def _followed(self, jobs: Mapping[str, float]) -> dict[str, list[Seen]]:
        """Read jobs in turn until all are final, or patience ends; the last that was sent first."""
        readings: dict[str, list[Seen]] = {job: [] for job in reversed(list(jobs))}
        ends, open_ones = self._patient.now() + self._patient.patience, list(readings)
        while open_ones and self._patient.now() < ends:
            for job in open_ones:
                status = self._status(job)
                readings[job].append(Seen(self._patient.now() - jobs[job], status))
            open_ones = [job for job in open_ones if readings[job][-1].status not in ("COMPLETED", "FAILED")]
        return readings

    def _status(self, job_id: str) -> str:
        return str(self._patient.do(self._operations.get_job(job_id)).status)

    def _failing_job(self) -> None:
        """Send what no table takes, to see how a failure looks and whether it changes anything."""
        before = self.count()
        data = b"id,no_such_column\nx,y\n"
        try:
            self._patient.do(self._operations.append(self._table, data, **self._waiting))
        except errors.JobFailed as failed:
            after = self.count()
            if after == before:
                self._report.add("failed job", "ok", f"it is told and changed nothing: {failed}")
            else:
                self._report.add("failed job", "warning", f"it changed the table, {before} -> {after} rows: {failed}")
                self._report.learned["failed_jobs_are_atomic"] = False
            return
        self._report.add("failed job", "note", "a payload with an unknown column was taken")

    def _truncate(self) -> None:
        before, begun = self.count(), self._patient.now()

        def ask(operations: Any) -> str:
            self._patient.do(operations.truncate(self._table))
            return ""

        for label, override, _ in self._accepted("truncate", ask):
            found, _ = self._settled(0, self._patient.patience)
            text = f"{label}: {before} -> {found} rows, seen after {self._patient.now() - begun:.1f} s"
            self._report.add("truncate", "failed" if found else "ok", text)
            if not found:
                self._adopt(override)
