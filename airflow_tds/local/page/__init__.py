"""The page for people: tables, jobs and first rows, refreshed live.

One document that loads nothing else and runs no other script than its own: its content policy names both by
their digests. It asks with a token that its reader gives, or that stands in the address's fragment.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from importlib.resources import files

from starlette.responses import HTMLResponse

__all__ = ["page"]


def page(base: str) -> HTMLResponse:
    """Give the page.

    Args:
        base: What stands before every path.
    """
    style, script = _part("page.css"), _part("page.js")
    config = {"tables": f"{base}/admin/tables", "jobs": f"{base}/admin/jobs"}
    body = _part("page.html").replace("/*style*/", style).replace("/*script*/", script)
    body = body.replace("/*config*/", json.dumps(config).replace("<", "\\u003c"))
    policy = (
        f"default-src 'none'; connect-src 'self'; style-src '{_digest(style)}'; script-src '{_digest(script)}';"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    headers = {"Content-Security-Policy": policy, "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
    return HTMLResponse(body, headers=headers)


def _part(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
