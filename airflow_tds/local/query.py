"""A cross query as one SELECT, §2.5: which columns there are, what they are called, which rows match.

The rules that the interface leaves open:

- The primary table's columns keep their names. A joined table's column keeps its name if no earlier column
  has it (case of ASCII letters apart); else it is `<table_id>.<column>`, and if that is taken too,
  `<table_id>#2.<column>`, numbered by the join's place. Both key columns are kept. Semi and anti joins add none.
- `select`, filters and `left_on` name a column of the result so far, or `<table_id>.<column>`; a selected
  column is called as it was asked for. `right_on` is a column of the joined table.
- A join without `how` is inner. NULL keys never match. A cross join takes no columns, the others need both.
- Filters see the joined rows, so one on a right column makes an inner join of a left one. NULL is never
  matched, by `ne` neither. What a filter compares is filters.py's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from duckdb import DuckDBPyConnection

from airflow_tds.client.errors import TableNotFound, ValidationFailed
from airflow_tds.client.models import CrossQueryRequest, JoinSpec, ResultFormat
from airflow_tds.local.columns import Column
from airflow_tds.local.filters import Operand, where
from airflow_tds.local.records import Table
from airflow_tds.local.sql import identifier, relation

__all__ = ["DEFAULT_FORMAT", "Select", "compile_query"]

#: The format of a result where the request does not say.
DEFAULT_FORMAT: ResultFormat = "parquet"


@dataclass(frozen=True)
class Select:
    """A statement and its values.

    Attributes:
        sql: A SELECT with a `?` per value.
        values: Texts, in order.
    """

    sql: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class _Output:
    """A column that the joins so far yield."""

    name: str
    table_id: str
    column: Column
    alias: str

    @property
    def sql(self) -> str:
        return f"{self.alias}.{self.column.quoted}"

    @property
    def qualified(self) -> str:
        return f"{self.table_id}.{self.column.name}"


@dataclass
class _Scope:
    """The columns that the joins so far yield, by their names."""

    outputs: list[_Output] = field(default_factory=list)
    taken: set[bytes] = field(default_factory=set)

    def add(self, table: Table, place: int) -> None:
        """Let a table's columns join, under names that are still free."""
        for column in table.columns:
            candidates = [column.name, f"{table.table_id}.{column.name}"]
            candidates += [f"{table.table_id}#{number}.{column.name}" for number in range(place + 1, place + 100)]
            name = next(name for name in candidates if _folded(name) not in self.taken)
            self.taken.add(_folded(name))
            self.outputs.append(_Output(name, table.table_id, column, f"_t{place}"))

    def find(self, name: str, role: str) -> _Output:
        """Look a name up.

        Raises:
            ValidationFailed: It is none, or several columns have it.
        """
        found = [output for output in self.outputs if output.name == name]
        found = found or [output for output in self.outputs if output.qualified == name]
        if len(found) == 1:
            return found[0]
        what = "several columns" if found else "no column"
        raise ValidationFailed(f"{role}: {name!r} names {what}; there are {', '.join(o.name for o in self.outputs)}")


def compile_query(
    cursor: DuckDBPyConnection,
    request: CrossQueryRequest,
    tables: Mapping[str, Table],
    result_format: ResultFormat,
) -> Select:
    """Turn a request into SQL.

    Args:
        cursor: Asked whether a type can hold a value.
        request: The request.
        tables: The catalog.
        result_format: JSON has no NaN and no infinities: there they are null.

    Raises:
        TableNotFound: A table does not exist.
        ValidationFailed: A column, a join or a value does not fit.
    """
    primary, scope = _table(tables, request.table_id), _Scope()
    scope.add(primary, 0)
    source = f"{relation(primary.relation or '')} AS _t0"
    for place, join in enumerate(request.joins or (), 1):
        source += _join(scope, join, _table(tables, join.table_id), place)
    columns = ", ".join(_column(name, output, result_format) for name, output in _chosen(scope, request.select))

    def find(name: str) -> Operand:
        output = scope.find(name, "filters")
        return Operand(output.sql, output.column)

    rows = where(cursor, request.filters, find)
    return Select(f"SELECT {columns} FROM {source}{rows.sql}", rows.values)


def _table(tables: Mapping[str, Table], table_id: str) -> Table:
    if table_id not in tables:
        raise TableNotFound(f"table {table_id!r} does not exist")
    if not tables[table_id].ingested:
        raise ValidationFailed(f"table {table_id!r} has no columns yet: it never had data")
    return tables[table_id]


def _join(scope: _Scope, join: JoinSpec, table: Table, place: int) -> str:
    how = join.how or "inner"
    joined = f" {how.upper()} JOIN {relation(table.relation or '')} AS _t{place}"
    if how == "cross":
        if join.left_on is not None or join.right_on is not None:
            raise ValidationFailed(f"joins: the cross join of {join.table_id!r} takes no left_on and right_on")
        scope.add(table, place)
        return joined
    if join.left_on is None or join.right_on is None:
        raise ValidationFailed(f"joins: the {how} join of {join.table_id!r} needs left_on and right_on")
    left, right = scope.find(join.left_on, "left_on"), _Scope()
    right.add(table, place)
    condition = _equal(left, right.find(join.right_on, "right_on"))
    if how not in ("semi", "anti"):
        scope.add(table, place)
    return f"{joined} ON {condition}"


def _equal(left: _Output, right: _Output) -> str:
    """Compare keys of one kind; of two kinds, the engine would fail at the first row that does not convert."""
    if left.column.kind != right.column.kind or left.column.kind in ("json", "other"):
        raise ValidationFailed(
            f"joins: {left.qualified} is {left.column.type} and {right.qualified} is {right.column.type};"
            " keys of different kinds are not compared"
        )
    if left.column.kind == "text" and left.column.type != right.column.type:
        return f"{left.sql}::VARCHAR = {right.sql}::VARCHAR"
    return f"{left.sql} = {right.sql}"


def _chosen(scope: _Scope, names: Sequence[str] | None) -> list[tuple[str, _Output]]:
    """Give the columns of the result, each under the name that it gets."""
    if names is None:
        return [(output.name, output) for output in scope.outputs]
    if not names or len({_folded(name) for name in names}) != len(names):
        raise ValidationFailed("select: at least one column, and none twice (case of letters apart)")
    return [(name, scope.find(name, "select")) for name in names]


def _column(name: str, output: _Output, result_format: ResultFormat) -> str:
    value = output.column.in_json(output.sql) if result_format == "json" else output.sql
    return f"{value} AS {identifier(name)}"


def _folded(name: str) -> bytes:
    """Names of columns are equal when only the case of ASCII letters differs."""
    return name.encode().lower()
