"""Creates, checks and upgrades the ledger's tables, and refuses a ledger whose owner is not trusted.

The comment on table loads has the schema's version, so that the version is known before the table is read. The comment
on table objects has the version of the penstock that created or last upgraded the ledger.

A ledger that an older penstock created is upgraded in one transaction of its owner. Each file sql/upgrades/N.sql takes
a ledger from version N - 1 to N. sql/upgrades/fence.sql comes first: processes of the older version cannot commit rows
any more, and their loads are resumed by this version. If a step fails, the ledger keeps its old version. Commands that
only read use an older ledger as it is.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import psycopg
from psycopg import sql

from penstock import __version__
from penstock.core.catalogue.locking import LOCK_NOT_AVAILABLE, telling_once, with_lock_retries
from penstock.core.checks import check_ledger_creation, check_publications, check_staging_right, check_upgrade
from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import in_transaction, translate_errors
from penstock.core.errors import ServerError, TargetError
from penstock.core.slotted import slotted
from penstock.core.sql import fetch_names, fetch_rows, read_statements, send_query
from penstock.core.values.diagnosis import Diagnosis, note, refuse
from penstock.core.values.job import Housekeeping
from penstock.core.values.names import init_command, upgrade_command
from penstock.core.values.server import LedgerRights
from penstock.ledger.committed import BE_DURABLE
from penstock.ledger.locks import TABLES


@slotted
class LedgerRelation:
    """The row of state.sql: the schema of a ledger, or a relation in it."""

    # None for the schema itself.
    name: str | None
    oid: int
    owner: str
    is_trusted: bool
    # Whether the session can become a role that can do more than read and write tables.
    is_privileged: bool
    comment: str | None
    # Objects that roles other than the owner have added, or privileges of such roles to add some.
    additions: list[str]


@contextmanager
def naming_ledger(schema: str) -> Iterator[None]:
    """Add to each "permission denied" error of the block the hint that the ledger is not granted to the role."""
    try:
        yield
    except TargetError as error:
        if error.sqlstate == "42501":
            error.hint = f"The ledger in schema {schema} is not granted to this role: have the database's owner run "
            error.hint += f"{init_command(schema, 'ROLE')}."
        raise


def refuse_foreign(schema: str, relations: Sequence[LedgerRelation]) -> None:
    """Raise TargetError if this session must not use the ledger, because another role's code could run in it.

    The owner of a table can add code at any time, with a constraint, a default or a trigger. If trusted roles own all
    objects, this cannot change later: only the owner of an object can give it away, rename it or add to it.
    """
    for relation in relations:
        if not relation.is_trusted:
            raise _untrusted(_describe(schema, relation), relation)
    for relation in relations:
        if relation.additions:
            raise TargetError(
                f"cannot trust the ledger: others can have their code run in {_describe(schema, relation)}",
                detail=f"Found: {', '.join(relation.additions)}.",
                hint="It would run with your privileges: drop what is listed; revoke TRIGGER and REFERENCES, also in "
                "default privileges.",
            )


def _describe(schema: str, relation: LedgerRelation) -> str:
    return f'table "{schema}.{relation.name}"' if relation.name else f'schema "{schema}"'


def _untrusted(what: str, relation: LedgerRelation) -> TargetError:
    if not relation.is_privileged:
        return TargetError(
            f"cannot trust the ledger: {what} is not owned by the current role, the database owner or a superuser",
            detail=f'Its owner is "{relation.owner}".',
            hint="Find out who created it; penstock init says how to change its owner. With --role it can be used "
            "with that role's privileges only; --ledger-schema names another schema.",
        )
    return TargetError(
        f"cannot trust the ledger: {what} is not owned by this privileged login or a superuser",
        detail=f'Its owner is "{relation.owner}", who could have code run with this login\'s privileges.',
        hint=f'Name a schema of your own with --ledger-schema, or log in as "{relation.owner}". '
        "--role does not protect: code can RESET ROLE.",
    )


_COMMENT = re.compile(r"penstock ledger, version (\d+)")
_CREATOR = re.compile(r"created by penstock ([0-9A-Za-z.+-]+)")

# Raise the version with any change of create.sql, and add sql/upgrades/VERSION.sql (ARCHITECTURE.md).
VERSION = 12
# The oldest version that is upgraded. All queries that only read can read it. Older versions were never released.
OLDEST = 11


def create_ledger(connection: Connection, schema: str, *, is_publishing_allowed: bool) -> None:
    """Create the ledger if it does not exist.

    Needs CREATE on the database, or on the schema if that exists. Raises TargetError, ServerError.
    """
    what = f'preparing the ledger in schema "{schema}"'
    try:
        with translate_errors(what):
            if not is_publishing_allowed:
                refuse_publication(connection, schema)
            _run_statements(connection, schema)
    except TargetError as error:
        if isinstance(error.__cause__, psycopg.errors.InsufficientPrivilege):
            refuse(check_ledger_creation(read_ledger_rights(connection, schema), schema), sqlstate=error.sqlstate)
        raise


def check_creation(connection: Connection, schema: str, *, is_publishing_allowed: bool) -> None:
    """Raise the errors that `create_ledger` would raise. Nothing is changed."""
    if not is_publishing_allowed:
        refuse_publication(connection, schema)
    refuse(check_ledger_creation(read_ledger_rights(connection, schema), schema), sqlstate="42501")


def check_staging(connection: Connection, schema: str) -> None:
    """Raise TargetError if the role may not create a staging table in the ledger's schema."""
    refuse(check_staging_right(read_ledger_rights(connection, schema), schema), sqlstate="42501")


def read_ledger_rights(connection: Connection, schema: str) -> LedgerRights:
    """Return what the current role may do in the ledger's schema. Raises ServerError."""
    with translate_errors(f'looking at rights in schema "{schema}"'):
        (rights,) = fetch_rows(connection, "ledger/ledger", LedgerRights, schema=schema)
    return rights


def staging_hint(schema: str) -> str:
    """Return the hint for a role that may not create a staging table."""
    return (
        f"Have the owner grant CREATE on schema {schema}, for staging tables, and USAGE on the types of the table's "
        "columns; or use a schema of your own with --ledger-schema."
    )


def has_ledger(connection: Connection, schema: str) -> bool:
    """Return whether a schema has a ledger that can be read: it has this version, or can be upgraded to it.

    Raises TargetError if the ledger cannot be trusted or has another version, ServerError.
    """
    return look_for_ledger(connection, schema)() is not None


def find_named_ledger(connection: Connection, schema: str) -> bool:
    """Return whether a schema has a ledger. Raises TargetError if it has none, unless it is the default schema.

    The default schema has no ledger before the first load. Raises the errors of `has_ledger`.
    """
    exists = has_ledger(connection, schema)
    if not exists and schema != Housekeeping().ledger_schema:
        raise TargetError(f'schema "{schema}" has no ledger', hint="Check --ledger-schema.")
    return exists


def look_for_ledger(connection: Connection, schema: str) -> Callable[[], int | None]:
    """Send the query of `has_ledger` in a pipeline, without waiting.

    Return a function that waits for the result, and returns the ledger's version, None if no ledger exists.
    """
    what = f'looking for the ledger in schema "{schema}"'
    with translate_errors(what):
        fetch = send_query(connection, "ledger/state", LedgerRelation, schema=schema, tables=sorted(TABLES))

    def find() -> int | None:
        with translate_errors(what):
            relations = fetch()
        return check_ledger(schema, relations)

    return find


def check_ledger(schema: str, relations: Sequence[LedgerRelation]) -> int | None:
    """Return the ledger's version, None if no ledger exists. Raises TargetError if it cannot be used or trusted.

    `relations` are the result of `read_relations`.
    """
    refuse_foreign(schema, relations)
    return check_version(schema, relations)


def check_version(schema: str, relations: Sequence[LedgerRelation]) -> int | None:
    """Return the ledger's version, None if no ledger exists. Its owner is not checked.

    `relations` are the result of `read_relations`. Raises TargetError if the ledger is incomplete, newer, too old to be
    upgraded, or not a ledger.
    """
    comments = {relation.name: relation.comment for relation in relations}
    if "loads" not in comments:
        return None
    version = parse_version(comments["loads"])
    if version is None:
        raise _no_ledger(schema, has_objects="objects" in comments)
    if not OLDEST <= version <= VERSION:
        raise TargetError(
            f'the ledger in schema "{schema}" has version {version}, and this penstock needs version {VERSION}',
            detail=f"This is penstock {__version__}. The ledger records what is loaded, and what unfinished loads have "
            "changed.",
            hint=name_fitting(version, comments.get("objects"))
            + (_rename(schema, version) if version < OLDEST else ""),
        )
    if version == VERSION and (missing := TABLES - comments.keys()):
        raise TargetError(
            f'the ledger in schema "{schema}" lacks table "{min(missing)}"',
            hint="Restore the table from a backup. Without the ledger, files that are loaded would be loaded again.",
        )
    return version


def parse_version(comment: str | None) -> int | None:
    """Return the ledger's version from the comment on its table loads, None if that is no ledger's comment."""
    match = _COMMENT.match(comment or "")
    return None if match is None else int(match[1])


def name_fitting(version: int, creator: str | None) -> str:
    """Return the hint for a ledger that this penstock cannot use. It names the version of penstock that can.

    `version` is the ledger's. `creator` is the comment on the ledger's table objects.
    """
    match = _CREATOR.fullmatch(creator or "")
    # While penstock was developed, ledgers of several versions had the same creator.
    writer = None if match is None or match[1] == __version__ else match[1]
    if version > VERSION:
        install = (
            "Install the newer penstock that wrote that ledger" if writer is None else f"Install penstock {writer}"
        )
        return f"{install}, or a later one."
    named = "" if writer is None else f", version {writer}"
    return f"Use the older penstock that wrote that ledger{named}, to finish its loads and to load more."


def _rename(schema: str, version: int) -> str:
    """Return the hint for a ledger that is too old to be upgraded. Its records still count, like another ledger's."""
    rename = sql.SQL("ALTER SCHEMA {} RENAME TO {};").format(
        sql.Identifier(schema), sql.Identifier(f"{schema}_version_{version}")
    )
    return (
        f" If its loads are finished and repaired, you can keep it under another name: {rename.as_string(None)} Tables "
        "that it knows are then refused by name until you use --again once."
    )


def _no_ledger(schema: str, *, has_objects: bool) -> TargetError:
    """Return the error for a table named loads without a ledger's comment.

    If the schema also has a table named objects, the schema has a ledger whose comment is lost.
    """
    comment = sql.SQL("COMMENT ON TABLE {} IS 'penstock ledger, version {}';").format(
        sql.Identifier(schema, "loads"), sql.SQL(str(VERSION))
    )
    return TargetError(
        f'table "{schema}.loads" is not a penstock ledger',
        hint=f"If it is one of version {VERSION} that was restored without comments: {comment.as_string(None)}"
        if has_objects
        else "Name another schema with --ledger-schema.",
    )


def _run_statements(connection: Connection, schema: str) -> None:
    """Create the ledger in one transaction, unless another session has created it at the same time."""
    with in_transaction(connection):
        lock_ledger(connection, schema)
        relations = read_relations(connection, schema)
        if check_ledger(schema, relations) is None:
            for statement in compose_ledger(schema, has_schema=bool(relations)):
                connection.execute(statement)
            # SET ROLE may have made another role the owner, and default privileges may have granted rights.
            check_ledger(schema, read_relations(connection, schema))


def lock_ledger(connection: Connection, schema: str) -> None:
    """Keep other sessions from creating or upgrading the ledger until this transaction ends. Raises psycopg.Error."""
    connection.execute("SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtext(%s))", [f"penstock {schema}"])


def read_relations(connection: Connection, schema: str) -> list[LedgerRelation]:
    """Return the ledger's schema and those of its tables that exist. Raises psycopg.Error."""
    return fetch_rows(connection, "ledger/state", LedgerRelation, schema=schema, tables=sorted(TABLES))


def compose_ledger(schema: str, *, has_schema: bool) -> list[sql.SQL | sql.Composed]:
    """Return the statements that create the ledger."""
    schemas = [] if has_schema else [sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema))]
    return [*schemas, *read_statements("ledger/create", ledger=schema), *compose_comments(schema)]


def compose_comments(schema: str) -> list[sql.Composed]:
    """Return the statements that record the ledger's version, and the penstock that wrote it."""
    comments = {"objects": f"created by penstock {__version__}", "loads": f"penstock ledger, version {VERSION}"}
    comment = sql.SQL("COMMENT ON TABLE {} IS {}")
    return [comment.format(sql.Identifier(schema, table), sql.Literal(text)) for table, text in comments.items()]


def find_publications(connection: Connection) -> tuple[str, ...]:
    """Return the publications FOR ALL TABLES of this database. Their subscribers lack a new table, and would stop."""
    with translate_errors("looking for publications of all tables"):
        return tuple(fetch_names(connection, "ledger/publications"))


def refuse_publication(
    connection: Connection, schema: str, *, upgrade: Sequence[sql.SQL | sql.Composed] | None = None
) -> None:
    """Raise TargetError if a publication FOR ALL TABLES exists.

    Its subscribers would stop, because they lack the ledger's tables. If `upgrade` is given, they lack the changes that
    its statements make to these tables.
    """
    statements = compose_ledger(schema, has_schema=False) if upgrade is None else upgrade
    finding = check_publications(find_publications(connection), upgraded=None if upgrade is None else schema)
    if finding is not None:
        refuse(replace(finding, detail=f"{finding.detail} They need: {_describe_tables(statements)}"))


def _describe_tables(statements: Sequence[sql.SQL | sql.Composed]) -> str:
    """Return the statements that create or change the ledger's tables, for psql.

    They include the UPDATE of an upgrade, because a constraint may need it.
    """
    texts = [" ".join(each.as_string(None).split()) for each in statements]
    return " ".join(f"{each};" for each in texts if each.startswith(("CREATE", "ALTER", "UPDATE")))


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
