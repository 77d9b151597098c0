"""Of which keys and foreign keys the records that break them can still be found after the load, and why not. Pure.

With --on-error reject these alone are parked (docs/decisions/0010).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.server.shape.hindrances import Hindrance
    from penstock.server.shape.parts import ForeignKey, Place, TableParts


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedTable:
    """A table that the load fills. `is_fresh`: it has no rows, or will have none when the load begins."""

    parts: TableParts
    is_fresh: bool
    hindrances: Sequence[Hindrance] = field(default_factory=tuple)


def explain_unfindable(tables: Sequence[LoadedTable], *, reason: str | None) -> dict[Place, str]:
    """Return why records that break keys and foreign keys could not be found, for those of which they could not.

    `reason` is what keeps all of the load's from it. Rows can be taken out of a table only if nothing that stands
    refers to them: a table of the load whose foreign keys stay keeps what it refers to.
    """
    oids = {table.parts.table.oid for table in tables}
    why: dict[int, str] = {}
    found: dict[Place, str] = {}
    for table in tables:
        oid = table.parts.table.oid
        whole = reason or _explain_table(table, oids)
        if whole is None and oid in _find_reached(oid, tables):
            whole = "tables of the load refer to each other in a circle"
        if whole is not None:
            why[oid] = whole
        found.update({(oid, each.name): each.reason for each in table.hindrances if each.name is not None})
    is_growing = True
    while is_growing:
        news = {
            key.references_oid: f'foreign key "{key.name}" of {key.relation} refers to it, and stays'
            for key in _references_within(tables)
            if key.references_oid not in why and (key.relation_oid in why or _stays(key, found))
        }
        why |= news
        is_growing = bool(news)
    for table in tables:
        oid = table.parts.table.oid
        if oid in why:
            places = [part.place for part in table.parts.all_indexes if part.refuses_rows]
            places += [key.place for key in table.parts.all_foreign_keys if key.relation_oid in table.parts.tables]
            found |= dict.fromkeys(places, why[oid])
    return found


def _explain_table(table: LoadedTable, oids: set[int]) -> str | None:
    hindrances = (each.reason for each in table.hindrances if each.name is None and each.because_of_oid not in oids)
    if table.parts.table.kind != "r":
        return "the table has partitions"
    if table.parts.table.is_published:
        return "subscribers would be sent rows that are taken out again"
    if not table.is_fresh:
        return "the table has rows, and one of them must not be taken for one of the load's"
    return next(hindrances, None)


def _stays(key: ForeignKey, found: Mapping[Place, str]) -> bool:
    is_put_back = key.is_owner and key.may_refer and key.is_enforced
    return not is_put_back or key.is_kept_whole or key.has_altered_triggers or key.place in found


def _references_within(tables: Sequence[LoadedTable]) -> Iterator[ForeignKey]:
    """Yield the foreign keys of tables of the load to others of them."""
    oids = {table.parts.table.oid for table in tables}
    for table in tables:
        for key in table.parts.foreign_keys:
            is_own = key.relation_oid == table.parts.table.oid
            if is_own and key.references_oid in oids and not key.is_self_reference:
                yield key


def _find_reached(oid: int, tables: Sequence[LoadedTable]) -> set[int]:
    """Return the tables to which a table's foreign keys lead, by others of the load."""
    edges = [(key.relation_oid, key.references_oid) for key in _references_within(tables)]
    reached: set[int] = set()
    news = {oid}
    while news := {end for start, end in edges if start in news} - reached:
        reached |= news
    return reached
