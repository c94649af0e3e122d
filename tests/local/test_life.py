"""Start, stop, restart, and kill -9: nothing acknowledged is lost, nothing is applied twice."""

from __future__ import annotations

import random
import resource
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import duckdb
import httpx
import pytest
from caller import Caller
from service_process import ServiceProcess

from airflow_tds.local import Service
from airflow_tds.local.store import StoreUnavailable

_ROWS_PER_JOB = 20_000
ROWS = b"a\n1\n2\n"


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Service]:
    """A service on a directory that stays."""
    running = Service(tmp_path / "data", ["t"], token="token")
    running.start()
    yield running
    running.stop()


def test_a_restart_keeps_tables_jobs_and_links(kept: Service) -> None:
    caller = Caller(kept.url, kept.token)
    job = caller.write("upload", "t", ROWS)
    info = caller.info("t")
    begun = caller.initiate("append", "t").json()
    kept.stop()
    kept.start()
    assert caller.info("t") == info
    assert caller.job(job["job_id"]) == job
    assert caller.put(begun["upload_url"], ROWS).status_code == 200
    assert caller.settled(begun["job_id"])["status"] == "COMPLETED"
    assert caller.info("t")["row_count"] == 4
    caller.close()


def test_a_clock_that_is_set_back_holds_up_no_job(kept: Service) -> None:
    caller, clock = Caller(kept.url, kept.token), kept._store.clock
    kept.hold()
    kept._store.clock = lambda: clock() + 3600
    job = caller.submit("upload", "t", ROWS)
    kept._store.clock = clock
    kept.release()
    assert caller.settled(job)["status"] == "COMPLETED"
    caller.close()


def test_queued_jobs_go_on_after_a_restart_in_their_order(kept: Service) -> None:
    caller = Caller(kept.url, kept.token)
    kept.hold()
    jobs = [caller.submit("append", "t", b"a\n%d\n" % number) for number in range(3)]
    query = caller.submit("append", "t", b"a\nnone\n")
    kept.stop()
    kept.start()
    assert [caller.settled(job)["status"] for job in jobs] == ["COMPLETED"] * 3
    assert caller.settled(query)["status"] == "FAILED"
    assert [row["a"] for row in caller.rows("t")] == [0, 1, 2]
    caller.close()


def test_files_that_no_job_needs_are_removed(kept: Service, tmp_path: Path) -> None:
    caller = Caller(kept.url, kept.token)
    caller.write("upload", "t", ROWS)
    assert list((tmp_path / "data" / "payloads").iterdir()) == []
    kept.stop()
    for name in ("payloads/left.part", "results/left.part", "tmp/left"):
        (tmp_path / "data" / name).write_bytes(b"x")
    kept.start()
    left = [path.name for name in ("payloads", "results", "tmp") for path in (tmp_path / "data" / name).iterdir()]
    assert left == []
    caller.close()


def test_the_signing_key_is_private(kept: Service, tmp_path: Path) -> None:
    assert stat.S_IMODE((tmp_path / "data" / "signing.key").stat().st_mode) == 0o600


def test_the_command_serves_until_it_is_told_to_stop(tmp_path: Path) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        with ServiceProcess(tmp_path, "--table", "t") as command:
            caller = command.caller()
            assert caller.info("t")["row_count"] == 0
            assert command.told["url"] in command.line
            assert command.told["token"] in command.line
            assert stat.S_IMODE(command.ready.stat().st_mode) == 0o600
            command.process.send_signal(number)
            assert command.process.wait() == 0
            assert command.process.stdout is not None
            printed = command.process.stdout.read().splitlines()
            assert [line.partition(":")[0] for line in printed] == [
                "Connection as URI",
                "Connection as JSON",
                "Page for people",
            ]
            caller.close()


def test_a_second_service_on_the_directory_says_so_in_one_sentence(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path) as command:
        second = subprocess.run(command.command, capture_output=True, text=True, check=False)
    assert (second.returncode, second.stdout) == (1, "")
    assert second.stderr.count("\n") == 1
    assert "another service uses" in second.stderr


def test_a_second_service_in_the_same_process_is_kept_out_too(kept: Service, tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="another service uses"):
        Service(tmp_path / "data").start()
    assert kept.url


def test_a_database_that_cannot_be_read_is_said_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "store.duckdb").write_bytes(b"no database" * 1000)
    failed = subprocess.run(ServiceProcess(tmp_path).command, capture_output=True, text=True, check=False)
    assert (failed.returncode, failed.stderr.count("\n")) == (1, 1)
    assert "cannot be opened" in failed.stderr


def test_a_directory_may_have_any_name(tmp_path: Path) -> None:
    with Service(tmp_path / 'it\'s "a" [dir], ü', ["t"], token="token") as odd:
        caller = Caller(odd.url, odd.token)
        assert caller.write("upload", "t", ROWS)["status"] == "COMPLETED"
        assert caller.rows("t") == [{"a": 1}, {"a": 2}]
        caller.close()


def test_a_table_without_a_name_is_refused_at_start(tmp_path: Path) -> None:
    failed = subprocess.run(
        [*ServiceProcess(tmp_path).command, "--table", ""], capture_output=True, text=True, check=False
    )
    assert (failed.returncode, failed.stderr.count("\n")) == (1, 1)


def test_a_stopped_service_can_be_stopped_again(kept: Service) -> None:
    kept.stop()
    kept.stop()
    kept.start()
    assert httpx.get(kept.url).status_code == 200


def test_a_deletion_that_waits_when_the_service_stops_is_done_at_the_next_start(kept: Service) -> None:
    caller = Caller(kept.url, kept.token)
    caller.write("upload", "t", ROWS)
    kept.hold()
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(caller.http.post, "/tables/t/data/delete", json={"filters": ["a:eq:1"]})
        while not kept._store._ends:
            pass
        kept.stop()
        reply = asked.result()
    assert (reply.status_code, reply.headers.get("retry-after")) == (503, None)
    kept.start()
    while caller.info("t")["row_count"] == 2:
        pass
    assert caller.rows("t") == [{"a": 2}]
    caller.close()


def test_a_job_starts_no_earlier_than_its_delay(tmp_path: Path) -> None:
    with Service(tmp_path / "data", ["t"], token="token", job_delay=0.3) as slow:
        caller = Caller(slow.url, slow.token)
        job_id = caller.submit("upload", "t", ROWS)
        assert caller.job(job_id)["status"] == "QUEUED"
        job = slow._store.job(caller.settled(job_id)["job_id"])
        assert job.finished_at is not None
        assert job.queued_at is not None
        assert job.finished_at - job.queued_at >= 0.3
        caller.close()


def test_a_job_starts_once_its_status_was_read_often_enough(tmp_path: Path) -> None:
    with Service(tmp_path / "data", ["t"], token="token", job_reads=3) as shy:
        caller = Caller(shy.url, shy.token)
        job_id = caller.submit("upload", "t", ROWS)
        assert [caller.job(job_id)["status"] for _ in range(3)] == ["QUEUED"] * 3
        assert caller.settled(job_id)["status"] == "COMPLETED"
        caller.truncate("t")
        assert caller.info("t")["row_count"] == 0
        caller.close()


def test_a_query_starts_once_it_was_polled_often_enough(tmp_path: Path) -> None:
    with Service(tmp_path / "data", ["t"], token="token", job_reads=2) as shy:
        caller = Caller(shy.url, shy.token)
        caller.write("upload", "t", ROWS)
        job_id = caller.http.post("/data/queries", json={"table_id": "t"}).json()["job_id"]
        assert [caller.http.get(f"/data/query/{job_id}").status_code for _ in range(2)] == [202, 202]
        while caller.http.get(f"/data/query/{job_id}").status_code == 202:
            pass
        assert caller.http.get(f"/data/query/{job_id}").status_code == 307
        caller.close()


def test_an_address_that_is_taken_is_said_in_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = ServiceProcess(tmp_path, "--port", port).command
        failed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert failed.returncode == 1
    assert failed.stderr.count("\n") == 1


def test_a_full_disk_fails_jobs_cleanly_and_the_service_goes_on_after_it(tmp_path: Path) -> None:
    with (
        ServiceProcess(tmp_path, "--token", "token", "--table", "t") as command,
        closing(command.caller()) as caller,
    ):
        assert attempt(caller, 0, count=300_000) == "COMPLETED"
        # A limit on the size of a file stands for the disk: the log can grow, and the checkpoint after it fails.
        limit_files(command, 18 << 20)
        states = [attempt(caller, 1)]
        while set(states) == {"COMPLETED"}:  # how far the log reaches depends on when the service was idle
            assert len(states) < 99, "the limit was never reached"
            states.append(attempt(caller, len(states) + 1))
        states += [attempt(caller, len(states) + more) for more in (1, 2, 3)]
        limit_files(command, resource.RLIM_INFINITY)
        last = len(states) + 1
        while attempt(caller, last) == "503":
            pass
        (tmp_path / "result.parquet").write_bytes(caller.ask(table_id="t", select=["a"]).content)
        counts = duckdb.read_parquet(str(tmp_path / "result.parquet")).aggregate("a, count(*)").fetchall()
        done = [number for number, state in enumerate(states, 1) if state == "COMPLETED"]
        assert sorted(counts) == [(0, 300_000), *((number, _ROWS_PER_JOB) for number in [*done, last])]


def limit_files(command: ServiceProcess, size: int) -> None:
    """Set the largest file that the service may write, in bytes."""
    resource.prlimit(command.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def attempt(caller: Caller, number: int, count: int = _ROWS_PER_JOB) -> str:
    """Append incompressible rows; give what became of it."""
    begun = caller.initiate("append", "t")
    if begun.status_code == 503:
        return "503"
    noise = random.Random(number).randbytes(count * 32).hex()  # noqa: S311  # no secret
    data = "a,b\n" + "".join(f"{number},{noise[n * 64 : n * 64 + 64]}\n" for n in range(count))
    if caller.put(begun.json()["upload_url"], data.encode()).status_code == 503:
        return "503"
    status: str = caller.settled(begun.json()["job_id"])["status"]
    return status


def test_no_kill_loses_an_acknowledged_job_or_applies_one_in_part_or_twice(tmp_path: Path) -> None:
    acknowledged: dict[str, int] = {}
    chance = random.Random(7)  # noqa: S311  # a reproducible choice, no secret
    for life in range(10):
        with ServiceProcess(tmp_path, "--token", "token", "--table", "t") as command:
            caller = command.caller()
            assert_applied_once(caller, acknowledged, tmp_path)
            submit(caller, acknowledged, range(life * 10, life * 10 + 5))
            # The last transfer is cut, or its job is: what the service is at depends on how often it was asked.
            if life % 3 == 0:
                cut_transfer(command, caller, life * 10 + 9)
            else:
                for _ in range(chance.randrange(100)):
                    caller.info("t")
            caller.close()
    with ServiceProcess(tmp_path, "--token", "token") as command:
        caller = command.caller()
        assert_applied_once(caller, acknowledged, tmp_path)
        caller.close()


def rows(number: int) -> bytes:
    return b"a\n" + b"%d\n" % number * _ROWS_PER_JOB


def submit(caller: Caller, acknowledged: dict[str, int], numbers: range) -> None:
    """Append many rows per job, all with the job's number."""
    for number in numbers:
        acknowledged[caller.submit("append", "t", rows(number))] = number


def cut_transfer(command: ServiceProcess, caller: Caller, number: int) -> None:
    """Kill the service in the middle of a body; its job is not acknowledged and must not be applied."""
    url = caller.initiate("append", "t").json()["upload_url"]

    def body() -> Iterator[bytes]:
        yield rows(number)
        command.process.kill()
        yield b"the end\n"

    with suppress(httpx.TransportError):
        caller.store.put(url, content=body())
    command.process.wait()


def assert_applied_once(caller: Caller, acknowledged: dict[str, int], folder: Path) -> None:
    """Every acknowledged job comes to its end, and left each of its rows once; the others left none."""
    assert all(caller.settled(job_id)["status"] == "COMPLETED" for job_id in acknowledged)
    if not acknowledged:
        return
    (folder / "result.parquet").write_bytes(caller.ask(table_id="t").content)
    counts = duckdb.read_parquet(str(folder / "result.parquet")).aggregate("a, count(*)").fetchall()
    assert sorted(counts) == [(number, _ROWS_PER_JOB) for number in sorted(acknowledged.values())]


def test_no_kill_leaves_half_an_overwrite_or_half_a_deletion(tmp_path: Path) -> None:
    acknowledged: list[str] = []
    chance = random.Random(11)  # noqa: S311  # a reproducible choice, no secret
    for life in range(6):
        with ServiceProcess(tmp_path, "--token", "token", "--table", "t") as command, ThreadPoolExecutor() as pool:
            caller = command.caller()
            assert_whole(caller, acknowledged, life * 10 - 10)
            acknowledged = [caller.submit("overwrite", "t", rows(life * 10))]
            acknowledged.append(caller.submit("append", "t", rows(life * 10 + 1)))
            deletion = pool.submit(delete, caller, f"a:eq:{life * 10}")
            for _ in range(chance.randrange(60)):
                caller.job(acknowledged[0])
            command.process.kill()
            deletion.result()
            caller.close()
    with ServiceProcess(tmp_path, "--token", "token") as command:
        caller = command.caller()
        assert_whole(caller, acknowledged, 50)
        caller.close()


def delete(caller: Caller, expression: str) -> None:
    """Ask for a deletion whose answer may never come."""
    with Caller(caller.url, caller.token).http as asking, suppress(httpx.TransportError):
        asking.post("/tables/t/data/delete", json={"filters": [expression]})


def assert_whole(caller: Caller, acknowledged: list[str], number: int) -> None:
    """The overwrite and the append left each of their rows once; the deletion took all of its rows or none."""
    if not acknowledged:
        return
    assert [caller.settled(job_id)["status"] for job_id in acknowledged] == ["COMPLETED"] * 2
    counts = [
        caller.http.get("/tables/t/data/query", params={"filters": f"a:{test}", "limit": 1}).json()["metadata"]
        for test in (f"lt:{number}", f"eq:{number}", f"eq:{number + 1}", f"gt:{number + 1}")
    ]
    found = [each["total_count"] for each in counts]
    assert found in ([0, _ROWS_PER_JOB, _ROWS_PER_JOB, 0], [0, 0, _ROWS_PER_JOB, 0])
    assert caller.info("t")["row_count"] == sum(found)
