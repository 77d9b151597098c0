"""Decides the type of each column from what all its values allow. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from penstock.core.values.notice import Notice
from penstock.core.values.table import TableFacts
from penstock.loading.formats import format_of
from penstock.loading.types.notations import compose_word
from penstock.loading.values.plan import TargetPlan
from penstock.loading.values.types import (
    ALL_TYPES,
    GROUPED,
    ORDERS,
    TYPE_OIDS,
    TYPES,
    ColumnChange,
    ColumnFindings,
    DecidingValue,
    Position,
    TypedColumn,
    is_grouped,
    is_zero_date,
    list_notations,
    may_override,
)

# A line of totals has at least as many records before it.
_LEAST_BEFORE = 2


def usable_types(*, server_encoding: str) -> int:
    """Return the types that --types may choose in a database with this encoding, as bits (see TYPES).

    All may be chosen if the encoding is UTF8. In other databases jsonb cannot store every text.
    """
    return ALL_TYPES if server_encoding == "UTF8" else ALL_TYPES & ~(1 << TYPES.index("jsonb"))


def choose_type(name: str, found: ColumnFindings | None) -> TypedColumn:
    """Return column `name` with the first of TYPES that takes all its values, or text if none does.

    `found` is None if the column has no values. Each type before the chosen one was excluded by a value; `decided_by`
    is the last of these values in the files. If a value is a word for null, such as N/A, the column is text although
    its other values have a type.
    """
    if found is None or found.first is None:
        return TypedColumn(name=name, type_name="text", decided_by=None)
    first, common = found.first, [each for each in found.plain if each not in ORDERS]
    found, misfit = found.read_plain()
    chosen = next((number for number in range(len(TYPES)) if found.fits & 1 << number), len(TYPES))
    lost = [found.lost[1 << number] for number in range(chosen) if 1 << number in found.lost]
    decided: tuple[Position, DecidingValue] = max(lost, key=lambda seen: seen[0], default=first)
    type_name = TYPES[chosen] if chosen < len(TYPES) else "text"
    notations: tuple[str, ...] = ()
    if type_name == "text":
        notations = list_notations(found.fits)
        notations = tuple(each for each in notations if all(may_override(each, other) for other in common))
    elif type_name == "numeric" and is_grouped(found.fits):
        notations = (GROUPED,)
    if found.word is not None and chosen < len(TYPES):
        type_name, decided = "text", found.word
    word = None if found.word is None else found.word[1]
    misfit = misfit if type_name == "text" and not notations and word is None else None
    is_total = type_name == "text" and not notations and word is None and misfit is None
    return TypedColumn(
        name=name,
        type_name=type_name,
        decided_by=decided[1],
        notations=notations,
        word=word,
        misfit=misfit,
        total=_find_total(first, found.lost.values()) if is_total else None,
    )


def _find_total(
    first: tuple[Position, DecidingValue], lost: Iterable[tuple[Position, DecidingValue]]
) -> DecidingValue | None:
    """Return the value in the last line of a file if some type, or notation, is lost by it alone.

    `first` is the column's first value. A code that no other value is like may stand in the last record, too. A line of
    totals begins with a word, and follows records.
    """
    (number, line), seen = max(lost, key=lambda each: each[0], default=first)
    follows = number == first[0][0] and line - first[0][1] >= _LEAST_BEFORE
    return seen if follows and seen.is_last and seen.value[:1].isalpha() else None


def retype(facts: TableFacts, typed: Sequence[TypedColumn]) -> tuple[ColumnChange, ...]:
    """Return the changes that give the columns of a table the types in `typed`, which were found in the files.

    Columns keep their types if they have no values, if they are identity or generated columns, or if the type is one
    that penstock does not choose, such as varchar(10).
    """
    names = {TYPE_OIDS[name]: name for name in (*TYPES, "text")}
    pairs = ((each, facts.column(each.name)) for each in typed if each.decided_by is not None)
    return tuple(
        ColumnChange(
            column=column.name,
            number=column.number,
            type_name=each.type_name,
            was=names[column.type_oid],
            decided_by=each.decided_by,
        )
        for each, column in pairs
        if column is not None
        and not (column.is_generated or column.identity)
        and column.type_oid in names
        and column.type_modifier == -1
        and names[column.type_oid] != each.type_name
    )


def null_notices(target: TargetPlan) -> tuple[Notice, ...]:
    """Return a warning for each text that probably means null and made columns text, such as NULL, N/A or 0000-00-00.

    JSON Lines and names of folders have their own nulls, so no such warning is given for them.
    """
    if not format_of(target).is_delimited:
        return ()
    found: dict[str, list[tuple[str, DecidingValue]]] = {}
    seen_words = [(column.name, column.type_name, column.word or _zero(column.decided_by)) for column in target.typed]
    seen_words += [
        (change.column, change.type_name, _zero(change.decided_by))
        for change in target.changes
        if change.was is not None
    ]
    for name, type_name, seen in seen_words:
        if type_name == "text" and seen is not None:
            found.setdefault(seen.value, []).append((name, seen))
    return tuple(compose_word(target, word, columns) for word, columns in found.items())


def total_notices(target: TargetPlan) -> Iterator[Notice]:
    """Yield a warning for each column that is text only because of the last line of a file, such as one with totals."""
    for each in target.typed:
        if each.total is not None:
            yield Notice(
                code="total-line",
                message=f'column "{each.name}" of table "{target.table}" is text only because of the last line of a '
                f"file: {each.total.shown}",
                uri=each.total.uri,
                line=each.total.line,
                hint="If it is no record, such as a line of totals, remove it and load again with --mode replace.",
            )


def zero_dates(changes: Sequence[ColumnChange]) -> list[tuple[ColumnChange, DecidingValue]]:
    """Return the changes that a date such as 0000-00-00 has decided, each with this value.

    MySQL writes it for a missing date.
    """
    return [(change, seen) for change in changes if (seen := _zero(change.decided_by)) is not None]


def _zero(seen: DecidingValue | None) -> DecidingValue | None:
    """Return the value that decided a type if it is the date that stands for none, otherwise None."""
    return seen if seen is not None and is_zero_date(seen.value) else None
