"""Decides the type of each column from what all its values allow. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.loading.plan.changes import null_option
from penstock.model.source.dialect import Dialect, Notice
from penstock.model.source.types import (
    ALL_TYPES,
    NULL_WORDS,
    TYPES,
    UNCLEAR_DATE,
    ColumnFindings,
    Position,
    TypedColumn,
    Witness,
)

_COLUMNS_SHOWN = 3


def usable_types(*, server_encoding: str) -> int:
    """Return the types that may be chosen, as bits: jsonb only if the database can have every escaped character."""
    return ALL_TYPES if server_encoding == "UTF8" else ALL_TYPES & ~(1 << TYPES.index("jsonb"))


def choose_type(name: str, found: ColumnFindings | None) -> TypedColumn:
    """Return a column with the first type that takes all its values, or text.

    The value that decided is the one at which the last of the types before it was lost.
    """
    if found is None or found.first is None:
        return TypedColumn(name=name, type_name="text", decided_by=None)
    chosen = next((number for number in range(len(TYPES)) if found.fits & 1 << number), len(TYPES))
    lost = [found.lost[1 << number] for number in range(chosen) if 1 << number in found.lost]
    decided: tuple[Position, Witness] = max(lost, key=lambda seen: seen[0], default=found.first)
    return TypedColumn(
        name=name,
        type_name=TYPES[chosen] if chosen < len(TYPES) else "text",
        decided_by=decided[1],
        is_unclear_date=chosen == len(TYPES) and bool(found.fits & UNCLEAR_DATE),
    )


def unclear_notices(table: str, typed: Sequence[TypedColumn]) -> tuple[Notice, ...]:
    """Return a warning for each column of dates that stay text because their day and month are not clear."""
    return tuple(
        Notice(
            code="unclear-date",
            message=f'column "{column.name}" of table "{table}" stays text: its dates may begin with day or month',
            uri=column.decided_by.uri,
            line=column.decided_by.line,
            hint="Create the table with a date column, and set datestyle: PGOPTIONS='-c datestyle=ISO,DMY', or MDY.",
        )
        for column in typed
        if column.is_unclear_date and column.decided_by is not None
    )


def null_notices(table: str, typed: Sequence[TypedColumn], dialect: Dialect) -> tuple[Notice, ...]:
    """Return a warning for each word that other programs write for null, and which made columns text.

    JSON Lines have a null of their own.
    """
    if dialect.format == "jsonl":
        return ()
    found: dict[str, list[tuple[str, Witness]]] = {}
    for column in typed:
        seen = column.decided_by
        if column.type_name == "text" and seen is not None and seen.value in NULL_WORDS and seen.value:
            found.setdefault(seen.value, []).append((column.name, seen))
    return tuple(
        Notice(
            code="literal-null",
            message=f'{word} is text in this dialect, and so {_list_columns(columns)} of table "{table}"',
            uri=columns[0][1].uri,
            line=columns[0][1].line,
            hint=f"Use {null_option(word, columns[0][0], dialect)}.",
        )
        for word, columns in found.items()
    )


def _list_columns(columns: Sequence[tuple[str, Witness]]) -> str:
    names = [f'"{name}"' for name, _ in columns[:_COLUMNS_SHOWN]]
    more = f" and {len(columns) - len(names)} more" if len(columns) > len(names) else ""
    return f"is column {names[0]}" if len(columns) == 1 else f"are columns {', '.join(names)}{more}"
