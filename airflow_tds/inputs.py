"""What a task writes: exactly one of rows, source and data becomes a `Source`.

Which kinds there are, and what a person reads of rows, is decided here; how they are told apart from other content and
opened is durability/sources.py's. Rows are shown to nobody: not in rendered fields, not in a log.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from airflow_tds.client.errors import ValidationFailed
from airflow_tds.compat import object_storage

if TYPE_CHECKING:
    from airflow_tds.client.wire import Wire
    from airflow_tds.durability import Source

__all__ = ["Data", "HiddenRows", "Rows", "format_of", "place_of", "source_of", "taken_from"]

Rows = Sequence[Mapping[str, Any]]
Data = str | bytes | bytearray | memoryview | Callable[[], Iterable[bytes] | Iterable[Mapping[str, Any]]]


class HiddenRows(Sequence[Any]):
    """Rows that show how many they are, and nothing of what they hold.

    Args:
        rows: The rows.
        data_format: How they are written.
    """

    def __init__(self, rows: Sequence[Any], data_format: str) -> None:
        self.rows = rows
        self._format = data_format

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Any]: ...
    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    def __repr__(self) -> str:
        return f"<{len(self.rows):,} rows, {self._format}>"

    def serialize(self) -> str:
        """Write what Airflow keeps of a rendered field."""
        return repr(self)


def taken_from(given: Any, name: str) -> Any:
    """Give a value, or take it out of what another task returned: an XComArg selects by XCom, not within one.

    Args:
        given: The value, or a mapping that has it.
        name: Its name.

    Raises:
        ValidationFailed: The mapping does not have it.
    """
    if not isinstance(given, Mapping):
        return given
    if name not in given:
        raise ValidationFailed(
            f"{name} is text, or what another task returned with a {name!r} in it, which this has not"
        )
    return given[name]


def format_of(given: str | None, rows: Any) -> str:
    """Say in which format a payload travels.

    Args:
        given: What was asked for; None for json where there are rows, as it keeps the types of their values, else csv.
        rows: The rows; None for none.
    """
    return given or ("csv" if rows is None else "json")


def place_of(uri: str | os.PathLike[str], conn_id: str | None, what: str) -> Any:
    """Find where a local path or the URI of an object leads.

    Args:
        uri: A path, or a URI such as `s3://bucket/key`.
        conn_id: The object store's connection; None for the one in the URI, or the store's default.
        what: The parameter's name, for texts.

    Returns:
        A local `Path`, or Airflow's path of an object.

    Raises:
        ValidationFailed: No provider that is installed knows the store, or `file://` names no whole path.
    """
    text = str(uri)
    if "://" not in text:
        return Path(text)
    if text.startswith("file://"):
        if not text.startswith("file:///"):
            raise ValidationFailed(f"{what}: a file is named by its whole path, as in file:///folder/name, not {text}")
        return Path(text.removeprefix("file://"))
    try:
        place = object_storage(text, conn_id)
        place.fs  # noqa: B018  # looked for when it is first used
    except ValueError as unknown:
        scheme = text.partition("://")[0]
        raise ValidationFailed(
            f"{what}: no file system is known for {scheme}:// ({unknown}); install the provider that has it, such as"
            " apache-airflow-providers-amazon[s3fs] for s3"
        ) from None
    return place


def source_of(
    wire: Wire,
    data_format: str,
    *,
    rows: Rows | None,
    source: str | os.PathLike[str] | None,
    source_conn_id: str | None,
    data: Data | None,
) -> Source:
    """Make a source of what was given.

    Args:
        wire: Says how rows are laid out.
        data_format: See `format_of`.
        rows: Mappings of column names to values; None for none.
        source: A local path, or the URI of an object; None for none.
        source_conn_id: The object store's connection.
        data: Text, bytes, or a callable that gives chunks of bytes; None for none.

    Raises:
        ValidationFailed: Not exactly one is given, or it has a wrong form; the text says which.
    """
    from airflow_tds.durability import Source

    given = [name for name, value in (("rows", rows), ("source", source), ("data", data)) if value is not None]
    if len(given) != 1:
        raise ValidationFailed(
            "give exactly one of rows (a list of mappings), source (a path or URI) and data (text, bytes or a"
            f" callable), not {' and '.join(given) or 'none'}"
        )
    if source is not None:
        return Source(path=place_of(source, source_conn_id, "source"))
    if rows is not None:
        return Source(rows=_checked(rows), layout=wire.row_layout_of(data_format))
    if not isinstance(data, str | bytes | bytearray | memoryview) and not callable(data):
        raise ValidationFailed(
            f"data is text, bytes or a callable that gives chunks or rows, not a {type(data).__name__}"
        )
    return Source(data=data, layout=wire.row_layout_of(data_format))


def _checked(rows: Any) -> Sequence[Any]:
    if isinstance(rows, str | bytes | Mapping) or not isinstance(rows, Sequence):
        raise ValidationFailed(
            f"rows is a list of mappings, not a {type(rows).__name__}; a template gives text, so hand over what"
            " another task returned as it is: rows=that_task.output"
        )
    return rows.rows if isinstance(rows, HiddenRows) else rows
