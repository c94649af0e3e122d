"""What it costs to read JSON pages of 10,000 rows, and what is won by fetching the next one meanwhile.

    python tests/benchmarks/pages.py

First one page in memory: ours, which hands its rows on, beside what `response.json()` does; CPU. Then ten pages from a
server in a process of its own that takes 20 ms for each, while the reader waits 20 ms for each page's rows to be taken
elsewhere: `iter_rows` of the async face, which fetches the next page meanwhile, beside one page after the other; time.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from airflow_tds.client.client import AsyncTableClient
from airflow_tds.client.messages import Reply
from airflow_tds.client.queries import Pages
from airflow_tds.client.wire import Wire

ROWS, PAGES = 10_000, 10
ROUNDS = 15
#: Seconds that the server takes for a page, and that its rows take to be handed on.
SERVING, HANDING = 0.02, 0.02


def page(number: int = 0) -> bytes:
    """Write a page as the service does."""
    row = {"id": 1, "name": "Ada", "city": "London", "amount": 12.5, "paid": True, "note": None}
    row |= {"at": "2026-11-21T12:00:00Z", "sku": "A-1000", "count": 7, "ratio": 0.25}
    rows = [row | {"id": number, "name": f"name {number}"} for number in range(ROWS)]
    more = {"limit": ROWS, "offset": number * ROWS, "total_count": PAGES * ROWS, "has_next": number + 1 < PAGES}
    return json.dumps({"items": rows, "metadata": more}).encode()


async def serve() -> None:
    """Give pages until killed; the port is the first line of the output."""
    pages = [page(number) for number in range(PAGES)]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not reader.at_eof():
            line = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0].decode()
            await asyncio.sleep(SERVING)
            offset = line.partition("offset=")[2].partition(" ")[0].partition("&")[0]
            body = pages[int(offset or 0) // ROWS]
            head = (
                f'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nETag: "1"\r\nContent-Length: {len(body)}\r\n\r\n'
            )
            writer.write(head.encode() + body)
            await writer.drain()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def work(read: Callable[[], object]) -> float:
    """Give the milliseconds of CPU that one reading takes."""
    begun = time.process_time()
    read()
    return (time.process_time() - begun) * 1e3


async def ahead(client: AsyncTableClient) -> int:
    """Read all rows; the next page comes while those of this one are handed on."""
    count = 0
    async for _ in client.iter_rows("t", page_size=ROWS):
        count += 1
        if count % ROWS == 0:
            await asyncio.sleep(HANDING)
    return count


async def one_by_one(client: AsyncTableClient) -> int:
    """Read all rows, a page after the other."""
    pages, count = Pages("t", None, ROWS), 0
    while (rows := await client.next_page(pages)) is not None:
        for _ in rows:
            count += 1
        await asyncio.sleep(HANDING)
    return count


async def timed(port: int) -> dict[str, list[float]]:
    """Let both take turns; give the milliseconds of each round."""
    found: dict[str, list[float]] = {"iter_rows": [], "page after page": []}
    async with AsyncTableClient(f"http://127.0.0.1:{port}", token="t") as client:
        for _ in range(1 + ROUNDS // 3):
            for name, read in (("iter_rows", ahead), ("page after page", one_by_one)):
                begun = time.perf_counter()
                assert await read(client) == PAGES * ROWS
                found[name].append((time.perf_counter() - begun) * 1e3)
    return {name: times[1:] for name, times in found.items()}  # the first round made the connection


def main() -> None:
    """Measure, and print two tables."""
    content = page()
    wire, reply = Wire(), Reply(200, {"content-type": "application/json"}, content)
    pairs = [(work(lambda: json.loads(content)), work(lambda: wire.read_page(reply))) for _ in range(ROUNDS)]
    plain, ours = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratios = [one / two for one, two in pairs]
    command = [sys.executable, __file__, "serve"]
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        try:
            assert server.stdout is not None
            times = asyncio.run(timed(int(server.stdout.readline())))
        finally:
            server.kill()
    size = f"{ROWS:,} rows, {len(content) / 1e6:.1f} MB"
    print(f"| a page of {size} (median of {ROUNDS}) | CPU ms | json.loads / it | spread |")
    print("|---|---:|---:|---:|")
    print(f"| read and handed on | {ours:.1f} | {plain / ours:.2f} | {min(ratios):.2f} - {max(ratios):.2f} |")
    print(f"| `json.loads` | {plain:.1f} | 1.00 | |")
    print()
    print("| aim | bound | measured | |\n|---|---:|---:|---|")
    print(f"| json.loads / it | at least 1.5 | {plain / ours:.2f} | {'met' if plain / ours >= 1.5 else '**missed**'} |")
    print()
    rounds = len(times["iter_rows"])
    print(f"| {PAGES} pages, async face (median of {rounds}) | ms | page after page / it | spread ms |")
    print("|---|---:|---:|---:|")
    slow = statistics.median(times["page after page"])
    for name, each in times.items():
        middle = statistics.median(each)
        print(f"| {name} | {middle:.0f} | {slow / middle:.2f} | {min(each):.0f} - {max(each):.0f} |")


if __name__ == "__main__":
    asyncio.run(serve()) if sys.argv[1:] == ["serve"] else main()
