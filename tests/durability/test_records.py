"""A record is JSON that outlives its process, its writer's version and a careless edit."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_tds.client import errors
from airflow_tds.durability import FileStore, MemoryStore, ObjectStore, Record, TaskStore, VariableStore

RECORD = Record("append", "t", "this", "c1", "sent", job_id="j1", rows=3, lease=1.5, seen="AWAITING", max_tries=2)


def test_a_record_survives_json() -> None:
    assert Record.from_json(json.loads(json.dumps(RECORD.to_json()))) == RECORD


def test_a_record_stays_below_a_kilobyte_whatever_it_names() -> None:
    longest = replace(
        RECORD,
        op="delete_rows",
        table_id="t" * 255,
        identity="0" * 16,
        content="0" * 16,
        phase="failed_clean",
        job_id="j" * 128,
        snapshot="s" * 128,
        rows=10**18,
        lease=1795300111.7112634,
        seen="S" * 64,
        max_tries=10**6,
        clear_number=10**6,
        at=1795300111.7112634,
    )
    assert len(json.dumps(longest.to_json()).encode()) < 1024


#: As they lay in stores, one for each form that a version of this package has written.
EARLIER = {
    "0.1, an append": (
        '{"op": "append", "table_id": "t", "identity": "1b4f0e9851971998", "content": "9f86d081884c7d65",'
        ' "phase": "sent", "job_id": "j1", "snapshot": "s1", "rows": 3, "lease": 1795300111.7, "seen": "AWAITING",'
        ' "max_tries": 1, "clear_number": 0, "at": 1795296000.1, "v": 1}'
    ),
    "0.1, a truncation": (
        '{"op": "truncate", "table_id": "t", "identity": "1b4f0e9851971998", "content": "", "phase": "intent",'
        ' "job_id": "", "snapshot": "s1", "rows": 3, "lease": 0.0, "seen": "", "max_tries": 1, "clear_number": 0,'
        ' "at": 1795296000.1, "v": 1}'
    ),
}


@pytest.mark.parametrize("text", EARLIER.values(), ids=EARLIER)
def test_a_record_of_an_earlier_version_is_read(text: str) -> None:
    values = json.loads(text)
    record = Record.from_json(values)
    assert record.to_json() == values


@pytest.mark.parametrize("missing", ["seen", "rows", "clear_number", "at"])
def test_a_record_that_knows_less_is_read(missing: str) -> None:
    values = RECORD.to_json()
    del values[missing]
    assert Record.from_json(values).job_id == "j1"


def test_unknown_fields_of_a_record_are_ignored() -> None:
    assert Record.from_json(RECORD.to_json() | {"later": 1}) == RECORD


def test_a_record_of_another_version_is_refused() -> None:
    with pytest.raises(errors.ValidationFailed, match=r"version 2, this package reads 1; upgrade it, or delete"):
        Record.from_json(RECORD.to_json() | {"v": 2})


@pytest.mark.parametrize("values", ["text", 1, ["sent"], {}, RECORD.to_json() | {"phase": "finished"}])
def test_what_is_no_record_is_refused(values: Any) -> None:
    with pytest.raises(errors.ValidationFailed, match="damaged"):
        Record.from_json(values)


def test_a_record_that_lacks_a_field_is_refused() -> None:
    values = RECORD.to_json()
    del values["identity"]
    with pytest.raises(errors.ValidationFailed, match=r"damaged: .*identity"):
        Record.from_json(values)


def test_memory_keeps_a_record_for_the_life_of_a_process() -> None:
    store = MemoryStore()
    assert store.load() is None
    store.save(RECORD)
    assert store.load() == RECORD


class Accessor:
    """What Airflow gives a task: JSON values by key."""

    def __init__(self) -> None:
        self.kept: dict[str, tuple[str, timedelta]] = {}

    def get(self, key: str) -> Any:
        return json.loads(self.kept[key][0]) if key in self.kept else None

    def set(self, key: str, value: Any, *, retention: timedelta) -> None:
        self.kept[key] = json.dumps(value), retention


def test_the_tasks_store_keeps_a_record_under_its_key_for_as_long_as_it_is_told() -> None:
    accessor = Accessor()
    store = TaskStore(accessor, "key", timedelta(days=3))
    assert store.load() is None
    store.save(RECORD)
    assert store.load() == RECORD
    assert accessor.kept["key"][1] == timedelta(days=3)


class Variables:
    """What Airflow gives for Variables: texts by key."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}

    def get(self, key: str, default: Any) -> Any:
        return self.kept.get(key, default)

    def set(self, key: str, value: str) -> None:
        self.kept[key] = value


def test_a_variable_keeps_a_record_as_text() -> None:
    variables = Variables()
    store = VariableStore(variables, "key")
    assert store.load() is None
    store.save(RECORD)
    assert VariableStore(variables, "key").load() == RECORD
    assert store.name == "the Variable key"


@pytest.fixture(params=[FileStore, ObjectStore])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return request.param(tmp_path / "record.json")


def test_a_file_and_an_object_keep_a_record(store: Any, tmp_path: Path) -> None:
    assert store.load() is None
    store.save(replace(RECORD, phase="initiated"))
    store.save(RECORD)
    assert store.load() == RECORD
    assert store.name.endswith(f"{tmp_path}/record.json")
    assert [path.name for path in tmp_path.iterdir()] == ["record.json"]


def test_a_file_that_is_damaged_is_refused(store: Any, tmp_path: Path) -> None:
    (tmp_path / "record.json").write_text("{")
    with pytest.raises(errors.ValidationFailed, match="damaged: it is no JSON"):
        store.load()


def test_a_record_that_cannot_be_stored_leaves_the_earlier_one(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "record.json")
    store.save(RECORD)
    unstorable = replace(RECORD, identity=object())  # type: ignore[arg-type]  # stands for a full disk
    with pytest.raises(TypeError):
        store.save(unstorable)
    assert store.load() == RECORD
    assert [path.name for path in tmp_path.iterdir()] == ["record.json"]


def test_the_tasks_store_says_where_a_person_finds_the_record() -> None:
    assert TaskStore(Accessor(), "key", timedelta(days=3)).name == "the task's state store, key key"
