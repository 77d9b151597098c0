"""Creates and checks the ledger's tables, and refuses a ledger whose owner is not trusted.

The comment on table loads has the schema's version, so that the version is known before the table is read. The comment
on table objects has the version of the penstock that created the ledger.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import psycopg
from psycopg import sql

from penstock import __version__
from penstock.core.checks import check_ledger_creation, check_publications, check_staging_right
from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import in_transaction, translate_errors
from penstock.core.errors import TargetError
from penstock.core.frozen import frozen
from penstock.core.sql import fetch_names, fetch_rows, read_statements, send_query
from penstock.core.values.server import LedgerRights, refuse
from penstock.ledger.locks import TABLES


@frozen
class LedgerRelation:
    """The row of state.sql: the schema of a ledger, or a relation in it."""

    # None for the schema itself.
    name: str | None
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
            error.hint += "penstock init --grant ROLE."
        raise


def refuse_foreign(schema: str, relations: Sequence[LedgerRelation]) -> None:
    """Raise TargetError if this session must not use the ledger, because another role's code could run in it.

    The owner of a table can do this at any time, with a constraint, a default or a trigger. If trusted roles own all
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

# Raise the version with any change of create.sql: a ledger of another version is refused.
VERSION = 9


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
            refuse(check_ledger_creation(_read_rights(connection, schema), schema), sqlstate=error.sqlstate)
        raise


def check_creation(connection: Connection, schema: str, *, is_publishing_allowed: bool) -> None:
    """Raise the errors that `create_ledger` would raise; changes nothing."""
    if not is_publishing_allowed:
        refuse_publication(connection, schema)
    refuse(check_ledger_creation(_read_rights(connection, schema), schema), sqlstate="42501")


def check_staging(connection: Connection, schema: str) -> None:
    """Raise TargetError if the role may not create a staging table in the ledger's schema."""
    refuse(check_staging_right(_read_rights(connection, schema), schema), sqlstate="42501")


def _read_rights(connection: Connection, schema: str) -> LedgerRights:
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
    """Return whether a schema has a ledger.

    Raises TargetError if it cannot be trusted or has another version, ServerError.
    """
    return look_for_ledger(connection, schema)()


def look_for_ledger(connection: Connection, schema: str) -> Callable[[], bool]:
    """Send the query of `has_ledger` in a pipeline, without waiting. The returned function waits for the result."""
    what = f'looking for the ledger in schema "{schema}"'
    with translate_errors(what):
        fetch = send_query(connection, "ledger/state", LedgerRelation, schema=schema, tables=sorted(TABLES))

    def is_found() -> bool:
        with translate_errors(what):
            relations = fetch()
        return _check(schema, relations)

    return is_found


def _check(schema: str, relations: Sequence[LedgerRelation]) -> bool:
    """Return whether there is a ledger. Raises TargetError if it has another version or cannot be trusted."""
    refuse_foreign(schema, relations)
    return is_ledger(schema, relations)


def is_ledger(schema: str, relations: Sequence[LedgerRelation]) -> bool:
    """Return whether there is a ledger of this version, without checking its owner.

    Raises TargetError if it is incomplete, of another version, or not a ledger.
    """
    comments = {relation.name: relation.comment for relation in relations}
    if "loads" not in comments:
        return False
    version = find_version(comments["loads"])
    if version is None:
        raise _no_ledger(schema, has_objects="objects" in comments)
    if version != VERSION:
        raise TargetError(
            f'the ledger in schema "{schema}" has version {version}, and this penstock needs version {VERSION}',
            detail=f"This is penstock {__version__}. The ledger records what is loaded, and what unfinished loads have "
            "changed.",
            hint=name_fitting(version, comments.get("objects")),
        )
    if missing := TABLES - comments.keys():
        raise TargetError(
            f'the ledger in schema "{schema}" lacks table "{min(missing)}"',
            hint="Restore the table from a backup. Without the ledger, files that are loaded would be loaded again.",
        )
    return True


def find_version(comment: str | None) -> int | None:
    """Return the version in the comment on a ledger's table loads; None if it is not such a comment."""
    match = _COMMENT.match(comment or "")
    return None if match is None else int(match[1])


def name_fitting(version: int, creator: str | None) -> str:
    """Return the hint that names the version of penstock that can use a ledger of this version.

    `creator` is the comment on the ledger's table objects.
    """
    match = _CREATOR.fullmatch(creator or "")
    # While penstock was developed, ledgers of several versions had the same creator.
    named = "" if match is None or match[1] == __version__ else f", version {match[1]}"
    age = "older" if version < VERSION else "newer"
    return f"Use the {age} penstock that wrote that ledger{named}, to finish its loads and to load more."


def _no_ledger(schema: str, *, has_objects: bool) -> TargetError:
    """Return the error for a table named loads without a ledger's comment.

    If the schema also has a table named objects, it is a ledger that has lost its comment.
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
        connection.execute("SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtext(%s))", [f"penstock {schema}"])
        relations = _read_relations(connection, schema)
        if not _check(schema, relations):
            for statement in compose_ledger(schema, has_schema=bool(relations)):
                connection.execute(statement)
            # SET ROLE may have made another role the owner, and default privileges may have granted rights.
            _check(schema, _read_relations(connection, schema))


def _read_relations(connection: Connection, schema: str) -> list[LedgerRelation]:
    return fetch_rows(connection, "ledger/state", LedgerRelation, schema=schema, tables=sorted(TABLES))


def compose_ledger(schema: str, *, has_schema: bool) -> list[sql.SQL | sql.Composed]:
    """Return the statements that create the ledger."""
    name = sql.Identifier(schema)
    schemas = [] if has_schema else [sql.SQL("CREATE SCHEMA {}").format(name)]
    comments = {"objects": f"created by penstock {__version__}", "loads": f"penstock ledger, version {VERSION}"}
    comment = sql.SQL("COMMENT ON TABLE {}.{} IS {}")
    return [
        *schemas,
        *read_statements("ledger/create", ledger=schema),
        *(comment.format(name, sql.Identifier(table), sql.Literal(text)) for table, text in comments.items()),
    ]


def find_publications(connection: Connection) -> tuple[str, ...]:
    """Return the publications FOR ALL TABLES of this database. Their subscribers lack a new table, and would stop."""
    with translate_errors("looking for publications of all tables"):
        return tuple(fetch_names(connection, "ledger/publications"))


def refuse_publication(connection: Connection, schema: str) -> None:
    """Raise TargetError if a publication FOR ALL TABLES exists.

    Its subscribers lack the ledger's tables, and would stop.
    """
    if (finding := check_publications(find_publications(connection))) is not None:
        refuse(replace(finding, detail=f"{finding.detail} They need: {describe_tables(schema)}"))


def describe_tables(schema: str) -> str:
    """Return the statements that create the ledger's tables, for psql."""
    statements = [" ".join(each.as_string(None).split()) for each in compose_ledger(schema, has_schema=False)]
    return " ".join(f"{each};" for each in statements if not each.startswith("COMMENT"))
