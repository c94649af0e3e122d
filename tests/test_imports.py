"""The arrows of the house: who may import whom, imports inside functions included; and what importing costs."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import airflow_tds

PACKAGE = Path(airflow_tds.__file__).parent
#: Each room may import those before it.
ORDER = (
    "client.errors",
    "client.models",
    "client.filters",
    "client.threads",
    "client.rows",
    "client.payloads",
    "client.downloads",
    "client.messages",
    "client.credentials",
    "client.access",
    "client.progress",
    "client.routes",
    "client.replies",
    "client.refusals",
    "client.forms",
    "client.asking",
    "client.wire",
    "client.silences",
    "client.conditions",
    "client.waiting",
    "client.http.redaction",
    "client.http.written",
    "client.http.failures",
    "client.http.outgoing",
    "client.http.incoming",
    "client.http.admission",
    "client.http.connections",
    "client.http.sockets",
    "client.http.carriers",
    "client.http.lanes",
    "client.runtime",
    "client.calls",
    "client.sending",
    "client.writes",
    "client.queries",
    "client.client",
    "durability.records",
    "durability.stores",
    "durability.decisions",
    "durability.steps",
    "durability.sources",
    "durability.writes",
    "durability.loads",
    "durability.requests",
    "durability.queries",
    "durability",
    "form",
    "settings",
    "trial",
    "doctor",
    "doctor.options",
    "doctor.reports",
    "doctor.patient",
    "doctor.reaching",
    "doctor.reading",
    "doctor.waiting",
    "doctor.writing",
    "doctor.proposals",
    "tasks",
    "inputs",
    "outputs",
    "etags",
    "metrics",
    "operations",
    "hooks",
    "doctor.command",
    "cli",
    "polling",
    "triggers",
    "operators.failures",
    "operators.deferring",
    "operators.base",
    "operators.writes",
    "operators.requests",
    "operators.queries",
    "operators.tables",
    "operators",
    "sensors",
)
#: Rooms beside the line: they import nothing of it.
ASIDE = ("", "client", "client.http", "compat", "provider_info")
#: What the embedded service may know of the client: it must be able to disagree with it.
FOR_LOCAL = {"client.errors", "client.models", "client.messages", "client.wire"}
FILES = {
    path.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", ".").removesuffix("__init__").rstrip("."): path
    for path in PACKAGE.rglob("*.py")
}
LOCAL = [name for name in FILES if name.split(".")[0] in ("local", "testing")]


def imported(path: Path) -> Iterator[str]:
    """Name every module that a file imports, wherever the import stands."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the arrows"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole.removeprefix("airflow_tds.") in FILES else node.module or ""


def own(path: Path) -> set[str]:
    """Name the rooms of the house that a file imports."""
    names = {name for name in imported(path) if name.split(".")[0] == "airflow_tds"}
    return {name.removeprefix("airflow_tds").lstrip(".") for name in names}


def test_every_room_has_its_place() -> None:
    assert set(FILES) == {*ORDER, *ASIDE, *LOCAL}


@pytest.mark.parametrize("room", ORDER)
def test_a_room_imports_those_before_it_only(room: str) -> None:
    before = set(ORDER[: ORDER.index(room)])
    aside = {"", "compat", "provider_info"} if not room.startswith("client") else {""}

    assert own(FILES[room]) <= before | aside


@pytest.mark.parametrize("room", [name for name in FILES if name == "client.runtime" or name.startswith("client.http")])
def test_waiting_and_runtime_do_not_know_each_other(room: str) -> None:
    assert "client.waiting" not in own(FILES[room])


@pytest.mark.parametrize("room", ASIDE)
def test_a_room_beside_the_line_imports_nothing_of_it(room: str) -> None:
    assert own(FILES[room]) <= {""}


@pytest.mark.parametrize("room", LOCAL)
def test_the_embedded_service_knows_only_what_travels(room: str) -> None:
    assert {name for name in own(FILES[room]) if name.split(".")[0] != "local"} <= FOR_LOCAL


@pytest.mark.parametrize("room", [name for name in FILES if name not in LOCAL])
def test_nothing_needs_the_embedded_service(room: str) -> None:
    assert not [name for name in own(FILES[room]) if name.split(".")[0] == "local"]


@pytest.mark.parametrize("room", [name for name in FILES if name.split(".")[0] in ("client", "local")])
def test_client_and_embedded_service_do_not_know_airflow(room: str) -> None:
    assert "airflow" not in {name.split(".")[0] for name in imported(FILES[room])}


@pytest.mark.parametrize("room", [name for name in FILES if not name.startswith("client.http.")])
def test_only_the_rooms_of_http_talk_http(room: str) -> None:
    assert not {"httpx", "httpcore"} & {name.split(".")[0] for name in imported(FILES[room])}


def loaded_by(*statements: str) -> set[str]:
    """Give the modules that a fresh interpreter has loaded after some statements."""
    script = "\n".join([*statements, "import json, sys", "print(json.dumps(list(sys.modules)))"])
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_parsing_a_dag_loads_no_more_of_the_house_than_operators_and_errors() -> None:
    airflow = loaded_by("import airflow.providers.common.compat.sdk as sdk", "sdk.BaseOperator, sdk.BaseHook, sdk.conf")
    ours = loaded_by("import airflow_tds.operators") - airflow

    assert {name for name in ours if name.split(".")[0] == "airflow_tds"} <= {
        "airflow_tds",
        "airflow_tds.client",
        "airflow_tds.client.errors",
        "airflow_tds.compat",
        "airflow_tds.operators",
        *(f"airflow_tds.{room}" for room in ORDER if room.startswith("operators.")),
    }
    assert not {name.split(".")[0] for name in ours} & {"httpx", "duckdb", "pydantic", "starlette", "uvicorn"}


def test_the_embedded_service_is_loaded_when_it_is_used() -> None:
    assert not loaded_by("import airflow_tds.local") & {"duckdb", "uvicorn", "starlette", "httpx"}
