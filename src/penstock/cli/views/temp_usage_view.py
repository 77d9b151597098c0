"""Temporary work as text and as an object for --json. Pure."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from penstock.cli.terminal.columns import line_up, shorten_right
from penstock.units import format_bytes, format_count, format_duration

if TYPE_CHECKING:
    from penstock.model.temp.usage import StatementUse, UsageReport

_QUERY_WIDTH = 76


def describe_usage(report: UsageReport) -> list[str]:
    """Return temporary work as lines of text."""
    lines = [
        f"Temporary work within {format_duration(report.elapsed_s)}",
        "",
        "Databases, spills (no temporary tables)",
    ]
    busy = [each for each in report.databases if each.bytes_per_s > 0]
    rows = [(each.name, f"{format_bytes(each.bytes_per_s)}/s", f"{each.files_per_s:.1f} files/s") for each in busy]
    lines += line_up(rows, align="<>>", indent="  ") if rows else ["  none"]
    lines += ["", "Statements, most temporary bytes first"]
    for number, each in enumerate(report.statements, 1):
        lines += _describe_statement(number, each)
    if not report.statements:
        lines.append("  none")
    lines += ["", f"Where it goes: temp_tablespaces = '{report.temp_tablespaces}' in this session", "On disk now"]
    spaces = [("tablespace", "all files", "spilled now", "directory")]
    for space in report.tablespaces:
        now = "not known"
        if space.temp_bytes is not None:
            now = f"{format_bytes(space.temp_bytes)} in {space.temp_files}"
        size = "not known" if space.size_bytes is None else format_bytes(space.size_bytes)
        spaces.append((space.name, size, now, space.directory or "not known"))
    lines += line_up(spaces, align="<>><", indent="  ")
    if report.missing:
        lines += ["", "Not known", *(f"  {text}" for text in report.missing)]
    return lines


def _describe_statement(number: int, use: StatementUse) -> list[str]:
    mean_s = use.total_exec_time_ms / use.calls / 1000 if use.calls else 0.0
    where = f"database {use.database or 'not known'}, role {use.role or 'not known'}"
    spilled = f"{format_bytes(use.temp_written_bytes)} written, {format_bytes(use.temp_read_bytes)} read"
    local = f"{format_bytes(use.local_written_bytes)} written, {format_bytes(use.local_read_bytes)} read"
    return [
        f"  {number}. {shorten_right(' '.join(use.query.split()), _QUERY_WIDTH)}",
        f"     {format_count(use.calls)} calls, {format_duration(mean_s)} each, {where}",
        f"     spills: {spilled}; temporary tables: {local}",
    ]


def usage_object(report: UsageReport) -> dict[str, object]:
    """Return what --json prints of temporary work."""
    return asdict(report)
