"""Creates a ledger that several roles share.

The owner of the ledger is the owner of the database, whom all roles trust. Each role is granted the use of the ledger.
Row security keeps the loads of the roles apart (schema.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from psycopg import sql

from penstock.errors import TargetError
from penstock.model.server.names import init_command
from penstock.model.server.server import LedgerRights
from penstock.server.connect.connection import Connection
from penstock.server.connect.errors import in_transaction, translate_errors
from penstock.server.ledger.origin import TABLES
from penstock.server.ledger.schema import compose_ledger, is_ledger, refuse_publication
from penstock.server.ledger.trust import LedgerRelation
from penstock.server.sql.queries import fetch_one, fetch_rows

# The database's owner, and the roles that every role trusts: the database's owner and the superusers.
_OWNER = """
    SELECT pg_catalog.pg_get_userbyid(d.datdba)::text,
           ARRAY(SELECT r.rolname::text FROM pg_catalog.pg_roles AS r WHERE r.rolsuper OR r.oid = d.datdba)
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
    """Create the ledger if it does not exist, grant its use to roles, and return the statements.

    With `only_planned`, the statements are not run. CREATE on the ledger's schema is granted too, because staging
    tables are created there. Raises TargetError, ServerError.
    """
    with translate_errors("looking for the ledger's owner"):
        (rights,) = fetch_rows(connection, "inspect_ledger", LedgerRights, schema=schema)
        relations = fetch_rows(connection, "ledger_state", LedgerRelation, schema=schema, tables=sorted(TABLES))
        row = fetch_one(connection, _OWNER)
    _refuse_one_owner(schema, [each for each in relations if each.owner not in row[1]], roles, heir=row[0])
    owner: str = rights.owner or row[0]
    steps = []
    if not is_ledger(schema, relations):
        steps = compose_ledger(schema, has_schema=rights.owner is not None)
        if not is_publishing_allowed:
            refuse_publication(connection, schema)
    as_owner = sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(owner))
    statements = [as_owner, *steps, *_compose_grants(schema, roles)]
    if not only_planned:
        _run(connection, statements, owner=owner)
    return [" ".join(statement.as_string(connection).split()) for statement in statements]


def _refuse_one_owner(schema: str, relations: Sequence[LedgerRelation], roles: Sequence[str], *, heir: str) -> None:
    """Raise TargetError if the current role, or one of `roles`, would not trust the owner of the ledger's parts.

    The owner is not changed, because code that the old owner created there would run with the new owner's privileges.
    """
    owners = sorted({relation.owner for relation in relations})
    if all(relation.is_trusted for relation in relations) and all({*roles} <= {owner} for owner in owners):
        return
    statements = []
    for relation in relations:
        name = sql.Identifier(schema, *filter(None, [relation.name]))
        kind = sql.SQL("TABLE" if relation.name else "SCHEMA")
        alter = sql.SQL("ALTER {} {} OWNER TO {};").format(kind, name, sql.Identifier(heir))
        statements.append(alter.as_string(None))
    raise TargetError(
        f'the ledger in schema "{schema}" belongs to role "{owners[0]}", which other roles do not trust',
        detail="Its owner could have code run with the privileges of whoever loads.",
        hint=f"If you trust what it holds, run as a superuser: {' '.join(statements)} "
        f"Then grant it to the former owner, too: {init_command(schema, ','.join(dict.fromkeys([*roles, *owners])))}.",
    )


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
