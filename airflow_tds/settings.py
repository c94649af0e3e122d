"""A connection's fields become settings: where the service is, what lets us in, how patient we are.

`settings_of` is the only reader of connection fields, and pure; Airflow is not imported, so that a command may make
settings without it. Every key of `extra` stands here once: provider_info.py's form and docs/connection.md follow.
"""

from __future__ import annotations

import hashlib
import json
import logging
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote, quote_plus, urlsplit

from airflow_tds.client.errors import ValidationFailed

if TYPE_CHECKING:
    from airflow_tds.client.access import Access, Timeouts
    from airflow_tds.client.client import AsyncTableClient, TableClient
    from airflow_tds.client.credentials import Credentials
    from airflow_tds.client.wire import Wire
    from airflow_tds.durability import Policy

__all__ = ["CONFIGURABLE", "EXTRA", "Fields", "Settings", "settings_of"]

log = logging.getLogger(__name__)

#: What `extra` may hold; docs/connection.md describes each.
EXTRA = (
    "api_key_header",
    "auth",
    "base_path",
    "ca_bundle",
    "client_certificate",
    "client_key",
    "client_key_password",
    "connect_timeout",
    "credential_headers",
    "download_timeout",
    "failed_jobs_are_atomic",
    "insecure_tls",
    "lease_margin",
    "minimum_rate",
    "only_finished_jobs_vanish",
    "poll_interval",
    "poll_transport",
    "proxy",
    "read_timeout",
    "scope",
    "storage_ca_bundle",
    "storage_hosts",
    "storage_proxy",
    "store",
    "timeout",
    "token_url",
    "transfer_timeout",
    "wire",
)
#: The timeouts that a connection may set, and their names in the client.
TIMEOUTS = {
    "connect_timeout": "connect",
    "read_timeout": "read",
    "transfer_timeout": "transfer",
    "download_timeout": "download",
    "minimum_rate": "minimum_rate",
}
#: What waits, and says so: seconds, unless a task says otherwise.
WAITS = ("poll_interval", "timeout")
#: What the section [tds] of airflow.cfg may set for all connections that do not.
CONFIGURABLE = (*TIMEOUTS, *WAITS, "lease_margin", "poll_transport", "store")
#: The extras that are text and nothing else; the others are checked where they are read.
TEXTS = frozenset(EXTRA) - {
    *TIMEOUTS,
    *WAITS,
    "credential_headers",
    "failed_jobs_are_atomic",
    "insecure_tls",
    "lease_margin",
    "only_finished_jobs_vanish",
    "wire",
}


class Fields(Protocol):
    """The fields of a connection, as Airflow's own has them."""

    conn_id: Any
    schema: Any
    host: Any
    port: Any
    login: Any
    password: Any


class Settings:
    """What a connection says, checked.

    Args:
        base_url: Scheme, host, port and base path.
        secret: Token, key, password or client secret; None for no credentials.
        extra: The known keys of the connection's extra, without null.
        login: Name or client id; None for none.

    Attributes:
        learned: Told each secret that comes up on the way, so that logs hide it; None for nobody.
    """

    def __init__(self, base_url: str, secret: str | None, extra: Mapping[str, Any], login: str | None = None) -> None:
        self.learned: Callable[[str], None] | None = None
        self.base_url = base_url
        self._secret = secret
        self._login = login
        self._extra = dict(extra)

    def __repr__(self) -> str:
        return f"Settings({self.base_url!r})"

    @property
    def fingerprint(self) -> str:
        """A hash of all values: two connections that say the same share a poller."""
        values = json.dumps([self.base_url, self._login, self._secret, self._extra], sort_keys=True, default=str)
        return hashlib.sha256(values.encode()).hexdigest()

    @property
    def transfer_timeout(self) -> float:
        """Seconds that one upload may take at most."""
        return self.timeouts().transfer

    @property
    def poll_transport(self) -> str:
        """What the triggerer's reads go over: `auto`, `httpx` or `aiohttp`."""
        wish = str(self._extra.get("poll_transport", "auto"))
        if wish not in ("auto", "httpx", "aiohttp"):
            raise ValidationFailed(f"connection extra 'poll_transport' is auto, httpx or aiohttp, not {wish!r}")
        return wish

    @property
    def poll_interval(self) -> float | None:
        """Seconds between two looks of a wait at most; None where nothing is said."""
        return _number(self._extra, "poll_interval") if "poll_interval" in self._extra else None

    @property
    def timeout(self) -> float | None:
        """Seconds after which a wait ends; None where nothing is said."""
        return _number(self._extra, "timeout") if "timeout" in self._extra else None

    @property
    def store(self) -> str | None:
        """Where the record of a write is kept; None where nothing is said."""
        found = self._extra.get("store")
        return None if found is None else str(found)

    def timeouts(self) -> Timeouts:
        """Say how patient the client is."""
        from airflow_tds.client.access import Timeouts

        set_ones = {own: _number(self._extra, name) for name, own in TIMEOUTS.items() if name in self._extra}
        return Timeouts(**set_ones)

    def credentials(self) -> Credentials | None:
        """Make what lets us in; which kind follows from what is set, unless `auth` names it."""
        from airflow_tds.client.credentials import ApiKey, Together

        own, more = self._own_credentials(), [ApiKey(key, name) for name, key in self._credential_headers().items()]
        return Together(*([own] if own else []), *more) if more else own

    def _credential_headers(self) -> dict[str, str]:
        """Read the secrets that go in header fields of their own."""
        said = self._extra.get("credential_headers") or {}
        try:
            found = json.loads(said) if isinstance(said, str) else said
        except ValueError:
            found = None
        if not isinstance(found, Mapping) or not all(isinstance(value, str | int) for value in found.values()):
            raise ValidationFailed("connection extra 'credential_headers' is a mapping of header names to secrets")
        return {str(name): str(value) for name, value in found.items()}

    def _own_credentials(self) -> Credentials | None:
        from airflow_tds.client import credentials as kinds

        if self._secret is None:
            return None
        kind = self._kind()
        if kind == "bearer":
            return kinds.Bearer(self._secret)
        if kind == "api_key":
            return kinds.ApiKey(self._secret, *[str(self._extra[k]) for k in ("api_key_header",) if k in self._extra])
        if kind == "basic":
            return kinds.Basic(self._login or "", self._secret)
        if kind == "oauth2" and "token_url" in self._extra and self._login:
            scope = self._extra.get("scope")
            return kinds.ClientCredentials(str(self._extra["token_url"]), self._login, self._secret, scope=scope)
        if kind == "oauth2":
            raise ValidationFailed("connection: 'oauth2' needs the extra token_url, login (client id) and password")
        raise ValidationFailed(f"connection extra 'auth' is bearer, api_key, basic or oauth2, not {kind!r}")

    def _kind(self) -> str:
        """Say which kind of credentials it is: the one that is named, else the one that the fields belong to."""
        if "auth" in self._extra:
            return str(self._extra["auth"])
        if "token_url" in self._extra:
            return "oauth2"
        if "api_key_header" in self._extra:
            return "api_key"
        return "basic" if self._login else "bearer"

    def wire(self) -> Wire:
        """Make the wire map."""
        from airflow_tds.client.wire import Wire

        return Wire.from_setting(self.wire_setting())

    def wire_setting(self) -> dict[str, Any]:
        """Give the overrides of the wire map, a profile's name among them."""
        value = self._extra.get("wire") or {}
        try:
            overrides = json.loads(value) if isinstance(value, str) else value
        except ValueError:
            overrides = {"profile": value}
        if isinstance(overrides, str):
            overrides = {"profile": overrides}
        if not isinstance(overrides, Mapping):
            raise ValidationFailed("connection extra 'wire' is a mapping of overrides, or the same as JSON")
        return dict(overrides)

    def secrets(self) -> frozenset[str]:
        """Give every form in which a secret of the connection can show up in a text.

        As it is, quoted as in a URL, in base64, as a name and password pair; and passwords of proxies.
        """
        proxies = [urlsplit(str(self._extra[name])) for name in ("proxy", "storage_proxy") if name in self._extra]
        own = [self._secret, self._extra.get("client_key_password"), *(each.password for each in proxies)]
        own += self._credential_headers().values()
        logins = {self._login or "", *(each.username or "" for each in proxies)}
        return frozenset(form for secret in own if secret for form in _forms(str(secret), logins))

    def access(self) -> Access:
        """Make the address, the credentials and what else it takes to reach the service."""
        from airflow_tds.client.access import Access

        return Access(self.base_url, **self._reach())

    def _reach(self) -> dict[str, Any]:
        from airflow_tds.client.access import Tls

        extra = self._extra
        insecure = _flag("insecure_tls", extra.get("insecure_tls", False))
        own = {name: extra.get(name) for name in ("client_certificate", "client_key", "client_key_password")}
        bundle = extra.get("ca_bundle")
        hosts = extra.get("storage_hosts", ())
        return {
            "credentials": self.credentials(),
            "tls": Tls(bundle, insecure=insecure, **own),
            "storage_tls": Tls(extra.get("storage_ca_bundle", bundle), insecure=insecure),
            "proxy": extra.get("proxy"),
            "storage_proxy": extra.get("storage_proxy"),
            "storage_hosts": tuple(hosts.replace(",", " ").split() if isinstance(hosts, str) else hosts),
            "timeouts": self.timeouts(),
            "learned": self.learned,
        }

    def policy(self) -> Policy:
        """Say what the connection tells of the service's writes."""
        from airflow_tds.durability import LEASE_MARGIN, Policy

        said = self._extra.get("failed_jobs_are_atomic")
        atomic = None if said is None else _flag("failed_jobs_are_atomic", said)
        margin = _number(self._extra, "lease_margin") if "lease_margin" in self._extra else LEASE_MARGIN
        vanish = _flag("only_finished_jobs_vanish", self._extra.get("only_finished_jobs_vanish", False))
        return Policy(atomic, margin, only_finished_jobs_vanish=vanish)

    def client(self) -> TableClient:
        """Make a client for a thread."""
        from airflow_tds.client.client import TableClient

        return TableClient(self.base_url, wire=self.wire(), **self._reach())

    def async_client(self) -> AsyncTableClient:
        """Make a client for a coroutine."""
        from airflow_tds.client.client import AsyncTableClient

        return AsyncTableClient(self.base_url, wire=self.wire(), **self._reach())

    def who(self) -> str:
        """Say as whom we ask, without the secret."""
        if self._secret is None:
            headers = ", ".join(self._credential_headers())
            return f"whoever has the {headers}" if headers else "nobody: there are no credentials"
        return self._login or f"whoever has the {'API key' if self._kind() == 'api_key' else 'token'}"


def settings_of(conn: Fields, extra: Mapping[str, Any], defaults: Mapping[str, str] | None = None) -> Settings:
    """Read a connection.

    Args:
        conn: The connection: `schema` http or https (empty: https), `host`, `port`, `login`, `password`.
            An address pasted into `host`, such as `https://host:8443/api/v1`, is split.
        extra: Its extra, as a mapping; unknown keys are warned about, null is unset.
        defaults: What holds where the extra says nothing; names of `CONFIGURABLE`.

    Returns:
        The settings.

    Raises:
        ValidationFailed: A field is missing, contradicts another, or has a wrong form; the text says which.
    """
    given = {name: value for name, value in extra.items() if value is not None and value != ""}
    for name in sorted(set(given) - set(EXTRA)):
        log.warning(
            "connection %s: extra %r is not known and is ignored; known: %s", conn.conn_id, name, ", ".join(EXTRA)
        )
    known = {**(defaults or {}), **{name: value for name, value in given.items() if name in EXTRA}}
    for name in TEXTS & known.keys():
        _check_text(name, known[name])
    for name in known.keys() & set(WAITS):
        _number(known, name)
    return Settings(_base_url(conn, str(known.get("base_path", ""))), conn.password or None, known, conn.login or None)


def _base_url(conn: Fields, base_path: str) -> str:
    """Put the address together; what is pasted into host fills the other fields, and must not contradict them."""
    host = (conn.host or "").strip()
    if not host:
        raise ValidationFailed(f"connection {conn.conn_id}: host is empty")
    fields = {"schema": conn.schema or "", "port": conn.port or "", "base_path": base_path.strip("/")}
    if "://" in host:
        pasted = urlsplit(host)
        host = pasted.hostname or ""
        for name, value in (("schema", pasted.scheme), ("port", pasted.port), ("base_path", pasted.path.strip("/"))):
            if value and fields[name] and fields[name] != value:
                raise ValidationFailed(
                    f"connection {conn.conn_id}: host says {name} {value!r}, the field {fields[name]!r}"
                )
            fields[name] = fields[name] or value or ""
    if fields["schema"] not in ("", "http", "https"):
        raise ValidationFailed(f"connection {conn.conn_id}: schema is http or https, not {fields['schema']!r}")
    if not host or any(c in host for c in "/?#@ "):
        raise ValidationFailed(f"connection {conn.conn_id}: host {host!r} is no host name")
    at = f"[{host}]" if ":" in host else host
    port = f":{fields['port']}" if fields["port"] else ""
    path = f"/{fields['base_path']}" if fields["base_path"] else ""
    return f"{fields['schema'] or 'https'}://{at}{port}{path}"


def _check_text(name: str, value: Any) -> None:
    """Refuse what is no text; the value may be a secret and is not shown."""
    texts = value if name == "storage_hosts" and isinstance(value, list) else [value]
    if not all(isinstance(text, str) and text.isprintable() for text in texts):
        kind = "text, or a list of texts" if name == "storage_hosts" else "text"
        raise ValidationFailed(f"connection extra {name!r} is {kind} in one line, not {type(value).__name__}")


def _forms(secret: str, logins: Iterable[str]) -> Iterator[str]:
    """Write a secret in every form that it travels in."""
    yield from (secret, quote(secret, safe=""), quote(secret), quote_plus(secret), json.dumps(secret)[1:-1])
    pairs = [f"{login}:{secret}" for login in logins]
    pairs += [f"{quote_plus(login)}:{quote_plus(secret)}" for login in logins]
    for text in (secret, *pairs):
        for encoded in (b64encode(text.encode()), urlsafe_b64encode(text.encode())):
            yield encoded.decode().rstrip("=")  # the padding hides nothing


def _number(extra: Mapping[str, Any], name: str) -> float:
    try:
        value = float(extra[name])
    except (TypeError, ValueError):
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ValidationFailed(
            f"connection extra {name!r} is a number of seconds, not {extra[name]!r} (it may stand in [tds])"
        )
    return value


def _flag(name: str, value: Any) -> bool:
    known = {"true": True, "false": False, "1": True, "0": False}
    found = known.get(str(value).lower())
    if found is None:
        raise ValidationFailed(f"connection extra {name!r} is true or false, not {value!r}")
    return found
