"""Where results go: whole or not at all, as a file or as an object."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import objects_in_memory
from thorough import THOROUGH

from airflow_tds.client.errors import UnexpectedReply, ValidationFailed
from airflow_tds.outputs import Output, check_whole, output_of


@pytest.fixture(params=["file", "uri", "object"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place of each kind."""
    objects_in_memory()
    places = {"file": f"{tmp_path}/r.csv", "uri": f"file://{tmp_path}/r.csv"}
    return places.get(request.param, f"memory://out/{tmp_path.name}/r.csv")


@pytest.fixture
def names(place: str, tmp_path: Path) -> Callable[[], list[str]]:
    """What lies beside the result, by name."""
    folder = f"/out/{tmp_path.name}"
    store = objects_in_memory()

    def listed() -> list[str]:
        if not place.startswith("memory://"):
            return sorted(path.name for path in tmp_path.iterdir())
        return (
            sorted(path.rpartition("/")[2] for path in store.ls(folder, detail=False)) if store.exists(folder) else []
        )

    return listed


def fill(output: Output, text: str) -> None:
    with output.filling() as file:
        file.write_text(text)


def break_off(output: Output, text: str) -> None:
    with output.filling() as file:
        file.write_text(text)
        file.with_name("none").read_text()


def test_a_result_is_in_place_when_it_is_complete(place: str, names: Callable[[], list[str]]) -> None:
    output = output_of(place, None, "fail")
    fill(output, "id\n1\n")

    assert (output.exists(), output.size(), output.uri) == (True, 5, place)
    assert names() == ["r.csv"]


def test_a_result_that_breaks_off_leaves_nothing(place: str, names: Callable[[], list[str]]) -> None:
    output = output_of(place, None, "fail")

    with pytest.raises(FileNotFoundError):
        break_off(output, "id\n")
    assert not output.exists()
    assert names() == []


def test_a_result_that_breaks_off_leaves_what_was_there(place: str) -> None:
    fill(output_of(place, None, "fail"), "old")
    output = output_of(place, None, "replace")

    with pytest.raises(FileNotFoundError):
        break_off(output, "newer")
    assert output.size() == 3


def test_a_complete_result_replaces_what_was_there(place: str, names: Callable[[], list[str]]) -> None:
    fill(output_of(place, None, "fail"), "old")
    output = output_of(place, None, "replace")
    fill(output, "newer")

    assert output.size() == 5
    assert names() == ["r.csv"]


def test_what_is_there_is_kept_skipped_or_refused(place: str) -> None:
    assert not output_of(place, None, "fail").keeps_existing()
    fill(output_of(place, None, "fail"), "old")

    assert output_of(place, None, "skip").keeps_existing()
    assert not output_of(place, None, "replace").keeps_existing()
    with pytest.raises(ValidationFailed, match=r"r\.csv is there; if_exists='replace' or 'skip' allows that"):
        output_of(place, None, "fail").keeps_existing()


def test_what_could_not_be_moved_leaves_no_part(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    store = objects_in_memory()
    output = output_of(f"memory://out/{tmp_path.name}/r.csv", None, "fail")

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError("no")

    monkeypatch.setattr(store, "mv", refuse)
    with pytest.raises(PermissionError):
        fill(output, "id\n")
    assert store.ls(f"/out/{tmp_path.name}") == []


def test_a_bucket_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise FileNotFoundError("The specified bucket does not exist")  # as s3fs says it

    monkeypatch.setattr(objects_in_memory(), "put_file", refuse)
    with pytest.raises(
        ValidationFailed, match=r"memory://none/r.csv' cannot be written: The specified bucket does not"
    ):
        fill(output_of("memory://none/r.csv", None, "fail"), "id\n")


@pytest.mark.parametrize("protocol", ["s3", ("gs", "gcs"), ("s3", "s3a")])
def test_a_store_in_which_objects_appear_whole_gets_them_under_their_own_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, protocol: Any
) -> None:
    store = objects_in_memory()
    monkeypatch.setattr(type(store), "protocol", protocol)
    put: list[str] = []
    monkeypatch.setattr(store, "put_file", lambda local, remote: put.append(remote))

    fill(output_of(f"memory://out/{tmp_path.name}/r.csv", None, "fail"), "id\n")

    assert put == [f"/out/{tmp_path.name}/r.csv"]


def test_the_mode_of_a_file_is_the_users(tmp_path: Path) -> None:
    usual = tmp_path / "usual"
    usual.touch()
    fill(output_of(tmp_path / "r.csv", None, "fail"), "id\n")

    assert (tmp_path / "r.csv").stat().st_mode == usual.stat().st_mode


@pytest.mark.parametrize(
    ("destination", "if_exists", "text"),
    [
        ("/there/is/none/r.csv", "fail", "not in a local directory that exists"),
        ("file://r.csv", "fail", "destination: a file is named by its whole path, as in file:///folder/name"),
        ("s3://bucket/key", "fail", "destination: no file system is known for s3://"),
        ("r.csv", "append", "if_exists is fail, replace or skip, not 'append'"),
    ],
)
def test_a_place_that_cannot_be_is_refused(destination: str, if_exists: str, text: str) -> None:
    with pytest.raises(ValidationFailed, match=text):
        output_of(destination, None, if_exists)


def test_a_link_is_replaced_and_what_it_leads_to_is_left_alone(tmp_path: Path) -> None:
    elsewhere, link = tmp_path / "elsewhere.csv", tmp_path / "r.csv"
    elsewhere.write_text("precious")
    link.symlink_to(elsewhere)
    fill(output_of(link, None, "replace"), "id\n1\n")

    assert (elsewhere.read_text(), link.read_text(), link.is_symlink()) == ("precious", "id\n1\n", False)


def test_a_pipe_is_replaced_and_its_reader_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "r.csv")
    fill(output_of(tmp_path / "r.csv", None, "replace"), "id\n1\n")

    assert (tmp_path / "r.csv").read_text() == "id\n1\n"


def test_a_file_is_its_owners_alone_until_it_is_complete(tmp_path: Path) -> None:
    with output_of(tmp_path / "r.csv", None, "fail").filling() as file:
        assert file.stat().st_mode & 0o777 == 0o600
        assert file.parent == tmp_path


@pytest.mark.parametrize("name", ["x" * 250, "nul\0name", ".."], ids=["long", "nul", "above"])
def test_a_name_that_no_file_can_have_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValidationFailed, match="is not in a local directory"):
        output_of(f"{tmp_path}/{name}", None, "replace")


def test_a_directory_is_no_destination_and_stays(tmp_path: Path) -> None:
    (tmp_path / "r.csv").mkdir()
    with pytest.raises(ValidationFailed, match="is a directory"):
        fill(output_of(tmp_path / "r.csv", None, "replace"), "id\n")

    assert [path.name for path in tmp_path.iterdir()] == ["r.csv"]


def test_what_a_killed_try_left_long_ago_is_removed(tmp_path: Path) -> None:
    old, young, others = (tmp_path / f".{name}.part" for name in ("r.csv.a", "r.csv.b", "s.csv.c"))
    for part in (old, young, others):
        part.write_text("half")
    os.utime(old, (0, 0))
    os.utime(others, (0, 0))
    fill(output_of(tmp_path / "r.csv", None, "fail"), "id\n")

    assert sorted(path.name for path in tmp_path.iterdir()) == [young.name, others.name, "r.csv"]


#: Fills a target again and again in children, and kills each at some moment of its work; says how many parts it left.
KILLS = """
import os, random, signal, sys, time
from pathlib import Path
from airflow_tds.outputs import output_of

target, piece, pieces = Path(sys.argv[1]), b"x" * 4096, 16

def filled():
    with output_of(target, None, "replace").filling() as file, file.open("wb", buffering=0) as out:
        for _ in range(pieces):
            out.write(piece)

began = time.monotonic()
filled()
usual = time.monotonic() - began
for _ in range(int(sys.argv[2])):
    target.unlink(missing_ok=True)
    child = os.fork()
    if not child:
        filled()
        os._exit(0)
    time.sleep(random.uniform(0, 2 * usual))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert not target.exists() or target.read_bytes() == piece * pieces
print(len(list(target.parent.glob("*.part"))))
"""


def test_a_process_that_is_killed_never_leaves_half_a_result_in_place(tmp_path: Path) -> None:
    kills = str(THOROUGH or 100)
    done = subprocess.run(
        [sys.executable, "-c", KILLS, tmp_path / "r.csv", kills], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0  # some were killed in the middle of it


@pytest.mark.parametrize(
    ("content", "data_format"),
    [(b"PAR1 body", "parquet"), (b"body PAR1", "parquet"), (b"PAR1", "parquet"), (b"", "parquet"), (b"PAR1 body", "")],
)
def test_a_parquet_file_that_is_not_whole_is_refused(content: bytes, data_format: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(UnexpectedReply, match="no whole parquet file"):
        check_whole(tmp_path / "f", data_format)


@pytest.mark.parametrize(
    ("content", "data_format"),
    [(b"PAR1 body PAR1", "parquet"), (b"PAR1,b\n1,2\n", "csv"), (b"[]", "json"), (b"a,b\n", "")],
)
def test_what_is_whole_passes(content: bytes, data_format: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(content)

    check_whole(tmp_path / "f", data_format)
