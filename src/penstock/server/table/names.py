"""The names of a database's tables, for those who type them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.server.connect.errors import translate_errors
from penstock.server.sql.queries import fetch_rows

if TYPE_CHECKING:
    from penstock.server.connect.connection import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class NameRow:
    """The row of table_names.sql."""

    name: str


def list_tables(connection: Connection, beginning: str, *, without: str) -> list[str]:
    """Return up to 200 tables, except those of schema `without`, whose names as SQL spells them have this beginning."""
    with translate_errors("listing tables"):
        return [
            row.name for row in fetch_rows(connection, "table_names", NameRow, beginning=beginning, without=without)
        ]
