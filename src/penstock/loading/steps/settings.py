"""The step that restores settings which killed loads have left changed, and takes a lease for this load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.changes.records import delete_holds, read_holds
from penstock.changes.values import SERVER
from penstock.core.connect.connection import Connection
from penstock.core.errors import PenstockError
from penstock.core.slotted import slotted
from penstock.core.values.accounts import Rows
from penstock.loading.claim.decide import NothingToDo
from penstock.loading.context import LoadTools
from penstock.loading.steps.step import PlanFacts, RunningLoad, Step
from penstock.loading.values.objects import all_objects
from penstock.loading.values.outcome import LoadOutcome

if TYPE_CHECKING:
    from penstock.core.catalogue.settings import LeasedSetting
    from penstock.loading.plan.settings import LoadSettings


@slotted
class ChangedSettings:
    """The server's settings that were changed during the load."""

    settings: tuple[LeasedSetting, ...]

    def describe(self) -> Sequence[str | Rows]:
        """Return a table with a row for each setting: its value before, during and after the load. Empty if none."""
        if not self.settings:
            return []
        heads = ("setting", "before", "during", "after", "")
        rows = [(one.name, one.before, one.during, one.after, one.note or "") for one in self.settings]
        return [Rows([heads, *rows], align="<<<<<")]


class SettingsStep(Step):
    """Changes the server's settings under a lease, from before the first row until all other steps are done."""

    name = "settings"

    def __init__(self, tools: LoadTools) -> None:
        self._tools = tools
        self._lease = tools.lease
        self._is_done = False

    def plan(self, facts: PlanFacts) -> LoadSettings | None:
        """Return which of the server's settings the load would change, None if --settings does not ask for it."""
        return None if self._lease is None else self._lease.look(facts.works)

    def before(self, load: RunningLoad, connection: Connection) -> None:
        """Take the lease, which changes the settings, then restore settings that killed loads have left changed.

        Only the first attempt does this, and the first attempt after `conclude`, because the lease outlives the
        sessions of an attempt.
        """
        if self._is_done:
            return
        noted = load.claimed.server_holds
        if self._lease is not None:
            if load.lease_id is None:
                # With --join, objects are claimed later. Complete objects count, as their records may be merged yet.
                is_joint, own = load.plan.job.rules.join, load.claimed.objects
                self._lease.take(all_objects(load.plan.targets) if is_joint else [*own.values()])
            load.lease_id = self._lease.lease_id
            # Read the holds after the lease is taken, because a failed try to take it may have left the note of another
            # lease.
            holds = read_holds(connection, self._tools.ledger.schema, target_oid=SERVER)
            noted = [hold.holder_id for hold in holds if not (hold.stands and hold.until is None)]
        if others := [lease_id for lease_id in noted if lease_id != load.lease_id]:
            end_left_settings(self._tools, connection, others)
        self._is_done = True

    def conclude(self, load: RunningLoad, outcome: LoadOutcome) -> LoadOutcome:
        """Restore the settings, and return the outcome with their values.

        Retry for as long as --retry-for allows if the server is not available. An error becomes a warning.
        """
        if self._lease is None:
            return outcome
        self._lease.release(is_patient=True)
        # If the server has lost the load's end, the next attempt takes another lease.
        self._is_done, load.lease_id = False, None
        return outcome.with_part(self.name, ChangedSettings(settings=self._lease.settings))

    def on_failure(self, load: RunningLoad, connection: Connection | None, why: str) -> None:  # noqa: ARG002 (a step's)
        """Restore the settings without retries, because the load itself may already have retried in vain."""
        if self._lease is not None:
            self._lease.release(is_patient=False)

    def lose_lead(self, load: RunningLoad) -> None:
        """Release the lease. The host that leads now takes its own."""
        if self._lease is not None:
            self._lease.release(is_patient=False)
            self._lease, load.lease_id = None, None

    def nothing_to_do(self, nothing: NothingToDo, connection: Connection) -> None:
        """Restore settings that killed loads have left changed."""
        if nothing.server_holds:
            end_left_settings(self._tools, connection, nothing.server_holds)


def end_left_settings(tools: LoadTools, connection: Connection, lease_ids: Sequence[str]) -> None:
    """Restore the settings of leases that the ledger has a note of and that no session holds, and delete the notes.

    `lease_ids` are the ids in the notes. `connection` is to the ledger's database. If the settings cannot be restored,
    warn, and keep the notes.
    """
    if tools.open_settings is None:
        return
    try:
        backend = tools.open_settings()
        try:
            leases = backend.leases()
            report = leases.clear()
            if gone := leases.find_gone(lease_ids):
                backend.refuse_blindness()
                delete_holds(connection, tools.ledger.schema, gone, SERVER)
            foreign = leases.describe_foreign(lease_ids)
        finally:
            backend.close()
        for warning in (*report.warnings, *foreign):
            tools.warnings.warn("settings", warning)
    except PenstockError as error:
        tools.warnings.warn(
            "settings",
            "a killed load may have left the server's settings changed, and they were not restored "
            f"({error.message}): run penstock settings restore",
        )
