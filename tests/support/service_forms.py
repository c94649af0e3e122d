"""The forms in which a proof serves the service and asks it: strategies of writes, credentials, a bucket.

What lives here: what a form adds to the service's options, and the client that speaks it. What must not: what is
done to the service; that is the proofs' own.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from wire_settings import AUTHS, WRITES

from airflow_tds.client.client import TableClient
from airflow_tds.client.credentials import ApiKey, Basic, Bearer, ClientCredentials, Credentials
from airflow_tds.client.wire import Wire
from airflow_tds.local import Bucket
from airflow_tds.local.callers import Scheme, Schemes
from airflow_tds.local.connection import Connecting

__all__ = ["WIRES", "Form", "add_arguments", "chosen", "credentials"]

#: Wire maps by name; each has another way from a write's request to its job.
WIRES: Mapping[str, Any] = {
    "routes": "routes",
    "patch": "patch",
    "direct": {kind: {"strategy": "direct"} for kind in WRITES},
    "put_commit": {kind: {"strategy": "put_commit"} for kind in WRITES},
}
_BUCKET = "tables"


@dataclass(frozen=True)
class Form:
    """A form.

    Attributes:
        wire: A name of `WIRES`.
        auth: How callers show their token.
        endpoint: Of an S3-compatible store with a bucket for payloads and results; None for the service's own.
    """

    wire: str = "routes"
    auth: Schemes = "bearer"
    endpoint: str | None = None

    @property
    def map(self) -> Wire:
        """The wire map."""
        return Wire.from_setting(WIRES[self.wire])

    def bucket(self, prefix: str) -> Bucket | None:
        """Give the bucket, with a prefix for one service."""
        return Bucket(_BUCKET, prefix, self.endpoint) if self.endpoint else None

    def options(self, folder: Path) -> list[str]:
        """Give the options of the command line; a file that they name is made in the folder."""
        setting = folder / "wire.json"
        setting.write_text(json.dumps(WIRES[self.wire] if isinstance(WIRES[self.wire], dict) else {}))
        wire = self.wire if isinstance(WIRES[self.wire], str) else str(setting)
        kept = ["--s3", f"s3://{_BUCKET}/{folder.name}", "--s3-endpoint", self.endpoint] if self.endpoint else []
        return ["--wire", wire, "--auth", self.auth, *kept]

    def client(self, url: str, token: str) -> TableClient:
        """Give a client that speaks it."""
        return TableClient(url, credentials=self.credentials(url, token), wire=self.map)

    def credentials(self, url: str, token: str) -> Credentials:
        """Give what lets a caller in."""
        return credentials(json.loads(Connecting(url, Scheme(self.auth), self.map).as_json(token)))


def credentials(connection: Mapping[str, Any], token: str | None = None) -> Credentials:
    """Make what lets a client in, of what a service's connection says and nothing else."""
    extra, token = connection["extra"], token or connection["password"]
    if extra.get("auth") == "api_key":
        return ApiKey(token, extra["api_key_header"])
    if extra.get("auth") == "basic":
        return Basic(connection["login"], token)
    if extra.get("auth") == "oauth2":
        return ClientCredentials(extra["token_url"], connection["login"], token)
    return Bearer(token)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Let a proof's command line choose a form."""
    parser.add_argument("--wire", choices=WIRES, default="routes", help="how writes get their data (%(default)s)")
    parser.add_argument("--auth", choices=AUTHS, default="bearer", help="how callers show their token (%(default)s)")
    parser.add_argument("--s3", action="store_true", help="payloads and results go through moto's S3 server")


@contextmanager
def chosen(options: argparse.Namespace) -> Iterator[Form]:
    """Give the form that a command line chose, with its object store served."""
    if not options.s3:
        yield Form(options.wire, options.auth)
        return
    with _object_store() as endpoint:
        yield Form(options.wire, options.auth, endpoint)


@contextmanager
def _object_store() -> Iterator[str]:
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # else it tells of each request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    endpoint = "http://{}:{}".format(*server.get_host_and_port())
    with mock.patch.dict(os.environ, AWS_ACCESS_KEY_ID="key", AWS_SECRET_ACCESS_KEY="secret"):  # moto's
        Bucket(_BUCKET, endpoint=endpoint).client().create_bucket(Bucket=_BUCKET)
        yield endpoint
    server.stop()
