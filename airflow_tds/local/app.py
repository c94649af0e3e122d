"""The service's HTTP face, put together: which routes there are, who may take them, what is answered to a "no".

The routes of the interface are those of the wire map; the service's own stand beside them.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import duckdb
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp

from airflow_tds.client import errors
from airflow_tds.client.wire import Route
from airflow_tds.local.admin import Admin
from airflow_tds.local.answers import Answers
from airflow_tds.local.callers import TOKEN_PATH, Callers, Scheme
from airflow_tds.local.directory import StoreUnavailable
from airflow_tds.local.faults import Faults
from airflow_tds.local.inputs import Reader
from airflow_tds.local.openapi import document
from airflow_tds.local.operations import Operations, Settings
from airflow_tds.local.page import page
from airflow_tds.local.recorder import Recorder, RequestRecord
from airflow_tds.local.records import Kind
from airflow_tds.local.rehearsal import rehearse
from airflow_tds.local.rights import Rights
from airflow_tds.local.routing import Endpoint, Line, Router, Served
from airflow_tds.local.storage import PATHS, ObjectStore, Storage
from airflow_tds.local.store import Store

__all__ = ["Access", "Script", "build_app"]

log = logging.getLogger(__name__)

_WRITES: tuple[Kind, ...] = ("upload", "append", "overwrite", "upsert")


@dataclass(frozen=True)
class Access:
    """Who may call.

    Attributes:
        tokens: The tokens of callers, and their rights.
        scheme: How they show them.
    """

    tokens: Mapping[str, Rights]
    scheme: Scheme


@dataclass(frozen=True)
class Script:
    """What tests write and read.

    Attributes:
        faults: What is to go wrong.
        requests: Where each request is noted.
    """

    faults: Faults
    requests: deque[RequestRecord]


def build_app(
    store: Store,
    storage: ObjectStore,
    settings: Settings,
    access: Access,
    script: Script,
) -> ASGIApp:
    """Give the ASGI application.

    Args:
        store: What it serves.
        storage: Where payloads go and results come from.
        settings: In which forms.
        access: To whom.
        script: What is to go wrong, and where each request is noted.

    Raises:
        ValidationFailed: The wire map says something that cannot be served; the text names the setting.
    """
    scheme, faults = access.scheme, script.faults
    guard = _Guard(Callers(access.tokens, scheme, store.clock), scheme, Answers(settings.wire))
    operations = Operations(store, storage, settings, faults)
    served = _interface(operations, settings, guard)
    base = settings.base_path
    admin = Admin(store, operations, faults, script.requests)
    served += [
        Served(name, Line(method, base + path), guard.admin(call)) for name, method, path, call in admin.routes()
    ]
    if isinstance(storage, Storage):
        served.append(Served("put_payload", Line("PUT", PATHS["put_payload"]), storage.put_payload))
        served.append(Served("get_result", Line("GET", PATHS["get_result"]), storage.get_result))
    if scheme.kind == "oauth2":
        served.append(Served("token", Line("POST", base + TOKEN_PATH), guard.callers.give_token))

    async def openapi(request: Request) -> Response:  # noqa: ARG001  # an endpoint
        return JSONResponse(document(served, settings.wire, scheme, base))

    async def show(request: Request) -> Response:  # noqa: ARG001  # an endpoint
        return page(base)

    served.append(Served("openapi", Line("GET", f"{base}/openapi.json"), openapi))
    served.append(Served("page", Line("GET", f"{base}/"), show))
    router = Router(served, faults, guard.refusal)
    rehearse(settings.wire, router, base)
    return Recorder(router, script.requests, scheme.header, store.clock)


def _interface(operations: Operations, settings: Settings, guard: _Guard) -> list[Served]:
    """Give the routes of the interface, as the map says them."""
    calls: dict[str, Endpoint] = {
        "info": operations.info,
        **{kind: partial(operations.write, kind) for kind in _WRITES},
        "delete_rows": operations.delete_rows,
        "truncate": operations.truncate,
        "get_job": operations.get_job,
        "query_json": operations.query_json,
        "start_query": operations.start_query,
        "poll_query": operations.poll_query,
    }
    if any(getattr(settings.wire, kind).strategy == "put_commit" for kind in _WRITES):
        calls["presign"] = operations.presign
    reader, found = Reader(settings.wire), []
    for name, call in calls.items():
        route: Route = getattr(settings.wire, name)
        mode = reader.mode(name) if name in _WRITES else ""
        words = {"update_mode": [mode], "format": list(reader.formats(route))}
        headers = {**{key.lower(): text for key, text in settings.wire.headers.items()}}
        headers |= {key.lower(): text for key, text in route.headers.items()}
        line = Line(route.method, settings.base_path + route.path, headers, words)
        found.append(Served(name, line, guard.interface(call), route, mode=mode))
    return found


class _Guard:
    """Lets callers in, and turns what is refused into an answer."""

    def __init__(self, callers: Callers, scheme: Scheme, answers: Answers) -> None:
        self.callers = callers
        self._scheme = scheme
        self._answers = answers

    def interface(self, endpoint: Endpoint) -> Endpoint:
        """Let an endpoint be called by whom the scheme lets in; what he may do is the endpoint's to ask."""

        async def call(request: Request) -> Response:
            request.state.rights = self.callers.rights(request.headers)
            return await endpoint(request)

        return partial(self._answered, call)

    def admin(self, endpoint: Endpoint) -> Endpoint:
        """Let an endpoint be called with all rights only."""

        async def call(request: Request) -> Response:
            self.callers.admin(request.headers).require_admin()
            return await endpoint(request)

        return partial(self._answered, call)

    def refusal(self, refused: errors.Refused) -> Endpoint:
        """Give the endpoint that refuses; a path that does not exist is refused to everybody alike."""

        async def refuse(request: Request) -> Response:
            if refused.status is None:
                self.callers.rights(request.headers)
            raise refused

        return partial(self._answered, refuse)

    async def _answered(self, endpoint: Endpoint, request: Request) -> Response:
        try:
            return await endpoint(request)
        except errors.Refused as refused:
            headers = self._scheme.challenge if isinstance(refused, errors.Unauthorized) else None
            return self._answers.refused(refused, headers)
        except duckdb.Error as failure:  # a full disk, or it is being opened again
            log.warning("answered 503: %s", type(failure).__name__)
            return self._answers.unavailable("the service cannot write at the moment", {"Retry-After": "1"})
        except StoreUnavailable as stopping:  # no Retry-After: that would say that nothing was done
            return self._answers.unavailable(str(stopping), {})
