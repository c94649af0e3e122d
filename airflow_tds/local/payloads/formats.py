"""Which payload formats there are."""

from __future__ import annotations

from pathlib import Path

from airflow_tds.local.payloads.csv import CsvPayload
from airflow_tds.local.payloads.payload import Payload

__all__ = ["FORMATS", "open_payload"]

_KINDS: dict[str, type[Payload]] = {"csv": CsvPayload}
#: The values of a write's `format` that are served, §2.7.
FORMATS = tuple(_KINDS)


def open_payload(data_format: str, path: Path) -> Payload:
    """Give the payload in a file; nothing is read yet."""
    return _KINDS[data_format](path)
