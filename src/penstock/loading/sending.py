"""What the parts of one attempt at a load work with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.slotted import slotted

if TYPE_CHECKING:
    from penstock.core.connect.connection import Connection
    from penstock.loading.claim.write import ClaimedLoad
    from penstock.loading.context import LoadTools, NextAttempt
    from penstock.loading.read.format_check import FormatCheck
    from penstock.loading.read.value_check import ValueCheck
    from penstock.loading.values.plan import LoadPlan


@slotted
class Sending:
    """What the modules of one attempt share: the plan, the claimed load, the tools, and the checks of what is sent."""

    plan: LoadPlan
    claimed: ClaimedLoad
    tools: LoadTools
    # The options of this attempt.
    given: NextAttempt
    # The session that holds the load's lock.
    first: Connection
    format_check: FormatCheck
    value_check: ValueCheck
