"""Which payload formats there are."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from airflow_tds.local.payloads.csv import CsvPayload
from airflow_tds.local.payloads.json import JsonPayload
from airflow_tds.local.payloads.parquet import ParquetPayload
from airflow_tds.local.payloads.payload import Payload

__all__ = ["FORMATS", "open_payload"]

_KINDS: dict[str, Callable[[Path], Payload]] = {
    "csv": CsvPayload,
    "json": partial(JsonPayload, layout="array"),
    "ndjson": partial(JsonPayload, layout="newline_delimited"),
    "parquet": ParquetPayload,
}
#: The values of a write's `format` that are served, §2.7.
FORMATS = tuple(_KINDS)


def open_payload(data_format: str, path: Path) -> Payload:
    """Give the payload in a file; nothing is read yet."""
    return _KINDS[data_format](path)
