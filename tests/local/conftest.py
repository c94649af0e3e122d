"""A running service and a caller, for the tests of a file; each test takes tables of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from caller import Caller

from airflow_tds.local import Service


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service() as running:
        yield running


@pytest.fixture(scope="module")
def caller(service: Service) -> Iterator[Caller]:
    calling = Caller(service.url, service.token)
    yield calling
    calling.close()


@pytest.fixture
def table(caller: Caller, request: pytest.FixtureRequest) -> str:
    """A new table, named after its test."""
    return caller.create(request.node.name)
