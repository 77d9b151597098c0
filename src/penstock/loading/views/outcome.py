"""Renders outcomes of loads and of --check, and the loads of a ledger, as text and as objects for --json. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict

from penstock.changes.values import Missing
from penstock.core.units import MB, count_nouns, format_bytes, format_count, format_duration
from penstock.core.values.accounts import FileOutcome, Rows, StepPart
from penstock.core.values.diagnosis import Diagnosis
from penstock.core.values.server import ServerFacts, describe_server
from penstock.core.words import line_up
from penstock.ledger.values import LeftStaging, LoadRecord, MemberRecord, ObjectRecord, PrunedLoads, TableTotals
from penstock.loading.values.outcome import BadRecord, CheckOutcome, LoadOutcome

# If a load has more files than this, only the slowest are shown.
_FILES_SHOWN = 20
_SLOWEST_SHOWN = 10


def describe_outcome(outcome: LoadOutcome) -> list[str]:
    """Return the lines that a load prints at its end: what was loaded, skipped and rejected, and what its steps did."""
    lines = [outcome.headline]
    if outcome.load_id is None:
        if outcome.objects_skipped:
            lines.append("to load them again, also with other options: --again")
    elif outcome.objects_skipped:
        lines.append(f"skipped {count_nouns(outcome.objects_skipped, 'object')} already loaded")
    if outcome.share is not None:
        share = outcome.share
        lines.append(
            f"of these, this process on {share.host} loaded {count_nouns(share.rows, 'row')} of "
            f"{count_nouns(share.objects, 'object')}; {count_nouns(share.members, 'process', 'processes')} took part"
        )
    if outcome.rows_before:
        lines.append(f"resumed load {outcome.load_id}, which had {count_nouns(outcome.rows_before, 'row')}")
    if outcome.is_local_only:
        lines.append("durable on the primary only: the wait for the synchronous standby was cancelled")
    lines += [
        f"ran {statement.name} on {count_nouns(statement.records, 'record')}: {statement.tag}"
        for statement in outcome.statements
    ]
    if _is_merged(outcome):
        lines += _describe_merge(outcome)
    if outcome.suppressed:
        lines.append(f"row triggers skipped {count_nouns(outcome.suppressed, 'row')}")
    lines += describe_rejected(outcome)
    if len(outcome.files) > 1:
        is_merged = _is_merged(outcome) or bool(outcome.statements)
        lines += _describe_files(outcome.files, outcome.transformed, counted="records" if is_merged else "rows")
    lines += describe_steps(outcome.steps) + describe_verdict(outcome.diagnoses)
    if outcome.load_id is not None and not outcome.statements:
        lines.append(f"to compare the table with the files: penstock verify {outcome.load_id} --values")
    return lines


def describe_steps(steps: Mapping[str, StepPart]) -> list[str]:
    """Return the lines that describe what steps will do or did. `steps` has their parts by name."""
    lines: list[str] = []
    for part in steps.values():
        for line in part.describe():
            lines += line_up(line.rows, align=line.align, indent="  ") if isinstance(line, Rows) else [line]
    return lines


def describe_verdict(diagnoses: Sequence[Diagnosis]) -> list[str]:
    """Return two lines: what limited the load most, and how to change that; no lines if nothing limited it."""
    if not diagnoses:
        return []
    limit = diagnoses[0]
    return [f"limited by: {limit.verdict}", f"to change it: {limit.remedy}"]


def describe_rejected(outcome: LoadOutcome) -> list[str]:
    """Return lines that say what a complete load has not loaded.

    There is a line for each object that could not be read, a line for the load's rejected records, and a line for each
    earlier load that has rejected records of objects that are skipped now.
    """
    lines = [f"not loaded: {item.uri} cannot be read: {item.reason}" for item in outcome.unreadable]
    if outcome.rejected:
        lines.append(f"rejected {count_nouns(outcome.rejected, 'record')}: see penstock rejects {outcome.load_id}")
    return lines + [
        f"not loaded: {count_nouns(left.count, 'record')} rejected by load {left.load_id}: see penstock rejects "
        f"{left.load_id}, which can --discard them, and penstock retry"
        for left in outcome.rejects_left
    ]


def _is_merged(outcome: LoadOutcome) -> bool:
    return bool(outcome.inserted or outcome.updated or outcome.deleted or outcome.existing or outcome.duplicates)


def _describe_files(files: Sequence[FileOutcome], transformed: Collection[str], *, counted: str) -> list[str]:
    """Return a line for each file, or for the slowest files if there are many."""
    shown: Sequence[FileOutcome] = files
    lines: list[str] = []
    if len(files) > _FILES_SHOWN:
        shown = sorted(files, key=lambda file: -file.seconds)[:_SLOWEST_SHOWN]
        lines.append(f"{format_count(len(files))} files; those that took longest (--json has all):")
    heads = ("file", "table", counted, "time")
    rows = [
        (
            file.uri,
            "(transform)" if file.table in transformed else file.table,
            format_count(file.rows),
            format_duration(file.seconds),
        )
        for file in shown
    ]
    return lines + line_up([heads, *rows], align="<<>>", indent="  ")


def server_object(server: ServerFacts) -> dict[str, object]:
    """Return the members "server" and "database" of the JSON object that a command prints with --json."""
    return {"server": server.name, "database": server.database}


def _describe_merge(outcome: LoadOutcome) -> list[str]:
    """Return how many records of staging tables were inserted, updated or skipped, and what deletions changed."""
    counts = {
        "inserted": outcome.inserted,
        "updated": outcome.updated,
        "deleted": outcome.deleted,
        "skipped, because their key exists": outcome.existing,
        "skipped for another record with the same key": outcome.duplicates,
    }
    lines = [", ".join(f"{format_count(count)} {what}" for what, count in counts.items() if count)]
    if outcome.cascades:
        lines.append(f"the deletions changed rows that referred to deleted ones: {', '.join(outcome.cascades)}")
    return lines


def outcome_object(outcome: LoadOutcome) -> dict[str, object]:
    """Return the JSON object that `penstock load --json` prints at the load's end."""
    fields = asdict(outcome)
    del fields["busy_seconds"]
    return fields


def describe_problem(problem: BadRecord) -> str:
    """Return a line with the position of a bad record and the error's message.

    >>> from penstock.loading.values.outcome import BadRecord
    >>> print(describe_problem(BadRecord(uri="a.csv", line=7, column="n", message="not a number", sqlstate="22P02")))
    a.csv line 7, column "n": not a number
    """
    line = "" if problem.line is None else f" line {problem.line}"
    column = "" if problem.column is None else f', column "{problem.column}"'
    return f"{problem.uri}{line}{column}: {problem.message}"


def describe_check(outcome: CheckOutcome) -> str:
    """Return the result of a check in one line.

    >>> from penstock.loading.values.outcome import CheckOutcome
    >>> describe_check(CheckOutcome(rows=7, bytes_read=9, seconds=1.0, problems=(), problem_count=0, is_complete=True))
    'checked 7 rows in 1.00 s: no problem found, nothing loaded'
    >>> describe_check(CheckOutcome(rows=7, bytes_read=9, seconds=1.0, problems=(), problem_count=3, is_complete=False))
    'checked 7 rows in 1.00 s: 3 problems found and 0 shown, the rest not checked, nothing loaded'
    >>> from penstock.core.values.notice import Notice
    >>> describe_check(CheckOutcome(rows=7, bytes_read=9, seconds=1.0, problems=(), problem_count=0, is_complete=True,
    ...     warnings=(Notice(code="empty", message="m"),)))
    'checked 7 rows in 1.00 s: 1 warning, nothing loaded'
    """
    found = [f"{count_nouns(outcome.problem_count, 'problem')} found"] if outcome.problem_count else []
    if outcome.problem_count > len(outcome.problems):
        found[0] += f" and {format_count(len(outcome.problems))} shown"
    if outcome.warnings:
        found.append(count_nouns(len(outcome.warnings), "warning"))
    words = found or ["no problem found"]
    if not outcome.is_complete:
        words.append("the rest not checked")
    told = f"{', '.join(words)}, nothing loaded{describe_server(outcome.server, outcome.database)}"
    return f"checked {count_nouns(outcome.rows, 'row')} in {format_duration(outcome.seconds)}: {told}"


def check_object(outcome: CheckOutcome) -> dict[str, object]:
    """Return the JSON object that `penstock load --check --json` prints."""
    return {"state": "checked", **asdict(outcome)}


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
    """Return the lines of `penstock loads`: a heading, a line for each load, and a line for each unreadable object.

    `on_server` ends the heading, and names the server and the database.
    """
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
            _rate_of(record),
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
    """Return the lines of `penstock loads show` for one load.

    Among them are a line for each object and, if `members` have several clients, a line for each process.
    """
    took = format_duration(record.seconds)
    staged = sum(item.rows for item in objects if item.is_staged)
    waiting = f"{count_nouns(staged, 'record')} staged, " if staged and record.state == "running" else ""
    lines = [
        f"load {record.load_id}: {_state(record)}",
        f"  into {', '.join(record.tables)}",
        f"  began {record.began_at:%Y-%m-%d %H:%M:%S %Z} by {record.owner} on {record.client}",
        f"  {waiting}{count_nouns(record.rows, 'row')}, {format_bytes(record.bytes_committed)} committed within {took}",
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
    """Return lines for each table that lacks indexes or keys because a rebuild failed: what it lacks, and why."""
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
    """Return the JSON object that --json prints for a staging table that a failed merge has left."""
    return {"load_id": staging.load_id, "table": staging.table, "size_bytes": staging.size_bytes}


def describe_pruned(pruned: PrunedLoads) -> list[str]:
    """Return the lines of `penstock loads prune`: how many loads were pruned, and which staging tables were dropped."""
    freed = f"{format_bytes(pruned.size_bytes)} of rows removed from the ledger"
    lines = [f"pruned {count_nouns(pruned.loads, 'load')}: {freed}"]
    return lines + [f"dropped {each.table} ({format_bytes(each.size_bytes)})" for each in pruned.staging]


def load_object(record: LoadRecord, objects: Sequence[ObjectRecord] | None = None) -> dict[str, object]:
    """Return the JSON object that `penstock loads --json` prints for a load. `objects` become its member "files"."""
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


def _rate_of(record: LoadRecord) -> str:
    return f"{record.bytes_committed / record.seconds / MB:.1f}" if record.seconds > 0 else "-"


def describe_metrics(totals: Sequence[TableTotals], server: ServerFacts) -> list[str]:
    """Return the counts of each table's loads as lines in the format of OpenMetrics, which Prometheus reads too."""
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
