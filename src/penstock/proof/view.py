"""Writes what was verified as text. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.core.units import count_nouns, format_bytes, format_count
from penstock.core.values.notice import Notice

if TYPE_CHECKING:
    from penstock.proof.values import TableOutcome, VerifiedTable, VerifyOutcome


def describe_verification(outcome: VerifyOutcome, on_server: str) -> Iterator[str]:
    """Yield lines of text: the counts of each table, then the problems, or else a verdict.

    The verdict is "verified" only if values were compared, otherwise "counts agree" or "counts differ". `on_server` is
    text that follows the load's id.
    """
    objects = count_nouns(sum(len(each.objects) for each in outcome.tables), "object")
    records = count_nouns(sum(each.records for each in outcome.tables), "record")
    yield f"load {outcome.load_id}{on_server}: {objects}, {records}"
    for table in outcome.tables:
        yield f"  {_describe_counts(table)}"
        if table.compared is not None and table.compared_bytes is not None:
            yield f"  {_describe_comparison(table)}"
    if outcome.problems:
        yield f"{count_nouns(len(outcome.problems), 'problem')}:"
        yield from map(_describe_problem, outcome.problems)
        return
    yield "verified" if outcome.is_verified else "counts agree" if outcome.agrees else "counts differ"
    yield from (_describe_difference(each) for each in outcome.tables if each.differs)
    for table in outcome.tables:
        if table.has_crossing and not table.has_key:
            yield (
                f"warning: a row of {table.table} may stand for records of two files, because each has columns that the"
                " other lacks, and no key in the columns of both tells them apart"
            )
    if not outcome.has_values:
        see = f"penstock verify {outcome.load_id} --values"
        yield f"counts do not show a changed value, or a row in the place of another; to compare each value: {see}"


def describe_table(outcome: TableOutcome, on_server: str) -> Iterator[str]:
    """Yield lines of text: the counts of each load into a table, then the problems, or else a verdict on all loads.

    `on_server` is text that follows the table's name.
    """
    yield f"{outcome.table}{on_server}: {count_nouns(len(outcome.loads), 'load')}"
    for each in outcome.loads:
        yield from (f"  load {each.load_id}: {_describe_counts(table)}" for table in each.tables)
        yield from (
            f"    not compared: {uri}, of which a later load has loaded another version" for uri in each.renewed
        )
        if outcome.compared is not None and not (each.has_values or each.renewed):
            yield "    not verified: a later load may have updated its rows, and the records of that are not known"
    if outcome.removed:
        yield f"  {count_nouns(len(outcome.removed), 'load')} whose rows a later load has removed, or may have"
    if outcome.is_partial:
        yield "  not verified, because a later load may have removed only the rows of some partitions"
    if outcome.has_parts:
        yield "  not verified, because loads have written to partitions: verify each of these with --into"
    if outcome.unknown:
        yield f"  not verified, because the ledger does not have their sources: {', '.join(outcome.unknown)}"
    if outcome.problems:
        yield f"{count_nouns(len(outcome.problems), 'problem')}:"
        yield from map(_describe_problem, outcome.problems)
        return
    yield "verified" if outcome.is_verified else "counts agree" if outcome.agrees else "counts differ"
    if outcome.compared is not None and outcome.expected is not None and not outcome.is_verified:
        yield f"compared {outcome.compared:,} of {count_nouns(outcome.expected, 'row')} in all columns"
    yield from (_describe_difference(each) for load in outcome.loads[-1:] for each in load.tables if each.differs)


def _describe_comparison(table: VerifiedTable) -> str:
    assert table.compared is not None
    assert table.compared_bytes is not None
    what = "the keys of " if table.has_only_keys else ""
    compared = f"compared {what}{count_nouns(table.compared, 'record')} ({format_bytes(table.compared_bytes)})"
    how = "with the table, both ways" if table.is_compared_both_ways else "with the table"
    parts = [f"{compared} {how}"]
    if table.corrected:
        parts.append(f"{count_nouns(table.corrected, 'record')} from a corrected reject file left out")
    if table.written_otherwise:
        parts.append(f"{count_nouns(table.written_otherwise, 'row')} with an equal key that is written otherwise")
    return "; ".join(parts)


def _describe_difference(table: VerifiedTable) -> str:
    assert table.rows is not None
    assert table.floor_of_all is not None
    lacking = (
        f"warning: {table.table} has {count_nouns(table.rows, 'row')}, and all loads together have left "
        f"{format_count(table.floor_of_all)} there: others may have deleted rows"
    )
    if table.compared is None or table.has_key:
        return lacking
    return f"{lacking}, or a row may stand for equal records of several loads, because no key tells them apart"


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
    is_own = table.is_alone or table.rows <= table.floor
    others = "" if is_own else ", which may include rows of others"
    return f"{table.table}: {named}; the table has {count_nouns(table.rows, 'row')}{others}"


def _describe_problem(problem: Notice) -> str:
    place = problem.uri if problem.line is None else f"{problem.uri} line {problem.line}"
    return f"  {place} {problem.message}" + ("" if problem.record is None else f": {problem.record}")
