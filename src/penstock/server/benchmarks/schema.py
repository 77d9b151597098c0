"""The schema of a benchmark and the database of the demo: marked as penstock's, and used by one run at a time.

The schema is dropped in every case. The database is created in place of the last run's, and kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from psycopg import sql

from penstock.errors import ServerError, TargetError
from penstock.model.finding import refuse
from penstock.model.server.checks import check_standby
from penstock.server.connect.connection import Connection, ConnectionFactory
from penstock.server.connect.errors import in_transaction, translate_errors
from penstock.server.facts.facts import read_server_facts
from penstock.server.sql.queries import fetch_one

SCHEMA = "penstock_bench"

# The comment that marks the schema as penstock's.
_MARK = "made by penstock bench, which drops it"

# "commi" in ASCII. The lock allows one experiment at a time in a database.
_LOCK = 0x636F6D6D69

# The comment that marks the database as penstock's. Only a database with this comment is dropped.
_DATABASE_MARK = "created by penstock demo, which drops and recreates it at each run"

# "demo" in ASCII. The lock allows one demo at a time on a server.
_DATABASE_LOCK = 0x64656D6F


@contextmanager
def own_schema(factory: ConnectionFactory, *, purpose: str, setup: str) -> Iterator[Connection]:
    """Create SCHEMA, run the statements of `setup` in it, and provide a session in its database.

    `purpose` is what is measured, as in "measure commits". The schema of a run that was killed is replaced. Needs
    CREATE on the database. Raises TargetError if the schema exists and is not penstock's, and ServerError for a pooler,
    for a standby, or if another benchmark is running.
    """
    with factory.connect(label="bench") as control:
        factory.refuse_unwritable(purpose)
        refuse(check_standby(read_server_facts(control).is_in_recovery, purpose), ServerError)
        _create_schema(control, setup)
        try:
            yield control
        finally:
            with translate_errors(f"dropping schema {SCHEMA}"):
                control.execute(f"DROP SCHEMA {SCHEMA} CASCADE".encode())


def _create_schema(control: Connection, setup: str) -> None:
    with in_transaction(control, f"creating schema {SCHEMA}"):
        is_alone, oid, comment = fetch_one(
            control,
            "SELECT pg_catalog.pg_try_advisory_lock(%s), pg_catalog.to_regnamespace(%s)::oid,"
            " pg_catalog.obj_description(pg_catalog.to_regnamespace(%s)::oid, 'pg_namespace')",
            [_LOCK, SCHEMA, SCHEMA],
        )
        if not is_alone:
            raise ServerError("another penstock bench runs in this database", hint="Wait until it ends.")
        if oid is not None and comment != _MARK:
            raise TargetError(
                f'schema "{SCHEMA}" already exists and was not created by penstock',
                detail="It lacks the comment of penstock bench.",
                hint="Name another database in --to, or rename the schema.",
            )
        if oid is not None:
            control.execute(f"DROP SCHEMA {SCHEMA} CASCADE".encode())
        control.execute(f"CREATE SCHEMA {SCHEMA}".encode())
        control.execute(f"COMMENT ON SCHEMA {SCHEMA} IS '{_MARK}'".encode())
        control.execute(f"SET LOCAL search_path = {SCHEMA}; {setup}".encode())


@contextmanager
def new_database(factory: ConnectionFactory, name: str) -> Iterator[None]:
    """Create an empty database in place of the one that an earlier run has kept.

    `factory` connects to another database of the server. Needs CREATEDB. Raises TargetError if the database is not
    penstock's, and ServerError if another run is in progress or a session is connected to the database.
    """
    with factory.connect(label="bench") as control:
        with translate_errors(f"creating database {name}"):
            _create_database(control, name)
        yield


def _create_database(control: Connection, name: str) -> None:
    is_alone, oid, comment = fetch_one(
        control,
        "SELECT pg_catalog.pg_try_advisory_lock(%s), d.oid, pg_catalog.shobj_description(d.oid, 'pg_database')"
        " FROM (SELECT) AS one LEFT JOIN pg_catalog.pg_database AS d ON d.datname = %s",
        [_DATABASE_LOCK, name],
    )
    if not is_alone:
        raise ServerError("another penstock demo runs on this server", hint="Wait until it ends.")
    if oid is not None and comment != _DATABASE_MARK:
        raise TargetError(
            f'database "{name}" already exists and was not created by penstock',
            detail="It lacks the comment of penstock demo.",
            hint="Rename it, or drop it if you do not need it.",
        )
    database = sql.Identifier(name)
    if oid is not None:
        control.execute(sql.SQL("DROP DATABASE {}").format(database))
    control.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(database))
    control.execute(sql.SQL("COMMENT ON DATABASE {} IS {}").format(database, sql.Literal(_DATABASE_MARK)))
