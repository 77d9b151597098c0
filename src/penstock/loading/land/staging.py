"""The way of targets that are staged and stored at the load's end: merges, transforms, atomic loads, row security."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from penstock.core.catalogue.staging import (
    POSITION_COLUMNS,
    check_landing_columns,
    describe_landing_table,
    find_landing_table,
    lock_landing_table,
    make_landing_table,
)
from penstock.core.catalogue.tables import LoadedTable, send_check
from penstock.core.connect.errors import hint_missing_right
from penstock.core.errors import FileLocation, TargetError
from penstock.core.units import count_nouns
from penstock.core.values.table import TableName
from penstock.ledger.rejects import RejectStore
from penstock.ledger.schema import find_publications, staging_hint
from penstock.loading.land.context import TargetLanding, Way, truncate_due
from penstock.loading.land.merge_sorting import check_constraints_at_once
from penstock.loading.land.merges import STATEMENTS, MergeStatement, RejectingMerges
from penstock.loading.land.sync import MissingRows, check_assignments

if TYPE_CHECKING:
    from penstock.core.connect.connection import Connection
    from penstock.ledger.values import LandedCounts
    from penstock.loading.land.context import LockMode, NoteStatement
    from penstock.loading.land.merge import MergeCounts
    from penstock.loading.land.merge_errors import RecordPosition
    from penstock.loading.values.plan import TargetPlan


class Staging(Way):
    """The records are staged, and one statement for each target stores them at the load's end."""

    @staticmethod
    def check(target: TargetPlan, connection: Connection, *, ledger_schema: str) -> None:
        """Raise TargetError if a staging table cannot have the columns, or if the table lacks what a merge needs."""
        check_landing_columns(target.column_map.columns, target.table)
        if target.refusal is None:
            STATEMENTS[target.landing.statement].check_table(target, connection, ledger_schema=ledger_schema)
            check_assignments(target.job)

    def open(self, landing: TargetLanding, suffix: str) -> TargetLanding:
        """Return the landing with its table. Raises TargetError or DataError if its statement would fail."""
        columns = landing.target.column_map.columns
        # The name follows from the load's identity, so that the table can be created on subscribers before the load.
        made = landing.record.table or f"staging_{suffix}"
        name = TableName(schema=self._context.schema, name=made)
        found = find_landing_table(self._connection, schema=self._context.schema, name=name.name)
        is_ours = found is not None and found.is_ours
        is_same = found is not None and is_ours and found.oid == landing.record.oid
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
        as_text = landing.target.text_columns is not None
        self._context.refuse_publications(
            find_publications(self._connection),
            lambda: describe_landing_table(
                self._connection, table=name, target=landing.facts, columns=columns, as_text=as_text
            ),
        )
        oid = self._make_staging(name, landing, columns=columns, as_text=as_text)
        self._check_statements(landing, name)
        return self._context.note(
            landing, replace(landing.record, kind="staging", definition=None), table=name, oid=oid
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

    def find_locks(self) -> dict[int, LockMode]:
        """Return the locks of the tables, of those they refer to, and of the staging tables."""
        wanted: dict[int, LockMode] = {oid: "ROW SHARE" for each in self._landings for oid in each.facts.references}
        for each in self._landings:
            wanted[each.facts.oid] = "ACCESS EXCLUSIVE" if each.target.landing.truncates else "ROW EXCLUSIVE"
            assert each.record.oid is not None
            wanted[each.record.oid] = "ACCESS EXCLUSIVE"
        return wanted

    def land(self, note_statement: NoteStatement) -> list[LandedCounts]:
        """Store the staged rows in their tables, in the transaction that ends the load."""
        for landing in self._landings:
            self._lock(landing)
        truncate_due(self._context, [each for each in self._landings if each.target.landing.truncates])
        # Check before the merges too, because they use facts of the table as it was when the load began.
        self._check_tables()
        counts = self._merge_all(note_statement)
        self._check_tables()
        return counts

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
        def name_record(record: RecordPosition) -> FileLocation | str:
            from penstock.loading.land import locate  # noqa: PLC0415 (paid for by who needs it)

            return locate.name_record(record, self._context)

        landings = sorted(self._landings, key=lambda landing: self._plan.load_order(landing.record.number))
        statements = [self._make_statement(landing, landing.table) for landing in landings]
        deleting = [landing for landing in landings if landing.target.landing.deletes]
        missing = [MissingRows(self._connection, landing, landing.table) for landing in deleting]
        if missing and not self._find_lack():
            for rows in missing:
                rows.foresee()
        if self._plan.job.rules.on_error == "reject" and landings:
            merges = RejectingMerges(self._context)
            counts = merges.run(statements, name_record=name_record, note=note_statement)
        else:
            counts = [statement.run(name_record, note_statement) for statement in statements]
        if missing:
            self._delete(missing)
        return [self._drop_merged(landing, merged) for landing, merged in zip(landings, counts, strict=True)]

    def _delete(self, missing: Sequence[MissingRows]) -> None:
        """Delete the rows that the files do not have, if every record is loaded. Referenced tables come last."""
        lack = self._find_lack()
        if any(rows.expected for rows in missing) and not lack and not self._plan.defers_keys:
            # Check the keys of the records now. If a key is violated later, a deleted row is the cause, not a record.
            check_constraints_at_once(self._connection)
        for rows in reversed(missing):
            if lack:
                self._tools.warnings.add(rows.describe_kept(lack))
            else:
                self._context.note_deleted(rows.landing.record.number, rows.delete(self._context))

    def _find_lack(self) -> str:
        """Return which records of the sources are not loaded, in words; empty if all are."""
        rejected = RejectStore(self._context.schema, self._context.claim.load_id).count(self._connection)
        return self._context.lack or (f"{count_nouns(rejected, 'record')} rejected" if rejected else "")

    def _check_statements(self, landing: TargetLanding, staging: TableName) -> None:
        self._make_statement(landing, staging).check()
        if landing.target.landing.deletes:
            MissingRows(self._connection, landing, staging).check()

    def _make_statement(self, landing: TargetLanding, staging: TableName | None) -> MergeStatement:
        assert staging is not None
        return STATEMENTS[landing.target.landing.statement](
            self._connection,
            number=landing.record.number,
            job=landing.target.job,
            facts=landing.facts,
            columns=landing.target.column_map.columns,
            staging=staging,
        )

    def _check_tables(self) -> None:
        """Raise TargetError if a target was renamed, or replaced by another table, since the load began."""
        tables = [LoadedTable(landing.facts.name, landing.facts.oid) for landing in self._landings]
        with self._connection.pipeline():
            checks = [send_check(self._connection, table) for table in tables]
        for check in checks:
            check()

    def _drop_merged(self, landing: TargetLanding, merged: MergeCounts) -> LandedCounts:
        self._context.drop(landing.record)
        return merged.landed(number=landing.record.number, target_oid=landing.facts.oid)


def _not_ours(name: TableName, *, owner: str) -> TargetError:
    return TargetError(
        f'table "{name}" was not created by this role for this load, or was altered',
        detail=f'Its owner is "{owner}".',
        hint="Resume the load as the role that began it (--role), or have the owner drop the table.",
    )
