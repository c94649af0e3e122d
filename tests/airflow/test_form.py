"""The connection's form, as this version of Airflow makes it: from the provider info, or below 3.2 from the hook."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from typing import Any

import pytest

from airflow_tds.hooks import TdsHook
from airflow_tds.settings import EXTRA

#: Processes of Airflow on a busy machine.
pytestmark = pytest.mark.timeout(900)
AIRFLOW = tuple(map(int, version("apache-airflow").split(".")[:2]))

OF_THE_SERVER = """
from airflow.api_fastapi.core_api.services.ui.connections import HookMetaService
(meta,) = [one for one in HookMetaService.hook_meta_data() if one.connection_type == "tds"]
print(json.dumps([meta.hook_name, meta.standard_fields.model_dump(), meta.extra_fields], default=str))
"""
OF_2_11 = """
from airflow.providers_manager import ProvidersManager
manager = ProvidersManager()
fields = {
    name.removeprefix("extra__tds__"): info.field.field_class.__name__
    for name, info in manager.connection_form_widgets.items()
    if name.startswith("extra__tds__")
}
behaviour = manager.field_behaviours["tds"]
print(json.dumps([manager.hooks["tds"].hook_name, behaviour["relabeling"], fields]))
"""


def form() -> list[Any]:
    """Ask Airflow in a process of its own: it puts stand-ins in the place of packages that it lacks."""
    script = "import json\n" + (OF_2_11 if AIRFLOW < (3, 0) else OF_THE_SERVER)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=False, timeout=800
    )
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.skipif(AIRFLOW == (3, 0), reason="Airflow 3.0 shows extra fields only where wtforms happens to be there")
def test_the_form_of_this_airflow_offers_every_extra() -> None:
    name, standard, extra = form()

    assert name == "Table Data Service"
    assert "Token, key, password or client secret" in json.dumps(standard)
    assert sorted(extra) == sorted(EXTRA)


@pytest.mark.skipif(AIRFLOW >= (3, 0), reason="only 2.11 comes with forms of the old kind")
def test_a_password_is_a_password_a_flag_a_box_and_everything_else_text() -> None:
    kinds = form()[2]

    assert {name for name, kind in kinds.items() if kind == "PasswordField"} == {
        "client_key_password",
        "credential_headers",
    }
    assert {name for name, kind in kinds.items() if kind == "BooleanField"} == {
        "insecure_tls",
        "only_finished_jobs_vanish",
    }


@pytest.mark.skipif(AIRFLOW < (3, 0), reason="2.11 comes with forms of the old kind")
def test_without_forms_of_the_old_kind_there_are_no_widgets() -> None:
    assert TdsHook.get_connection_form_widgets() == {}
