"""What it costs to write 100,000 rows of 5 columns as a payload, beside the standard library's own writers."""

import csv
import io
import json
import statistics
import time
from collections.abc import Callable
from datetime import date
from functools import partial
from typing import Any

from airflow_tds.client.rows import RowLayout, written

ROWS = 100_000
ROUNDS = 7

rows: list[dict[str, Any]] = [
    {"id": number, "name": f"name {number}", "amount": number * 0.37, "day": date(2026, 1, 1), "note": None}
    for number in range(ROWS)
]


def ours(style: Any) -> int:
    """Write as a payload is written; give its size."""
    return sum(map(len, written(rows, RowLayout(style))))


def plain_json() -> int:
    return len(json.dumps(rows, default=str, ensure_ascii=False).encode())


def plain_lines() -> int:
    return len("".join([json.dumps(row, default=str, ensure_ascii=False) + "\n" for row in rows]).encode())


def plain_csv() -> int:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return len(text.getvalue().encode())


def cost(write: Callable[[], int]) -> float:
    """Time one writing, in milliseconds of CPU."""
    begun = time.process_time()
    write()
    return (time.process_time() - begun) * 1e3


for style, plain in (("records", plain_json), ("lines", plain_lines), ("csv", plain_csv)):
    pairs = [(cost(plain), cost(partial(ours, style))) for _ in range(ROUNDS)]
    theirs, own = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratios = [one / two for one, two in pairs]
    print(
        f"{ROWS:,} rows as {style}: {own:.0f} ms, {plain.__name__} {theirs:.0f} ms, ratio {theirs / own:.2f}"
        f" (median of {ROUNDS}, {min(ratios):.2f} to {max(ratios):.2f})"
    )
