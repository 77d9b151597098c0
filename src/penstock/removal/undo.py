"""Undoes a load: deletes the rows with the transactions that the ledger has of it, and removes it from the ledger.

Both are done by one transaction, so a process that dies leaves either all or nothing. The rows are known by xmin, which
VACUUM, FREEZE and CLUSTER keep, and an UPDATE replaces.
"""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from penstock.changes.records import read_changes
from penstock.core.catalogue.catalog import read_facts
from penstock.core.connect.connection import Connection, ConnectionFactory
from penstock.core.connect.errors import in_transaction, translate_errors
from penstock.core.connect.search_path import TO_USERS_SETTINGS, users_settings
from penstock.core.errors import PenstockError
from penstock.core.sql import fetch_one, fetch_rows, table_identifier
from penstock.ledger.ledger import commit_durably
from penstock.ledger.listing import hold_load, no_such_load, refuse_at_work, remove_load
from penstock.ledger.locks import compose_query
from penstock.ledger.rejects import RejectStore
from penstock.ledger.rights import read_rights
from penstock.removal.decide import (
    UndoneTable,
    UndoOutcome,
    UndoTable,
    find_difference,
    refuse_load,
    refuse_tables,
    warn_skipped,
    warn_unkeyed,
)

# foreign_key_violation, and restrict_violation of PostgreSQL 18 and later.
_STILL_REFERENCED = ("23503", "23001")


def undo_load(
    connect: ConnectionFactory,
    connection: Connection,
    load_id: str,
    *,
    ledger_schema: str,
    is_partial: bool = False,
    only_planned: bool = False,
) -> UndoOutcome:
    """Delete the rows that a load has stored, and remove it from the ledger. Return the number of rows of each table.

    With `only_planned`, rows are only counted. With `is_partial`, rows that were updated or deleted since they were
    stored are no error, and updated rows stay. Needs DELETE and SELECT on the tables. Raises TargetError, DataError,
    ServerError; in these cases nothing was changed.
    """
    server = read_facts(connect, connection)
    with in_transaction(connection, "looking whether the load is running"):
        refuse_at_work(connection, ledger_schema, load_id)
    with in_transaction(connection, "undoing the load"):
        if only_planned:
            rights = read_rights(connection, ledger_schema, load_id)
        else:
            connect.refuse_unwritable("undo a load")
            rights = hold_load(connection, ledger_schema, load_id, "undo")
            # The limit is for the load's row. The lock watch limits how long rows of the table are waited for.
            connection.execute("SET LOCAL lock_timeout TO DEFAULT")
        if rights is None:
            raise no_such_load(load_id)
        rights.refuse_other_role("undo")
        tables = _find_tables(connection, ledger_schema, load_id, is_partial=is_partial)
        shared = _count_shared(connection, ledger_schema, load_id)
        warnings = warn_unkeyed(read_changes(connection, ledger_schema), load_id, tables) + warn_skipped(tables)
        if not only_planned:
            remove_load(connection, ledger_schema, rights)
            connection.execute(commit_durably())
        done = tuple(_count(connection, each) for each in tables) if only_planned else _delete(connection, tables)
        is_imported = any(each.is_imported for each in tables)
        error = find_difference(load_id, done, is_partial=is_partial, is_imported=is_imported)
        if error is not None:
            raise error
        if not only_planned:
            # Deferred triggers are called at the commit.
            connection.execute(TO_USERS_SETTINGS)
    return UndoOutcome(
        load_id=load_id,
        server=server.name,
        database=server.database,
        tables=done,
        shared=shared,
        warnings=tuple(warnings),
    )


def _find_tables(connection: Connection, schema: str, load_id: str, *, is_partial: bool) -> list[UndoTable]:
    load = RejectStore(schema, load_id).read_load(connection)
    if load is None:
        raise no_such_load(load_id)
    refuse_load(load_id, meaning=load.meaning, job=load.job, is_partial=is_partial)
    tables = fetch_rows(connection, "removal/undo_tables", UndoTable, ledger=schema, load=load_id)
    return refuse_tables(load_id, tables, is_partial=is_partial)


def _count_shared(connection: Connection, schema: str, load_id: str) -> int:
    query = (
        "SELECT count(DISTINCT o.uri) FROM ONLY {objects} AS o JOIN ONLY {objects} AS p"
        " ON p.uri = o.uri AND p.target_oid = o.target_oid AND p.load <> o.load WHERE o.load = %s"
    )
    with translate_errors("looking for other loads of the files"):
        return int(fetch_one(connection, compose_query(query, schema), [load_id])[0])


def _delete(connection: Connection, tables: Sequence[UndoTable]) -> tuple[UndoneTable, ...]:
    """Delete the rows of all tables by one statement, at whose end foreign keys between them are checked."""
    deletes = [sql.SQL("DELETE FROM {} WHERE {}").format(_place(each), _is_of_load(each)) for each in tables]
    try:
        with translate_errors("removing rows of the load"), users_settings(connection):
            # WITH keeps a row for each deleted one, often in a temporary file. One table does without it.
            if len(tables) < 2:
                counts = [connection.execute(query).rowcount for query in deletes]
            else:
                counts = [*fetch_one(connection, _count_deleted(deletes))]
    except PenstockError as error:
        if error.sqlstate in _STILL_REFERENCED:
            error.hint = "Remove the rows that refer to it first. With --plan, undo names the foreign keys."
        raise
    return tuple(map(_make, tables, counts))


def _count_deleted(deletes: Sequence[sql.Composed]) -> sql.Composed:
    """Return a query that runs several DELETE statements at once, with how many rows each has deleted."""
    names = [sql.Identifier(f"t{number}") for number in range(len(deletes))]
    queries = [sql.SQL("{} AS ({} RETURNING 1)").format(*pair) for pair in zip(names, deletes, strict=True)]
    counts = [sql.SQL("(SELECT pg_catalog.count(*) FROM {})").format(name) for name in names]
    comma = sql.SQL(", ")
    return sql.SQL("WITH {} SELECT {}").format(comma.join(queries), comma.join(counts))


def _count(connection: Connection, table: UndoTable) -> UndoneTable:
    query = sql.SQL("SELECT pg_catalog.count(*) FROM {} WHERE {}").format(_place(table), _is_of_load(table))
    with translate_errors(f'counting rows of table "{table.table}"'), users_settings(connection):
        return _make(table, fetch_one(connection, query)[0])


def _is_of_load(table: UndoTable) -> sql.Composed:
    """Return the condition for the load's rows.

    The transactions are no parameter, because the table's name may contain a %, which psycopg would read as a
    placeholder. Triggers need the user's search_path, so the operator has its schema.
    """
    transactions = sql.Literal(f"{{{','.join(table.transactions)}}}")
    return sql.SQL("xmin OPERATOR(pg_catalog.=) ANY ({}::pg_catalog.xid[])").format(transactions)


def _make(table: UndoTable, rows: int) -> UndoneTable:
    return UndoneTable(table=str(table.table), stored=table.rows, rows=rows, referrers=tuple(table.referrers))


def _place(table: UndoTable) -> sql.Composable:
    """Return what is written behind FROM. COPY fills partitions, but no tables that inherit from an ordinary one."""
    name = table_identifier(table.table)
    return name if table.kind == "p" else sql.SQL("ONLY {}").format(name)
