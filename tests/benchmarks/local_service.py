"""What the embedded service costs beside raw DuckDB doing the same work: one machine, one run, the same file kinds.

    python tests/benchmarks/local_service.py                  1,000,000 rows, 5 rounds
    python tests/benchmarks/local_service.py --rows 100000 --rounds 3
    python tests/benchmarks/local_service.py --size           what the extra `local` installs

Raw is DuckDB's SQL on a database file of its own, with neither job, checks, catalog nor HTTP. The service is a process
of its own and is asked over HTTP: a write is timed from its announcement until the end that its job tells, a query
until its result has arrived. The two take turns in changing order; of each operation the median of the rounds' ratios
is given, service to raw, of CPU time and of wall time: 1.5 is half as much again. On a busy machine, look at CPU. The
targets are those of the service's design, for CPU.

Before each operation the service has come to rest: an idle service cuts its log, and that is no work of what comes
next. It is not counted, nor is what raw DuckDB puts off; what either does of it in a commit is.
"""

import argparse
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import duckdb
import httpx

TYPES = {
    "id": "BIGINT",
    "shop": "BIGINT",
    "customer": "BIGINT",
    "amount": "DOUBLE",
    "price": "DOUBLE",
    "count": "BIGINT",
    "day": "DATE",
    "at": "TIMESTAMP",
    "name": "VARCHAR",
    "paid": "BOOLEAN",
}
ROWS = (
    "SELECT i AS id, i % 100 AS shop, hash(i) % 50_000 AS customer, (hash(i + 1) % 100_000) / 100 AS amount,"
    " (hash(i + 2) % 10_000) / 8 AS price, hash(i + 3) % 50 AS count, DATE '2020-01-01' + (i % 1000)::INT AS day,"
    " TIMESTAMP '2020-01-01' + to_seconds(i) AS at, 'name ' || hash(i) % 9973 AS name, i % 3 = 0 AS paid"
    " FROM range({first}, {last}) AS _(i)"
)
#: Seconds without work after which the service is at rest: it keeps house after one second of idleness.
REST = 1.5
QUESTIONS = 5000
PAGES = 5
PAGE = 10_000
TARGETS = {"load": 2.2, "append": 2.2, "upsert": 1.8, "delete": 4.0, "page": 1.3, "join": 1.3, "overwrite": 1.8}


def make_files(folder: Path, rows: int) -> dict[str, Path]:
    """Write the payloads."""
    tenth = rows // 10
    ranges = {
        "load": (0, rows),
        "append": (rows, rows + tenth),
        "upsert": (rows - tenth // 2, rows + tenth // 2),  # one half is there, the other is there from the append
        "overwrite": (0, rows // 2),
        "names": (0, 50_000),
    }
    for name, (first, last) in ranges.items():
        select = ROWS.format(first=first, last=last)
        if name == "names":
            select = f"SELECT id AS customer, name AS called, day AS since FROM ({select})"
        duckdb.execute(f"COPY ({select}) TO '{folder / name}.csv' (HEADER true)")
    return {name: folder / f"{name}.csv" for name in ranges}


class Raw:
    """DuckDB on a file."""

    def __init__(self, folder: Path, files: dict[str, Path]) -> None:
        self.folder, self.files, self.table = folder, files, ""
        self.connection = duckdb.connect(str(folder / "raw.duckdb"), config={"storage_compatibility_version": "v1.5.0"})
        self.connection.execute(f"CREATE TABLE names AS FROM read_csv('{files['names']}')")

    def cpu(self) -> float:
        """Give the seconds of CPU so far."""
        return time.process_time()

    def _rows(self, name: str) -> str:
        return f"read_csv('{self.files[name]}', auto_detect=false, header=true, columns={TYPES})"

    def load(self) -> None:
        self.connection.execute(f"CREATE TABLE {self.table} AS FROM read_csv('{self.files['load']}')")

    def append(self) -> None:
        self.connection.execute(f"INSERT INTO {self.table} FROM {self._rows('append')}")

    def upsert(self) -> None:
        self.connection.execute("BEGIN")
        self.connection.execute(f"CREATE OR REPLACE TEMP TABLE p AS FROM {self._rows('upsert')}")
        self.connection.execute(f"DELETE FROM {self.table} t USING p WHERE t.id = p.id AND t.shop = p.shop")
        self.connection.execute(f"INSERT INTO {self.table} FROM p")
        self.connection.execute("COMMIT")

    def delete(self) -> None:
        self.connection.execute(f"DELETE FROM {self.table} WHERE amount < 10")

    def page(self) -> None:
        for number in range(PAGES):
            where = f"FROM {self.table} WHERE count < {40 + number}"
            found = self.connection.execute(
                f"SELECT to_json(r)::VARCHAR FROM (SELECT * {where} LIMIT {PAGE}) r"
            ).fetchall()
            total = self.connection.execute(f"SELECT count(*) {where}").fetchall()
            document = f'{{"items": [{",".join(row for (row,) in found)}], "total": {total[0][0]}}}'.encode()
            assert len(document) > PAGE

    def join(self) -> None:
        select = f"SELECT t.*, n.called, n.since FROM {self.table} t LEFT JOIN names n ON t.customer = n.customer"
        self.connection.execute(f"COPY ({select}) TO '{self.folder}/raw.parquet' (FORMAT parquet, COMPRESSION snappy)")

    def overwrite(self) -> None:
        self.connection.execute(f"CREATE OR REPLACE TABLE {self.table} AS FROM {self._rows('overwrite')}")

    def drop(self) -> None:
        self.connection.execute(f"DROP TABLE {self.table}")


class Served:
    """The service in a process, over HTTP."""

    def __init__(self, folder: Path, files: dict[str, Path], url: str, pid: int) -> None:
        self.folder, self.files, self.table, self.pid = folder, files, "", pid
        self.ended = 0.0
        self.http = httpx.Client(base_url=url, headers={"Authorization": "Bearer token"}, timeout=600)
        self.store = httpx.Client(timeout=600)
        self.table = "names"
        self.http.post("/admin/tables", json={"table_id": self.table})
        self.write("POST", "/upload", "names")

    def cpu(self) -> float:
        """Give the seconds of CPU so far, of the service only."""
        return time.clock_gettime((~self.pid << 3) | 2)  # clock_getcpuclockid(3) of a process, which Python lacks

    def rest(self) -> None:
        """Wait until it does nothing any more."""
        before = -1.0
        while (now := self.cpu()) - before > REST / 100:
            before = now
            time.sleep(REST)

    def write(self, method: str, path: str, name: str, **body: Any) -> None:
        begun = self.http.request(method, f"/tables/{self.table}/data{path}", json={"format": "csv", **body}).json()
        with self.files[name].open("rb") as file:
            size = str(self.files[name].stat().st_size)
            reply = self.store.put(
                begun["upload_url"], content=iter(lambda: file.read(1 << 20), b""), headers={"Content-Length": size}
            )
        reply.raise_for_status()
        self.wait(begun["job_id"])

    def wait(self, job_id: str) -> None:
        """Wait for a job; its record tells when it ended: questions are work for the service, and none of the job."""
        while (job := self.http.get(f"/data/jobs/{job_id}").json())["status"] != "COMPLETED":
            if job["status"] == "FAILED":
                sys.exit(job["error"])
            time.sleep(0.1)
        self.ended = datetime.fromisoformat(job["finished_at"]).timestamp()

    def load(self) -> None:
        self.http.post("/admin/tables", json={"table_id": self.table})
        self.write("POST", "/upload", "load")

    def append(self) -> None:
        self.write("PATCH", "", "append")

    def upsert(self) -> None:
        self.write("POST", "/upsert", "upsert", key_columns=["id", "shop"])

    def delete(self) -> None:
        self.http.post(f"/tables/{self.table}/data/delete", json={"filters": ["amount:lt:10"]}).raise_for_status()

    def page(self) -> None:
        for number in range(PAGES):
            asked: dict[str, str | int] = {"filters": f"count:lt:{40 + number}", "limit": PAGE}
            reply = self.http.get(f"/tables/{self.table}/data/query", params=asked)
            assert reply.status_code == 200, reply.text

    def join(self) -> None:
        join = {"table_id": "names", "how": "left", "left_on": "customer", "right_on": "customer"}
        columns = [*TYPES, "called", "since"]
        asked = {"table_id": self.table, "joins": [join], "select": columns, "format": "parquet"}
        job_id = self.http.post("/data/queries", json=asked).json()["job_id"]
        self.wait(job_id)
        ready = self.http.get(f"/data/query/{job_id}")
        with (
            self.store.stream("GET", ready.headers["location"]) as reply,
            (self.folder / "served.parquet").open("wb") as file,
        ):
            for chunk in reply.iter_raw(1 << 20):
                file.write(chunk)

    def overwrite(self) -> None:
        self.write("POST", "/overwrite", "overwrite")

    def drop(self) -> None:
        self.http.post(f"/tables/{self.table}/data/truncate")  # tables are never dropped

    def questions(self) -> float:
        """Give how many reads of a table's statistics it answers a second of its CPU, one after another.

        A bare socket asks: while a client works between two questions, others push the service out of the caches,
        and its CPU time is theirs.
        """
        self.rest()
        asked = self.http.build_request("GET", f"/tables/{self.table}/data/info")
        fields = "".join(f"{name}: {value}\r\n" for name, value in asked.headers.items())
        question = f"GET {asked.url.path} HTTP/1.1\r\n{fields}\r\n".encode()
        with socket.create_connection((asked.url.host, asked.url.port)) as connection:
            begun = self.cpu()
            for _ in range(QUESTIONS):
                connection.sendall(question)
                answer = b""
                while not answer.endswith(b"}"):
                    answer += connection.recv(1 << 16)
                assert answer.startswith(b"HTTP/1.1 200")
            return QUESTIONS / (self.cpu() - begun)


@contextmanager
def service(folder: Path) -> Iterator[tuple[str, int, float]]:
    """Start the service; give its address, its process and the seconds that it took."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    command = [sys.executable, "-m", "airflow_tds.local", "--port", port, "--token", "token", "--quiet"]
    begun = time.monotonic()
    command += ["--data-dir", str(folder / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        seconds = time.monotonic() - begun
        try:
            yield f"http://127.0.0.1:{port}", process.pid, seconds
        finally:
            process.terminate()
            process.communicate()


def measure(who: Raw | Served, operation: str) -> tuple[float, float]:
    """Do one operation; give its seconds of CPU and of time."""
    cpu, begun = who.cpu(), time.time()
    getattr(who, operation)()
    by_job = isinstance(who, Served) and operation in ("load", "append", "upsert", "overwrite")
    ended = who.ended if isinstance(who, Served) and by_job else time.time()
    return who.cpu() - cpu, ended - begun


def compare(folder: Path, rows: int, rounds: int) -> None:
    """Let both do everything in turns; print a line for each operation."""
    files = make_files(folder, rows)
    ratios: dict[str, list[tuple[float, float]]] = defaultdict(list)
    raws: dict[str, list[float]] = defaultdict(list)
    with service(folder) as (url, pid, started):
        raw, served = Raw(folder, files), Served(folder, files, url, pid)
        for number in range(rounds):
            raw.table = served.table = f"t{number}"
            for operation in TARGETS:
                both: list[Raw | Served] = [raw, served] if number % 2 else [served, raw]
                served.rest()
                seen = {type(who): measure(who, operation) for who in both}
                pairs = zip(seen[Served], seen[Raw], strict=True)
                cpu, wall = (ours / theirs for ours, theirs in pairs)
                ratios[operation].append((cpu, wall))
                raws[operation].append(seen[Raw][0] * 1e3)
            raw.drop()
            served.drop()
        asked = served.questions()
    print(
        f"{rows:,} rows by {len(TYPES)} columns, {rounds} rounds, {os.cpu_count()} cores, DuckDB {duckdb.__version__}"
    )
    print("| operation | raw, CPU ms | service / raw, CPU | its spread | wall | target, CPU |")
    print("|---|---:|---:|---:|---:|---:|")
    for operation, found in ratios.items():
        cpus, walls = zip(*found, strict=True)
        print(
            f"| {operation} | {statistics.median(raws[operation]):,.0f} | {statistics.median(cpus):.2f}"
            f" | {min(cpus):.2f}-{max(cpus):.2f} | {statistics.median(walls):.2f} | {TARGETS[operation]} |"
        )
    print(f"started in {started:.2f} s; info: {asked:,.0f} answers per second of CPU")


def sizes() -> None:
    """Print what the extra installs, with all that it needs, and what of it Airflow brings along."""
    core = _closure(set(_required("airflow-tds", "")))
    total, own = 0.0, 0.0
    for name in sorted(_closure(set(_required("airflow-tds", "local")))):
        files = distribution(name).files or []
        size = sum(path.stat().st_size for file in files if (path := Path(str(file.locate()))).is_file()) / 1e6
        brought = name in core
        total, own = total + size, own + (0 if brought else size)
        print(f"{name:20} {size:6.1f} MB{'  (with Airflow anyway)' if brought else ''}")
    print(f"{'in all':20} {total:6.1f} MB, of it {own:.1f} MB beside Airflow")


def _required(name: str, extra: str) -> Iterator[str]:
    """Name what a distribution requires, for one of its extras or without any."""
    for line in distribution(name).requires or []:
        wanted, _, condition = line.partition(";")
        if ("extra ==" in condition) is bool(extra) and (not extra or re.search(rf"extra == .{extra}.", condition)):
            yield re.split(r"[^\w.-]", wanted.strip())[0].lower().replace("_", "-")


def _closure(names: set[str]) -> set[str]:
    """Add what is required by what is required, as far as it is installed."""
    found: set[str] = set()
    while names:
        name = names.pop()
        try:
            distribution(name)
        except PackageNotFoundError:
            continue
        found.add(name)
        names |= {each for each in _required(name, "") if each not in found}
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Compare the embedded service with raw DuckDB.")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the load (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", action="store_true", help="only print what the extra installs")
    options = parser.parse_args()
    if options.size:
        sizes()
    else:
        with tempfile.TemporaryDirectory() as scratch:
            compare(Path(scratch), options.rows, options.rounds)
