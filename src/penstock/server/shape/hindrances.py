"""What keeps rows that break a parked key or foreign key from being told, and taken out again, after a load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.server.errors import translate_errors
from penstock.server.queries import fetch_rows

if TYPE_CHECKING:
    from collections.abc import Collection

    from penstock.server.connection import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Hindrance:
    """The row of shape_hindrances.sql: `name` is None where all keys and foreign keys of the table are meant.

    `because_of_oid` is the table whose foreign key is in the way.
    """

    name: str | None
    because_of_oid: int | None
    reason: str


def find_hindrances(connection: Connection, oid: int, *, columns: Collection[str]) -> list[Hindrance]:
    """Return what is in the way at a table of which files fill `columns`. Raises ServerError."""
    with translate_errors("reading what keeps rows from being taken out again"):
        return fetch_rows(connection, "shape_hindrances", Hindrance, oid=oid, columns=list(columns))
