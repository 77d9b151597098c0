"""Targets that are staged, and stored at the load's end: merges, transforms, atomic loads, row-level security."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from penstock.errors import TargetError
from penstock.loading.landing.context import with_locks
from penstock.loading.landing.direct import truncate_due
from penstock.model.load.landing import POSITION_COLUMNS
from penstock.model.load.outcome import StatementOutcome
from penstock.model.server.table import TableName
from penstock.server.changes.records import find_changed
from penstock.server.ledger.schema import find_publications, has_ledger, staging_hint
from penstock.server.ledger.targets import drop_landing
from penstock.server.merge.merge import MergeCounts, check_merge, count_staged
from penstock.server.merge.merge_key import check_key
from penstock.server.merge.merge_transform import check_transform, run_transform
from penstock.server.merge.merge_whole import insert_all, merge_insert_new, merge_upsert
from penstock.server.table.identity import LoadedTable, send_check
from penstock.server.table.staging import (
    describe_landing_table,
    find_landing_table,
    lock_landing_table,
    make_landing_table,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.errors import FileLocation
    from penstock.loading.claim.prepared import PreparedLoad, TargetLanding
    from penstock.loading.context import LoadTools
    from penstock.loading.landing.context import LandingContext
    from penstock.model.load.ledger import LandedCounts
    from penstock.model.load.plan import LoadPlan, TargetPlan
    from penstock.model.server.table import TableFacts
    from penstock.server.connect.connection import Connection
    from penstock.server.merge.merge_locate import RecordPosition


def check_staging(target: TargetPlan, facts: TableFacts, connection: Connection, *, ledger_schema: str) -> None:
    """Raise TargetError if the table lacks the key that a merge needs; changes nothing."""
    if (mode := target.job.traits.merge) is None:
        return
    try:
        check_key(connection, facts, target.job.key, columns=target.column_map.columns, mode=mode)
    except TargetError as error:
        if _lacks_parts(connection, ledger_schema, facts.oid):
            error.hint = "A load has dropped keys of the table, to rebuild them: see penstock repair --plan."
        raise


def _lacks_parts(connection: Connection, ledger_schema: str, oid: int) -> bool:
    """Whether a load has changed a part of the table and not restored it yet."""
    return has_ledger(connection, ledger_schema) and bool(find_changed(connection, ledger_schema, [oid]))


class StagingMaker:
    """Finds or creates the staging table of a target, in the caller's transaction."""

    def __init__(self, context: LandingContext) -> None:
        self._context = context
        self._connection = context.connection

    def open(self, landing: TargetLanding) -> TargetLanding:
        """Return the landing with its table. Raises TargetError or DataError if its statement would fail."""
        columns = landing.target.column_map.columns
        # The name follows from the load's identity, so that the table can be created on subscribers before the load.
        made = landing.record.table or f"staging_{self._context.identity[:16]}_{landing.record.number}"
        name = TableName(schema=self._context.schema, name=made)
        found = find_landing_table(self._connection, schema=self._context.schema, name=name.name)
        is_ours = found is not None and found.is_ours
        is_same = found is not None and is_ours and found.oid == landing.record.oid
        if found is not None and is_same and set(found.columns) == {*columns, *POSITION_COLUMNS}:
            self._check_statement(landing, name)
            return landing
        if found is not None and not is_ours:
            raise _not_ours(name, owner=found.owner)
        self._context.begin_anew(landing)
        if found is not None:
            # The table was created for this load, and the ledger records another table for it, or none.
            left = replace(landing.record, kind="staging", schema=self._context.schema, table=name.name, oid=found.oid)
            self._context.drop(left)
        as_text = landing.target.job.transform is not None
        self._context.refuse_publications(
            find_publications(self._connection),
            lambda: describe_landing_table(
                self._connection, table=name, target=landing.facts, columns=columns, as_text=as_text
            ),
        )
        oid = self._make_staging(name, landing, columns=columns, as_text=as_text)
        self._check_statement(landing, name)
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
            if error.sqlstate == "42501":
                error.hint = staging_hint(self._context.schema)
            raise

    def _check_statement(self, landing: TargetLanding, staging: TableName) -> None:
        job = landing.target.job
        if job.transform is not None:
            check_transform(self._connection, job.transform, staging=staging)
            return
        check_merge(
            self._connection,
            staging=staging,
            target=landing.facts,
            columns=landing.target.column_map.columns,
            mode=job.traits.merge,
            key=job.key,
        )


def _not_ours(name: TableName, *, owner: str) -> TargetError:
    return TargetError(
        f'table "{name}" was not created by this role for this load, or was altered',
        detail=f'Its owner is "{owner}".',
        hint="Resume the load as the role that began it (--role), or have the owner drop the table.",
    )


class StagedRows:
    """Stores the staged rows of one load at its end. Methods raise PenstockError."""

    def __init__(
        self,
        plan: LoadPlan,
        prepared: PreparedLoad,
        tools: LoadTools,
        connection: Connection,
        note_statement: Callable[[int, StatementOutcome], None],
    ) -> None:
        self._note_statement = note_statement
        self._plan = plan
        self._prepared = prepared
        self._tools = tools
        self._connection = connection
        self._landings = sorted(
            (landing for landing in prepared.landings if landing.record.kind == "staging"),
            key=lambda landing: plan.load_order(landing.record.number),
        )

    def land(self) -> list[LandedCounts]:
        """Store the staged rows in their tables, in the transaction that ends the load."""
        for landing in self._landings:
            self._lock(landing)
        truncate_due(
            [landing for landing in self._landings if landing.target.job.traits.truncates],
            plan=self._plan,
            tools=self._tools,
            connection=self._connection,
            claim=self._prepared.claim,
        )
        # Check before the merges too, because they read the catalogue of the table that the load began with.
        self._check_tables()
        counts = self._merge_all()
        self._check_tables()
        return counts

    def _lock(self, landing: TargetLanding) -> None:
        """Before the merge, take the lock to drop the staging table: without it, the merge would be rolled back."""
        table, oid = landing.table, landing.record.oid
        assert table is not None and table.schema is not None and oid is not None
        with_locks(
            partial(lock_landing_table, self._connection, table),
            plan=self._plan,
            tools=self._tools,
            connection=self._connection,
            relations=[oid],
            what=f'drop "{table}"',
        )
        found = find_landing_table(self._connection, schema=table.schema, name=table.name)
        if found is None or found.oid != oid or not found.is_ours:
            raise TargetError(
                f'table "{table}" of this load was changed by another session',
                detail="It was created again, or was given triggers, rules or policies.",
                hint="Run the load again: it then starts from the beginning.",
            )

    def _merge_all(self) -> list[LandedCounts]:
        if self._plan.job.rules.on_error == "reject" and self._landings:
            from penstock.loading.landing.merges import RejectingMerges  # noqa: PLC0415 (paid for by who needs it)

            merges = RejectingMerges(self._plan, self._prepared, self._tools, self._connection)
            counts = merges.run(self._landings, self._run_statement, name_record=self._name_record)
        else:
            counts = [self._run_statement(landing) for landing in self._landings]
        return [self._drop_merged(landing, merged) for landing, merged in zip(self._landings, counts, strict=True)]

    def _check_tables(self) -> None:
        """Raise TargetError if a target was renamed, or replaced by another table, since the load began."""
        tables = [LoadedTable(landing.facts.name, landing.facts.oid) for landing in self._landings]
        with self._connection.pipeline():
            checks = [send_check(self._connection, table) for table in tables]
        for check in checks:
            check()

    def _drop_merged(self, landing: TargetLanding, merged: MergeCounts) -> LandedCounts:
        schema, load_id = self._tools.ledger.schema, self._prepared.claim.load_id
        drop_landing(self._connection, schema, landing.record, load_id=load_id)
        return merged.landed(number=landing.record.number, target_oid=landing.facts.oid)

    def _run_statement(self, landing: TargetLanding) -> MergeCounts:
        staging = landing.table
        assert staging is not None
        job, facts, columns = landing.target.job, landing.facts, landing.target.column_map.columns
        connection, name = self._connection, self._name_record
        if job.transform is not None:
            staged = count_staged(connection, staging)
            done = run_transform(connection, job.transform, staging=staging)
            said = StatementOutcome(
                name=job.transform.name, table=str(landing.target.table), records=staged, tag=done.text, rows=done.rows
            )
            self._note_statement(landing.record.number, said)
            return MergeCounts(staged=staged, inserted=done.rows)
        if job.traits.updates:
            return merge_upsert(
                connection,
                staging=staging,
                target=facts,
                columns=columns,
                key=job.key,
                keep=job.keep,
                name_record=name,
            )
        if job.traits.is_keyed:
            return merge_insert_new(
                connection, staging=staging, target=facts, columns=columns, key=job.key, name_record=name
            )
        return insert_all(connection, staging=staging, target=facts, columns=columns, name_record=name)

    def _name_record(self, record: RecordPosition) -> FileLocation | str:
        from penstock.loading.landing.locate import name_record  # noqa: PLC0415 (paid for by who needs it)

        plan = self._plan
        return name_record(record, self._prepared, self._tools, self._connection, is_repeatable=plan.is_repeatable)
