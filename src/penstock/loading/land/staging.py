"""The way of targets that are staged and stored at the load's end: merges, transforms, atomic loads, row security."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import attrgetter

from penstock.core.catalogue.staging import (
    POSITION_COLUMNS,
    check_landing_columns,
    describe_landing_table,
    find_landing_table,
    lock_landing_table,
    make_landing_table,
)
from penstock.core.catalogue.tables import LoadedTable, is_empty, send_check
from penstock.core.connect.connection import CAN_FLUSH_STATISTICS, Connection
from penstock.core.connect.errors import hint_missing_right, in_transaction, translate_errors
from penstock.core.errors import DataError, PenstockError, TargetError
from penstock.core.units import count_nouns
from penstock.core.values.table import TableFacts, TableName
from penstock.ledger.committed import read_coverage
from penstock.ledger.rejects import RejectStore
from penstock.ledger.schema import find_publications, staging_hint
from penstock.ledger.targets import note_transaction
from penstock.ledger.values import LandedCounts, MergeCounts
from penstock.loading.land import locate
from penstock.loading.land.context import LandingMethod, LockMode, NoteStatement, TargetLanding, truncate_due
from penstock.loading.land.merge import hold_count, remove_literals
from penstock.loading.land.merge_sorting import check_constraints_at_once
from penstock.loading.land.merges import STATEMENTS, MergeStatement, RejectingMerges, StagedRecords
from penstock.loading.land.refusals import check_types
from penstock.loading.land.sync import MissingRows, describe_cascades, refuse_reached
from penstock.loading.plan.modes import explain_rejected
from penstock.loading.values.plan import TargetPlan

# The violations of a unique and of an exclusion constraint, which a row that is to be deleted may cause.
_CONFLICTS = ("23505", "23P01")


class _MergeConflict(Exception):
    """The merge is undone, because a row of the table has a value that a record needs, or because of a reject."""


class Staging(LandingMethod):
    """How targets with a staging table are filled: COPY fills that table, and one statement stores it at the end."""

    @staticmethod
    def check(target: TargetPlan, connection: Connection, *, ledger_schema: str) -> None:
        """Raise TargetError if no staging table can be created, or if the table lacks what the statement needs.

        No staging table can be created if the role lacks USAGE on a column's type, or if a column has a name that
        staging tables use for a column of their own.
        """
        check_landing_columns(target.column_map.columns, target.table)
        if target.facts is not None and target.text_columns is None:
            check_types(connection, target.facts, target.column_map.columns)
        if target.refusal is None:
            STATEMENTS[target.landing.statement].check_table(target, connection, ledger_schema=ledger_schema)

    def foresee(self, target: TargetPlan, facts: TableFacts, suffix: str) -> None:
        """Raise TargetError if a publication would publish the staging table. Change nothing."""
        self._refuse_publications(target, facts, TableName(schema=self._context.schema, name=f"staging_{suffix}"))

    def _refuse_publications(self, target: TargetPlan, facts: TableFacts, name: TableName) -> None:
        columns, as_text = target.column_map.columns, target.text_columns is not None
        self._context.refuse_publications(
            find_publications(self._connection),
            lambda: describe_landing_table(
                self._connection, table=name, target=facts, columns=columns, as_text=as_text
            ),
        )

    def open(self, landing: TargetLanding, suffix: str) -> TargetLanding:
        """Create the staging table, and return `landing` with its name.

        A staging table that an earlier run of the load has created is used if it has the right columns, and their
        types were those of the target's columns now: otherwise values may have been rounded. `suffix` ends its name.
        Raises TargetError or DataError if the statement that stores the records would fail.
        """
        columns = landing.target.column_map.columns
        # The name follows from the load's identity, so that the table can be created on subscribers before the load.
        made = landing.record.table or f"staging_{suffix}"
        name = TableName(schema=self._context.schema, name=made)
        found = find_landing_table(self._connection, schema=self._context.schema, name=name.name)
        is_ours = found is not None and found.is_ours
        is_same = found is not None and is_ours and found.oid == landing.record.oid
        as_text = landing.target.text_columns is not None
        types = "text" if as_text else repr([c.type_name for c in landing.facts.columns if c.name in columns])
        # Earlier versions have recorded no types.
        is_same = is_same and landing.record.definition in (types, None)
        if found is not None and is_same and set(found.columns) == {*columns, *POSITION_COLUMNS}:
            self._check_statements(landing, name)
            return landing
        if found is not None and not is_ours:
            raise _not_ours(name, owner=found.owner)
        if found is not None:
            # The table was created for this load, but the ledger has no record of it.
            left = replace(landing.record, kind="staging", schema=self._context.schema, table=name.name, oid=found.oid)
            self._context.drop(left)
        self._context.begin_anew(landing)
        self._refuse_publications(landing.target, landing.facts, name)
        oid = self._make_staging(name, landing, columns=columns, as_text=as_text)
        self._check_statements(landing, name)
        return self._context.note(
            landing, replace(landing.record, kind="staging", definition=types), table=name, oid=oid
        )

    def _make_staging(self, name: TableName, landing: TargetLanding, *, columns: Sequence[str], as_text: bool) -> int:
        try:
            return make_landing_table(
                self._connection,
                schema=self._context.schema,
                name=name.name,
                target=landing.facts,
                columns=columns,
                as_text=as_text,
            )
        except TargetError as error:
            hint_missing_right(error, staging_hint(self._context.schema))
            raise

    def list_locks(self) -> dict[int, LockMode]:
        """Return the lock modes for the targets' tables, the tables they refer to, and the staging tables, by OID."""
        wanted: dict[int, LockMode] = {oid: "ROW SHARE" for each in self._landings for oid in each.facts.references}
        for each in self._landings:
            wanted[each.facts.oid] = "ACCESS EXCLUSIVE" if each.target.landing.truncates else "ROW EXCLUSIVE"
            assert each.record.oid is not None
            wanted[each.record.oid] = "ACCESS EXCLUSIVE"
        return wanted

    def land(self, note_statement: NoteStatement) -> list[LandedCounts]:
        """Merge the staged records into their tables, in the transaction that ends the load. Drop the staging tables.

        Return the counts of each target: how many of its records were inserted, updated or skipped. `note_statement` is
        called with the target's number and the outcome of each transform. Raises DataError if a table refuses a record
        and the load does not reject it, TargetError if a table was changed since the load began, ServerError.
        """
        for landing in self._landings:
            self._lock(landing)
        truncated = [each for each in self._landings if each.target.landing.truncates]
        filled = [each for each in truncated if not is_empty(self._connection, each.facts.oid)]
        truncate_due(self._context, truncated)
        # Check before the merges too, because they use facts of the table as it was when the load began.
        self._check_tables()
        counts = self._merge_all(note_statement)
        self._refuse_emptying(filled, counts)
        self._check_tables()
        self._report_statistics()
        return counts

    def _refuse_emptying(self, filled: Sequence[TargetLanding], counts: Sequence[LandedCounts]) -> None:
        """Raise TargetError if a table with rows would be empty, because all records were rejected.

        `filled` are the truncated targets whose tables had rows.
        """
        rules, stored = self._plan.job.rules, {each.number: each.inserted + each.suppressed for each in counts}
        for landing in filled if rules.on_error == "reject" and rules.emptied != "load" else ():
            if not stored.get(landing.record.number):
                error = explain_rejected(landing.target.job, self._context.claim.load_id)
                # The rejects of the merge are rolled back with it.
                error.hint = f"{error.hint} Records that the table refused are not there: --on-error stop shows one."
                raise error

    def _lock(self, landing: TargetLanding) -> None:
        """Before the merge, take the lock that dropping the staging table needs.

        If the lock were refused later, the merge would be lost.
        """
        table, oid = landing.table, landing.record.oid
        assert table is not None and table.schema is not None and oid is not None
        lock = partial(lock_landing_table, self._connection, table)
        self._context.with_locks(lock, relations=[oid], what=f'drop "{table}"')
        found = find_landing_table(self._connection, schema=table.schema, name=table.name)
        if found is None or found.oid != oid or not found.is_ours:
            raise TargetError(
                f'table "{table}" of this load was changed by another session',
                detail="It was created again, or was given triggers, rules or policies.",
                hint="Run the load again: it then starts from the beginning.",
            )

    def _merge_all(self, note_statement: NoteStatement) -> list[LandedCounts]:
        name_record = partial(locate.name_record, context=self._context)
        landings = sorted(self._landings, key=lambda landing: self._plan.load_order(landing.record.number))
        statements = [self._make_statement(landing, landing.table) for landing in landings]
        deleting = [landing for landing in landings if landing.target.landing.deletes]
        missing = [MissingRows(self._connection, landing, landing.table) for landing in deleting]
        lack = self._find_lack()
        self._refuse_by_source(lack)
        if not lack:
            for rows in missing:
                rows.foresee()

        def merge() -> list[MergeCounts]:
            if self._plan.job.rules.on_error == "reject" and landings:
                return RejectingMerges(self._context, name_record=name_record, note=note_statement).run(statements)
            return [statement.run(name_record, note_statement) for statement in statements]

        counts, deleted = self._merge_with_room(merge, [rows for rows in missing if rows.may_go_first])
        merged = {landing.record.number: count for landing, count in zip(landings, counts, strict=True)}
        self._hold_counts(landings, merged)
        if missing:
            self._delete(missing, deleted, merged)
        for landing in landings:
            self._context.drop(landing.record)
        numbers = [(landing.record.number, landing.facts.oid) for landing in landings]
        return [merged[number].landed(number=number, target_oid=oid) for number, oid in numbers]

    def _refuse_by_source(self, lack: str) -> None:
        """Raise TargetError if a transform would take rows for missing in the sources, and records are not loaded."""
        transforms = [each.target.job.transform for each in self._landings] if lack else []
        for transform in filter(None, transforms):
            if re.search(r"\bmatched\s+by\s+source\b", remove_literals(transform.text), re.IGNORECASE):
                raise TargetError(
                    f'transform "{transform.name}" is not run, because the load is incomplete: {lack}',
                    detail="Rows of the records that are missing would count as NOT MATCHED BY SOURCE.",
                    hint="Load corrected sources without --on-error reject.",
                )

    def _merge_with_room(
        self, merge: Callable[[], list[MergeCounts]], early: Sequence[MissingRows]
    ) -> tuple[list[MergeCounts], dict[int, int]]:
        """Merge, and return the counts, and how many rows of `early` were deleted first, by the target's number.

        They are deleted first only if the merge fails otherwise, because a record has a unique value of theirs. If a
        record is rejected all the same, no row is deleted.
        """
        if not early:
            return merge(), {}
        with suppress(_MergeConflict), in_transaction(self._connection):
            return self._merge_without_conflict(merge), {}
        with suppress(_MergeConflict), in_transaction(self._connection):
            deleted = {rows.landing.record.number: rows.delete(self._context) for rows in early}
            counts = merge()
            if self._find_lack():
                raise _MergeConflict
            return counts, deleted
        return merge(), {}

    def _merge_without_conflict(self, merge: Callable[[], list[MergeCounts]]) -> list[MergeCounts]:
        """Merge. Raise _MergeConflict if a record was refused because a row has a unique value of it."""
        is_rejecting = self._plan.job.rules.on_error == "reject"
        try:
            counts = merge()
            if not self._plan.defers_keys:
                check_constraints_at_once(self._connection)
        except PenstockError as error:
            # If too many records are rejected, the error has the SQLSTATE of one of them.
            if error.sqlstate in _CONFLICTS or (is_rejecting and isinstance(error, DataError)):
                raise _MergeConflict from error
            raise
        store = RejectStore(self._context.schema, self._context.claim.load_id)
        rejected = store.count(self._connection) if is_rejecting else 0
        if rejected and any(store.count(self._connection, but_code=code) < rejected for code in _CONFLICTS):
            raise _MergeConflict
        return counts

    def _hold_counts(self, landings: Sequence[TargetLanding], merged: Mapping[int, MergeCounts]) -> None:
        """Raise TargetError if a statement has not dealt with as many records as were cut, sent and not rejected."""
        schema, load_id = self._context.schema, self._context.claim.load_id
        oid_of = attrgetter("facts.oid")
        for _, group in groupby(sorted(landings, key=oid_of), key=oid_of):
            # Several targets may share a table, and the objects that the sources do not have any more.
            same = list(group)
            numbers = {number for landing in same for number in landing.objects}
            coverage = read_coverage(self._connection, schema, load_id, numbers=sorted(numbers))
            staged = sum(merged[landing.record.number].staged for landing in same)
            hold_count(same[0].facts.name, staged, records=sum(each.rows for each in coverage.values()))

    def _delete(
        self, missing: Sequence[MissingRows], deleted: Mapping[int, int], merged: Mapping[int, MergeCounts]
    ) -> None:
        """Delete the rows that the files do not have, if every record is loaded. Referenced tables come last.

        `deleted` are the numbers of rows that were deleted before the merge.
        """
        if lack := self._find_lack():
            for rows in reversed(missing):
                self._tools.warnings.add(rows.describe_kept(lack))
            return
        if any(rows.expected for rows in missing) and not self._plan.defers_keys:
            # Check the keys of the records now. If a key is violated later, a deleted row is the cause, not a record.
            check_constraints_at_once(self._connection)
        for rows in missing:
            refuse_reached(rows.landing.facts.name, rows.foreign_keys, self._plan.targets)
        for rows in reversed(missing):
            number = rows.landing.record.number
            count = deleted.get(number, 0) + rows.delete(self._context)
            self._context.note_deleted(number, count, describe_cascades(rows.foreign_keys) if count else ())
        for rows in missing:
            rows.confirm(suppressed=merged[rows.landing.record.number].suppressed)

    def _find_lack(self) -> str:
        """Return which records of the sources are not loaded, in words; empty if all are."""
        store = RejectStore(self._context.schema, self._context.claim.load_id)
        # The user may have discarded the rejected records before the load was resumed.
        rejected = store.count_rejected(self._connection)
        return self._context.lack or (f"{count_nouns(rejected, 'record')} rejected" if rejected else "")

    def _check_statements(self, landing: TargetLanding, staging: TableName) -> None:
        self._make_statement(landing, staging).check()
        if landing.target.landing.deletes:
            MissingRows(self._connection, landing, staging).check()

    def _make_statement(self, landing: TargetLanding, staging: TableName | None) -> MergeStatement:
        assert staging is not None
        staged = StagedRecords(
            number=landing.record.number,
            job=landing.target.job,
            facts=landing.facts,
            columns=landing.target.column_map.columns,
            staging=staging,
        )
        load_id = self._context.claim.load_id
        note_stored = partial(note_transaction, self._connection, self._context.schema, load_id, staged.number)
        return STATEMENTS[landing.target.landing.statement](self._connection, staged, note_stored)

    def _check_tables(self) -> None:
        """Raise TargetError if a target was renamed, or replaced by another table, since the load began."""
        tables = [LoadedTable(landing.facts.name, landing.facts.oid) for landing in self._landings]
        with self._connection.pipeline():
            checks = [send_check(self._connection, table) for table in tables]
        for check in checks:
            check()

    def _report_statistics(self) -> None:
        """Make the server count the changed rows at the commit: the counters show which partitions need VACUUM."""
        if self._connection.info.server_version >= CAN_FLUSH_STATISTICS:
            with translate_errors("reporting statistics"):
                self._connection.execute("SELECT pg_catalog.pg_stat_force_next_flush()")


def _not_ours(name: TableName, *, owner: str) -> TargetError:
    return TargetError(
        f'table "{name}" was not created by this role for this load, or was altered',
        detail=f'Its owner is "{owner}".',
        hint="Resume the load as the role that began it (--role), or have the owner drop the table.",
    )
