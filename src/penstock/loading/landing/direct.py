"""Rows that COPY puts into their table itself: appended, or behind a TRUNCATE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import TargetError
from penstock.loading.landing.context import with_locks
from penstock.server.ledger.targets import find_unended, note_truncated
from penstock.server.table.truncate import truncate_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.loading.claim.prepared import TargetLanding
    from penstock.loading.context import LoadTools
    from penstock.model.load.ledger import Claim
    from penstock.model.load.plan import LoadPlan
    from penstock.model.server.table import TableFacts
    from penstock.server.connect.connection import Connection


def truncate_targets(
    landings: Sequence[TargetLanding], *, plan: LoadPlan, tools: LoadTools, connection: Connection, claim: Claim
) -> None:
    """Truncate the tables that this load has not truncated yet, each in a transaction with its mark in the ledger."""
    done: set[int] = set()
    for landing in landings:
        is_due = landing.target.job.mode == "truncate" and landing.table is None and not landing.record.is_truncated
        if is_due and landing.facts.oid not in done:
            done.add(landing.facts.oid)
            truncate_target(landing, landings, plan=plan, tools=tools, connection=connection, claim=claim)


def truncate_target(
    landing: TargetLanding,
    landings: Sequence[TargetLanding],
    *,
    plan: LoadPlan,
    tools: LoadTools,
    connection: Connection,
    claim: Claim,
) -> None:
    """Truncate one table, and write that down for every target of the load that it is, in one transaction."""
    facts, schema = landing.facts, tools.ledger.schema

    def act() -> None:
        tools.ledger.hold_claim(connection, claim)
        truncate_table(connection, facts)
        refuse_unended(connection, schema, claim, facts, verb="truncate")
        for other in landings:
            if other.facts.oid == facts.oid:
                note_truncated(connection, schema, claim, number=other.record.number, oid=facts.oid)

    tools.notice(f'truncating table "{facts.name}"')
    with_locks(
        act,
        plan=plan,
        tools=tools,
        connection=connection,
        relations=[facts.oid],
        what=f'truncate "{facts.name}"',
    )


def refuse_unended(connection: Connection, schema: str, claim: Claim, facts: TableFacts, *, verb: str) -> None:
    """Raise TargetError if a load that has not ended has rows in a table; the caller has locked it against them."""
    if others := find_unended(connection, schema, claim, oid=facts.oid):
        raise TargetError(
            f'cannot {verb} table "{facts.name}": another load into it has not ended',
            detail=f"Load {others[0]} has committed rows to it, which would be missing when it is resumed.",
            hint=f"Finish it with penstock resume {others[0]}, or run penstock loads forget {others[0]} --keep-rows.",
        )
