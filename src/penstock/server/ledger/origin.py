"""Composes statements on the ledger's tables, and finds the table that a row of the ledger means.

It is found by its oid if that was recorded in this database, else by its name.

An oid is valid in one database only. In a restored dump, a copy of a database or a logical replica, a table has another
oid, and another table may have its old one. So each row with oids also has an origin: the cluster's system identifier,
the database's oid, and the oid of the ledger's table loads, which differs if a dump was restored into the same
database. If a row's origin is not the present one, its oids are not valid here.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final, LiteralString

from psycopg import sql

TABLES: Final = frozenset(("changes", "claims", "holds", "loads", "members", "objects", "ranges", "rejects", "targets"))

# Without EXECUTE on pg_control_system, a statement that names this function fails, even if it does not call it. So
# ts_stat, which gets a query as a text, calls it. Without EXECUTE, the other two parts of the origin decide.
_ORIGIN = """
    (
        SELECT pg_catalog.concat_ws(
                   '/',
                   CASE
                       WHEN pg_catalog.has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE')
                       THEN (
                           SELECT s.word
                             FROM pg_catalog.ts_stat(
                                      'SELECT pg_catalog.array_to_tsvector(ARRAY[c.system_identifier::pg_catalog.text])'
                                      ' FROM pg_catalog.pg_control_system() AS c'
                                  ) AS s
                       )
                       ELSE 'unknown'
                   END,
                   d.oid,
                   pg_catalog.to_regclass({loads})::pg_catalog.oid
               )
          FROM pg_catalog.pg_database AS d
         WHERE d.datname = pg_catalog.current_database()
    )
"""


def compose_query(text: LiteralString, schema: str, **parts: sql.Composable) -> sql.Composed:
    """Return a statement on a ledger: `{loads}` in the text stands for its table loads, and so on for all tables.

    `{schema}` stands for the ledger's schema, and `{origin}` for the origin of the oids that are recorded now.
    `{object_oid}`, `{target_oid}` and `{change_oid}` are the oids, in this database, of the tables that row o of
    objects, row t of targets and row c of changes mean, and `{landing_oid}` that of the table created for row t.
    """
    return sql.SQL(text).format(**_parts(schema), **parts)


@cache
def _parts(schema: str) -> Mapping[str, sql.Composable]:
    origin = compose_origin(schema)
    return {
        "schema": sql.Identifier(schema),
        "origin": origin,
        "object_oid": compose_oid("o", origin),
        "target_oid": compose_oid("t", origin),
        "change_oid": compose_oid("c", origin),
        "landing_oid": compose_oid("t", origin, prefix="landing"),
        **{name: sql.Identifier(schema, name) for name in TABLES},
    }


def compose_origin(schema: str) -> sql.Composed:
    """Return the expression for the origin of the oids that are recorded now."""
    return sql.SQL(_ORIGIN).format(loads=sql.Literal(sql.Identifier(schema, "loads").as_string(None)))


def compose_oid(row: LiteralString, origin: sql.Composable, *, prefix: LiteralString = "target") -> sql.Composed:
    """Return the expression for the oid of a row's table in this database; null if the table does not exist.

    `row` is the alias of the row, `origin` is the result of `compose_origin`, and `prefix` begins the column names.
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
