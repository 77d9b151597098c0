"""Leases that come and go → what happens to each setting. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.changes.settings.profiles import LEASABLE
from penstock.changes.settings.values import is_sound, to_text
from penstock.model.server.settings import SettingMove

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.model.server.settings import Lease, PriorSetting


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
    known = sorted((prior for prior in priors if prior.name in LEASABLE), key=_place)
    return _in_order([(prior, _settle_one(prior, leases, lines.get(prior.name), write)) for prior in known])


def _place(prior: PriorSetting) -> tuple[bool, int]:
    """Return where a setting's line was; those that had none come last."""
    return prior.auto_line is None, prior.auto_line or 0


def _in_order(moves: Sequence[tuple[PriorSetting, SettingMove]]) -> list[SettingMove]:
    """Return the moves, and with them those that bring lines of ours back into the order in which they were.

    ALTER SYSTEM writes at the end: a line that is as it was must follow one that goes back and stood before it.
    """
    ordered, has_moved = [], False
    for prior, move in moves:
        is_line = move.is_last and prior.auto_line is not None and move.text == prior.auto_text
        if is_line and move.kept is None:
            has_moved = True
        ordered.append(replace(move, kept=None) if is_line and has_moved else move)
    return ordered


def _settle_one(
    prior: PriorSetting, leases: Sequence[Lease], line: str | None, write: Callable[[str, float], str]
) -> SettingMove:
    wishes = [lease.wanted[prior.name] for lease in leases if prior.name in lease.wanted]
    is_last = not wishes
    text = write(prior.name, max(wishes)) if wishes else prior.auto_text
    if line == text:
        return SettingMove(name=prior.name, text=text, kept="it has the right value", is_last=is_last)
    # Before its first ALTER SYSTEM a lease finds the line as it was.
    if line not in prior.ours and line != prior.auto_text:
        found = "was removed" if line is None else f"is now {line}"
        return SettingMove(
            name=prior.name, text=line, kept=f"changed by another session: its line {found}", is_last=is_last
        )
    if text is not None and not is_sound(prior.name, text):
        return SettingMove(name=prior.name, text=line, kept=f"its prior value {text!r} is not valid", is_last=is_last)
    return SettingMove(name=prior.name, text=text, is_last=is_last)
