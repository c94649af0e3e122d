"""Settings of wire maps, drawn at random: each says every open form otherwise, and none loses an input."""

from __future__ import annotations

from random import Random
from typing import Any

__all__ = ["AUTHS", "drawn"]

AUTHS = ("bearer", "api_key", "basic", "oauth2")
WRITES = ("upload", "append", "overwrite", "upsert")
STRATEGIES = ("initiate_put", "put_commit", "direct")
#: Each with other places for rows and names, so that every form of a payload of rows is drawn.
LAYOUTS: tuple[dict[str, Any], ...] = (
    {"row_layout": "columns", "rows_at": "/sheet/body", "columns_at": "/sheet/head"},
    {"row_layout": "lines"},
    {"row_layout": "records", "rows_at": "/data"},
    {},
)
KEYS = ("", " joined ;", " json")


def drawn(seed: int) -> dict[str, Any]:
    """Draw a setting; those of 0 to 7 together hold every form."""
    draw = Random(seed)  # noqa: S311  # no secret
    setting = _routes(draw, seed) | _words(draw, seed) | _answers(draw, seed) | _statuses(draw, seed)
    if seed % 2:
        setting |= {"headers": {"X-Tenant": "acme"}, "put_headers": {"X-Stage": "yes"}, "idempotency_header": "X-Once"}
    return setting


def _routes(draw: Random, seed: int) -> dict[str, Any]:
    method = draw.choice(("GET", "POST"))
    shared = seed % 3 == 0
    routes: dict[str, Any] = {
        "info": draw.choice(("GET /v2/{table_id}.stats", "GET /stats?table={table_id}", "POST /v2/{table_id}/stats")),
        "truncate": {"line": f"{draw.choice(('PUT', 'DELETE'))} /v2/{{table_id}}/rows", "headers": {"X-Op": "empty"}},
        "get_job": draw.choice(("GET /tickets?number={job_id}", "GET /tickets/{job_id}", "POST /tickets/{job_id}/see")),
        "start_query": "POST /reports",
        "poll_query": draw.choice(("GET /reports/{job_id}/file", "GET /file?of={job_id}&v=2")),
        "presign": _presign(draw),
        "query_json": {"line": f"{method} /v2/{{table_id}}/rows", "places": _page(draw, method)},
        "delete_rows": {"line": "POST /v2/{table_id}/gone", "places": {"filters": _filters(draw, "POST", "where")}},
    }
    for at, name in enumerate(WRITES):
        routes[name] = _write(draw, name, STRATEGIES[(seed + at) % 3], shared=shared)
    return routes


def _presign(draw: Random) -> dict[str, Any]:
    line, places = draw.choice(
        (
            ("POST /staging/{table_id}", {"format": "header X-Kind"}),
            ("POST /staging", {"table_id": None, "format": "body /kind media"}),
            ("PUT /staging/{format}", {"table_id": "query table"}),
            ("POST /staging?table={table_id}", {"format": None}),
        )
    )
    return {"line": line, "places": places}


def _write(draw: Random, name: str, strategy: str, *, shared: bool) -> dict[str, Any]:
    body = strategy != "direct"
    wheres = ["query", "header", *(["body"] if body else [])]

    def place(word: str, style: str = "") -> str:
        where = draw.choice(wheres)
        return {"query": f"query {word}", "header": f"header X-{word}", "body": f"body /{name}/{word}"}[where] + style

    line = "POST /v2/{table_id}/ops" if shared else f"POST /v2/{{table_id}}/{name}"
    places: dict[str, Any] = {"update_mode": place("mode") if shared or draw.random() < 0.5 else None}
    if draw.random() < 0.3:
        line += ".{format}"
    elif body or draw.random() < 0.3:
        places["format"] = place("kind", draw.choice(("", " media")))
    else:
        places["format"] = None  # the Content-Type says it
    if name == "upsert":
        places["key_columns"] = place("by", draw.choice(KEYS))
    if strategy == "put_commit":
        places["object"] = place("ref")
    return {"line": line, "strategy": strategy, "places": places}


def _filters(draw: Random, method: str, word: str) -> str:
    bodies = [f"body /a/{word}", f"body /{word} joined |", f"body /{word} json", f"body /b/{word} structured"]
    others = [f"query {word}{style}" for style in ("", " joined |", " json", " structured")]
    others += [f"header X-{word}{style}" for style in ("", " joined |", " json", " structured")]
    return draw.choice(bodies + others if method == "POST" else others)


def _page(draw: Random, method: str) -> dict[str, Any]:
    wheres = ("query {}", "header X-{}", *(("body /page/{}",) if method == "POST" else ()))
    etags = ("header If-None-Match", "header X-Seen plain", "query seen", "query seen plain")
    return {
        "filters": _filters(draw, method, "where"),
        "limit": draw.choice(wheres).format("take"),
        "offset": draw.choice(wheres).format("skip"),
        "etag": draw.choice(etags),
        "format": draw.choice((None, "query as", "query as media")),
    }


def _words(draw: Random, seed: int) -> dict[str, Any]:
    return {
        "format_tokens": {"csv": "CSV_TEXT", "json": "JSON_ROWS", "parquet": "PARQUET_FILE"},
        "mode_tokens": {"append": "ADD", "overwrite": "SWAP", "upsert": "MERGE", "upload": "FIRST"},
        "media_types": {"csv": "text/x-csv"},
        "write_formats": ["csv", "json"],
        **LAYOUTS[seed % 4],
        "filter_values": draw.choice(("text", "number_or_text")),
        "completed": "DONE",
        "failed": "BROKEN",
        "no_data_statuses": ["WAITING"],
        "upload_url_lifetime": 60 + seed,
    }


def _answers(draw: Random, seed: int) -> dict[str, Any]:
    top, deep = draw.choice(("", "/data")), draw.choice(("/ticket", "/a/b"))
    lines = {"page_layout": "lines", "total_count_header": "X-All", "has_next_header": "X-More", "columns": []}
    return {
        "job_id": draw.choice(([f"{deep}/number"], ["", f"{deep}/number"])),
        "upload_url": f"{deep}/href",
        "upload_headers": f"{top}/with",
        "upload_object": f"{deep}/ref",
        "expires_at": f"{top}/until",
        "row_count": f"{top}/stats/rows",
        "total_size_bytes": f"{top}/stats/bytes",
        "data_files": f"{top}/files",
        "last_updated": f"{deep}/changed",
        "snapshot_id": f"{deep}/version",
        "job_status": f"{deep}/state",
        "job_error": f"{top}/why",
        "items": f"{top}/body",
        "columns": draw.choice(([], [f"{top}/head"])),
        "total_count": f"{deep}/all",
        "has_next": f"{deep}/more",
        "etag": draw.choice(([], [f"{deep}/tag"])),
        "etag_header": "X-Version",
        "error_code": "/fault/code",
        "error_detail": "/fault/text",
        **(lines if seed % 4 == 1 else {}),
    }


def _statuses(draw: Random, seed: int) -> dict[str, Any]:
    polls: tuple[dict[str, Any], ...] = (
        {"ready": [303], "pending": [425], "poll_failed": [424]},
        {"ready": [302], "pending": [], "poll_failed": []},
        {"ready": [200], "pending": [204], "poll_failed": [500]},
        {"ready": [307], "pending": [201], "poll_failed": [410]},
    )
    kinds: tuple[dict[str, str], ...] = (
        {"400": "refused", "400 NO_SHEET": "table_not_found", "400 NO_TICKET": "job_not_found", "404": "refused"},
        {"418": "validation", "470": "forbidden", "498": "unauthorized", "416": "job_not_found"},
        {"422 TAKEN": "conflict", "403 WHO": "unauthorized", "404 TABLE": "table_not_found"},
    )
    poll_by = "poll_query" if seed % 4 == 2 else draw.choice(("poll_query", "get_job"))
    return polls[seed % 4] | {"poll_by": poll_by, "error_kinds": kinds[seed % 3]}
