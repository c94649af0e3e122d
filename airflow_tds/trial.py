"""Whether a connection works, in two or three requests that change nothing, and one sentence.

What came back is judged by comparison: with the answer to a path that no service has. So neither a table that must
exist nor the words of a service's 404 are assumed. Each sentence says what to do; none holds a secret.
"""

from __future__ import annotations

import contextvars
import queue
import re
import threading
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_tds.client import errors

if TYPE_CHECKING:
    from airflow_tds.client.messages import Reply, Request
    from airflow_tds.client.runtime import BlockingRuntime
    from airflow_tds.client.wire import Wire
    from airflow_tds.settings import Settings

__all__ = ["NO_TABLE", "PATIENCE", "try_out", "unreachable"]

#: Asked for to try a connection: no table has this name.
NO_TABLE = "airflow-tds-connection-test"
#: Seconds that a trial takes at most, names, connections, TLS and all answers together.
PATIENCE = 4.5
#: "The path is there, the method is not."
_NOT_ALLOWED = 405


def try_out(settings: Settings, patience: float = PATIENCE) -> tuple[bool, str]:
    """Try a connection, and never take longer than told: not even for a name that nobody resolves.

    Args:
        settings: The connection's.
        patience: Seconds.

    Returns:
        Whether the service was reached and lets us in, and one sentence: what was reached and as whom, or what to
        change.
    """
    verdicts: queue.SimpleQueue[tuple[bool, str]] = queue.SimpleQueue()

    def work() -> None:
        try:
            verdicts.put(_tried(settings, patience))
        except errors.TransportFailed as failed:
            verdicts.put((False, unreachable(settings, failed)))
        except errors.TableServiceError as failed:
            verdicts.put((False, f"{settings.base_url}: {failed}"))

    # A thread of its own: looking up a name has no time limit. It ends by itself, by the timeouts of its requests.
    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(work,), name="tds-trial", daemon=True).start()
    try:
        return verdicts.get(timeout=patience)
    except queue.Empty:
        return False, f"{settings.base_url} has not answered within {patience:g} s; check host, port and proxy"


def unreachable(settings: Settings, failed: errors.TransportFailed) -> str:
    """Say what to change where no answer came."""
    why = re.sub(r"^[\w ,-]*?: ", "", str(failed))
    if not isinstance(failed, errors.TlsFailed):
        return f"{settings.base_url} does not answer; check host, port, schema and proxy ({why})"
    if "CERTIFICATE_VERIFY_FAILED" in why:
        return f"{settings.base_url}: its certificate is not trusted; check host or set ca_bundle ({why})"
    if "CERTIFICATE" in why.upper() or "UNKNOWN_CA" in why:
        return f"{settings.base_url} does not take our certificate; check client_certificate ({why})"
    return f"{settings.base_url} does not speak TLS; check port, or set schema to http ({why})"


def _tried(settings: Settings, patience: float) -> tuple[bool, str]:
    from airflow_tds.client.access import Timeouts
    from airflow_tds.client.runtime import BlockingRuntime

    wire, access = settings.wire(), replace(settings.access(), timeouts=Timeouts(connect=patience, read=patience))
    with closing(BlockingRuntime(access)) as runtime:
        return _judged(settings, wire, runtime)


def _judged(settings: Settings, wire: Wire, runtime: BlockingRuntime) -> tuple[bool, str]:
    """Ask for rows of a table that is not there, and judge the answer by what else is answered."""
    url, who = settings.base_url, settings.who()
    asked = wire.page_request(NO_TABLE, None, 1 if wire.query_json.carries("limit") else None, 0, "")
    reply = _send(runtime, asked)
    error = wire.error(asked, reply)
    if isinstance(error, errors.Unauthorized):
        return False, f"{url} does not let us in as {who}: HTTP {reply.status}; check the credentials"
    if isinstance(error, errors.ServerError):
        return False, f"{url} was reached and fails: HTTP {reply.status}; try again later"
    nowhere = replace(asked, target=f"/{NO_TABLE}/nowhere")
    if not _alike(reply, _send(runtime, nowhere)):
        rights = "; what it may read is decided table by table" if isinstance(error, errors.Forbidden) else ""
        return True, f"{url} lets us in as {who}{rights}"
    if isinstance(error, errors.Forbidden):
        return False, f"{url} permits nothing to {who}: HTTP {reply.status}; check the caller's rights"
    if _send(runtime, replace(asked, target=wire.start_query.path)).status == _NOT_ALLOWED != reply.status:
        return True, f"{url} lets us in as {who}"
    return False, f"{url} is no Table Data Service; check base_path (HTTP {reply.status})"


def _send(runtime: BlockingRuntime, request: Request) -> Reply:
    from airflow_tds.client.runtime import finish

    return finish(runtime.send(request))


def _alike(one: Reply, other: Reply) -> bool:
    """Say whether two answers differ at most in the path that they repeat, in ids and in numbers."""
    return (one.status, _gist(one)) == (other.status, _gist(other))


def _gist(reply: Reply) -> str:
    text = reply.content.decode(errors="replace")
    return re.sub(rf"[^\s\"'<>]*/{NO_TABLE}[^\s\"'<>]*|[0-9a-fA-F-]*\d[0-9a-fA-F-]*", "", text)
