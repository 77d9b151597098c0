"""The end of a load: what has landed elsewhere goes to its table, in the transaction that says that all is complete."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from penstock.errors import PenstockError, TargetError
from penstock.loading.landing.landing import refuse_unended, truncate_target, with_locks
from penstock.model.load.ledger import LandedCounts
from penstock.model.load.outcome import StatementOutcome
from penstock.server.ddl.replacement import finish_replacement, swap_replacement
from penstock.server.ledger.committed import has_all
from penstock.server.ledger.ending import finish
from penstock.server.ledger.targets import drop_landing
from penstock.server.merge.merge import MergeCounts, count_staged, insert_all, merge_insert_new, merge_upsert
from penstock.server.merge.merge_transform import run_transform
from penstock.server.table.conflicts import find_references
from penstock.server.table.identity import LoadedTable, send_check
from penstock.server.table.staging import find_landing_table, lock_landing_table
from penstock.server.table.tables import analyze_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.loading.claim.prepared import PreparedLoad, TargetLanding
    from penstock.loading.context import LoadTools
    from penstock.model.load.ledger import FinishedLoad
    from penstock.model.load.plan import LoadPlan
    from penstock.server.connect.connection import Connection


def finish_load(
    plan: LoadPlan,
    prepared: PreparedLoad,
    tools: LoadTools,
    connection: Connection,
    *,
    note_statement: Callable[[int, StatementOutcome], None],
) -> FinishedLoad | None:
    """Take what has landed to its tables and write down that the load is complete; None where a part is missing.

    `note_statement` hears what the statement of each target that has one reported, by its place in the job. Readers see
    all of it or nothing of it, but for what COPY put into its table itself. Raises PenstockError, and then the landing
    tables are as they were.
    """
    landed = [landing for landing in prepared.landings if landing.table is not None]
    if not landed:
        return finish(tools.ledger, connection, prepared.claim)
    if not has_all(connection, tools.ledger.schema, prepared.claim.load_id):
        tools.ledger.check_claim(connection, prepared.claim)
        return None
    return _Finish(plan, prepared, tools, connection, landed, note_statement).run()


class _Finish:
    def __init__(
        self,
        plan: LoadPlan,
        prepared: PreparedLoad,
        tools: LoadTools,
        connection: Connection,
        landed: list[TargetLanding],
        note_statement: Callable[[int, StatementOutcome], None],
    ) -> None:
        self._note_statement = note_statement
        self._plan = plan
        self._prepared = prepared
        self._tools = tools
        self._connection = connection
        self._staged = [landing for landing in landed if landing.record.kind == "staging"]
        self._replaced = [landing for landing in landed if landing.record.kind == "replacement"]

    def run(self) -> FinishedLoad | None:
        for landing in self._replaced:
            self._finish_replacement(landing)
        return finish(self._tools.ledger, self._connection, self._prepared.claim, act=self._land)

    def _wait(self, act: Callable[[], object], *, relations: list[int], what: str) -> None:
        with_locks(act, plan=self._plan, tools=self._tools, connection=self._connection, relations=relations, what=what)

    # ---------------------------------------------------------------- before the last transaction

    def _finish_replacement(self, landing: TargetLanding) -> None:
        assert landing.definition is not None and landing.record.oid is not None and landing.table is not None
        relations = [*find_references(self._connection, landing.facts.oid)]

        def with_retries(act: Callable[[], object]) -> object:
            self._wait(act, relations=relations, what=f'add a foreign key for "{landing.facts.name}"')
            return None

        finish_replacement(self._connection, landing.definition, landing.record.oid, with_locks=with_retries)
        try:
            analyze_table(self._connection, landing.table)
        except PenstockError as error:
            if error.is_transient:
                raise
            # Functions of its indexes may need the user's search_path.
            self._tools.warnings.warn("upkeep", f'not analyzed: "{landing.facts.name}"; {error.message}')

    # ---------------------------------------------------------------- within it

    def _land(self) -> list[LandedCounts]:
        for landing in self._staged:
            self._lock_staging(landing)
        for landing in self._staged:
            if landing.target.job.mode == "truncate":
                truncate_target(
                    landing,
                    self._staged,
                    plan=self._plan,
                    tools=self._tools,
                    connection=self._connection,
                    claim=self._prepared.claim,
                )
        # Before, since what a merge asks the catalogue is of the table that the load began with; and behind its lock.
        self._check_tables()
        counts = self._merge_all()
        self._check_tables()
        if self._replaced:
            counts += self._swap()
        self._tools.warnings.refuse()
        return counts

    def _lock_staging(self, landing: TargetLanding) -> None:
        """Take the lock that the drop needs before the merge, which would be in vain without it."""
        table, oid = landing.table, landing.record.oid
        assert table is not None and table.schema is not None and oid is not None
        self._wait(partial(lock_landing_table, self._connection, table), relations=[oid], what=f'drop "{table}"')
        found = find_landing_table(self._connection, schema=table.schema, name=table.name)
        if found is None or found.oid != oid or not found.is_ours:
            raise TargetError(
                f'table "{table}" of this load was changed by another session',
                detail="It was created again, or was given triggers, rules or policies.",
                hint="Run the load again: it then starts from the beginning.",
            )

    def _merge_all(self) -> list[LandedCounts]:
        if self._plan.job.rules.on_error == "reject" and self._staged:
            from penstock.loading.landing.merges import RejectingMerges  # noqa: PLC0415 (paid for by who needs it)

            merges = RejectingMerges(self._plan, self._prepared, self._tools, self._connection)
            counts = merges.run(self._staged, self._run_statement, name_object=self._name_object)
        else:
            counts = [self._run_statement(landing) for landing in self._staged]
        return [self._drop_merged(landing, merged) for landing, merged in zip(self._staged, counts, strict=True)]

    def _check_tables(self) -> None:
        """Refuse what went to tables that others have swapped in, or renamed, since the load began."""
        tables = [LoadedTable(landing.facts.name, landing.facts.oid) for landing in self._staged]
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
        connection, name = self._connection, self._name_object
        if job.transform is not None:
            staged = count_staged(connection, staging)
            done = run_transform(connection, job.transform, staging=staging)
            said = StatementOutcome(
                name=job.transform.name, table=str(landing.target.table), records=staged, tag=done.text, rows=done.rows
            )
            self._note_statement(landing.record.number, said)
            return MergeCounts(staged=staged, inserted=done.rows)
        if job.mode == "upsert":
            return merge_upsert(
                connection,
                staging=staging,
                target=facts,
                columns=columns,
                key=job.key,
                keep=job.keep,
                name_object=name,
            )
        if job.mode == "insert-new":
            return merge_insert_new(
                connection, staging=staging, target=facts, columns=columns, key=job.key, name_object=name
            )
        return insert_all(connection, staging=staging, target=facts, columns=columns, name_object=name)

    def _name_object(self, number: int) -> str:
        work = self._prepared.objects.get(number)
        return f"object {number}" if work is None else work.source.uri

    def _swap(self) -> list[LandedCounts]:
        """Put all replacements in their places at once; where a lock is missing, none of them."""
        relations = [landing.facts.oid for landing in self._replaced]
        for landing in self._replaced:
            relations += find_references(self._connection, landing.facts.oid)
        names = ", ".join(f'"{landing.facts.name}"' for landing in self._replaced)
        self._wait(self._swap_all, relations=relations, what=f"replace {names}")
        return [
            LandedCounts(number=landing.record.number, target_oid=landing.record.oid)
            for landing in self._replaced
            if landing.record.oid is not None
        ]

    def _swap_all(self) -> None:
        for landing in self._replaced:
            assert landing.definition is not None and landing.record.oid is not None
            swap_replacement(self._connection, landing.definition, landing.record.oid)
            schema, claim = self._tools.ledger.schema, self._prepared.claim
            refuse_unended(self._connection, schema, claim, landing.facts, verb="replace")
