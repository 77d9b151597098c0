"""The ledger's tables, one step per version, and how they come into a database.

The version stands in the comment on table loads, so that it is known before the table is touched.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from penstock.errors import TargetError
from penstock.model.server.names import init_command
from penstock.server.connect.errors import in_transaction, translate_errors
from penstock.server.ledger.trust import LedgerRelation, LedgerRightsRow, PublicationRow, refuse_foreign
from penstock.server.sql.queries import fetch_rows, send_query

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.server.connect.connection import Connection

_COMMENT = re.compile(r"penstock ledger, version (\d+)")

# What a load is made of, written by the load's role alone.
_PARTS = ("objects", "ranges", "targets")
_IS_OWN_LOAD = "EXISTS (SELECT FROM {schema}.loads AS l WHERE l.id = load AND l.owner = CURRENT_USER)"

# Each step leads from the version before it; a ledger is only ever led forward.
# Ranges are rows that are inserted; only `has_end` is moved, if the object has grown. A multirange, since sessions take
# the blocks of one object in turn. A row with a start below zero corrects others: rejected records that were loaded
# later. `form` is how the records are read.
_STEPS: tuple[tuple[str, ...], ...] = (
    (
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
            changed_at timestamptz NOT NULL DEFAULT pg_catalog.now()
        )
        """,
        "CREATE UNIQUE INDEX loads_running_idx ON {schema}.loads (identity) WHERE state = 'running'",
        """
        CREATE TABLE {schema}.objects (
            load uuid NOT NULL REFERENCES {schema}.loads ON DELETE CASCADE,
            number integer NOT NULL,
            target_oid oid NOT NULL,
            target_schema name NOT NULL,
            target_table name NOT NULL,
            uri text NOT NULL,
            version text,
            size_bytes bigint,
            unit text NOT NULL DEFAULT 'bytes' CHECK (unit IN ('bytes', 'row groups', 'object')),
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
            committed_at timestamptz NOT NULL DEFAULT pg_catalog.now(),
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
        # Raw records are read by whoever loaded them alone, even where the table is another's.
        "ALTER TABLE {schema}.rejects ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
        "CREATE POLICY rejects_owner ON {schema}.rejects USING (owner = CURRENT_USER)",
        """
        CREATE TABLE {schema}.targets (
            load uuid NOT NULL REFERENCES {schema}.loads ON DELETE CASCADE,
            number integer NOT NULL,
            target_oid oid NOT NULL,
            truncated_at timestamptz,
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
        "CREATE INDEX targets_truncated_idx ON {schema}.targets (target_oid) WHERE truncated_at IS NOT NULL",
    ),
    # What loads change at tables outlives what is known of the loads: neither refers to a load's row.
    (
        """
        CREATE TABLE {schema}.changes (
            target_oid oid NOT NULL,
            number integer NOT NULL,
            target_schema name NOT NULL,
            target_table name NOT NULL,
            kind text NOT NULL CHECK (kind IN ('index', 'constraint', 'reference', 'trigger', 'autovacuum')),
            relation_oid oid NOT NULL,
            name name NOT NULL,
            record jsonb NOT NULL,
            owner name NOT NULL DEFAULT CURRENT_USER,
            load uuid NOT NULL,
            made_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
            PRIMARY KEY (target_oid, number),
            UNIQUE (target_oid, kind, relation_oid, name)
        )
        """,
        # A record is carried out as its owner: everybody reads them, and nobody writes one in another's name.
        "ALTER TABLE {schema}.changes ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
        "CREATE POLICY changes_read ON {schema}.changes FOR SELECT USING (true)",
        "CREATE POLICY changes_insert ON {schema}.changes FOR INSERT WITH CHECK (owner = CURRENT_USER)",
        "CREATE POLICY changes_delete ON {schema}.changes FOR DELETE USING (owner = CURRENT_USER)",
        """
        CREATE TABLE {schema}.holds (
            load uuid NOT NULL,
            target_oid oid NOT NULL,
            lock_key text NOT NULL,
            made_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
            PRIMARY KEY (load, target_oid)
        )
        """,
    ),
    # Leases on the server's settings are in another database: so does a load learn of one without looking there.
    (
        """
        CREATE TABLE {schema}.lease_notes (
            lease uuid PRIMARY KEY,
            made_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
        )
        """,
    ),
    # What a load's rows say is done as the role that wrote them: nobody writes in another's name, or to another's load.
    # `login` chose the sources and the transform; null where that is not known, as of loads begun before.
    (
        "ALTER TABLE {schema}.loads ADD COLUMN login name",
        "ALTER TABLE {schema}.loads ALTER COLUMN login SET DEFAULT SESSION_USER",
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
        f"CREATE POLICY rejects_load ON {{schema}}.rejects AS RESTRICTIVE FOR INSERT WITH CHECK ({_IS_OWN_LOAD})",
        # Ends of loads and truncations are counted in the order that they happen in: the server's clock may go back.
        # What older ledgers have is told by it one last time, in microseconds; what follows comes behind.
        "ALTER TABLE {schema}.loads ADD COLUMN event bigint GENERATED BY DEFAULT AS IDENTITY",
        "ALTER TABLE {schema}.targets ADD COLUMN truncation_event bigint",
        "UPDATE {schema}.loads SET event = pg_catalog.date_part('epoch', changed_at) * 1000000",
        "UPDATE {schema}.targets SET truncation_event = pg_catalog.date_part('epoch', truncated_at) * 1000000",
        "ALTER TABLE {schema}.loads ALTER COLUMN event RESTART WITH 10000000000000000",
    ),
    # What kinds of change there are is the program's knowledge: one that it lacks is refused by name.
    ("ALTER TABLE {schema}.changes DROP CONSTRAINT changes_kind_check",),
)

VERSION = len(_STEPS)

# The versions that brought what loads change at tables, and the notes of leases on settings.
CHANGES_VERSION, LEASES_VERSION = 2, 3

# Those of this version.
TABLES = frozenset(("changes", "holds", "lease_notes", "loads", "objects", "ranges", "rejects", "targets"))


def _own_load(table: str) -> str:
    return f"(EXISTS ( SELECT FROM loads l WHERE ((l.id = {table}.load) AND (l.owner = CURRENT_USER))))"


_OWN_LOGIN = "((owner = CURRENT_USER) AND ((login IS NULL) OR (login = SESSION_USER)))"

# As ledger_state.sql spells them: a planted one of the same name would read otherwise.
_OWN_ADDITIONS = (
    "policy rejects_owner FOR * TO {0} USING (owner = CURRENT_USER) WITH CHECK the same",
    "policy changes_read FOR r TO {0} USING true WITH CHECK the same",
    "policy changes_insert FOR a TO {0} USING WITH CHECK (owner = CURRENT_USER)",
    "policy changes_delete FOR d TO {0} USING (owner = CURRENT_USER) WITH CHECK the same",
    "policy loads_read FOR r TO {0} USING true WITH CHECK the same",
    f"policy loads_write FOR * TO {{0}} USING (owner = CURRENT_USER) WITH CHECK {_OWN_LOGIN}",
    *(f"policy {table}_read FOR r TO {{0}} USING true WITH CHECK the same" for table in _PARTS),
    *(f"policy {table}_write FOR * TO {{0}} USING {_own_load(table)} WITH CHECK the same" for table in _PARTS),
    f"policy rejects_load FOR a TO {{0}} USING WITH CHECK {_own_load('rejects')} RESTRICTIVE",
)


def lead_forward(connection: Connection, schema: str, *, version: int, is_publishing_allowed: bool) -> None:
    """Make the ledger where it is missing, or lead it from `version` to this penstock's.

    Making it needs CREATE on the database, or on the schema where that exists. Raises TargetError, ServerError.
    """
    what = f'preparing the ledger in schema "{schema}"'
    if version == VERSION:
        return
    try:
        with translate_errors(what):
            if not is_publishing_allowed:
                refuse_publication(connection, schema, version=version)
            _run_steps(connection, schema)
    except TargetError as error:
        if isinstance(error.__cause__, psycopg.errors.InsufficientPrivilege):
            raise _no_right(connection, schema, error, version=version) from error
        raise


def check_leading(connection: Connection, schema: str, *, version: int, is_publishing_allowed: bool) -> None:
    """Raise what `lead_forward` would; changes nothing."""
    what = f'looking at rights in schema "{schema}"'
    with translate_errors(what):
        if not is_publishing_allowed:
            refuse_publication(connection, schema, version=version)
        (rights,) = fetch_rows(connection, "inspect_ledger", LedgerRightsRow, schema=schema)
    if not rights.may_lead(version):
        where = "database" if rights.owner is None else "schema"
        denied = TargetError(f"permission denied for {where}", sqlstate="42501")
        raise _no_right(connection, schema, denied, version=version)


def check_staging(connection: Connection, schema: str) -> None:
    """Raise TargetError where no staging table could be made in a ledger's schema."""
    with translate_errors(f'looking at rights in schema "{schema}"'):
        (rights,) = fetch_rows(connection, "inspect_ledger", LedgerRightsRow, schema=schema)
    if not rights.may_create:
        raise TargetError(f"permission denied for schema {schema}", hint=staging_hint(schema), sqlstate="42501")


def staging_hint(schema: str) -> str:
    """Return what to do where a staging table was denied."""
    return (
        f"Have the owner grant CREATE on schema {schema}, for staging tables, and USAGE on the types of the table's "
        "columns; or use a schema of your own with --ledger-schema."
    )


def find_version(connection: Connection, schema: str) -> int:
    """Return the version of the ledger in a schema, 0 where there is none.

    Raises TargetError where it cannot be trusted or is newer, ServerError.
    """
    return look_for_version(connection, schema)()


def look_for_version(connection: Connection, schema: str) -> Callable[[], int]:
    """Do as `find_version`, where the connection is in a pipeline without waiting; what is returned tells."""
    what = f'looking for the ledger in schema "{schema}"'
    with translate_errors(what):
        fetch = send_query(connection, "ledger_state", LedgerRelation, schema=schema, tables=sorted(TABLES))

    def version() -> int:
        with translate_errors(what):
            relations = fetch()
        return _check(schema, relations)

    return version


def _check(schema: str, relations: Sequence[LedgerRelation]) -> int:
    """Return the ledger's version, 0 where there is none. Raises TargetError."""
    refuse_foreign(schema, relations, allowed=_OWN_ADDITIONS)
    loads = next((relation for relation in relations if relation.name == "loads"), None)
    if loads is None:
        return 0
    match = _COMMENT.fullmatch(loads.comment or "")
    if match is None:
        raise TargetError(
            f'table "{schema}.loads" is not a penstock ledger',
            hint="Name another schema with --ledger-schema.",
        )
    version = int(match[1])
    if version == VERSION and (missing := TABLES - {relation.name for relation in relations}):
        raise TargetError(
            f'the ledger in schema "{schema}" lacks table "{min(missing)}"',
            detail="It was dropped, or the ledger was created before penstock's release.",
            hint="Name another schema with --ledger-schema; or drop the schema if you do not need it.",
        )
    if version > VERSION:
        raise TargetError(
            f'the ledger in schema "{schema}" has version {version}, and this penstock knows {VERSION}',
            hint="Use the newer penstock that created it.",
        )
    return version


def _run_steps(connection: Connection, schema: str) -> None:
    """Run the steps that are missing, in one transaction; another session may be doing the same just now."""
    with in_transaction(connection):
        connection.execute("SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtext(%s))", [f"penstock {schema}"])
        relations = fetch_rows(connection, "ledger_state", LedgerRelation, schema=schema, tables=sorted(TABLES))
        version = _check(schema, relations)
        for statement in compose_steps(schema, version=version, has_schema=bool(relations)):
            connection.execute(statement)


def compose_steps(schema: str, *, version: int, has_schema: bool) -> list[sql.Composed]:
    """Return the statements that make the ledger, or lead it forward from `version`; none where it is this one."""
    name = sql.Identifier(schema)
    if version == VERSION:
        return []
    statements = [] if has_schema else [sql.SQL("CREATE SCHEMA {}").format(name)]
    statements += [sql.SQL(text).format(schema=name) for step in _STEPS[version:] for text in step]
    comment = sql.Literal(f"penstock ledger, version {VERSION}")
    return [*statements, sql.SQL("COMMENT ON TABLE {}.loads IS {}").format(name, comment)]


def find_publications(connection: Connection) -> tuple[str, ...]:
    """Return the publications FOR ALL TABLES of this database: a new table stops their subscribers, who lack it."""
    with translate_errors("looking for publications of all tables"):
        return tuple(row.name for row in fetch_rows(connection, "ledger_publications", PublicationRow))


def refuse_publication(connection: Connection, schema: str, *, version: int) -> None:
    """Refuse where a publication FOR ALL TABLES would stop its subscribers, which lack the ledger's tables."""
    publications = find_publications(connection)
    if not publications:
        return
    names = ", ".join(f'"{name}"' for name in publications)
    raise TargetError(
        "creating the ledger would stop the subscribers of a publication for all tables",
        detail=f"Publication {names} would publish the ledger's tables, which the subscribers lack. "
        f"They need: {describe_tables(schema, version=version)}",
        hint="Create these tables on every subscriber, then use --publish-ledger once.",
    )


def describe_tables(schema: str, *, version: int = 0) -> str:
    """Return the statements that make the ledger's tables, those that `version` lacks, for psql."""
    name = sql.Identifier(schema)
    statements = [] if version else [sql.SQL("CREATE SCHEMA {}").format(name).as_string(None)]
    for step in _STEPS[version:]:
        statements += [" ".join(sql.SQL(text).format(schema=name).as_string(None).split()) for text in step]
    return " ".join(f"{statement};" for statement in statements)


def _no_right(connection: Connection, schema: str, error: TargetError, *, version: int) -> TargetError:
    if version:
        return TargetError(
            f"cannot upgrade the ledger from version {version} to {VERSION}: {error.message}",
            hint="Have the owner of its tables run this penstock once, and grant the privileges on the new tables.",
            sqlstate=error.sqlstate,
        )
    row = connection.execute("SELECT CURRENT_USER").fetchone()
    assert row is not None
    return TargetError(
        f"cannot create the ledger: {error.message}",
        detail="The ledger records loads, so that they can be resumed and nothing is loaded twice.",
        hint=f"Have the database's owner run {init_command(schema, row[0])}, or name a schema of your own with "
        "--ledger-schema.",
        sqlstate=error.sqlstate,
    )
