"""An Airflow connection to a service, in the two forms that Airflow reads."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from airflow_tds.client.wire import Route, Wire
from airflow_tds.local.callers import LOGIN, TOKEN_PATH, Scheme

__all__ = ["Connecting", "as_setting", "is_loopback"]


@dataclass(frozen=True)
class Connecting:
    """What a connection has to know of a service.

    Attributes:
        url: The service's, base path included.
        scheme: How a caller shows its token.
        wire: The forms that are served.
    """

    url: str
    scheme: Scheme
    wire: Wire

    def as_json(self, token: str) -> str:
        """Give the connection as JSON.

        Args:
            token: The token, by whichever scheme it is shown.
        """
        host, port, extra = self._parts()
        known: dict[str, Any] = {"conn_type": "tds", "schema": "http", "host": host, "port": port}
        return json.dumps(known | self._login() | {"password": token, "extra": extra})

    def as_uri(self, token: str) -> str:
        """Give the connection as a URI; see `as_json`."""
        host, port, extra = self._parts()
        place = f"[{host}]" if ":" in host else host
        query = urlencode(extra | {"wire": json.dumps(extra["wire"])})
        login = self._login().get("login", "")
        return f"tds://{login}:{quote(token, safe='')}@{place}:{port}/http?{query}"

    def _login(self) -> dict[str, str]:
        return {"login": LOGIN} if self.scheme.kind in ("basic", "oauth2") else {}

    def _parts(self) -> tuple[str, int, dict[str, Any]]:
        """Give host, port and extra; a service on all addresses is reached through loopback."""
        parts = urlsplit(self.url)
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(parts.hostname or "", parts.hostname or "")  # noqa: S104
        place = f"[{host}]" if ":" in host else host
        extra: dict[str, Any] = {"base_path": parts.path} if parts.path else {}
        if self.scheme.kind != "bearer":
            extra["auth"] = self.scheme.kind
        if self.scheme.kind == "api_key":
            extra["api_key_header"] = self.scheme.header
        if self.scheme.kind == "oauth2":
            extra["token_url"] = f"http://{place}:{parts.port}{parts.path}{TOKEN_PATH}"
        return host, parts.port or 80, extra | {"wire": self._setting()}

    def _setting(self) -> dict[str, Any]:
        """Give the map's setting, and the status of a job that has no data yet."""
        return {"no_data_statuses": ["AWAITING"]} | as_setting(self.wire)


def as_setting(wire: Wire) -> dict[str, Any]:
    """Give what a connection's extra `wire` has to say for a map, as plain JSON.

    Args:
        wire: The map. What a subclass of it says by code cannot be set.
    """
    usual = Wire()
    changed = [name for name in Wire.model_fields if getattr(wire, name) != getattr(usual, name)]
    return {name: _plain(getattr(wire, name), getattr(usual, name)) for name in changed}


def _plain(value: Any, usual: Any) -> Any:
    if isinstance(value, Route):
        return _route(value, usual)
    return dict(value) if isinstance(value, Mapping) else list(value) if isinstance(value, tuple) else value


def _route(route: Route, usual: Route) -> dict[str, Any]:
    """Give a route as a setting: what differs, and all its places where one does."""
    setting: dict[str, Any] = {"repeat": route.repeat} if route.repeat != usual.repeat else {}
    if (route.method, route.path) != (usual.method, usual.path):
        setting["line"] = f"{route.method} {route.path}"
    if route.headers != usual.headers:
        setting["headers"] = dict(route.headers)
    if route.strategy != usual.strategy:
        setting["strategy"] = route.strategy
    if route.places != usual.places:
        setting["places"] = {
            name: None if at is None else at.model_dump(exclude_defaults=True) for name, at in route.places.items()
        }
    return setting


def is_loopback(host: str) -> bool:
    """Tell whether an address is reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
