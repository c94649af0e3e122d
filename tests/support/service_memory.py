"""What memory the embedded service takes for one payload and its result, by phase, as /proc tells it."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caller import Caller
from service_process import ServiceProcess

__all__ = ["Phase", "measured"]

_MIB = 1 << 20
_LINE = 1024
_PATIENCE = 600.0


@dataclass(frozen=True)
class Phase:
    """One phase.

    Attributes:
        name: What was done.
        seconds: How long it took.
        before: Resident MiB when it began.
        peak: The most resident MiB in it.
    """

    name: str
    seconds: float
    before: float
    peak: float

    @property
    def growth(self) -> float:
        return self.peak - self.before


def measured(folder: Path, size: int) -> list[Phase]:
    """Send a payload of about so many bytes, load it, query it into a file and fetch that; give the phases.

    Args:
        folder: Where the service may keep its data.
        size: Bytes.
    """
    with ServiceProcess(folder, "--table", "t", "--job-reads", "1") as process:  # the job waits to be asked for
        caller, phases = process.caller(), _Phases(process.process.pid)
        begun = caller.initiate("upload", "t").json()
        sent = phases.run("PUT", lambda: _send(caller, begun["upload_url"], size))
        phases.run("load", lambda: _settled(caller, begun["job_id"]))
        query = caller.http.post("/data/queries", json={"table_id": "t", "format": "csv"}).json()["job_id"]
        phases.run("query", lambda: _settled(caller, query))
        url = caller.http.get(f"/data/query/{query}").headers["location"]
        came = phases.run("GET", lambda: _fetch(caller, url))
        caller.close()
    assert came == sent, "the result is not what was sent"
    return phases.done


class _Phases:
    def __init__(self, pid: int) -> None:
        self._folder = Path("/proc") / str(pid)
        self.done: list[Phase] = []

    def run(self, name: str, work: Callable[[], Any]) -> Any:
        (self._folder / "clear_refs").write_text("5")  # the peak starts anew
        before, begun = self._resident("VmRSS"), time.monotonic()
        result = work()
        self.done.append(Phase(name, time.monotonic() - begun, before, self._resident("VmHWM")))
        return result

    def _resident(self, field: str) -> float:
        found = re.search(rf"{field}:\s+(\d+) kB", (self._folder / "status").read_text())
        assert found, field
        return int(found[1]) / 1024


def _rows(size: int) -> Iterator[bytes]:
    yield b"a\n"
    together = _MIB // _LINE
    for first in range(0, size // _LINE, together):
        yield b"".join(b"%015d%s\n" % (n, b"x" * (_LINE - 16)) for n in range(first, first + together))


def _send(caller: Caller, url: str, size: int) -> str:
    digest = hashlib.sha256()

    def told() -> Iterator[bytes]:
        for piece in _rows(size):
            digest.update(piece)
            yield piece

    length = 2 + size // _MIB * _MIB
    reply = caller.store.put(url, content=told(), headers={"Content-Length": str(length)}, timeout=_PATIENCE)
    assert reply.status_code == 200, reply.text
    return digest.hexdigest()


def _settled(caller: Caller, job_id: str) -> None:
    deadline = time.monotonic() + _PATIENCE
    while (record := caller.job(job_id))["status"] not in ("COMPLETED", "FAILED"):
        assert time.monotonic() < deadline, record
    assert record["status"] == "COMPLETED", record


def _fetch(caller: Caller, url: str) -> str:
    digest = hashlib.sha256()
    with caller.store.stream("GET", url, timeout=_PATIENCE) as reply:
        for piece in reply.iter_raw(_MIB):
            digest.update(piece)
    return digest.hexdigest()
