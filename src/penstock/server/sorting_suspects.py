"""Which rows a table is as good as certain to refuse, looked for in queries instead of by trying each.

They are only put off: the table itself is asked for each of them at last, so a wrong guess costs some time and nothing
else. What cannot be looked for (constraints that see more than the columns that were copied, indexes on a part of the
rows) is left out, and its rows are found as they are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final

from psycopg import sql

from penstock.server.queries import fetch_many
from penstock.server.sorting_statements import FIND_TAKEN, FIND_UNCHECKED, STORED, TWINS

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from penstock.server.connection import Connection

# A row that fails costs some 60 us twice. To look for rows that have their key from one before them takes 0.3 us of
# each row, and to look for keys in the table about 1 us: each is worth it at a failure in so many rows.
_TWINS_WORTH: Final = 200
_STORED_WORTH: Final = 75


@dataclass(frozen=True, slots=True, kw_only=True)
class SortingCheck:
    """The row of sorting_checks.sql."""

    expression: str
    columns: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SortingKeyColumn:
    """The row of sorting_keys.sql."""

    index: int
    name: str
    operator: str
    collation: str | None


Key = tuple[SortingKeyColumn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """What a table's rows can be suspected of: expressions that must not be false, and keys that must be new."""

    checks: tuple[SortingCheck, ...] = ()
    keys: tuple[Key, ...] = ()
    is_partitioned: bool = False


def read_suspicion(connection: Connection, oid: int, *, is_partitioned: bool) -> Suspicion:
    """Return what can be looked for of a table."""
    checks, columns = fetch_many(
        connection, (("sorting_checks", SortingCheck), ("sorting_keys", SortingKeyColumn)), oid=oid
    )
    keys = tuple(tuple(key) for _, key in groupby(columns, lambda column: column.index))
    return Suspicion(checks=tuple(checks), keys=keys, is_partitioned=is_partitioned)


def compose_unchecked(suspicion: Suspicion, columns: Collection[str], *, stage: sql.Composable) -> sql.Composable:
    """Return the statement that finds rows of the stage, which has those columns, that break a constraint."""
    is_unchecked = _are_broken([check for check in suspicion.checks if set(check.columns) <= set(columns)])
    return (
        sql.SQL("") if is_unchecked is None else sql.SQL(FIND_UNCHECKED).format(stage=stage, is_unchecked=is_unchecked)
    )


def _are_broken(checks: Sequence[SortingCheck]) -> sql.Composable | None:
    if not checks:
        return None
    conditions = [sql.SQL("({}) IS FALSE").format(sql.SQL(check.expression)) for check in checks]
    return sql.SQL(" OR ").join(conditions)


def compose_taken(
    suspicion: Suspicion, columns: Collection[str], *, stage: sql.Composable, target: sql.Composable
) -> sql.Composable:
    """Return the branch that finds rows of the stage whose keys are taken, by others of it or in the table."""
    keys = [key for key in suspicion.keys if {column.name for column in key} <= set(columns)]
    if not keys:
        return sql.SQL("")
    only = sql.SQL("" if suspicion.is_partitioned else "ONLY")
    twins = [sql.SQL(TWINS).format(stage=stage, names=_names(key), is_same=_are_same(key)) for key in keys]
    stored = [
        sql.SQL(STORED).format(stage=stage, only=only, target=target, is_same=_are_same(key, is_stored=True))
        for key in keys
    ]
    return sql.SQL(FIND_TAKEN).format(
        twins=sql.SQL("").join(twins),
        stored=sql.SQL("").join(stored),
        twins_worth=sql.Literal(_TWINS_WORTH),
        stored_worth=sql.Literal(_STORED_WORTH),
    )


def _names(key: Sequence[SortingKeyColumn]) -> sql.Composed:
    return sql.SQL(", ").join(sql.Identifier("s", column.name) for column in key)


def _are_same(key: Sequence[SortingKeyColumn], *, is_stored: bool = False) -> sql.Composed:
    """Return the condition that t and s have the same key; an index is used where the collation is its own."""
    return sql.SQL(" AND ").join(
        sql.SQL("{} {} {}{}").format(
            sql.Identifier("t", column.name),
            sql.SQL(column.operator),
            sql.Identifier("s", column.name),
            sql.SQL((column.collation if is_stored else None) or ""),
        )
        for column in key
    )
