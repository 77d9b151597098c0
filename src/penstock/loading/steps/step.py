"""A step of a load: something that is done before or after the rows, and undone if the load fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeVar

from penstock.changes.context import Report
from penstock.core.connect.connection import Connection
from penstock.core.values.accounts import PlanPart
from penstock.ledger.values import LedgerOutlook
from penstock.loading.claim.decide import NothingToDo
from penstock.loading.claim.write import ClaimedLoad
from penstock.loading.context import LoadTools
from penstock.loading.tally import Tally
from penstock.loading.values.objects import PlannedObject, all_objects
from penstock.loading.values.outcome import LoadOutcome
from penstock.loading.values.plan import LoadPlan

_Part = TypeVar("_Part")
_Result = TypeVar("_Result")

# When a step's `after` is called: "sent" when nothing is left to send, "stored" when the rows are in their tables. If
# COPY fills the tables, "stored" is before the load's end. If rows are staged, "stored" is after the load's end,
# because the end of the load stores them.
When = Literal["sent", "stored"]


@dataclass(slots=True)
class PlanFacts:
    """What `Step.plan` is given: the plan, what earlier steps will do, and a session to read further facts.

    `outlook` is what the load would do with each object, and `parts` has what the earlier steps have returned from
    `plan`, by their names.
    """

    plan: LoadPlan
    tools: LoadTools
    connection: Connection
    outlook: LedgerOutlook
    parts: Mapping[str, PlanPart]

    @property
    def works(self) -> list[PlannedObject]:
        """Return the objects that are not loaded yet. One that would be resumed counts as if it were new."""
        return find_left(self.plan, self.outlook)

    def find_part(self, kind: type[_Part]) -> _Part | None:
        """Return the member of `parts` that has class `kind`, None if no earlier step has returned one."""
        return next((part for part in self.parts.values() if isinstance(part, kind)), None)


def find_left(plan: LoadPlan, outlook: LedgerOutlook) -> list[PlannedObject]:
    """Return the objects of a plan that are not loaded yet. One that would be resumed counts as if it were new."""
    works = zip(all_objects(plan.targets), outlook.actions, strict=True)
    return [work for work, action in works if action in ("new", "resume")]


@dataclass(slots=True)
class RunningLoad:
    """A load that this process runs, as its steps see it."""

    plan: LoadPlan
    tools: LoadTools
    tally: Tally
    # The claimed load of the last attempt.
    claimed: ClaimedLoad
    # The callback that is told the progress of work after the rows, such as a rebuild.
    report: Report | None = None
    # The lease under which the server's settings are changed now.
    lease_id: str | None = None
    # Whether the load is complete according to the ledger.
    is_ended: bool = False
    # Whether all rows are stored, and the rebuild after them failed.
    has_all_rows: bool = False
    # The tables that were truncated for a load that failed.
    emptied: tuple[str, ...] = ()

    @property
    def load_id(self) -> str:
        """Return the load's id."""
        return self.claimed.claim.load_id

    @property
    def is_staged(self) -> bool:
        """Return whether some table gets its rows only at the load's end: it is staged or replaced."""
        return any(landing.table is not None for landing in self.claimed.landings)

    def at_end(self, act: Callable[[Connection], _Result]) -> _Result:
        """Call `act` with a session, for work after the load's last row, and return its result.

        After a transient error, call it again with another session, for as long as --retry-for allows. Raises
        PenstockError.
        """

        def run() -> _Result:
            with self.tools.connect.borrow() as connection:
                return act(connection)

        return self.tools.patiently(run, retry_for_s=self.plan.job.rules.retry_for)


class Step:
    """One step of one load: what is done before and after its rows. Methods do nothing by default.

    `plan` is called for --plan only. `before` is called for each step in the order of `make_steps`, before the first
    row of each attempt, with the session that holds the load's advisory lock. The other methods are called in the
    reverse order. `after` is called when all rows are sent or stored (see `when`), in each attempt that gets this far.
    `conclude` is called when the ledger says that the load is complete, and again if a failover has lost that.
    `before_confirming` is called when all steps have concluded, `on_failure` if the load has failed. Methods may raise
    PenstockError.
    """

    # The name of the step's part of the plan and of the outcome.
    name: ClassVar[str] = ""
    when: When = "stored"
    # Whether, in a load by several hosts, all hosts call `before`, or `conclude`, and not only the one that leads.
    begins_for_all: ClassVar[bool] = False
    concludes_for_all: ClassVar[bool] = False

    @property
    def needs_all_rows(self) -> bool:
        """Return whether `after` may only be called when no row is missing according to the ledger."""
        return False

    def plan(self, facts: PlanFacts) -> PlanPart | None:
        """Return what the step will do, None if there is nothing to show. Change nothing."""

    def before(self, load: RunningLoad, connection: Connection) -> None:
        """Do the step's work that must be done before the rows are sent."""

    def after(self, load: RunningLoad, connection: Connection) -> None:
        """Do the step's work that follows the rows."""

    def conclude(self, load: RunningLoad, outcome: LoadOutcome) -> LoadOutcome:  # noqa: ARG002 (for steps that do)
        """Return the outcome with this step's part. Errors become warnings, because the load is complete."""
        return outcome

    def before_confirming(self, load: RunningLoad, connection: Connection) -> None:
        """Do the last work that must be on the same server as the load.

        Next, in this session, the load is confirmed: the server is asked whether it still has the load's end, which a
        failover may have lost.
        """

    def on_failure(self, load: RunningLoad, connection: Connection | None, why: str) -> None:
        """Undo what the step has changed, because the load has failed.

        If `connection` is None, warn of what stays changed. `why` is the reason why there is no connection, in words.
        """

    def lose_lead(self, load: RunningLoad) -> None:
        """Forget what the step has changed, because another of several hosts leads the load now and restores it."""

    def nothing_to_do(self, nothing: NothingToDo, connection: Connection) -> None:
        """Finish what killed runs have left to do. This is called if every row is loaded already.

        `nothing` has the changes that are not restored yet.
        """
