"""Whatever a service or a store answers, an operation ends well or with an error of ours that a person can act on.

Hostile answers come over real sockets to every operation on both faces; the values in documents are mutated over the
scripted runtime, where that is fast.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority
from faces import Clock
from faulty import Peer, told
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import CANARY, check_readable
from scripted import ScriptedRuntime
from thorough import THOROUGH, examples

from airflow_tds.client import errors
from airflow_tds.client.access import Tls
from airflow_tds.client.client import AsyncTableClient, Operations, TableClient
from airflow_tds.client.messages import Reply
from airflow_tds.client.runtime import finish

WAIT = {"timeout": 3.0, "poll_interval": 1.0}
CSV = b"a,b\n1,2\n"
#: Every operation of the interface, and what else the client offers.
OPERATIONS: dict[str, Callable[[Any, Path], Any]] = {
    "info": lambda c, _: c.info("t"),
    "get_job": lambda c, _: c.get_job("j"),
    "initiate": lambda c, _: c.initiate("append", "t"),
    "upload": lambda c, _: c.upload("t", CSV, **WAIT),
    "submit_append": lambda c, _: c.submit_append("t", CSV),
    "overwrite": lambda c, _: c.overwrite("t", iter([CSV]), **WAIT),
    "upsert": lambda c, _: c.upsert("t", CSV, key_columns="a", **WAIT),
    "submit_update": lambda c, _: c.submit_update("t", CSV, update_mode="append"),
    "query": lambda c, _: c.query("t"),
    "query csv": lambda c, _: c.query("t", format="csv", **WAIT),
    "submit_query": lambda c, _: c.submit_query("t"),
    "cross_query": lambda c, _: c.cross_query({"table_id": "t"}, **WAIT),
    "poll_download": lambda c, _: c.poll_download("q", **WAIT),
    "poll_download_to": lambda c, folder: c.poll_download_to("q", folder / "out", **WAIT),
    "delete_rows": lambda c, _: c.delete_rows("t", "a:eq:1"),
    "truncate": lambda c, _: c.truncate("t"),
    "wait": lambda c, _: c.wait("j", **WAIT),
    "wait_until_truncated": lambda c, _: c.wait_until_truncated("t", **WAIT),
}

OK = b"HTTP/1.1 200 OK\r\n"
END = b"Connection: close\r\n\r\n"
BOMB = gzip.compress(bytes(1 << 22))


def lengthy(value: bytes) -> bytes:
    return OK + b"Content-Length: " + value + b"\r\n" + END + b"{}"


def headed(field: bytes, status: int = 200) -> bytes:
    return b"HTTP/1.1 %d X\r\n" % status + field + b"\r\nContent-Length: 2\r\n" + END + b"{}"


#: Answers that no honest service gives, byte for byte.
HOSTILE: list[bytes] = [
    b"",
    b"\r\n\r\n",
    b"\xff" * 1000,
    b"HTTP/1.1\r\n\r\n",
    b"HTTP/1.1 99 X\r\n" + END,
    b"HTTP/1.1 1000 X\r\n" + END,
    b"HTTP/1.1 abc X\r\n" + END,
    b"HTTP/2 200\r\n" + END,
    b"HTTP/9.9 200 X\r\n" + END,
    b"HTTP/1.1 200 \xff\xfe\r\nContent-Length: 2\r\n" + END + b"{}",
    b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n" * 50,
    b"HTTP/1.1 103 Hints\r\n\r\n" + told(200, b"{}"),
    *map(lengthy, [b"-1", b"+2", b"0x2", b"2, 2", b"2, 3", b"99999999999999999999999", b"", b" 2 ", b"\xb2", b"2;x"]),
    OK + b"Content-Length: 2\r\nContent-Length: 3\r\n" + END + b"{}",
    OK + b"Transfer-Encoding: gzip\r\n" + END + b"{}",
    OK + b"Transfer-Encoding: chunked\r\n" + END + b"ffffffffffffffffffffff\r\n{}",
    OK + b"Transfer-Encoding: chunked\r\n" + END + b"-1\r\n{}\r\n0\r\n\r\n",
    OK + b"Transfer-Encoding: chunked\r\nContent-Length: 1\r\n" + END + b"2\r\n{}\r\n0\r\n\r\n",
    OK + b"X" * 70_000 + b": y\r\n" + END,
    OK + b"".join(b"X-%d: y\r\n" % number for number in range(5000)) + END,
    *map(headed, [b"no colon", b": no name", b"Na me: x", b"X: a\x00b", b"X: a\r\n b", b"X: \xff\xfe", b"\xffX: y"]),
    *[
        headed(b"Content-Encoding: " + encoding)
        for encoding in (b"gzip", b"deflate", b"br", b"zstd", b"gzip, gzip", b"\xff", b"identity, gzip")
    ],
    told(200, BOMB, "Content-Encoding: gzip"),
    told(500, BOMB, "Content-Encoding: gzip"),
    told(307, BOMB, "Content-Encoding: gzip", "Location: http://x/y"),
    *[
        headed(b"Location: " + target, status)
        for status in (302, 307)
        for target in (
            *[b"", b" ", b"/x", b"//", b"//x", b"?", b"#", b"http:", b"http://", b"http:///x", b"http://[::1", b"\xff"],
            *[b"http://a:99999/", b"http://a:b@c/", b"http://\xff/", b"http://x y/", b"javascript:1", b"file:///etc"],
            *[
                b"http://127.0.0.1:1/x",
                b"ftp://x/y",
                b"http://x/" + b"y" * 9000,
                b"http://xn--/",
                b"https://x/\x01",
                b"http://a..b/x",
            ],
        )
    ],
    *[
        told(503, b"", f"Retry-After: {value}")
        for value in (*["-1", "nan", "1e9", "9" * 400, "Mon", "Thu, 01 Jan 1970 00:00:00 GMT", "\xb2"],)
    ],
    told(503, b"", "Retry-After: Thu, 01 Jan 9999 23:59:59 GMT", "Date: Thu, 99 Foo 0000"),
    *[
        told(status, b"{}", f"Set-Cookie: {cookie}")
        for status, cookie in ((200, "a=b; Domain=.com; expires=x"), (200, "=" * 5000), (403, "\xff=\x01"))
    ],
    *[
        told(status, body)
        for status in (200, 202, 400, 404, 409, 500)
        for body in (
            *[b"[" * 100_000, b'{"a":' * 100_000, b"NaN", b"1e999", b"-", b'"', b"\xef\xbb\xbf{}"],
            *["{}".encode("utf-16"), b"\x1b[2J\r\nfake log line"],
            *[b'{"detail": "\\ud800"}', b'{"detail": "\\u001b[31m\\r\\n::error::"}', b'{"status": "\\ud800"}'],
            *[b"<" + b"x" * 100_000, b"9" * 5000, b'{"job_id": ' + b"9" * 5000 + b"}"],
        )
    ],
]


#: What stands for the others in the ordinary suite: a read, a page, a wait, a whole write, a result, a change.
SOME = ("info", "query", "wait", "upload", "poll_download_to", "truncate")


def attempt(returned: Callable[[], Any]) -> None:
    """Do something; what it raises must be ours, and readable."""
    try:
        returned()
    except errors.TableServiceError as error:
        check_readable(error)


@pytest.fixture
def answers() -> list[bytes]:
    return [b""]


@pytest.fixture
def peer(answers: list[bytes]) -> Iterator[Peer]:
    """A peer that gives to everything the first of its test's answers."""
    peer = Peer(lambda _, __: answers[0])
    peer.open()
    yield peer
    peer.close()


@pytest.fixture
def no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no name be known: a network that has no answer may take long to say so."""
    look_up = socket.getaddrinfo

    def found(host: Any, *arguments: Any, **more: Any) -> Any:
        if host not in ("127.0.0.1", b"127.0.0.1"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return look_up(host, *arguments, **more)

    monkeypatch.setattr(socket, "getaddrinfo", found)


@pytest.mark.usefixtures("no_names")
@pytest.mark.parametrize("name", OPERATIONS if THOROUGH else SOME)
@pytest.mark.parametrize("face", ["blocking", "async"])
def test_no_answer_breaks_an_operation(
    peer: Peer, answers: list[bytes], tmp_path: Path, bundle: str, *, name: str, face: str
) -> None:
    act, tls = OPERATIONS[name], Tls(bundle)

    async def work() -> None:
        async with AsyncTableClient(peer.url, token=f"{CANARY}-token", tls=tls) as client:
            Clock().govern(client)
            for answers[0] in HOSTILE:
                try:
                    await act(client, tmp_path)
                except errors.TableServiceError as error:
                    check_readable(error)

    if face == "async":
        asyncio.run(work())
        return
    with TableClient(peer.url, token=f"{CANARY}-token", tls=tls) as client:
        Clock().govern(client)
        for answers[0] in HOSTILE:
            attempt(lambda: act(client, tmp_path))
    assert len(peer.lines) >= len(HOSTILE)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file with one certificate: reading a hundred of them takes longer than the test."""
    return Authority(tmp_path_factory.mktemp("known")).bundle


# ---- documents of another shape than the one that is expected

GOOD: dict[str, Any] = {
    "info": {"row_count": 1, "total_size_bytes": 1, "data_files": 1, "last_updated": 1e9, "snapshot_id": "s"},
    "get_job": {"status": "FAILED", "error": {"message": "no"}},
    "initiate": {"job_id": "j", "upload_url": "http://s/p", "upload_headers": {"a": "b"}, "expires_at": 1e9},
    "query": {"items": [{"a": 1}], "metadata": {"total_count": 1, "has_next": False}, "etag": "s"},
    "submit_query": {"job_id": "j"},
    "poll_download": {"status": "FAILED", "error": "no"},
    "wait_until_truncated": {"row_count": 0},
}
JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["", "\ud800", "\x00", "x" * 9000, "9" * 5000, "http://[", "../..", "\x1b[31m", 10**400, -0.0]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


TEXTS = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF), max_size=40)
HEADERS = st.fixed_dictionaries(
    {}, optional={"retry-after": TEXTS, "date": TEXTS, "etag": TEXTS, "content-type": TEXTS, "location": TEXTS}
)


@given(data=st.data())
@settings(max_examples=examples(60), deadline=None)
@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("status", [200, 400, 404, 429])
def test_no_document_breaks_an_operation(name: str, status: int, data: st.DataObject) -> None:
    document = dict(GOOD[name])
    for key in data.draw(st.lists(st.sampled_from(list(document)), min_size=1, max_size=2)):
        document[key] = data.draw(JUNK)
    whole = data.draw(st.sampled_from([document, [document], document | {"detail": document}]) | JUNK)
    reply = Reply(status, data.draw(HEADERS), json.dumps(whole).encode())
    operations = Operations(ScriptedRuntime(*[reply] * 100))

    attempt(lambda: finish(OPERATIONS[name](operations, Path())))
