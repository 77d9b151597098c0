"""Decides where COPY puts the records of each target: in its table, a staging table, or a table that replaces it.

A landing table is recorded in the ledger in the transaction that creates it, so that a resumed load finds it. If it was
dropped, or does not fit any more, it is created again, and its objects are loaded from their beginning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from penstock.loading.landing.context import TargetLanding, Way
from penstock.loading.landing.replacement import Replacement
from penstock.loading.landing.staging import Staging
from penstock.model.load.ledger import FinishedLoad, LandedCounts, LandingRecord
from penstock.server.connect.errors import in_transaction
from penstock.server.ledger.committed import has_all
from penstock.server.ledger.ending import finish
from penstock.server.ledger.targets import read_landings
from penstock.server.table.conflicts import defer_constraints
from penstock.server.table.table_locks import TableLocks
from penstock.server.table.truncate import check_truncatable

if TYPE_CHECKING:
    from penstock.loading.landing.context import LandingContext, NoteStatement
    from penstock.model.load.mode import Where
    from penstock.model.load.plan import LoadPlan
    from penstock.model.server.table import TableFacts
    from penstock.server.connect.connection import Connection


# Each way by the name that landings have for it (model/load/mode.py), in the order in which the load's end goes them.
WAYS: dict[Where, type[Way]] = {"table": Way, "staging": Staging, "replacement": Replacement}


def check_landings(plan: LoadPlan, connection: Connection, *, ledger_schema: str) -> None:
    """Raise TargetError if a table cannot be filled in the mode requested; changes nothing."""
    truncated = [
        (each, each.facts)
        for each in plan.targets
        if each.facts is not None and each.refusal is None and each.landing.truncates
    ]
    for target in plan.targets:
        WAYS[target.landing.where].check(target, connection, ledger_schema=ledger_schema)
    for target, facts in truncated:
        # Tables that COPY fills are truncated before the rows, those of staged targets after them, so these two groups
        # are not truncated by one statement.
        together = [other.oid for each, other in truncated if each.fills_table == target.fills_table]
        check_truncatable(connection, facts, together=together)


def open_landings(
    context: LandingContext, facts: Sequence[TableFacts], objects: Mapping[int, Sequence[int]], *, identity: str
) -> tuple[TargetLanding, ...]:
    """Return the targets that need more than COPY, with the tables created for them.

    `facts` are of all targets, `objects` are the numbers of the objects that each target has in this load. `identity`
    is the load's, and part of the names of the tables. Raises ServerError, and TargetError, UsageError or DataError if
    the statement at the end would fail.
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
                identity,
            )
            for number, target in enumerate(context.plan.targets)
            if objects.get(number) and target.needs_more_than_copy
        )


def _open(context: LandingContext, landing: TargetLanding, identity: str) -> TargetLanding:
    if landing.target.fills_table:
        return landing
    way = WAYS[landing.target.landing.where](context)
    return context.with_locks(
        partial(way.open, landing, f"{identity[:16]}_{landing.record.number}"),
        relations=[landing.facts.oid, *landing.facts.references],
        what=f'look at "{landing.facts.name}"',
    )


def finish_load(
    context: LandingContext, landings: Sequence[TargetLanding], *, note_statement: NoteStatement
) -> FinishedLoad | None:
    """Move the rows from the landing tables to their tables, and record that the load is complete.

    Returns None if a part of the rows is missing. For each target with a statement of its own, `note_statement` is
    called with the target's number and the statement's report. Readers see all of these rows or none, except rows that
    COPY put into a target's own table. Raises PenstockError; then the landing tables are unchanged.
    """
    tools, connection, claim = context.tools, context.connection, context.claim
    landed = [landing for landing in landings if landing.table is not None]
    if not landed:
        return finish(tools.ledger, connection, claim)
    if not has_all(connection, context.schema, claim.load_id):
        tools.ledger.check_claim(connection, claim)
        return None
    ways = [
        way(context, [each for each in landed if each.target.landing.where == where]) for where, way in WAYS.items()
    ]
    for way in ways:
        way.finish()

    def land() -> list[LandedCounts]:
        _lock_tables(context, landed, ways)
        if context.plan.defers_keys:
            defer_constraints(connection)
        counts = [count for way in ways for count in way.land(note_statement)]
        tools.warnings.refuse()
        return counts

    return finish(tools.ledger, connection, claim, act=land)


def _lock_tables(context: LandingContext, landed: Sequence[TargetLanding], ways: Sequence[Way]) -> None:
    """If the last transaction truncates a table, take all its locks first, since readers wait until it ends."""
    if not any(landing.target.landing.truncates for landing in landed):
        return
    wanted = {oid: mode for way in ways for oid, mode in way.find_locks().items()}
    names = ", ".join(f'"{landing.facts.name}"' for landing in landed)
    locks = TableLocks(context.connection, wanted)
    context.with_locks(locks.take, relations=list(wanted), what=f"lock {names}")


def give_up_landings(context: LandingContext, landings: Sequence[TargetLanding]) -> None:
    """Drop the landing tables of a load. Raises TargetError, ServerError."""
    for landing in landings:
        if landing.record.oid is not None:
            context.with_locks(
                partial(context.drop, landing.record),
                relations=[landing.record.oid],
                what=f'drop "{landing.table}"',
                is_patient=False,
            )
