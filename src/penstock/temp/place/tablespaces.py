"""Finds, creates and drops tablespaces for temporary work, and finds who may use them and what they contain."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from penstock.core.connect.connection import Connection, ConnectionFactory
from penstock.core.connect.errors import translate_errors
from penstock.core.slotted import slotted
from penstock.core.sql import fetch_names, fetch_rows, list_identifiers, run_query
from penstock.core.values.temp_place import SETTING, TABLESPACE, Occupant, Scope, parse_setting

DROP = f"DROP TABLESPACE {TABLESPACE}"


@slotted
class PlaceRow:
    """The row of place.sql: facts of the server that decide where temporary files can be placed."""

    data_directory: str | None
    version_folder: str
    temp_file_limit: str
    # The application_names of the sessions that receive WAL.
    receivers: list[str]


@slotted
class TablespaceRow:
    """The row of tablespace.sql: a tablespace, its directory, and the login roles that may not create files there."""

    oid: int
    location: str
    # The roles that may log in but may not create in the tablespace.
    excluded: list[str]


@slotted
class OccupantRow:
    """A row of occupants.sql: an object of one database that is in the tablespace."""

    # The kind of the object, as ALTER names it.
    kind: str
    name: str
    is_temporary: bool


def read_place(connection: Connection) -> PlaceRow:
    """Return the facts of the server that decide where temporary files can be placed. Raises ServerError."""
    with translate_errors("reading what decides about temporary work"):
        return fetch_rows(connection, "temp/place", PlaceRow)[0]


def find_tablespace(connection: Connection) -> TablespaceRow | None:
    """Return penstock's tablespace for temporary files, None if it does not exist. Raises ServerError."""
    with translate_errors("reading tablespaces"):
        return next(iter(fetch_rows(connection, "temp/tablespace", TablespaceRow, name=TABLESPACE)), None)


def find_name_at(connection: Connection, location: str) -> str | None:
    """Return the name of the tablespace whose directory is `location`, None if there is none. Raises ServerError."""
    with translate_errors("reading tablespaces"):
        row = connection.execute(
            "SELECT t.spcname FROM pg_catalog.pg_tablespace AS t WHERE pg_catalog.pg_tablespace_location(t.oid) = %s",
            [location],
        ).fetchone()
    return None if row is None else str(row[0])


def is_superuser(connection: Connection, role: str) -> bool:
    """Return whether a role is a superuser. Raises ServerError."""
    with translate_errors("looking for a superuser"):
        query = "SELECT r.rolsuper FROM pg_catalog.pg_roles AS r WHERE r.rolname = %s"
        return connection.execute(query, [role]).fetchone() == (True,)


def create_statement(location: str) -> str:
    """Return the statement that creates penstock's tablespace for temporary files in a directory."""
    statement = sql.SQL("CREATE TABLESPACE {} LOCATION {}")
    return statement.format(sql.Identifier(TABLESPACE), sql.Literal(location)).as_string(None)


def grant_statement(roles: Sequence[str]) -> str:
    """Return the statement that lets roles use the tablespace, or every role if `roles` is empty."""
    to = list_identifiers(roles) if roles else sql.SQL("PUBLIC")
    return sql.SQL("GRANT CREATE ON TABLESPACE {} TO {}").format(sql.Identifier(TABLESPACE), to).as_string(None)


def run_statement(connection: Connection, text: str) -> None:
    """Run a statement that this module has composed, outside a transaction. Raises ServerError, TargetError."""
    with translate_errors(f"running {text}"):
        connection.execute(text.encode())


def find_occupants(connect: ConnectionFactory, control: Connection, oid: int) -> list[Occupant]:
    """Return the objects of all databases in the tablespace with this OID, and the databases whose default it is.

    A database that accepts no connections has an entry instead of its objects. `control` is a session that lists the
    databases. Needs CONNECT on each database. Raises ServerError.
    """
    with translate_errors("looking for what lies in a tablespace"):
        databases = run_query(control, "temp/databases_in", oid=oid).fetchall()
    found: list[Occupant] = []
    for database, is_default, can_connect in databases:
        if is_default:
            move = sql.SQL("ALTER DATABASE {} SET TABLESPACE pg_default").format(sql.Identifier(database))
            found.append(Occupant(what=f"database {database}", move=move.as_string(None)))
        if not can_connect:
            allow = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS true").format(sql.Identifier(database))
            what = f"whatever is in database {database}, which accepts no connections,"
            found.append(Occupant(what=what, move=allow.as_string(None)))
            continue
        other = connect.in_database(database)
        try:
            with other.connect(label="temp") as connection, translate_errors(f"looking into database {database}"):
                rows = fetch_rows(connection, "temp/occupants", OccupantRow, oid=oid)
        finally:
            other.close()
        found += [_describe(database, row) for row in rows]
    return found


def find_spilling(connection: Connection, oid: int) -> list[Occupant]:
    """Return an entry for each session that has temporary files in the tablespace with this OID now.

    Needs pg_monitor. Raises ServerError.
    """
    with translate_errors("looking for temporary files"):
        return [Occupant(what=name) for name in fetch_names(connection, "temp/spilling", oid=oid)]


def folder_exists(connection: Connection, path: str) -> bool:
    """Return whether the server sees a directory at this path. Needs pg_stat_file, which superusers have.

    Raises ServerError.
    """
    with translate_errors(f"looking for {path}"):
        row = connection.execute("SELECT s.isdir FROM pg_catalog.pg_stat_file(%s, true) AS s", [path]).fetchone()
    return row == (True,)


def _describe(database: str, row: OccupantRow) -> Occupant:
    what = f"{'temporary ' if row.is_temporary else ''}{row.kind} {row.name} in database {database}"
    return Occupant(
        what=what, move=None if row.is_temporary else f"ALTER {row.kind.upper()} {row.name} SET TABLESPACE pg_default"
    )


_EXISTS = {
    "database": "SELECT FROM pg_catalog.pg_database AS d WHERE d.datname = %s",
    "role": "SELECT FROM pg_catalog.pg_roles AS r WHERE r.rolname = %s",
}


def scope_exists(connection: Connection, scope: Scope) -> bool:
    """Return whether the database or role of a scope exists. Raises ServerError."""
    if scope.name is None:
        return True
    with translate_errors(f"looking for {scope}"):
        return connection.execute(_EXISTS[scope.kind].encode(), [scope.name]).fetchone() is not None


def read_setting(connection: Connection, scope: Scope) -> tuple[str, ...] | None:
    """Return the names of the tablespaces in temp_tablespaces of a scope, None if the scope has no setting of its own.

    The server's setting is read from pg_file_settings, which needs a superuser. Raises ServerError, TargetError.
    """
    names = {kind: scope.name if scope.kind == kind else None for kind in _EXISTS}
    query = "temp/server_line" if scope.name is None else "temp/stored_setting"
    with translate_errors(f"reading {SETTING} of {scope}"):
        row = run_query(connection, query, setting=SETTING, **names).fetchone()
    return None if row is None else parse_setting(row[0])


def find_naming(connection: Connection, tablespace: str) -> list[str]:
    """Return for whom ALTER ROLE or ALTER DATABASE has set temp_tablespaces to a list that names a tablespace.

    Each string is in words for a message: "role r", "database d" or "role r in database d". Raises ServerError.
    """
    with translate_errors(f"looking for settings of {SETTING}"):
        rows = run_query(connection, "temp/stored_settings", setting=SETTING).fetchall()
    return [whose for whose, text in rows if tablespace in parse_setting(text)]


def setting_statement(scope: Scope, names: Sequence[str] | None) -> str:
    """Return the statement that sets temp_tablespaces of a scope to `names`, or resets it if `names` is None."""
    start = sql.SQL("ALTER SYSTEM")
    if scope.name is not None:
        start = sql.SQL(f"ALTER {scope.kind.upper()} {{}}").format(sql.Identifier(scope.name))  # type: ignore[assignment]
    listed = list_identifiers(names) if names else sql.Literal("")
    end = sql.SQL("RESET temp_tablespaces") if names is None else sql.SQL("SET temp_tablespaces = {}").format(listed)
    return sql.SQL("{} {}").format(start, end).as_string(None)
