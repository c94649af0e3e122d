"""The options of the command, as data: argparse and Airflow are told the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["DIRECT", "OPTIONS"]

#: What both commands take: flags, and what argparse is told of them.
OPTIONS: tuple[tuple[tuple[str, ...], Mapping[str, Any]], ...] = (
    (("conn_id",), {"nargs": "?", "default": "tds_default", "help": "the connection (default: tds_default)"}),
    (("--table",), {"metavar": "ID", "help": "a table to read from; it is not changed"}),
    (
        ("--scratch-table",),
        {"metavar": "ID", "help": "a table to WRITE to, with columns id and name: all its rows are removed"},
    ),
    (("--even-with-rows",), {"action": "store_true", "help": "remove the rows that the scratch table has already"}),
    (("--timeout",), {"type": float, "default": 60.0, "metavar": "SECONDS", "help": "for each wait (default: 60)"}),
    (("--json",), {"action": "store_true", "help": "print the report as JSON"}),
)
#: What only the command without Airflow takes.
DIRECT: tuple[tuple[tuple[str, ...], Mapping[str, Any]], ...] = (
    (("--url",), {"help": "the service, base path included, in place of a connection of Airflow's"}),
    (("--token",), {"help": "its token; better in the environment as TDS_TOKEN, where other users do not see it"}),
    (("--login",), {"help": "a name or client id"}),
    (("--extra",), {"default": "{}", "metavar": "JSON", "help": "what a connection's extra would hold"}),
)
