"""From the address to the credentials: what a connection says, and whether the service answers to it.

Every check here only asks. Each notes what it found; the first one that makes the others pointless ends them.
"""

from __future__ import annotations

import socket
import ssl
import time
from contextlib import closing
from datetime import UTC, datetime
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from airflow_tds.client import errors
from airflow_tds.client.access import NO_PROXY, Access, is_internal, literal
from airflow_tds.client.messages import Reply, Request
from airflow_tds.client.replies import date_of
from airflow_tds.doctor.patient import Patient
from airflow_tds.doctor.reports import Report
from airflow_tds.trial import NO_TABLE, try_out

__all__ = ["CHECKS", "address", "clock", "credentials", "tls", "trial"]

#: A clock that is further off than this many seconds is worth a word: presigned addresses end by the service's clock.
SKEW = 30.0
#: A certificate that ends within this many days is worth a word.
DAYS = 21
_SECONDS_A_DAY = 86_400


def address(patient: Patient, report: Report) -> bool:
    """Say where the service is, and what of the connection is unsafe."""
    settings = patient.settings
    access = settings.access()
    report.add("address", "ok", f"{settings.base_url}, as {settings.who()}")
    if access.tls.insecure:
        report.add("address", "warning", "insecure_tls is set: whoever is in between reads and changes everything")
    if settings.base_url.startswith("http:") and not _is_near(access.host):
        report.add("address", "warning", "http: credentials and data travel in clear; set schema to https")
    return True


def _is_near(host: str) -> bool:
    found = literal(host)
    return host == "localhost" or (found is not None and is_internal(found))


def trial(patient: Patient, report: Report) -> bool:
    """Try the connection as the Test button does; what follows needs it."""
    passed, text = try_out(patient.settings, patient.patience)
    report.add("connection", "ok" if passed else "failed", text)
    return passed


def tls(patient: Patient, report: Report) -> bool:
    """Say which TLS is spoken, and how long the certificate holds."""
    access = patient.settings.access()
    parts = urlsplit(access.base_url)
    if parts.scheme != "https" or access.tls.insecure or _is_proxied(access):
        report.add("tls", "skipped", "no https, no check of certificates, or a proxy in between")
        return True
    address = (access.host, parts.port or 443)
    with (
        socket.create_connection(address, patient.patience) as plain,
        access.ssl_context().wrap_socket(plain, server_hostname=access.host) as secured,
    ):
        ends = ssl.cert_time_to_seconds(str((secured.getpeercert() or {})["notAfter"]))
        version = secured.version()
    days = int((ends - time.time()) / _SECONDS_A_DAY)
    until = datetime.fromtimestamp(ends, UTC).date()
    report.add(
        "tls", "warning" if days < DAYS else "ok", f"{version}; the certificate holds until {until}: {days} days"
    )
    return True


def _is_proxied(access: Access) -> bool:
    if access.proxy is not None:
        return access.proxy != NO_PROXY
    return "https" in getproxies() and not proxy_bypass(access.host)


def clock(patient: Patient, report: Report) -> bool:
    """Compare the service's clock, as its Date header tells it, with ours."""
    before = patient.now()
    reply = _asked(patient)
    between = (before + patient.now()) / 2
    told = date_of(reply.headers.get("date", ""))
    if told is None:
        report.add("clock", "note", "the service tells no time (header Date), so clocks cannot be compared")
        return True
    skew = told.timestamp() + 0.5 - between  # the header counts whole seconds
    far = abs(skew) > SKEW
    word = "ahead of" if skew > 0 else "behind"
    text = f"the service's clock is {abs(skew):.0f} s {word} ours" if far else "the service's clock is ours"
    report.add("clock", "warning" if far else "ok", text)
    return True


def credentials(patient: Patient, report: Report) -> bool:
    """See that it is the credentials that let us in."""
    if patient.settings.access().credentials is None:
        report.add("credentials", "note", "there are none, and none are asked for")
        return True
    with closing(patient.beside(anonymous=True)) as nobody:
        request, reply = _request(nobody), _asked(nobody)
    refused = isinstance(patient.wire.error(request, reply), errors.Unauthorized)
    text = "who has none is refused" if refused else f"who has none gets HTTP {reply.status}: they prove nothing here"
    report.add("credentials", "ok" if refused else "warning", text)
    return True


def _request(patient: Patient) -> Request:
    return patient.wire.page_request(NO_TABLE, None, 1 if patient.wire.query_json.carries("limit") else None, 0, "")


def _asked(patient: Patient) -> Reply:
    return patient.send(_request(patient))


#: In their order; one that gives False ends the examination.
CHECKS = (address, trial, tls, clock, credentials)
