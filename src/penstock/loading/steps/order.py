"""Lists the steps of a load.

Their `before` methods are called in this order before rows are sent; their other methods, after the rows or after a
failure, in reverse order.
"""

from __future__ import annotations

from penstock.loading.context import LoadTools
from penstock.loading.steps.changes import Changes
from penstock.loading.steps.columns import Columns
from penstock.loading.steps.counts import Counts
from penstock.loading.steps.references import References
from penstock.loading.steps.sequences import Sequences
from penstock.loading.steps.settings import Settings
from penstock.loading.steps.space import SpaceCheck
from penstock.loading.steps.step import PlanFacts, Step
from penstock.loading.steps.truncation import Truncation
from penstock.loading.steps.upkeep import Upkeep
from penstock.model.load.plan import LoadPlan
from penstock.server.connect.connection import Connection


def make_steps(plan: LoadPlan, tools: LoadTools) -> tuple[Step, ...]:
    """Return the steps of one load."""
    return (
        # Settings is first before the rows and last after them: VACUUM and CHECKPOINT also run with changed settings.
        Settings(tools),
        # Columns only reports what the claim of the load has changed already.
        Columns(plan),
        # Upkeep reads the partitions before another step changes them.
        Upkeep(plan, tools),
        # After the rows, Counts runs after Sequences, since it counts the final rows.
        Counts(),
        # After the rows, Sequences runs after the rebuild of indexes. If the rebuild fails, the load has not ended, and
        # the next run advances the sequences.
        Sequences(plan, tools),
        # SpaceCheck runs before tables are truncated, so that a load that it refuses has changed nothing.
        SpaceCheck(),
        # Truncation runs before indexes are dropped, because by default they are dropped only if the table is empty.
        Truncation(),
        Changes(plan, tools),
        # References is last here, so it is first after the rows: the rejected records that it stores must be in the
        # tables before keys are rebuilt.
        References(),
    )


def plan_steps(plan: LoadPlan, tools: LoadTools, connection: Connection) -> LoadPlan:
    """Return the plan with what each step will do. Raises PenstockError."""
    for step in make_steps(plan, tools):
        if (part := step.plan(PlanFacts(plan, tools, connection))) is not None:
            plan = plan.with_part(step.name, part)
    return plan
