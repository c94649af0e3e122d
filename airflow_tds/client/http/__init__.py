"""HTTP as this house speaks it: the only rooms that import httpx and open connections.

Redirects are never followed here. A presigned request goes through a client of its own that has no
credentials, no cookies and no default headers. Answers are taken as they are: no decoding, and a cap on
what is kept in memory. What httpx and httpcore log of a URL ends before its query.
"""
