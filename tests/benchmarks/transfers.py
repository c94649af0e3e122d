"""Uploads and downloads of the client against curl, requests and aiohttp: one server, one run, plain and TLS.

    python3 tests/run.py bench                         256 MiB, 3 rounds
    python tests/benchmarks/transfers.py --full        1 GiB, 7 rounds

Each transfer is a process of its own. The competitors take turns; of each, the median of its rounds is compared with
the median of curl's: above 1 is faster, or less work. Time and work (CPU, user and system) are those of the transfer
without imports; on a busy machine, look at the work. Memory is what the transfer adds at its peak; of curl, the kernel
tells the most that this process ever had instead, so it is left out. aiohttp takes part where it is installed.
"""

import argparse
import asyncio
import importlib.util
import math
import os
import resource
import shutil
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

MIB = 1 << 20
PIECE = 1 << 20


# ---- the server


def serve(path: Path, certificate: Path | None) -> None:
    """Give a file to every GET, take and drop every PUT, until standard input ends."""
    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
    listener = socket.create_server(("127.0.0.1", 0))
    scheme, port = "http" if context is None else "https", listener.getsockname()[1]
    print(f"{scheme}://127.0.0.1:{port}", flush=True)

    def accept() -> None:
        while True:
            raw, _ = listener.accept()
            connection = raw if context is None else context.wrap_socket(raw, server_side=True)
            threading.Thread(target=answer, args=(connection, path), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    sys.stdin.read()


def answer(connection: socket.socket, path: Path) -> None:
    """Answer one request, then close."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    head, length, waits = b"", 0, False
    while b"\r\n\r\n" not in head:
        head += connection.recv(65536)
    head, _, body = head.partition(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        length = int(line.split(b":")[1]) if line.startswith(b"content-length:") else length
        waits = waits or line.startswith(b"expect:")
    with connection:
        if head.startswith(b"PUT"):
            if waits:
                connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            drop(connection, length - len(body))
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        elif b"/data/query/" in head.split(b"\r\n")[0]:
            host = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"host:")).split(b" ")[1]
            scheme = b"https" if isinstance(connection, ssl.SSLSocket) else b"http"
            location = scheme + b"://" + host + b"/result"
            connection.sendall(b"HTTP/1.1 307 X\r\nContent-Length: 0\r\nLocation: " + location + b"\r\n\r\n")
        else:
            size = path.stat().st_size
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % size)
            with path.open("rb", buffering=0) as file:
                if isinstance(connection, ssl.SSLSocket):
                    while piece := file.read(PIECE):
                        connection.sendall(piece)
                else:
                    connection.sendfile(file)


def drop(connection: socket.socket, left: int) -> None:
    """Read a body into nothing."""
    view = memoryview(bytearray(PIECE))
    while left:
        left -= connection.recv_into(view, min(left, PIECE))


# ---- the competitors


def ours(direction: str, url: str, path: Path, ca: str | None) -> Callable[[], object]:
    from airflow_tds.client.access import Tls
    from airflow_tds.client.client import TableClient
    from airflow_tds.client.messages import SecretUrl
    from airflow_tds.client.wire import Initiation

    client = TableClient(url, tls=Tls(ca))
    if direction == "upload":
        return lambda: client.send_data(Initiation("j", SecretUrl(f"{url}/put")), path)
    return lambda: client.poll_download_to("j", path)


def ours_async(direction: str, url: str, path: Path, ca: str | None) -> Callable[[], object]:
    from airflow_tds.client.access import Tls
    from airflow_tds.client.client import AsyncTableClient
    from airflow_tds.client.messages import SecretUrl
    from airflow_tds.client.wire import Initiation

    async def work() -> None:
        async with AsyncTableClient(url, tls=Tls(ca)) as client:
            if direction == "upload":
                await client.send_data(Initiation("j", SecretUrl(f"{url}/put")), path)
            else:
                await client.poll_download_to("j", path)

    return lambda: asyncio.run(work())


def requests(direction: str, url: str, path: Path, ca: str | None) -> Callable[[], object]:
    import requests as library

    def upload() -> None:
        with path.open("rb") as file:
            library.put(f"{url}/put", data=file, verify=ca or True, timeout=60).raise_for_status()

    def download() -> None:
        with library.get(url, stream=True, verify=ca or True, timeout=60) as response, path.open("wb") as file:
            for piece in response.iter_content(PIECE):
                file.write(piece)

    return upload if direction == "upload" else download


def aiohttp(direction: str, url: str, path: Path, ca: str | None) -> Callable[[], object]:
    import aiohttp as library

    async def work() -> None:
        context = ssl.create_default_context(cafile=ca)
        async with library.ClientSession() as session:
            if direction == "upload":
                with path.open("rb") as file:
                    async with session.put(f"{url}/put", data=file, ssl=context) as response:
                        response.raise_for_status()
                return
            async with session.get(url, ssl=context) as response:
                with path.open("wb") as file:
                    async for piece in response.content.iter_chunked(PIECE):
                        file.write(piece)

    return lambda: asyncio.run(work())


LIBRARIES = {"ours": ours, "ours async": ours_async, "requests": requests, "aiohttp": aiohttp}


def warm() -> None:
    """Import what libraries import only when they connect."""
    for name in ("httpcore", "h11", "anyio._backends._asyncio"):
        importlib.import_module(name)


def transfer(name: str, direction: str, url: str, path: Path, ca: str | None) -> None:
    """Make one transfer in this process; print its seconds, those of the CPU, and the memory that it added, MiB."""
    call = LIBRARIES[name](direction, url, path, ca)
    warm()
    before = resource.getrusage(resource.RUSAGE_SELF)
    started = time.perf_counter()
    call()
    seconds = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_SELF)
    work = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(seconds, work, (after.ru_maxrss - before.ru_maxrss) / 1024)


def curl(direction: str, url: str, path: Path, ca: str | None) -> tuple[float, ...]:
    """Make one transfer with curl; see `transfer`."""
    how = ["-o", "/dev/null", "-T", str(path), f"{url}/put"] if direction == "upload" else ["-o", str(path), url]
    trust = ["--cacert", ca] if ca else []
    command = ["curl", "-sSf", "--noproxy", "*", "-w", "%{stderr}%{time_total}", *trust, *how]
    with tempfile.TemporaryFile("w+") as said:
        child = os.posix_spawnp("curl", command, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, said.fileno(), 2)])
        _, status, used = os.wait4(child, 0)
        said.seek(0)
        text = said.read()
    if status:
        sys.exit(f"curl: {text}")
    return float(text), used.ru_utime + used.ru_stime, math.nan


# ---- the run


def measure(name: str, direction: str, url: str, path: Path, ca: str | None) -> tuple[float, ...]:
    """Make one transfer in a process of its own; see `transfer`."""
    command = [sys.executable, __file__, "--transfer", name, direction, url, str(path), ca or ""]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return tuple(map(float, done.stdout.split()))


def compare(names: list[str], rounds: int, direction: str, url: str, *, path: Path, ca: str | None) -> None:
    """Let all take turns; print a line for each."""
    seen: dict[str, list[tuple[float, ...]]] = {name: [] for name in names}
    file = path if direction == "upload" else path.with_name("copy")
    for _ in range(rounds):
        for name in names:
            ran = curl(direction, url, file, ca) if name == "curl" else measure(name, direction, url, file, ca)
            seen[name].append(ran)
            if file.stat().st_size != path.stat().st_size:
                sys.exit(f"{name}: the {direction} is not whole")
    middles = {name: [statistics.median(column) for column in zip(*runs, strict=True)] for name, runs in seen.items()}
    for name, (seconds, work, _) in middles.items():
        times = [run[0] for run in seen[name]]
        most = max(run[2] for run in seen[name])
        memory = "" if math.isnan(most) else f"  memory {most:.1f} MiB"
        print(
            f"{direction:9} {'TLS' if ca else 'plain':6} {name:11} {seconds:5.2f} s"
            f"  {path.stat().st_size / MIB / seconds:5.0f} MiB/s  curl/it {middles['curl'][0] / seconds:5.2f}"
            f"  work: curl/it {middles['curl'][1] / work:5.2f}"
            f"  spread {min(times):.2f}-{max(times):.2f} s{memory}",
            flush=True,
        )


def main(size: int, rounds: int) -> None:
    """Run all transfers in a scratch folder, in memory where the machine offers that."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
    from certificates import Authority

    names = [name for name in ("curl", *LIBRARIES) if name != "aiohttp" or importlib.util.find_spec("aiohttp")]
    if shutil.which("curl") is None:
        sys.exit("curl is needed: apt install curl")
    memory = Path("/dev/shm")  # noqa: S108  # the folder inside gets a name of its own
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > 3 * size
    with tempfile.TemporaryDirectory(dir=memory if roomy else None) as scratch:
        path, pem = Path(scratch) / "file", Path(Authority(Path(scratch)).bundle)
        with path.open("wb") as file:
            for _ in range(size // PIECE):
                file.write(os.urandom(PIECE))
        load, cores = os.getloadavg()[0], os.cpu_count()
        where = "memory" if roomy else "a file system"
        print(f"{size // MIB} MiB, median of {rounds} rounds, in {where}; {cores} cores, load {load:.1f} at the start")
        for ca in (None, str(pem)):
            command = [sys.executable, __file__, "--serve", str(path), ca or ""]
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
                url = server.stdout.readline().strip() if server.stdout else ""
                for direction in ("download", "upload"):
                    compare(names, rounds, direction, url, path=path, ca=ca)
                server.communicate()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Compare transfers.")
    parser.add_argument("--full", action="store_true", help="1 GiB, 7 rounds")
    parser.add_argument("--rounds", type=int, help="how often each takes its turn")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--transfer", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(Path(options.serve[0]), Path(options.serve[1]) if options.serve[1] else None)
    elif options.transfer:
        who, which, where, what, trusted = options.transfer
        transfer(who, which, where, Path(what), trusted or None)
    else:
        size, rounds = (1024 * MIB, 7) if options.full else (256 * MIB, 3)
        main(size, options.rounds or rounds)
