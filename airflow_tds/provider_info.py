"""What Airflow's provider manager reads through the entry point `apache_airflow_provider`.

Plain data; imported by every `airflow` command, so it imports nothing but the version.
"""

from __future__ import annotations

from typing import Any

from airflow_tds import __version__

__all__ = ["CONN_FIELDS", "UI_FIELD_BEHAVIOUR", "get_provider_info"]

UI_FIELD_BEHAVIOUR: dict[str, Any] = {
    "hidden-fields": [],
    "relabeling": {
        "schema": "Schema (http or https)",
        "login": "Login or client id",
        "password": "Token, key, password or client secret",
    },
    "placeholders": {"schema": "https", "host": "tables.example.com", "port": "443"},
}


def _text(label: str, description: str) -> dict[str, Any]:
    return {"label": label, "description": description, "schema": {"type": ["string", "null"]}}


def _secret(label: str, description: str) -> dict[str, Any]:
    schema = {"type": ["string", "null"], "format": "password"}
    return {"label": label, "description": description, "schema": schema}


def _flag(label: str, description: str) -> dict[str, Any]:
    return {"label": label, "description": description, "schema": {"type": ["boolean", "null"]}}


def _seconds(label: str, description: str) -> dict[str, Any]:
    return {"label": label, "description": description, "schema": {"type": ["number", "null"], "minimum": 0}}


CONN_FIELDS: dict[str, dict[str, Any]] = {
    "auth": _text("Authentication", "bearer, api_key, basic or oauth2; empty: what the fields imply"),
    "api_key_header": _text("API key header", "Header field of an API key; default X-API-Key"),
    "credential_headers": _secret("Credential headers", "JSON: more header fields and their secrets"),
    "token_url": _text("Token URL", "Where an OAuth2 token is given for login and password"),
    "scope": _text("Scope", "What the OAuth2 token is asked for"),
    "base_path": _text("Base path", "Path before every route, such as /api/v1"),
    "ca_bundle": _text("CA bundle", "File with the certificates to trust; empty: the default ones"),
    "client_certificate": _text("Client certificate", "File with our certificate"),
    "client_key": _text("Client key", "File with its key; empty: the same file"),
    "client_key_password": _secret("Client key password", "Of the key's file"),
    "insecure_tls": _flag("Insecure TLS", "Check no certificate; never in production"),
    "proxy": _text("Proxy", "URL of a proxy; none: not even the environment's"),
    "storage_ca_bundle": _text("Storage CA bundle", "The same for the object store; empty: CA bundle"),
    "storage_proxy": _text("Storage proxy", "The same for the object store; empty: as Proxy"),
    "storage_hosts": _text("Storage hosts", "Hosts that may be an object store; empty: any"),
    "connect_timeout": _seconds("Connect timeout (s)", "For a connection to be made; default 10"),
    "read_timeout": _seconds("Read timeout (s)", "Without a byte of an answer; default 60"),
    "transfer_timeout": _seconds("Transfer timeout (s)", "Longest that one upload may take; default 900"),
    "download_timeout": _seconds("Download timeout (s)", "Longest that fetching a result may take; default 7200"),
    "minimum_rate": _seconds("Minimum rate (B/s)", "Slower transfers are given up; default 1024"),
    "poll_interval": _seconds("Poll interval (s)", "Between two looks of a wait; default 30 deferred, 5 blocking"),
    "timeout": _seconds("Timeout (s)", "After which a wait ends; default the task's execution_timeout, else 7 days"),
    "store": _text("Record store", "variable, a folder or an object-storage URI; empty: the task's state store"),
    "poll_transport": _text("Poll transport", "auto, httpx or aiohttp; auto: aiohttp if installed"),
    "lease_margin": _seconds("Lease margin", "Seconds until late data is noticed; default 30"),
    "failed_jobs_are_atomic": _flag("Failed jobs are atomic", "A FAILED job certainly changed nothing"),
    "only_finished_jobs_vanish": _flag("Only finished jobs vanish", "A job that is not found any more has ended"),
    "wire": _text("Wire map", "JSON with overrides of assumed routes and names"),
}


#: What the section [tds] of airflow.cfg may say for all connections that do not.
CONFIGURABLE = (
    *("connect_timeout", "read_timeout", "transfer_timeout", "download_timeout", "minimum_rate"),
    *("poll_interval", "timeout", "lease_margin", "poll_transport", "store"),
)


def _option(field: dict[str, Any]) -> dict[str, Any]:
    """Describe an option of airflow.cfg as the connection's field of the same name."""
    kind = "float" if "number" in field["schema"]["type"] else "string"
    text = f"{field['label']}: {field['description']}. A connection that says otherwise goes before it."
    return {"description": text, "version_added": "0.1.0", "type": kind, "example": None, "default": None}


def get_provider_info() -> dict[str, Any]:
    """Describe this provider."""
    rooms = {"integration-name": "Table Data Service"}
    return {
        "package-name": "airflow-tds",
        "name": "Table Data Service",
        "description": "Durable writes to and queries of the Table Data Service (not SQL Server's wire protocol)",
        "versions": [__version__],
        "integrations": [{**rooms, "external-doc-url": "", "tags": ["service"]}],
        "hooks": [{**rooms, "python-modules": ["airflow_tds.hooks"]}],
        "operators": [{**rooms, "python-modules": ["airflow_tds.operators"]}],
        "sensors": [{**rooms, "python-modules": ["airflow_tds.sensors"]}],
        "config": {
            "tds": {
                "description": "What holds for all connections to the Table Data Service that do not say otherwise.",
                "options": {name: _option(CONN_FIELDS[name]) for name in CONFIGURABLE},
            }
        },
        "cli": ["airflow_tds.cli.commands"],
        "triggers": [{**rooms, "python-modules": ["airflow_tds.triggers"]}],
        "connection-types": [
            {
                "connection-type": "tds",
                "hook-class-name": "airflow_tds.hooks.TdsHook",
                "hook-name": "Table Data Service",
                "ui-field-behaviour": UI_FIELD_BEHAVIOUR,
                "conn-fields": CONN_FIELDS,
            }
        ],
    }
