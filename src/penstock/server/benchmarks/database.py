"""The database of the demo: created for each run in place of the last one's, marked by a comment, and kept."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from psycopg import sql

from penstock.errors import ServerError, TargetError
from penstock.server.connect.errors import translate_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.server.connect.connection import Connection, ConnectionFactory

# The comment that marks the database as penstock's. Only a database with this comment is dropped.
_MARK = "created by penstock demo, which drops and recreates it at each run"

# "demo" in ASCII. Allows one demo at a time on a server.
_LOCK = 0x64656D6F


@contextmanager
def new_database(factory: ConnectionFactory, name: str) -> Iterator[None]:
    """Create an empty database in place of the one that an earlier run has kept.

    `factory` connects to another database of the server. Needs CREATEDB. Raises TargetError if the database is not
    penstock's, and ServerError if another run is at work or a session is connected to the database.
    """
    with factory.connect(label="bench") as control:
        with translate_errors(f"creating database {name}"):
            _create(control, name)
        yield


def _create(control: Connection, name: str) -> None:
    row = control.execute(
        "SELECT pg_catalog.pg_try_advisory_lock(%s), d.oid, pg_catalog.shobj_description(d.oid, 'pg_database')"
        " FROM (SELECT) AS one LEFT JOIN pg_catalog.pg_database AS d ON d.datname = %s",
        [_LOCK, name],
    ).fetchone()
    assert row is not None
    is_alone, oid, comment = row
    if not is_alone:
        raise ServerError("another penstock demo runs on this server", hint="Wait until it ends.")
    if oid is not None and comment != _MARK:
        raise TargetError(
            f'database "{name}" already exists and was not created by penstock',
            detail="It lacks the comment of penstock demo.",
            hint="Rename it, or drop it if you do not need it.",
        )
    database = sql.Identifier(name)
    if oid is not None:
        control.execute(sql.SQL("DROP DATABASE {}").format(database))
    control.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(database))
    control.execute(sql.SQL("COMMENT ON DATABASE {} IS {}").format(database, sql.Literal(_MARK)))
