"""An answer that is small on the wire and huge when it is unpacked takes no memory, wherever it comes."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Iterator

import pytest
from faulty import Heard, Peer, told

#: What a client may take beyond what it had before, MiB; unpacked, each bomb has 1024.
MOST = 64
MEMBER = gzip.compress(bytes(1 << 20))
BOMB = MEMBER * 1024
#: How a server may call it; two of the names stand for a bomb in a bomb.
ENCODINGS = {"gzip": BOMB, "gzip, gzip": gzip.compress(BOMB), "deflate, gzip": gzip.compress(BOMB), "deflate": BOMB}
ENCODINGS |= {"br": BOMB, "zstd": BOMB, "x-gzip": BOMB}

CHILD = """
import asyncio, resource, sys
from airflow_tds.client import errors
from airflow_tds.client.client import AsyncTableClient, TableClient

url, face, *names = sys.argv[1:]
calls = [
    lambda client, name: client.info(name),
    lambda client, name: client.query(name),
    lambda client, name: client.get_job(name),
    lambda client, name: client.submit_append(name, b"a"),
    lambda client, name: client.poll_download(name, timeout=60, poll_interval=0.01),
]

async def awaited():
    async with AsyncTableClient(url) as client:
        for name in names:
            for call in calls:
                yield await trying(call(client, name))

async def trying(coming):
    try:
        return await coming
    except errors.TableServiceError as error:
        return error

def blocking():
    with TableClient(url) as client:
        for name in names:
            for call in calls:
                try:
                    yield call(client, name)
                except errors.TableServiceError as error:
                    yield error

async def gathered():
    return [each async for each in awaited()]

def run():
    return list(blocking()) if face == "blocking" else asyncio.run(gathered())

names, all_names = ["warm"], names
run()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
names = all_names
ended = run()
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024, *(type(each).__name__ for each in ended))
"""


def respond(peer: Peer, heard: Heard) -> bytes:
    """Give a bomb, and where a redirect is wanted, one with a bomb for a body that leads to another one."""
    name = next((name for number, name in enumerate(ENCODINGS) if f"bomb{number}" in heard.line), "")
    body, fields = (ENCODINGS[name], (f"Content-Encoding: {name}",)) if name else (b"{}", ())
    if heard.line.startswith("GET /data/query/"):
        number = heard.line.rpartition("/")[2]
        return told(307, body, f"Location: {peer.url}/store/{number}", *fields)
    return told(403 if "/data/jobs/" in heard.line else 200, body, *fields)


@pytest.fixture
def peer() -> Iterator[Peer]:
    peer = Peer(respond)
    peer.open()
    yield peer
    peer.close()


@pytest.mark.parametrize("face", ["blocking", "async"])
def test_a_bomb_takes_no_memory(peer: Peer, face: str) -> None:
    names = [f"bomb{number}" for number in range(len(ENCODINGS))]

    child = subprocess.run(
        [sys.executable, "-c", CHILD, peer.url, face, *names], check=True, capture_output=True, text=True
    )

    grown, *ended = child.stdout.split()
    assert float(grown) < MOST
    assert set(ended) == {"UnexpectedReply", "Forbidden"}
    assert len(ended) == 5 * len(names)
