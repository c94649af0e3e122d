"""The command `airflow-tds doctor`, and `airflow tds doctor` where Airflow takes commands of providers (3.2).

What lives here: the options, the order of the checks, what is printed, the exit code. 0: nothing failed; 1: something
did; 2: the examination could not begin.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

from airflow_tds.client import errors
from airflow_tds.client.forms import PROFILES
from airflow_tds.client.messages import Request
from airflow_tds.doctor.options import DIRECT, OPTIONS
from airflow_tds.doctor.patient import Patient
from airflow_tds.doctor.proposals import PLACES, Proposals, proposals
from airflow_tds.doctor.reaching import CHECKS
from airflow_tds.doctor.reading import read_all
from airflow_tds.doctor.reports import Report
from airflow_tds.doctor.writing import Scratch
from airflow_tds.settings import Settings, settings_of

__all__ = ["examine", "from_airflow", "main", "run"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `airflow-tds`.

    Args:
        arguments: Of the command line; None for this process's.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(prog="airflow-tds", description="Tools for the Table Data Service.")
    doctor = parser.add_subparsers(required=True, dest="command").add_parser(
        "doctor", help="examine a connection end to end", description="Examine a connection end to end."
    )
    for flags, told in (*OPTIONS, *DIRECT):
        doctor.add_argument(*flags, **told)
    return run(parser.parse_args(arguments))


def from_airflow(options: Any) -> None:
    """Run `airflow tds doctor`; leave with its exit code."""
    sys.exit(run(options))


def run(options: Any) -> int:
    """Examine what the options say, and print the report.

    Args:
        options: As parsed.

    Returns:
        The exit code.
    """
    try:
        settings = _settings(options)
        report = examine(
            settings,
            table=options.table,
            scratch=options.scratch_table,
            even_with_rows=options.even_with_rows,
            patience=options.timeout,
        )
    except errors.ValidationFailed as wrong:
        print(f"airflow-tds doctor: {wrong}", file=sys.stderr)  # noqa: T201  # a command speaks
        return 2
    print(report.as_json() if options.json else report.as_text())  # noqa: T201  # a command speaks
    return report.exit_code


def _settings(options: Any) -> Settings:
    if getattr(options, "url", None) is None:
        return _connection(options.conn_id)
    try:
        extra = json.loads(options.extra)
    except ValueError:
        extra = None
    if not isinstance(extra, dict):
        raise errors.ValidationFailed("--extra is no JSON object")
    password = options.token or os.environ.get("TDS_TOKEN")
    fields = {"conn_id": "--url", "host": options.url, "login": options.login, "password": password}
    return settings_of(SimpleNamespace(schema=None, port=None, **fields), extra)


def _connection(conn_id: str) -> Settings:
    try:
        from airflow_tds.compat import as_server
        from airflow_tds.hooks import TdsHook

        with as_server():
            return TdsHook(conn_id).settings()
    except errors.ValidationFailed:
        raise
    except Exception as missing:  # noqa: BLE001  # Airflow's class for it moved; a secrets backend has its own
        raise errors.ValidationFailed(f"connection {conn_id!r} cannot be read: {missing}") from None


def examine(
    settings: Settings,
    *,
    table: str | None = None,
    scratch: str | None = None,
    even_with_rows: bool = False,
    patience: float = 60.0,
) -> Report:
    """Examine a connection.

    Args:
        settings: The connection's.
        table: A table to read from; None for none.
        scratch: A table to write to, whose rows are all removed; None for none.
        even_with_rows: Whether it may hold rows at the start.
        patience: Seconds that each wait may take.

    Returns:
        What was found.

    Raises:
        ValidationFailed: A setting is none.
    """
    report = Report(settings.secrets())
    with closing(Patient.of(settings, patience)) as patient:
        try:
            if not all(check(patient, report) for check in CHECKS):
                return report
        except (errors.TableServiceError, OSError) as error:
            report.add("connection", "failed", str(error))
            return report
        found = _document(patient, report)
        report.proposed.update(found.wire)
        if table:
            read_all(patient, report, table)
        if scratch:
            _write(patient, report, scratch, found, even_with_rows=even_with_rows)
        if not table and not scratch:
            report.add("operations", "skipped", "name a table (--table, --scratch-table) to see more than the door")
    return report


def _write(patient: Patient, report: Report, table: str, found: Proposals, *, even_with_rows: bool) -> None:
    bench = Scratch(patient, report, table, found.wire)
    try:
        rows = bench.count()
    except errors.TableServiceError as error:
        report.add("scratch table", "failed", str(error))
        return
    if rows and not even_with_rows:
        text = f"table {table} has {rows:,} rows, which would all be removed; --even-with-rows says that they may be"
        report.add("scratch table", "failed", text)
        return
    bench.prove_all()
    wire = report.learned.get("wire", {})
    for key in wire:
        report.proposed.pop(key, None)
    if wire:  # to be pasted as a whole
        report.learned["wire"] = _short({**patient.settings.wire_setting(), **wire})


def _short(wire: Mapping[str, Any]) -> dict[str, Any]:
    """Name the profile that says the same as some of the overrides."""
    profile = PROFILES["patch"]
    if not profile.items() <= wire.items() or wire.get("profile") not in (None, "routes"):
        return dict(wire)
    return {"profile": "patch", **{name: value for name, value in wire.items() if name not in profile}}


def _document(patient: Patient, report: Report) -> Proposals:
    """Look for an OpenAPI document, below the base path and at the top."""
    base_path = urlsplit(patient.settings.base_url).path
    for address in dict.fromkeys((patient.settings.base_url, patient.origin)):
        with closing(patient.beside(base_url=address)) as there:
            for place in PLACES:
                document = _read(there, place)
                if document is not None:
                    found = proposals(document, patient.wire, base_path)
                    report.add("openapi", "ok", f"{place}: {_told(found)}")
                    return found
    report.add("openapi", "skipped", "the service serves no document at the usual places")
    return Proposals()


def _read(patient: Patient, place: str) -> Any:
    try:
        reply = patient.send(Request("openapi", place, "GET", place))
        document = json.loads(reply.content) if reply.status == 200 else None  # noqa: PLR2004  # the only good one
    except (errors.TableServiceError, ValueError):
        return None
    return document if isinstance(document, dict) and "paths" in document else None


def _told(found: Proposals) -> str:
    parts = [
        f"it has {', '.join(found.confirmed)}" if found.confirmed else "",
        f"it suggests others for {', '.join(found.wire)}" if found.wire else "",
        f"nothing clear on {', '.join(found.unclear)}" if found.unclear else "",
    ]
    return "; ".join(part for part in parts if part)


if __name__ == "__main__":
    sys.exit(main())
