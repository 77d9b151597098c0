"""Checks disk space: a load that would fill a disk does not begin."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.loading.context import LoadTools
from penstock.loading.plan.space import DiskSpace, describe_shortage, note_disk
from penstock.loading.steps.step import PlanFacts, RunningLoad, Step
from penstock.loading.work import ObjectWork, all_objects
from penstock.model.load.plan import LoadPlan
from penstock.model.load.space import DiskForecast
from penstock.server.connect.connection import Connection


class SpaceCheck(Step):
    """Checks disk space before the load's first attempt only.

    At later attempts, the estimate would count rows that this load has already written.
    """

    name = "space"

    def __init__(self) -> None:
        self._is_done = False

    def plan(self, facts: PlanFacts) -> DiskSpace | None:
        """Return what the load needs on this machine's disks; warn of a disk that may fill."""
        disks = _forecast(facts.plan, all_objects(facts.plan.targets), facts.tools, facts.connection)
        for notice in filter(None, map(note_disk, disks)):
            facts.tools.warnings.add(notice)
        return DiskSpace(disks=disks, is_ignored=facts.plan.job.rules.ignore_space) if disks else None

    def before(self, load: RunningLoad, connection: Connection) -> None:
        """Raise TargetError if what is left to load would fill a disk of this machine; warn if it takes over half."""
        if self._is_done or load.plan.job.rules.ignore_space:
            return
        for disk in _forecast(load.plan, load.claimed.work, load.tools, connection):
            if disk.is_short:
                raise describe_shortage(disk)
            if (notice := note_disk(disk)) is not None:
                load.tools.warnings.add(notice)
        self._is_done = True


def _forecast(
    plan: LoadPlan, works: Sequence[ObjectWork], tools: LoadTools, connection: Connection
) -> tuple[DiskForecast, ...]:
    return () if tools.guard is None else tuple(tools.guard.forecast(plan, works, connection))
