"""The service's own routes, which the interface does not have: for tests, and for the page for people.

They are for tokens with all rights, and keep their form whatever wire map is served.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, TypeVar

from anyio import to_thread
from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from airflow_tds.client.errors import ValidationFailed
from airflow_tds.client.models import describe
from airflow_tds.client.wire import Wire
from airflow_tds.local.answers import Answers
from airflow_tds.local.faults import Faults
from airflow_tds.local.inputs import document_of
from airflow_tds.local.operations import Operations
from airflow_tds.local.pages import Asked, Pages
from airflow_tds.local.recorder import RequestRecord
from airflow_tds.local.routing import IDS, Endpoint
from airflow_tds.local.store import Store

__all__ = ["Admin", "TableBody"]

#: Jobs, and rows of a table, that are shown at once.
_SHOWN_JOBS, _SHOWN_ROWS = 50, 20
_M = TypeVar("_M", bound=BaseModel)


class FaultBody(RootModel[dict[str, Any]]):
    """A fault to script; faults.py knows its fields."""


class TableBody(BaseModel):
    """Which table to create."""

    model_config = ConfigDict(extra="forbid", strict=True)

    table_id: str = Field(json_schema_extra={"pattern": r"^[^\x00]+$"})


class Admin:
    """The endpoints.

    Args:
        store: What is served.
        operations: What tells of tables and jobs.
        faults: The script.
        requests: The log.
    """

    def __init__(self, store: Store, operations: Operations, faults: Faults, requests: Sequence[RequestRecord]) -> None:
        self._store = store
        self._operations = operations
        self._faults = faults
        self._requests = requests
        self._answers = Answers(Wire())
        self._pages = Pages(store)

    def routes(self) -> list[tuple[str, str, str, Endpoint]]:
        """Give name, method, path and endpoint of each."""
        return [
            ("create_table", "POST", "/admin/tables", self.create_table),
            ("list_tables", "GET", "/admin/tables", self.list_tables),
            ("show_rows", "GET", "/admin/tables/{table_id}/rows", self.show_rows),
            ("list_jobs", "GET", "/admin/jobs", self.list_jobs),
            ("list_requests", "GET", "/admin/requests", self.list_requests),
            ("add_fault", "POST", "/admin/faults", self.add_fault),
            ("list_faults", "GET", "/admin/faults", self.list_faults),
            ("clear_faults", "DELETE", "/admin/faults", self.clear_faults),
        ]

    async def create_table(self, request: Request) -> Response:
        """Create an empty table."""
        asked = await _body_of(request, TableBody)
        table = await _in_thread(self._store.create_table, asked.table_id)
        return JSONResponse({"table_id": table.table_id}, 201)

    async def list_tables(self, request: Request) -> Response:  # noqa: ARG002  # an endpoint
        """Give all tables with their statistics."""
        return JSONResponse(list(map(self._operations.statistics, self._store.tables())))

    async def show_rows(self, request: Request) -> Response:
        """Give a table's columns and first rows, each a list: whatever the names of columns are, their order stays."""
        read = partial(self._pages.read, request.scope[IDS]["table_id"], Asked(None, _SHOWN_ROWS, 0), lists=True)
        page = await _in_thread(read)
        body = f'{{"columns":{json.dumps(page.columns)},"items":[{",".join(page.rows)}]}}'
        return Response(body, media_type="application/json")

    async def list_jobs(self, request: Request) -> Response:  # noqa: ARG002  # an endpoint
        """Give the newest jobs."""
        jobs = self._store.newest_jobs(_SHOWN_JOBS)
        return JSONResponse([self._operations.record(job, self._answers) for job in jobs])

    async def list_requests(self, request: Request) -> Response:  # noqa: ARG002  # an endpoint
        """Give the log of requests."""
        return JSONResponse([asdict(record) for record in self._requests])

    async def add_fault(self, request: Request) -> Response:
        """Script a fault."""
        fault = self._faults.add((await _body_of(request, FaultBody)).root)
        return JSONResponse(fault.model_dump(exclude_unset=True), 201)

    async def list_faults(self, request: Request) -> Response:  # noqa: ARG002  # an endpoint
        """Give all faults, how often each has happened, and how often it will."""
        faults = self._faults.all()
        return JSONResponse(
            [each.model_dump(exclude_unset=True) | {"consumed": each.consumed, "left": each.left} for each in faults]
        )

    async def clear_faults(self, request: Request) -> Response:  # noqa: ARG002  # an endpoint
        """Forget all faults."""
        self._faults.clear()
        return Response(status_code=204)


async def _body_of(request: Request, kind: type[_M]) -> _M:
    try:
        return kind.model_validate(document_of(await request.body()))
    except ValidationError as invalid:
        raise ValidationFailed(describe(invalid)) from None


async def _in_thread(call: Callable[..., Any], *args: Any) -> Any:
    return await to_thread.run_sync(partial(call, *args))
