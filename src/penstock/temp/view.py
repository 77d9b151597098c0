"""Renders temporary work as text and as objects for --json: its usage, places for it, and replays. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from penstock.core.units import count_nouns, format_bytes, format_duration
from penstock.core.values.diagnosis import describe_diagnosis
from penstock.core.values.temp_place import TABLESPACE, CheckReport, Placement, PlaceReport
from penstock.core.words import hang, line_up, shorten_right
from penstock.rds.view import describe_local_storage
from penstock.temp.statements import shorten
from penstock.watch.view import describe_tiered_cache

if TYPE_CHECKING:
    from penstock.temp.usage.values import StatementUse, UsageReport
    from penstock.temp.values import Comparison, ReplayResult, StatementRun

_QUERY_WIDTH = 76

# A device counts as busy if it is in use for at least this share of the time. Queries then wait for it.
_BUSY = 0.8


def describe_usage(report: UsageReport) -> list[str]:
    """Return lines of text: which statements write temporary files, and where to."""
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
    if report.tiered_cache is not None:
        lines += ["", f"Aurora's {describe_tiered_cache(report.tiered_cache)}"]
    lines += [*_describe_builds(report), "", *_describe_gain(report)]
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

    A move gains little if the present disk is not busy, because temporary files then stay in the operating system's
    cache. That is not known if sessions use several tablespaces.
    """
    used = {route.tablespaces for route in report.routes}
    tablespaces = used.pop() if len(used) == 1 else ()
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
            *hang("     first: ", use.use_case.remedy),
        ]
    elif use.unplanned is not None:
        lines.append(f"     for: not known, since it may not be planned: {use.unplanned}")
    return lines


def usage_object(report: UsageReport) -> dict[str, object]:
    """Return what --json prints of the temporary files and tables of a server.

    The rates of each device are printed again under the names of CloudWatch's metrics.
    """
    devices = [
        {
            **asdict(use),
            "metrics": None if use.rates is None else {**use.rates.as_metrics(), "FreeLocalStorage": use.free_bytes},
        }
        for use in report.devices
    ]
    return {**asdict(report), "devices": devices}


def describe_plan(report: PlaceReport) -> list[str]:
    """Return the statements that temp place or temp remove would run, each on a line."""
    return [f"{text};" for text in report.statements]


def describe_placed(report: PlaceReport) -> list[str]:
    """Return a line that says which temporary files were placed where."""
    return [f"placed {_name(report.placement)}: a sort that spilled and a temporary table were found there"]


def describe_removed(report: PlaceReport) -> list[str]:
    """Return a line that says which temporary files are no longer placed where."""
    return [f"temporary work of {report.placement.scope} is no longer placed in {report.placement.location}"]


def describe_check(report: CheckReport) -> list[str]:
    """Return lines of text: the placement of temporary files, what was corrected, and what is wrong."""
    free = "" if report.free_bytes is None else f", {format_bytes(report.free_bytes)} free"
    lines = [f"{_name(report.placement)}{free}", *(f"  mended: {text}" for text in report.mended)]
    for problem in report.problems:
        lines += describe_diagnosis(problem, "  problem: ")
    return lines if report.problems else [*lines, "  no problem was found"]


def report_object(report: PlaceReport) -> dict[str, object]:
    """Return what --json prints of a placement that is created, planned or removed."""
    return {**_placement(report.placement), "statements": report.statements, "left": report.left}


def check_object(report: CheckReport) -> dict[str, object]:
    """Return what --json prints of the check of a placement."""
    return {**asdict(report), "placement": _placement(report.placement)}


def _placement(placement: Placement) -> dict[str, object]:
    return {"tablespace": TABLESPACE, **asdict(placement)}


def _name(placement: Placement) -> str:
    return f"temporary work of {placement.scope} in {placement.location}"


_SHOWN = 100


def replay_object(result: ReplayResult) -> dict[str, object]:
    """Return what --json prints of the result of a replay."""
    fields = asdict(result)
    fields["totals"] = [{**asdict(each), "speed_up": each.speed_up} for each in result.totals]
    fields["comparisons"] = [
        {
            **asdict(each),
            "verdict": each.verdict,
            "chance": each.chance if each.first and each.second else None,
            "first_median_s": each.first_s if each.first else None,
            "second_median_s": each.second_s if each.second else None,
            "speed_up": each.speed_up if each.first and each.second else None,
            "first_wait_s": each.first_wait_s,
        }
        for each in result.comparisons
    ]
    return fields


def describe_replay(result: ReplayResult) -> list[str]:
    """Return lines of text: a block for each replayed statement, with a row for each number of sessions."""
    lines: list[str] = []
    for check in result.checks:
        lines += describe_diagnosis(check, f"{check.severity}: ")
    by_statement: dict[int, list[Comparison]] = {}
    for each in result.comparisons:
        by_statement.setdefault(each.number, []).append(each)
    for number, found in by_statement.items():
        lines += [*([""] if lines else []), *_describe_replayed(number, found, result)]
    lines += _describe_chance(result)
    if result.totals:
        lines += ["", *_describe_totals(result)]
    for skipped in result.skipped:
        lines += ["", f"not replayed: {shorten(skipped.statement, length=_SHOWN)}", f"  {skipped.why}"]
    if result.shared_device is not None:
        lines += ["", f"both places are on device {result.shared_device}: what differs is not the disk"]
    if result.is_interrupted:
        lines += ["", "interrupted: the last rows have fewer rounds"]
    return lines


def _describe_replayed(number: int, found: Sequence[Comparison], result: ReplayResult) -> Iterator[str]:
    yield f"statement {number}: {shorten(found[0].statement, length=_SHOWN)}"
    heads = ["sessions", f"{result.first_place} s", "min", "max", f"{result.second_place} s", "min", "max", "speed-up"]
    heads += ["temporary", "workers", "verdict"]
    measured = [each for each in found if each.first and each.second]
    if measured:
        yield from line_up([heads, *map(_row, measured)], align=">" * 10 + "<", indent="  ")
    for each in found:
        if each.failure is not None:
            yield f"  failed with {count_nouns(each.sessions, 'session')}: {each.failure}"
    last = measured[-1] if measured else None
    if last is None or last.verdict == "does not spill":
        return
    run = last.first[-1]
    for spill in run.spills:
        how = "" if spill.how is None else f" ({spill.how})"
        yield f"  spills: {spill.node}{how}, {format_bytes(spill.written_bytes)} written in each session"
    if last.first_wait_s is not None:
        yield (
            f"  waits for temporary files in {result.first_place} with {count_nouns(last.sessions, 'session')}: "
            f"{last.first_wait_s / last.first_s:.0%} of the time; on a disk that never waits at least "
            f"{max(0.0, last.first_s - last.first_wait_s):.2f} s"
        )
    yield from _describe_places(last, result)
    if last.trial is not None:
        left = "nothing" if not last.trial.written_bytes else format_bytes(last.trial.written_bytes)
        yield (
            f"  cheapest remedy, tried once with {count_nouns(last.sessions, 'session')}: work_mem = "
            f"'{last.trial.work_mem_bytes // 1024}kB' took {last.trial.elapsed_s:.2f} s and spilled {left}"
        )
    for each in measured:
        if full := sum(run.is_elsewhere for run in each.second):
            rounds = f"{full} of {len(each.second)} rounds with {count_nouns(each.sessions, 'session')}"
            yield f"  {result.second_place} was full in {rounds}: they ran in the server's default place"


def _describe_chance(result: ReplayResult) -> list[str]:
    """Return how likely it is that one of the verdicts arose by chance, although both places are equally fast.

    This is the largest chance of all comparisons.
    """
    found = [each.chance for each in result.comparisons if each.verdict in {"faster", "slower"}]
    if not found:
        return []
    lines = ["", f"faster, slower: equal places differ so by chance in {max(found):.1%} of comparisons"]
    return [
        *lines,
        f"  ({len(result.comparisons)} were made; the order in each round was drawn with seed {result.seed})",
    ]


def _describe_totals(result: ReplayResult) -> Iterator[str]:
    yield "milliseconds for each call by pg_stat_statements of both servers, as it was before the replay:"
    heads = ("calls", "first ms", "calls", "second ms", "speed-up", "statement")
    rows = (
        (
            f"{each.first_calls:,}",
            f"{each.first_ms / each.first_calls:.2f}",
            f"{each.second_calls:,}",
            f"{each.second_ms / each.second_calls:.2f}",
            f"{each.speed_up:.2f}" if each.speed_up else "-",
            shorten(each.statement, length=_SHOWN),
        )
        for each in result.totals
    )
    yield from line_up([heads, *rows], align=">" * 5 + "<", indent="  ")


def _row(each: Comparison) -> tuple[str, ...]:
    run = each.first[-1]
    return (
        str(each.sessions),
        *_times(each.first, each.first_s),
        *_times(each.second, each.second_s),
        "-" if each.verdict in {"does not spill", "was full"} else f"{each.speed_up:.2f}",
        format_bytes(run.written_bytes),
        f"{run.workers_launched}/{run.workers_planned}",
        each.verdict,
    )


def _times(runs: Sequence[StatementRun], median_s: float) -> tuple[str, str, str]:
    seconds = [run.elapsed_s for run in runs]
    return f"{median_s:.2f}", f"{min(seconds):.2f}", f"{max(seconds):.2f}"


def _describe_places(each: Comparison, result: ReplayResult) -> Iterator[str]:
    sessions = count_nouns(each.sessions, "session")
    for name, runs in ((result.first_place, each.first), (result.second_place, each.second)):
        if runs and (rates := runs[-1].device) is not None:
            yield (
                f"  device below {name} with {sessions}: {rates.busy:.0%} busy, queue {rates.queue:.1f}, "
                f"{rates.read_iops:,.0f} reads/s, {rates.write_iops:,.0f} writes/s, "
                f"{format_bytes(rates.read_bytes_per_s + rates.write_bytes_per_s)}/s"
            )
