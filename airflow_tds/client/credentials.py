"""What lets a request in: bearer token, API key, name and password, OAuth2 client credentials, or your own.

Credentials are header fields for the service. They never reach an object store: runtime.py asks for them
only where a request goes to the service. Nothing is sent here and no clock is read: credentials that run
out say what to send to renew them, and are told what came back. §5 names no scheme, so all are assumed.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

from airflow_tds.client import errors
from airflow_tds.client.messages import Reply, Request, TokenUrl
from airflow_tds.client.payloads import body_of

__all__ = ["ApiKey", "Basic", "Bearer", "ClientCredentials", "Credentials", "Together"]

#: A token is renewed this many seconds before it ends; a short one only after nine tenths of its life.
RENEWED_BEFORE = 60.0
#: Seconds for a token to come.
TOKEN_TIMEOUT = 30.0


class Credentials:
    """Lets requests in; subclass it for a scheme of your own, and give it to the client.

    Only `fields` must be written. On the async face it is called in the event loop, so it must not wait.
    """

    def __repr__(self) -> str:
        return f"{type(self).__name__}(***)"

    def fields(self) -> Mapping[str, str]:
        """Give the header fields of a request to the service."""
        raise NotImplementedError

    def renewal(self, now: float) -> Request | None:
        """Say what to send first because the credentials are missing or have run out.

        Args:
            now: POSIX seconds.

        Returns:
            A request to a `TokenUrl`; None when they are good.
        """
        del now
        return None

    def renew(self, reply: Reply, now: float) -> None:
        """Take the answer to `renewal`.

        Args:
            reply: Any answer, also one that says no.
            now: POSIX seconds.

        Raises:
            TableServiceError: It holds no credentials.
        """

    def drop(self, used: Mapping[str, str]) -> bool:
        """Hear that a request was unauthorized.

        Args:
            used: The header fields that did not let it in.

        Returns:
            Whether it is worth trying once more, with fields that are asked for anew.
        """
        del used
        return False


class Bearer(Credentials):
    """A token.

    Args:
        token: Printable ASCII without blanks.

    Raises:
        ValidationFailed: It cannot stand in a header field.
    """

    def __init__(self, token: str) -> None:
        self._token = _word("token", token)

    def fields(self) -> Mapping[str, str]:
        """Give the header field."""
        return {"Authorization": f"Bearer {self._token}"}


class ApiKey(Credentials):
    """A key in a header field of its own.

    Args:
        key: Printable ASCII without blanks.
        header: The field's name.

    Raises:
        ValidationFailed: One of them cannot stand in a header.
    """

    def __init__(self, key: str, header: str = "X-API-Key") -> None:
        if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", header):
            raise errors.ValidationFailed(f"api_key_header {header!r} is no name of a header field")
        self._key = _word("API key", key)
        self._header = header

    def fields(self) -> Mapping[str, str]:
        """Give the header field."""
        return {self._header: self._key}


class Basic(Credentials):
    """A name and a password.

    Args:
        login: The name, without a colon.
        password: The password.

    Raises:
        ValidationFailed: The name holds a colon.
    """

    def __init__(self, login: str, password: str) -> None:
        if ":" in login:
            raise errors.ValidationFailed("the login holds a colon; basic authentication cannot carry it")
        self._pair = _pair(login, password)

    def fields(self) -> Mapping[str, str]:
        """Give the header field."""
        return {"Authorization": self._pair}


class ClientCredentials(Credentials):
    """A token from an OAuth2 server, by client credentials (RFC 6749 §4.4); kept until it ends or is refused.

    Args:
        token_url: Where tokens are given; https, unless the service itself is http.
        client_id: Who we are.
        client_secret: And the proof.
        scope: What is asked for, words divided by blanks; None for the server's default.
        in_body: True to send id and secret in the form, for a server that does not take them as a header field.
    """

    def __init__(
        self, token_url: str, client_id: str, client_secret: str, *, scope: str | None = None, in_body: bool = False
    ) -> None:
        self._url = token_url
        self._token = ""
        self._ends = 0.0
        form = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
        self._headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        if in_body:
            form |= {"client_id": client_id, "client_secret": client_secret}
        else:  # RFC 6749 §2.3.1: each is form-encoded before the two are joined
            self._headers["Authorization"] = _pair(quote_plus(client_id), quote_plus(client_secret))
        self._form = urlencode(form).encode()

    def fields(self) -> Mapping[str, str]:
        """Give the header field."""
        return {"Authorization": f"Bearer {self._token}"}

    def renewal(self, now: float) -> Request | None:
        """Ask for a token when there is none, or it is about to end."""
        if self._token and now < self._ends:
            return None
        return Request(
            "token",
            urlsplit(self._url).hostname or "no host",
            "POST",
            TokenUrl(self._url),
            "always",
            headers=self._headers,
            body=body_of(self._form),
            limit=TOKEN_TIMEOUT,
        )

    def renew(self, reply: Reply, now: float) -> None:
        """Take the token.

        Raises:
            Unauthorized: The server gives none, and why, in its own word.
            ServerError: The server failed or is too busy; nothing was sent to the service.
        """
        where = f"token, {urlsplit(self._url).hostname}: HTTP {reply.status}"
        document = _document(reply)
        if reply.status == 429 or reply.status >= 500:  # noqa: PLR2004  # 5xx
            busy = errors.ServerError(where, status=reply.status, request_id=reply.request_id)
            busy.outcome = "not_sent"
            raise busy
        token, kind = document.get("access_token"), str(document.get("token_type", "bearer")).lower()
        if reply.status != 200 or not isinstance(token, str) or kind != "bearer":  # noqa: PLR2004  # RFC 6749 §5.1
            why = re.sub(r"[^a-z_]", "", str(document.get("error", "")))[:40]
            raise errors.Unauthorized(f"{where}: {why or 'no bearer token'}", status=reply.status)
        self._token = _word("access token", token)
        self._ends = now + _lifetime(document.get("expires_in"))

    def drop(self, used: Mapping[str, str]) -> bool:
        """Give up a token that was refused; where another one has taken its place, that one is tried."""
        if used == self.fields():
            self._token = ""
        return True


class Together(Credentials):
    """Several credentials at once, each in header fields of its own.

    Args:
        *several: Such as `Bearer(...)` and `ApiKey(...)`.

    Raises:
        ValidationFailed: Two of them claim one header field.
    """

    def __init__(self, *several: Credentials) -> None:
        self._several = several
        names = [name.lower() for one in several for name in one.fields()]
        if len({*names}) < len(names):
            raise errors.ValidationFailed("two credentials claim one header field")

    def fields(self) -> Mapping[str, str]:
        """Give all header fields."""
        return {name: value for one in self._several for name, value in one.fields().items()}

    def renewal(self, now: float) -> Request | None:
        """Say what to send for the first that has run out."""
        return next((asked for one in self._several if (asked := one.renewal(now)) is not None), None)

    def renew(self, reply: Reply, now: float) -> None:
        """Give the answer to the one that asked."""
        next(one for one in self._several if one.renewal(now) is not None).renew(reply, now)

    def drop(self, used: Mapping[str, str]) -> bool:
        """Tell each which of its own fields did not let it in."""
        told = [one.drop({name: used[name] for name in one.fields() if name in used}) for one in self._several]
        return any(told)


def _word(name: str, text: str) -> str:
    if not re.fullmatch(r"[\x21-\x7e]+", text):
        raise errors.ValidationFailed(f"the {name} is empty, or holds a blank, a line end or a character beyond ASCII")
    return text


def _pair(name: str, password: str) -> str:
    return "Basic " + b64encode(f"{name}:{password}".encode()).decode()


def _document(reply: Reply) -> dict[str, Any]:
    try:
        found = json.loads(reply.content)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _lifetime(told: Any) -> float:
    """Seconds that a token is used: until shortly before its end; where that is not told, until it is refused."""
    try:
        seconds = float(told)
    except (TypeError, ValueError):
        return float("inf")
    return max(seconds - RENEWED_BEFORE, 0.9 * seconds)
