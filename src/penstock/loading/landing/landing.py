"""Where the records of each target land: in its table, in a staging table, or in a table that replaces it.

What is made is written down in the ledger in its own transaction, so that a load that is resumed finds it. A landing
table that has vanished, or that does not fit any more, is made anew, and its objects begin anew with it.
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
    """Raise TargetError where a table cannot be filled in the way that was asked for; changes nothing."""
    truncated = [
        (each.fills_table, each.facts.oid)
        for each in plan.targets
        if each.facts is not None and each.job.mode == "truncate"
    ]
    for target in plan.targets:
        if target.is_staged:
            check_landing_columns(target.column_map.columns, target.table)
        if target.facts is None or target.refusal is not None:
            continue
        if target.job.mode == "truncate":
            # Tables that COPY fills are truncated before their rows, staged ones behind them: not by one statement.
            together = [oid for fills_table, oid in truncated if fills_table == target.fills_table]
            check_truncatable(connection, target.facts, together=together)
        elif target.is_replaced:
            check_replacement(target.facts, connection)
        elif target.is_staged:
            check_staging(target, target.facts, connection, ledger_schema=ledger_schema)


def open_landings(
    context: LandingContext, facts: Sequence[TableFacts], objects: Mapping[int, Sequence[int]]
) -> tuple[TargetLanding, ...]:
    """Return the targets that need more than COPY, with what was made for them.

    `facts` are all targets', `objects` the numbers of the objects that each target has in this load. Raises
    TargetError, UsageError, DataError where the statement at the end would be refused, ServerError.
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
                    facts=facts[place],
                    record=records.get(
                        place, LandingRecord(number=place, target_oid=facts[place].oid, target=facts[place].name)
                    ),
                    objects=tuple(objects[place]),
                ),
            )
            for place, target in enumerate(context.plan.targets)
            if objects.get(place) and (not target.fills_table or target.job.mode == "truncate")
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
    """Take the locks of the last transaction before all else, if readers wait for one of them while rows are moved."""
    staged = [landing for landing in landed if landing.target.is_staged]
    truncated = [landing.facts.oid for landing in staged if landing.target.job.mode == "truncate"]
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
    """Drop the tables that were made for records to land in. Raises TargetError, ServerError."""
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
