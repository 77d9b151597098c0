"""Checks disk space: a load that would fill a disk does not begin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.loading.steps.step import Step

if TYPE_CHECKING:
    from penstock.loading.steps.step import RunningLoad
    from penstock.server.connect.connection import Connection


class SpaceCheck(Step):
    """Checks disk space before the load's first attempt only.

    At later attempts, the estimate would count rows that this load has already written.
    """

    def __init__(self) -> None:
        self._is_done = False

    def before(self, load: RunningLoad, connection: Connection) -> None:
        """Raise TargetError if what is left to load would fill a disk of this machine; warn if it takes over half."""
        guard = load.tools.guard
        if guard is not None and not self._is_done and not load.plan.job.rules.ignore_space:
            guard.refuse_shortage(load.plan, load.prepared.work, connection, load.tools.warnings)
        self._is_done = True
