"""The command `python -m airflow_tds.local`: serves until it is told to stop."""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args
from urllib.request import urlopen

from airflow_tds.client.errors import ValidationFailed
from airflow_tds.local.callers import Schemes
from airflow_tds.local.connection import is_loopback
from airflow_tds.local.directory import StoreUnavailable
from airflow_tds.local.rights import parse_token
from airflow_tds.local.s3 import Bucket
from airflow_tds.local.service import Service

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGINT or SIGTERM.

    Args:
        arguments: Of the command line; None for those of the process.

    Returns:
        The exit code: 0 after a clean stop, 1 when it could not start.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if not options.token and not is_loopback(options.host):
        parser.error(f"to be reached at {options.host} from other machines it needs a --token")
    if not (options.quiet or options.openapi):
        _log_requests()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        with _service(options) as service:
            if options.openapi:
                print(_openapi(service))  # noqa: T201  # a command's output
                return 0
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
    parser.add_argument(
        "--token",
        action="append",
        default=[],
        help="a bearer token with all rights, or TOKEN:read=TABLE,...:write=TABLE,... where * is every table;"
        " may be repeated; without one that has all rights, one is made and printed",
    )
    parser.add_argument(
        "--upload-url-lifetime", type=float, default=3600.0, metavar="SECONDS", help="of presigned URLs (%(default)s)"
    )
    parser.add_argument(
        "--job-delay", type=float, default=0.0, metavar="SECONDS", help="from a job's data to its start (%(default)s)"
    )
    parser.add_argument(
        "--job-reads", type=int, default=0, metavar="N", help="reads of a job's status before it starts (%(default)s)"
    )
    parser.add_argument(
        "--result-lifetime", type=float, default=86_400.0, metavar="SECONDS", help="of query results (%(default)s)"
    )
    parser.add_argument("--base-path", default="", help="what stands before every path, such as /api/v1")
    parser.add_argument(
        "--refuse-chunked", action="store_true", help="answer 411 to a payload whose length is not announced"
    )
    parser.add_argument(
        "--wire",
        default="routes",
        metavar="PROFILE|FILE",
        help="forms to serve: a profile or a JSON file, see docs/wire.md",
    )
    parser.add_argument(
        "--auth", default="bearer", choices=get_args(Schemes), help="how callers show their token (%(default)s)"
    )
    parser.add_argument("--api-key-header", default="X-API-Key", help="with --auth api_key (%(default)s)")
    parser.add_argument(
        "--upload-header", action="append", default=[], metavar="NAME:VALUE", help="that a payload must carry"
    )
    parser.add_argument(
        "--clock-skew", type=float, default=0.0, metavar="SECONDS", help="by which its clock is ahead (%(default)s)"
    )
    parser.add_argument("--s3", metavar="s3://BUCKET/PREFIX", help="a bucket for payloads and results (extra s3)")
    parser.add_argument("--s3-endpoint", metavar="URL", help="of an S3-compatible store that is not AWS")
    parser.add_argument("--quiet", action="store_true", help="log no requests")
    parser.add_argument("--openapi", action="store_true", help="print what would be served, as OpenAPI, and end")
    parser.add_argument("--ready-file", type=Path, help="gets url, token and pid as JSON once the service answers")
    return parser


def _log_requests() -> None:
    """Write one line per request to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    requests = logging.getLogger("airflow_tds.local.requests")
    requests.addHandler(handler)
    requests.setLevel(logging.INFO)


def _service(options: argparse.Namespace) -> Service:
    tokens = dict(map(parse_token, options.token))
    return Service(
        options.data_dir,
        options.table,
        token=next((token for token, rights in tokens.items() if rights.admin), None),
        tokens=tokens,
        upload_url_lifetime=options.upload_url_lifetime,
        host=options.host,
        port=options.port,
        base_path=options.base_path,
        job_delay=options.job_delay,
        job_reads=options.job_reads,
        result_lifetime=options.result_lifetime,
        chunked=not options.refuse_chunked,
        wire=_wire(options.wire),
        auth=options.auth,
        api_key_header=options.api_key_header,
        upload_headers=dict(map(_header, options.upload_header)),
        clock_skew=options.clock_skew,
        bucket=Bucket.of(options.s3, options.s3_endpoint) if options.s3 else None,
    )


def _wire(given: str) -> Any:
    """Read a wire map's setting: a profile's name, or a file."""
    if not given.endswith(".json") and not Path(given).is_file():
        return given
    try:
        return json.loads(Path(given).read_text(encoding="utf-8"))
    except ValueError as wrong:
        raise ValidationFailed(f"{given} is no JSON: {wrong}") from None


def _header(given: str) -> tuple[str, str]:
    name, colon, value = given.partition(":")
    if not colon:
        raise ValidationFailed(f"a header is written NAME:VALUE, not {given!r}")
    return name.strip(), value.strip()


def _openapi(service: Service) -> str:
    with urlopen(f"{service.url}/openapi.json") as answer:  # noqa: S310  # our own address
        return json.dumps(json.load(answer), indent=2)


def _announce(service: Service, options: argparse.Namespace) -> None:
    given = any(rights.admin for _, rights in map(parse_token, options.token))
    shown = "TOKEN" if given else service.token
    lines = [
        f"Table Data Service (embedded, not for production) at {service.url}"
        + ("" if given else f", token {service.token}"),
        f"Connection as URI:  {service.connecting.as_uri(shown)}",
        f"Connection as JSON: {service.connecting.as_json(shown)}",
    ]
    lines.append(f"Page for people:    {service.url}/{'' if given else f'#{service.token}'}")
    if not is_loopback(options.host):
        lines.append("It can be reached from other machines, and without encryption.")
    print("\n".join(lines), flush=True)  # noqa: T201
    if options.ready_file is not None:
        document = {"url": service.url, "token": service.token, "pid": os.getpid()}
        _write_private(options.ready_file, json.dumps(document))


def _write_private(path: Path, text: str) -> None:
    """Write a file that appears whole, and that only its owner reads: it holds the token."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    part.replace(path)


if __name__ == "__main__":
    sys.exit(main())
