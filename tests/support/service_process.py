"""The embedded service as a process of its own, to be stopped, killed and started again on the same data."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

from caller import Caller

__all__ = ["ServiceProcess"]

_PATIENCE = 60.0


class ServiceProcess:
    """The service as a command, on a data directory that outlives it.

    Args:
        folder: Gets the data directory and the ready file.
        *options: For the command line.
    """

    def __init__(self, folder: Path, *options: str) -> None:
        self.ready = folder / "ready.json"
        self.ready.unlink(missing_ok=True)
        self.command = [sys.executable, "-m", "airflow_tds.local", "--data-dir", str(folder / "data")]
        self.command += ["--ready-file", str(self.ready), "--quiet", *options]

    def __enter__(self) -> Self:
        self.begin()
        self.wait()
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()

    def begin(self) -> None:
        """Start it; it may be a while until it answers."""
        self.ready.unlink(missing_ok=True)
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def wait(self) -> None:
        """Wait until it answers."""
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        deadline = time.monotonic() + _PATIENCE
        while not self.ready.exists():
            assert self.process.poll() is None, self.line
            assert time.monotonic() < deadline, "the service did not get ready"

    def kill(self) -> None:
        """End it with -9."""
        self.process.kill()
        self._gone()

    def stop(self) -> None:
        """Let it end as on SIGTERM."""
        self.process.terminate()
        self._gone()

    def _gone(self) -> None:
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    @property
    def told(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.ready.read_text())
        return document

    def caller(self) -> Caller:
        return Caller(self.told["url"], self.told["token"])
