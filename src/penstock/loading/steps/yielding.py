"""The step that lets a load yield to standbys, subscribers and slots (--max-replica-lag, --max-wal)."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.connect.connection import Connection
from penstock.core.slotted import slotted
from penstock.core.units import format_bytes
from penstock.loading.context import LoadTools
from penstock.loading.steps.step import PlanFacts, RunningLoad, Step
from penstock.loading.values.outcome import LoadOutcome


@slotted
class YieldPlan:
    """The limits at which a load begins no new batches."""

    limits: tuple[str, ...]
    has_merge: bool
    has_build: bool

    @property
    def is_refusing(self) -> bool:
        """Return False: the limits do not keep the load from beginning."""
        return False

    def describe(self) -> Sequence[str]:
        """Return what the load waits for, and which of its work does not wait."""
        never = ["merges"] * self.has_merge + ["builds of indexes"] * self.has_build
        lines = [f"begins no batch beyond {' or '.join(self.limits)}"]
        return lines + ([f"does not pause during {' and '.join(never)}"] if never else [])


class Yielding(Step):
    """Reads before the rows which followers there are, and reports at the end how long the load has waited for them."""

    name = "yielding"
    begins_for_all = True
    concludes_for_all = True

    def __init__(self, tools: LoadTools) -> None:
        self._brake = tools.brake

    def plan(self, facts: PlanFacts) -> YieldPlan | None:
        """Return the limits, None if there are none. Raises TargetError if the followers cannot be read."""
        rules, targets = facts.plan.job.rules, facts.plan.targets
        if self._brake is None:
            return None
        self._brake.check(facts.connection, is_aurora=_is_aurora(facts.tools))
        max_wal = None if rules.max_wal is None else format_bytes(rules.max_wal)
        limits = {"--max-replica-lag": rules.max_replica_lag, "--max-wal": max_wal}
        return YieldPlan(
            limits=tuple(f"{option} {value}" for option, value in limits.items() if value is not None),
            has_merge=any(target.is_staged for target in targets),
            has_build=any(target.indexes.dropped or target.is_replaced for target in targets),
        )

    def before(self, load: RunningLoad, connection: Connection) -> None:
        """Find the followers. Raises TargetError if they cannot be read."""
        if self._brake is not None:
            self._brake.begin(connection, is_aurora=_is_aurora(load.tools))

    def conclude(self, load: RunningLoad, outcome: LoadOutcome) -> LoadOutcome:  # noqa: ARG002 (a step's)
        """Return the outcome with how long the load has waited."""
        yielded = None if self._brake is None else self._brake.conclude()
        return outcome if yielded is None else outcome.with_part(self.name, yielded)

    def on_failure(self, load: RunningLoad, connection: Connection | None, why: str) -> None:  # noqa: ARG002 (a step's)
        """Close the session that looks at the followers."""
        if self._brake is not None:
            self._brake.close()

    def lose_lead(self, load: RunningLoad) -> None:  # noqa: ARG002 (a step's)
        """Close that session, which another look opens again, as the process may end."""
        if self._brake is not None:
            self._brake.close()


def _is_aurora(tools: LoadTools) -> bool:
    return tools.server is not None and tools.server.is_aurora
