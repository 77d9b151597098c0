"""Lists the steps of a load.

Before rows are sent, the methods `before` are called in this order. After the rows or after a failure, the other
methods are called in the reverse order.
"""

from __future__ import annotations

from penstock.core.connect.connection import Connection
from penstock.core.values.accounts import PlanPart
from penstock.ledger.rejects import RejectStore
from penstock.ledger.values import LedgerOutlook
from penstock.loading.context import LoadTools
from penstock.loading.land.context import LandingContext, truncate_first
from penstock.loading.steps.changes import Changes
from penstock.loading.steps.columns import Columns, RowCounts, SpaceCheck
from penstock.loading.steps.sequences import Sequences
from penstock.loading.steps.settings import SettingsStep
from penstock.loading.steps.step import PlanFacts, RunningLoad, Step, When
from penstock.loading.steps.upkeep import Upkeep
from penstock.loading.steps.yielding import Yielding
from penstock.loading.values.plan import LoadPlan


class Truncation(Step):
    """Truncates the tables of --mode truncate that COPY fills, unless the ledger says that this load has done so."""

    def before(self, load: RunningLoad, connection: Connection) -> None:
        """Truncate these tables, and record that in the ledger, in one transaction."""
        if load.claimed.landings:
            context = LandingContext(plan=load.plan, tools=load.tools, connection=connection, claim=load.claimed.claim)
            truncate_first(context, load.claimed.landings)


class ShapeLocks(Step):
    """Waits for the locks that the step Changes needs, before tables are truncated."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    def before(self, load: RunningLoad, connection: Connection) -> None:
        """Take the locks if a table will be truncated. The step Changes releases them."""
        self._changes.reserve(load, connection)


class References(Step):
    """Retries the records that were rejected for a foreign key, after the last record is sent."""

    when: When = "sent"

    def after(self, load: RunningLoad, connection: Connection) -> None:
        """Store the records whose referenced row exists now. The others stay rejected."""
        rules, claim = load.plan.job.rules, load.claimed.claim
        store = RejectStore(load.tools.ledger.schema, claim.load_id)
        if rules.on_error == "reject" and store.count_rejected(connection):
            from penstock.loading.land.retry import retry_references  # noqa: PLC0415 (20 ms, few loads reject records)

            retry_references(claim, load.tools, connection, max_rejects=rules.max_rejects)


def make_steps(plan: LoadPlan, tools: LoadTools) -> tuple[Step, ...]:
    """Return the steps of one load, in the order in which `Step.before` is called (see Step)."""
    changes = Changes(plan, tools)
    return (
        # SettingsStep is first before the rows and last after them, so VACUUM and CHECKPOINT run with changed settings.
        SettingsStep(tools),
        # Yielding runs before anything is changed, so that a load that may not read the standbys has changed nothing.
        Yielding(tools),
        # Columns only reports what the claim of the load has changed already.
        Columns(plan),
        # Upkeep reads the partitions before another step changes them.
        Upkeep(plan, tools),
        # After the rows, RowCounts runs after Sequences, since it counts the final rows.
        RowCounts(),
        # After the rows, Sequences runs after the rebuild of indexes. If the rebuild fails, the load has not ended, and
        # the next run advances the sequences.
        Sequences(plan, tools),
        # SpaceCheck runs before tables are truncated, so that a load that it refuses has changed nothing.
        SpaceCheck(),
        # ShapeLocks runs before tables are truncated, so that no table is empty while the load waits for a lock.
        ShapeLocks(changes),
        # Truncation runs before indexes are dropped, because by default they are dropped only if the table is empty.
        Truncation(),
        changes,
        # References is last here, so it is the first after the rows. The rejected records that it stores must be in the
        # tables before keys are rebuilt.
        References(),
    )


def plan_steps(plan: LoadPlan, tools: LoadTools, outlook: LedgerOutlook, connection: Connection) -> dict[str, PlanPart]:
    """Return what each step will do, by the step's name, without steps that have nothing to show.

    `outlook` is what the load would do with each object. Raises PenstockError.
    """
    parts: dict[str, PlanPart] = {}
    for step in make_steps(plan, tools):
        if (part := step.plan(PlanFacts(plan, tools, connection, outlook, parts))) is not None:
            parts[step.name] = part
    return parts
