"""Fixtures for tests of DAGs that use the Table Data Service: a pytest plugin, registered on installation.

Here are fixtures only; what they give is the embedded service's (extra `local`). pytest imports this file at
every start, so nothing heavy is imported before a fixture is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from airflow_tds.local import Service

__all__ = ["tds_connection", "tds_service", "tds_wire"]


@pytest.fixture
def tds_wire() -> Any:
    """The forms that the service has: a profile, or a setting of the wire map. A test overrides it; None: the usual."""
    return None


@pytest.fixture
def tds_service(tds_wire: Any) -> Iterator[Service]:
    """A service of its own for each test, empty: `tds_service.create_table("people")`.

    A test fails in the end when a fault that it scripted never happened.
    """
    from airflow_tds.local import Service

    with Service(wire=tds_wire) as service:
        yield service
        left = [f"{fault.operation} ({fault.left} of {fault.times})" for fault in service.faults if fault.left]
    if left:
        pytest.fail(f"scripted faults that never happened: {', '.join(left)}", pytrace=False)


@pytest.fixture
def tds_connection(tds_service: Service, monkeypatch: pytest.MonkeyPatch) -> str:
    """The id of a connection to the service of the test: `tds_default`, for this test only."""
    monkeypatch.setenv("AIRFLOW_CONN_TDS_DEFAULT", tds_service.connection_json)
    return "tds_default"
