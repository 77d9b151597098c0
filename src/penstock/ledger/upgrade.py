"""Upgrades a ledger that an older penstock created, in one transaction of its owner, and fences older processes.

Each file sql/upgrades/N.sql takes a ledger from version N - 1 to N. sql/upgrades/fence.sql comes first: processes of
the older version cannot commit rows any more, and their loads are resumed by this version. If a step fails, the ledger
keeps its old version. Commands that only read use an older ledger as it is.
"""

from __future__ import annotations

import logging
from functools import partial

import psycopg
from psycopg import sql

from penstock import __version__
from penstock.core.catalogue.locking import LOCK_NOT_AVAILABLE, telling_once, with_lock_retries
from penstock.core.checks import check_upgrade
from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import translate_errors
from penstock.core.errors import ServerError, TargetError
from penstock.core.sql import read_statements
from penstock.core.values.diagnosis import Diagnosis, note, refuse
from penstock.core.values.names import upgrade_command
from penstock.core.values.server import LedgerRights
from penstock.ledger.committed import BE_DURABLE
from penstock.ledger.schema import (
    VERSION,
    LedgerRelation,
    check_ledger,
    compose_comments,
    lock_ledger,
    look_for_ledger,
    read_ledger_rights,
    read_relations,
    refuse_publication,
)

_log = logging.getLogger(__name__)

# A batch of another load takes about 10 s, and ends before the upgrade gets its lock. Meanwhile, new transactions of
# loads wait. If sessions of one load wait for each other, they can only continue when this time is over.
_LOCK_TIMEOUT_S = 15.0
_PATIENCE_S = 60.0


def foresee_upgrade(schema: str, version: int, rights: LedgerRights, *, database: str) -> Diagnosis | None:
    """Return what a load would do with an older ledger, upgrade or refuse it; None if the ledger has this version."""
    if version == VERSION:
        return None
    text = f"has version {version}: the next load upgrades it to version {VERSION}"
    remedy = f"Or upgrade it now, while no load runs: {upgrade_command(schema)}"
    refused = check_upgrade(rights, schema, database=database, version=version, newest=VERSION)
    return refused or note("ledger", text, remedy)


def foresee_opening(connection: Connection, schema: str) -> bool:
    """Return whether the ledger exists. Nothing is changed. Raises the errors that `open_ledger` would raise."""
    version = look_for_ledger(connection, schema)()
    if version is not None and version < VERSION:
        _refuse_others(connection, schema, version)
    return version is not None


def open_ledger(connection: Connection, schema: str) -> bool:
    """Return whether the ledger exists. If it has an older version, upgrade it first.

    Raises TargetError if the ledger cannot be used or trusted, or if the role may not upgrade it, ServerError.
    """
    version = look_for_ledger(connection, schema)()
    if version is not None and version < VERSION:
        upgrade_ledger(connection, schema)
    return version is not None


def upgrade_ledger(
    connection: Connection,
    schema: str,
    *,
    is_publishing_allowed: bool = False,
    lock_timeout_s: float = _LOCK_TIMEOUT_S,
    patience_s: float = _PATIENCE_S,
) -> None:
    """Upgrade an older ledger, unless another session does so first. The session must have no open transaction.

    Each attempt waits `lock_timeout_s` for other sessions, and attempts are made for `patience_s`.

    Raises TargetError if the role is neither the owner nor a member of the owner, or if the ledger cannot be trusted.
    Raises ServerError if other sessions hold their locks for longer.
    """
    with translate_errors(f'looking for the ledger in schema "{schema}"'):
        relations = read_relations(connection, schema)
    version = check_ledger(schema, relations)
    if version is None or version == VERSION:
        return
    _refuse_others(connection, schema, version)
    if not is_publishing_allowed:
        refuse_publication(connection, schema, upgrade=compose_upgrade(schema, version, relations))
    _log.warning(
        'upgrading the ledger in schema "%s" of database "%s" from version %d to %d, which needs penstock %s or later',
        schema,
        connection.info.dbname,
        version,
        VERSION,
        __version__,
    )
    try:
        with_lock_retries(
            connection,
            partial(_upgrade, connection, schema),
            relations=[relation.oid for relation in relations if relation.name is not None],
            deadline_s=patience_s,
            lock_timeout_s=lock_timeout_s,
            on_blocked=telling_once(_log.warning, f"upgrade the ledger in schema {schema}"),
        )
    except (TargetError, ServerError) as error:
        if error.sqlstate == LOCK_NOT_AVAILABLE:
            error.message = f'cannot upgrade the ledger in schema "{schema}": {error.message}'
        elif isinstance(error.__cause__, psycopg.errors.InsufficientPrivilege):
            error.hint = f"Have the owner of the ledger's tables run {upgrade_command(schema)}."
        raise


def _refuse_others(connection: Connection, schema: str, version: int) -> None:
    """Raise TargetError if the role may not upgrade the ledger. Raises ServerError."""
    rights, database = read_ledger_rights(connection, schema), connection.info.dbname
    refuse(check_upgrade(rights, schema, database=database, version=version, newest=VERSION), sqlstate="42501")


def _upgrade(connection: Connection, schema: str) -> None:
    """Upgrade the ledger in the open transaction, under the lock with which ledgers are created."""
    lock_ledger(connection, schema)
    relations = read_relations(connection, schema)
    version = check_ledger(schema, relations)
    if version is None or version == VERSION:
        return
    with translate_errors(f'upgrading the ledger in schema "{schema}"'):
        # A crash must not restore the old epochs after a load was resumed.
        connection.execute(BE_DURABLE)
        for statement in compose_upgrade(schema, version, relations):
            connection.execute(statement)
        check_ledger(schema, read_relations(connection, schema))


def compose_upgrade(schema: str, version: int, relations: list[LedgerRelation]) -> list[sql.SQL | sql.Composed]:
    """Return the statements that upgrade a ledger from `version`, as its owner, within one transaction."""
    owner = next(relation.owner for relation in relations if relation.name == "loads")
    steps = ["fence", *map(str, range(version + 1, VERSION + 1))]
    return [
        sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(owner)),
        *(each for step in steps for each in read_statements(f"ledger/upgrades/{step}", ledger=schema)),
        *compose_comments(schema),
    ]
