"""Renders the outcome of a load or of --check as text and as an object for --json. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from penstock.cli.terminal.columns import line_up
from penstock.model.load.part import Rows, StepPart
from penstock.units import MB, count_nouns, format_count, format_duration

if TYPE_CHECKING:
    from penstock.model.diagnosis import Diagnosis
    from penstock.model.load.details import FileOutcome
    from penstock.model.load.outcome import CheckOutcome, LoadOutcome, Problem
    from penstock.model.server.server import ServerFacts

# If a load has more files than this, only the slowest are shown.
_FILES_SHOWN = 20
_SLOWEST_SHOWN = 10


def describe_outcome(outcome: LoadOutcome) -> list[str]:
    """Return in one line what was loaded. If there are several files, a line for each file follows."""
    # penstock does not know into which tables a transform stored rows.
    transformed = {statement.table for statement in outcome.statements}
    tables = list(dict.fromkeys(file.table for file in outcome.files if file.table not in transformed))
    # If only the last transaction of an interrupted load remained, the outcome has no files.
    into = f" into {tables[0] if len(tables) == 1 else f'{len(tables)} tables'}" if tables else ""
    pace = f"{_rate(outcome.bytes_copied, outcome.seconds)}, {count_nouns(outcome.sessions, 'session')}"
    what = f"loaded {count_nouns(outcome.rows, 'row')}{into}"
    if outcome.statements and not tables:
        what = f"staged {count_nouns(sum(statement.records for statement in outcome.statements), 'record')}"
    on_server = describe_server(outcome.server, outcome.database)
    lines = [f"{what} in {format_duration(outcome.seconds)} ({pace}){on_server}"]
    if outcome.load_id is None:
        why = (
            f"{count_nouns(outcome.objects_skipped, 'object')} already loaded"
            if outcome.objects_skipped
            else "no files"
        )
        lines = [f"nothing to load: {why}{on_server}"]
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
        lines.append(_describe_merge(outcome))
    if outcome.suppressed:
        lines.append(f"row triggers skipped {count_nouns(outcome.suppressed, 'row')}")
    lines += describe_rejected(outcome)
    if len(outcome.files) > 1:
        is_merged = _is_merged(outcome) or bool(outcome.statements)
        lines += _describe_files(outcome.files, transformed, counted="records" if is_merged else "rows")
    return lines + describe_steps(outcome.steps) + describe_verdict(outcome.diagnoses)


def describe_steps(steps: Mapping[str, StepPart]) -> list[str]:
    """Return the lines of all parts of a plan or an outcome, with aligned rows."""
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
    """Return what a complete load has not loaded.

    There is a line for its rejected records, for those of each earlier load of skipped objects, and for each object
    that could not be read.
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
    return bool(outcome.inserted or outcome.updated or outcome.existing or outcome.duplicates)


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


def describe_server(server: str, database: str) -> str:
    """Return the end of a result's first line: the server and the database.

    >>> describe_server("embedded PostgreSQL 18", "postgres")
    ' on embedded PostgreSQL 18, database postgres'
    """
    return f" on {server}, database {database}" if server else ""


def server_object(server: ServerFacts) -> dict[str, object]:
    """Return the server and the database of a result for --json."""
    return {"server": server.name, "database": server.database}


def _describe_merge(outcome: LoadOutcome) -> str:
    """Return how many records of staging tables were inserted, updated or skipped, in words."""
    counts = {
        "inserted": outcome.inserted,
        "updated": outcome.updated,
        "skipped, because their key exists": outcome.existing,
        "skipped for another record with the same key": outcome.duplicates,
    }
    return ", ".join(f"{format_count(count)} {what}" for what, count in counts.items() if count)


def outcome_object(outcome: LoadOutcome) -> dict[str, object]:
    """Return what --json prints of a load."""
    fields = asdict(outcome)
    del fields["busy_seconds"]
    return fields


def describe_problem(problem: Problem) -> str:
    """Return a bad record in one line.

    >>> from penstock.model.load.outcome import Problem
    >>> print(describe_problem(Problem(uri="a.csv", line=7, column="n", message="not a number", sqlstate="22P02")))
    a.csv line 7, column "n": not a number
    """
    line = "" if problem.line is None else f" line {problem.line}"
    column = "" if problem.column is None else f', column "{problem.column}"'
    return f"{problem.uri}{line}{column}: {problem.message}"


def describe_check(outcome: CheckOutcome) -> str:
    """Return the result of a check in one line.

    >>> from penstock.model.load.outcome import CheckOutcome
    >>> describe_check(CheckOutcome(rows=7, bytes_read=9, seconds=1.0, problems=(), problem_count=0, is_complete=True))
    'checked 7 rows in 1.00 s: no problem found, nothing loaded'
    >>> describe_check(CheckOutcome(rows=7, bytes_read=9, seconds=1.0, problems=(), problem_count=3, is_complete=False))
    'checked 7 rows in 1.00 s: 3 problems found and 0 shown, the rest not checked, nothing loaded'
    >>> from penstock.model.source.dialect import Notice
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
    """Return what --json prints of a check."""
    return {"state": "checked", **asdict(outcome)}


def _rate(length_bytes: int, seconds: float) -> str:
    rate = length_bytes / seconds / MB if seconds > 0 else 0.0
    return f"{rate:.0f} MB/s" if rate >= 100 else f"{rate:.1f} MB/s"
