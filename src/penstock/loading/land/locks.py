"""Locks several tables within a short time, or none of them; and truncates tables.

A deadlock occurs if another session has locked one of the tables and waits for a table that this session has locked,
while this session waits too. After deadlock_timeout the server cancels one of the two sessions. So an attempt that has
only some of its locks releases them before that time is over.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Literal

import psycopg
from psycopg import sql

from penstock.core.catalogue.locking import DEFAULT_LOCK_TIMEOUT_S, LOCK_NOT_AVAILABLE, find_blockers, in_ms
from penstock.core.catalogue.tables import LoadedTable, send_check
from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import in_transaction, rolled_back, translate_errors
from penstock.core.connect.search_path import users_settings
from penstock.core.errors import ServerError, TargetError
from penstock.core.frozen import frozen
from penstock.core.sql import change_setting, fetch_one, fetch_rows, table_identifier
from penstock.core.values.table import TableFacts

LockMode = Literal["ROW SHARE", "ROW EXCLUSIVE", "ACCESS EXCLUSIVE"]

# Locks are taken in this order. The mode that blocks readers is the last, so it is held for the shortest time.
_MODES: Final[tuple[LockMode, ...]] = ("ROW SHARE", "ROW EXCLUSIVE", "ACCESS EXCLUSIVE")

# Other sessions may have a shorter deadlock_timeout than this one, but rarely shorter than the default.
_LONGEST_DEADLOCK_TIMEOUT_S = 1.0

# The lock mode of VACUUM and ANALYZE. It shows which session is an autovacuum worker, because a role without
# pg_read_all_stats sees nothing else of the worker.
_VACUUM_MODE = "ShareUpdateExclusiveLock"


@frozen
class LockableRow:
    """The row of lockable.sql."""

    oid: int
    schema: str
    name: str
    # pg_class.relkind.
    kind: str
    may_lock: bool
    may_insert: bool

    def allows(self, mode: LockMode) -> bool:
        """Return whether this role may take the lock."""
        return self.may_lock or (self.may_insert and mode == "ROW EXCLUSIVE")

    @property
    def identifier(self) -> sql.Composed:
        """Return the table for LOCK TABLE. Tables that inherit from it are not locked; partitions are."""
        only = sql.SQL("ONLY " if self.kind == "r" else "")
        return sql.SQL("{}{}").format(only, sql.Identifier(self.schema, self.name))


class TableLocks:
    """The locks that one transaction needs: the OID of each table with its mode.

    Tables that the role may not lock are locked by the statements that need them. A single table too is locked by its
    statement at the first attempt. Methods raise ServerError, TargetError.
    """

    def __init__(self, connection: Connection, wanted: Mapping[int, LockMode]) -> None:
        self._connection = connection
        self._wanted = wanted
        self._attempts = 0
        self._deadlock_timeout_s = 0.0
        self._rows: dict[LockMode, list[LockableRow]] = defaultdict(list)

    def take(self) -> None:
        """Take all locks until the end of the caller's transaction or savepoint. Call it through with_lock_retries.

        If several locks take longer than half of deadlock_timeout (at most 0.5 s), it raises ServerError (55P03) and
        holds none of them.
        """
        self._attempts += 1
        if self._attempts == 1 and len(self._wanted) < 2:
            return
        with translate_errors("locking tables"):
            if not self._rows:
                self._look_up()
            if self._attempts > 1:
                self._wait_for_vacuum()
            try:
                self._lock(self._rows)
            except psycopg.errors.InsufficientPrivilege:
                # LOCK TABLE on a view also locks the view's tables, and the view's owner may lack the right to that.
                # The load may succeed all the same, because an INSTEAD OF trigger may have that right. So lock only the
                # other relations.
                self._lock({mode: [row for row in rows if row.kind != "v"] for mode, rows in self._rows.items()})

    def _look_up(self) -> None:
        rows = fetch_rows(self._connection, "loading/lockable", LockableRow, relations=sorted(self._wanted))
        self._deadlock_timeout_s = _read_deadlock_timeout(self._connection)
        for row in rows:
            if row.allows(self._wanted[row.oid]):
                self._rows[self._wanted[row.oid]].append(row)

    def _lock(self, rows: Mapping[LockMode, Sequence[LockableRow]]) -> None:
        statements = [_compose(rows[mode], mode) for mode in _MODES if rows.get(mode)]
        if sum(map(len, rows.values())) < 2:
            # With a single lock there can be no deadlock.
            for statement in statements:
                self._connection.execute(statement)
            return
        longest_s = min(self._deadlock_timeout_s, _LONGEST_DEADLOCK_TIMEOUT_S)
        # All statements together take at most half of deadlock_timeout, so the locks are released in the other half.
        timeout_s = longest_s / 2 / len(statements)
        try:
            with in_transaction(self._connection):
                before = change_setting(self._connection, "statement_timeout", in_ms(timeout_s))
                for statement in statements:
                    self._connection.execute(statement)
                change_setting(self._connection, "statement_timeout", before)
        except psycopg.errors.QueryCanceled as error:
            raise ServerError("could not lock all tables at once", sqlstate=LOCK_NOT_AVAILABLE) from error

    def _wait_for_vacuum(self) -> None:
        """Make autovacuum release a table, by waiting for the table's lock for longer than deadlock_timeout.

        The server then cancels the autovacuum worker.
        """
        for row in self._rows["ACCESS EXCLUSIVE"]:
            blockers = find_blockers(self._connection, [row.oid])
            if not any(blocker.is_held and blocker.mode == _VACUUM_MODE for blocker in blockers):
                continue
            with suppress(psycopg.errors.LockNotAvailable), rolled_back(self._connection):
                timeout_s = max(DEFAULT_LOCK_TIMEOUT_S, 2 * self._deadlock_timeout_s)
                change_setting(self._connection, "lock_timeout", in_ms(timeout_s))
                self._connection.execute(_compose([row], "ACCESS EXCLUSIVE"))


def _compose(rows: Iterable[LockableRow], mode: LockMode) -> sql.Composed:
    tables = sql.SQL(", ").join(row.identifier for row in rows)
    return sql.SQL("LOCK TABLE {} IN {} MODE").format(tables, sql.SQL(mode))


def _read_deadlock_timeout(connection: Connection) -> float:
    query = "SELECT extract(epoch FROM pg_catalog.current_setting('deadlock_timeout')::pg_catalog.interval)::float8"
    return float(fetch_one(connection, query)[0])


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
            connection, "loading/truncate_referencing", ReferencingRow, oid=target.oid, together=[*together]
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
