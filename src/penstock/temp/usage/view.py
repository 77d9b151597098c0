"""Renders temporary work of a server as text and as an object for --json. Pure."""

from __future__ import annotations

from dataclasses import asdict
from textwrap import wrap
from typing import TYPE_CHECKING

from penstock.core.units import count_nouns, format_bytes, format_count, format_duration
from penstock.core.words import line_up, shorten_right
from penstock.rds.view import describe_local_storage

if TYPE_CHECKING:
    from penstock.temp.usage.values import LoggedFiles, StatementUse, UsageReport

_QUERY_WIDTH = 76
_WIDTH = 100

# If a device is busy for at least this share of the time, queries wait for it.
_BUSY = 0.8


def describe_usage(report: UsageReport) -> list[str]:
    """Return temporary work as lines of text."""
    lines = []
    if report.elapsed_s is not None:
        lines += [f"Temporary work within {format_duration(report.elapsed_s)}", ""]
        lines.append("Databases, spills (no temporary tables)")
        busy = [each for each in report.databases if each.bytes_per_s > 0]
        rows = [(each.name, f"{format_bytes(each.bytes_per_s)}/s", f"{each.files_per_s:.1f} files/s") for each in busy]
        lines += [*(line_up(rows, align="<>>", indent="  ") if rows else ["  none"]), ""]
    since = "" if report.elapsed_s is not None else ", since statistics were reset"
    lines.append(f"Statements, most temporary bytes first{since} (none of temp replay and temp place)")
    for number, each in enumerate(report.statements, 1):
        lines += _describe_statement(number, each)
    if not report.statements:
        lines.append("  not known" if any(text.startswith("statements:") for text in report.missing) else "  none")
    lines += ["", "Where it goes", *_describe_routes(report), "", "On disk now"]
    spaces = [("tablespace", "all files", "spilled now", "directory")]
    for space in report.tablespaces:
        now = "not known"
        if space.temp_bytes is not None:
            now = f"{format_bytes(space.temp_bytes)} in {space.temp_files}"
        size = "not known" if space.size_bytes is None else format_bytes(space.size_bytes)
        spaces.append((space.name, size, now, space.directory or "not known"))
    lines += line_up(spaces, align="<>><", indent="  ")
    if report.devices:
        lines += ["", "Devices", *_describe_devices(report)]
    if report.local_storage is not None:
        work = describe_local_storage(report.local_storage.values)
        lines += ["", f"Local storage of {report.local_storage.instance} (CloudWatch)", f"  {work}"]
    lines += [*_describe_builds(report), *_describe_log(report), "", *_describe_gain(report)]
    if report.missing:
        lines += ["", "Not known", *(f"  {text}" for text in report.missing)]
    return lines


def _describe_builds(report: UsageReport) -> list[str]:
    if not report.builds:
        return []
    rows = [
        (each.name or f"in database {each.database}", each.phase, _size(each.table_bytes), f"pid {each.pid}")
        for each in report.builds
    ]
    advice = "  first: maintenance_work_mem for the session that builds, as far as memory allows"
    return [
        "",
        "Index builds now, of tables beyond maintenance_work_mem",
        *line_up(rows, align="<<><", indent="  "),
        advice,
    ]


def _size(size_bytes: int | None) -> str:
    return "not known" if size_bytes is None else format_bytes(size_bytes)


def _describe_log(report: UsageReport) -> list[str]:
    """Return lines about the temporary files that the end of the server's log lists, whatever time the log covers."""
    if report.log_path is None:
        return []
    rows = [
        (format_count(each.files), format_bytes(each.total_bytes), format_bytes(each.largest_bytes), _shorten(each))
        for each in report.logged
    ]
    found = line_up([("files", "bytes", "largest", "statement"), *rows], align=">>><", indent="  ")
    return ["", f"Temporary files at the end of {report.log_path}", *(found if rows else ["  none"])]


def _shorten(each: LoggedFiles) -> str:
    return shorten_right(" ".join(each.statement.split()), _QUERY_WIDTH) or "not known"


def _describe_routes(report: UsageReport) -> list[str]:
    rows = [
        (route.whose, ", ".join(route.tablespaces), "; ".join(f"ignored: {why}" for why in route.ignored))
        for route in report.routes
    ]
    return line_up(rows, align="<<<", indent="  ")


def _describe_devices(report: UsageReport) -> list[str]:
    heads = ("tablespace", "device", "kind", "busy", "reads/s", "writes/s", "bytes/s", "free", "temporary IOPS")
    rows = []
    for use in report.devices:
        seen = ("-", "-", "-", "-")
        if use.rates is not None:
            moved = use.rates.read_bytes_per_s + use.rates.write_bytes_per_s
            seen = (
                f"{use.rates.busy:.0%}",
                f"{use.rates.read_iops:,.0f}",
                f"{use.rates.write_iops:,.0f}",
                format_bytes(moved),
            )
        free = "-" if use.free_bytes is None else format_bytes(use.free_bytes)
        temporary = "-" if use.temporary_iops is None else f"at most {use.temporary_iops:,.0f}"
        rows.append((use.tablespace, use.device, use.kind, *seen, free, temporary))
    return line_up([heads, *rows], align="<<<>>>>>>", indent="  ")


def _describe_gain(report: UsageReport) -> list[str]:
    """Return whether temporary work may gain from another disk.

    It gains little if the present disk is not busy, because temporary files then stay in the cache.
    """
    tablespaces = report.routes[0].tablespaces if report.routes else ()
    busy = [None if use.rates is None else use.rates.busy for use in report.devices if use.tablespace in tablespaces]
    seen_busy = [share for share in busy if share is not None]
    if busy and len(seen_busy) == len(busy) and max(seen_busy) < _BUSY:
        found = f"The disk of temporary work was {max(seen_busy):.0%} busy"
        return [f"{found}: little is to be gained by another. penstock temp replay measures it."]
    return ["penstock temp replay measures on your own statements what a local disk gains."]


def _describe_statement(number: int, use: StatementUse) -> list[str]:
    mean_s = use.total_exec_time_ms / use.calls / 1000 if use.calls else 0.0
    where = f"database {use.database or 'not known'}, role {use.role or 'not known'}"
    spilled = f"{format_bytes(use.temp_written_bytes)} written, {format_bytes(use.temp_read_bytes)} read"
    local = f"{format_bytes(use.local_written_bytes)} written, {format_bytes(use.local_read_bytes)} read"
    lines = [
        f"  {number}. {shorten_right(' '.join(use.query.split()), _QUERY_WIDTH)}",
        f"     {count_nouns(use.calls, 'call')}, {format_duration(mean_s)} each, {where}",
        f"     spills: {spilled}; temporary tables: {local}",
    ]
    if use.use_case is not None:
        names = ", ".join(use.use_case.names) or "not known"
        lines += [
            f"     for: {names}",
            *wrap(f"first: {use.use_case.remedy}", _WIDTH, initial_indent=" " * 5, subsequent_indent=" " * 7),
        ]
    elif use.unplanned is not None:
        lines.append(f"     for: not known, since it may not be planned: {use.unplanned}")
    return lines


def usage_object(report: UsageReport) -> dict[str, object]:
    """Return what --json prints of temporary work. Each device has its rates also as CloudWatch's metrics."""
    devices = [
        {
            **asdict(use),
            "metrics": None if use.rates is None else {**use.rates.as_metrics(), "FreeLocalStorage": use.free_bytes},
        }
        for use in report.devices
    ]
    return {**asdict(report), "devices": devices}
