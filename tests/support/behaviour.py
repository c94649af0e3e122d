"""What differs between the versions of Airflow, as each of them shows it, and the page that says so.

A fact is looked up in the Airflow that runs, never concluded from its number. `python3 tests/run.py matrix` looks on
every version and writes docs/behaviour-by-version.md; a test on each version holds the page to it.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import prerequisites

__all__ = ["FACTS", "observed", "page", "told"]


def _has(module: str, name: str) -> bool:
    try:
        return hasattr(import_module(module), name)
    except ImportError:
        return False


def _reads(key: str) -> bool:
    """Say whether this Airflow reads a key of the provider info."""
    import airflow

    return f'"{key}"' in (Path(airflow.__file__).parent / "providers_manager.py").read_text()


def _either(found: bool, yes: str, no: str) -> str:
    return yes if found else no


def _takes(parameter: str) -> bool:
    from airflow.providers.common.compat.sdk import BaseOperator

    return parameter in inspect.signature(BaseOperator.__init__).parameters


def _on_kill() -> bool:
    from airflow.triggers.base import BaseTrigger

    return hasattr(BaseTrigger, "on_kill")


def _form() -> str:
    if _reads("conn-fields"):
        return "provider info"
    # 3.0 shows what a hook says only where the packages of the old forms happen to be there
    return _either(
        find_spec("wtforms") is not None or version("apache-airflow") >= "3.1", "hook", "host to password only"
    )


#: What is looked up, in the order of the page.
FACTS: Mapping[str, Callable[[], str]] = {
    "A write's record": lambda: _either(
        _has("airflow.sdk.execution_time.context", "TaskStateStoreAccessor"), "task state store", "where `store` says"
    ),
    "A task's own `retry_policy`": lambda: _either(_takes("retry_policy"), "asked", "none"),
    "A deferral's timeout": lambda: _either(
        any(_has(name, "TaskDeferralTimeout") for name in ("airflow.sdk.exceptions", "airflow.exceptions")),
        "a class of its own",
        "told by its text",
    ),
    "A user ends a deferred task": lambda: _either(_on_kill(), "the trigger is told", "the trigger is cancelled"),
    "Connection form from": _form,
    "`airflow tds doctor`": lambda: _either(_reads("cli"), "yes", "`airflow-tds doctor`"),
    "Secrets found by a trigger": lambda: _either(
        _has("airflow.sdk.log", "amask_secret"), "hidden everywhere", "hidden in the triggerer"
    ),
    "A connection's extra in a trigger": lambda: _either(
        _has("airflow.providers.common.compat.connection", "get_async_extra_dejson"), "async", "in a thread"
    ),
    "Data assets are called": lambda: _either(_has("airflow.sdk", "Asset"), "assets", "datasets"),
}


def observed() -> dict[str, str]:
    """Look everything up in the Airflow that runs."""
    return {name: look() for name, look in FACTS.items()}


_HEAD = """\
# Behaviour by version

Written by `python3 tests/run.py matrix`, which looks each fact up in the version itself; do not edit.

The provider needs Airflow 2.11 or later and Python 3.11 or later. These versions are tested, each with the packages of
its own time (`requirements/airflow-<version>.txt`): all of what touches Airflow (connection, hook, operators and
sensors in both modes, triggers) runs on each, from the built wheel; everything else, a real Airflow with all its
processes among it, on the newest. A deprecation warning that a call of ours causes is an error on every version.
"""

_TAIL = """\
## What differs for you

- **Without a state store for tasks** a write is protected within a try, a deferral included, and not across tries: if
  a try dies, its retry starts anew and rows may double. The log says so, once a try. Name a `store` of your own to
  keep the record elsewhere ([what a write promises](durability.md)).
- **Before 3.2 not every clear of a task can be told from a retry**: a record in a store of your own may then take a
  cleared task for a retried one.
- **A task's `execution_timeout`** is not kept by Airflow 3 while a task is deferred. Ours is: the wait ends two
  seconds before it, in both modes. Airflow 2.11 keeps it, and would end the task without a word of the job on its way
  back: there a deferred wait ends 30 seconds before, or a tenth of it if that is more, at most half.
- **With Airflow 3.0** install the provider without Airflow's own constraint file: it holds an older
  `apache-airflow-providers-common-compat` than this provider works with. Its connection form shows the extras only
  where `wtforms` and `flask-appbuilder` are installed; the extra as JSON works everywhere.
- **Without `retry_policy`** errors that no retry can mend end the task at once; with one of the task's own they do
  not: it is asked.
- **A trigger that is cancelled** drops its subscription and changes nothing; the job goes on, on every version.
"""


def page(by_version: Mapping[str, Mapping[str, str]]) -> str:
    """Give the page.

    Args:
        by_version: What was observed on each version, the newest first.
    """
    newest = [prerequisites.OTHERS.get(one, prerequisites.PYTHONS[-1]) for one in by_version]
    pythons = " | ".join(f"3.11 to {major}.{minor}" for major, minor in newest)
    lines = [f"| | {' | '.join(by_version)} |", f"|---|{'---|' * len(by_version)}", f"| Python | {pythons} |"]
    lines += [f"| {name} | {' | '.join(facts[name] for facts in by_version.values())} |" for name in FACTS]
    return "\n".join([_HEAD, *lines, "", _TAIL])


def told(text: str) -> dict[str, dict[str, str]]:
    """Read what the page says of each version."""
    lines = re.findall(r"^\|.*\|$", text, re.MULTILINE)
    head, _, *rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in lines]
    return {one: {row[0]: row[n] for row in rows if row[0] in FACTS} for n, one in enumerate(head[1:], 1)}


if __name__ == "__main__":
    print(json.dumps(observed()))
