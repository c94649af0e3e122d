"""A server of any manners: each request is answered by a function of its method and path."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

__all__ = ["Answer", "Manners", "stand_in"]


class Answer(NamedTuple):
    status: int
    body: str = ""
    headers: Mapping[str, str] = {}


#: Method and path, query included, to an answer.
Manners = Callable[[str, str], Answer]


@contextmanager
def stand_in(manners: Manners, context: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serve on a free port of the loopback until the end of the block; give the address."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            answer = manners(self.command, self.path)
            self.send_response_only(answer.status)
            for name, value in {**answer.headers, "Content-Length": str(len(answer.body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body.encode())

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815  # http.server's names

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # http.server's name
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"{'http' if context is None else 'https'}://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
