"""The page for people: what it shows, and that nothing of users' data becomes markup."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode

import httpx
import pytest
from caller import Caller

from airflow_tds.local import Service


@pytest.fixture(scope="module")
def shown(service: Service) -> httpx.Response:
    return httpx.get(f"{service.url}/")


def test_the_page_is_for_everybody_and_holds_no_data(shown: httpx.Response, service: Service) -> None:
    assert shown.status_code == 200
    assert shown.headers["content-type"].startswith("text/html")
    assert service.token not in shown.text


@pytest.mark.parametrize("element", ["style", "script"])
def test_its_policy_allows_its_own_style_and_script_only(shown: httpx.Response, element: str) -> None:
    (content,) = re.findall(rf"<{element}>(.*?)</{element}>", shown.text, re.DOTALL)
    digest = b64encode(hashlib.sha256(content.encode()).digest()).decode()
    policy = shown.headers["content-security-policy"]
    assert f"{element}-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_it_loads_nothing_else_and_writes_no_markup(shown: httpx.Response) -> None:
    assert not re.search(r"src=|href=|@import|url[(]", shown.text)
    assert not re.search("innerHTML|outerHTML|insertAdjacentHTML|document.write|eval", shown.text)


def test_what_it_asks_for_is_served(caller: Caller, table: str) -> None:
    caller.write("upload", table, b"a\n<b>1</b>\n")
    bad = caller.write("append", table, b"b\n1\n")
    tables = {each["table_id"]: each for each in caller.http.get("/admin/tables").json()}
    jobs = caller.http.get("/admin/jobs").json()
    assert (tables[table]["row_count"], tables[table]["snapshot_id"]) == (1, caller.info(table)["snapshot_id"])
    assert jobs[0] == bad
    assert jobs[1]["status"] == "COMPLETED"
    assert caller.http.get(f"/admin/tables/{table}/rows").json() == {"columns": ["a"], "items": [["<b>1</b>"]]}


def test_columns_come_in_their_order_also_where_no_row_is_left(caller: Caller, table: str) -> None:
    caller.write("upload", table, b"b,1,__proto__\n1,2,3\n")
    first = caller.http.get(f"/admin/tables/{table}/rows").json()
    caller.truncate(table)
    left = caller.http.get(f"/admin/tables/{table}/rows").json()
    assert (first["columns"], first["items"]) == (["b", "1", "__proto__"], [[1, 2, 3]])
    assert (left["columns"], left["items"]) == (["b", "1", "__proto__"], [])


def test_it_asks_below_the_base_path() -> None:
    with Service(base_path="/api/v1") as other:
        text = httpx.get(f"{other.url}/").text
    assert '"tables": "/api/v1/admin/tables"' in text
