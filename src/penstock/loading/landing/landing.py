"""Decides where COPY puts the records of each target: in its table, a staging table, or a table that replaces it.

A landing table is recorded in the ledger in the transaction that creates it, so that a resumed load finds it. If it was
dropped, or does not fit any more, it is created again, and its objects are loaded from their beginning.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from penstock.loading.claim.prepared import TargetLanding
from penstock.loading.landing.context import LandingContext, with_locks
from penstock.loading.landing.replacement import ReplacedTables, ReplacementMaker, check_replacement, find_swapped
from penstock.loading.landing.staging import StagedRows, StagingMaker, check_staging
from penstock.model.load.ledger import LandingRecord
from penstock.server.connect.errors import in_transaction
from penstock.server.ledger.committed import has_all
from penstock.server.ledger.ending import finish
from penstock.server.ledger.targets import drop_landing, read_landings
from penstock.server.table.conflicts import defer_constraints
from penstock.server.table.staging import check_landing_columns
from penstock.server.table.table_locks import TableLocks
from penstock.server.table.truncate import check_truncatable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.loading.claim.prepared import PreparedLoad
    from penstock.loading.context import LoadTools
    from penstock.model.load.ledger import FinishedLoad, LandedCounts
    from penstock.model.load.outcome import StatementOutcome
    from penstock.model.load.plan import LoadPlan
    from penstock.model.server.table import TableFacts
    from penstock.server.connect.connection import Connection
    from penstock.server.table.table_locks import LockMode


def check_landings(plan: LoadPlan, connection: Connection, *, ledger_schema: str) -> None:
    """Raise TargetError if a table cannot be filled in the mode requested; changes nothing."""
    truncated = [
        (each.fills_table, each.facts.oid)
        for each in plan.targets
        if each.facts is not None and each.job.traits.truncates
    ]
    for target in plan.targets:
        if target.is_staged:
            check_landing_columns(target.column_map.columns, target.table)
        if target.facts is None or target.refusal is not None:
            continue
        if target.job.traits.truncates:
            # Tables that COPY fills are truncated before the rows, those of staged targets after them, so these two
            # groups are not truncated by one statement.
            together = [oid for fills_table, oid in truncated if fills_table == target.fills_table]
            check_truncatable(connection, target.facts, together=together)
        elif target.is_replaced:
            check_replacement(target.facts, connection)
        elif target.is_staged:
            check_staging(target, target.facts, connection, ledger_schema=ledger_schema)


def open_landings(
    context: LandingContext, facts: Sequence[TableFacts], objects: Mapping[int, Sequence[int]]
) -> tuple[TargetLanding, ...]:
    """Return the targets that need more than COPY, with the tables created for them.

    `facts` are of all targets, `objects` are the numbers of the objects that each target has in this load. Raises
    ServerError, and TargetError, UsageError or DataError if the statement at the end would fail.
    """
    connection, claim = context.connection, context.claim
    with in_transaction(connection, "opening the tables to land in"):
        context.tools.ledger.hold_claim(connection, claim)
        records = read_landings(connection, context.schema, claim.load_id)
        return tuple(
            _open(
                context,
                TargetLanding(
                    target=target,
                    facts=facts[number],
                    record=records.get(
                        number, LandingRecord(number=number, target_oid=facts[number].oid, target=facts[number].name)
                    ),
                    objects=tuple(objects[number]),
                ),
            )
            for number, target in enumerate(context.plan.targets)
            if objects.get(number) and (not target.fills_table or target.job.traits.truncates)
        )


def _open(context: LandingContext, landing: TargetLanding) -> TargetLanding:
    if landing.target.fills_table:
        return landing
    maker = StagingMaker(context) if landing.target.is_staged else ReplacementMaker(context)
    return with_locks(
        partial(maker.open, landing),
        plan=context.plan,
        tools=context.tools,
        connection=context.connection,
        relations=[landing.facts.oid, *landing.facts.references],
        what=f'look at "{landing.facts.name}"',
    )


def finish_load(
    plan: LoadPlan,
    prepared: PreparedLoad,
    tools: LoadTools,
    connection: Connection,
    *,
    note_statement: Callable[[int, StatementOutcome], None],
) -> FinishedLoad | None:
    """Move the rows from the landing tables to their tables, and record that the load is complete.

    Returns None if a part of the rows is missing. For each target with a statement of its own, `note_statement` is
    called with the target's number and the statement's report. Readers see all of these rows or none, except rows that
    COPY put into a target's own table. Raises PenstockError; then the landing tables are unchanged.
    """
    landed = [landing for landing in prepared.landings if landing.table is not None]
    if not landed:
        return finish(tools.ledger, connection, prepared.claim)
    if not has_all(connection, tools.ledger.schema, prepared.claim.load_id):
        tools.ledger.check_claim(connection, prepared.claim)
        return None
    staged = StagedRows(plan, prepared, tools, connection, note_statement)
    replaced = ReplacedTables(plan, prepared, tools, connection)
    replaced.finish()

    def land() -> list[LandedCounts]:
        _lock_tables(landed, plan=plan, tools=tools, connection=connection)
        if plan.defers_keys:
            defer_constraints(connection)
        counts = [*staged.land(), *replaced.land()]
        if tools.retries is not None:
            from penstock.loading.rejects.merged import discard_merged  # noqa: PLC0415 (for who retries)

            discard_merged(tools.retries, connection, schema=tools.ledger.schema)
        tools.warnings.refuse()
        return counts

    return finish(tools.ledger, connection, prepared.claim, act=land)


def _lock_tables(landed: Sequence[TargetLanding], *, plan: LoadPlan, tools: LoadTools, connection: Connection) -> None:
    """If the last transaction truncates a table, take all its locks first, since readers wait until it ends."""
    staged = [landing for landing in landed if landing.target.is_staged]
    truncated = [landing.facts.oid for landing in staged if landing.target.job.traits.truncates]
    if not truncated:
        return
    replaced = [landing for landing in landed if landing.target.is_replaced]
    wanted: dict[int, LockMode] = {oid: "ROW SHARE" for landing in staged for oid in landing.facts.references}
    wanted |= {landing.facts.oid: "ROW EXCLUSIVE" for landing in staged}
    staging = [landing.record.oid for landing in staged if landing.record.oid is not None]
    wanted |= dict.fromkeys([*truncated, *staging, *find_swapped(replaced, connection)], "ACCESS EXCLUSIVE")
    names = ", ".join(f'"{landing.facts.name}"' for landing in landed)
    with_locks(
        TableLocks(connection, wanted).take,
        plan=plan,
        tools=tools,
        connection=connection,
        relations=list(wanted),
        what=f"lock {names}",
    )


def give_up_landings(
    landings: Sequence[TargetLanding], *, plan: LoadPlan, tools: LoadTools, connection: Connection, load_id: str
) -> None:
    """Drop the landing tables of a load. Raises TargetError, ServerError."""
    for landing in landings:
        record = landing.record
        if record.oid is not None:
            with_locks(
                partial(drop_landing, connection, tools.ledger.schema, record, load_id=load_id),
                plan=plan,
                tools=tools,
                connection=connection,
                relations=[record.oid],
                what=f'drop "{landing.table}"',
                is_patient=False,
            )
