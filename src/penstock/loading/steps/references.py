"""Stores records that a foreign key rejected because the referenced row came later in the same load."""

from __future__ import annotations

from penstock.loading.steps.step import RunningLoad, Step, When
from penstock.server.connect.connection import Connection


class References(Step):
    """Retries the records that a foreign key rejected, after the last record is sent."""

    when: When = "sent"

    def after(self, load: RunningLoad, connection: Connection) -> None:
        """Store the records whose referenced row exists now; the others stay rejected."""
        rules = load.plan.job.rules
        if rules.on_error == "reject":
            from penstock.loading.rejects.retry import retry_references  # noqa: PLC0415 (10 ms, for who rejects)

            retry_references(load.claimed.claim, load.tools, connection, max_rejects=rules.max_rejects)
