"""A step of a load: something that is done before or after the rows, and undone if the load fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, TypeVar

if TYPE_CHECKING:
    from penstock.changes.context import Report
    from penstock.core.connect.connection import Connection
    from penstock.core.values.accounts import PlanPart
    from penstock.loading.claim.decide import NothingToDo
    from penstock.loading.claim.write import ClaimedLoad
    from penstock.loading.context import LoadTools
    from penstock.loading.tally import Tally
    from penstock.loading.values.outcome import LoadOutcome
    from penstock.loading.values.plan import LoadPlan

_Result = TypeVar("_Result")

# When a step's `after` is called: "sent" when nothing is left to send, "stored" when the rows are in their tables. If
# COPY fills the tables, "stored" is before the load's end; if the rows are staged, they are stored with the load's end,
# and "stored" is after it.
When = Literal["sent", "stored"]


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """What steps plan from: the plan with the parts of the steps before, and a session to read what else they need."""

    plan: LoadPlan
    tools: LoadTools
    connection: Connection


@dataclass(slots=True)
class RunningLoad:
    """A load that this process runs: what steps may read, and where they write their part of the outcome.

    `claimed` is the last attempt's; `report` is called with what is done after the rows; `lease_id` is the lease under
    which the server's settings are changed now. `is_ended`: the ledger says that the load is complete. `has_all_rows`:
    all rows are stored, and the rebuild after them failed. `emptied`: the tables truncated for a load that failed.
    """

    plan: LoadPlan
    tools: LoadTools
    tally: Tally
    claimed: ClaimedLoad
    report: Report | None = None
    lease_id: str | None = None
    is_ended: bool = False
    has_all_rows: bool = False
    emptied: tuple[str, ...] = ()

    @property
    def load_id(self) -> str:
        """Return the load's id."""
        return self.claimed.claim.load_id

    @property
    def is_staged(self) -> bool:
        """Whether some table gets its rows with the load's end."""
        return any(landing.table is not None for landing in self.claimed.landings)

    def at_end(self, act: Callable[[Connection], _Result]) -> _Result:
        """For work that follows the load's last row: borrow a session, and return the result of `act` with it.

        After a transient error, do so again, for as long as --retry-for allows. Raises PenstockError.
        """

        def run() -> _Result:
            with self.tools.connect.borrow() as connection:
                return act(connection)

        return self.tools.patiently(run, retry_for_s=self.plan.job.rules.retry_for)


class Step:
    """One step of one load; methods do nothing by default, and may raise PenstockError.

    `plan` is called for --plan only. `before` is called for each step in the order of the list, before the first row of
    each attempt, on the session that holds the load's lock. The other methods are called in the reverse order: `after`
    once, or again if an error ended the attempt; `conclude` when the load is complete; `on_failure` if it failed.
    """

    # The name of the step's part of the plan and of the outcome.
    name: ClassVar[str] = ""
    when: When = "stored"
    # Of a load by several hosts, whether `conclude` is called by all of them, or only by the one that leads.
    concludes_for_all: ClassVar[bool] = False

    @property
    def needs_all_rows(self) -> bool:
        """Whether `after` must not be called before the ledger says that no row is missing."""
        return False

    def plan(self, facts: PlanFacts) -> PlanPart | None:
        """Return what the step will do, None if there is nothing to show; change nothing."""

    def before(self, load: RunningLoad, connection: Connection) -> None:
        """Do what must be done before the rows."""

    def after(self, load: RunningLoad, connection: Connection) -> None:
        """Do what follows the rows."""

    def conclude(self, load: RunningLoad, outcome: LoadOutcome) -> LoadOutcome:  # noqa: ARG002 (for steps that do)
        """Return the outcome with this step's part; errors are warnings, because the load is complete."""
        return outcome

    def on_failure(self, load: RunningLoad, connection: Connection | None, why: str) -> None:
        """Undo what the step changed; if `connection` is None, warn of what stays, and `why` there is no connection."""

    def lose_lead(self, load: RunningLoad) -> None:
        """Forget what the step has changed: another host leads now, and restores what is recorded."""

    def nothing_to_do(self, nothing: NothingToDo, connection: Connection) -> None:
        """Finish what earlier runs that were killed have left; called if every row is loaded already."""
