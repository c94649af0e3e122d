"""Certificates for tests: an authority that signs them, with names, times and usages as a test wants them."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

__all__ = ["Authority", "presenting"]


class Authority:
    """Signs certificates; each comes with its key, in one file.

    Attributes:
        bundle: Path of the file that holds the authority's own certificate and key, for 127.0.0.1 as well.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, folder.name)])
        self.bundle = str(self._write("ca", self._sign(self._name, self._key, ca=True), self._key))

    def issue(
        self,
        name: str,
        days: tuple[int, int] = (-1, 1),
        usage: Any = None,
        password: bytes | None = None,
        *,
        address: str = "127.0.0.1",
    ) -> str:
        """Sign a certificate for an address; give the path of its file."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        builder = self._sign(subject, key, days=days, address=address)
        if usage is not None:
            builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        return str(self._write(name, builder, key, password))

    def _sign(
        self,
        name: x509.Name,
        key: Any,
        *,
        ca: bool = False,
        days: tuple[int, int] = (-1, 1),
        address: str = "127.0.0.1",
    ) -> Any:
        now = dt.datetime.now(dt.UTC)
        alternative = x509.IPAddress(ipaddress.ip_address(address))
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + dt.timedelta(days=days[0]))
            .not_valid_after(now + dt.timedelta(days=days[1]))
            .add_extension(x509.SubjectAlternativeName([alternative]), critical=False)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )

    def _write(self, name: str, builder: Any, key: Any, password: bytes | None = None) -> Path:
        path = self._folder / f"{name}.pem"
        locked = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
        path.write_bytes(
            builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
            + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)
        )
        return path


def presenting(certificate: str, asks: str | None = None) -> ssl.SSLContext:
    """Make what a server shows: a certificate; with `asks`, it wants one of that authority in return."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    if asks is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(asks)
    return context
