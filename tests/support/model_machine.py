"""The running service against the plain-Python model, over HTTP, through the client, with kill -9.

Hypothesis chooses what is done; after each step the service must say what the model says. Which transfer a kill
hits is chance: what was acknowledged must be there, once, and what was not must be there whole or not at all.
"""

from __future__ import annotations

import csv
import io
import json
import random
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, ClassVar

import duckdb
import httpx
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from payload_encoding import ENCODERS
from service_forms import Form
from service_process import ServiceProcess
from table_model import COMPARE, Joined, Row, Table, TooLarge, Value, bag, holds

from airflow_tds.client import errors
from airflow_tds.client.models import QueryResponse

__all__ = ["COUNTS", "ServiceAgainstModel"]

#: What was done, over all machines.
COUNTS: Counter[str] = Counter()
_TOKEN, _READER = "secret", "reader"
_TABLES: Mapping[str, Mapping[str, type]] = {
    "people": {"id": int, "name": str, 'we"ird; --': float, "born": date},
    "pets/1": {"id": int, "owner": int, "name": str, "ok": bool},
    "rowid, ü": {"NAME": str, "rowid": int, "select": float},
}
_VALUES: Mapping[type, st.SearchStrategy[Any]] = {
    int: st.one_of(st.integers(0, 12), st.sampled_from([2**53 + 1, -(2**63) + 1, 2**63 - 1])),
    float: st.sampled_from([0.5, -1.25, 3.0, 1024.75]),
    str: st.sampled_from(
        ["Ada", "Alan", "", "007", "a:eq:b", "O'Brien", 'say "hi"', "two\nlines", "ü, ß", "null", "{}"]
    ),
    bool: st.booleans(),
    date: st.dates(date(1999, 12, 30), date(2000, 1, 3)),
}
#: The tables without rows: what is drawn depends on their columns only, as Hypothesis wants it.
_SHAPES = {table_id: Table(types) for table_id, types in _TABLES.items()}
#: A first load begins with this row, so that the types of its columns cannot be in doubt.
_WITNESS: Mapping[type, Value] = {int: 1, float: 0.5, str: "Ada", bool: True, date: date(2000, 1, 1)}
_FAST = {"timeout": 60.0, "poll_interval": 0.01}
_FINAL = ("COMPLETED", "FAILED")
_HOWS = ("inner", "left", "right", "full", "cross", "semi", "anti", None)


@dataclass(frozen=True)
class Change:
    """Something that changes a table.

    Attributes:
        kind: `upload`, `append`, `overwrite`, `upsert`, `delete` or `truncate`.
        table_id: The table.
        data_format: Of the payload.
        rows: Its rows.
        keys: For upsert.
        predicates: For delete, all of which match.
        spoilt: What is wrong with the payload; empty for nothing.
        seed: Decides what does not matter, such as the order of columns.
    """

    kind: str
    table_id: str
    data_format: str = "csv"
    rows: tuple[Row, ...] = ()
    keys: tuple[str, ...] = ()
    predicates: tuple[Mapping[str, Any], ...] = ()
    spoilt: str = ""
    seed: int = 0

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Show what matters when Hypothesis tells a step: a few rows, or how many."""
        printer.text(shown(self))

    @property
    def writes(self) -> bool:
        """Whether it sends a payload."""
        return self.kind not in ("delete", "truncate")


def shown(change: Change) -> str:
    rows = change.rows if len(change.rows) < 6 else f"{len(change.rows)} rows"
    what = f"{change.keys or ''}{change.predicates or rows}"
    return f"{change.kind}({change.table_id!r}, {change.data_format}, {what}, {change.spoilt!r}, {change.seed})"


def leaves(types: Mapping[str, type]) -> st.SearchStrategy[dict[str, Any]]:
    """Conditions on columns of these types."""

    def on(name: str) -> st.SearchStrategy[dict[str, Any]]:
        return st.fixed_dictionaries(
            {"field": st.just(name), "operator": st.sampled_from(sorted(COMPARE)), "value": _VALUES[types[name]]}
        )

    return st.sampled_from(sorted(types)).flatmap(on)


def predicates(types: Mapping[str, type]) -> st.SearchStrategy[dict[str, Any]]:
    """Conditions and nested groups of them."""

    def groups(parts: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
        several = st.lists(parts, min_size=2, max_size=3)
        return st.fixed_dictionaries({"type": st.sampled_from(["and", "or"]), "predicates": several})

    return st.recursive(leaves(types), groups, max_leaves=6)


def plain(value: Any) -> Any:
    """Give a value as JSON has it; booleans are compared as text, §2.5."""
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [plain(part) for part in value]
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, date) else value


def simple(leaf: Mapping[str, Any]) -> str:
    """Give a condition as a simple expression, §2.6."""
    return f"{leaf['field']}:{leaf['operator']}:{plain(leaf['value'])}"


@st.composite
def rows_of(draw: st.DrawFn, types: Mapping[str, type], bulk: bool) -> tuple[Row, ...]:
    """Rows of a table: a few of any values, or many that are alike."""
    one = st.fixed_dictionaries({name: st.none() | _VALUES[kind] for name, kind in types.items()})
    few = draw(st.lists(one, max_size=5))
    if bulk and draw(st.booleans()):
        first, count = draw(st.integers(1000, 1200)), draw(st.sampled_from([50, 300]))
        few += [{name: _many(kind, first + number) for name, kind in types.items()} for number in range(count)]
    return ({name: _WITNESS[kind] for name, kind in types.items()}, *few)


def _many(kind: type, number: int) -> Value:
    of: dict[type, Value] = {int: number, str: f"n{number}", float: number / 4, bool: number % 2 == 0}
    return of.get(kind, date(2000, 1, 1))


@st.composite
def changes(draw: st.DrawFn, bulk: bool = False) -> Change:
    """What may be done to a table."""
    table_id = draw(st.sampled_from(sorted(_TABLES)))
    types = _TABLES[table_id]
    kinds = ["upload", "append", "append", "overwrite", "upsert", "upsert", "delete", "truncate"]
    kind = draw(st.sampled_from(kinds))
    if kind == "truncate":
        return Change(kind, table_id)
    if kind == "delete":
        return Change(kind, table_id, predicates=tuple(draw(st.lists(leaves(types), min_size=1, max_size=2))))
    keys = draw(st.permutations(sorted(types)))[: draw(st.integers(1, 2))] if kind == "upsert" else ()
    spoilt = draw(st.sampled_from(["", "", "", "", "type", "column"]))
    data_format = draw(st.sampled_from(sorted(ENCODERS)))
    rows = draw(rows_of(types, bulk))
    return Change(kind, table_id, data_format, rows, tuple(keys), (), spoilt, draw(st.integers(0, 99)))


#: What is under way when the service is killed, and when that is, seconds after it began.
_BURSTS = st.lists(changes(bulk=True), min_size=1, max_size=4)
_MOMENTS = st.floats(0.0, 0.25)


#: Steps, each as often as it is to come up.
_WEIGHTS = {
    "change": 5,
    "burst": 3,
    "end": 2,
    "page": 3,
    "scan": 1,
    "file": 2,
    "cross": 4,
    "refused": 1,
    "unwelcome": 1,
}
_STEPS = [name for name, weight in _WEIGHTS.items() for _ in range(weight)]


class ServiceAgainstModel(RuleBasedStateMachine):
    """One service in a process, one model of it, and steps that do the same to both.

    Attributes:
        form: In which the service is served and asked.
    """

    form: ClassVar[Form] = Form()

    def __init__(self) -> None:
        super().__init__()
        self.tables = {table_id: Table(types) for table_id, types in _TABLES.items()}
        self.snapshots: dict[str, list[str]] = {table_id: [] for table_id in _TABLES}
        self.changed: set[str] = set()
        self.known: set[str] = set()
        self.spoilt: list[Change] = []
        self.story: list[str] = []
        self.folder = tempfile.TemporaryDirectory(prefix="tds-model-")
        port = _free_port()
        options = [part for table_id in _TABLES for part in ("--table", table_id)]
        options += ["--token", _TOKEN, "--token", f"{_READER}:read=people", "--port", str(port)]
        options += self.form.options(Path(self.folder.name))
        self.service = ServiceProcess(Path(self.folder.name), *options)
        self.url = f"http://127.0.0.1:{port}"
        self.client = self.form.client(self.url, _TOKEN)

    @initialize(data=st.data())
    def start(self, data: st.DataObject) -> None:
        """Start it, and end it once at least."""
        self.service.begin()
        self.service.wait()
        self.end(data)

    def teardown(self) -> None:
        if isinstance(sys.exc_info()[1], AssertionError | errors.TableServiceError):  # a replay may go otherwise
            print("Last, a difference; before it:", *self.story[-12:], sep="\n", file=sys.stderr)
        self.client.close()
        if hasattr(self.service, "process"):
            self.service.kill()
        self.folder.cleanup()

    # ---- changes

    @rule(what=st.sampled_from(_STEPS), data=st.data())
    def step(self, what: str, data: st.DataObject) -> None:
        """Do something; one rule for all, so that nothing is left out for long."""
        getattr(self, what)(data)

    def change(self, data: st.DataObject) -> None:
        """Do one thing and wait for its end, as a caller does who blocks, or one who asks for the job."""
        change, waits = data.draw(changes()), data.draw(st.booleans())
        self.count(change.kind)
        self.tell(f"change {shown(change)}")
        refused = None
        try:
            if not change.writes:
                self.submit(change)
            elif waits:
                self.call(change, blocking=True)
            else:
                self.client.wait(self.submit(change), **_FAST)
        except (errors.JobFailed, errors.Conflict) as failed:
            refused = failed
        expected = self.expect(change)
        assert (refused is None) is expected, f"{refused!r}, the model says {expected}"

    def burst(self, data: st.DataObject) -> None:
        """Submit several things, and only then look how they ended."""
        burst = data.draw(st.lists(changes(bulk=True), min_size=2, max_size=5))
        jobs = []
        self.tell(f"burst {', '.join(map(shown, burst))}")
        for change in burst:
            self.count(change.kind)
            try:
                jobs.append(self.submit(change))
            except errors.Conflict:
                jobs.append("conflict")
        for change, job_id in zip(burst, jobs, strict=True):
            self.compare(change, job_id)

    def end(self, data: st.DataObject) -> None:
        """End the service with -9 while it works, perhaps again while it opens, or kindly; let it start once more."""
        burst, after = data.draw(_BURSTS), data.draw(_MOMENTS)
        opening = data.draw(st.none() | st.floats(0.2, 1.0))
        kindly = data.draw(st.sampled_from([False, False, False, True]))
        outcomes: list[str | errors.TableServiceError] = []

        def work() -> None:
            for change in burst:
                self.count(change.kind)
                try:
                    outcomes.append(self.submit(change))
                except errors.TableServiceError as failed:
                    outcomes.append(failed)

        worker = threading.Thread(target=work)
        worker.start()
        for delay in [after, *([opening] if opening is not None else [])]:
            time.sleep(delay)
            (self.service.stop if kindly else self.service.kill)()
            self.count("stop" if kindly else "kill -9")
            self.service.begin()
        self.service.wait()
        worker.join()
        self.tell(f"end {', '.join(map(shown, burst))} after {after}, {opening}, kindly {kindly}: {outcomes}")
        self.settle_all()
        for change, outcome in zip(burst, outcomes, strict=True):
            self.reconcile(change, outcome)

    def reconcile(self, change: Change, outcome: str | errors.TableServiceError) -> None:
        """Take over what became of a change that a kill may have hit."""
        if isinstance(outcome, str) and outcome:
            self.compare(change, outcome)
        elif isinstance(outcome, errors.Conflict):
            assert not self.expect(change)
        elif isinstance(outcome, str):
            self.expect(change)
            self.lost(change)
        else:
            found = self.lost(change)
            assert found is None or outcome.outcome == "unknown", f"{outcome!r}, and job {found} exists"
            if found is None:
                self.count("not acknowledged, not there")
            elif change.writes:
                self.count("not acknowledged, there")
                self.compare(change, found)
            else:
                self.count("not acknowledged, there")
                self.expect(change)

    def lost(self, change: Change) -> str | None:
        """Find the job of a change whose answer did not arrive, if there is one that got its data."""
        for job in self.jobs():
            job_id, waits = job["job_id"], job["status"] == "AWAITING"
            if (
                job_id not in self.known
                and not waits
                and (job["kind"], job["table_id"]) == (change.kind, change.table_id)
            ):
                self.known.add(job_id)
                return str(job_id)
        return None

    def settle_all(self) -> None:
        """Wait until no job is under way."""
        deadline = time.monotonic() + 60
        while any(job["status"] not in (*_FINAL, "AWAITING") for job in self.jobs()):
            assert time.monotonic() < deadline, "jobs do not end"

    def jobs(self) -> list[dict[str, Any]]:
        reply = httpx.get(f"{self.url}/admin/jobs", headers={"Authorization": f"Bearer {_TOKEN}"})
        found: list[dict[str, Any]] = reply.json()
        return found[::-1]

    def compare(self, change: Change, job_id: str) -> None:
        """Apply a change to the model, and hold its job to that."""
        expected = self.expect(change)
        if job_id in ("", "conflict"):
            assert change.kind in ("delete", "truncate") or (job_id and not expected)
            return
        self.known.add(job_id)
        try:
            self.client.wait(job_id, **_FAST)
            failed = ""
        except errors.JobFailed as failure:
            failed = str(failure)
        assert (not failed) is expected, f"job {job_id}: {failed or 'completed'}, the model says {expected}"

    def expect(self, change: Change) -> bool:
        """Apply a change to the model; False when its job is to fail."""
        table = self.tables[change.table_id]
        if change.kind == "delete":
            table.delete(change.predicates)
        elif change.kind == "truncate":
            table.rows = []
        elif any(change is each for each in self.spoilt) or not table.write(change.kind, change.rows, change.keys):
            return False
        if table.ingested:
            self.changed.add(change.table_id)
        return True

    def submit(self, change: Change) -> str:
        """Send a change; give its job, or nothing where there is none to ask for."""
        if change.kind == "delete":
            self.client.delete_rows(change.table_id, [simple(each) for each in change.predicates])
        elif change.kind == "truncate":
            self.client.truncate(change.table_id)
        else:
            job_id: str = self.call(change, blocking=False)
            self.known.add(job_id)
            if self.form.endpoint:
                self.taken(job_id)
            return job_id
        return ""

    def taken(self, job_id: str) -> None:
        """Wait until the service has a payload that its bucket acknowledged: only from then on it has an order."""
        deadline = time.monotonic() + 60
        while True:
            try:
                if self.client.get_job(job_id).status != "AWAITING":
                    return
            except errors.TableServiceError:  # killed; it is started again
                assert time.monotonic() < deadline, "the service did not come back"
            assert time.monotonic() < deadline, "the payload is not taken"

    def call(self, change: Change, *, blocking: bool) -> Any:
        """Call the client's method for a write, now under its own name and now as an update, §2.8."""
        chance = random.Random(change.seed)  # noqa: S311  # repeatable
        keys = {"key_columns": list(change.keys)} if change.keys else {}
        as_update = change.kind != "upload" and chance.random() < 0.3
        if as_update:
            keys["update_mode"] = change.kind  # type: ignore[assignment]  # an argument beside another
        name = ("" if blocking else "submit_") + ("update" if as_update else change.kind)
        method: Callable[..., Any] = getattr(self.client, name)
        payload = self.payload(change, chance)
        return method(change.table_id, payload, change.data_format, **keys, **(_FAST if blocking else {}))

    def payload(self, change: Change, chance: random.Random) -> bytes:
        types, rows = dict(_TABLES[change.table_id]), change.rows
        if change.spoilt and self.tables[change.table_id].ingested:  # a first load decides what is right
            self.spoilt.append(change)
            if change.spoilt == "column":
                types["surplus"] = int
                rows = tuple({**row, "surplus": 1} for row in rows)
            else:
                wrong = next(name for name, kind in types.items() if kind in (int, float))
                types[wrong] = str
                rows = (*rows, {**rows[0], wrong: "wrong"})
                rows = tuple({**row, wrong: None if row[wrong] is None else str(row[wrong])} for row in rows)
        return ENCODERS[change.data_format](types, rows, chance)

    # ---- reads

    def page(self, data: st.DataObject) -> None:
        """Read a page, and ask for it again with its etag."""
        limit, offset = data.draw(st.none() | st.integers(1, 60)), data.draw(st.integers(0, 20))
        table_id, table = self.any_table(data)
        matching = data.draw(st.lists(leaves(table.columns), max_size=2))
        self.count("query")
        found = self.client.query(table_id, filters=[simple(each) for each in matching], limit=limit, offset=offset)
        assert isinstance(found, QueryResponse)
        rows = [row for row in table.rows if all(holds(each, row) for each in matching)]
        assert found.metadata.total_count == len(rows)
        assert len(found.items) == min(max(len(rows) - offset, 0), limit or 1000)
        assert found.metadata.has_next is (offset + len(found.items) < len(rows))
        assert not bag(found.items, table.columns) - bag([plain_row(row) for row in rows], table.columns)
        assert found.etag == (self.client.info(table_id).snapshot_id or "")
        if found.etag:
            assert self.client.query(table_id, etag=found.etag) is None
            for old in self.snapshots[table_id][:-1][-1:]:
                assert self.client.query(table_id, etag=old) is not None

    def scan(self, data: st.DataObject) -> None:
        """Read all pages: together they are the table, each row once."""
        page_size = data.draw(st.integers(1, 7))
        table_id, table = self.any_table(data)
        matching = data.draw(st.lists(leaves(table.columns), max_size=1))
        size = page_size if len(table.rows) < 100 else 10_000
        self.count("query")
        found = list(self.client.iter_rows(table_id, filters=[simple(each) for each in matching], page_size=size))
        rows = [plain_row(row) for row in table.rows if all(holds(each, row) for each in matching)]
        assert bag(found, table.columns) == bag(rows, table.columns)

    def file(self, data: st.DataObject) -> None:
        """Query one table into a file."""
        result_format: Any = data.draw(st.sampled_from(["parquet", "csv"]))
        table_id, table = self.any_table(data)
        matching = data.draw(st.lists(leaves(table.columns), max_size=2))
        filters = [simple(each) for each in matching]
        self.count("submit_query")
        if not table.ingested:
            with pytest.raises(errors.ValidationFailed):
                self.client.submit_query(table_id, filters=filters, format=result_format)
            return
        job_id = self.client.submit_query(table_id, filters=filters, format=result_format)
        target = Path(self.folder.name) / "result"
        self.client.poll_download_to(job_id, target, **_FAST)
        rows = [row for row in table.rows if all(holds(each, row) for each in matching)]
        self.compare_result(target.read_bytes(), result_format, rows, types=table.columns)

    def cross(self, data: st.DataObject) -> None:
        """Query over joined tables, with nested groups."""
        count, result_format = data.draw(st.integers(0, 2)), data.draw(st.sampled_from(["parquet", "csv", "json"]))
        table_id, _ = self.any_table(data)
        request: dict[str, Any] = {"table_id": table_id, "format": result_format, "joins": []}
        shape = Joined(_SHAPES, table_id)
        for place in range(1, count + 1):
            request["joins"].append(self.any_join(data, shape))
            shape.join(place, request["joins"][-1])
        predicate = data.draw(st.none() | predicates(shape.types))
        if predicate is not None:
            request["filters"] = plain(predicate)
        if data.draw(st.booleans()):
            columns = st.lists(st.sampled_from(list(shape.types)), min_size=1, unique=True)
            request["select"] = data.draw(columns)
        self.count("cross_query")
        if not all(self.tables[each["table_id"]].ingested for each in (request, *request["joins"])):
            with pytest.raises(errors.ValidationFailed):
                self.client.submit_cross_query(request)
            return
        joined = Joined(self.tables, table_id)
        try:
            for place, spec in enumerate(request["joins"], 1):
                joined.join(place, spec)
        except TooLarge:
            return
        found = self.client.cross_query(request, **_FAST)
        rows = [row for row in joined.rows if predicate is None or holds(predicate, row)]
        self.compare_result(found, result_format, rows, request.get("select"), joined.types)

    def any_join(self, data: st.DataObject, joined: Joined) -> dict[str, Any]:
        """Choose a table to join, and columns of one kind to join it on."""
        other, table = self.any_table(data)
        how = data.draw(st.sampled_from(_HOWS))
        spec = {"table_id": other} | ({"how": how} if how else {})
        if how == "cross":
            return spec
        right_on = data.draw(st.sampled_from([n for n, kind in table.columns.items() if kind in joined.types.values()]))
        kind = table.columns[right_on]
        left_on = data.draw(st.sampled_from([name for name, each in joined.types.items() if each is kind]))
        return spec | {"left_on": left_on, "right_on": right_on}

    def compare_result(
        self,
        content: bytes,
        result_format: str,
        rows: Sequence[Row],
        select: Sequence[str] | None = None,
        types: Iterable[str] = (),
    ) -> None:
        """Hold a result file to the model's rows; which column stands first is the first load's to say."""
        names, found = _READERS[result_format](content)
        if not rows and not names:  # an empty JSON array names no column
            return
        assert names == list(select) if select else sorted(names) == sorted(types)
        as_is = result_format == "parquet"
        expected = bag(rows if as_is else [_WRITTEN[result_format](row) for row in rows], names)
        if result_format == "csv" and len(names) == 1:  # the reader leaves a blank line out, and so a lone NULL
            del expected["",]
        assert Counter(found) == expected

    # ---- errors

    def refused(self, data: st.DataObject) -> None:
        """Ask for what §7 and §8 refuse."""
        table_id, table = self.any_table(data)
        self.count("refused")
        client = self.client
        cases: list[tuple[type[Exception], Callable[[], object]]] = [
            (errors.TableNotFound, lambda: client.info("nowhere")),
            (errors.TableNotFound, lambda: client.query("nowhere")),
            (errors.TableNotFound, lambda: client.submit_append("nowhere", b"a\n1\n")),
            (errors.TableNotFound, lambda: client.truncate("nowhere")),
            (errors.TableNotFound, lambda: client.delete_rows("nowhere", "a:eq:1")),
            (errors.TableNotFound, lambda: client.submit_query("nowhere")),
            (errors.JobNotFound, lambda: client.get_job("none")),
            (errors.ValidationFailed, lambda: client.query(table_id, limit=10_001)),
            (errors.ValidationFailed, lambda: client.delete_rows(table_id, [])),
            (errors.ValidationFailed, lambda: client.submit_query(table_id, filters="no such:eq:1")),
        ]
        of_ingested: list[tuple[type[Exception], Callable[[], object]]] = [
            (errors.Conflict, lambda: client.submit_upload(table_id, b"a\n1\n")),
            (errors.ValidationFailed, lambda: client.query(table_id, filters="no such:eq:1")),
            (errors.ValidationFailed, lambda: client.delete_rows(table_id, "no such:eq:1")),
            (errors.ValidationFailed, lambda: client.submit_upsert(table_id, b"", key_columns="no such")),
        ]
        place = data.draw(st.integers(0, len(cases) + len(of_ingested) - 1))
        if place < len(cases) or table.ingested:
            kind, ask = [*cases, *of_ingested][place]
            with pytest.raises(kind):
                ask()

    def unwelcome(self, data: st.DataObject) -> None:
        """Come with no token, and with one that may only read one table, §5."""
        self.count("refused")
        with self.form.client(self.url, "wrong") as stranger, pytest.raises(errors.Unauthorized):
            stranger.info("people")
        with self.form.client(self.url, _READER) as reader:
            assert reader.info("people").row_count == len(self.tables["people"].rows)
            with pytest.raises(errors.Forbidden):
                reader.truncate("people")
            with pytest.raises(errors.Forbidden):
                reader.info("pets/1")

    # ---- what always holds

    @invariant()
    def statistics(self) -> None:
        """Compare each table's statistics, §2.2; a write makes a snapshot, and nothing else does."""
        if not hasattr(self.service, "process"):
            return
        self.count("step")
        self.settle_all()
        for table_id, table in self.tables.items():
            info = self.client.info(table_id)
            assert info.row_count == len(table.rows), f"{table_id} has {info.row_count} rows"
            assert bool(info.data_files) is bool(info.total_size_bytes) is bool(table.rows)
            assert bool(info.snapshot_id) is table.ingested
            seen = self.snapshots[table_id]
            if table_id in self.changed:
                assert info.snapshot_id not in seen
                seen.append(str(info.snapshot_id))
            else:
                assert ([info.snapshot_id] if table.ingested else []) == seen[-1:]
        self.changed.clear()
        self.known |= {job["job_id"] for job in self.jobs() if job["status"] != "AWAITING"}

    def any_table(self, data: st.DataObject) -> tuple[str, Table]:
        table_id = data.draw(st.sampled_from(sorted(_TABLES)))
        return table_id, self.tables[table_id]

    def count(self, what: str) -> None:
        COUNTS[what] += 1

    def tell(self, what: str) -> None:
        self.story.append(what)


def plain_row(row: Row) -> Row:
    """Give a row as JSON has it."""
    return {name: value.isoformat() if isinstance(value, date) else value for name, value in row.items()}


def text_row(row: Row) -> Row:
    """Give a row as CSV has it; the reader tells no NULL from an empty text."""
    return {name: "" if value is None else str(plain(value)) for name, value in row.items()}


_Result = tuple[list[str], list[tuple[Any, ...]]]


def _read_parquet(content: bytes) -> _Result:
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        found = duckdb.read_parquet(file.name)
        return found.columns, found.fetchall()


def _read_csv(content: bytes) -> _Result:
    header, *lines = csv.reader(io.StringIO(content.decode(), newline=""))
    return header, [tuple(line) for line in lines if line not in ([], [""])]


def _read_json(content: bytes) -> _Result:
    items = json.loads(content)
    return list(items[0]) if items else [], [tuple(item.values()) for item in items]


_READERS: Mapping[str, Callable[[bytes], _Result]] = {"parquet": _read_parquet, "csv": _read_csv, "json": _read_json}
_WRITTEN: Mapping[str, Callable[[Row], Row]] = {"csv": text_row, "json": plain_row}


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port
