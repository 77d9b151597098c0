"""Renders settings, profiles and leases as text and as objects for --json. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.changes.values import Hold
from penstock.core.words import hang, line_up
from penstock.settings.decide import show, show_text

if TYPE_CHECKING:
    from penstock.core.catalogue.settings import LeaseReport, Profile, SettingResult
    from penstock.settings.lease import SettingsOverview
    from penstock.settings.refusals import Refusal


def describe_profiles(profiles: Sequence[Profile]) -> list[str]:
    """Return lines of text that list each profile with its values, reasons and sources."""
    lines: list[str] = []
    for profile in profiles:
        lines += [f"{profile.name}: {profile.summary}"]
        for value in profile.values:
            scope = "of the server" if value.scope == "server" else "of the load's sessions"
            lines += [f"  {value.name}  {value.text}, {scope}"]
            lines += hang("    ", f"{value.reason[:1].upper()}{value.reason[1:]}.")
            lines += [f"    Source: {value.source}"]
            if "aurora" not in value.flavours:
                lines += ["    Not on Aurora, whose storage has no checkpoints."]
        lines += hang("  ", f"Cost: {profile.cost}")
    return lines


def describe_refusals(refusals: Sequence[Refusal]) -> list[str]:
    """Return lines that list what penstock never does, each with the reason."""
    lines = ["never:"]
    for refusal in refusals:
        lines += [f"  {refusal.deed}", *hang("    ", refusal.reason)]
    return lines


def describe_overview(overview: SettingsOverview) -> list[str]:
    """Return lines that list the settings with their values and sources, and the leases on them."""
    lines = [str(overview.identity)]
    rows = [
        (state.name, show(state.value, state.unit), _source(state.source, state.source_file, state.source_line))
        for state in overview.settings
    ]
    return [*lines, *line_up([("setting", "value", "source"), *rows], align="<<<"), "", *describe_leases(overview)]


def _source(source: str, file: str | None, line: int | None) -> str:
    return source if file is None else f"{file} line {line}"


def describe_leases(overview: SettingsOverview) -> list[str]:
    """Return a line of text for each lease: who took it and why, until when, and its state."""
    if not overview.leases:
        return ["no leases"]
    heads = ("lease", "state", "began", "until", "settings", "by", "for")
    rows = [_lease_row(lease, overview) for lease in overview.leases]
    return line_up([heads, *rows], align="<<<<<<<")


def _lease_row(lease: Hold, overview: SettingsOverview) -> tuple[str, ...]:
    until = "its session ends" if lease.until is None else f"{lease.until:%Y-%m-%d %H:%M:%S}"
    wanted = ", ".join(f"{name} {show_text(text)}" for name, text in _find_wanted(lease, overview).items())
    return (
        lease.holder_id[:8],
        _lease_state(lease, overview),
        "" if lease.made_at is None else f"{lease.made_at:%Y-%m-%d %H:%M:%S}",
        until,
        wanted,
        f"{lease.owner} on {lease.client}",
        lease.reason,
    )


def _find_wanted(lease: Hold, overview: SettingsOverview) -> dict[str, str]:
    """Return the values that a lease sets, by the names of the settings."""
    return {change.name: str(change.record.get("wanted")) for change in overview.changes if lease.wants(change)}


def _lease_state(lease: Hold, overview: SettingsOverview) -> str:
    if not lease.is_of(overview.identity):
        return "of another server"
    if lease.pid is not None:
        return f"held by backend {lease.pid}"
    if lease.until is None:
        return "session ended"
    return "active" if lease.stands else "expired"


def overview_object(overview: SettingsOverview) -> dict[str, object]:
    """Return what --json prints of a server's settings."""
    return {
        "server": overview.identity,
        "settings": overview.settings,
        "leases": [_lease_object(lease, overview) for lease in overview.leases],
    }


def _lease_object(lease: Hold, overview: SettingsOverview) -> dict[str, object]:
    return {
        "lease_id": lease.holder_id,
        "owner": lease.owner,
        "client": lease.client,
        "reason": lease.reason,
        "began_at": lease.made_at,
        "until": lease.until,
        "server": lease.server,
        "wanted": _find_wanted(lease, overview),
        "holder_pid": lease.pid,
        "state": _lease_state(lease, overview),
    }


def describe_report(report: LeaseReport) -> list[str]:
    """Return a line of text for each setting that was changed when leases were taken or ended."""
    if not report.results and not report.lease_ids:
        return ["nothing to restore"]
    return describe_results(report.results)


def describe_results(results: Sequence[SettingResult]) -> list[str]:
    """Return a line of text for each setting: its value before and after, and a note."""
    return line_up([_result_row(result) for result in results], align="<<<<<") if results else []


def _result_row(result: SettingResult) -> tuple[str, ...]:
    return (result.name, result.before, "->", result.after, "" if result.note is None else f"({result.note})")
