"""What the catalog says about the disk space of tables: their tablespaces, and how many indexes they have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.model.load.space import TableStorage
from penstock.server.connect.errors import translate_errors
from penstock.server.sql.queries import send_query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.server.connect.connection import Connection


def read_table_storage(connection: Connection, oids: Sequence[int]) -> list[TableStorage]:
    """Return where tables are stored, in one round trip. Oid 0 is a table to be created. Raises ServerError."""
    with translate_errors("looking up disk space"):
        with connection.pipeline():
            asked = [send_query(connection, "space_place", TableStorage, oid=oid) for oid in oids]
        return [places()[0] for places in asked]
