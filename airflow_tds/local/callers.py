"""Who calls, §5: a token and its rights, shown by the one scheme that the service is started with.

The interface names no scheme, so each that the client has is served: a bearer token, a key in a header, name
and password, and OAuth2 client credentials with a token endpoint. The secret is the same token in all of them.
Access tokens live in memory: after a restart they are asked for again. How long a refusal takes tells nothing
about the tokens that there are.
"""

from __future__ import annotations

import hmac
import secrets
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args
from urllib.parse import parse_qs, unquote_plus

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from airflow_tds.client.errors import Unauthorized, ValidationFailed
from airflow_tds.local.rights import Rights

__all__ = ["LOGIN", "TOKEN_PATH", "Callers", "Scheme", "Schemes"]

Schemes = Literal["bearer", "api_key", "basic", "oauth2"]
#: The name beside the token, for the schemes that have one.
LOGIN = "tds"
#: Where OAuth2 tokens are given, below the base path.
TOKEN_PATH = "/oauth/token"  # noqa: S105  # an address
_CHALLENGES: Mapping[Schemes, str] = {
    "bearer": "Bearer",
    "api_key": "ApiKey",
    "basic": 'Basic realm="tds"',
    "oauth2": "Bearer",
}


@dataclass(frozen=True)
class Scheme:
    """How callers show their token.

    Attributes:
        kind: `bearer`, `api_key`, `basic` (the login is `tds`) or `oauth2` (the client id is `tds`).
        header: The header field of an API key.
        lifetime: Seconds for which an OAuth2 access token is good.
    """

    kind: Schemes = "bearer"
    header: str = "X-API-Key"
    lifetime: float = 3600.0

    def __post_init__(self) -> None:
        if self.kind not in get_args(Schemes):
            raise ValidationFailed(f"auth: {self.kind!r} is none of {', '.join(get_args(Schemes))}")

    @property
    def challenge(self) -> dict[str, str]:
        """The header field of a refusal that names the scheme."""
        return {"WWW-Authenticate": _CHALLENGES[self.kind]}


class Callers:
    """Knows callers by what they show.

    Args:
        tokens: The tokens, and their rights.
        scheme: How they are shown.
        clock: POSIX seconds.
    """

    def __init__(self, tokens: Mapping[str, Rights], scheme: Scheme, clock: Callable[[], float]) -> None:
        self._tokens = tokens
        self._scheme = scheme
        self._clock = clock
        self._access: dict[str, tuple[Rights, float]] = {}

    def rights(self, headers: Headers) -> Rights:
        """Give the rights of who sent a request to the interface.

        Raises:
            Unauthorized: It shows no token that there is, or not by the scheme.
        """
        if self._scheme.kind == "api_key":
            return self._of(headers.get(self._scheme.header, ""))
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() != ("basic" if self._scheme.kind == "basic" else "bearer"):
            raise self._refusal()
        if self._scheme.kind == "basic":
            return self._of(self._secret(given))
        return self._of_access(given) if self._scheme.kind == "oauth2" else self._of(given)

    def admin(self, headers: Headers) -> Rights:
        """Give the rights of who sent a request to the service's own routes: always a bearer token, or the scheme's.

        Raises:
            Unauthorized: It shows no token that there is.
        """
        kind, _, given = headers.get("authorization", "").partition(" ")
        try:
            return self._of(given if kind == "Bearer" else "")
        except Unauthorized:
            return self.rights(headers)

    async def give_token(self, request: Request) -> Response:
        """Give an access token for client credentials, RFC 6749 §4.4."""
        form = {name: values[0] for name, values in parse_qs((await request.body()).decode("latin-1")).items()}
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        shown = self._secret(given, encoded=True) if kind.lower() == "basic" else ""
        if not shown and form.get("client_id") == LOGIN:
            shown = form.get("client_secret", "")
        try:
            rights = self._of(shown)
        except Unauthorized:
            challenge = {"WWW-Authenticate": _CHALLENGES["basic"]}
            return JSONResponse({"error": "invalid_client"}, 401, challenge)
        if form.get("grant_type") != "client_credentials":
            return JSONResponse({"error": "unsupported_grant_type"}, 400)
        now, token = self._clock(), secrets.token_urlsafe(32)
        self._access = {token: kept for token, kept in self._access.items() if kept[1] > now}
        self._access[token] = (rights, now + self._scheme.lifetime)
        answer = {"access_token": token, "token_type": "Bearer", "expires_in": self._scheme.lifetime}
        return JSONResponse(answer, headers={"Cache-Control": "no-store"})

    def _of(self, given: str) -> Rights:
        found = [
            rights for token, rights in self._tokens.items() if hmac.compare_digest(given.encode(), token.encode())
        ]
        if not found:
            raise self._refusal()
        return found[0]

    def _of_access(self, given: str) -> Rights:
        found = [
            rights
            for token, (rights, until) in self._access.items()
            if hmac.compare_digest(given.encode(), token.encode()) and until > self._clock()
        ]
        if not found:
            raise self._refusal()
        return found[0]

    def _secret(self, given: str, *, encoded: bool = False) -> str:
        """Read the password beside the login; form-encoded where RFC 6749 §2.3.1 has it so."""
        try:
            login, _, password = b64decode(given, validate=True).decode().partition(":")
        except ValueError:
            return ""
        if encoded:
            login, password = unquote_plus(login), unquote_plus(password)
        return password if login == LOGIN else ""

    def _refusal(self) -> Unauthorized:
        return Unauthorized(f"valid credentials are needed, by the scheme {self._scheme.kind}")
