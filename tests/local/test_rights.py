"""Who may do what: tokens with rights per table, §5."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from airflow_tds.client.errors import ValidationFailed
from airflow_tds.local import Rights, Service
from airflow_tds.local.rights import ALL, parse_token

TOKENS = {"reader": Rights(read=["sales"]), "writer": Rights(write=["sales"]), "any": Rights(read="*")}


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(tables=["sales", "people"], token="root", tokens=TOKENS) as running:
        yield running


def status(service: Service, token: str, method: str, path: str, body: object = None) -> int:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.request(method, service.url + path, headers=headers, json=body).status_code


READS = [("GET", "/tables/{}/data/info"), ("GET", "/tables/{}/data/query")]
WRITES = [
    ("PATCH", "/tables/{}/data"),
    ("POST", "/tables/{}/data/upload"),
    ("POST", "/tables/{}/data/overwrite"),
    ("POST", "/tables/{}/data/upsert"),
    ("POST", "/tables/{}/data/delete"),
    ("POST", "/tables/{}/data/truncate"),
]


@pytest.mark.parametrize("route", READS)
@pytest.mark.parametrize(
    ("token", "table", "expected"),
    [
        ("root", "people", 200),
        ("any", "people", 200),
        ("reader", "sales", 200),
        ("writer", "sales", 200),
        ("reader", "people", 403),
        ("writer", "people", 403),
        ("reader", "nowhere", 403),
    ],
)
def test_reading_needs_a_right_to_the_table(
    service: Service, route: tuple[str, str], token: str, table: str, expected: int
) -> None:
    assert status(service, token, route[0], route[1].format(table)) == expected


@pytest.mark.parametrize(("method", "path"), WRITES)
@pytest.mark.parametrize(("token", "table"), [("reader", "sales"), ("any", "sales"), ("writer", "people")])
def test_writing_needs_the_right_to_write(service: Service, method: str, path: str, token: str, table: str) -> None:
    before = status(service, "root", "GET", "/tables/sales/data/info")
    assert status(service, token, method, path.format(table), {"format": "csv"}) == 403
    assert status(service, "root", "GET", "/tables/sales/data/info") == before


def test_who_may_write_may_start_a_write_and_read_its_job(service: Service) -> None:
    headers = {"Authorization": "Bearer writer"}
    begun = httpx.patch(f"{service.url}/tables/sales/data", headers=headers, json={"format": "csv"}).json()
    path = f"/data/jobs/{begun['job_id']}"
    assert [status(service, token, "GET", path) for token in ("writer", "reader", "any", "root")] == [200] * 4


def test_a_job_is_shown_to_whom_its_tables_are(service: Service) -> None:
    headers = {"Authorization": "Bearer root"}
    begun = httpx.patch(f"{service.url}/tables/people/data", headers=headers, json={"format": "csv"}).json()
    assert status(service, "reader", "GET", f"/data/jobs/{begun['job_id']}") == 403


def test_a_query_needs_a_right_to_every_table_that_it_names(service: Service) -> None:
    joined = {"table_id": "sales", "joins": [{"table_id": "people", "how": "cross"}]}
    assert status(service, "reader", "POST", "/data/queries", joined) == 403
    assert status(service, "any", "POST", "/data/queries", joined) == 422  # allowed; the tables have no columns yet


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/admin/tables"),
        ("GET", "/admin/tables"),
        ("GET", "/admin/jobs"),
        ("GET", "/admin/requests"),
        ("POST", "/admin/faults"),
        ("GET", "/admin/faults"),
        ("DELETE", "/admin/faults"),
    ],
)
def test_the_admin_routes_are_for_tokens_with_all_rights(service: Service, method: str, path: str) -> None:
    assert [status(service, token, method, path, {"table_id": "new"}) for token in TOKENS] == [403] * 3


def test_a_token_is_written_with_its_rights() -> None:
    assert parse_token("secret") == ("secret", ALL)
    assert parse_token("secret:read=a,b:c:write=*") == ("secret", Rights(frozenset({"a", "b:c"}), frozenset("*")))


@pytest.mark.parametrize("text", ["", ":read=a", "secret:read=a:read=b"])
def test_a_token_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ValidationFailed, match="TOKEN:read="):
        parse_token(text)


def test_a_right_that_does_not_exist_is_named_and_makes_no_token_with_all_rights() -> None:
    with pytest.raises(ValidationFailed, match="no right called 'raed'"):
        parse_token("bob:raed=people")
    with pytest.raises(ValidationFailed, match="no right called 'admin'"):
        parse_token("bob:admin=yes:read=people")


@pytest.mark.parametrize("token", ["Zm9v:YmFy=", "a:b", "a=b", "a.b=="])
def test_a_token_may_look_a_little_like_a_right(token: str) -> None:
    assert parse_token(token) == (token, ALL)
