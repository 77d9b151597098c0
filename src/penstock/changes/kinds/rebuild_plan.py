"""In which order, by how many sessions and with how much memory indexes are rebuilt. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.units import GIB, MIB

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.model.load.shape import Change
    from penstock.server.changes.parts import Place

# One sort uses this well; more gains little (postgresql.org/docs/current/runtime-config-resource.html).
_WANTED_MEMORY_BYTES = GIB
# Of a machine's memory, what all rebuilding sessions may take together: the rest is the server's and the cache.
_MEMORY_SHARE = 4
_LEAST_MEMORY_BYTES = 64 * MIB

# What a row costs in an index of another kind, a btree's row being 1 (benchmarks/rebuild_schedules.py).
_METHOD_COSTS = {"btree": 1.0, "hash": 0.8, "gin": 4.0, "gist": 5.0, "spgist": 4.0, "brin": 0.2}
# Comparing texts by a collation of a language takes longer than comparing numbers.
_TEXT_COST = 2.0
_TEXT_TYPES = ("text", "character varying", "character", "citext", "name")

# Where the server's CPUs cannot be seen, and for a repair, of which nobody waits for the last second.
_UNKNOWN_CPUS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildPlan:
    """How many sessions rebuild at once; for each, how many parallel workers and how much maintenance_work_mem."""

    sessions: int
    workers: int
    memory_bytes: int


def plan_rebuild(count: int, *, cpu_count: int | None = None, memory_bytes: int | None = None) -> RebuildPlan:
    """Return how `count` indexes are rebuilt.

    A session for each CPU, each with one index at a time: parallel workers pay where there are fewer indexes than CPUs.
    `cpu_count` and `memory_bytes` are the server's, None where they are not known.
    """
    cpus = cpu_count or _UNKNOWN_CPUS
    sessions = max(1, min(count, cpus))
    memory = _WANTED_MEMORY_BYTES
    if memory_bytes is not None:
        memory = min(memory, max(_LEAST_MEMORY_BYTES, memory_bytes // _MEMORY_SHARE // sessions))
    return RebuildPlan(sessions=sessions, workers=max(0, cpus // sessions - 1), memory_bytes=memory)


def order_by_cost(changes: Iterable[Change], sizes: Mapping[int, int] | None = None) -> list[Change]:
    """Return indexes with the one that takes longest first, so that no session ends with a long one alone.

    `sizes` are those of the tables at which they are, by oid; without them all are at tables of one size.
    """

    def cost(change: Change) -> float:
        return estimate_cost(change) * (1 if sizes is None else sizes.get(change.relation_oid, 0))

    return sorted(changes, key=lambda change: (-cost(change), change.number))


def order_by_depth(changes: Iterable[Change], parents: Mapping[Place, Place | None]) -> list[Change]:
    """Return what is attached to others before these; `parents` are the places of those, by its own place."""

    def depth(change: Change) -> int:
        place: Place | None = (change.relation_oid, change.name)
        found = 0
        while place is not None and found <= len(parents):
            place, found = parents.get(place), found + 1
        return found

    return sorted(changes, key=lambda change: -depth(change))


def estimate_cost(change: Change) -> float:
    """Return what an index costs to make for each row, as compared with others."""
    cost = _METHOD_COSTS.get(change.record.get("method", "btree"), 2.0)
    # The row's own header and pointer, as an index tuple has them.
    cost *= 16 + int(change.record.get("width_bytes", 8))
    types = change.record.get("columns", {}).values()
    if any(type_name.startswith(_TEXT_TYPES) for type_name in types):
        cost *= _TEXT_COST
    # A condition leaves out rows, nobody knows how many.
    return cost * 0.5 if " WHERE " in str(change.record.get("index", {}).get("body", "")) else cost
