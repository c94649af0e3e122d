"""Rows as payloads of each format, written without the project's code."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path

import duckdb
from table_model import Row, Value

__all__ = ["ENCODERS", "Encoder"]

Encoder = Callable[[Mapping[str, type], Sequence[Row], random.Random], bytes]
_PARQUET = {int: "BIGINT", float: "DOUBLE", str: "VARCHAR", bool: "BOOLEAN", date: "DATE"}


def _shuffled(columns: Mapping[str, type], chance: random.Random) -> list[str]:
    return chance.sample(list(columns), len(columns))


def _csv(columns: Mapping[str, type], rows: Sequence[Row], chance: random.Random) -> bytes:
    names, end = _shuffled(columns, chance), chance.choice(["\n", "\r\n"])
    lines = [",".join(map(_quoted, names)), *(",".join(_field(row[name]) for name in names) for row in rows)]
    return end.join([*lines, ""]).encode()


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _field(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return _quoted(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _objects(columns: Mapping[str, type], rows: Sequence[Row], chance: random.Random) -> list[str]:
    """Give JSON objects, with keys in any order; NULL is written, or left out."""
    objects = []
    for number, row in enumerate(rows):
        kept = [
            name for name in _shuffled(columns, chance) if not number or row[name] is not None or chance.random() < 0.5
        ]
        values = {name: str(row[name]) if isinstance(row[name], date) else row[name] for name in kept}
        objects.append(json.dumps(values, ensure_ascii=chance.random() < 0.5))
    return objects


def _json(columns: Mapping[str, type], rows: Sequence[Row], chance: random.Random) -> bytes:
    return f"[{','.join(_objects(columns, rows, chance))}]".encode()


def _ndjson(columns: Mapping[str, type], rows: Sequence[Row], chance: random.Random) -> bytes:
    return "".join(f"{line}\n" for line in _objects(columns, rows, chance)).encode()


def _parquet(columns: Mapping[str, type], rows: Sequence[Row], chance: random.Random) -> bytes:
    names = _shuffled(columns, chance)
    quoted = ['"' + name.replace('"', '""') + '"' for name in names]
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as connection:
        types = (f"{name} {_PARQUET[columns[plain]]}" for name, plain in zip(quoted, names, strict=True))
        connection.execute(f"CREATE TABLE rows ({', '.join(types)})")
        if rows:
            places = ", ".join("?" * len(names))
            connection.executemany(
                f"INSERT INTO rows VALUES ({places})",  # noqa: S608  # marks only
                [[row[name] for name in names] for row in rows],
            )  # names of tests
        connection.execute(f"COPY rows TO '{folder}/rows' (FORMAT parquet)")
        return Path(folder, "rows").read_bytes()


ENCODERS: Mapping[str, Encoder] = {"csv": _csv, "json": _json, "ndjson": _ndjson, "parquet": _parquet}
