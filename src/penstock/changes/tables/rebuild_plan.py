"""Decides the order, the number of sessions and the memory for rebuilding indexes. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from penstock.changes.tables.parts import PartId
from penstock.changes.values import Change
from penstock.core.slotted import slotted
from penstock.core.units import GIB, MIB

# The most memory for one index. With more, a build is hardly faster
# (postgresql.org/docs/current/runtime-config-resource.html).
_WANTED_MEMORY_BYTES = GIB
# All rebuilding sessions together take 1/4 of the machine's memory; the server and the page cache need the rest.
_MEMORY_SHARE = 4
_LEAST_MEMORY_BYTES = 64 * MIB

# The least memory for a sort. A sort in little memory stays in the CPU's caches. With 1 GB, the five indexes of
# benchmarks/indexed_load.py take a fifth more CPU time than with 16 MB. On a busy machine, they take two thirds more.
_LEAST_SORT_BYTES = 8 * MIB
# The least memory for each process of a parallel build. PostgreSQL starts a parallel worker only if each process has
# this much (plan_create_index_workers in planner.c).
_LEAST_PARALLEL_SORT_BYTES = 32 * MIB
# The memory that a merge needs for each run that it reads, and how many runs it reads at once (tuplesort.c:
# MERGE_BUFFER_SIZE, TAPE_BUFFER_OVERHEAD, MAXORDER).
_RUN_BUFFER_BYTES = 33 * 8192
_MOST_RUNS = 500

# The least part of a CPU's work for which a worker is started. For less, the worker's start and the merge cost as much
# as the worker gains.
_LEAST_PART_OF_A_WORKER = 0.25

# The cost of a row in an index of each method, relative to btree (benchmarks/rebuild_schedules.py).
_METHOD_COSTS = {"btree": 1.0, "hash": 0.8, "gin": 4.0, "gist": 5.0, "spgist": 4.0, "brin": 0.2}
# The cost of a text relative to a number: comparing texts by a language's collation takes longer.
_TEXT_COST = 2.0
_TEXT_TYPES = ("text", "character varying", "character", "citext", "name")

# The number of CPUs to assume if it is not known, for example because the server runs on another machine.
_UNKNOWN_CPUS = 2


@slotted
class RebuildPlan:
    """How many sessions rebuild indexes at once, and how many CPUs and how much memory they have."""

    sessions: int
    # The CPUs that the sessions share.
    cpus: int
    # The most memory of each session.
    memory_bytes: int


def plan_rebuild(count: int, *, cpu_count: int | None = None, memory_bytes: int | None = None) -> RebuildPlan:
    """Return with how many sessions, CPUs and bytes of memory `count` indexes are rebuilt.

    Each session builds one index at a time. There is one session more than CPUs: while one session waits for its WAL or
    for the disk, the others keep all CPUs busy. `cpu_count` and `memory_bytes` are the server's, None if they are not
    known.
    """
    cpus = cpu_count or _UNKNOWN_CPUS
    sessions = max(1, min(count, cpus + 1))
    memory = _WANTED_MEMORY_BYTES
    if memory_bytes is not None:
        memory = min(memory, max(_LEAST_MEMORY_BYTES, memory_bytes // _MEMORY_SHARE // sessions))
    return RebuildPlan(sessions=sessions, cpus=cpus, memory_bytes=memory)


def choose_workers(plan: RebuildPlan, *, share: float) -> int:
    """Return the number of parallel workers for an index that has this share of the cost of all indexes.

    If an index is more than one CPU's share of the work, one process would still be building it after all others are
    done.

    >>> plan = RebuildPlan(sessions=3, cpus=2, memory_bytes=GIB)
    >>> [choose_workers(plan, share=share) for share in (0.3, 0.6, 0.8, 1.0)]
    [0, 0, 1, 1]
    """
    return max(0, math.ceil(plan.cpus * share - _LEAST_PART_OF_A_WORKER) - 1)


def choose_memory(plan: RebuildPlan, *, method: str, table_bytes: int, workers: int = 0) -> tuple[int, bool]:
    """Return the maintenance_work_mem for an index in bytes, and whether to lower a larger value that a session has.

    To build a btree, the server sorts its rows in runs that fill the memory, and merges the runs. A build is fastest
    with the least memory with which one merge is enough, because so little memory fits best into the CPU's caches.
    Other methods use all memory that they get.
    """
    if method != "btree":
        return plan.memory_bytes, False
    # The sorted entries take less than the table, so it has fewer runs than table_bytes / memory.
    one_merge = max(math.isqrt(table_bytes * _RUN_BUFFER_BYTES), table_bytes // _MOST_RUNS)
    least = _LEAST_PARALLEL_SORT_BYTES * (1 + workers) if workers else _LEAST_SORT_BYTES
    return min(plan.memory_bytes, max(least, one_merge)), True


def order_by_cost(changes: Iterable[Change], sizes: Mapping[int, int] | None = None) -> list[Change]:
    """Return the changes of indexes in order of cost, the most expensive first.

    In another order, one session might still build an expensive index when the others have finished. `sizes` are the
    bytes of the indexes' tables by OID. If it is None, all tables count as equally large.
    """
    return sorted(changes, key=lambda change: (-_cost_of_table(change, sizes), change.number))


def chain_rivals(changes: Iterable[Change]) -> list[list[Change]]:
    """Return the changes of indexes in lists. The indexes of one list must be built one after the other.

    A list has the unique indexes of a table over the same columns, in the order of the OIDs that they had, because a
    foreign key that is added uses the one with the lowest OID. Any other index has a list of its own. Records of older
    versions have no OIDs.
    """
    chains: dict[object, list[Change]] = {}
    for change in changes:
        columns = change.record.get("key_columns")
        rivals = frozenset(columns) if columns and change.record["index"]["is_unique"] else change.name
        chains.setdefault((change.relation_oid, rivals), []).append(change)
    return [sorted(chain, key=lambda change: change.record.get("oid", 0)) for chain in chains.values()]


def cost_share(change: Change, changes: Iterable[Change], sizes: Mapping[int, int]) -> float:
    """Return an index's part of the cost of building all indexes, from 0 to 1. `sizes` are the tables' bytes by OID."""
    return _cost_of_table(change, sizes) / (sum(_cost_of_table(each, sizes) for each in changes) or 1.0)


def _cost_of_table(change: Change, sizes: Mapping[int, int] | None) -> float:
    return estimate_cost(change) * (1 if sizes is None else sizes.get(change.relation_oid, 0))


def order_by_depth(changes: Iterable[Change], parents: Mapping[PartId, PartId | None]) -> list[Change]:
    """Return the changes of indexes so that the indexes of partitions come before the index to which they are attached.

    `parents` has the id of each index's parent by its own id, None if it is attached to none.
    """

    def depth(change: Change) -> int:
        part_id: PartId | None = (change.relation_oid, change.name)
        found = 0
        while part_id is not None and found <= len(parents):
            part_id, found = parents.get(part_id), found + 1
        return found

    return sorted(changes, key=lambda change: -depth(change))


def estimate_cost(change: Change) -> float:
    """Return an estimate of what building an index costs for each row of its table.

    It has no unit, and is only for comparison with other indexes. It is the bytes of an index tuple, times a factor for
    the access method. It is higher if a column is text, and lower if the index is partial.
    """
    cost = _METHOD_COSTS.get(change.record.get("method", "btree"), 2.0)
    # Add 16 bytes for the header and the line pointer of an index tuple.
    cost *= 16 + int(change.record.get("width_bytes", 8))
    types = change.record.get("columns", {}).values()
    if any(type_name.startswith(_TEXT_TYPES) for type_name in types):
        cost *= _TEXT_COST
    # A partial index has fewer rows than its table. Their number is unknown, so assume half of the rows.
    return cost * 0.5 if " WHERE " in str(change.record.get("index", {}).get("body", "")) else cost
