"""Plans the columns that a load adds to a table, or widens, before its first row. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from penstock import _native
from penstock.errors import DataError, FileLocation, TargetError, UsageError
from penstock.model.load.job import TargetJob
from penstock.model.load.plan import LoadPlan
from penstock.model.server.names import quote_table
from penstock.model.server.table import Column, TableFacts, TableName
from penstock.model.source.dialect import Dialect
from penstock.model.source.types import (
    KEPT,
    NULL_WORDS,
    TYPE_OIDS,
    UNCLEAR_DATE,
    ColumnChange,
    ColumnFindings,
    identify_type,
    wider_types,
)

# Ordinary and partitioned tables.
_ALTERABLE = ("r", "p")


def check_changes(job: TargetJob, facts: TableFacts | None) -> None:
    """Raise UsageError if columns cannot be added to what the load fills."""
    if job.add_columns and job.transform is not None:
        raise UsageError(
            "--add-columns cannot be used with --transform", hint="The statement says which columns get values."
        )
    if job.add_columns and facts is not None and facts.kind not in _ALTERABLE:
        raise UsageError(f'--add-columns cannot be used with "{facts.name}", which is not a table')


def refuse_altered(plan: LoadPlan) -> None:
    """Raise UsageError if a plan that is checked would alter a table first."""
    for target in plan.targets:
        if changes := (*target.changes, *target.retyped):
            raise UsageError(
                f'--check cannot be used with a load that alters table "{target.table}"',
                detail=f"It would run: {compose_alter(target.table, changes)}",
                hint="Use --plan, or alter the table first.",
            )


def with_columns(facts: TableFacts, types: Mapping[str, str]) -> TableFacts:
    """Return a table with columns added, of these names and types."""
    added: list[Column] = []
    for number, (name, type_name) in enumerate(types.items(), facts.attributes + 1):
        oid, modifier = identify_type(type_name)
        added.append(Column(name=name, type_name=type_name, number=number, type_oid=oid, type_modifier=modifier))
    return replace(facts, columns=(*facts.columns, *added), attributes=facts.attributes + len(added))


def added_changes(facts: TableFacts, names: Collection[str]) -> tuple[ColumnChange, ...]:
    """Return the changes that add columns to a table, which has them already in `facts`. Raises TargetError."""
    columns = [column for column in facts.columns if column.name in names]
    changes = tuple(ColumnChange(column=each.name, number=each.number, type_name=each.type_name) for each in columns)
    if changes and not facts.is_owner:
        raise TargetError(
            f'must be owner of table "{facts.name}" to add columns',
            hint=f"Have its owner run: {compose_alter(facts.name, changes)};",
        )
    return changes


def compose_alter(table: TableName, changes: Sequence[ColumnChange]) -> str:
    """Return the ALTER TABLE that makes changes, for messages."""
    return f"ALTER TABLE {quote_table(table)} {', '.join(change.action for change in changes)}"


def widenable(facts: TableFacts) -> dict[str, str]:
    """Return the columns that --types widen looks at, with their types: numbers, days and times without a precision."""
    names = {oid: name for name, oid in TYPE_OIDS.items() if name in KEPT}
    return {
        column.name: names[column.type_oid]
        for column in facts.columns
        if column.type_oid in names and column.type_modifier == -1
    }


def find_wider(facts: TableFacts, name: str, type_name: str, found: ColumnFindings | None) -> ColumnChange | None:
    """Return the change that a column of this type needs to keep all values; None if it keeps them as it is."""
    column = facts.column(name)
    if column is None or found is None or found.fits & KEPT[type_name]:
        return None
    wider = wider_types(type_name)
    chosen = next((each for each in wider if each == "text" or found.fits & KEPT[each]), "text")
    before = (type_name, *wider[: wider.index(chosen)])
    lost = [found.lost[KEPT[each]] for each in before]
    decided_by = max(lost, key=lambda seen: seen[0])[1]
    return ColumnChange(
        column=column.name, number=column.number, type_name=chosen, was=type_name, decided_by=decided_by
    )


def suggest_change(column: Column, value: str) -> ColumnChange | None:
    """Return the change after which a column takes a value that the server has refused for its type.

    Returns None if the type is not one that penstock chooses, or if the value is a date that DateStyle may make fit.
    """
    name = next((name for name, oid in TYPE_OIDS.items() if oid == column.type_oid), "text")
    fits, _ = _native.recognize(value.encode(), sum(KEPT.values()) | UNCLEAR_DATE)
    if name == "text" or column.type_modifier != -1 or fits & UNCLEAR_DATE:
        return None
    chosen = next((each for each in wider_types(name) if fits & KEPT.get(each, 0)), "text")
    return ColumnChange(column=column.name, number=column.number, type_name=chosen, was=name)


def suggest_kept(type_name: str, value: str) -> str:
    """Return the type that keeps a value which a column of a type changes.

    >>> suggest_kept("date", "2026-01-31 10:00"), suggest_kept("numeric(9,2)", "1.005"), suggest_kept("integer", "007")
    ('timestamp', 'numeric', 'text')
    """
    is_moment = type_name.startswith(("date", "time"))
    fits, _ = _native.recognize(value.encode(), sum(KEPT.values()))
    candidates = ("timestamp", "timestamptz") if is_moment else ("numeric",)
    kept = next((each for each in candidates if fits & KEPT[each]), "text")
    is_time = type_name.startswith("time ") and kept == "text"
    return "timetz" if is_time and not _native.find_change(value.encode(), "timetz", -1) else kept


def with_type(facts: TableFacts, change: ColumnChange) -> TableFacts:
    """Return a table with the type of one column changed."""
    columns = tuple(
        replace(
            column,
            type_name=change.type_name,
            type_oid=TYPE_OIDS[change.type_name],
            is_json=change.type_name == "jsonb",
        )
        if column.name == change.column
        else column
        for column in facts.columns
    )
    return replace(facts, columns=columns)


def null_option(value: str, column: str, dialect: Dialect) -> str:
    """Return the option that loads a word as null; if --null names the word already, the value was in quotes."""
    if dialect.format == "csv" and value in dialect.nulls:
        return f"--force-null {shlex.quote(column)} if it stands for null"
    too = " (with --null '' too, if empty fields do)" if value else ""
    return f"--null {shlex.quote(value)} if it stands for null{too}"


def refuse_widening(
    facts: TableFacts, change: ColumnChange, dependents: Sequence[str], dialect: Dialect, *, is_delimited: bool
) -> None:
    """Raise DataError if a column cannot be widened, or would become text because of a word for null.

    It cannot be if something depends on it, or if the role is not the table's owner. `is_delimited`: the values are of
    text in which a word may stand for null.
    """
    seen = change.decided_by
    assert seen is not None
    alter = f"run: {compose_alter(facts.name, [change])};"
    hint = f"To load it, {alter}"
    if dependents:
        hint += " PostgreSQL refuses that until views, generated columns, triggers and the like are dropped."
    why = f"Not altered, because it is used by: {'; '.join(dependents)}." if dependents else None
    if not facts.is_owner:
        why = "The role is not the owner of the table."
    is_null_word = is_delimited and seen.value in NULL_WORDS
    if why is None and change.type_name == "text" and is_null_word:
        why = "Not altered, because other programs write that for null."
        hint = f"Use {null_option(seen.value, change.column, dialect)}. If it is text, {alter}"
    if why is not None:
        location = FileLocation(file=seen.uri, line=seen.line, column=change.column)
        raise DataError(
            f'column "{change.column}" of table "{facts.name}" is {change.was} and does not take {seen.shown}',
            detail=f"{location}.\n{why}",
            hint=hint,
            location=location,
        )
