"""TRUNCATE for loads: without CASCADE, and checked in advance, so that a refusal comes before the load.

Package loading decides when TRUNCATE runs and what is recorded with it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from psycopg import sql

from penstock.errors import TargetError
from penstock.frozen import frozen
from penstock.model.server.table import TableFacts
from penstock.server.connect.connection import Connection
from penstock.server.connect.errors import translate_errors
from penstock.server.connect.search_path import users_settings
from penstock.server.sql.queries import fetch_rows, table_identifier
from penstock.server.table.identity import LoadedTable, send_check

_log = logging.getLogger(__name__)


@frozen
class ReferencingRow:
    """The row of truncate_referencing.sql."""

    name: str
    schema: str
    table: str


def check_truncatable(connection: Connection, target: TableFacts, *, together: Sequence[int] = ()) -> None:
    """Raise TargetError if TRUNCATE would be refused: for a view, a missing privilege, or a referenced table.

    `together` are the OIDs of the tables in the same TRUNCATE.
    """
    if target.kind not in {"r", "p"}:
        raise TargetError(f'cannot truncate "{target.name}": it is not a table', hint="Load with --mode append.")
    with translate_errors(f"checking whether {target.name} can be truncated"):
        row = connection.execute("SELECT pg_catalog.has_table_privilege(%s::oid, 'TRUNCATE')", [target.oid]).fetchone()
        referencing = fetch_rows(
            connection, "truncate_referencing", ReferencingRow, oid=target.oid, together=[*together]
        )
    if row != (True,):
        grant = sql.SQL("GRANT TRUNCATE ON {} TO ...;").format(table_identifier(target.name)).as_string(None)
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
            hint="Load these tables by the same job, with mode truncate too; or drop the keys before the load and add "
            "them after, or load with --mode upsert.",
        )


def truncate_tables(connection: Connection, targets: Sequence[TableFacts]) -> None:
    """Remove all rows of tables, and of the partitions of partitioned tables, but not of tables that inherit from them.

    It is one statement, because the tables' foreign keys may refer to each other. Takes ACCESS EXCLUSIVE locks until
    the caller's transaction ends. Raises TargetError, also if a name belongs to another table by then, and ServerError.
    """
    tables = [
        sql.SQL("{}{}").format(sql.SQL("" if target.kind == "p" else "ONLY "), table_identifier(target.name))
        for target in targets
    ]
    names = ", ".join(str(target.name) for target in targets)
    # Triggers may need the user's search_path.
    with translate_errors(f"truncating {names}"), users_settings(connection):
        with connection.pipeline():
            connection.execute(sql.SQL("TRUNCATE TABLE {}").format(sql.SQL(", ").join(tables)))
            checks = [send_check(connection, LoadedTable(target.name, target.oid)) for target in targets]
        for check in checks:
            check()
    _log.info("truncated %s", names)
