"""How a payload gets to the service: by initiation and PUT, by PUT and commit, or in the request; both faces.

And what a 404 means where a route is only assumed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from scripted import Run, answer

from airflow_tds.client import errors
from airflow_tds.client.client import AsyncTableClient, TableClient
from airflow_tds.client.messages import Reply, SecretUrl
from airflow_tds.client.wire import Initiation, Wire
from airflow_tds.local import Service

URL = "https://store.example/put/1?sig=0123456789abcdef"
PAGE = answer({"items": [], "metadata": {"has_next": False}})
OPERATIONS = ("upload", "append", "overwrite", "upsert")


def strategies(strategy: str) -> Wire:
    return Wire.from_setting({operation: {"strategy": strategy} for operation in OPERATIONS})


def call(client: Any, operation: str, data: Any = b"a\n1\n", *, submit: bool = True, **more: Any) -> Any:
    keys = {"key_columns": ["a"]} if operation == "upsert" else {}
    return getattr(client, f"submit_{operation}" if submit else operation)("t", data, **keys, **more)


def chunks() -> Iterator[bytes]:
    yield b"a\n"
    yield b"1\n"


LINES = {
    "upload": "POST /tables/t/data/upload",
    "append": "PATCH /tables/t/data",
    "overwrite": "POST /tables/t/data/overwrite",
    "upsert": "POST /tables/t/data/upsert",
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_put_and_commit(scripted: Any, run: Run, operation: str) -> None:
    presigned = answer({"upload_url": URL, "object": "o1", "upload_headers": {"x-a": "b"}})
    runtime, client = scripted(presigned, Reply(200), answer({"job_id": "j1"}), wire=strategies("put_commit"))

    assert run(call(client, operation)) == "j1"

    presign, put, commit = runtime.requests
    assert (runtime.lines[0], presign.json) == ("POST /tables/t/data/uploads", {"format": "csv"})
    assert (put.target.reveal(), put.headers, runtime.payloads[1]) == (URL, {"x-a": "b"}, b"a\n1\n")
    mode = {} if operation == "upload" else {"update_mode": operation}
    keys = {"key_columns": ["a"]} if operation == "upsert" else {}
    assert runtime.lines[2] == LINES[operation]
    assert commit.json == {"format": "csv", "object": "o1"} | mode | keys
    assert put.subject == "object o1"
    assert commit.repeat == "if_unsent"


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("data", [b"a\n1\n", chunks], ids=["known", "unknown"])
def test_direct(scripted: Any, run: Run, operation: str, data: Any) -> None:
    runtime, client = scripted(answer({"job_id": "j1"}), wire=strategies("direct"))

    assert run(call(client, operation, data)) == "j1"

    mode = "" if operation == "upload" else f"?update_mode={operation}"
    keys = "&key_columns=a" if operation == "upsert" else ""
    assert runtime.lines == [f"{LINES[operation]}{mode}{keys}"]
    assert runtime.payloads == [b"a\n1\n"]
    assert (runtime.requests[0].headers, runtime.requests[0].json) == ({"Content-Type": "text/csv"}, None)


def test_a_direct_write_whose_chunks_are_refused_is_sent_again_with_its_length(scripted: Any, run: Run) -> None:
    runtime, client = scripted(Reply(411), answer({"job_id": "j1"}), wire=strategies("direct"))

    assert run(call(client, "append", chunks)) == "j1"

    assert [request.body.length for request in runtime.requests] == [None, 4]
    assert runtime.payloads == [b"a\n1\n", b"a\n1\n"]


def test_a_direct_write_that_may_have_arrived_is_not_sent_again(scripted: Any, run: Run) -> None:
    runtime, client = scripted(errors.TransportFailed("cut"), wire=strategies("direct"))

    with pytest.raises(errors.TransportFailed):
        run(call(client, "append"))
    assert len(runtime.requests) == 1


@pytest.mark.parametrize("strategy", ["put_commit", "direct"])
def test_the_blocking_form_follows_the_strategy_and_waits(scripted: Any, run: Run, strategy: str) -> None:
    start = [answer({"upload_url": URL, "object": "o1"}), Reply(200)] if strategy == "put_commit" else []
    done = answer({"status": "COMPLETED"})
    runtime, client = scripted(*start, answer({"job_id": "j1"}), done, wire=strategies(strategy))

    assert run(call(client, "append", submit=False)).status == "COMPLETED"
    assert runtime.lines[-1] == "GET /data/jobs/j1"


PRESIGNED = Initiation("", SecretUrl(URL), upload_object="o1")
STEPS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "initiate": ("initiate_put", lambda client: client.initiate("append", "t")),
    "presign": ("put_commit", lambda client: client.presign("append", "t")),
    "commit": ("put_commit", lambda client: client.commit("append", "t", PRESIGNED)),
    "submit_direct": ("direct", lambda client: client.submit_direct("append", "t", b"a\n")),
}


@pytest.mark.parametrize(
    ("step", "strategy"),
    [
        (step, strategy)
        for strategy in ("initiate_put", "put_commit", "direct")
        for step, (needed, _) in STEPS.items()
        if strategy != needed
    ],
)
def test_a_step_of_another_strategy_is_refused_before_it_is_sent(
    scripted: Any, run: Run, step: str, strategy: str
) -> None:
    needed, take = STEPS[step]
    runtime, client = scripted(wire=strategies(strategy))

    with pytest.raises(errors.ValidationFailed, match=f"append: the wire map says the strategy {strategy}.*{needed}"):
        run(take(client))
    assert runtime.requests == []


@pytest.mark.parametrize("strategy", ["initiate_put", "put_commit", "direct"])
def test_a_write_that_breaks_a_rule_is_refused_before_it_is_sent(scripted: Any, run: Run, strategy: str) -> None:
    runtime, client = scripted(wire=strategies(strategy))

    with pytest.raises(errors.ValidationFailed, match="format 'xml' is none of"):
        run(call(client, "append", format="xml"))
    assert runtime.requests == []


def test_an_upload_that_has_no_name_cannot_be_committed(scripted: Any, run: Run) -> None:
    runtime, client = scripted(answer({"upload_url": URL}), wire=strategies("put_commit"))

    with pytest.raises(errors.UnexpectedReply, match="presign: the reply holds no upload_object"):
        run(call(client, "append"))
    assert len(runtime.requests) == 1


def test_strategies_may_differ_by_operation(scripted: Any, run: Run) -> None:
    wire = Wire.from_setting({"append": {"strategy": "direct"}})
    runtime, client = scripted(answer({"job_id": "j1"}), wire=wire)

    assert run(client.submit_update("t", b"a\n", update_mode="append")) == "j1"
    assert wire.strategy("upload") == "initiate_put"
    assert len(runtime.requests) == 1


KEYED = {"idempotency_header": "Idempotency-Key", "append": {"repeat": "always"}}


def test_a_request_that_is_sent_again_carries_the_same_key(scripted: Any, run: Run) -> None:
    initiated = answer({"job_id": "j1", "upload_url": URL})
    runtime, client = scripted(
        errors.TransportFailed("cut"), initiated, Reply(200), initiated, Reply(200), wire=Wire.from_setting(KEYED)
    )

    run(call(client, "append"))
    run(call(client, "append"))

    keys = [request.headers.get("Idempotency-Key") for request in runtime.requests]
    assert keys[0] == keys[1] != keys[3]
    assert len(keys[0]) == 32
    assert keys[2] is None


def test_what_only_reads_carries_no_key(scripted: Any, run: Run) -> None:
    runtime, client = scripted(answer({"row_count": 0}), wire=Wire.from_setting(KEYED))

    run(client.info("t"))

    assert runtime.requests[0].headers == {}


def test_the_profile_patch_works_end_to_end() -> None:
    wire = Wire.from_setting("patch")
    with (
        Service(tables=["p"], wire=wire) as service,
        TableClient(service.url, token=service.token, wire=wire) as client,
    ):
        client.upload("p", b"id,name\n1,a\n2,b\n")
        client.upsert("p", b"id,name\n2,z\n", key_columns="id")
        client.append("p", b"id,name\n3,c\n")
        rows = sorted(row["name"] for row in client.iter_rows("p"))
        client.overwrite("p", b"id,name\n9,i\n")

        assert rows == ["a", "c", "z"]
        assert [row["name"] for row in client.iter_rows("p")] == ["i"]


# ---- queries whose status the job's record tells


RECORDS = Wire.from_setting({"poll_by": "get_job"})


def test_a_query_may_be_waited_for_by_its_record(scripted: Any, run: Run) -> None:
    running, completed = answer({"status": "RUNNING"}), answer({"status": "COMPLETED"})
    found = Reply(307, {"location": URL})
    runtime, client = scripted(running, completed, found, Reply(200, content=b"x", received=1), wire=RECORDS)

    assert run(client.poll_download("j1")) == b"x"
    assert runtime.lines[:3] == ["GET /data/jobs/j1", "GET /data/jobs/j1", "GET /data/query/j1"]


@pytest.mark.parametrize(
    ("last", "why"),
    [(Reply(202), "COMPLETED, yet the poll path says PENDING"), (Reply(307), "the redirect names no result")],
)
def test_a_completed_query_without_a_result_has_failed(scripted: Any, run: Run, last: Reply, why: str) -> None:
    _, client = scripted(answer({"status": "COMPLETED"}), last, wire=RECORDS)

    with pytest.raises(errors.JobFailed, match=why) as raised:
        run(client.poll_download("j1"))
    assert raised.value.job_id == "j1"


def test_a_status_of_the_poll_path_may_mean_failed(scripted: Any, run: Run) -> None:
    wire = Wire.from_setting({"poll_failed": [410, 424]})
    _, client = scripted(Reply(424, content=b'{"detail": "no such column"}'), wire=wire)

    with pytest.raises(errors.JobFailed, match="no such column"):
        run(client.poll_download("j1"))


def test_a_failure_without_a_word_names_its_status(scripted: Any, run: Run) -> None:
    _, client = scripted(Reply(410), wire=Wire.from_setting({"poll_failed": [410]}))

    with pytest.raises(errors.JobFailed, match="HTTP 410"):
        run(client.poll_download("j1"))


# ---- a missing route


PROBE = "GET /tables/t/data/query?limit=1"


@pytest.mark.parametrize("operation", ["upload", "overwrite", "upsert"])
def test_a_missing_route_is_told_from_a_missing_table(scripted: Any, run: Run, operation: str) -> None:
    runtime, client = scripted(Reply(404, content=b'{"detail": "Not Found"}', request_id="r1"), PAGE)

    with pytest.raises(errors.WireMismatch) as raised:
        run(call(client, operation))
    assert runtime.lines == [LINES[operation], PROBE]
    assert (raised.value.operation, raised.value.status, raised.value.request_id) == (operation, 404, "r1")
    text = str(raised.value)
    assert f"does not have {LINES[operation].replace('/t/', '/{table_id}/')}, which is assumed" in text
    assert f"wire setting {operation!r} overrides it, see docs/wire.md; airflow-tds doctor --scratch-table" in text


@pytest.mark.parametrize("operation", ["overwrite", "upsert"])
def test_a_missing_route_of_a_later_write_names_the_profile_and_its_danger(
    scripted: Any, run: Run, operation: str
) -> None:
    _, client = scripted(Reply(404), PAGE)

    with pytest.raises(errors.WireMismatch, match=r'"wire": "patch".*ignores update_mode would then append'):
        run(
            client.submit_update("t", b"a\n", update_mode=operation, key_columns="a" if operation == "upsert" else None)
        )


@pytest.mark.parametrize("operation", ["info", "truncate"])
def test_other_missing_routes_do_not_name_the_profile(scripted: Any, run: Run, operation: str) -> None:
    _, client = scripted(Reply(404), PAGE)

    with pytest.raises(errors.WireMismatch) as raised:
        run(getattr(client, operation)("t"))
    assert "patch" not in str(raised.value)


def test_a_missing_route_that_was_set_is_called_so(scripted: Any, run: Run) -> None:
    _, client = scripted(Reply(404), PAGE, wire=Wire.from_setting({"truncate": "DELETE /t/{table_id}"}))

    with pytest.raises(errors.WireMismatch, match=r"DELETE /t/\{table_id\}, which was set"):
        run(client.truncate("t"))


def test_a_missing_table_is_a_missing_table(scripted: Any, run: Run) -> None:
    runtime, client = scripted(Reply(404), Reply(404))

    with pytest.raises(errors.TableNotFound):
        run(client.truncate("t"))
    assert runtime.lines == ["POST /tables/t/data/truncate", PROBE]


@pytest.mark.parametrize("table_id", ["t", "none"])
def test_over_a_real_socket_a_missing_route_is_told_from_a_missing_table(
    face: str, service: Service, table_id: str
) -> None:
    wire = Wire.from_setting({"upsert": "POST /elsewhere/{table_id}"})
    kind = errors.WireMismatch if table_id == "t" else errors.TableNotFound

    async def scenario() -> None:
        async with AsyncTableClient(service.url, token=service.token, wire=wire) as client:
            await client.submit_upsert(table_id, b"a\n1\n", key_columns="a")

    def blocking() -> None:
        with TableClient(service.url, token=service.token, wire=wire) as client:
            client.submit_upsert(table_id, b"a\n1\n", key_columns="a")

    with pytest.raises(kind, match="elsewhere"):
        blocking() if face == "blocking" else asyncio.run(scenario())


@pytest.mark.parametrize("probed", [Reply(403), Reply(503), errors.TransportFailed("cut")])
def test_a_probe_that_says_nothing_leaves_the_404_with_its_doubt(scripted: Any, run: Run, probed: Any) -> None:
    _, client = scripted(Reply(404), probed)

    with pytest.raises(errors.TableNotFound, match="or the service does not have POST"):
        run(client.truncate("t"))


def test_a_method_that_is_not_allowed_needs_no_probe(scripted: Any, run: Run) -> None:
    runtime, client = scripted(Reply(405))

    with pytest.raises(errors.WireMismatch, match="wire setting 'truncate'"):
        run(client.truncate("t"))
    assert len(runtime.requests) == 1


@pytest.mark.parametrize("operation", ["append", "query"])
def test_a_fixed_route_is_not_probed(scripted: Any, run: Run, operation: str) -> None:
    runtime, client = scripted(Reply(404))

    with pytest.raises(errors.TableNotFound):
        run(call(client, "append") if operation == "append" else client.query("t"))
    assert len(runtime.requests) == 1
