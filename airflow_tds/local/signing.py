"""Presigned URLs: an address that whoever holds it may use, for one purpose and until it expires.

The signature covers method, path, expiry, purpose and job, so a link to fetch cannot be used to send. The
expiry is judged when a request begins, as object stores do. The parameters' names are those of the object
stores' own links, which log filters know.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlencode

__all__ = ["LinkRefused", "Purpose", "Signer"]

Purpose = Literal["payload", "result"]


class LinkRefused(Exception):  # a "no", not a fault of the program
    """A link cannot be used.

    Args:
        code: The object stores' word for it: `AccessDenied` or `SignatureDoesNotMatch`.
        message: Why.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Signer:
    """Signs and checks links.

    Attributes:
        key: Secret; links stay valid as long as it does.
    """

    key: bytes

    def link(self, method: str, path: str, purpose: Purpose, job_id: str, expires_at: float) -> str:
        """Give a path with its signature.

        Args:
            method: The only method that it serves.
            path: As the request will name it.
            purpose: `payload` or `result`.
            job_id: The job.
            expires_at: POSIX seconds, rounded down.
        """
        expires = str(int(expires_at))
        signature = self._sign(method, path, expires, purpose, job_id)
        return f"{path}?{urlencode({'Expires': expires, 'Signature': signature})}"

    def check(
        self, method: str, path: str, purpose: Purpose, job_id: str, *, given: Mapping[str, str], now: float
    ) -> None:
        """Check a request.

        Args:
            method: As it came.
            path: As it came.
            purpose: What the endpoint serves.
            job_id: The job that the path names.
            given: The request's query parameters.
            now: POSIX seconds at which it began.

        Raises:
            LinkRefused: Forged, altered, meant for something else, or expired.
        """
        expires = given.get("Expires", "")
        expected = self._sign(method, path, expires, purpose, job_id)
        if not hmac.compare_digest(expected.encode(), given.get("Signature", "").encode()):
            raise LinkRefused("SignatureDoesNotMatch", "The request signature does not match.")
        if now >= int(expires):
            raise LinkRefused("AccessDenied", "Request has expired.")

    def _sign(self, *parts: str) -> str:
        text = "\n".join(("v1", *parts)).encode()
        return urlsafe_b64encode(hmac.digest(self.key, text, hashlib.sha256)).decode().rstrip("=")
