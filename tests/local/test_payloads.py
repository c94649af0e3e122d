"""What a payload may hold: exactly values of the table's columns, and everything else by name."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pytest
from caller import Caller

from airflow_tds.local.payloads.formats import open_payload


def fails(caller: Caller, table: str, data: bytes, data_format: str = "csv") -> str:
    before = caller.info(table)
    job = caller.write("append", table, data, data_format)
    assert job["status"] == "FAILED"
    assert caller.info(table) == before
    error: str = job["error"]
    return error


@pytest.fixture(scope="module")
def typed(caller: Caller) -> str:
    """A table with a column of each type that text formats infer."""
    table: str = caller.create("typed")
    row = b"1,1.5,true,2024-01-05,2024-01-05 10:00:00,2024-01-05T10:00:00+02:00,99999999999999999999,x"
    assert caller.write("upload", table, b"i,d,b,day,at,zoned,big,t\n" + row + b"\n")["status"] == "COMPLETED"
    return table


def one(column: str, value: str) -> bytes:
    columns = ("i", "d", "b", "day", "at", "zoned", "big", "t")
    return f"{','.join(columns)}\n{','.join(value if name == column else '' for name in columns)}\n".encode()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("i", "3.7"),
        ("i", "0x10"),
        ("i", "1_000"),
        ("i", "1e3"),
        ("i", " 5 "),
        ("i", "99999999999999999999"),
        ("d", "inf"),
        ("d", "nan"),
        ("d", "1e999"),
        ("d", "1_0"),
        ("b", "yes"),
        ("b", "t"),
        ("day", "2024-01-05 23:00:00"),
        ("day", "05/01/2024"),
        ("day", "2024-02-30"),
        ("at", "2024-01-05T10:00:00+02:00"),
        ("at", "2024-01-05 10:00:00.123456789"),
        ("zoned", "2024-01-05T10:00:00"),
        ("big", "1.5"),
    ],
)
def test_a_value_that_its_column_cannot_hold_fails_the_job_by_name(
    caller: Caller, typed: str, column: str, value: str
) -> None:
    assert fails(caller, typed, one(column, value)).startswith(f"row 1, column {column!r}: {value!r} is no ")


@pytest.mark.parametrize(
    ("column", "value", "shown"),
    [
        ("i", "+5", 5),
        ("i", "-9223372036854775808", -9223372036854775808),
        ("d", "1e3", 1000.0),
        ("b", "FALSE", False),
        ("at", "2024-01-05T10:00", "2024-01-05 10:00:00"),
        ("zoned", "2024-01-05T10:00:00Z", "2024-01-05 10:00:00+00"),
        ("t", '""', ""),
        ("t", "", None),
        ("t", '"a,""b""\nc"', 'a,"b"\nc'),
    ],
)
def test_a_text_that_denotes_a_value_is_taken(
    caller: Caller, typed: str, column: str, value: str, shown: object
) -> None:
    assert caller.write("append", typed, one(column, value))["status"] == "COMPLETED"
    assert caller.rows(typed)[-1][column] == shown


def test_types_of_a_first_load_come_from_the_whole_payload(caller: Caller, table: str) -> None:
    rows = b"".join(b"%d\n" % n for n in range(50_000))
    caller.write("upload", table, b"n\n" + rows + b"x\n")
    assert caller.rows(table)[0] == {"n": "0"}


@pytest.mark.parametrize("value", ["007", "01/02/2024", "yes", "0x1F", "1e999", "1_000"])
def test_what_only_looks_like_another_type_is_text_in_a_first_load(caller: Caller, value: str) -> None:
    table = caller.create(f"looks-{value.replace('/', '-')}")
    caller.write("upload", table, f"v\n{value}\n".encode())
    assert caller.rows(table) == [{"v": value}]


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", "the payload is empty"),
        (b"a,,c\n1,2,3\n", "column 2 has the name ''"),
        (b"a,A\n1,2\n", "differ in case only"),
        (b"\x1f\x8b\x08\x00\xff\xff", "not UTF-8"),
        (b"a,b\n1,2\n3\n", "row 2: has fewer values"),
        (b"a,b\n1,2,3\n", "row 1: has more values"),
        (b'a,b\n1,2\n3,"x\n', "row 2: has a quote that is not closed"),
        (b"a,b\r\n1,2\n3,4\r\n", "line ends are mixed"),
        (b"a,b\n1,\xff\xfe\n", "UTF-8"),
        (b"a,b\n1," + b"x" * (17 << 20) + b"\n", "longer than 16 MiB"),
    ],
)
def test_a_csv_that_is_none_fails_and_says_why(caller: Caller, table: str, data: bytes, error: str) -> None:
    assert error in fails(caller, table, data)


def test_whole_numbers_beyond_64_bits_keep_their_digits(caller: Caller, table: str) -> None:
    caller.write("upload", table, b"n\n99999999999999999999\n1\n")
    assert [row["n"] for row in caller.rows(table)] == [99999999999999999999, 1]


def test_an_error_names_at_most_ten_rows_and_cuts_long_values(caller: Caller, typed: str) -> None:
    bad = b"x" * 500
    error = fails(caller, typed, b"i,d,b,day,at,zoned,big,t\n" + b"\n".join([bad + b",,,,,,,"] * 30) + b"\n")
    assert error.count("row ") == 10
    assert "row 10, " in error
    assert "x" * 81 not in error


def test_a_line_that_looks_like_a_comment_is_a_row(caller: Caller, table: str) -> None:
    caller.write("upload", table, b"a,b\n#1,2\n")
    assert caller.rows(table) == [{"a": "#1", "b": 2}]


def test_a_byte_order_mark_and_crlf_are_no_data(caller: Caller, table: str) -> None:
    caller.write("upload", table, b"\xef\xbb\xbfa,b\r\n1,x\r\n")
    assert caller.rows(table) == [{"a": 1, "b": "x"}]


def test_a_header_alone_makes_an_empty_table_with_columns(caller: Caller, table: str) -> None:
    assert caller.write("upload", table, b"a,b\n")["status"] == "COMPLETED"
    assert "the table has a, b" in fails(caller, table, b"a\n1\n")


@pytest.mark.parametrize("data_format", ["json", "ndjson"])
def test_json_rows_are_loaded_with_their_types(caller: Caller, data_format: str) -> None:
    table = caller.create(f"rows-{data_format}")
    rows = ['{"i":1,"d":1.5,"b":true,"t":"5","n":null,"j":[1]}', '{"t":"y","late":2}']
    data = f"[{','.join(rows)}]" if data_format == "json" else "\n".join(rows)
    assert caller.write("upload", table, data.encode(), data_format)["status"] == "COMPLETED"
    empty = dict.fromkeys(("i", "d", "b", "n", "j"))
    assert caller.rows(table) == [
        {"i": 1, "d": 1.5, "b": True, "t": "5", "n": None, "j": [1], "late": None},
        empty | {"t": "y", "late": 2},
    ]


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ('[{"i":"3"}]', "row 1, column 'i': '\"3\"' is no BIGINT"),
        ('[{"i":3.0}]', "'3.0' is no BIGINT"),
        ('[{"i":1},{"i":true}]', "row 2, column 'i': 'true' is no BIGINT"),
        ('[{"t":5}]', "column 't': '5' is no VARCHAR"),
        ('[{"unknown":1}]', "the keys unknown; the table has i, t"),
        ("[null]", "row 1: is no object"),
        ('[{"i":1},[2]]', "row 2: is no object"),
        ('[{"i":1,"i":2}]', "has a key twice"),
        ('[{"i":1},{"i"', "no valid JSON"),
        ('{"i":1}', "no array of objects"),
        ("", "no array of objects"),
        ('[{"i":NaN}]', "'NaN' is no BIGINT"),
    ],
)
def test_json_that_does_not_fit_fails_and_says_where(caller: Caller, data: str, error: str) -> None:
    table = caller.create("strict-json")
    if caller.info(table)["snapshot_id"] is None:
        caller.write("upload", table, b'[{"i":1,"t":"x"}]', "json")
    assert error in fails(caller, table, data.encode(), "json")


def parquet(tmp_path: Path, select: str) -> bytes:
    path = tmp_path / "rows.parquet"
    duckdb.execute(f"COPY ({select}) TO '{path}' (FORMAT parquet)")
    return path.read_bytes()


def test_parquet_keeps_its_types_and_widens_without_loss(caller: Caller, table: str, tmp_path: Path) -> None:
    first = parquet(tmp_path, "SELECT 1::BIGINT AS a, 1.5::DOUBLE AS b, [1, 2] AS l")
    second = parquet(tmp_path, "SELECT [3] AS l, 0.5::FLOAT AS b, 2::SMALLINT AS a")
    assert caller.write("upload", table, first, "parquet")["status"] == "COMPLETED"
    assert caller.write("append", table, second, "parquet")["status"] == "COMPLETED"
    assert caller.rows(table) == [{"a": 1, "b": 1.5, "l": [1, 2]}, {"a": 2, "b": 0.5, "l": [3]}]


@pytest.mark.parametrize("select", ["SELECT 1.5::DOUBLE AS a", "SELECT DATE '2024-01-01' AS a", "SELECT 'x' AS a"])
def test_parquet_of_another_type_fails_by_name(caller: Caller, tmp_path: Path, select: str) -> None:
    table = caller.create("strict-parquet")
    if caller.info(table)["snapshot_id"] is None:
        caller.write("upload", table, parquet(tmp_path, "SELECT 1::BIGINT AS a"), "parquet")
    assert "column 'a' is " in fails(caller, table, parquet(tmp_path, select), "parquet")


def test_a_damaged_parquet_file_fails(caller: Caller, table: str) -> None:
    assert "cannot be read as parquet" in fails(caller, table, b"PAR1 and no more", "parquet")


HOSTILE = ['a"b', "x'; DROP TABLE t; --", "new\nline", "$1", "?", "rowid", "👍", "select", "n" * 5000, "{}", "\\"]


def test_hostile_column_names_and_values_are_data(caller: Caller, table: str) -> None:
    quoted = ",".join('"' + name.replace('"', '""') + '"' for name in HOSTILE)
    assert caller.write("upload", table, f"{quoted}\n{quoted}\n".encode())["status"] == "COMPLETED"
    assert caller.write("append", table, f"{quoted}\n{quoted}\n".encode())["status"] == "COMPLETED"
    assert caller.rows(table) == [dict(zip(HOSTILE, HOSTILE, strict=True))] * 2
    assert caller.rows(table, select=HOSTILE[:2], filters={"field": "?", "operator": "eq", "value": "?"}) != []


@pytest.mark.parametrize("data_format", ["csv", "json", "ndjson"])
def test_a_reading_that_is_interrupted_is_no_fault_of_the_payload(data_format: str, tmp_path: Path) -> None:
    """The job stays queued and runs at the next start; it must not fail, nor take other types."""
    path = tmp_path / "payload"
    lines = [f'{{"id": {number}, "name": "n{number}"}}' for number in range(300_000)]
    text = {"csv": "id,name\n" + "1,one\n" * 1_000_000, "json": f"[{','.join(lines)}]", "ndjson": "\n".join(lines)}
    path.write_text(text[data_format])
    with duckdb.connect() as connection, ThreadPoolExecutor() as pool:
        reading = pool.submit(open_payload(data_format, path).columns, connection)
        while not reading.done():
            connection.interrupt()
        assert isinstance(reading.exception(), duckdb.InterruptException)
