"""What Airflow's provider manager reads through the entry point `apache_airflow_provider`.

Plain data; imported by every `airflow` command, so it imports nothing but the version.
"""

from __future__ import annotations

from typing import Any

from airflow_tds import __version__

__all__ = ["UI_FIELD_BEHAVIOUR", "get_provider_info"]

UI_FIELD_BEHAVIOUR: dict[str, Any] = {
    "hidden-fields": ["login"],
    "relabeling": {"schema": "Schema (http or https)", "password": "Token"},
    "placeholders": {"schema": "https", "host": "tables.example.com", "port": "443"},
}


def _text(label: str, description: str) -> dict[str, Any]:
    return {"label": label, "description": description, "schema": {"type": ["string", "null"]}}


def _seconds(label: str, description: str) -> dict[str, Any]:
    return {"label": label, "description": description, "schema": {"type": ["number", "null"], "minimum": 0}}


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
        "triggers": [{**rooms, "python-modules": ["airflow_tds.triggers"]}],
        "connection-types": [
            {
                "connection-type": "tds",
                "hook-class-name": "airflow_tds.hooks.TdsHook",
                "hook-name": "Table Data Service",
                "ui-field-behaviour": UI_FIELD_BEHAVIOUR,
                "conn-fields": {
                    "base_path": _text("Base path", "Path before every route, such as /api/v1"),
                    "ca_bundle": _text("CA bundle", "File with the certificates to trust; empty: the default ones"),
                    "transfer_timeout": _seconds(
                        "Transfer timeout (s)", "Longest that one upload may take; default 900"
                    ),
                    "lease_margin": _seconds("Lease margin", "Seconds until late data is noticed; default 30"),
                    "failed_jobs_are_atomic": {
                        "label": "Failed jobs are atomic",
                        "description": "A FAILED job certainly changed nothing",
                        "schema": {"type": ["boolean", "null"]},
                    },
                    "wire": _text("Wire map", "JSON with overrides of assumed routes and names"),
                },
            }
        ],
    }
