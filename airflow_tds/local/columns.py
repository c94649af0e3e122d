"""What a column can hold, and which texts denote exactly one of its values.

DuckDB left to itself rounds `3.7` to 4, cuts a time to its date and drops an offset from UTC, all in
silence. So every value arrives as text, is tested here, and only then cast. One table of rules, by type,
for payloads of all text formats and for the values of filters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

import duckdb

from airflow_tds.local.sql import identifier, literal

__all__ = ["Column", "Kind"]

#: What kinds of value can be compared with each other; `other` can be stored and returned, not compared.
Kind = Literal["number", "text", "boolean", "time", "clock", "json", "other"]

_INTEGER = "[+-]?[0-9]+"
_NUMBER = r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?"
_DATE = r"\d{4}-\d{2}-\d{2}"
_CLOCK = r"\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?"
_OFFSET = r"(Z|[+-]\d{2}(:?\d{2})?)"

_PATTERNS: dict[str, str] = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"), _INTEGER),
    **dict.fromkeys(("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"), _INTEGER),
    "FLOAT": _NUMBER,
    "DOUBLE": _NUMBER,
    "BOOLEAN": "(?i)true|false",
    "DATE": _DATE,
    "TIME": _CLOCK,
    "TIMESTAMP": f"{_DATE}[ T]{_CLOCK}",
    "TIMESTAMP WITH TIME ZONE": f"{_DATE}[ T]{_CLOCK}{_OFFSET}",
    "UUID": "(?i)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    Attributes:
        name: As in the data that created it, unchanged.
        type: DuckDB's name of the type, such as `BIGINT` or `DECIMAL(38,0)`.
    """

    name: str
    type: str

    @property
    def quoted(self) -> str:
        """The name as an identifier."""
        return identifier(self.name)

    @property
    def kind(self) -> Kind:
        """What its values can be compared with."""
        if self.pattern in (_INTEGER, _NUMBER) or self.type.startswith("DECIMAL"):
            return "number"
        if self.type == "BOOLEAN":
            return "boolean"
        if self.type in ("VARCHAR", "UUID"):
            return "text"
        if self.type == "JSON":
            return "json"
        if self.type.startswith(("DATE", "TIMESTAMP")):
            return "time"
        return "clock" if self.type.startswith("TIME") else "other"

    @property
    def floats(self) -> bool:
        """Whether it can hold NaN and infinities, which JSON cannot carry."""
        return self.type in ("FLOAT", "DOUBLE")

    def in_json(self, value: str) -> str:
        """Give the SQL of a value (an SQL expression) as JSON can carry it: without NaN and infinities."""
        return _finite(value, duckdb.dtype(self.type)) if re.search("FLOAT|DOUBLE", self.type) else value

    @property
    def pattern(self) -> str | None:
        """The texts that denote a value; None where the type alone decides, or where no text does."""
        scaled = re.fullmatch(r"DECIMAL\(\d+,(\d+)\)", self.type)
        if scaled is None:
            return _PATTERNS.get(self.type)
        return _INTEGER if scaled[1] == "0" else rf"[+-]?([0-9]+(\.[0-9]{{0,{scaled[1]}}})?|\.[0-9]{{1,{scaled[1]}}})"

    @property
    def has_text_form(self) -> bool:
        """Whether text formats can carry its values; lists, structs and bytes arrive as parquet only."""
        return self.pattern is not None or self.type in ("VARCHAR", "JSON")

    def denotes(self, text: str) -> bool:
        """Whether a filter's text may denote a value: a date alone is its midnight."""
        if self.pattern is None or (self.type == "TIMESTAMP" and re.fullmatch(_DATE, text)):
            return True
        return re.fullmatch(self.pattern, text, re.ASCII) is not None

    @staticmethod
    def is_number(text: str) -> bool:
        """Whether a text is a number, of any form."""
        return re.fullmatch(_NUMBER, text, re.ASCII) is not None

    def accepts(self, text: str) -> str:
        """Give the SQL test that a text (an SQL expression, not NULL) denotes exactly a value."""
        if self.pattern is None:
            return "true"
        test = f"regexp_full_match({text}, '{self.pattern}')"
        return f"{test} AND isfinite(TRY_CAST({text} AS {self.type}))" if self.floats else test

    def cast(self, text: str) -> str:
        """Give the SQL that makes the value from an accepted text."""
        return text if self.type == "VARCHAR" else f"CAST({text} AS {self.type})"

    def refuses(self, text: str) -> str:
        """Give the SQL test that a text does not denote a value: wrong form, or out of range."""
        return f"NOT ({self.accepts(text)}) OR TRY_CAST({text} AS {self.type}) IS NULL"


def _finite(value: str, kind: Any, depth: int = 0) -> str:
    """Put NULL in place of NaN and infinities, at any depth: the engine would write them bare."""
    if kind.id in ("float", "double"):
        return f"CASE WHEN isfinite({value}) THEN {value} END"
    item = f"_e{depth}"
    if kind.id in ("list", "array"):
        return f"list_transform({value}, lambda {item}: {_finite(item, kind.children[0][1], depth + 1)})"
    if kind.id == "struct":
        fields = (f"{literal(name)}: {_finite(f'{value}.{identifier(name)}', of, depth)}" for name, of in kind.children)
        return f"CASE WHEN {value} IS NOT NULL THEN {{{', '.join(fields)}}} END"
    if kind.id == "map":
        entry = f"{{'key': {item}.key, 'value': {_finite(f'{item}.value', kind.children[1][1], depth + 1)}}}"
        return f"map_from_entries(list_transform(map_entries({value}), lambda {item}: {entry}))"
    return value
