"""What the catalogue says of the disk space of tables: where they are, how their rows and indexes are laid out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.model.space import ColumnSpace, IndexSpace, TablePlace, TableSpace
from penstock.server.errors import translate_errors
from penstock.server.queries import send_query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.server.connection import Connection


def read_table_spaces(connection: Connection, oids: Sequence[int]) -> list[TableSpace]:
    """Return the space of tables, 0 being one that is still to be made, in one round trip. Raises ServerError."""
    with translate_errors("looking up disk space"):
        with connection.pipeline():
            asked = [
                (
                    send_query(connection, "space_place", TablePlace, oid=oid),
                    send_query(connection, "space_columns", ColumnSpace, oid=oid),
                    send_query(connection, "space_indexes", IndexSpace, oid=oid),
                )
                for oid in oids
            ]
        return [
            TableSpace(place=place()[0], columns=tuple(columns()), indexes=tuple(indexes()))
            for place, columns, indexes in asked
        ]
