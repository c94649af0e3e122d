"""How a write becomes a job: announced before its data, with it, or after it; and each request makes one job.

An idempotency key that is known gives the job that it made, whatever became of the table since. Which of the ways
a write takes is the wire map's; jobs and their durability are the store's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from airflow_tds.client.errors import Conflict, JobNotFound, ValidationFailed
from airflow_tds.local.records import Job, Kind
from airflow_tds.local.store import Store

__all__ = ["Intake"]


class Intake:
    """Takes writes in.

    Args:
        store: Where their jobs go.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def initiate(self, kind: Kind, table_id: str, spec: Mapping[str, Any], lifetime: float) -> Job:
        """Create a write's job that waits for its payload.

        Args:
            kind: Which write.
            table_id: The table.
            spec: What its job has to know.
            lifetime: Seconds for which the payload may be sent.

        Raises:
            TableNotFound: The table does not exist.
            Conflict: An upload to a table that has, or has ever had, data, §3.1; or the idempotency key was used for
                another request.
        """
        with self._store.changed:
            same = self.made(kind, table_id, spec)
            if same is not None:
                return same
            now, inert = self._store.clock(), spec.get("fault") != "applies_without_data"
            job = Job(0, uuid4().hex, kind, table_id, spec, "awaiting", 0, now, expires_at=now + lifetime)
            return self._store.create(job if inert else replace(job, status="queued", queued_at=now))

    def accept(self, kind: Kind, table_id: str, spec: Mapping[str, Any], data: tuple[Path, str, int]) -> Job:
        """Create a write's job together with its payload: a file on disk already, its digest and its length.

        Raises:
            TableNotFound: The table does not exist.
            Conflict: As for `initiate`, or the idempotency key came with other data.
        """
        part, sha256, size = data
        with self._store.changed:
            same = self.made(kind, table_id, spec)
            if same is not None:
                if same.payload_sha256 != sha256:
                    raise Conflict("the idempotency key was used with other data")
                return same
            job = self._queued(kind, table_id, spec)
            self._store.directory.settle(part, self._store.directory.payloads / job.job_id)
            return self._store.create(replace(job, payload_sha256=sha256, payload_bytes=size))

    def stage(self, table_id: str, spec: Mapping[str, Any], lifetime: float) -> Job:
        """Create an object that waits for its data, of a write that is committed afterwards.

        Args:
            table_id: The table; empty where that is said later.
            spec: What is known of the data.
            lifetime: Seconds for which it may be sent.

        Raises:
            TableNotFound: The table does not exist.
        """
        with self._store.changed:
            same = self._store.same("object", table_id, spec)
            if same is not None:
                return same
            if table_id:
                self._store.table(table_id)
            now, name = self._store.clock(), uuid4().hex
            return self._store.create(
                Job(0, name, "object", table_id, spec, "awaiting", 0, now, expires_at=now + lifetime)
            )

    def commit(self, kind: Kind, table_id: str, spec: Mapping[str, Any], name: str) -> Job:
        """Create the job of a write whose data is there already; an object is committed once.

        Raises:
            TableNotFound: The table does not exist.
            ValidationFailed: There is no such object, it is another table's, or its format is another.
            Conflict: As for `initiate`, or the object has no data, or was committed before.
        """
        with self._store.changed:
            same = self.made(kind, table_id, spec)
            if same is not None:
                return same
            staged, job = self._staged(name, table_id, spec["format"]), self._queued(kind, table_id, spec)
            job = replace(job, payload_sha256=staged.payload_sha256, payload_bytes=staged.payload_bytes)
            return self._store.use(staged, job)

    def made(self, kind: Kind, table_id: str, spec: Mapping[str, Any]) -> Job | None:
        """Give the job that the same request made before; refuse a new one that cannot be.

        Raises:
            TableNotFound: The table does not exist.
            Conflict: As for `initiate`.
        """
        same = self._store.same(kind, table_id, spec)
        if same is None and self._store.table(table_id).ingested and kind == "upload":
            raise Conflict(f"table {table_id!r} has, or has had, data: upload is the initial load only")
        return same

    def _queued(self, kind: Kind, table_id: str, spec: Mapping[str, Any]) -> Job:
        now = self._store.clock()
        return Job(0, uuid4().hex, kind, table_id, spec, "queued", 0, now, queued_at=now)

    def _staged(self, name: str, table_id: str, data_format: str) -> Job:
        """Look data up that has arrived, and is nobody's yet."""
        try:
            staged = self._store.job(name)
        except JobNotFound:
            staged = None
        if staged is None or staged.kind != "object" or staged.table_id not in ("", table_id):
            raise ValidationFailed(f"object: there is no data {name!r} for table {table_id!r}")
        if staged.spec["format"] not in (None, data_format):
            raise ValidationFailed(f"format: the data is {staged.spec['format']}, not {data_format}")
        if staged.status != "staged":
            why = "was committed before" if staged.status == "completed" else "has not arrived"
            raise Conflict(f"object: the data {name!r} {why}")
        return staged
