"""The command: what it prints, what it logs, what it refuses."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from airflow_tds.hooks import TdsHook
from airflow_tds.local import Service

COMMAND = [sys.executable, "-m", "airflow_tds.local"]


@contextmanager
def served(*options: str) -> Iterator[tuple[list[str], list[str]]]:
    """Serve; give the four lines that are printed at the start, and in the end those of the log."""
    process = subprocess.Popen([*COMMAND, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    log: list[str] = []
    try:
        yield [process.stdout.readline().rstrip("\n") for _ in range(4)], log
    finally:
        process.send_signal(signal.SIGTERM)
        log += process.communicate()[1].splitlines()
        assert process.returncode == 0


def url_in(line: str) -> str:
    return line.partition(" at ")[2].partition(",")[0]


@pytest.mark.parametrize("form", ["URI", "JSON"])
def test_the_printed_connection_works_as_it_is(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with served("--table", "t", "--base-path", "/api/v1") as (lines, _):
        printed = next(line for line in lines if line.startswith(f"Connection as {form}:"))
        monkeypatch.setenv("AIRFLOW_CONN_TDS_DEFAULT", printed.partition(":")[2].strip())
        assert TdsHook().settings().wire().no_data_statuses == ("AWAITING",)
        with TdsHook().get_conn() as client:
            assert client.info("t").row_count == 0


def test_a_token_that_was_given_is_not_repeated() -> None:
    with served("--token", "hush-hush") as (lines, _):
        assert "hush-hush" not in "".join(lines)
        assert "TOKEN" in lines[1]


def test_each_request_is_a_line_without_its_query() -> None:
    with served("--table", "t", "--token", "root", "--token", "guest:read=other") as (lines, log):
        path = f"{url_in(lines[0])}/tables/t/data/query?filters=secret"
        for token in ("root", "guest", "wrong"):
            httpx.get(path, headers={"Authorization": f"Bearer {token}"})
    assert [line.split()[2:5] for line in log] == [
        ["GET", "/tables/t/data/query", code] for code in ("422", "403", "401")
    ]


def test_a_quiet_service_logs_nothing() -> None:
    with served("--quiet") as (lines, log):
        httpx.get(url_in(lines[0]))
    assert log == []


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com"])  # noqa: S104  # refused
def test_it_is_not_reached_from_elsewhere_without_a_token(host: str) -> None:
    failed = subprocess.run([*COMMAND, "--host", host], capture_output=True, text=True, check=False)
    assert failed.returncode == 2
    assert "needs a --token" in failed.stderr


def test_a_payload_without_its_length_is_refused_where_it_is_asked_for() -> None:
    with Service(tables=["t"], token="token", chunked=False) as service:
        headers = {"Authorization": "Bearer token"}
        begun = httpx.patch(f"{service.url}/tables/t/data", json={"format": "csv"}, headers=headers).json()
        chunked = httpx.put(begun["upload_url"], content=iter([b"a\n", b"1\n"]))
        assert (chunked.status_code, "<Code>MissingContentLength</Code>" in chunked.text) == (411, True)
        assert httpx.put(begun["upload_url"], content=b"a\n1\n").status_code == 200


def test_there_is_a_command_of_its_own() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert project["project"]["scripts"]["airflow-tds-local"] == "airflow_tds.local.__main__:main"


def test_a_service_in_python_tells_its_connection_too() -> None:
    with Service(token="a/b") as service:
        assert json.loads(service.connection_json)["password"] == "a/b"
        assert service.connection_uri.startswith(f"tds://:a%2Fb@{service.url.removeprefix('http://')}/http?wire=")


def test_the_page_tells_every_option() -> None:
    page = (Path(__file__).parents[2] / "docs" / "local-service.md").read_text()
    usage = subprocess.run([*COMMAND, "--help"], capture_output=True, text=True, check=True).stdout
    options = set(re.findall(r"--[a-z0-9-]+", usage.partition("options:")[2])) - {"--help"}
    assert len(options) > 10
    assert {option for option in options if f"`{option}" not in page} == set()
