"""Writes what was verified as text. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.core.units import count_nouns, format_bytes, format_count

if TYPE_CHECKING:
    from penstock.proof.values import Problem, VerifiedTable, VerifyOutcome


def describe_verification(outcome: VerifyOutcome, on_server: str) -> Iterator[str]:
    """Yield lines about the tables, and the problems."""
    objects = count_nouns(sum(len(each.objects) for each in outcome.tables), "object")
    records = count_nouns(sum(each.records for each in outcome.tables), "record")
    yield f"load {outcome.load_id}{on_server}: {objects}, {records}"
    for table in outcome.tables:
        yield f"  {_describe_counts(table)}"
        if table.compared is not None and table.compared_bytes is not None:
            how = "with the table, both ways" if table.is_alone else "with the table"
            yield f"  compared {count_nouns(table.compared, 'record')} ({format_bytes(table.compared_bytes)}) {how}"
    yield f"{count_nouns(len(outcome.problems), 'problem')}:" if outcome.problems else "verified"
    yield from map(_describe_problem, outcome.problems)


def _describe_counts(table: VerifiedTable) -> str:
    counts = {
        "stored": table.inserted,
        "updated": table.updated,
        "rejected": table.rejected,
        "skipped by triggers": table.suppressed,
        "skipped for another record with the same key": table.duplicates,
        "skipped, because their key exists": table.existing,
    }
    named = ", ".join(f"{format_count(count)} {what}" for what, count in counts.items() if count or what == "stored")
    if table.rows is None:
        return f"{table.table}: {named} {'in a view' if table.kind == 'v' else 'by a transform'}"
    is_own = table.is_alone or table.rows == table.inserted + table.updated
    others = "" if is_own else ", which may include rows of others"
    return f"{table.table}: {named}; the table has {count_nouns(table.rows, 'row')}{others}"


def _describe_problem(problem: Problem) -> str:
    place = problem.where if problem.line is None else f"{problem.where} line {problem.line}"
    return f"  {place} {problem.message}" + ("" if problem.record is None else f": {problem.record}")
