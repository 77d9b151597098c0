"""Records the end of a load durably, in one transaction with the last statements for its tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from penstock.model.load.ledger import Claim, FinishedLoad, LandedCounts
from penstock.server.connect.connection import Connection
from penstock.server.connect.errors import at_once, in_transaction, translate_errors
from penstock.server.connect.search_path import TO_USERS_SETTINGS
from penstock.server.ledger.committed import BE_DURABLE, has_all, missing_objects
from penstock.server.ledger.origin import compose_query
from penstock.server.ledger.targets import write_counts

if TYPE_CHECKING:
    from psycopg.errors import Diagnostic

    from penstock.server.ledger.ledger import Ledger

# The SQLSTATE of the warning that the server sends if a commit's wait for synchronous standbys is cancelled. The
# transaction is then committed on the primary (SyncRepWaitForLSN in src/backend/replication/syncrep.c).
_UNCONFIRMED = "01000"

# The rows that load l has stored in its tables: staged records count only if they were inserted or updated.
_STORED_ROWS = """
    SELECT coalesce((SELECT sum(r.rows) FROM ONLY {ranges} AS r WHERE r.load = l.id), 0)
           + coalesce((SELECT sum(t.inserted + t.updated - t.staged) FROM ONLY {targets} AS t WHERE t.load = l.id), 0)
"""

# The counts of FinishedLoad, as one JSON object.
_TOTALS = """
    pg_catalog.json_build_object(
        'rows', l.rows,
        'suppressed',
        coalesce((SELECT sum(r.suppressed) FROM ONLY {ranges} AS r WHERE r.load = l.id), 0)
        + coalesce((SELECT sum(t.suppressed) FROM ONLY {targets} AS t WHERE t.load = l.id), 0),
        'inserted', coalesce((SELECT sum(t.inserted) FROM ONLY {targets} AS t WHERE t.load = l.id), 0),
        'updated', coalesce((SELECT sum(t.updated) FROM ONLY {targets} AS t WHERE t.load = l.id), 0),
        'duplicates', coalesce((SELECT sum(t.duplicates) FROM ONLY {targets} AS t WHERE t.load = l.id), 0),
        'existing', coalesce((SELECT sum(t.existing) FROM ONLY {targets} AS t WHERE t.load = l.id), 0)
    )
"""


def finish(
    ledger: Ledger,
    connection: Connection,
    claim: Claim,
    *,
    act: Callable[[], Sequence[LandedCounts]] | None = None,
) -> FinishedLoad | None:
    """Record durably that a load is complete; return None if a part of it is not in the ledger.

    If nothing is missing, `act` runs the last statements for the tables in the same transaction. Only the ledger
    decides, because a server that crashed may have lost commits that it had acknowledged. Raises ServerError,
    TargetError if the load was taken over, and the errors of `act`.
    """
    query = compose_query(
        """
        UPDATE ONLY {loads} AS l
           SET state = 'complete',
               changed_at = pg_catalog.clock_timestamp(),
               event = DEFAULT,
               rows = ({rows})
         WHERE l.id = %(load)s
           AND l.epoch = %(epoch)s
           AND NOT EXISTS ({missing})
        RETURNING {totals}
        """,
        ledger.schema,
        rows=compose_query(_STORED_ROWS, ledger.schema),
        missing=missing_objects(ledger.schema),
        totals=compose_query(_TOTALS, ledger.schema),
    )
    values = {"load": claim.load_id, "epoch": claim.epoch}
    with translate_errors("recording that the load is complete"), _hearing_warnings(connection) as warnings:
        if act is None:
            row = _run_durably(connection, query, values)
        else:
            row = _run_with(ledger, connection, claim, act, query, values)
    if row is None:
        ledger.check_claim(connection, claim)
        return None
    return FinishedLoad(**row[0], is_local_only=_UNCONFIRMED in warnings)


def _run_with(
    ledger: Ledger,
    connection: Connection,
    claim: Claim,
    act: Callable[[], Sequence[LandedCounts]],
    query: sql.Composed,
    values: Mapping[str, Any],
) -> tuple[Any, ...] | None:
    """Call `act` and run `query` in one durable transaction that checks the claim; return the row of `query`.

    If a part of the load is not committed, or `query` returns no row, roll back and return None.
    """
    row: tuple[Any, ...] | None = None
    with in_transaction(connection) as transaction:
        with connection.pipeline():
            connection.execute(BE_DURABLE)
            ledger.hold_claim(connection, claim)
        if has_all(connection, ledger.schema, claim.load_id):
            counts = act()
            with connection.pipeline():
                write_counts(connection, ledger.schema, claim, counts)
                cursor = connection.execute(query, values)
            row = cursor.fetchone()
        if row is None:
            raise psycopg.Rollback(transaction)
        # Deferred triggers run at the commit, and need the user's search_path.
        connection.execute(TO_USERS_SETTINGS)
    return row


def commit_durably() -> sql.Composed:
    """Return the statements that make a loading transaction durable when it is committed."""
    return sql.SQL("SET LOCAL synchronous_commit TO DEFAULT; {}").format(sql.SQL(BE_DURABLE))


def confirm(ledger: Ledger, connection: Connection, claim: Claim) -> FinishedLoad | None:
    """Return the result of `finish` if it has committed and only the server's answer was lost, else None.

    The statement commits durably once more, which makes the commit of `finish` durable too. Raises ServerError.
    """
    query = compose_query(
        "UPDATE ONLY {loads} AS l SET login = CASE WHEN l.login = SESSION_USER THEN l.login END"
        " WHERE l.id = %(load)s AND l.state = 'complete' RETURNING {totals}, l.epoch",
        ledger.schema,
        totals=compose_query(_TOTALS, ledger.schema),
    )
    with translate_errors("checking whether the load is complete"), _hearing_warnings(connection) as warnings:
        row = _run_durably(connection, query, {"load": claim.load_id})
    if row is None:
        return None
    totals, epoch = row
    return FinishedLoad(**totals, is_local_only=_UNCONFIRMED in warnings, is_others=epoch != claim.epoch)


def _run_durably(connection: Connection, query: sql.Composed, values: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Run a statement that writes, in its own transaction, and return its row once the transaction is durable."""
    with at_once(connection):
        connection.execute(BE_DURABLE)
        cursor = connection.execute(query, values)
    return cursor.fetchone()


@contextmanager
def _hearing_warnings(connection: Connection) -> Iterator[list[str]]:
    """Collect the SQLSTATEs of the warnings that the server sends within the context."""
    states: list[str] = []

    def hear(diagnostic: Diagnostic) -> None:
        states.append(diagnostic.sqlstate or "")

    connection.add_notice_handler(hear)
    try:
        yield states
    finally:
        connection.remove_notice_handler(hear)
