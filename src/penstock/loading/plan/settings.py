"""Describes what a planned load does with the server's settings. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.slotted import slotted
from penstock.core.values.accounts import PlanPart
from penstock.settings.decide import describe_decision

if TYPE_CHECKING:
    from penstock.core.catalogue.settings import SettingsDecision


@slotted
class LoadSettings(PlanPart):
    """What a load does with the server's settings. `choice` is auto or a profile's name.

    `decision` is None if the server was not asked. `reason` says why nothing is changed. It is None if settings are
    changed.
    """

    choice: str
    decision: SettingsDecision | None = None
    reason: str | None = None

    @property
    def is_changing(self) -> bool:
        """Return whether settings are changed during the load."""
        return self.reason is None

    @property
    def is_refusing(self) -> bool:
        """Return whether the load must not begin, because a profile that the user named cannot be applied."""
        found = self.decision
        return self.choice != "auto" and found is not None and found.obstacle is not None and bool(found.leased)

    def describe(self) -> list[str]:
        """Return the lines about what is changed, or why nothing is changed."""
        head = f"settings  {self.choice}" + ("" if self.reason is None else f": not changed ({self.reason})")
        changes = () if self.decision is None else describe_decision(self.decision)
        return [head, *(f"  {line}" for line in changes)]
