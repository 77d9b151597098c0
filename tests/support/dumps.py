"""Databases as DBAs copy them: dumped and restored, elsewhere or in place, or made from a template."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

if TYPE_CHECKING:
    from support.servers import PgServer


def _program(pg: PgServer, name: str) -> str:
    if pg.server is None:
        pytest.skip("needs the programs of the server's own installation")
    return pg.server.spec.installation.program(name)


def dump(pg: PgServer, conninfo: str, *options: str) -> bytes:
    """Return what pg_dump writes of a database."""
    return subprocess.run([_program(pg, "pg_dump"), *options, "-d", conninfo], capture_output=True, check=True).stdout


def restore(pg: PgServer, text: bytes, conninfo: str) -> None:
    """Run a dump in a database, to which it does not belong yet."""
    psql = [_program(pg, "psql"), "-Xq", "-v", "ON_ERROR_STOP=1", "-d", conninfo]
    subprocess.run(psql, input=text, capture_output=True, check=True)


def dump_and_restore(pg: PgServer, conninfo: str, into: str) -> str:
    """Dump a database and restore it in another that is empty; return the latter."""
    restore(pg, dump(pg, conninfo), into)
    return into


def restore_in_place(pg: PgServer, conninfo: str) -> str:
    """Dump a database, empty it, and restore the dump into it."""
    text = dump(pg, conninfo)
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("DROP SCHEMA penstock CASCADE; DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    restore(pg, text, conninfo)
    return conninfo


def copy_as_template(pg: PgServer, conninfo: str, into: str) -> str:
    """Drop an empty database and create it as a copy of another, with the same OIDs of tables; return it."""
    names = [psycopg.sql.Identifier(str(conninfo_to_dict(each)["dbname"])) for each in (into, conninfo)]
    with psycopg.connect(pg.conninfo, autocommit=True) as connection:
        connection.execute(psycopg.sql.SQL("DROP DATABASE {}").format(names[0]))
        connection.execute(psycopg.sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(*names))
    return into
