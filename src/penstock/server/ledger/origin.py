"""Which table a row of the ledger means: by its oid if that was recorded here, else by its name.

An oid is one database's own. After a dump is restored, in a copy of a database and on a logical replica, a table has
another oid, and another table may have its old one. So each row with oids has an origin as well: the cluster's system
identifier, the database's oid, and the oid of the ledger's table loads, which a dump may bring back into its own
database. If a row's origin is another one than the ledger's of today, its oids are unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, LiteralString
from weakref import WeakKeyDictionary

from psycopg import sql

from penstock.server.connect.errors import translate_errors

if TYPE_CHECKING:
    from penstock.server.connect.connection import Connection

# The system identifier is read once per session.
_identifiers: WeakKeyDictionary[Connection, str] = WeakKeyDictionary()

# If EXECUTE was revoked, the other two parts decide.
_UNKNOWN = "unknown"


def compose_origin(connection: Connection, schema: str) -> sql.Composed:
    """Return the expression for the origin of the oids that are recorded now. Raises ServerError."""
    return sql.SQL(
        """
        (
            SELECT pg_catalog.concat_ws('/', {identifier}, d.oid, pg_catalog.to_regclass({loads})::pg_catalog.oid)
              FROM pg_catalog.pg_database AS d
             WHERE d.datname = pg_catalog.current_database()
        )
        """
    ).format(
        identifier=sql.Literal(_find_identifier(connection)),
        loads=sql.Literal(sql.Identifier(schema, "loads").as_string(None)),
    )


def compose_oid(row: LiteralString, origin: sql.Composable, *, prefix: LiteralString = "target") -> sql.Composed:
    """Return the expression for the oid that the table of a row, an alias, has here; null if it does not exist.

    `origin` is what `compose_origin` returns; `prefix` begins the names of the columns.
    """
    return sql.SQL(
        """
        CASE
            WHEN {row}.origin = {origin} THEN {row}.{prefix}_oid
            ELSE (
                SELECT relation.oid
                  FROM pg_catalog.pg_class AS relation
                  JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = relation.relnamespace
                 WHERE namespace.nspname = {row}.{prefix}_schema
                   AND relation.relname = {row}.{prefix}_table
            )
        END
        """
    ).format(row=sql.SQL(row), origin=origin, prefix=sql.SQL(prefix))


def _find_identifier(connection: Connection) -> str:
    if connection not in _identifiers:
        with translate_errors("identifying the server"):
            # A statement that names the function fails without the privilege, whether it calls it or not.
            may_ask = "SELECT pg_catalog.has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE')"
            is_allowed = connection.execute(may_ask).fetchone() == (True,)
            ask = "SELECT c.system_identifier::text FROM pg_catalog.pg_control_system() AS c"
            row = connection.execute(ask).fetchone() if is_allowed else None
        _identifiers[connection] = _UNKNOWN if row is None else row[0]
    return _identifiers[connection]
