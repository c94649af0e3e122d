"""An Airflow connection to a service, in the two forms that Airflow reads."""

from __future__ import annotations

import ipaddress
import json
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

__all__ = ["as_json", "as_uri", "is_loopback"]

#: What a connection has to know of this service: the status of a job that has no data yet.
WIRE = {"no_data_statuses": ["AWAITING"]}


def as_json(url: str, token: str) -> str:
    """Give the connection as JSON.

    Args:
        url: The service's, base path included.
        token: The bearer token.
    """
    host, port, extra = _parts(url)
    return json.dumps(
        {"conn_type": "tds", "schema": "http", "host": host, "port": port, "password": token, "extra": extra}
    )


def as_uri(url: str, token: str) -> str:
    """Give the connection as a URI; see `as_json`."""
    host, port, extra = _parts(url)
    place = f"[{host}]" if ":" in host else host
    query = urlencode(extra | {"wire": json.dumps(extra["wire"])})
    return f"tds://:{quote(token, safe='')}@{place}:{port}/http?{query}"


def is_loopback(host: str) -> bool:
    """Tell whether an address is reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _parts(url: str) -> tuple[str, int, dict[str, Any]]:
    """Give host, port and extra; a service on all addresses is reached through loopback."""
    parts = urlsplit(url)
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(parts.hostname or "", parts.hostname or "")  # noqa: S104
    path = {"base_path": parts.path} if parts.path else {}
    return host, parts.port or 80, {**path, "wire": WIRE}
