"""The hook offers every operation of the client itself, with the client's signatures, and loads it only when used."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_tds.client import errors
from airflow_tds.client.client import TableClient
from airflow_tds.hooks import TdsHook
from airflow_tds.local import Service

#: §4.1.
WRITES = ("upload", "append", "overwrite", "upsert", "update")
INTERFACE = [
    *("info", "query", "submit_query", "cross_query", "submit_cross_query"),
    *("poll_download", "poll_download_to", "get_job", "delete_rows", "truncate"),
    *WRITES,
    *(f"submit_{write}" for write in WRITES),
]
ROWS = "id,name\n1,a\n2,b\n"


@pytest.mark.parametrize("name", [*INTERFACE, "wait", "wait_until_truncated"])
def test_an_operation_of_the_hook_looks_like_the_clients(name: str) -> None:
    ours, theirs = getattr(TdsHook(), name), getattr(TableClient("http://x"), name)

    assert inspect.signature(ours) == inspect.signature(theirs)
    assert (ours.__name__, ours.__doc__) == (theirs.__name__, theirs.__doc__)


def test_every_operation_of_the_interface_is_there() -> None:
    assert len(INTERFACE) == 20
    assert [name for name in INTERFACE if not callable(getattr(TdsHook(), name, None))] == []


def test_an_operation_of_the_class_says_that_it_needs_a_hook() -> None:
    with pytest.raises(TypeError, match=r"info needs a hook: TdsHook\(\.\.\.\)\.info"):
        TdsHook.info("t")


def test_operations_reach_the_service(service: Service, table: str, tmp_path: Path) -> None:
    hook = TdsHook()
    hook.upload(table, ROWS, "csv", poll_interval=0.05)
    job = hook.submit_append(table, "id,name\n3,c\n", "csv")
    hook.wait(job, poll_interval=0.05)
    page = hook.query(table, limit=2)
    asked = hook.submit_query(table, format="csv", filters="id:gt:2")
    result = hook.poll_download_to(asked, tmp_path / "r.csv", poll_interval=0.05)

    assert hook.info(table).row_count == 3
    assert page is not None
    assert (len(page.items), page.metadata.has_next) == (2, True)
    assert result.read_text() == "id,name\n3,c\n"
    assert [row["id"] for row in hook.iter_rows(table, page_size=2)] == [1, 2, 3]
    assert len(list(hook.iter_rows(table))) == 3


def test_an_operation_raises_the_plain_error(service: Service) -> None:
    with pytest.raises(errors.TableNotFound) as raised:
        TdsHook().info("nowhere")

    assert type(raised.value) is errors.TableNotFound


def test_importing_the_hook_loads_no_client() -> None:
    script = "import airflow_tds.hooks, json, sys; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    ours = [name for name in json.loads(done.stdout.splitlines()[-1]) if name.startswith("airflow_tds.client.")]
    assert ours == ["airflow_tds.client.errors"]
