"""What it costs to read a JSON page of 10,000 rows and hand its rows on, beside what `response.json()` does."""

import json
import statistics
import time
from collections.abc import Callable

from airflow_tds.client.messages import Reply
from airflow_tds.client.wire import Wire

ROWS = 10_000
ROUNDS = 15

row = {"id": 1, "name": "Ada", "city": "London", "amount": 12.5, "paid": True, "note": None}
row |= {"at": "2026-11-21T12:00:00Z", "sku": "A-1000", "count": 7, "ratio": 0.25}
rows = [row | {"id": number, "name": f"name {number}"} for number in range(ROWS)]
page = {"items": rows, "metadata": {"limit": ROWS, "offset": 0, "total_count": ROWS, "has_next": False}}
content = json.dumps(page).encode()
wire = Wire()
reply = Reply(200, {"content-type": "application/json"}, content)


def cost(read: Callable[[], object]) -> float:
    """Time one reading, in milliseconds of CPU."""
    begun = time.process_time()
    read()
    return (time.process_time() - begun) * 1e3


pairs = [(cost(lambda: json.loads(content)), cost(lambda: wire.read_page(reply))) for _ in range(ROUNDS)]
plain, ours = (statistics.median(column) for column in zip(*pairs, strict=True))
low, high = min(one / two for one, two in pairs), max(one / two for one, two in pairs)
print(
    f"page of {ROWS:,} rows, {len(content) / 1e6:.1f} MB: {ours:.1f} ms read and handed on, "
    f"json.loads {plain:.1f} ms, ratio {plain / ours:.2f} (median of {ROUNDS}, {low:.2f} to {high:.2f})"
)
