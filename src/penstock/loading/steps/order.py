"""The steps of a load in their order: forwards before the rows, backwards behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.loading.steps.changes import Changes
from penstock.loading.steps.counts import Counts
from penstock.loading.steps.references import References
from penstock.loading.steps.sequences import Sequences
from penstock.loading.steps.settings import Settings
from penstock.loading.steps.space import SpaceCheck
from penstock.loading.steps.truncation import Truncation
from penstock.loading.steps.upkeep import Upkeep

if TYPE_CHECKING:
    from penstock.loading.context import LoadTools
    from penstock.loading.steps.step import Step
    from penstock.model.load.plan import LoadPlan


def make_steps(plan: LoadPlan, tools: LoadTools) -> tuple[Step, ...]:
    """Return the steps of one load."""
    return (
        # Outermost: VACUUM and CHECKPOINT run under the lease, and are what it is for.
        Settings(tools),
        # Looks at partitions before anything touches them.
        Upkeep(plan, tools),
        # Behind sequences, since it says what the load came to.
        Counts(),
        # Behind the rebuild, which may fail: a load that failed has not ended, and comes by again.
        Sequences(plan, tools),
        # Before tables are truncated: a load that is refused has changed nothing.
        SpaceCheck(),
        # Before indexes are dropped, which is done only where a table is empty.
        Truncation(),
        Changes(plan, tools),
        # First behind the rows: what it stores has to be there before keys are rebuilt.
        References(),
    )
