"""Bodies: what they know of themselves, and what they give when opened, once or again."""

import io
import os
import tempfile
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from airflow_tds.client.errors import ValidationFailed
from airflow_tds.client.payloads import CHUNK, Body, Keeper, body_of
from airflow_tds.client.rows import RowLayout

LAYOUT = RowLayout("lines")


def read(body: Body) -> bytes:
    return b"".join(body.open())


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def at(file: io.BytesIO, position: int) -> io.BytesIO:
    file.seek(position)
    return file


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"abc", b"abc"),
        (b"", b""),
        (bytearray(b"abc"), b"abc"),
        (memoryview(b"abc"), b"abc"),
        ("zürich", "zürich".encode()),
        (io.BytesIO(b"abc"), b"abc"),
        (at(io.BytesIO(b"0123456789"), 4), b"456789"),
    ],
)
def test_what_is_at_hand_has_a_length_and_can_be_sent_again(data: Any, expected: bytes) -> None:
    body = body_of(data)

    assert (body.length, body.replayable) == (len(expected), True)
    assert [read(body), read(body)] == [expected, expected]


@pytest.mark.parametrize(
    ("data", "expected"), [(iter([b"a", b"b"]), b"ab"), ([b"a", b"b"], b"ab"), ((x for x in [b"ab"]), b"ab")]
)
def test_chunks_have_no_length_and_are_sent_once(data: Any, expected: bytes) -> None:
    body = body_of(data)

    assert (body.length, body.replayable) == (None, False)
    assert read(body) == expected


def test_a_callable_gives_its_chunks_each_time() -> None:
    body = body_of(lambda: [b"a", b"b"])

    assert (body.length, body.replayable) == (None, True)
    assert [read(body), read(body)] == [b"ab", b"ab"]


def test_a_path_has_a_length_and_can_be_sent_again(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b"abc")

    body = body_of(path)

    assert (body.length, body.replayable) == (3, True)
    assert [read(body), read(body)] == [b"abc", b"abc"]


def test_a_path_that_names_no_file_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    with pytest.raises(ValidationFailed, match="no file"):
        body_of(tmp_path)


def test_text_that_names_a_file_is_taken_for_a_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows.csv").write_bytes(b"abc")

    with pytest.raises(ValidationFailed, match=r"give Path\('rows.csv'\)"):
        body_of("rows.csv")
    assert read(body_of("other.csv")) == b"other.csv"
    assert read(body_of("rows.csv\n")) == b"rows.csv\n"


@pytest.mark.parametrize("text", ["a\0b", "x" * 5000, "ü" * 255])
def test_text_that_can_name_no_file_is_text(text: str) -> None:
    assert read(body_of(text)) == text.encode()


def test_text_that_is_no_unicode_is_refused() -> None:
    with pytest.raises(ValidationFailed, match="no valid Unicode"):
        body_of("\ud800\n")


def test_a_file_is_closed_when_its_body_is_given_up_half_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(bytes(2 * CHUNK))
    before = open_files()
    pieces = body_of(path).open()
    next(pieces)

    pieces.close()

    assert open_files() == before


def test_a_body_that_is_opened_and_never_read_opens_no_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b"abc")
    before = open_files()

    pieces = body_of(path).open()

    assert open_files() == before
    pieces.close()


def test_a_pipe_is_sent_once_from_where_it_stands() -> None:
    out, into = os.pipe()
    os.write(into, b"abc")
    os.close(into)
    with os.fdopen(out, "rb") as file:
        body = body_of(file)

        assert (body.length, body.replayable) == (None, False)
        assert read(body) == b"abc"


def test_a_pipe_that_does_not_wait_for_its_data_is_refused_rather_than_cut() -> None:
    out, into = os.pipe()
    os.set_blocking(out, False)
    with os.fdopen(out, "rb", buffering=0) as file:
        body = body_of(file)
        with pytest.raises(ValidationFailed, match="NoneType"):
            read(body)
    os.close(into)


def test_a_file_like_that_knows_nothing_of_seeking_is_sent_once() -> None:
    class Stream:
        def __init__(self) -> None:
            self._file = io.BytesIO(b"abc")

        def read(self, size: int) -> bytes:
            return self._file.read(size)

    body = body_of(Stream())  # type: ignore[arg-type]  # what some HTTP libraries give

    assert (body.length, body.replayable, read(body)) == (None, False, b"abc")


@pytest.mark.parametrize(
    "make", [io.StringIO, partial(tempfile.NamedTemporaryFile, "w+"), partial(tempfile.TemporaryFile, "w+")]
)
def test_a_file_opened_as_text_is_refused(make: Callable[[], Any]) -> None:
    with make() as file, pytest.raises(ValidationFailed, match="'rb'"):
        body_of(file)


@pytest.mark.parametrize("data", [None, 7, {"a": 1}, object()])
def test_what_cannot_be_sent_is_refused(data: Any) -> None:
    with pytest.raises(ValidationFailed, match="cannot send"):
        body_of(data)


@pytest.mark.parametrize("make", [list, iter], ids=["list", "stream"])
@pytest.mark.parametrize(("items", "kind"), [(["text"], "a str"), ([1], "a int"), ([None], "a NoneType")])
def test_what_is_neither_rows_nor_chunks_is_refused_at_once(make: Any, items: Any, kind: str) -> None:
    with pytest.raises(ValidationFailed, match=f"the payload holds {kind}: give rows"):
        body_of(make(items), LAYOUT)


@pytest.mark.parametrize("items", [[{"a": 1}, b"x"], [b"x", {"a": 1}]])
def test_a_list_that_mixes_rows_and_chunks_is_refused_at_once(items: Any) -> None:
    with pytest.raises(ValidationFailed, match="the payload holds rows and chunks"):
        body_of(items, LAYOUT)


@pytest.mark.parametrize(
    ("items", "text"),
    [([{"a": 1}, b"x"], "row 2 is a bytes"), ([b"x", {"a": 1}], "gave a dict where bytes are needed")],
)
def test_a_stream_that_mixes_rows_and_chunks_is_refused_where_it_does(items: Any, text: str) -> None:
    with pytest.raises(ValidationFailed, match=text):
        read(body_of(iter(items), LAYOUT))


def test_a_list_of_rows_is_measured_and_can_be_sent_again() -> None:
    body = body_of([{"a": 1}, {"a": 2}], LAYOUT)

    assert (body.length, body.replayable) == (16, True)
    assert [read(body), read(body)] == [b'{"a":1}\n{"a":2}\n'] * 2


def test_a_stream_of_rows_is_sent_once() -> None:
    body = body_of(({"a": number} for number in range(2)), LAYOUT)

    assert (body.length, body.replayable) == (None, False)
    assert [read(body), read(body)] == [b'{"a":0}\n{"a":1}\n', b""]


def test_a_callable_may_give_rows() -> None:
    body = body_of(lambda: [{"a": 1}], LAYOUT)

    assert (body.length, body.replayable) == (None, True)
    assert [read(body), read(body)] == [b'{"a":1}\n'] * 2


@pytest.mark.parametrize("rows", [[{"a": 1}], iter([{"a": 1}]), lambda: [{"a": 1}]], ids=["list", "stream", "callable"])
def test_rows_without_a_format_in_which_they_are_written_are_refused(rows: Any) -> None:
    with pytest.raises(ValidationFailed, match=r"name one as the format; for parquet, .* give its path"):
        read(body_of(rows))


def test_no_items_are_no_rows_where_rows_have_a_layout() -> None:
    assert read(body_of([], RowLayout("records"))) == b"[]"
    assert read(body_of([])) == b""


def test_rows_take_constant_memory_beyond_themselves() -> None:
    rows: Any = [{"text": "x" * 2000}] * 15_000
    tracemalloc.start()
    try:
        size = sum(map(len, body_of(rows, RowLayout("records")).open()))
        assert size > 30_000_000
        assert tracemalloc.get_traced_memory()[1] < 15_000_000
    finally:
        tracemalloc.stop()


def test_a_generator_is_closed_when_its_body_is_given_up_half_read() -> None:
    def chunks() -> Iterator[bytes]:
        try:
            while True:
                yield bytes(CHUNK)
        finally:
            closed.append(True)

    closed: list[bool] = []
    pieces = body_of(chunks()).open()
    next(pieces)
    pieces.close()

    assert closed == [True]


def test_an_async_iterable_is_refused_where_there_is_no_event_loop_to_ask() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"x"

    with pytest.raises(ValidationFailed, match="AsyncTableClient only"):
        body_of(chunks())


def test_small_chunks_are_gathered_and_none_is_empty() -> None:
    pieces = list(body_of([b"x" * 1000, b""] * 1000).open())

    assert sum(map(len, pieces)) == 1_000_000
    assert len(pieces) == 4


def lines() -> Iterator[bytes]:
    for number in range(20):
        yield bytes([number]) * CHUNK


WHOLE = b"".join(lines())


def test_a_keeper_gives_a_stream_again_from_its_start_after_it_broke() -> None:
    with Keeper(body_of(lines())) as keeper:
        body = keeper.body()
        first = body.open()
        for _ in range(7):
            next(first)
        first.close()

        assert (body.length, body.replayable) == (None, True)
        assert [read(body), read(body)] == [WHOLE, WHOLE]


def test_a_keeper_measures_what_was_half_sent() -> None:
    with Keeper(body_of(lines())) as keeper:
        first = keeper.body().open()
        next(first)

        body = keeper.measured()

        assert (body.length, body.replayable) == (len(WHOLE), True)
        assert [read(body), read(body)] == [WHOLE, WHOLE]


def test_a_source_that_broke_off_is_never_taken_for_the_whole() -> None:
    def broken() -> Iterator[bytes]:
        yield b"x" * CHUNK
        raise OSError("the disk is gone")

    with Keeper(body_of(broken())) as keeper:
        with pytest.raises(OSError, match="disk"):
            read(keeper.body())

        with pytest.raises(ValidationFailed, match="broke off"):
            read(keeper.body())
