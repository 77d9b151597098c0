"""The kind of change for a temp place, its tablespace, and a check that temporary files are in fact written there.

Tablespaces are found, created and dropped here; so are those who may use them, and what they contain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from psycopg import sql

from penstock.changes.context import Context, Kind, Restored
from penstock.changes.values import SERVER, Change, RepairAction, server_change
from penstock.core.catalogue.settings import reload
from penstock.core.connect.connection import Connection, ConnectionFactory
from penstock.core.connect.errors import in_transaction, is_of_file_system, translate_errors
from penstock.core.errors import PenstockError, TargetError
from penstock.core.slotted import slotted
from penstock.core.sql import fetch_names, fetch_one, fetch_rows, list_identifiers, run_query
from penstock.core.values.temp_place import (
    SETTING,
    TABLESPACE,
    Occupant,
    Placement,
    PlaceReport,
    Scope,
    parse_setting,
    spell_setting,
)

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


def read_effective(connection: Connection) -> tuple[str, ...]:
    """Return the names in temp_tablespaces that the server's files set for everybody. Needs a superuser.

    Raises ServerError, TargetError.
    """
    query = "SELECT setting FROM pg_catalog.pg_file_settings WHERE name = %s ORDER BY seqno DESC LIMIT 1"
    with translate_errors(f"reading {SETTING}"):
        row = connection.execute(query, [SETTING]).fetchone()
    return () if row is None else parse_setting(row[0])


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
    # An empty name, which means the default tablespace, can only be written as a string.
    listed = sql.SQL(", ").join(sql.Identifier(name) if name else sql.Literal("") for name in names or ("",))
    end = sql.SQL("RESET temp_tablespaces") if names is None else sql.SQL("SET temp_tablespaces = {}").format(listed)
    return sql.SQL("{} {}").format(start, end).as_string(None)


# Declares a cursor whose sort spills: it sorts some MB with the least work_mem. The temporary file exists as long as
# the cursor.
_SPILL = "DECLARE penstock_proof CURSOR FOR SELECT g FROM pg_catalog.generate_series(1, 200000) AS g ORDER BY -g"


def find_disproof(connect: ConnectionFactory, control: Connection, placement: Placement, oid: int) -> str | None:
    """Return why a new session's temporary files do not go to a placement's tablespace, None if they do.

    `oid` is that of the tablespace. A new session runs a sort that spills, and creates a temporary table. This session
    is in the scope's database, or takes the scope's role by SET ROLE, because penstock cannot log in as that role.
    `control` is a session that lists the tablespace's files, which needs pg_monitor. Raises ServerError, TargetError.
    """
    scope = placement.scope
    other = connect.in_database(scope.name) if scope.kind == "database" and scope.name else connect
    try:
        with other.connect(label="proof") as session:
            with translate_errors("proving where temporary work goes"):
                row = fetch_one(session, "SELECT pg_catalog.current_setting(%s)", [SETTING])
            if scope.kind != "role" and parse_setting(row[0]) != (TABLESPACE,):
                return (
                    f"{SETTING} of a new session is '{row[0]}', which its role, its database or the server's start set"
                )
            return _try_out(session, control, placement, oid)
    finally:
        if other is not connect:
            other.close()


def _try_out(session: Connection, control: Connection, placement: Placement, oid: int) -> str | None:
    with in_transaction(session, "proving where temporary work goes") as transaction:
        transaction.force_rollback = True
        # If the role lacks CREATE on the tablespace, PostgreSQL silently puts temporary work elsewhere. So this session
        # takes a role that has been granted CREATE.
        role = placement.scope.name if placement.scope.kind == "role" else next(iter(placement.granted), None)
        if role is not None:
            session.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(role)))
        if placement.scope.kind == "role":
            session.execute(sql.SQL("SET LOCAL temp_tablespaces = {}").format(sql.Identifier(TABLESPACE)))
        session.execute("SET LOCAL work_mem = '64kB'")
        session.execute(_SPILL)
        session.execute("FETCH 1 FROM penstock_proof")
        prefix = f"pgsql_tmp{session.info.backend_pid}."
        files = run_query(control, "temp/spill_files", oid=oid, prefix=prefix).fetchone()
        if files is None or files[0] == 0:
            return "a sort that spilled has no file there"
        session.execute("CREATE TEMPORARY TABLE penstock_proof (a int)")
        lies = run_query(session, "temp/proof_place").fetchone()
        return None if lies == (oid,) else "a temporary table does not lie there"


TEMP_PLACE = "temp place"

# A message about a tablespace that cannot be dropped lists at most this many of its objects.
_LISTED = 10
_WANTED = (TABLESPACE,)
_RELOAD = "SELECT pg_catalog.pg_reload_conf()"


class TempPlace(Kind):
    """The tablespace for temporary files, its GRANT and the setting temp_tablespaces, as a Kind of change.

    The journal's record does not say which statements have run. `plan` reads from the server whether the tablespace
    exists and what temp_tablespaces is set to. GRANT is always run again.
    """

    def handles(self, change: Change) -> bool:
        return change.kind == TEMP_PLACE

    def plan(self, connection: Connection, placement: Placement) -> list[str]:
        """Return the statements of a placement that are still to be run.

        Raises TargetError if somebody else has changed temp_tablespaces.
        """
        statements = [grant_statement(placement.granted)]
        if find_tablespace(connection) is None:
            statements.insert(0, create_statement(placement.location))
        current = read_setting(connection, placement.scope)
        if current not in {placement.prior, _WANTED}:
            raise TargetError(
                f"{SETTING} of {placement.scope} was changed by somebody else",
                detail=f"It is {spell_setting(current)}.",
                hint="Run penstock temp remove, then place again.",
            )
        if current != _WANTED:
            statements.append(setting_statement(placement.scope, _WANTED))
        return [*statements, *([_RELOAD] if placement.scope.kind == "server" else [])]

    def apply(self, context: Context, placement: Placement) -> PlaceReport:
        """Run the statements of a placement that are still to be run, and return them.

        Raises TargetError if temporary files then do not go to its tablespace, and ServerError.
        """
        connection = context.connection
        statements = self.plan(connection, placement)
        for statement in statements:
            _run(context, statement)
        found = find_tablespace(connection)
        assert found is not None, "it was created"
        why = find_disproof(_connect(context), connection, placement, found.oid)
        if why is not None:
            raise TargetError(
                f"temporary work does not go to {placement.location}",
                detail=f"{why}.",
                hint="penstock temp check shows more.",
            )
        return PlaceReport(placement=placement, statements=tuple(statements))

    def refuse_permanent(self, context: Context, change: Change) -> None:
        """Raise TargetError if tables or indexes are in the tablespace. They must be moved before it can be dropped."""
        _refuse_permanent(_look(context, read_placement(context.connection, change)))

    def restore(self, context: Context, changes: Sequence[Change], done: Restored) -> Sequence[Change]:
        for change in changes:
            done.temp_place = _undo(context, read_placement(context.connection, change))
        return changes

    def describe(self, context: Context, change: Change) -> tuple[RepairAction, str]:  # noqa: ARG002 (see Kind)
        return "restore", "placing or removing it was interrupted"


def make_change(placement: Placement, holder_id: str) -> Change:
    """Return the journal's record of a placement. `holder_id` is the id of the hold that keeps it."""
    record = asdict(placement)
    del record["owner"], record["is_placed"]
    return server_change(TEMP_PLACE, TABLESPACE, record, holder_id)


def read_placement(connection: Connection, change: Change, *, is_placed: bool = False) -> Placement:
    """Return the placement that a record of the journal describes.

    `is_placed` is whether it was completed. Raises TargetError if the record was not written by a superuser, because
    its values become parts of statements.
    """
    if not is_superuser(connection, change.owner):
        raise TargetError(
            f'the record of the place for temporary work was written by role "{change.owner}", which is no superuser',
            hint=f"Find out why, and delete record {change.number} of table oid {SERVER} from table changes.",
        )
    found: dict[str, Any] = dict(change.record)
    prior = found["prior"]
    return Placement(
        location=found["location"],
        scope=Scope(**found["scope"]),
        granted=tuple(found["granted"]),
        prior=None if prior is None else tuple(prior),
        owner=change.owner,
        is_placed=is_placed,
        shares_disk=found["shares_disk"],
    )


@slotted
class RemovalFacts:
    """What exists of a placement that is to be removed: the tablespace, the setting, and what is in the tablespace."""

    # The tablespace, None if it is not at the location where it was created.
    tablespace: TablespaceRow | None
    # Where a tablespace with this name is located, if it is not at the recorded location; None if there is none.
    elsewhere: str | None
    # The other name of the tablespace at the recorded location, None if no other tablespace is there.
    renamed: str | None
    setting: tuple[str, ...] | None
    occupants: list[Occupant]


def _look(context: Context, placement: Placement) -> RemovalFacts:
    connection = context.connection
    found = find_tablespace(connection)
    is_ours = found is not None and found.location == placement.location
    return RemovalFacts(
        tablespace=found if is_ours else None,
        elsewhere=found.location if found is not None and not is_ours else None,
        renamed=find_name_at(connection, placement.location) if found is None else None,
        setting=read_setting(connection, placement.scope),
        occupants=_find_readable(context, found.oid) if found is not None and is_ours else [],
    )


def _find_readable(context: Context, oid: int) -> list[Occupant]:
    """Return the objects in a tablespace, or none if the server cannot read its directory.

    The setting can be restored all the same. DROP TABLESPACE then needs the directory.
    """
    try:
        return find_occupants(_connect(context), context.connection, oid)
    except PenstockError as error:
        if not is_of_file_system(error):
            raise
        return []


def plan_removal(placement: Placement, found: RemovalFacts) -> PlaceReport:
    """Return the statements that remove a placement, and sentences about what stays because somebody has changed it."""
    statements: list[str] = []
    left: list[str] = []
    if found.elsewhere is not None:
        left.append(f'tablespace "{TABLESPACE}" lies in {found.elsewhere} now')
    elif found.renamed is not None:
        left.append(f'tablespace "{found.renamed}" lies in {placement.location}: it had another name')
    if found.setting == _WANTED:
        statements.append(setting_statement(placement.scope, placement.prior))
    elif found.setting != placement.prior:
        left.append(f"{SETTING} of {placement.scope} is {spell_setting(found.setting)} now")
    if placement.scope.kind == "server":
        # Reload even if nothing is set now. An earlier process may have set the value and been killed before it
        # reloaded.
        statements.append(_RELOAD)
    if found.tablespace is not None:
        statements.append(DROP)
    return PlaceReport(placement=placement, statements=tuple(statements), left=tuple(left))


def _undo(context: Context, placement: Placement) -> PlaceReport:
    found = _look(context, placement)
    _refuse_permanent(found)
    planned = plan_removal(placement, found)
    for statement in planned.statements:
        if statement == DROP and found.tablespace is not None:
            # This check comes after the setting is restored. From then on, no new temporary files are written to the
            # tablespace, so a later attempt can succeed.
            _refuse_temporary(context, found.tablespace, placement)
        _run(context, statement)
    # Another role or database may name the tablespace, for example after a role was renamed.
    naming = tuple(f"{SETTING} of {whose} names it still" for whose in find_naming(context.connection, TABLESPACE))
    return replace(planned, left=planned.left + naming)


def _refuse_permanent(found: RemovalFacts) -> None:
    lines = [f"{each.what}: {each.move};" for each in found.occupants if each.move is not None]
    _refuse_used(lines, hint="Run the statements shown, each in its database.")


def _refuse_temporary(context: Context, found: TablespaceRow, placement: Placement) -> None:
    try:
        occupants = find_occupants(_connect(context), context.connection, found.oid)
        occupants += find_spilling(context.connection, found.oid)
    except PenstockError as error:
        if is_of_file_system(error):
            error.hint = (
                f"{SETTING} of {placement.scope} is restored. Give {found.location} back to the server's account, with "
                "mode 0700, and run it again."
            )
        raise
    hint = (
        f"{SETTING} of {placement.scope} is restored; run it again when these are gone: temporary files end with their "
        "statements, temporary tables with their sessions."
    )
    if placement.scope.kind != "server":
        hint += " Sessions that began before keep the setting until they end."
    _refuse_used([each.what for each in occupants], hint=hint)


def _refuse_used(lines: Sequence[str], *, hint: str) -> None:
    if lines:
        more = [f"and {len(lines) - _LISTED} more"] if len(lines) > _LISTED else []
        raise TargetError(
            f'tablespace "{TABLESPACE}" is in use', detail="\n".join([*lines[:_LISTED], *more]), hint=hint
        )


def _run(context: Context, text: str) -> str:
    context.notice(f"{text};")
    if text == _RELOAD:
        reload(context.connection)
    else:
        run_statement(context.connection, text)
    return text


def _connect(context: Context) -> ConnectionFactory:
    assert context.connect is not None, "a place is proved by other sessions"
    return context.connect
