"""A ledger that several roles share: made as the database's owner, which all of them trust, and granted to each.

Row security keeps their loads apart (schema.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from penstock.errors import TargetError
from penstock.server.connect.errors import in_transaction, translate_errors
from penstock.server.ledger.schema import TABLES, compose_steps, find_version, refuse_publication
from penstock.server.ledger.trust import LedgerRightsRow
from penstock.server.sql.queries import fetch_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.server.connect.connection import Connection

_OWNER = """
    SELECT pg_catalog.pg_get_userbyid(d.datdba)::text
      FROM pg_catalog.pg_database AS d
     WHERE d.datname = pg_catalog.current_database()
"""


def share_ledger(
    connection: Connection,
    schema: str,
    roles: Sequence[str],
    *,
    is_publishing_allowed: bool = False,
    only_planned: bool = False,
) -> list[str]:
    """Make the ledger where it is missing, grant its use to roles, and return the statements for it.

    Staging tables are made in its schema: that is granted, too. Raises TargetError, ServerError.
    """
    version = find_version(connection, schema)
    with translate_errors("looking for the ledger's owner"):
        (rights,) = fetch_rows(connection, "inspect_ledger", LedgerRightsRow, schema=schema)
        row = connection.execute(_OWNER).fetchone()
    assert row is not None
    owner: str = rights.owner or row[0]
    steps = compose_steps(schema, version=version, has_schema=rights.owner is not None)
    if steps and not is_publishing_allowed:
        refuse_publication(connection, schema, version=version)
    as_owner = sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(owner))
    statements = [as_owner, *steps, *_compose_grants(schema, roles)]
    if not only_planned:
        _run(connection, statements, owner=owner)
    return [" ".join(statement.as_string(connection).split()) for statement in statements]


def _compose_grants(schema: str, roles: Sequence[str]) -> list[sql.Composed]:
    tables = sql.SQL(", ").join(sql.Identifier(schema, table) for table in sorted(TABLES))
    grants = []
    for role in map(sql.Identifier, roles):
        grants.append(sql.SQL("GRANT USAGE, CREATE ON SCHEMA {} TO {}").format(sql.Identifier(schema), role))
        grants.append(sql.SQL("GRANT SELECT, INSERT, UPDATE, DELETE ON {} TO {}").format(tables, role))
    return grants


def _run(connection: Connection, statements: Sequence[sql.Composed], *, owner: str) -> None:
    try:
        with in_transaction(connection, "making the ledger"):
            for statement in statements:
                connection.execute(statement)
    except TargetError as error:
        if isinstance(error.__cause__, psycopg.errors.InsufficientPrivilege):
            error.hint = f'Run it as "{owner}", as a member of that role, or as a superuser.'
        raise
