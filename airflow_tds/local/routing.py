"""Which operation a request means: the wire map's routes as patterns, and what tells apart those that look alike.

An id is percent-encoded whole, so it never holds a separator of its path. Writes that share a route differ by
their update mode, wherever the map lets it travel. Nothing here answers; what a request asks for beside its
operation is inputs.py's.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, unquote_plus

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import request_response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from airflow_tds.client.errors import Refused, ValidationFailed
from airflow_tds.client.wire import Route
from airflow_tds.local.faults import Faults, FaultyRoute
from airflow_tds.local.inputs import Sent, document_of, given_mode

__all__ = ["Endpoint", "Line", "Router", "Served"]

Endpoint = Callable[[Request], Awaitable[Response]]
#: Where a request's scope holds the route that it came by, and its ids.
SERVED, IDS = "tds.served", "tds.ids"
_NOT_FOUND, _NOT_ALLOWED = 404, 405


class Line:
    """A route's method, path and fixed headers as a pattern.

    Args:
        method: HTTP method.
        path: Template such as `/tables/{table_id}/data`, perhaps with a query such as `?number={job_id}`.
        headers: Fixed header fields, which a request must carry.
        words: For a name in the template the only texts that it may stand for; others stand for any text.
    """

    def __init__(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        words: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.method = method
        self.path, _, query = path.partition("?")
        self.headers = headers or {}
        encoded = {name: [quote(word, safe="") for word in each] for name, each in (words or {}).items()}
        self._path = re.compile(_pattern(self.path, encoded, "[^/]+"))
        pairs = [pair.partition("=") for pair in query.split("&") if pair]
        self.query = {unquote_plus(name): unquote_plus(value) for name, _, value in pairs}
        self._query = {name: re.compile(_pattern(value, words or {}, "(?s:.+)")) for name, value in self.query.items()}

    def has_path(self, path: str) -> bool:
        """Say whether a path, as it was sent, is one of this route."""
        return self._path.fullmatch(path) is not None

    def fits(self, sent: Sent) -> bool:
        """Say whether a request carries what this route fixes in its query and headers."""
        return not self.lacks(sent)

    def lacks(self, sent: Sent) -> list[str]:
        """Name what this route fixes and a request does not carry."""
        fields = [f"the header {name}: {text}" for name, text in self.headers.items() if sent.headers.get(name) != text]
        return fields + [
            f"the parameter {name}={self.query[name]}"
            for name, pattern in self._query.items()
            if len(sent.query.get(name, ())) != 1 or not pattern.fullmatch(sent.query[name][0])
        ]

    def ids(self, sent: Sent) -> dict[str, str]:
        """Read what stands in the path and in the fixed part of the query.

        Raises:
            ValidationFailed: One is no text.
        """
        found = self._path.fullmatch(sent.path)
        try:
            ids = {name: unquote(text, errors="strict") for name, text in (found.groupdict() if found else {}).items()}
        except UnicodeDecodeError:
            raise ValidationFailed("the path is not valid UTF-8") from None
        for name, pattern in self._query.items():
            matched = pattern.fullmatch(sent.query[name][0])
            ids |= matched.groupdict() if matched else {}
        return ids


def _pattern(template: str, words: Mapping[str, Sequence[str]], any_text: str) -> str:
    """Turn a template into a regular expression; a name that stands there twice is the same text twice."""
    seen: set[str] = set()
    parts = re.split(r"{(\w+)}", template)
    for at in range(1, len(parts), 2):
        name = parts[at]
        texts = "|".join(map(re.escape, words[name])) if words.get(name) else any_text
        parts[at] = f"(?P={name})" if name in seen else f"(?P<{name}>{texts})"
        seen.add(name)
    return "".join(part if at % 2 else re.escape(part) for at, part in enumerate(parts))


@dataclass(frozen=True)
class Served:
    """One route of the service.

    Attributes:
        name: The operation's name in the wire map, or that of a route of the service's own.
        line: Where it is.
        endpoint: What answers it.
        route: The wire map's route; None for one of the service's own.
        mode: For a write the map's word for its mode.
    """

    name: str
    line: Line
    endpoint: Endpoint
    route: Route | None = None
    mode: str = field(default="", kw_only=True)

    @property
    def reads_body(self) -> bool:
        """Whether its mode travels in a JSON body."""
        at = self.route.places.get("update_mode") if self.route else None
        return at is not None and at.where == "body" and "update_mode" not in self.line.path

    def has_mode(self, given: object) -> bool:
        """Say whether a mode that a request gives is its own."""
        return given == self.mode


class Router:
    """Finds the operation that a request means, as an ASGI application.

    Args:
        served: All routes.
        faults: What is to go wrong.
        refuse: Answers a request that means no operation, as an endpoint.
    """

    def __init__(
        self,
        served: Sequence[Served],
        faults: Faults,
        refuse: Callable[[Refused], Endpoint],
    ) -> None:
        self._by_depth: dict[int, list[Served]] = defaultdict(list)  # no id holds a separator
        for each in served:
            self._by_depth[each.line.path.count("/")].append(each)
        self._refuse = refuse
        self._apps = {id(each): FaultyRoute(each.name, each.endpoint, faults) for each in served}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request by the operation that it means."""
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        here = self._at(scope["path"])
        alike = [each for each in here if each.line.method == method]
        if not alike:
            await self._nothing(scope, {each.line.method for each in here})(scope, receive, send)
            return
        try:
            query = Sent.parameters(scope["query_string"].decode("latin-1"))
            sent = Sent(method, scope["path"], query, Headers(scope=scope))
            if self._needs_body(alike, sent):
                body, receive = await _held(receive)
                sent = Sent(method, sent.path, query, sent.headers, document_of(body))
            chosen = self.choose(alike, sent)
            scope[SERVED], scope[IDS] = chosen, chosen.line.ids(sent)
        except Refused as refused:
            scope["operation"] = alike[0].name
            await request_response(self._refuse(refused))(scope, receive, send)
            return
        await self._apps[id(chosen)](scope, receive, send)

    def _needs_body(self, alike: Sequence[Served], sent: Sent) -> bool:
        """Say whether only a body can tell which route is meant; a payload is not read for that."""
        if len(alike) == 1:
            return False
        fitting = [each for each in alike if each.line.fits(sent)]
        told = [each for each in fitting if each.route and each.has_mode(given_mode(each.route, sent))]
        return len(fitting) > 1 and not told and any(each.reads_body for each in fitting)

    def find(self, sent: Sent) -> Served | None:
        """Find the operation that a request means; None where no route has its method and path."""
        alike = [each for each in self._at(sent.path) if each.line.method == sent.method]
        return self.choose(alike, sent) if alike else None

    def _at(self, path: str) -> list[Served]:
        """Give the routes that have a path."""
        return [each for each in self._by_depth.get(path.count("/"), ()) if each.line.has_path(path)]

    def choose(self, alike: Sequence[Served], sent: Sent) -> Served:
        """Choose among routes of one method and path.

        Raises:
            ValidationFailed: The request carries what none of them asks for, or does not tell which one it means.
        """
        fitting = [each for each in alike if each.line.fits(sent)]
        if not fitting:
            lacks = " or ".join(", ".join(each.line.lacks(sent)) for each in alike)
            raise ValidationFailed(f"{alike[0].name}: the request lacks {lacks}")
        if len(fitting) == 1:
            return fitting[0]
        given = [(each, given_mode(each.route, sent) if each.route else None) for each in fitting]
        meant = [each for each, mode in given if each.has_mode(mode)]
        silent = [each for each in fitting if each.name == "append"]  # §4.2: this is what a bare PATCH means
        if not meant and silent and all(mode is None for _, mode in given):
            return silent[0]
        if len(meant) != 1:
            modes = ", ".join(each.mode for each in fitting)
            raise ValidationFailed(f"update_mode: one of {modes} is needed at {sent.method} {sent.path}")
        return meant[0]

    def _nothing(self, scope: Scope, methods: set[str]) -> ASGIApp:
        """Answer what no route takes; for a method, with those that the path has."""
        status, said = (_NOT_ALLOWED, "Method Not Allowed") if methods else (_NOT_FOUND, "Not Found")
        refused = Refused(f"{scope['method']} {scope['path']}: {said}", status=status)
        answer = self._refuse(refused)

        async def nothing(request: Request) -> Response:
            response = await answer(request)
            if methods:
                response.headers["Allow"] = ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))
            return response

        return request_response(nothing)


async def _held(receive: Receive) -> tuple[bytes, Receive]:
    """Read a body, and give it again."""
    body, messages = b"", []
    while True:
        message = await receive()
        messages.append(message)
        body += message.get("body", b"")
        if not message.get("more_body"):
            break

    async def again() -> Message:
        return messages.pop(0) if messages else await receive()

    return body, again
