"""The command `python -m airflow_tds.local`: serves until it is told to stop."""

from __future__ import annotations

import argparse
import ipaddress
import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from airflow_tds.client.errors import ValidationFailed
from airflow_tds.local.service import Service
from airflow_tds.local.store import StoreUnavailable

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGINT or SIGTERM.

    Args:
        arguments: Of the command line; None for those of the process.

    Returns:
        The exit code: 0 after a clean stop, 1 when it could not start.
    """
    options = _parser().parse_args(arguments)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        with _service(options) as service:
            _announce(service, options)
            stop.wait()
    except (StoreUnavailable, ValidationFailed, OSError) as refused:
        print(f"airflow_tds.local: {refused}", file=sys.stderr)  # noqa: T201  # a command's output
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m airflow_tds.local",
        description="Serve the Table Data Service from a directory of this machine. No production service.",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    parser.add_argument("--port", type=int, default=0, help="0 for a free one (%(default)s)")
    parser.add_argument("--data-dir", type=Path, help="where everything lies; without it a temporary one")
    parser.add_argument("--table", action="append", default=[], help="a table to create; may be repeated")
    parser.add_argument("--token", help="the bearer token of all callers; without it one is made and printed")
    parser.add_argument(
        "--upload-url-lifetime", type=float, default=3600.0, metavar="SECONDS", help="of presigned URLs (%(default)s)"
    )
    parser.add_argument(
        "--job-delay", type=float, default=0.0, metavar="SECONDS", help="from a job's data to its start (%(default)s)"
    )
    parser.add_argument(
        "--result-lifetime", type=float, default=86_400.0, metavar="SECONDS", help="of query results (%(default)s)"
    )
    parser.add_argument("--base-path", default="", help="what stands before every path, such as /api/v1")
    parser.add_argument("--ready-file", type=Path, help="gets url, token and pid as JSON once the service answers")
    return parser


def _service(options: argparse.Namespace) -> Service:
    return Service(
        options.data_dir,
        options.table,
        token=options.token,
        upload_url_lifetime=options.upload_url_lifetime,
        host=options.host,
        port=options.port,
        base_path=options.base_path,
        job_delay=options.job_delay,
        result_lifetime=options.result_lifetime,
    )


def _announce(service: Service, options: argparse.Namespace) -> None:
    token = "" if options.token else f", token {service.token}"
    print(f"Table Data Service (embedded, not for production) at {service.url}{token}", flush=True)  # noqa: T201
    if not _is_loopback(options.host):
        print("It can be reached from other machines, and without encryption.", flush=True)  # noqa: T201
    if options.ready_file is not None:
        document = {"url": service.url, "token": service.token, "pid": os.getpid()}
        _write_private(options.ready_file, json.dumps(document))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _write_private(path: Path, text: str) -> None:
    """Write a file that appears whole, and that only its owner reads: it holds the token."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    part.replace(path)


if __name__ == "__main__":
    sys.exit(main())
