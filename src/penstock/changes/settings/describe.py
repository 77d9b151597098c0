"""Describes in lines of text which settings of a server are to be changed. Pure."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

from penstock.changes.settings.values import show

if TYPE_CHECKING:
    from penstock.model.server.settings import SettingsDecision

_WIDTH = 110


def describe_decision(decision: SettingsDecision) -> list[str]:
    """Return lines that say what a profile changes on a server, what it does not change, and why."""
    told: list[str] = []
    for change in decision.changes:
        line = f"{change.name} {show(change.prior.value, change.prior.unit)} -> {show_text(change.text)}"
        scope = "" if change.scope == "server" else " (in sessions that build indexes)"
        told += [f"{line}{scope}", *wrap_text(f"{change.reason}.", indent="  ")]
    told += describe_skips(decision)
    told += [f"note: {note}" for note in decision.notes]
    if decision.obstacle is not None and decision.leased:
        told += [f"cannot change settings: {decision.obstacle}"]
        told += [f"  HINT:  {decision.remedy}"] if decision.remedy else []
    return told or ["nothing to change"]


def describe_skips(decision: SettingsDecision) -> list[str]:
    """Return a line for each setting of a profile that is not changed, with the reason."""
    return [f"{skip.name} is not changed: {skip.reason}" for skip in decision.skips]


def show_text(text: str) -> str:
    """Return a value as SHOW prints it, given the text that ALTER SYSTEM takes.

    >>> show_text("4096MB"), show_text("1800s"), show_text("0.9")
    ('4GB', '30min', '0.9')
    """
    number = text.rstrip("MBs")
    return show(number, text[len(number) :] or None)


def wrap_text(text: str, *, indent: str) -> list[str]:
    """Return the indented lines of a text, each at most 110 characters long."""
    return [f"{indent}{line}" for line in wrap(text, _WIDTH - len(indent))]
