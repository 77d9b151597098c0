"""Decides what a load changes at its tables before the first row, and has it restored after the last row.

This module decides what is dropped, disabled or paused at each table. changes/journal.py records, makes and restores
the changes. A table is changed only under its lock, and only if it has not changed since it was planned.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from penstock.changes.context import PATIENCE_S, Context, Report, Restored
from penstock.changes.journal import CannotRecord, ChangeRecords, change_table, open_records, restore
from penstock.changes.records import TableStore, find_changed, read_changes, read_holds
from penstock.changes.tables.indexes import IndexesAndKeys, make_changes
from penstock.changes.tables.kind import TableRequest
from penstock.changes.tables.kinds import KINDS, TRIGGERS
from penstock.changes.tables.look import read_missing, refuse_missing
from penstock.changes.tables.parts import PART_KINDS, ForeignKey, capture_tree, part_id_of
from penstock.changes.values import SERVER, Rebuilt
from penstock.core.catalogue.catalog import find_table
from penstock.core.catalogue.tables import CreatedTable, is_empty
from penstock.core.connect.connection import Connection
from penstock.core.errors import PenstockError, ServerError, TargetError
from penstock.core.values.table import TableFacts, TableName
from penstock.ledger.locks import find_lock_holder, try_lock
from penstock.ledger.lookup import read_meaning
from penstock.loading.context import LoadTools
from penstock.loading.indexes.decide import IndexDecision
from penstock.loading.indexes.plan import decide, find_synced, gather_facts
from penstock.loading.values.plan import LoadPlan, TargetPlan

_LOCK_LOOK_S = 0.1

_REPAIR = "run penstock repair"

_LOCK_NOT_AVAILABLE = "55P03"


def _kept(target: TargetPlan, why: str) -> str:
    return f'indexes of "{target.table}" are kept: {why}'


class TableChanges:
    """Makes the changes of one load to its tables, and restores them.

    The changes are dropped indexes and keys, disabled triggers, and paused autovacuum.
    """

    def __init__(self, plan: LoadPlan, tools: LoadTools) -> None:
        self._plan = plan
        self._tools = tools
        self._schema = tools.ledger.schema
        # The tables that this load has to restore.
        self._held: set[int] = set()
        # The locks of `reserve`.
        self._reserved = ExitStack()
        # Whether the rebuild after the last row has failed.
        self.has_failed = False
        rules = plan.job.rules
        self._is_switching = rules.triggers != "keep" or rules.autovacuum == "pause"

    # ---------------------------------------------------------------- before the first row

    def reserve(self, connection: Connection, *, changed_by: Collection[int]) -> None:
        """Take penstock's locks of the tables that `before` will change, in the order of their oids.

        `before` releases them. `changed_by` are the oids of tables with changes that are not restored yet. Call this
        before a table is truncated, so that a wait for a lock does not leave the table empty. Raises ServerError.
        """
        self._reserved.close()
        targets = [target for target in self._plan.targets if target.facts is not None and not target.is_replaced]
        oids = {
            target.facts.oid
            for target in targets
            if target.facts is not None
            and (target.indexes.dropped or self._is_switching or target.facts.oid in changed_by)
        }
        for oid in sorted(oids):
            self._reserved.enter_context(self._context(connection).lock(oid))

    def before(
        self,
        load_id: str,
        connection: Connection,
        *,
        changed_by: Mapping[int, Collection[str]],
        created: Mapping[TableName, CreatedTable],
        filled: Collection[TableName],
        has_work: bool,
        has_rows: bool,
    ) -> None:
        """Restore what other loads have left changed, then change the tables that get rows.

        `changed_by` has the ids of the loads whose changes to a table are not restored yet, by the table's oid.
        `created` are the tables created for the load, by their names in the job. `filled` are the tables that get rows.
        Others are changed only if this load has changed them before. `has_work` says whether rows are left to load.
        `has_rows` says whether tables get rows at all, which are loaded now or were staged before. Raises TargetError,
        ServerError.
        """
        left = {oid for oid, loads in changed_by.items() if set(loads) - {load_id}}
        if left:
            # A restore takes the locks of other tables too, so hold none meanwhile.
            self._reserved.close()
            self.restore_left(left, connection)
        with self._reserved:
            for target in self._plan.targets:
                facts = target.facts
                if facts is None and self._is_switching and target.table in created:
                    facts = find_table(connection, created[target.table].name)
                # A table to be replaced is not changed, because its definition is copied.
                if facts is None or target.is_replaced:
                    continue
                # What this load has changed at a table before, it restores at the end.
                if target.table not in filled and load_id not in changed_by.get(facts.oid, ()):
                    continue
                is_dropping = bool(target.indexes.dropped) or facts.oid in changed_by
                if is_dropping or self._is_switching:
                    # If no rows are left to load, do not drop again what was rebuilt before the load was interrupted.
                    self._change(target, facts, load_id, connection, drops=is_dropping and has_work, switches=has_rows)

    def refuse_disabled(self, load_id: str, connection: Connection) -> None:
        """Raise TargetError if an earlier run of a load has disabled triggers, and this one is not to disable them.

        Otherwise they would not fire for the rows that are left. Call this before the load is taken over, because its
        recorded job says what its rows have not fired. Raises ServerError.
        """
        if self._plan.job.rules.triggers == "disable":
            return
        for change in read_changes(connection, self._schema):
            if change.load_id == load_id and change.kind == TRIGGERS.name and not change.is_copied:
                raise TargetError(
                    f'triggers of "{change.target}" are disabled: an earlier run of load {load_id} had --triggers'
                    " disable",
                    hint="Use --triggers disable again. If they are to fire for the rows that are left, run penstock "
                    "repair first.",
                )

    def restore_replaced(self, oids: Sequence[int], connection: Connection) -> None:
        """Restore what loads have left changed at tables that are to be replaced.

        The new tables get the same indexes, keys and triggers, so these must be complete. What an earlier run of this
        load has left is restored, too. Raises TargetError if a running load needs the changes or if they cannot be
        restored. Raises ServerError.
        """
        changed = find_changed(connection, self._schema, oids)
        if not changed:
            return
        context = replace(self._context(connection), leaving=self._find_ended(connection))
        done = restore(context, changed)
        self._refuse_left(done, oids, connection)
        if done.held:
            raise TargetError(
                "a table cannot be replaced while its indexes, keys or triggers are dropped or disabled for another"
                " load",
                detail="\n".join(dict.fromkeys(done.held)),
                hint="Run the load again when that one has ended.",
            )

    def _change(
        self,
        target: TargetPlan,
        facts: TableFacts,
        load_id: str,
        connection: Connection,
        *,
        drops: bool,
        switches: bool,
    ) -> None:
        request = TableRequest(table=facts, job=target.job, rules=self._plan.job.rules, load_id=load_id)
        context = self._context(connection)
        with context.lock(facts.oid):
            try:
                records = open_records(context, request)
            except CannotRecord as error:
                if self._is_switching:
                    raise
                self._tools.notice(_kept(target, error.why))
                return
            if drops:
                self._drop_parts(context, target, records, request)
            # Do this even if no object is left to load, because staged rows fire triggers when they are moved into the
            # table.
            if switches and facts.kind in ("r", "p"):
                for kind in KINDS:
                    change_table(context, kind, records, request)

    def _drop_parts(self, context: Context, target: TargetPlan, records: ChangeRecords, request: TableRequest) -> None:
        """Drop the indexes and keys that the plan names, if the table has not changed since it was planned."""
        oid, connection = request.table.oid, context.connection
        parts = capture_tree(connection, oid)
        if parts is None:
            raise TargetError(f'table "{target.table}" does not exist any more')
        is_begun = any(change.kind in PART_KINDS for change in records.ours)
        plan = self._plan
        facts = gather_facts(
            target,
            plan.job.rules,
            size_bytes=plan.size_bytes,
            tuning=plan.tuning,
            synced=find_synced(plan.targets, connection),
            has_dropped=is_begun,
        )
        decision = decide(parts, facts, connection)
        self._check_relied_on(target, decision, records)
        changes = make_changes(parts, request, indexes=decision.indexes, foreign_keys=decision.foreign_keys)

        def check() -> None:
            is_any_fine = request.rules.indexes == "rebuild" or target.is_truncated_first or is_begun
            if not is_any_fine and not is_empty(connection, oid):
                raise TargetError(
                    f'table "{target.table}" got rows since the load was planned', hint="Run the load again."
                )

        try:
            change_table(context, IndexesAndKeys(), records, replace(request, parts=changes), check=check)
        except CannotRecord as error:
            self._tools.notice(_kept(target, error.why))
        except ServerError as error:
            is_needed = any(self._is_relied_on(target, key) for key in decision.foreign_keys)
            if error.sqlstate != _LOCK_NOT_AVAILABLE or is_needed or request.rules.indexes != "auto":
                raise
            # Load with the indexes in place. With --indexes auto, the user has not asked to drop indexes.
            self._tools.notice(_kept(target, error.message))

    def _is_relied_on(self, target: TargetPlan, key: ForeignKey) -> bool:
        """Return whether sessions would wait for each other's rows if a planned foreign key were not dropped."""
        loaded = {each.facts.oid for each in self._plan.targets if each.facts is not None}
        planned = {part.name for part in target.indexes.dropped if part.what == "foreign key"}
        return key.references_oid in loaded and key.name in planned and self._plan.sessions.maximum > 1

    def _check_relied_on(self, target: TargetPlan, decision: IndexDecision, records: ChangeRecords) -> None:
        """Raise TargetError if a foreign key that must be dropped as planned is kept now."""
        known = {part_id_of(each) for each in records.everything if each.kind in PART_KINDS and not each.is_copied}
        for key in decision.staying:
            if self._is_relied_on(target, key) and key.part_id not in known:
                raise TargetError(
                    f'foreign key "{key.name}" of "{target.table}" cannot be dropped as planned',
                    detail="The table got rows, or was altered.",
                    hint="Run the load again.",
                )

    # ---------------------------------------------------------------- after the last

    @property
    def is_holding(self) -> bool:
        """Whether this load has changes to restore, and their restoration has not failed."""
        return bool(self._held) and not self.has_failed

    def holds_again(self, load_id: str, connection: Connection) -> bool:
        """Return whether a complete load has changes to restore according to the ledger.

        This can be so after a failover, although this process has restored the changes before. Raises ServerError.
        """
        held = {hold.target_oid for hold in read_holds(connection, self._schema, holder=load_id)}
        known = read_meaning(connection, self._schema, load_id) if held else None
        if known is not None and known.state == "complete":
            self._held |= held
        return self.is_holding

    def after(self, load_id: str, connection: Connection, *, report: Report | None = None) -> tuple[Rebuilt, ...]:
        """Restore what this load has changed, and return the indexes and keys that were rebuilt.

        Changes that another running load needs are kept. `report` is called with the progress. Raises TargetError,
        ServerError, and DataError if rows violate a key. After an error the rows stay, and the table lacks what was not
        rebuilt.
        """
        if not self._held:
            return ()
        try:
            done = self._restore(self._held, connection, leaving=(load_id,), report=report)
        except KeyboardInterrupt as interrupt:
            # A user who interrupts a rebuild does not want it to begin again. An interrupt with a cause is an exception
            # of on_progress.
            if interrupt.__cause__ is None:
                self.has_failed = True
                self._tools.warnings.warn("not-restored", "indexes were not rebuilt: run penstock repair")
            raise
        self.has_failed = bool(done.errors)
        done.raise_first()
        self._held.clear()
        return tuple(each for each in done.rebuilt if each.kind in PART_KINDS)

    def on_failure(self, load_id: str, connection: Connection) -> None:
        """Restore the changes of a load that has failed. If that fails, warn that penstock repair is needed.

        A rebuild that has failed before is not tried again.
        """
        if not self.is_holding:
            return
        try:
            holds = read_holds(connection, self._schema, holder=load_id)
            for lock in {hold.lock for hold in holds if hold.lock is not None}:
                if not self._take_lock(lock, connection):
                    # A backend of this load whose connection broke can run until the server notices.
                    pid = find_lock_holder(connection, lock)
                    self.warn_left(f"backend {pid} holds the load's lock", how=f"{_REPAIR} if it does not resume it")
                    return
            self._tools.notice("rebuilding indexes and keys; interrupt to leave them to penstock repair")
            self._restore(self._held, connection, leaving=(load_id,)).raise_first()
            self._held.clear()
        except (PenstockError, KeyboardInterrupt) as trouble:
            why = trouble.message if isinstance(trouble, PenstockError) else "interrupted"
            self.warn_left(why)

    def warn_left(self, why: str, *, how: str = _REPAIR) -> None:
        """Warn once that the changes of this load are not restored, and why."""
        if self.is_holding:
            self._held.clear()
            self._tools.warnings.warn("not-restored", f"indexes, keys or triggers were not restored ({why}): {how}")

    def _take_lock(self, lock: str, connection: Connection) -> bool:
        """Take the load's lock again. Wait up to 20 s, because a lost session of this load may still have it."""
        until_s = self._tools.clock() + self._plan.tuning.lock_patience_s
        while not try_lock(connection, lock):
            if self._tools.clock() >= until_s:
                return False
            self._tools.sleep(_LOCK_LOOK_S)
        return True

    # ---------------------------------------------------------------- before and after

    def restore_left(self, oids: Collection[int], connection: Connection) -> None:
        """Restore what ended loads have left changed at the tables with these oids.

        If a change cannot be restored, raises TargetError if the tables lack anything because of it, and warns
        otherwise. Raises ServerError.
        """
        self._refuse_left(self._restore(oids, connection, leaving=self._find_ended(connection)), oids, connection)

    def _refuse_left(self, done: Restored, oids: Collection[int], connection: Connection) -> None:
        """Raise TargetError if tables lack something that could not be restored.

        If the tables lack nothing, errors become warnings. Raises ServerError.
        """
        warn = partial(self._tools.warnings.warn, "not-restored")
        for error in done.copied:
            warn(error.message)
        if not done.errors:
            return
        first = done.errors[0]
        refuse_missing(connection, self._schema, sorted(oids))
        if any(read_missing(connection, self._schema, oid) for oid in oids):
            raise TargetError(
                f"changes that another load left were not restored: {first.message}",
                detail=first.detail,
                hint="Run penstock repair: nothing is loaded into the table until they are restored.",
            ) from first
        warn(f"the record of changes that another load left was not removed ({first.message}): run penstock repair")

    def _restore(
        self, oids: Collection[int], connection: Connection, *, leaving: Collection[str], report: Report | None = None
    ) -> Restored:
        done = restore(replace(self._context(connection, report), leaving=leaving), oids)
        for text in dict.fromkeys(done.held):
            self._tools.warnings.warn("not-restored", text)
        return done

    def _find_ended(self, connection: Connection) -> tuple[str, ...]:
        """Return the loads whose holds look alive only because this session has taken their lock.

        An earlier run of the same command had the same lock. When a load begins or is taken over, its own holds are
        removed. Raises ServerError.
        """
        own = connection.info.backend_pid
        holds = read_holds(connection, self._schema)
        return tuple(hold.holder_id for hold in holds if hold.pid == own and hold.target_oid != SERVER)

    def _context(self, connection: Connection, report: Report | None = None) -> Context:
        tools = self._tools
        return Context(
            store=TableStore(connection=connection, schema=self._schema),
            kinds=KINDS,
            connect=tools.connect,
            notice=tools.notice,
            retry_for_s=max(self._plan.job.rules.retry_for, PATIENCE_S),
            is_local=tools.guard is not None,
            report=report,
            clock=tools.clock,
            sleep=tools.sleep,
            held=self._held,
        )
