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
    """What a load does with the server's settings. `choice` is the value of --settings: auto or a profile's name.

    `decision` says which settings change, None if the server was not asked. `reason` says why nothing is changed, None
    if settings are changed.
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
        """Return a line with the choice and why nothing is changed, if so, and a line for each setting."""
        head = f"settings  {self.choice}" + ("" if self.reason is None else f": not changed ({self.reason})")
        changes = () if self.decision is None else describe_decision(self.decision)
        return [head, *(f"  {line}" for line in changes)]
