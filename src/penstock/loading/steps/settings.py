"""The server's settings: what killed loads have left changed is restored, and a lease taken for this load if asked."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.loading.leases.left_leases import end_left_leases, find_noted
from penstock.loading.steps.step import Step

if TYPE_CHECKING:
    from penstock.loading.claim.prepared import NothingToDo
    from penstock.loading.context import LoadTools
    from penstock.loading.steps.step import RunningLoad
    from penstock.model.load.outcome import LoadOutcome
    from penstock.server.connect.connection import Connection


class Settings(Step):
    """Holds the load's lease from before its first row until everything else is done."""

    def __init__(self, tools: LoadTools) -> None:
        self._tools = tools
        self._lease = tools.lease
        self._is_done = False

    def before(self, load: RunningLoad, connection: Connection) -> None:
        """Take the lease, then restore what is left; once, since a lease outlives the load's sessions."""
        if self._is_done:
            return
        noted = load.prepared.leases
        if self._lease is not None:
            if load.lease_id is None:
                self._lease.take()
            load.lease_id = self._lease.lease_id
            # Behind it: where a fault came while it was taken, another note is left than the one that counts.
            noted = find_noted(self._tools, connection)
        if others := [lease_id for lease_id in noted if lease_id != load.lease_id]:
            end_left_leases(self._tools, connection, others)
        self._is_done = True

    def conclude(self, load: RunningLoad, outcome: LoadOutcome) -> LoadOutcome:  # noqa: ARG002 (a step's)
        """Restore the settings; where the server is away, wait as the load does."""
        if self._lease is None:
            return outcome
        self._lease.release(is_patient=True)
        return replace(outcome, settings=self._lease.settings)

    def on_failure(self, load: RunningLoad, connection: Connection | None, why: str) -> None:  # noqa: ARG002 (a step's)
        """Restore the settings; where the load has waited in vain, they do not wait once more."""
        if self._lease is not None:
            self._lease.release(is_patient=False)

    def nothing_to_do(self, nothing: NothingToDo, connection: Connection) -> None:
        """Restore what is left."""
        if nothing.leases:
            end_left_leases(self._tools, connection, nothing.leases)
