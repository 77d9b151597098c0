"""TRUNCATE as loading uses it: without CASCADE, refused beforehand where it would be refused, or do too much.

When it is run, and what is written down with it, is loading's business.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg import sql

from penstock.errors import TargetError
from penstock.server.connect.errors import translate_errors
from penstock.server.connect.search_path import users_path
from penstock.server.sql.queries import fetch_rows
from penstock.server.table.identity import LoadedTable, send_check

if TYPE_CHECKING:
    from penstock.model.server.table import TableFacts
    from penstock.server.connect.connection import Connection

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferencingRow:
    """The row of truncate_referencing.sql."""

    name: str
    schema: str
    table: str


def check_truncatable(connection: Connection, target: TableFacts) -> None:
    """Raise TargetError where TRUNCATE would be refused: for a view, without the privilege, for a referenced table."""
    if target.kind not in {"r", "p"}:
        raise TargetError(f'cannot truncate "{target.name}": it is not a table', hint="Load with --mode append.")
    with translate_errors(f"checking whether {target.name} can be truncated"):
        row = connection.execute("SELECT pg_catalog.has_table_privilege(%s::oid, 'TRUNCATE')", [target.oid]).fetchone()
        referencing = fetch_rows(connection, "truncate_referencing", ReferencingRow, oid=target.oid)
    if row != (True,):
        grant = sql.SQL("GRANT TRUNCATE ON {} TO ...;").format(_identifier(target)).as_string(None)
        raise TargetError(
            f'permission denied for table "{target.name}"',
            detail="The role lacks TRUNCATE.",
            hint=f"Have the owner run {grant} Or use another role with --role.",
        )
    if referencing:
        keys = ", ".join(f'"{row.name}" of table "{row.schema}.{row.table}"' for row in referencing)
        raise TargetError(
            f'cannot truncate table "{target.name}": other tables reference it',
            detail=f"Foreign keys: {keys}.",
            hint="Drop these keys before the load and add them after, or load with --mode upsert.",
        )


def truncate_table(connection: Connection, target: TableFacts) -> None:
    """Remove all rows of a table, of a partitioned one with its partitions; tables that inherit from it keep theirs.

    Takes an ACCESS EXCLUSIVE lock to the end of the caller's transaction. Raises TargetError, also if the name means
    another table by then, ServerError.
    """
    what = sql.SQL("TRUNCATE TABLE {}{}").format(sql.SQL("" if target.kind == "p" else "ONLY "), _identifier(target))
    # Triggers may need the user's path.
    with translate_errors(f"truncating {target.name}"), users_path(connection):
        with connection.pipeline():
            connection.execute(what)
            check = send_check(connection, LoadedTable(target.name, target.oid))
        check()
    _log.info("truncated table %s", target.name)


def _identifier(target: TableFacts) -> sql.Identifier:
    return sql.Identifier(target.name.schema or "public", target.name.name)
