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
from penstock.core.sql import fetch_names, fetch_rows, send_query
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

# Tables with parts of a load, which only the load's role may write.
_PARTS = ("objects", "ranges", "targets", "members", "claims")
_IS_OWN_LOAD = "EXISTS (SELECT FROM ONLY {schema}.loads AS l WHERE l.id = load AND l.owner = CURRENT_USER)"

# Raise the version with any change of the statements below: a ledger of another version is refused.
VERSION = 9

# Rows of `ranges` are only inserted, except that `has_end` is updated if the object has grown. `ranges` is a
# multirange, because sessions take the blocks of one object in turn. A row with a negative `start` corrects others: it
# counts rejected records that were loaded later. `form` says how the records are read.
#
# `meaning` of a load also lists, as `unreadable`, the objects that it could not read. They are not in `objects`, unless
# a part of them is committed.
#
# `origin` is the database in which the oids of a row are valid (locks.py).
# `changes` and `holds` record what loads change. They have no foreign key to `loads`, because they must stay when a
# load is removed. A change of the whole server is recorded in database "postgres", with target_oid 0. A hold with
# target_oid 0 in another database names a load that may have changed the server. Without such a hold, a load need not
# look in database "postgres".
#
# A row of `members` is a process that loads rows of a load, live while a session holds the lock `lock_key`. Its
# transactions are fenced by `ended_at` (members.py). `session_limit` is how many connections all members may have
# together. A row of `claims` is an object that is not complete, of a load by several processes. It is free if its
# member is null or has ended.
_STATEMENTS = (
    """
    CREATE TABLE {schema}.loads (
        id uuid PRIMARY KEY,
        identity text NOT NULL,
        lock_key text NOT NULL,
        epoch integer NOT NULL DEFAULT 1,
        state text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'complete')),
        owner name NOT NULL DEFAULT CURRENT_USER,
        client text NOT NULL,
        tables text[] NOT NULL,
        meaning jsonb NOT NULL,
        job jsonb,
        rows bigint,
        began_at timestamptz NOT NULL DEFAULT pg_catalog.now(),
        changed_at timestamptz NOT NULL DEFAULT pg_catalog.now(),
        login name DEFAULT SESSION_USER,
        session_limit integer,
        event bigint GENERATED BY DEFAULT AS IDENTITY
    )
    """,
    "CREATE UNIQUE INDEX loads_running_idx ON {schema}.loads (identity) WHERE state = 'running'",
    """
    CREATE TABLE {schema}.objects (
        load uuid NOT NULL REFERENCES {schema}.loads ON DELETE CASCADE,
        number integer NOT NULL,
        origin text NOT NULL,
        target_oid oid NOT NULL,
        target_schema name NOT NULL,
        target_table name NOT NULL,
        uri text NOT NULL,
        version text,
        size_bytes bigint,
        ctime_ns bigint,
        unit text NOT NULL DEFAULT 'bytes' CHECK (unit IN ('bytes', 'rows', 'object')),
        PRIMARY KEY (load, number)
    )
    """,
    "CREATE INDEX objects_uri_idx ON {schema}.objects (uri)",
    """
    CREATE TABLE {schema}.ranges (
        load uuid NOT NULL REFERENCES {schema}.loads ON DELETE CASCADE,
        object integer NOT NULL,
        start bigint NOT NULL,
        ranges int8multirange NOT NULL,
        has_start boolean NOT NULL,
        has_end boolean NOT NULL,
        records bigint NOT NULL,
        rows bigint NOT NULL,
        suppressed bigint NOT NULL,
        rejected bigint NOT NULL DEFAULT 0,
        checksum bigint NOT NULL,
        form jsonb,
        member integer,
        committed_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
        PRIMARY KEY (load, object, start),
        CHECK (records = rows + suppressed + rejected)
    )
    """,
    """
    CREATE TABLE {schema}.rejects (
        load uuid NOT NULL REFERENCES {schema}.loads ON DELETE CASCADE,
        object integer NOT NULL,
        start bigint NOT NULL,
        line bigint NOT NULL,
        "column" text,
        sqlstate text,
        message text NOT NULL,
        detail text,
        raw bytea NOT NULL,
        owner name NOT NULL DEFAULT CURRENT_USER,
        rejected_at timestamptz NOT NULL DEFAULT pg_catalog.now(),
        PRIMARY KEY (load, object, start)
    )
    """,
    """
    CREATE TABLE {schema}.targets (
        load uuid NOT NULL REFERENCES {schema}.loads ON DELETE CASCADE,
        number integer NOT NULL,
        origin text NOT NULL,
        target_oid oid NOT NULL,
        target_schema name NOT NULL,
        target_table name NOT NULL,
        truncated_at timestamptz,
        truncation_event bigint,
        kind text CHECK (kind IN ('staging', 'replacement')),
        landing_schema name,
        landing_table name,
        landing_oid oid,
        definition text,
        staged bigint NOT NULL DEFAULT 0,
        inserted bigint NOT NULL DEFAULT 0,
        updated bigint NOT NULL DEFAULT 0,
        duplicates bigint NOT NULL DEFAULT 0,
        existing bigint NOT NULL DEFAULT 0,
        suppressed bigint NOT NULL DEFAULT 0,
        PRIMARY KEY (load, number)
    )
    """,
    """
    CREATE TABLE {schema}.members (
        load uuid NOT NULL REFERENCES {schema}.loads ON DELETE CASCADE,
        number integer NOT NULL,
        lock_key text NOT NULL,
        client text NOT NULL,
        began_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
        ended_at timestamptz,
        PRIMARY KEY (load, number)
    )
    """,
    """
    CREATE TABLE {schema}.claims (
        load uuid NOT NULL,
        object integer NOT NULL,
        member integer,
        PRIMARY KEY (load, object),
        FOREIGN KEY (load, object) REFERENCES {schema}.objects ON DELETE CASCADE
    )
    """,
    """
    CREATE TABLE {schema}.changes (
        origin text NOT NULL,
        target_oid oid NOT NULL,
        number integer NOT NULL,
        target_schema name NOT NULL,
        target_table name NOT NULL,
        kind text NOT NULL,
        relation_oid oid NOT NULL,
        name name NOT NULL,
        record jsonb NOT NULL,
        owner name NOT NULL DEFAULT CURRENT_USER,
        load uuid NOT NULL,
        made_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
        PRIMARY KEY (target_oid, number),
        UNIQUE (origin, target_oid, kind, relation_oid, name)
    )
    """,
    """
    CREATE TABLE {schema}.holds (
        holder uuid NOT NULL,
        origin text NOT NULL,
        target_oid oid NOT NULL,
        lock_key text NOT NULL,
        names text[] NOT NULL,
        until timestamptz,
        owner name NOT NULL DEFAULT CURRENT_USER,
        client text NOT NULL,
        reason text NOT NULL,
        server jsonb,
        made_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
        PRIMARY KEY (holder, origin, target_oid)
    )
    """,
    # Only the role that loaded a rejected record may read it, even if it does not own the table.
    "ALTER TABLE {schema}.rejects ENABLE ROW LEVEL SECURITY",
    "CREATE POLICY rejects_owner ON {schema}.rejects USING (owner = CURRENT_USER)",
    f"CREATE POLICY rejects_load ON {{schema}}.rejects AS RESTRICTIVE FOR INSERT WITH CHECK ({_IS_OWN_LOAD})",
    # A change is restored with the rights of its owner. So every role may read changes, and none may write one in the
    # name of another role. Any role with the rights may restore a setting: only a number can be written for it.
    "ALTER TABLE {schema}.changes ENABLE ROW LEVEL SECURITY",
    "CREATE POLICY changes_read ON {schema}.changes FOR SELECT USING (true)",
    "CREATE POLICY changes_insert ON {schema}.changes FOR INSERT WITH CHECK (owner = CURRENT_USER)",
    "CREATE POLICY changes_delete ON {schema}.changes FOR DELETE USING (owner = CURRENT_USER OR kind = 'setting')",
    # A load runs with the rights of the role that wrote its rows. So no role may write in the name of another role, or
    # to another role's load. `login` is the login that chose the sources and the transform, null if it is not known.
    "ALTER TABLE {schema}.loads ENABLE ROW LEVEL SECURITY",
    "CREATE POLICY loads_read ON {schema}.loads FOR SELECT USING (true)",
    """
    CREATE POLICY loads_write ON {schema}.loads
        USING (owner = CURRENT_USER)
        WITH CHECK (owner = CURRENT_USER AND (login IS NULL OR login = SESSION_USER))
    """,
    *(
        statement
        for table in _PARTS
        for statement in (
            f"ALTER TABLE {{schema}}.{table} ENABLE ROW LEVEL SECURITY",
            f"CREATE POLICY {table}_read ON {{schema}}.{table} FOR SELECT USING (true)",
            f"CREATE POLICY {table}_write ON {{schema}}.{table} USING ({_IS_OWN_LOAD})",
        )
    ),
)


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


def compose_ledger(schema: str, *, has_schema: bool) -> list[sql.Composed]:
    """Return the statements that create the ledger."""
    name = sql.Identifier(schema)
    statements = [] if has_schema else [sql.SQL("CREATE SCHEMA {}").format(name)]
    statements += [sql.SQL(text).format(schema=name) for text in _STATEMENTS]
    comments = {"objects": f"created by penstock {__version__}", "loads": f"penstock ledger, version {VERSION}"}
    comment = sql.SQL("COMMENT ON TABLE {}.{} IS {}")
    return [
        *statements,
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
