"""The service under examination: what the connection says of it, one runtime, operations by any wire map.

Checks ask for what they need; which checks there are, and what they make of an answer, is theirs.
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from urllib.parse import urlsplit

from airflow_tds.client.client import Operations
from airflow_tds.client.messages import Reply, Request
from airflow_tds.client.runtime import BlockingRuntime, finish
from airflow_tds.client.wire import Wire
from airflow_tds.settings import Settings

__all__ = ["Patient"]

T = TypeVar("T")


@dataclass(frozen=True)
class Patient:
    """The service under examination.

    Attributes:
        settings: What the connection says.
        runtime: The outside world.
        wire: The connection's wire map.
        patience: Seconds that each wait may take.
    """

    settings: Settings
    runtime: BlockingRuntime
    wire: Wire
    patience: float

    @classmethod
    def of(cls, settings: Settings, patience: float) -> Patient:
        """Open what a connection says; close it in the end.

        Raises:
            ValidationFailed: A setting is none.
        """
        return cls(settings, BlockingRuntime(settings.access()), settings.wire(), patience)

    def close(self) -> None:
        """Close the connections."""
        self.runtime.close()

    def operations(self, wire: Wire | None = None) -> Operations:
        """Give every operation, by the connection's wire map or by another one."""
        return Operations(self.runtime, wire or self.wire, timeouts=self.settings.timeouts())

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Do an operation."""
        return finish(work)

    def send(self, request: Request) -> Reply:
        """Send a request as it is."""
        return finish(self.runtime.send(request))

    def pause(self, seconds: float) -> None:
        """Wait."""
        finish(self.runtime.pause(seconds))

    def now(self) -> float:
        """Give the time, POSIX seconds."""
        return self.runtime.now()

    def beside(self, *, base_url: str | None = None, anonymous: bool = False) -> Patient:
        """Open the same service at another address of its host, or without credentials; close it too."""
        access = self.settings.access()
        access = replace(
            access, base_url=base_url or access.base_url, credentials=None if anonymous else access.credentials
        )
        return replace(self, runtime=BlockingRuntime(access))

    @property
    def origin(self) -> str:
        """The address without its base path."""
        parts = urlsplit(self.settings.base_url)
        return f"{parts.scheme}://{parts.netloc}"

    def send_checked(self, wire: Wire, request: Request) -> Reply:
        """Send a request as it is, once, and raise what its reply means."""
        reply = self.send(request)
        error = wire.error(request, reply)
        if error is not None:
            raise error
        return reply
