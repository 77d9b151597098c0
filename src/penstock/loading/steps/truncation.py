"""Truncates tables before their first row."""

from __future__ import annotations

from penstock.loading.steps.step import RunningLoad, Step
from penstock.server.connect.connection import Connection


class Truncation(Step):
    """Truncates the tables that the load has not truncated yet according to the ledger."""

    def before(self, load: RunningLoad, connection: Connection) -> None:
        """Truncate all tables, and record that in the ledger, in one transaction."""
        if load.claimed.landings:
            from penstock.loading.landing.context import LandingContext  # noqa: PLC0415 (20 ms, for who merges or replaces)
            from penstock.loading.landing.direct import truncate_first  # noqa: PLC0415 (as above)

            context = LandingContext(plan=load.plan, tools=load.tools, connection=connection, claim=load.claimed.claim)
            truncate_first(context, load.claimed.landings)
