"""What the catalogue says of the disk space of tables: where they are, how many indexes they have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.model.load.space import TablePlace
from penstock.server.connect.errors import translate_errors
from penstock.server.sql.queries import send_query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.server.connect.connection import Connection


def read_table_places(connection: Connection, oids: Sequence[int]) -> list[TablePlace]:
    """Return where tables are, 0 being one that is still to be made, in one round trip. Raises ServerError."""
    with translate_errors("looking up disk space"):
        with connection.pipeline():
            asked = [send_query(connection, "space_place", TablePlace, oid=oid) for oid in oids]
        return [places()[0] for places in asked]
