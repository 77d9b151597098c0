"""Decides the type of each column from what all its values allow. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

from penstock.core.values.dialect import DialectOptions, Notice
from penstock.core.values.options import spell_options
from penstock.core.values.table import TableFacts
from penstock.core.words import hide_secrets
from penstock.loading.formats import format_of
from penstock.loading.plan.modes import null_option
from penstock.loading.values.plan import TargetPlan
from penstock.loading.values.types import (
    ALL_TYPES,
    GROUPED,
    NULL_WORDS,
    TYPE_OIDS,
    TYPES,
    ColumnChange,
    ColumnFindings,
    Position,
    TypedColumn,
    Witness,
    find_notations,
    is_grouped,
    is_zero_date,
)

_COLUMNS_SHOWN = 3

# The largest number of sources with which a hint shows a command.
_SOURCES_SHOWN = 5


def usable_types(*, server_encoding: str) -> int:
    """Return the types that may be chosen, as bits. jsonb is included only if the database can store all characters."""
    return ALL_TYPES if server_encoding == "UTF8" else ALL_TYPES & ~(1 << TYPES.index("jsonb"))


def choose_type(name: str, found: ColumnFindings | None) -> TypedColumn:
    """Return a column with the first type that takes all its values, or text.

    Each type before the chosen one in TYPES was excluded by a value. `decided_by` is the last of these values.
    """
    if found is None or found.first is None:
        return TypedColumn(name=name, type_name="text", decided_by=None)
    chosen = next((number for number in range(len(TYPES)) if found.fits & 1 << number), len(TYPES))
    lost = [found.lost[1 << number] for number in range(chosen) if 1 << number in found.lost]
    decided: tuple[Position, Witness] = max(lost, key=lambda seen: seen[0], default=found.first)
    type_name = TYPES[chosen] if chosen < len(TYPES) else "text"
    notations: tuple[str, ...] = ()
    if type_name == "text":
        notations = find_notations(found.fits)
    elif type_name == "numeric" and is_grouped(found.fits):
        notations = (GROUPED,)
    return TypedColumn(name=name, type_name=type_name, decided_by=decided[1], notations=notations)


def retype(facts: TableFacts, typed: Sequence[TypedColumn]) -> tuple[ColumnChange, ...]:
    """Return the changes that give the columns of a table the types that were found for them.

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
    """Return a warning for each word for null that made columns text, such as NULL, N/A or 0000-00-00.

    JSON Lines and names of folders have their own nulls, so no such warning is given for them.
    """
    if not format_of(target).is_delimited:
        return ()
    found: dict[str, list[tuple[str, Witness]]] = {}
    decided = [(column.name, column.type_name, column.decided_by) for column in target.typed]
    decided += [(change.column, change.type_name, change.decided_by) for change in target.changes if change.was]
    for name, type_name, seen in decided:
        is_word = seen is not None and ((seen.value in NULL_WORDS and seen.value) or is_zero_date(seen.value))
        if seen is not None and type_name == "text" and is_word:
            found.setdefault(seen.value, []).append((name, seen))
    return tuple(
        Notice(
            code="literal-null",
            message=f'{word} is text in this dialect, and so {_list_columns(columns)} of table "{target.table}"',
            uri=columns[0][1].uri,
            line=columns[0][1].line,
            hint=_replace_hint(target, word, [name for name, _ in columns])
            if target.facts is None or target.takes_types
            else f"Use {null_option(word, columns[0][0], target.dialect)}.",
        )
        for word, columns in found.items()
    )


def _replace_hint(target: TargetPlan, word: str, columns: Sequence[str]) -> str:
    """Return the hint to load the table again, because its columns are text only because of a word for null.

    The load that gives the warning records its files as loaded, and creates the table. So the next load replaces the
    table, whose columns then get other types.
    """
    job, nulls = target.job, target.dialect.nulls
    # If --null names the word already, the values were in quotes.
    quoted = (*job.dialect.force_null, *(columns if word in nulls else ()))
    dialect = replace(job.dialect, null=(word,) if quoted else (*nulls, word), force_null=quoted)
    again = replace(job, mode="replace", key=(), keep="error", dialect=dialect)
    words = [*spell_options(again), *spell_options(dialect)]
    is_typeable = len(job.sources) <= _SOURCES_SHOWN and not any(
        hide_secrets(source) != source or source == "-" for source in job.sources
    )
    if not is_typeable:
        added = ["--mode", "replace", *spell_options(DialectOptions(null=dialect.null, force_null=dialect.force_null))]
        return f"If it stands for null, run the command again with {shlex.join(added)}"
    return f"If it stands for null, run: penstock load {shlex.join([*words, *job.sources])}"


def _list_columns(columns: Sequence[tuple[str, Witness]]) -> str:
    names = [f'"{name}"' for name, _ in columns[:_COLUMNS_SHOWN]]
    more = f" and {len(columns) - len(names)} more" if len(columns) > len(names) else ""
    return f"is column {names[0]}" if len(columns) == 1 else f"are columns {', '.join(names)}{more}"
