"""The two faces of the client are one client; the blocking one works wherever Airflow runs code."""

import asyncio
import inspect
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_tds.client.access import Timeouts
from airflow_tds.client.client import AsyncTableClient, Operations, TableClient
from airflow_tds.client.runtime import finish
from airflow_tds.local import Service

OPERATIONS = [name for name, _ in inspect.getmembers(Operations, inspect.iscoroutinefunction) if name[0] != "_"]
#: Asyncio work is stopped by cancelling it; a thread needs to be told.
BLOCKING_ONLY = {"stop"}


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(tables=["t"]) as service:
        yield service


def public(client: object) -> set[str]:
    return {name for name in dir(client) if name[0] != "_"}


def test_both_faces_have_the_same_public_names() -> None:
    assert public(TableClient("http://x")) - BLOCKING_ONLY == public(AsyncTableClient("http://x"))


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_has_the_same_signature_and_text_on_both_faces(name: str) -> None:
    blocking, awaited = getattr(TableClient("http://x"), name), getattr(AsyncTableClient("http://x"), name)

    assert inspect.signature(blocking) == inspect.signature(awaited)
    assert (blocking.__doc__, blocking.__name__) == (awaited.__doc__, awaited.__name__)
    assert inspect.iscoroutinefunction(awaited)
    assert not inspect.iscoroutinefunction(blocking)


@pytest.mark.parametrize("name", [name for name in OPERATIONS if name != "query"])  # it has overloads instead
def test_an_operation_of_the_class_says_that_it_needs_a_client(name: str) -> None:
    with pytest.raises(TypeError, match=f"{name} needs a client"):
        getattr(TableClient, name)()


def test_every_operation_of_the_interface_is_there() -> None:
    interface = {"info", "upload", "append", "overwrite", "upsert", "update", "query", "cross_query", "get_job"}
    interface |= {"poll_download", "poll_download_to", "delete_rows", "truncate", "submit_query", "submit_cross_query"}
    interface |= {f"submit_{write}" for write in ("upload", "append", "overwrite", "upsert", "update")}

    assert interface - set(OPERATIONS) == set()
    assert len(interface) == 20


def test_the_rows_of_both_faces_are_asked_for_alike() -> None:
    blocking, awaited = inspect.signature(TableClient.iter_rows), inspect.signature(AsyncTableClient.iter_rows)

    assert blocking.parameters == awaited.parameters


def test_the_faces_are_made_alike() -> None:
    assert inspect.signature(TableClient) == inspect.signature(AsyncTableClient)


def test_both_faces_show_their_settings() -> None:
    timeouts = Timeouts(transfer=7.0)
    for client in (TableClient("http://x", timeouts=timeouts), AsyncTableClient("http://x", timeouts=timeouts)):
        assert client.transfer_timeout == 7.0
        assert client.wire.info.path == "/tables/{table_id}/data/info"


def test_what_never_suspends_is_finished_at_once() -> None:
    async def work() -> int:
        return 7

    assert finish(work()) == 7


def test_what_suspends_is_refused_and_closed() -> None:
    closed: list[bool] = []

    async def work() -> None:
        try:
            await asyncio.sleep(0)
        finally:
            closed.append(True)

    with pytest.raises(RuntimeError, match="tried to suspend"):
        finish(work())
    assert closed == [True]


def test_the_blocking_face_works_in_a_running_loop(service: Service) -> None:
    async def work() -> Any:
        with TableClient(service.url, token=service.token) as client:
            return client.info("t").row_count

    assert asyncio.run(work()) == 0


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_the_blocking_face_works_after_a_fork(service: Service) -> None:
    with TableClient(service.url, token=service.token) as client:
        client.info("t")
        child = os.fork()
        if child == 0:
            try:  # whatever happens: a second copy of the tests must never go on
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(60)  # a fork may copy a lock that nobody opens any more
                with TableClient(service.url, token=service.token) as own:
                    os._exit(0 if own.info("t").row_count == 0 else 1)
            finally:
                os._exit(2)

        assert os.waitpid(child, 0)[1] == 0


def test_a_client_that_sent_nothing_closes_and_a_closed_one_opens_again(service: Service) -> None:
    client = TableClient(service.url, token=service.token)
    client.close()
    assert client.info("t").row_count == 0
    client.close()
    assert client.info("t").row_count == 0
    client.close()


def test_the_async_face_is_a_context(service: Service) -> None:
    async def work() -> Any:
        async with AsyncTableClient(service.url, token=service.token) as client:
            return (await client.info("t")).row_count

    assert asyncio.run(work()) == 0
