"""How text becomes SQL: the only place that quotes.

The rule that makes hostile names harmless: an identifier is quoted and comes from the catalog, never from
a request; a literal is a path or a key that we made ourselves or took from the catalog; every value of a
user is a parameter. What breaks this rule does not get in.
"""

from __future__ import annotations


def identifier(name: str) -> str:
    """Quote a name of the catalog, so that whatever it holds is a name and nothing else."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Quote a path or a column name as text, where SQL takes no parameter."""
    return "'" + text.replace("'", "''") + "'"


def relation(name: str) -> str:
    """Name a table's rows: relations live in a schema of their own, under names that we made."""
    return f"data.{identifier(name)}"
