"""Truncates tables before their rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import TargetError
from penstock.loading.landing.context import with_locks
from penstock.server.ledger.targets import find_unended, note_truncated
from penstock.server.table.table_locks import TableLocks
from penstock.server.table.truncate import truncate_tables

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
    """Truncate the tables that this load has not truncated yet, and record that, in one transaction."""
    due = [
        landing
        for landing in landings
        if landing.target.job.traits.truncates and landing.table is None and not landing.record.is_truncated
    ]
    truncate_due(due, plan=plan, tools=tools, connection=connection, claim=claim)


def truncate_due(
    due: Sequence[TargetLanding], *, plan: LoadPlan, tools: LoadTools, connection: Connection, claim: Claim
) -> None:
    """Truncate the tables of targets in one statement, and record that in the ledger, in one transaction."""
    tables = {landing.facts.oid: landing.facts for landing in due}
    schema = tools.ledger.schema
    if not tables:
        return

    locks = TableLocks(connection, dict.fromkeys(tables, "ACCESS EXCLUSIVE"))

    def act() -> None:
        locks.take()
        tools.ledger.hold_claim(connection, claim)
        truncate_tables(connection, list(tables.values()))
        for facts in tables.values():
            refuse_unended(connection, schema, claim, facts, verb="truncate")
        for landing in due:
            note_truncated(connection, schema, claim, landing.record)

    names = ", ".join(f'"{facts.name}"' for facts in tables.values())
    tools.notice(f"truncating table{'s' if len(tables) > 1 else ''} {names}")
    with_locks(act, plan=plan, tools=tools, connection=connection, relations=list(tables), what=f"truncate {names}")


def refuse_unended(connection: Connection, schema: str, claim: Claim, facts: TableFacts, *, verb: str) -> None:
    """Raise TargetError if a load that has not ended has rows in a table; the caller holds a lock on the table."""
    if others := find_unended(connection, schema, claim, oid=facts.oid):
        raise TargetError(
            f'cannot {verb} table "{facts.name}": another load into it has not ended',
            detail=f"Load {others[0]} has committed rows to it, which would be missing when it is resumed.",
            hint=f"Finish it with penstock resume {others[0]}, or run penstock loads forget {others[0]} --keep-rows.",
        )
