"""Finds the owner of a load, decides what this session may do with the load, and shares a ledger among roles.

Row security lets a role write only its own name into `owner`, and a login only its own name into `login` (schema.py).
After SET ROLE, any function that runs in the session can call RESET ROLE, and then has the login's rights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import psycopg
from psycopg import sql

from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import in_transaction, translate_errors
from penstock.core.errors import TargetError
from penstock.core.slotted import slotted
from penstock.core.sql import fetch_rows, run_query
from penstock.core.values.job import LoadJob
from penstock.core.values.names import init_command, upgrade_command
from penstock.core.values.server import LedgerRights
from penstock.ledger.locks import TABLES
from penstock.ledger.schema import (
    VERSION,
    LedgerRelation,
    check_version,
    compose_ledger,
    compose_upgrade,
    refuse_publication,
    upgrade_ledger,
)

# What the user is about to do with a load.
Deed = Literal["resume", "retry", "verify", "forget", "discard rejects of", "undo"]


@slotted
class LoadRights:
    """The owner of a load, and how this session's login relates to the load."""

    load_id: str
    owner: str
    is_own_role: bool
    # Whether this session's login chose the load's sources and transform.
    is_own_login: bool
    # Whether the load's role is this session's login itself.
    is_logins: bool
    is_member: bool
    # Whether the load's role exists.
    has_role: bool
    is_superuser: bool

    def refuse_other_role(self, what: Deed) -> None:
        """Raise TargetError if the load belongs to another role than the current one. `what` is the user's action."""
        if self.is_own_role:
            return
        if self.is_member:
            hint = f'Use --role "{self.owner}".'
        elif self.has_role:
            hint = f'Run it as "{self.owner}", or as a member of that role with --role "{self.owner}".'
        else:
            hint = (
                "The role does not exist any more. As the ledger's owner, set owner in the load's rows of its tables "
                "loads and rejects to the role that loads now."
            )
        raise TargetError(
            f'cannot {what} load {self.load_id}: it belongs to role "{self.owner}"',
            detail="Its rows in the ledger would act with the privileges of the current role.",
            hint=hint,
        )

    def refuse_others_job(self, what: Deed, job: LoadJob | None) -> None:
        """Raise TargetError if another role owns the load, or if its job could run code as this login.

        The latter is possible if another login began the load, and it has a transform or this login is a superuser.
        """
        self.refuse_other_role(what)
        has_transform = job is not None and any(target.transform is not None for target in job.targets)
        if self.is_own_login or not (self.is_superuser or has_transform):
            return
        role = "" if self.is_logins else f' with --role "{self.owner}"'
        raise TargetError(
            f"cannot {what} load {self.load_id}: by the ledger, another login began it",
            detail="Its transform could RESET ROLE to this login's privileges."
            if has_transform
            else "This login is a superuser, and code in the session could RESET ROLE to it.",
            hint="Log in as the user that began it, or "
            + (
                f"write the records to a file with penstock rejects {self.load_id} --reject-file, and load that file."
                if what == "retry"
                else f"run its own penstock load command{role}."
            ),
        )


def read_rights(connection: Connection, schema: str, load_id: str) -> LoadRights | None:
    """Return the rights on a load, or None if it does not exist. Raises ServerError."""
    with translate_errors("reading the load's owner"):
        return next(iter(fetch_rows(connection, "ledger/load_rights", LoadRights, ledger=schema, load=load_id)), None)


def share_ledger(
    connection: Connection,
    schema: str,
    roles: Sequence[str],
    *,
    is_publishing_allowed: bool = False,
    upgrades: bool = False,
    only_planned: bool = False,
) -> list[str]:
    """Create the ledger if it does not exist, grant its use to roles, and return the statements as text.

    With `upgrades`, an older ledger is upgraded first; otherwise it is refused. With `only_planned`, the statements are
    not run. CREATE on the ledger's schema is granted too, because staging tables are created there. Raises TargetError,
    ServerError.
    """
    with translate_errors("looking for the ledger's owner"):
        (rights,) = fetch_rows(connection, "ledger/ledger", LedgerRights, schema=schema)
        relations = fetch_rows(connection, "ledger/state", LedgerRelation, schema=schema, tables=sorted(TABLES))
        database_owner, trusted = run_query(connection, "ledger/database_owner").fetchall()[0]
    _refuse_one_owner(schema, [each for each in relations if each.owner not in trusted], roles, heir=database_owner)
    owner: str = rights.owner or database_owner
    steps: list[sql.SQL | sql.Composed] = []
    version = check_version(schema, relations)
    if version is None:
        steps = compose_ledger(schema, has_schema=rights.owner is not None)
        if not is_publishing_allowed:
            refuse_publication(connection, schema)
    upgrade: list[sql.SQL | sql.Composed] = []
    if version is not None and version < VERSION:
        if not upgrades:
            raise _is_older(schema, version)
        upgrade = compose_upgrade(schema, version, relations)
    as_owner = sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(owner))
    statements = [as_owner, *steps, *_compose_grants(schema, roles)]
    if not only_planned:
        if upgrade:
            upgrade_ledger(connection, schema, is_publishing_allowed=is_publishing_allowed)
        _run(connection, statements, owner=owner)
    return [" ".join(statement.as_string(connection).split()) for statement in (*upgrade, *statements)]


def _is_older(schema: str, version: int) -> TargetError:
    return TargetError(
        f'the ledger in schema "{schema}" has version {version}, and this penstock has version {VERSION}',
        detail="An upgrade ends the work of processes of the older penstock. Their loads can then be resumed.",
        hint=f"Upgrade it: {upgrade_command(schema)}",
    )


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


def _run(connection: Connection, statements: Sequence[sql.SQL | sql.Composed], *, owner: str) -> None:
    try:
        with in_transaction(connection, "making the ledger"):
            for statement in statements:
                connection.execute(statement)
    except TargetError as error:
        if isinstance(error.__cause__, psycopg.errors.InsufficientPrivilege):
            error.hint = f'Run it as "{owner}", as a member of that role, or as a superuser.'
        raise
