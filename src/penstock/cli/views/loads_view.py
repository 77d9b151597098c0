"""Renders loads of a ledger as text and as objects for --json. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from penstock.cli.terminal.columns import line_up
from penstock.units import MB, count_nouns, format_bytes, format_count, format_duration

if TYPE_CHECKING:
    from penstock.model.load.ledger import LeftStaging, LoadRecord, MemberRecord, ObjectRecord, PrunedLoads, TableTotals
    from penstock.model.load.shape import Missing
    from penstock.model.server.server import ServerFacts


# The metrics of a table: the field of TableTotals, the metric's name, and its help.
_METRICS = (
    ("last_success_s", "penstock_last_success_timestamp_seconds", "When the last complete load into the table ended."),
    ("rows", "penstock_stored_rows", "Rows that the loads into the table stored."),
    ("rejected", "penstock_rejected_records", "Records that the table refused and that are not loaded."),
    ("unfinished", "penstock_unfinished_loads", "Loads into the table that are not complete."),
    ("active", "penstock_active_loads", "Unfinished loads that a process works on."),
    (
        "oldest_unfinished_s",
        "penstock_oldest_unfinished_timestamp_seconds",
        "When the oldest unfinished load into the table began.",
    ),
)

# How much of an id is shown: enough to distinguish loads. Commands accept the beginning of an id.
_SHOWN_OF_ID = 8

# The fields of an object of a load that --json prints, in this order.
_FILE_KEYS = (
    *("uri", "table", "version", "size_bytes", "is_complete", "is_staged"),
    *("rows", "suppressed", "rejected", "bytes_committed"),
)


def describe_loads(records: Sequence[LoadRecord], on_server: str = "") -> list[str]:
    """Return a line for each load, after a heading with the server and database."""
    if not records:
        return [f"no loads{on_server}"]
    heads = ("id", "state", "began", "tables", "objects", "missing", "rows", "rejected", "MB/s", "by")
    rows = [
        (
            record.load_id[:_SHOWN_OF_ID],
            _state(record),
            f"{record.began_at:%Y-%m-%d %H:%M:%S}",
            ", ".join(record.tables),
            format_count(record.objects),
            format_count(record.objects - record.complete_objects),
            format_count(record.rows),
            format_count(record.rejected),
            _rate(record),
            record.owner,
        )
        for record in records
    ]
    lines = [f"loads{on_server}", *line_up([heads, *rows], align="<<<<>>>>><")]
    return lines + [line for record in records for line in _describe_unreadable(record)]


def _describe_unreadable(record: LoadRecord) -> list[str]:
    """Return a line for each object that a load could not read."""
    shown = record.load_id[:_SHOWN_OF_ID]
    return [f"unreadable in load {shown}: {item.uri}: {item.reason}" for item in record.unreadable]


def describe_load(
    record: LoadRecord, objects: Sequence[ObjectRecord], members: Sequence[MemberRecord] = ()
) -> list[str]:
    """Return lines that describe one load, with a line for each process if there are several, and for each object."""
    took = format_duration(record.seconds)
    staged = sum(item.rows for item in objects if item.is_staged)
    waiting = f"{format_count(staged)} records staged, " if staged and record.state == "running" else ""
    lines = [
        f"load {record.load_id}: {_state(record)}",
        f"  into {', '.join(record.tables)}",
        f"  began {record.began_at:%Y-%m-%d %H:%M:%S %Z} by {record.owner} on {record.client}",
        f"  {waiting}{format_count(record.rows)} rows, {format_bytes(record.bytes_committed)} committed within {took}",
    ]
    if len({member.client for member in members}) > 1:
        lines += _describe_members(members)
    heads = ("object", "table", "rows", "skipped", "rejected", "committed", "state")
    rows = [
        (
            item.uri,
            item.table,
            f"{format_count(item.rows)}{' staged' if item.is_staged else ''}",
            format_count(item.suppressed),
            format_count(item.rejected),
            format_bytes(item.bytes_committed),
            "complete" if item.is_complete else "incomplete",
        )
        for item in objects
    ]
    lines += line_up([heads, *rows], align="<<>>>><", indent="  ")
    lines += _describe_unreadable(record)
    if record.rejected:
        lines.append(f"to see its rejected records: penstock rejects {record.load_id}")
    if record.state == "running" and not record.is_active and record.job is not None:
        lines.append(f"to resume it: penstock resume {record.load_id}")
    return lines


def _describe_members(members: Sequence[MemberRecord]) -> list[str]:
    heads = ("member", "host", "process", "state", "objects", "claimed", "rows", "rows/s", "last commit")
    rows = [
        (
            str(member.number),
            member.host,
            member.client.rpartition(" ")[2],
            "live" if member.is_live else "ended",
            format_count(member.objects),
            format_count(member.claimed),
            format_count(member.rows),
            format_count(round(member.rows / member.seconds)) if member.seconds > 0 else "-",
            f"{member.seen_at:%H:%M:%S}" if member.rows else "-",
        )
        for member in members
    ]
    return line_up([heads, *rows], align="><><>>>><", indent="  ")


def describe_missing(missing: Sequence[Missing]) -> list[str]:
    """Return a line for each table that lacks indexes or keys because a rebuild failed, and a line with the reason."""
    lines = []
    for each in missing:
        lines.append(f"table {each.table} lacks {', '.join(each.names)} because a rebuild failed: run penstock repair")
        lines += [f"  {line}" for line in each.why.splitlines()]
    return lines


def describe_staging(staging: Sequence[LeftStaging]) -> list[str]:
    """Return a line for each staging table that a failed merge has left."""
    return [
        f"load {each.load_id[:_SHOWN_OF_ID]} has left a copy of its records in {each.table} "
        f"({format_bytes(each.size_bytes)}): run penstock resume, or penstock repair, which drops it"
        for each in staging
    ]


def staging_object(staging: LeftStaging) -> dict[str, object]:
    """Return what --json prints of a staging table that was left."""
    return {"load_id": staging.load_id, "table": staging.table, "size_bytes": staging.size_bytes}


def describe_pruned(pruned: PrunedLoads) -> list[str]:
    """Return lines that say what a prune has removed."""
    freed = f"{format_bytes(pruned.size_bytes)} of rows removed from the ledger"
    lines = [f"pruned {count_nouns(pruned.loads, 'load')}: {freed}"]
    return lines + [f"dropped {each.table} ({format_bytes(each.size_bytes)})" for each in pruned.staging]


def load_object(record: LoadRecord, objects: Sequence[ObjectRecord] | None = None) -> dict[str, object]:
    """Return what --json prints of a load."""
    whole = asdict(record)
    job = whole.pop("job")
    fields = {name: whole.pop(name) for name in ("load_id", "state", "is_active")}
    fields |= {"can_resume": record.state == "running" and job is not None, **whole}
    if objects is not None:
        fields["files"] = [{name: getattr(item, name) for name in _FILE_KEYS} for item in objects]
    return fields


def _state(record: LoadRecord) -> str:
    if record.state == "complete":
        return "complete"
    return "running" if record.is_active else "cut short"


def _rate(record: LoadRecord) -> str:
    return f"{record.bytes_committed / record.seconds / MB:.1f}" if record.seconds > 0 else "-"


def describe_metrics(totals: Sequence[TableTotals], server: ServerFacts) -> list[str]:
    """Return the lines of a text in the format of OpenMetrics, which Prometheus reads too."""
    lines = []
    for field, name, text in _METRICS:
        lines += [f"# TYPE {name} gauge", f"# HELP {name} {text}"]
        for each in totals:
            value = getattr(each, field)
            if value is not None:
                labels = {"server": server.host, "database": server.database, "table": each.table}
                shown = ",".join(f'{label}="{_escape_label(text)}"' for label, text in labels.items())
                lines.append(f"{name}{{{shown}}} {value}")
    return [*lines, "# EOF"]


def _escape_label(text: str) -> str:
    r"""Return a label's value with escapes for the characters that would end it.

    >>> _escape_label('a"b')
    'a\\"b'
    """
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
