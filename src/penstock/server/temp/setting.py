"""Reads the stored temp_tablespaces of a server, a database or a role, and composes statements that set it."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from penstock.model.temp.placement import SETTING, Scope, parse_setting
from penstock.server.connect.connection import Connection
from penstock.server.connect.errors import translate_errors
from penstock.server.sql.queries import list_identifiers

_EXISTS = {
    "database": "SELECT FROM pg_catalog.pg_database AS d WHERE d.datname = %s",
    "role": "SELECT FROM pg_catalog.pg_roles AS r WHERE r.rolname = %s",
}

_AUTO_LINE = """
    SELECT f.setting
      FROM pg_catalog.pg_file_settings AS f
     WHERE f.name = %(setting)s
       AND f.sourcefile = pg_catalog.current_setting('data_directory') || '/postgresql.auto.conf'
     ORDER BY f.seqno DESC
     LIMIT 1
"""

# Elements of setconfig are name=value. Each name occurs once.
_STORED = """
    SELECT pg_catalog.substr(c.line, pg_catalog.length(%(setting)s::text) + 2)
      FROM pg_catalog.pg_db_role_setting AS s
      LEFT JOIN pg_catalog.pg_database AS d ON d.oid = s.setdatabase
      LEFT JOIN pg_catalog.pg_roles AS r ON r.oid = s.setrole
     CROSS JOIN pg_catalog.unnest(s.setconfig) AS c (line)
     WHERE d.datname IS NOT DISTINCT FROM %(database)s::name
       AND r.rolname IS NOT DISTINCT FROM %(role)s::name
       AND pg_catalog.starts_with(c.line, %(setting)s::text || '=')
"""

_NAMING = """
    SELECT pg_catalog.concat_ws(
               ' in ', 'role ' || pg_catalog.quote_ident(r.rolname), 'database ' || pg_catalog.quote_ident(d.datname)
           ),
           pg_catalog.substr(c.line, pg_catalog.length(%(setting)s::text) + 2)
      FROM pg_catalog.pg_db_role_setting AS s
      LEFT JOIN pg_catalog.pg_database AS d ON d.oid = s.setdatabase
      LEFT JOIN pg_catalog.pg_roles AS r ON r.oid = s.setrole
     CROSS JOIN pg_catalog.unnest(s.setconfig) AS c (line)
     WHERE pg_catalog.starts_with(c.line, %(setting)s::text || '=')
     ORDER BY 1
"""


def scope_exists(connection: Connection, scope: Scope) -> bool:
    """Return whether the database or role of a scope exists. Raises ServerError."""
    if scope.name is None:
        return True
    with translate_errors(f"looking for {scope}"):
        return connection.execute(_EXISTS[scope.kind].encode(), [scope.name]).fetchone() is not None


def read_setting(connection: Connection, scope: Scope) -> tuple[str, ...] | None:
    """Return the tablespaces that temp_tablespaces of a scope names, or None if the scope has no setting of its own.

    The server's setting is read from pg_file_settings, which needs a superuser. Raises ServerError, TargetError.
    """
    names = {kind: scope.name if scope.kind == kind else None for kind in _EXISTS}
    query = _AUTO_LINE if scope.name is None else _STORED
    with translate_errors(f"reading {SETTING} of {scope}"):
        row = connection.execute(query.encode(), {"setting": SETTING, **names}).fetchone()
    return None if row is None else parse_setting(row[0])


def find_naming(connection: Connection, tablespace: str) -> list[str]:
    """Return the databases, roles, and roles in databases that name a tablespace in their temp_tablespaces.

    Raises ServerError.
    """
    with translate_errors(f"looking for settings of {SETTING}"):
        rows = connection.execute(_NAMING.encode(), {"setting": SETTING}).fetchall()
    return [whose for whose, text in rows if tablespace in parse_setting(text)]


def setting_statement(scope: Scope, names: Sequence[str] | None) -> str:
    """Return the statement that sets temp_tablespaces of a scope to `names`, or resets it if `names` is None."""
    start = sql.SQL("ALTER SYSTEM")
    if scope.name is not None:
        start = sql.SQL(f"ALTER {scope.kind.upper()} {{}}").format(sql.Identifier(scope.name))  # type: ignore[assignment]
    listed = list_identifiers(names) if names else sql.Literal("")
    end = sql.SQL("RESET temp_tablespaces") if names is None else sql.SQL("SET temp_tablespaces = {}").format(listed)
    return sql.SQL("{} {}").format(start, end).as_string(None)
