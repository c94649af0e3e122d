"""Where the service is, whom we trust, and how patient we are: settings as values, and the rules for addresses.

No HTTP and no look-up of names here: runtime.py does both and asks these rules. Credentials are
credentials.py's.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import socket
import ssl
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from urllib.parse import urlsplit

import certifi  # comes with httpx

from airflow_tds.client import errors
from airflow_tds.client.credentials import Credentials
from airflow_tds.client.messages import Request, TokenUrl

__all__ = ["NO_PROXY", "Access", "Timeouts", "Tls"]

log = logging.getLogger(__name__)

#: As a proxy: none, whatever the environment says.
NO_PROXY = "none"
#: Presigned URLs of the stores in use have up to 4 kB (a session token in the query); servers end at 8 kB.
LONGEST_URL = 8192
#: An IPv4 address behind a translator that stands in the last 32 bits, RFC 6052.
_TRANSLATED = IPv6Network("64:ff9b::/96")


@dataclass(frozen=True)
class Timeouts:
    """How patient we are, seconds and bytes per second.

    Attributes:
        connect: Seconds for a connection to be made: quickly or not at all.
        read: Seconds without a byte of an answer.
        write: Seconds in which not a byte of a request leaves.
        commit: Seconds that a store may take to answer once it has the last byte of an upload.
        transfer: Seconds that one upload may take at most; part of the lease of a durable write.
        download: Seconds that fetching one result may take at most, all its tries together.
        minimum_rate: Bytes per second that a transfer must make on average over half a minute; 0 for any.
    """

    connect: float = 10.0
    read: float = 60.0
    write: float = 60.0
    commit: float = 300.0
    transfer: float = 900.0
    download: float = 7200.0
    minimum_rate: float = 1024.0

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if not (math.isfinite(value) and value >= 0) or (value == 0 and one.name != "minimum_rate"):
                raise errors.ValidationFailed(f"timeouts: {one.name} is a number above zero, not {value!r}")


@dataclass(frozen=True)
class Tls:
    """Whom we trust, and how we prove who we are. TLS 1.2 is the least.

    Attributes:
        ca_bundle: Path of a file with the certificates to trust, and no others; None for those of the
            package certifi, or of the file that `SSL_CERT_FILE` names.
        client_certificate: Path of our certificate; it goes to the service only, never to an object store.
        client_key: Path of its key; None if it stands in the same file.
        client_key_password: The key's password; None if it has none.
        insecure: True to check no certificate at all: whoever is in between reads and changes everything.
    """

    ca_bundle: str | None = None
    client_certificate: str | None = None
    client_key: str | None = None
    client_key_password: str | None = field(default=None, repr=False)
    insecure: bool = False

    def context(self, of: str) -> ssl.SSLContext:
        """Build what checks the other side; costs about 20 ms, so build it once.

        Args:
            of: Whom it checks, for the warning of an insecure one.

        Raises:
            ValidationFailed: A file cannot be read; the text names the setting.
        """
        context = self._trusting()
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            log.warning("the certificate of %s is not checked: insecure_tls is set", of)
        if self.client_certificate:
            self._identify(context, self.client_certificate)
        return context

    def _trusting(self) -> ssl.SSLContext:
        trusted = self.ca_bundle or os.environ.get("SSL_CERT_FILE") or certifi.where()
        try:
            return ssl.create_default_context(cafile=trusted)
        except OSError as error:
            raise errors.ValidationFailed(f"ca_bundle {trusted!r}: {error}") from None

    def _identify(self, context: ssl.SSLContext, certificate: str) -> None:
        try:  # the empty password: without one, OpenSSL would ask the terminal
            context.load_cert_chain(certificate, self.client_key, self.client_key_password or "")
        except OSError as error:
            raise errors.ValidationFailed(f"client_certificate {certificate!r}: {error}") from None


@dataclass(frozen=True, repr=False)
class Access:
    """Where the service is, and all that it takes to talk to it and to its object store.

    Belongs to one thread or one event loop.

    Attributes:
        base_url: Scheme, host, port and base path, such as `https://host:8443/api/v1`.
        credentials: What lets us in; None for nothing. They go to the service only.
        tls: Whom we trust.
        storage_tls: Whom we trust as an object store; None for the same, without a client certificate.
        proxy: URL of a proxy to the service; None for the environment's, `none` for no proxy.
        storage_proxy: The same for the object store; None for the same as `proxy`.
        storage_hosts: Hosts that may be an object store, with their subdomains; empty for any.
        timeouts: How patient we are.
        renewing: Held while credentials are renewed, so that many requests at once renew them once.
        learned: Told each secret that comes up on the way, such as a token that was given or a presigned URL's
            signature, so that it can be kept out of logs; None for nobody. It must not wait.
    """

    base_url: str
    credentials: Credentials | None = None
    tls: Tls = Tls()
    storage_tls: Tls | None = None
    proxy: str | None = None
    storage_proxy: str | None = None
    storage_hosts: tuple[str, ...] = ()
    timeouts: Timeouts = Timeouts()
    renewing: asyncio.Lock = field(default_factory=asyncio.Lock, compare=False)
    learned: Callable[[str], None] | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        return f"Access({self.base_url!r}, credentials={self.credentials!r})"

    @property
    def host(self) -> str:
        """The service's host, in lower case."""
        return urlsplit(self.base_url).hostname or ""

    def check(self) -> None:
        """Refuse an address that is none.

        Raises:
            ValidationFailed: The base URL has no host, another scheme than http(s), credentials or a query;
                or a proxy is no address. The text shows neither credentials nor query.
        """
        if not _is_address(self.base_url) or "?" in self.base_url:
            shown = self.base_url.split("?")[0].rpartition("@")[2]
            raise errors.ValidationFailed(f"{shown!r} is no service address; write https://host[:port][/base/path]")
        for name in ("proxy", "storage_proxy"):
            proxy = getattr(self, name)
            if proxy not in (None, NO_PROXY) and not _is_address(proxy, credentials=True):
                raise errors.ValidationFailed(f"{name} is no address; write http://[user:password@]host:port, or none")

    def tell(self, secrets: Iterable[str]) -> None:
        """Pass on secrets that came up."""
        if self.learned is not None:
            for secret in secrets:
                self.learned(secret)

    def ssl_context(self) -> ssl.SSLContext:
        """Give what checks the service; built once, see `Tls.context`."""
        return self._context

    def storage_context(self) -> ssl.SSLContext:
        """Give what checks an object store; it never sees the certificate that we show the service."""
        own = self.storage_tls or replace(self.tls, client_certificate=None, client_key=None, client_key_password=None)
        # One for both where nothing tells them apart: reading certificates takes 20 ms. Not checking is said of each.
        return self._context if own == self.tls and not own.insecure else own.context("the object store")

    @cached_property
    def _context(self) -> ssl.SSLContext:
        return self.tls.context(self.host)

    def address(self, request: Request) -> str:
        """Give the whole URL of a request.

        Raises:
            UnexpectedReply: A presigned URL is no address, is not https although the service is, or names a
                host that no store may have.
            ValidationFailed: The token URL is no address, or not https although the service is.
        """
        if isinstance(request.target, str):
            return self.base_url.rstrip("/") + request.target
        schemes = ("http", "https") if urlsplit(self.base_url).scheme == "http" else ("https",)
        if isinstance(request.target, TokenUrl):
            if not _is_address(request.target.url, schemes):
                raise errors.ValidationFailed(f"token_url is no {' or '.join(schemes)} address")
            return request.target.url
        url = request.target.reveal()
        if len(url) > LONGEST_URL or not _is_address(url, schemes) or not self._may_store(urlsplit(url).hostname or ""):
            raise refused(request, "is refused")
        return url

    def _may_store(self, host: str) -> bool:
        return not self.storage_hosts or any(
            host == allowed or host.endswith(f".{allowed}") for allowed in map(str.lower, self.storage_hosts)
        )


def refused(request: Request, why: str) -> errors.UnexpectedReply:
    """Say that a presigned URL is not used; the text shows only its host."""
    return errors.UnexpectedReply(
        f"{request.operation}, {request.subject}: the presigned address {request.target} {why}"
    )


def _is_address(url: str, schemes: Sequence[str] = ("http", "https"), *, credentials: bool = False) -> bool:
    """Say whether text is a URL of one of these schemes, without fragment, and without credentials."""
    try:
        parts = urlsplit(url)
        port = parts.port  # raises beyond 65535; httpx would wrap it around
        (parts.hostname or "").encode("idna")  # as sockets do: a label has 1 to 63 characters
    except ValueError:
        return False
    plain = url.isascii() and url.isprintable() and not any(c in url for c in " \\#")
    return (
        plain
        and parts.scheme in schemes
        and bool(parts.hostname)
        and port != 0
        and (credentials or "@" not in parts.netloc)
    )


def literal(host: str) -> IPv4Address | IPv6Address | None:
    """Read a host that is an address in any of the forms that sockets take, such as `127.1` or `0x7f000001`.

    Returns:
        The address; None when the host is a name.
    """
    try:
        return peer(host)
    except ValueError:
        pass
    try:
        return IPv4Address(socket.inet_aton(host))
    except (OSError, UnicodeEncodeError):
        return None


def peer(text: str) -> IPv4Address | IPv6Address:
    """Read an address as a socket gives it; one of IPv4 inside IPv6 becomes what it stands for.

    Raises:
        ValueError: It is no address.
    """
    found = ip_address(text.partition("%")[0])
    if isinstance(found, IPv4Address):
        return found
    if found in _TRANSLATED:
        return IPv4Address(int(found) & 0xFFFFFFFF)
    return found.ipv4_mapped or found.sixtofour or found


def is_never_store(address: IPv4Address | IPv6Address) -> bool:
    """Say whether no object store can have an address: link-local is where clouds answer with credentials."""
    return address.is_link_local or address.is_multicast or address.is_unspecified


def is_internal(address: IPv4Address | IPv6Address) -> bool:
    """Say whether an address cannot be reached from everywhere: loopback, private, shared."""
    return not address.is_global
