"""Who may do what, §5: a token's rights per table, and how they are written on the command line.

Writing includes reading. The admin routes, and tables that do not exist yet, are for tokens with all rights.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from airflow_tds.client.errors import Forbidden, ValidationFailed

__all__ = ["ALL", "Rights", "parse_token"]

_ANY = "*"
_CLAUSE = re.compile(r":(?=(?:read|write)=)")
#: What looks like a right and is none: taken for a part of the token it would give all rights.
_UNKNOWN = re.compile(r":(\w+)=.")


@dataclass(frozen=True)
class Rights:
    """What a token's holder may do.

    Attributes:
        read: Tables to read; `*` is every one.
        write: Tables to write, and to read.
        admin: Everything, the admin routes included.
    """

    read: Collection[str] = ()
    write: Collection[str] = ()
    admin: bool = False

    def require_read(self, table_ids: Iterable[str]) -> None:
        """Refuse tables that may not be read.

        Raises:
            Forbidden: Names the first of them.
        """
        self._require("read", table_ids, {*self.read, *self.write})

    def require_write(self, table_id: str) -> None:
        """Refuse a table that may not be written.

        Raises:
            Forbidden: It may not.
        """
        self._require("write", [table_id], self.write)

    def require_admin(self) -> None:
        """Refuse the admin routes.

        Raises:
            Forbidden: They are for tokens with all rights.
        """
        if not self.admin:
            raise Forbidden("this token has no right to the admin routes")

    def _require(self, right: str, table_ids: Iterable[str], allowed: Collection[str]) -> None:
        for table_id in table_ids:
            if not (self.admin or _ANY in allowed or table_id in allowed):
                raise Forbidden(f"this token has no right to {right} table {table_id!r}")


ALL = Rights(admin=True)


def parse_token(text: str) -> tuple[str, Rights]:
    """Read `TOKEN` (all rights) or `TOKEN:read=TABLE,...:write=TABLE,...`.

    Returns:
        The token and its rights.

    Raises:
        ValidationFailed: There is no token, a right is given twice, or there is no such right.
    """
    token, *clauses = _CLAUSE.split(text)
    if unknown := _UNKNOWN.search(token):
        raise ValidationFailed(f"a token has no right called {unknown[1]!r}: read and write are all there are")
    rights = {clause.partition("=")[0]: frozenset(clause.partition("=")[2].split(",")) for clause in clauses}
    if not token or len(rights) != len(clauses):
        raise ValidationFailed("a token is written TOKEN or TOKEN:read=TABLE,...:write=TABLE,...; each right once")
    return token, Rights(rights.get("read", ()), rights.get("write", ())) if rights else ALL
