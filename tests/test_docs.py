"""The documentation is true: every Python block runs, every JSON block is JSON, every link leads somewhere."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path

import pytest
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]


def blocks(page: Path, language: str) -> list[str]:
    """The code blocks of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_python_block_runs(page: Path) -> None:
    document = Sybil(parsers=[PythonCodeBlockParser()]).parse(page)
    examples = list(document.examples())
    for example in examples:
        example.evaluate()

    assert len(examples) == len(blocks(page, "python"))


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_json_block_is_json(page: Path) -> None:
    for block in blocks(page, "json"):
        assert json.loads(block)


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_link_leads_somewhere(page: Path) -> None:
    targets = [link for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()) if "://" not in link]

    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_the_wire_example_is_a_wire_map() -> None:
    from airflow_tds.client.wire import Wire

    example = json.loads(blocks(ROOT / "docs" / "connection.md", "json")[1])

    assert Wire.from_setting(example).truncate.method == "DELETE"


def test_the_connection_page_lists_every_extra() -> None:
    from airflow_tds.settings import EXTRA

    page = (ROOT / "docs" / "connection.md").read_text()

    assert [name for name in EXTRA if f"| `{name}` |" not in page] == []


def test_the_client_page_shows_every_operation() -> None:
    from airflow_tds.client.client import AsyncTableClient, Operations

    steps = {"initiate", "presign", "send_data", "commit", "submit_direct", "look", "watch", "next_page"}
    methods = dict(inspect.getmembers(Operations, inspect.iscoroutinefunction)) | vars(AsyncTableClient)
    operations = {name for name in methods if not name.startswith("_")} - steps
    examples = "".join(blocks(ROOT / "docs" / "client.md", "python"))

    assert [name for name in sorted(operations) if f".{name}(" not in examples] == []


def classes() -> list[str]:
    """Every operator and sensor that a DAG can import."""
    from airflow_tds import operators, sensors

    return [name for name in (*operators.__all__, *sensors.__all__) if name.startswith("Tds")]


def test_the_operators_page_has_a_section_with_an_example_for_each() -> None:
    page = (ROOT / "docs" / "operators.md").read_text()
    sections = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL))
    used = {name: rf"^```python\n(?s:.*?)\b{name}\(" for name in sections}
    shown = {name for name, text in sections.items() if re.search(used[name], text, re.MULTILINE)}

    assert [name for name in classes() if name not in shown] == []


def test_the_outcomes_page_has_a_row_for_each() -> None:
    page = (ROOT / "docs" / "outcomes.md").read_text()

    assert [name for name in classes() if f"| `{name}` | success |" not in page] == []


@pytest.mark.parametrize("section", ["Run it", "Test it"])
def test_the_two_commands_name_a_script_that_exists(section: str) -> None:
    text = (ROOT / "README.md").read_text()
    command = re.search(rf"^## {section}\n+```sh\n(.*?)\n```", text, re.MULTILINE | re.DOTALL)

    assert command is not None
    assert (ROOT / command[1].split()[-1]).is_file()
