"""A real S3-compatible object store in place of the service's own: presigned by boto3, watched for what arrives.

Payloads are PUT to the bucket, and results fetched from it, by addresses that the store itself checks. The service
notices a payload by looking, so a job is queued up to a moment later. Needs the extra `s3`; boto3 is imported when
a bucket is used, and nowhere else.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit
from uuid import uuid4

import duckdb

from airflow_tds.client.errors import Conflict, JobNotFound, ValidationFailed
from airflow_tds.local.records import Job
from airflow_tds.local.storage import MEDIA_TYPES
from airflow_tds.local.store import Store

__all__ = ["Bucket", "S3Storage"]

log = logging.getLogger(__name__)

_CHUNK = 1 << 20
#: Seconds between two looks for payloads that are awaited.
_BETWEEN_LOOKS = 0.2
#: Seconds after an error before the next look.
_AFTER_FAILURE = 2.0
#: S3 takes no address that lives longer.
_LONGEST_LIFETIME = 7 * 86_400


@dataclass(frozen=True)
class Bucket:
    """Where payloads and results lie. Credentials are boto3's own affair: environment, profile, role.

    Attributes:
        name: The bucket; it must exist.
        prefix: What stands before every key, without a slash at its end; empty for nothing.
        endpoint: The address of an S3-compatible store; None for AWS.
        region: Its region; None for boto3's own.
    """

    name: str
    prefix: str = ""
    endpoint: str | None = None
    region: str | None = None

    @classmethod
    def of(cls, url: str, endpoint: str | None = None) -> Self:
        """Read `s3://bucket/prefix`.

        Raises:
            ValidationFailed: It is none.
        """
        parts = urlsplit(url)
        if parts.scheme != "s3" or not parts.netloc:
            raise ValidationFailed(f"a bucket is written s3://BUCKET or s3://BUCKET/PREFIX, not {url!r}")
        return cls(parts.netloc, parts.path.strip("/"), endpoint)

    def client(self) -> Any:
        """Connect.

        Raises:
            ValidationFailed: boto3 is not installed.
        """
        try:
            import boto3
            from botocore.config import Config
        except ImportError:
            raise ValidationFailed('a bucket needs boto3: pip install "airflow-tds[local,s3]"') from None
        config = Config(
            signature_version="s3v4",
            s3={"addressing_style": "path" if self.endpoint else "auto"},
            request_checksum_calculation="when_required",  # else an address would demand a checksum of its callers
        )
        return boto3.client("s3", endpoint_url=self.endpoint, region_name=self.region or "us-east-1", config=config)


class S3Storage:
    """Serves addresses of a bucket, as a context manager that watches it.

    Args:
        store: Whose payloads and results they are.
        bucket: The bucket.

    Raises:
        ValidationFailed: boto3 is missing, or the bucket cannot be reached.
    """

    def __init__(self, store: Store, bucket: Bucket) -> None:
        self._store = store
        self._bucket = bucket
        self._client = bucket.client()
        self._failures = _failures()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        try:
            self._client.head_bucket(Bucket=bucket.name)
        except self._failures as failure:
            raise ValidationFailed(f"the bucket {bucket.name!r} cannot be used: {failure}") from None

    def __enter__(self) -> Self:
        """Begin to watch."""
        self._store.outside = self
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """Stop watching; what arrives meanwhile is noticed at the next start."""
        self._stopping.set()
        self._thread.join()

    def upload_link(self, job: Job) -> str:
        """Give the address to which a job's payload is PUT."""
        return self._signed("put_object", f"payloads/{job.job_id}", (job.expires_at or 0.0) - self._store.clock())

    def result_link(self, job: Job, lifetime: float) -> str:
        """Give the address from which a query's result is fetched."""
        kept = self._store.result_expires(job) - self._store.clock()
        return self._signed("get_object", f"results/{job.job_id}", min(lifetime, kept))

    def publish(self, job: Job, path: Path) -> None:
        """Put a query's result where its address will lead."""
        extra = {"ContentType": MEDIA_TYPES[job.spec["format"]]}
        self._client.upload_file(str(path), self._bucket.name, self._key(f"results/{job.job_id}"), ExtraArgs=extra)

    def remove(self, job_id: str) -> None:
        """Remove a query's result."""
        self._client.delete_object(Bucket=self._bucket.name, Key=self._key(f"results/{job_id}"))

    def _key(self, name: str) -> str:
        return f"{self._bucket.prefix}/{name}" if self._bucket.prefix else name

    def _signed(self, operation: str, name: str, lifetime: float) -> str:
        address: str = self._client.generate_presigned_url(
            operation,
            Params={"Bucket": self._bucket.name, "Key": self._key(name)},
            ExpiresIn=max(1, min(int(lifetime), _LONGEST_LIFETIME)),
        )
        return address

    def _watch(self) -> None:
        while not self._stopping.is_set():
            wait = _BETWEEN_LOOKS
            for job in self._store.awaited():
                try:
                    self._look(job)
                except self._failures as failure:  # the store, or our disk, is away for a while
                    log.warning("the bucket cannot be read: %s", failure)
                    wait = _AFTER_FAILURE
                    break
            self._stopping.wait(wait)

    def _look(self, job: Job) -> None:
        """Take a payload that has arrived."""
        place = {"Bucket": self._bucket.name, "Key": self._key(f"payloads/{job.job_id}")}
        try:
            found = self._client.get_object(**place)
        except self._client.exceptions.NoSuchKey:
            return
        part = self._store.directory.payloads / f"{uuid4().hex}.part"
        try:
            sha256, size = _saved(found, part)
            self._store.received(job.job_id, part, sha256, size)
        except (Conflict, JobNotFound):
            log.info("job %s no longer waits for the data that came", job.job_id)
        finally:
            part.unlink(missing_ok=True)
        self._client.delete_object(**place)


def _failures() -> tuple[type[Exception], ...]:
    from botocore.exceptions import BotoCoreError, ClientError

    return BotoCoreError, ClientError, OSError, duckdb.Error


def _saved(found: Mapping[str, Any], part: Path) -> tuple[str, int]:
    """Write an object to disk, and force it there; give its digest and length."""
    digest, size = hashlib.sha256(), 0
    with part.open("wb") as file:
        for chunk in found["Body"].iter_chunks(_CHUNK):
            digest.update(chunk)
            file.write(chunk)
            size += len(chunk)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest(), size
