"""The operators that read: queries whose result is kept as a file."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from airflow_tds.client import errors
from airflow_tds.compat import Context
from airflow_tds.operators.base import TdsOperator

if TYPE_CHECKING:
    from airflow_tds.client.client import TableClient
    from airflow_tds.client.waiting import Watch
    from airflow_tds.durability import RecordStore
    from airflow_tds.settings import Settings

__all__ = ["TdsCrossQueryOperator"]

#: A download gets this long at least, seconds, however late its wait ended.
LEAST_DOWNLOAD = 2.0


class TdsCrossQueryOperator(TdsOperator):
    """Query one or several tables and keep the result as a file, §2.5.

    The file appears whole or not at all: it is written under a temporary name beside its own and renamed.
    A retry goes on with the query that an earlier try started; a clear starts another.

    Args:
        request: A `CrossQueryRequest` as a plain mapping (templated).
        destination: Path of the local file to write (templated); its directory must exist.
        if_exists: What to do about a file that is there: `fail`, `replace` or `skip` the query.
        kwargs: `tds_conn_id`, `deferrable`, `timeout`, `poll_interval`, `durable`, `store`, and Airflow's own.

    Returns:
        `{"uri", "size", "format", "job_id"}`: path, bytes, format and job; `job_id` is empty if skipped.

    Raises:
        ValidationFailed: The request breaks a rule of §2.5, or the file is there and `if_exists` is `fail`.
        JobFailed: The query failed.
        WaitTimedOut: The query goes on after the timeout.
    """

    template_fields: Sequence[str] = ("tds_conn_id", "store", "request", "destination")
    template_fields_renderers: ClassVar[dict[str, str]] = {"request": "json"}

    def __init__(
        self,
        *,
        request: Mapping[str, Any],
        destination: str | os.PathLike[str],
        if_exists: Literal["fail", "replace", "skip"] = "fail",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.request = request
        self.destination = destination
        self.if_exists = if_exists

    def _work(
        self, context: Context, settings: Settings, client: TableClient, store: RecordStore, watch: Watch
    ) -> dict[str, Any]:
        from airflow_tds.durability import QueryOnce, digest

        self._check_input()
        identity = digest(settings.base_url, "query", json.dumps(self.request, sort_keys=True, default=str))
        query = QueryOnce(client, store, self._generation(context), self.log, request=self.request, identity=identity)
        if not query.is_begun() and self._is_settled_by_existing():
            return self._reference("")
        done = self._finish(context, client, store, watch, query)
        if not query.is_finished() or not Path(self.destination).exists():
            self._download(client, done.job_id, watch)
            query.finish()
        return self._reference(done.job_id)

    def _check_input(self) -> None:
        if not isinstance(self.request, Mapping):
            raise errors.ValidationFailed(f"request is a mapping as in §2.5, not a {type(self.request).__name__}")
        if self.if_exists not in ("fail", "replace", "skip"):
            raise errors.ValidationFailed(f"if_exists is fail, replace or skip, not {self.if_exists!r}")
        if not Path(self.destination).parent.is_dir():
            raise errors.ValidationFailed(
                f"destination {str(self.destination)!r} is not in a local directory that exists"
            )

    def _is_settled_by_existing(self) -> bool:
        """Look at the file that is there: True ends the task, an error refuses."""
        if not Path(self.destination).exists() or self.if_exists == "replace":
            return False
        if self.if_exists == "fail":
            raise errors.ValidationFailed(f"{self.destination} is there; if_exists='replace' or 'skip' allows that")
        self.log.info("%s is there: skipped", self.destination)
        return True

    def _download(self, client: TableClient, job_id: str, watch: Watch) -> None:
        """Stream the result to a temporary name in the same directory, force it to disk, rename it."""
        target = Path(self.destination)
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
        try:
            left = max(LEAST_DOWNLOAD, watch.deadline - time.time())
            client.poll_download_to(job_id, name, timeout=left, poll_interval=watch.poll_interval)
            os.fsync(handle)
            Path(name).chmod(0o666 & ~_umask())
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        finally:
            os.close(handle)

    def _reference(self, job_id: str) -> dict[str, Any]:
        size = Path(self.destination).stat().st_size
        return {
            "uri": str(self.destination),
            "size": size,
            "format": self.request.get("format", "parquet"),
            "job_id": job_id,
        }


def _umask() -> int:
    """The process's umask, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
