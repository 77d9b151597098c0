"""Truncates tables before their rows are loaded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.core.errors import TargetError
from penstock.ledger.targets import find_unended, note_truncated
from penstock.loading.land.locks import TableLocks, truncate_tables

if TYPE_CHECKING:
    from penstock.core.values.table import TableFacts
    from penstock.loading.land.context import LandingContext, TargetLanding


def truncate_first(context: LandingContext, landings: Sequence[TargetLanding]) -> None:
    """Truncate the tables that must be truncated before the first row, unless this load has truncated them already."""
    due = [each for each in landings if each.target.is_truncated_first and not each.record.is_truncated]
    truncate_due(context, due)


def truncate_due(context: LandingContext, due: Sequence[TargetLanding]) -> None:
    """Truncate the tables of targets in one statement, and record that in the ledger, in one transaction."""
    tables = {landing.facts.oid: landing.facts for landing in due}
    connection, schema, claim = context.connection, context.schema, context.claim
    if not tables:
        return

    locks = TableLocks(connection, dict.fromkeys(tables, "ACCESS EXCLUSIVE"))

    def act() -> None:
        locks.take()
        context.tools.ledger.hold_claim(connection, claim)
        truncate_tables(connection, list(tables.values()))
        for facts in tables.values():
            refuse_unended(context, facts, verb="truncate")
        for landing in due:
            note_truncated(connection, schema, claim, landing.record)

    names = ", ".join(f'"{facts.name}"' for facts in tables.values())
    context.tools.notice(f"truncating table{'s' if len(tables) > 1 else ''} {names}")
    context.with_locks(act, relations=list(tables), what=f"truncate {names}")


def refuse_unended(context: LandingContext, facts: TableFacts, *, verb: str) -> None:
    """Raise TargetError if a load that has not ended has rows in a table; the caller holds a lock on the table."""
    if others := find_unended(context.connection, context.schema, context.claim, oid=facts.oid):
        raise TargetError(
            f'cannot {verb} table "{facts.name}": another load into it has not ended',
            detail=f"Load {others[0]} has committed rows to it, which would be missing when it is resumed.",
            hint=f"Finish it with penstock resume {others[0]}, or run penstock loads forget {others[0]} --keep-rows.",
        )
