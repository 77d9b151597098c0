"""What all ways of storing records need: the load, the ledger's records of created tables, locks, and truncation.

Several tables are locked within a short time, or none of them. A deadlock occurs if another session has locked one of
the tables and waits for a table that this session has locked, while this session waits too. After deadlock_timeout the
server cancels one of the two sessions. So an attempt that has only some of its locks releases them before that time is
over.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from typing import Final, Literal, TypeVar

import psycopg
from psycopg import sql

from penstock.changes.tables.definition import TableDefinition
from penstock.core.catalogue.catalog import read_partition_line
from penstock.core.catalogue.locking import (
    DEFAULT_LOCK_TIMEOUT_S,
    LOCK_NOT_AVAILABLE,
    find_blockers,
    in_ms,
    telling_once,
    with_lock_retries,
)
from penstock.core.catalogue.tables import LoadedTable, send_check
from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import in_transaction, rolled_back, translate_errors
from penstock.core.connect.search_path import users_settings
from penstock.core.errors import ServerError, SourceError, TargetError
from penstock.core.slotted import slotted
from penstock.core.sql import change_setting, fetch_one, fetch_rows, table_identifier
from penstock.core.values.table import TableFacts, TableName
from penstock.ledger.targets import drop_landing, drop_ranges, find_unended, note_truncated, write_landing
from penstock.ledger.values import Claim, LandedCounts, LandingRecord
from penstock.loading.context import LoadTools
from penstock.loading.land.leaf import ReplacedPartition
from penstock.loading.land.partition import PartitionModel
from penstock.loading.values.objects import PlannedObject
from penstock.loading.values.outcome import StatementOutcome
from penstock.loading.values.plan import LoadPlan, TargetPlan

# Is called with the number of a target and the outcome of its transform.
NoteStatement = Callable[[int, StatementOutcome], None]

LockMode = Literal["ROW SHARE", "ROW EXCLUSIVE", "ACCESS EXCLUSIVE"]

# Locks are taken in this order. The mode that blocks readers is the last, so it is held for the shortest time.
_MODES: Final[tuple[LockMode, ...]] = ("ROW SHARE", "ROW EXCLUSIVE", "ACCESS EXCLUSIVE")

# The deadlock_timeout that other sessions are assumed to have if that of this session is longer. It is PostgreSQL's
# default, and other sessions rarely have less.
_LONGEST_DEADLOCK_TIMEOUT_S = 1.0

# The lock mode of VACUUM and ANALYZE. A session with this lock is taken for an autovacuum worker, because a role
# without pg_read_all_stats sees nothing else of the worker.
_VACUUM_MODE = "ShareUpdateExclusiveLock"


@slotted
class LockableRow:
    """The row of lockable.sql: a table or view, and which locks this role may take on it."""

    oid: int
    schema: str
    name: str
    # pg_class.relkind.
    kind: str
    # Whether tables that are partitions of it or inherit from it are left out.
    is_alone: bool
    may_lock: bool
    may_insert: bool

    def allows(self, mode: LockMode) -> bool:
        """Return whether this role may take a lock of this mode by LOCK TABLE."""
        return self.may_lock or (self.may_insert and mode == "ROW EXCLUSIVE")

    @property
    def identifier(self) -> sql.Composed:
        """Return the table's name for LOCK TABLE."""
        only = sql.SQL("ONLY " if self.is_alone else "")
        return sql.SQL("{}{}").format(only, sql.Identifier(self.schema, self.name))


class TableLocks:
    """Takes the table locks that one transaction needs. `wanted` maps each table's OID to the mode of its lock.

    Partitions are locked with their table, but for those of the tables in `alone`; tables that inherit are not.
    A table for which the role may not use LOCK TABLE is not locked here, but by the transaction's later statements. If
    `wanted` has only one table, the first call of `take` also leaves the lock to them. Methods raise ServerError,
    TargetError.
    """

    def __init__(self, connection: Connection, wanted: Mapping[int, LockMode], *, alone: Collection[int] = ()) -> None:
        self._connection = connection
        self._wanted = wanted
        self._alone = sorted(alone)
        self._attempts = 0
        self._deadlock_timeout_s = 0.0
        self._rows: dict[LockMode, list[LockableRow]] = defaultdict(list)

    def take(self) -> None:
        """Take all locks, and hold them until the end of the caller's transaction or savepoint.

        Call this through with_lock_retries. If several locks are not all taken within half of deadlock_timeout (at most
        0.5 s), they are released, and ServerError (SQLSTATE 55P03) is raised.
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
                # LOCK TABLE on a view also locks the view's tables, and the view's owner may lack the right to lock
                # them. The load may succeed all the same, because an INSTEAD OF trigger may have this right. So lock
                # only the other relations.
                self._lock({mode: [row for row in rows if row.kind != "v"] for mode, rows in self._rows.items()})

    def _look_up(self) -> None:
        rows = fetch_rows(
            self._connection, "loading/lockable", LockableRow, relations=sorted(self._wanted), alone=self._alone
        )
        self._deadlock_timeout_s = _read_deadlock_timeout(self._connection)
        for row in rows:
            if row.allows(self._wanted[row.oid]):
                self._rows[self._wanted[row.oid]].append(row)

    def _lock(self, rows: Mapping[LockMode, Sequence[LockableRow]]) -> None:
        statements = [_compose(rows[mode], mode) for mode in _MODES if rows.get(mode)]
        if sum(map(len, rows.values())) < 2:
            # Take a single lock without a shorter timeout: a deadlock needs two locks.
            for statement in statements:
                self._connection.execute(statement)
            return
        longest_s = min(self._deadlock_timeout_s, _LONGEST_DEADLOCK_TIMEOUT_S)
        # All statements together take at most half of deadlock_timeout. If they take longer, the locks are released
        # before the other half is over.
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


@slotted
class ReferencingRow:
    """The row of truncate_referencing.sql: a foreign key of another table that refers to the table or a partition."""

    name: str
    schema: str
    table: str


def check_truncatable(connection: Connection, target: TableFacts, *, together: Sequence[int] = ()) -> None:
    """Raise TargetError if TRUNCATE would be refused: for a view, a missing privilege, or a foreign key to the table.

    Foreign keys of the tables in `together` do not matter. These are the OIDs of the tables in the same TRUNCATE.
    Raises ServerError.
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

    All tables are truncated by one statement, because their foreign keys may refer to each other. Takes ACCESS
    EXCLUSIVE locks until the caller's transaction ends. Raises ServerError, and TargetError, also if a table's name now
    belongs to another table.
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


_Result = TypeVar("_Result")


@slotted
class TargetLanding:
    """One target for which the load does more than COPY: its table is truncated, or COPY fills another table first.

    The other table is a staging table or, with --mode replace, the new table. A landing is the way in which records
    become rows of a target's table.
    """

    target: TargetPlan
    # The facts of the target's table.
    facts: TableFacts
    # The ledger's record of where COPY puts the rows.
    record: LandingRecord
    # The numbers of the target's objects.
    objects: tuple[int, ...]
    # The definition of a table to be replaced, or of a partition as it is to be.
    definition: TableDefinition | None = None
    # The model of a new partition.
    partition: PartitionModel | None = None
    # What makes a table to be replaced a partition, None for other tables.
    replaced: ReplacedPartition | None = None

    @property
    def table(self) -> TableName | None:
        """Return the staging table or the new table that COPY fills, None if COPY fills the target's own table."""
        if self.record.kind is None or self.record.table is None:
            return None
        return TableName(schema=self.record.schema, name=self.record.table)

    @property
    def working_names(self) -> tuple[tuple[str, str], ...]:
        """Return pairs of the present and the final name of the new table of --mode replace and of its indexes.

        The result is empty in other modes, and before the new table is created.
        """
        if self.definition is None or self.record.table is None or self.record.oid is None:
            return ()
        indexes = self.definition.name_indexes(self.record.oid)
        return ((self.record.table, self.definition.table.name), *((now, name) for name, now in indexes.items()))


@slotted
class LandingContext:
    """What functions that store records need of a load: its plan, claim and tools, and the session with its lock."""

    plan: LoadPlan
    tools: LoadTools
    connection: Connection
    claim: Claim
    # The objects of the load that this host has, by number. Records that are rejected at the end are read again from
    # them.
    objects: Mapping[int, PlannedObject] = field(default_factory=dict)
    # Which objects of the sources the load does not have, in words; empty if it has all of them.
    lack: str = ""
    # Called with a target's number, how many rows --mode sync deleted from its table, and which tables that changed.
    note_deleted: Callable[[int, int, Sequence[str]], None] = lambda *_: None

    def find(self, number: int) -> PlannedObject:
        """Return the load's object with this number. Raises SourceError if the sources of this host do not have it."""
        if number not in self.objects:
            load_id = self.claim.load_id
            raise SourceError(
                f"object {number} of load {load_id} is not among the sources of this host",
                hint=f"penstock loads show {load_id} names it. Run the load where the object exists.",
            )
        return self.objects[number]

    @property
    def schema(self) -> str:
        """Return the ledger's schema."""
        return self.tools.ledger.schema

    def with_locks(
        self, act: Callable[[], _Result], *, relations: Sequence[int], what: str, is_patient: bool = True
    ) -> _Result:
        """Call `act` in a transaction or savepoint until it gets its locks, and return its result.

        `relations` are the OIDs of the tables that `act` locks. The sessions that block it are reported once each; the
        report contains `what`, such as `truncate "orders"`. `act` is retried for as long as --retry-for allows, or not
        at all if `is_patient` is false. Raises ServerError, which names the blockers, and any other error of `act`.
        """
        return with_lock_retries(
            self.connection,
            act,
            relations=relations,
            deadline_s=self.plan.job.rules.retry_for if is_patient else 0.0,
            on_blocked=telling_once(self.tools.notice, what),
            clock=self.tools.clock,
            sleep=self.tools.sleep,
        )

    def begin_anew(self, landing: TargetLanding) -> None:
        """Delete the committed ranges of a target whose staging table or new table was dropped or does not fit.

        The target's objects are then loaded again. Do nothing if the ledger has no record of such a table. The caller
        has dropped the table. DROP waits for other hosts that are committing rows to it, so their ranges are visible
        here.
        """
        if landing.record.kind is None:
            return
        name = f"{landing.record.schema}.{landing.record.table}"
        self.tools.notice(f'table "{name}" of this load was dropped or changed: its objects are loaded again')
        drop_ranges(self.connection, self.schema, self.claim, landing.objects)

    def note(self, landing: TargetLanding, record: LandingRecord, *, table: TableName, oid: int) -> TargetLanding:
        """Record a created table in the ledger, in the transaction that created it. Return `landing` with `record`."""
        record = replace(record, schema=table.schema, table=table.name, oid=oid)
        write_landing(self.connection, self.schema, self.claim, record)
        return replace(landing, record=record)

    def drop(self, record: LandingRecord) -> None:
        """Drop the staging table or new table in `record`, which an earlier run created for this load."""
        drop_landing(self.connection, self.schema, record, load_id=self.claim.load_id)

    def refuse_publications(self, publications: Iterable[str], describe: Callable[[], str]) -> None:
        """Raise TargetError if publications would publish a new table, unless --publish-ledger is given.

        Subscribers lack the table, so they would stop. `publications` are the names of the publications. `describe`
        returns the CREATE TABLE statement for the error.
        """
        names = ", ".join(f'"{name}"' for name in publications)
        if self.tools.is_publishing_allowed or not names:
            return
        raise TargetError(
            "a table that this load creates would stop the subscribers of a publication",
            detail=f"Publication {names} would publish it, and the subscribers lack it. They need: {describe()}",
            hint="Create this table on every subscriber, then use --publish-ledger.",
        )


class LandingMethod:
    """One way in which the records of targets get into their tables. In this class COPY fills the tables themselves.

    Subclasses stage the records or replace the tables. `landings` are the targets of the load that are filled in this
    way. Methods raise PenstockError.
    """

    def __init__(self, context: LandingContext, landings: Sequence[TargetLanding] = ()) -> None:
        self._context = context
        self._plan = context.plan
        self._tools = context.tools
        self._connection = context.connection
        self._landings = landings

    @staticmethod
    def check(target: TargetPlan, connection: Connection, *, ledger_schema: str) -> None:
        """Raise TargetError if the table cannot be filled in this way. Change nothing."""

    def foresee(self, target: TargetPlan, facts: TableFacts, suffix: str) -> None:
        """Raise TargetError if a publication would publish the table that `open` creates. Change nothing.

        `suffix` ends the name of that table.
        """

    def open(self, landing: TargetLanding, suffix: str) -> TargetLanding:  # noqa: ARG002 (for other ways)
        """Create the table that COPY fills, in the caller's transaction, and return `landing` with its name.

        This class returns `landing` unchanged, because COPY fills the target itself. `suffix` ends the name of the
        created table. Raises TargetError or DataError if the statement that stores the records at the load's end would
        fail.
        """
        return landing

    def finish(self) -> None:
        """Do the work that can be committed before the transaction that ends the load, such as building indexes."""

    def list_locks(self) -> dict[int, LockMode]:
        """Return the mode of each table lock that `land` takes, by the OID of the table."""
        return {}

    def land(self, note_statement: NoteStatement) -> Sequence[LandedCounts]:  # noqa: ARG002 (for other ways)
        """Move the records to the tables, in the transaction that ends the load. Return the counts of each target.

        `note_statement` is called with the target's number and the outcome of each transform.
        """
        return ()


def truncate_first(context: LandingContext, landings: Sequence[TargetLanding]) -> None:
    """Truncate the tables of --mode truncate that COPY fills, unless this load has truncated them already.

    Tables that are filled from staging tables are truncated at the load's end. Raises PenstockError.
    """
    due = [each for each in landings if each.target.is_truncated_first and not each.record.is_truncated]
    truncate_due(context, due)


def truncate_due(context: LandingContext, due: Sequence[TargetLanding]) -> None:
    """Truncate the tables of the targets `due` in one statement, and record that in the ledger in the same transaction.

    Raises PenstockError, also if another load, which has not ended, has rows in one of the tables.
    """
    tables = {landing.facts.oid: landing.facts for landing in due}
    connection, schema, claim = context.connection, context.schema, context.claim
    if not tables:
        return

    locks = TableLocks(connection, dict.fromkeys(tables, "ACCESS EXCLUSIVE"))

    def act() -> None:
        locks.take()
        context.tools.ledger.hold_claim(connection, claim)
        truncate_tables(connection, list(tables.values()))
        for facts in tables.values():
            refuse_unended(context, facts, verb="truncate")
        for landing in due:
            note_truncated(connection, schema, claim, landing.record)

    names = ", ".join(f'"{facts.name}"' for facts in tables.values())
    context.tools.notice(f"truncating table{'s' if len(tables) > 1 else ''} {names}")
    # TRUNCATE locks partitions, too.
    partitioned = [facts.oid for facts in tables.values() if facts.kind == "p"]
    relations = tables.keys() | read_partition_line(connection, partitioned).keys()
    context.with_locks(act, relations=sorted(relations), what=f"truncate {names}")


def refuse_unended(context: LandingContext, facts: TableFacts, *, verb: str) -> None:
    """Raise TargetError if another load, which has not ended, has committed rows to a table.

    The caller holds a lock on the table. `verb` says in the error what the caller does with it, such as "truncate".
    """
    if others := find_unended(context.connection, context.schema, context.claim, oid=facts.oid):
        raise TargetError(
            f'cannot {verb} table "{facts.name}": another load into it has not ended',
            detail=f"Load {others[0]} has committed rows to it, which would be missing when it is resumed.",
            hint=f"Finish it with penstock resume {others[0]}, or run penstock loads forget {others[0]} --keep-rows.",
        )
