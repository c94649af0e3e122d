"""What the interface leaves open: one row for each silence, with the keys of the wire map that answer it.

Only the rows and their page stand here; the defaults are read from the map itself (forms.py), so that the page
cannot say another one. `python -m airflow_tds.client.silences > docs/wire.md` writes the page; a test fails when
it is stale, and when a key of the map is in no row.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from airflow_tds.client.forms import PROFILES
from airflow_tds.client.routes import Route
from airflow_tds.client.wire import Wire

__all__ = ["SILENCES", "Silence", "page"]


@dataclass(frozen=True)
class Silence:
    """A silence of the interface.

    Attributes:
        section: Where the interface is silent.
        what: What it does not show.
        keys: The keys of the wire map that answer it; empty where it is answered elsewhere.
        reason: Why the defaults are what they are.
        otherwise: Where no key answers it: what is assumed and where it is changed.
    """

    section: str
    what: str
    keys: tuple[str, ...]
    reason: str
    otherwise: str = ""


SILENCES = (
    Silence(
        "§4.2",
        "Route of info",
        ("info",),
        "a route of its own below the fixed prefix of a table's data; one that is missing answers 404 and does nothing",
    ),
    Silence(
        "§2.2",
        "Names, types and formats of statistics",
        ("row_count", "total_size_bytes", "data_files", "last_updated", "snapshot_id"),
        "the interface's names; counts are read as numbers or digits, times as ISO 8601 or epoch (s or ms), files as a"
        " list or their number; what is missing is None",
    ),
    Silence(
        "§4.2",
        "Routes of upload, overwrite, upsert and generic update; where format, mode and keys travel; how the data does",
        ("upload", "append", "overwrite", "upsert"),
        "each write has a route of its own, so that no mode travels where it could be ignored; generic update takes the"
        " route of its mode; append's route is fixed",
    ),
    Silence(
        "§4.2",
        "Request body of a write's initiation: words for formats, modes and media types",
        ("format_tokens", "mode_tokens", "media_types"),
        "the interface's own words; a media type is sent only where a place has the style `media`",
    ),
    Silence(
        "§4.2",
        "Reply to a write's initiation",
        ("job_id", "upload_url", "upload_headers", "upload_object"),
        "several usual names; two that hold different values are an error, never a guess",
    ),
    Silence(
        "§4.2",
        "Request for a presigned URL of its own, with the strategy `put_commit`",
        ("presign",),
        "used by that strategy alone; the write's own route is then the commit, and names the object",
    ),
    Silence(
        "§4.2",
        "Lifetime of an upload URL",
        ("expires_at", "upload_url_lifetime"),
        "the reply's word, else the URL's own parameters, else the longest usual time: a lease rests on it",
    ),
    Silence(
        "§4",
        "Headers of the presigned PUT",
        ("put_headers",),
        "none beyond those that the initiation's reply names: any other could break the signature",
    ),
    Silence("§4.2", "Route of get_job", ("get_job",), "reading changes nothing, so a wrong guess does no harm"),
    Silence(
        "§2.3",
        "Job record: other fields, type of the error, other statuses, transitions",
        ("job_status", "job_error", "completed", "failed"),
        "unknown fields are kept; an error may be text or an object with a message; whatever is no final word, compared"
        " without case, is running",
    ),
    Silence(
        "§2.3",
        "Statuses that mean that no data has arrived",
        ("no_data_statuses",),
        "none: where one is known, a killed write can be started anew once its URL is dead",
    ),
    Silence(
        "§4.2",
        "Reply that starts a query",
        ("start_query", "job_id"),
        "the route and the body are fixed; a job id is read as for writes",
    ),
    Silence(
        "§4.2",
        "Poll path while pending, failed or unknown",
        ("poll_query", "ready", "pending", "poll_failed", "poll_by"),
        "the path and 307 are fixed; besides the statuses, 200 with a job record that is not COMPLETED is read by its"
        " status; 404 is an unknown job",
    ),
    Silence(
        "§4.2",
        "Route and body of delete_rows; when it takes effect",
        ("delete_rows",),
        "POST, since many servers and proxies drop a DELETE's body; taken to be in effect with the answer",
    ),
    Silence("§4.2", "Route of truncate", ("truncate",), "a route of its own: one that is missing removes nothing"),
    Silence(
        "§4.2",
        "Wire names of filters, limit, offset and the conditional etag",
        ("query_json", "etag", "etag_header"),
        "the interface's words and HTTP's own way to ask conditionally; not sent for parquet and csv",
    ),
    Silence(
        "§2.4",
        "Layout of a JSON page",
        ("page_layout", "items", "columns", "total_count", "has_next", "total_count_header", "has_next_header"),
        "the names of §2.4; with a place for `columns`, rows are lists of values; with the layout `lines`, each line is"
        " a row and headers tell the rest",
    ),
    Silence(
        "§2.6",
        "Types of simple filters' values",
        ("filter_values",),
        "a value becomes a number only if writing it back gives the same text, so `0123` stays text",
    ),
    Silence(
        "§2.7",
        "Write formats, layout of JSON payloads",
        ("write_formats", "row_layout", "rows_at", "columns_at"),
        "the two that are stated and two that many services take; bytes are sent as they are given; rows become an"
        " array of objects in json, or a list of values each beside their `columns`, or an object a line",
    ),
    Silence(
        "§2.5",
        "Default format of a cross query; operands of a cross join",
        (),
        "the service decides",
        "neither is sent unless given; set `format` in the request",
    ),
    Silence(
        "§3.1",
        "append, overwrite and upsert on a table that never had data",
        (),
        "the service decides",
        "they are sent",
    ),
    Silence(
        "§7",
        "Statuses of errors, shape of their body",
        ("error_kinds", "error_code", "error_detail"),
        "the usual ones; a key is a status, or a status and a code found in the body, such as `400 NO_TABLE`; the first"
        " 2 KiB of a body are kept",
    ),
    Silence(
        "§5",
        "Credential scheme, header names, token acquisition",
        (),
        "the most usual scheme",
        "a bearer token; the connection's `auth` and its kin, see [connection.md](connection.md)",
    ),
    Silence("§5", "Other headers that a service wants", ("headers",), "none; never a credential"),
    Silence(
        "§4.2",
        "Idempotency key of a write",
        ("idempotency_header",),
        "off; with a header's name, each request that changes data carries a key that stays the same when it is sent"
        " again, so that its route may be repeated `always`",
    ),
    Silence(
        "§8",
        "Page size, rate and payload limits",
        (),
        "none can be known",
        "no limit is sent unless given; `Retry-After` is honoured",
    ),
    Silence(
        "§9",
        "Version",
        (),
        "it mostly stands in the path",
        "the connection's `base_path`, or `headers` of the map",
    ),
    Silence("§6", "Events, webhooks, notifications", (), "jobs are polled", "none is used"),
    Silence(
        "§2.8",
        "Table record: creation, schema, columns",
        (),
        "no operation of the interface needs it",
        "not part of the client",
    ),
)

_HEAD = """\
# The wire map

Made from the map by `python -m airflow_tds.client.silences`; do not edit.

The service's interface fixes some forms and leaves others open. What is open has a default here, marked
*assumed*, and is set in the connection's extra `wire`, or by `Wire.from_setting({...})` for the client. A service
that lacks an assumed route answers 404 or 405 and nothing happens: the client asks the fixed query route whether the
table is there, and raises `WireMismatch`, which names the key to set. Nothing falls back to another form by itself.

## How it is written

```json
{
  "profile": "routes",
  "truncate": "DELETE /tables/{table_id}/rows",
  "append": {
    "strategy": "direct",
    "places": {"update_mode": "query mode"}
  },
  "job_id": ["/job/id"],
  "error_kinds": {"400 NO_TABLE": "table_not_found"}
}
```

- A **route** is a line `METHOD /path`, or a mapping of `line`, `places`, `headers` (fixed ones), `strategy` (of a
  write) and `repeat` (`always`, `if_unsent`, `never`). Its path may name inputs beside ids, as in
  `/import/{table_id}.{format}`.
- A **place** is `query NAME`, `header NAME` or `body /POINTER`, then a style if the first one does not fit, then what
  joins: `query filters joined ;`. `null`: the input does not travel. Styles: `repeated`, `joined`, `json` for key
  columns and filters; `structured` for filters as a predicate of §2.5; `plain`, `media` for a format; `quoted`,
  `plain` for an etag.
- A **pointer** is a JSON pointer into a reply, or a list of them; the empty one is a bare JSON string.
- **Strategies** of a write: `initiate_put` (the answer names a job and a presigned URL; then PUT), `put_commit` (a
  presigned URL from the route `presign`; PUT; then the write's own route names the object and answers the job id),
  `direct` (the payload is the body of the write's own request, its format the Content-Type; the rest travels in the
  query, or where `places` says). Client and operators follow all three; after a crash they leave different things
  unknown ([durability.md](durability.md#what-each-strategy-promises)).
- What could do harm in silence is refused: filters, keys, limit or offset without a place; a value that holds what
  joins several; two writes on one route without `update_mode`; headers of credentials and of framing.
- **Profiles** are sets of overrides with a name; `"wire": "patch"` is short for `{"profile": "patch"}`.
- What settings cannot say, a subclass of `Wire` that replaces one builder or reader can; give it to the client.

"""


def page() -> str:
    """Give the text of docs/wire.md."""
    return "\n".join([*_HEAD.splitlines(), *_profiles(), "", *_rows()]) + "\n"


def _profiles() -> Iterator[str]:
    yield "| Profile | Overrides |"
    yield "|---|---|"
    for name, overrides in PROFILES.items():
        yield f"| `{name}` | {'; '.join(f'`{key}`: `{line}`' for key, line in overrides.items()) or 'none'} |"


def _rows() -> Iterator[str]:
    yield "## Every silence of the interface"
    yield ""
    yield "| § | Silent about | Key: default | Reason |"
    yield "|---|---|---|---|"
    defaults = Wire()
    for silence in SILENCES:
        cells = "<br>".join(f"`{key}`: {_shown(getattr(defaults, key))}" for key in silence.keys) or silence.otherwise
        yield f"| {silence.section} | {silence.what} | {cells} | {silence.reason} |"


def _shown(value: Any) -> str:
    if isinstance(value, Route):
        return "<br>".join(_route(value))
    if isinstance(value, tuple):
        return ", ".join(f"`{each}`" if each != "" else "bare" for each in value) or "none"
    if isinstance(value, dict):
        return f"`{json.dumps(value)}`" if value else "none"
    return f"`{value}`" if value != "" else "none"


def _route(route: Route) -> Iterator[str]:
    provenance = "assumed" if route.source == "assumed" else f"fixed by {route.source}"
    yield f"`{route.method} {route.path}` ({provenance})"
    travelling = [f"{name}: `{place}`" for name, place in route.places.items() if place]
    if travelling:
        yield f"&nbsp;&nbsp;places {', '.join(travelling)}"
    if route.strategy:
        yield f"&nbsp;&nbsp;strategy `{route.strategy}`"


if __name__ == "__main__":
    print(page(), end="")  # noqa: T201  # the page is what it is asked for
