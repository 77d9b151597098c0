"""Leases that come and go → what happens to each setting. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.model.settings import SettingMove
from penstock.settings.profiles import LEASABLE
from penstock.settings.values import is_sound, to_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.model.settings import Lease, PriorSetting


def settle(
    priors: Sequence[PriorSetting],
    leases: Sequence[Lease],
    lines: Mapping[str, str],
    *,
    write: Callable[[str, float], str] = to_text,
) -> list[SettingMove]:
    """Return what brings each leased setting to what the leases that remain ask for, or back to what it was before.

    `lines` is what postgresql.auto.conf, or the parameter group, has of each now. The largest wish is in force, as
    `write` has it. A line that no lease wrote is somebody else's, and stays.
    """
    return [_settle_one(prior, leases, lines.get(prior.name), write) for prior in priors if prior.name in LEASABLE]


def _settle_one(
    prior: PriorSetting, leases: Sequence[Lease], line: str | None, write: Callable[[str, float], str]
) -> SettingMove:
    wishes = [lease.wanted[prior.name] for lease in leases if prior.name in lease.wanted]
    is_last = not wishes
    text = write(prior.name, max(wishes)) if wishes else prior.auto_text
    if line == text:
        return SettingMove(name=prior.name, text=text, kept="it is as it should be", is_last=is_last)
    # Before its first ALTER SYSTEM a lease finds the line as it was.
    if line not in prior.ours and line != prior.auto_text:
        found = "was taken out" if line is None else f"is {line} now"
        return SettingMove(
            name=prior.name, text=line, kept=f"somebody else changed it: its line {found}", is_last=is_last
        )
    if text is not None and not is_sound(prior.name, text):
        return SettingMove(
            name=prior.name, text=line, kept=f"its prior value {text!r} is none that it can have", is_last=is_last
        )
    return SettingMove(name=prior.name, text=text, is_last=is_last)
