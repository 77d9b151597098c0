"""Proves where temporary work goes: makes a session spill and create a temporary table, and looks for both there."""

from __future__ import annotations

from psycopg import sql

from penstock.model.temp.placement import SETTING, TABLESPACE, Placement, parse_setting
from penstock.server.connect.connection import Connection, ConnectionFactory
from penstock.server.connect.errors import in_transaction, translate_errors
from penstock.server.sql.queries import fetch_one

# This sorts some megabytes with the least work_mem. The temporary file exists as long as the cursor.
_SPILL = "DECLARE penstock_proof CURSOR FOR SELECT g FROM pg_catalog.generate_series(1, 200000) AS g ORDER BY -g"

_FILES = """
    SELECT pg_catalog.count(*)
      FROM pg_catalog.pg_ls_tmpdir(%s::oid) AS f
     WHERE pg_catalog.starts_with(f.name, %s)
"""

_TABLE_PLACE = """
    SELECT c.reltablespace::int8
      FROM pg_catalog.pg_class AS c
     WHERE c.oid = 'pg_temp.penstock_proof'::pg_catalog.regclass
"""


def find_disproof(connect: ConnectionFactory, control: Connection, placement: Placement, oid: int) -> str | None:
    """Return why temporary work of a new session does not go to a placement's tablespace, or None if it does.

    The session is in the scope's database, or takes the scope's role with SET ROLE, because penstock cannot log in as
    that role. `control` lists all files, which needs pg_monitor. Raises ServerError, TargetError.
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
        # If the role lacks CREATE on the tablespace, PostgreSQL silently puts temporary work elsewhere. So take a role
        # that has it.
        role = placement.scope.name if placement.scope.kind == "role" else next(iter(placement.granted), None)
        if role is not None:
            session.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(role)))
        if placement.scope.kind == "role":
            session.execute(sql.SQL("SET LOCAL temp_tablespaces = {}").format(sql.Identifier(TABLESPACE)))
        session.execute("SET LOCAL work_mem = '64kB'")
        session.execute(_SPILL)
        session.execute("FETCH 1 FROM penstock_proof")
        files = control.execute(_FILES, [oid, f"pgsql_tmp{session.info.backend_pid}."]).fetchone()
        if files is None or files[0] == 0:
            return "a sort that spilled has no file there"
        session.execute("CREATE TEMPORARY TABLE penstock_proof (a int)")
        lies = session.execute(_TABLE_PLACE).fetchone()
        return None if lies == (oid,) else "a temporary table does not lie there"
