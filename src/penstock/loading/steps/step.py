"""A step of a load: something that is done around its rows, and undone or finished on the way out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.changes.context import Report
    from penstock.loading.claim.prepared import NothingToDo, PreparedLoad
    from penstock.loading.context import LoadTools
    from penstock.loading.tally import Tally
    from penstock.model.load.outcome import LoadOutcome
    from penstock.model.load.plan import LoadPlan
    from penstock.server.connect.connection import Connection

_Result = TypeVar("_Result")

# When a step's `after` comes: as soon as nothing is left to send, or as soon as the rows are in their tables. The
# latter is before the load's end where COPY fills the tables, and behind it where a statement does that with the end.
When = Literal["sent", "stored"]


@dataclass(slots=True)
class RunningLoad:
    """A load that this process works on: what steps may look at, and write their share of the outcome to.

    `prepared` is the last attempt's; `report` hears of what is done behind the rows; `lease_id` is the lease under
    which the server's settings are others now. `is_ended`: the ledger says that the load is complete.
    `has_all_rows`: what failed came behind the last row. `emptied`: the tables truncated for a load that failed.
    """

    plan: LoadPlan
    tools: LoadTools
    tally: Tally
    prepared: PreparedLoad
    report: Report | None = None
    lease_id: str | None = None
    is_ended: bool = False
    has_all_rows: bool = False
    emptied: tuple[str, ...] = ()

    @property
    def load_id(self) -> str:
        """Return the load's id."""
        return self.prepared.claim.load_id

    @property
    def is_staged(self) -> bool:
        """Whether rows come to some table with the load's end."""
        return any(landing.table is not None for landing in self.prepared.landings)

    def at_end(self, act: Callable[[Connection], _Result]) -> _Result:
        """Return what `act` does on a session behind the last row, where it may be done again. Raises PenstockError."""

        def run() -> _Result:
            with self.tools.connect.borrow() as connection:
                return act(connection)

        return self.tools.patiently(run, retry_for_s=self.plan.job.rules.retry_for)


class Step:
    """One step of one load; each method does nothing unless a step has its own, and may raise PenstockError.

    `before` comes forwards through the list ahead of each attempt's first row, on the session that holds the load's
    lock. The others come backwards: `after` once, repeated where a fault ended it; `conclude` when the load is
    complete; `on_failure` in place of these. A step that changed nothing does nothing there.
    """

    when: When = "stored"

    @property
    def needs_all_rows(self) -> bool:
        """Whether `after` must not come before the ledger says that no row is missing."""
        return False

    def before(self, load: RunningLoad, connection: Connection) -> None:
        """Do what must be done before the rows."""

    def after(self, load: RunningLoad, connection: Connection) -> None:
        """Do what follows the rows."""

    def conclude(self, load: RunningLoad, outcome: LoadOutcome) -> LoadOutcome:  # noqa: ARG002 (for steps that do)
        """Return the outcome with this step's share; what goes wrong is a warning."""
        return outcome

    def on_failure(self, load: RunningLoad, connection: Connection | None, why: str) -> None:
        """Undo what would stay behind a load that failed; `connection` is None where there is none, and `why`."""

    def nothing_to_do(self, nothing: NothingToDo, connection: Connection) -> None:
        """See to what runs that were cut short have left, where every row is loaded."""
