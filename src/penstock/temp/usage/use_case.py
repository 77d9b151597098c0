"""Finds in a plan what a statement spills for, and what to try before a faster disk. Pure.

Source: AWS Database Blog, "Introducing Optimized Reads for Amazon RDS for PostgreSQL", which names sorts, hashes,
grouping, CTEs, materialised subqueries, temporary tables, index builds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.model.temp.usage import StatementUse, UseCase
from penstock.temp.replay.plans import MEMORY_FACTOR, walk_nodes
from penstock.units import MIB, format_bytes

if TYPE_CHECKING:
    Plan = dict[str, Any]

# The plan nodes that may use temporary files, with the use case of each.
_NODES = {
    "Sort": "sort",
    "Incremental Sort": "sort",
    "Hash": "hash join",
    "CTE Scan": "CTE",
    "Materialize": "materialise",
    "WindowAgg": "window",
    "Recursive Union": "CTE",
}


def find_use_case(use: StatementUse, plan: Plan) -> UseCase:
    """Return what a statement spills for."""
    names = list(dict.fromkeys(_read_plan(plan)))
    if use.local_written_bytes and "temporary table" not in names:
        names.append("temporary table")
    keys = [str(key) for node in walk_nodes(plan) for key in node.get("Sort Key", ())]
    # No index is suggested if a sort key is an expression, because it may be an aggregate, which no index can provide.
    keys = [] if any("(" in key for key in keys) else keys
    return UseCase(names=tuple(names), remedy=_remedy(use, names, keys))


def _read_plan(plan: Plan) -> Iterator[str]:
    for node in walk_nodes(plan):
        kind = str(node.get("Node Type"))
        if kind == "Aggregate" and node.get("Strategy") in ("Hashed", "Mixed"):
            yield "grouping"
        elif kind == "Unique" or (kind == "Aggregate" and node.get("Strategy") == "Sorted"):
            # The sort below this node spills, and this node groups its rows.
            yield "grouping"
        elif kind in _NODES:
            yield _NODES[kind]


def _remedy(use: StatementUse, names: list[str], keys: list[str]) -> str:
    if names == ["temporary table"]:
        return "temp_buffers for the session, before its first temporary table; or fewer columns in the table"
    each_bytes = use.temp_written_bytes // max(1, use.calls)
    needed_mb = max(1, round(each_bytes * MEMORY_FACTOR / MIB))
    memory = (
        f"SET LOCAL work_mem = '{needed_mb}MB' in its transaction: it spills {format_bytes(each_bytes)} each time, and "
        "every session that runs it takes that memory, each parallel worker too"
    )
    if "sort" in names and keys:
        return f"an index on {', '.join(keys[:3])}, if it is sorted so often; or {memory}"
    if "hash join" in names or "grouping" in names:
        return f"{memory}; or hash_mem_multiplier, for hashes alone"
    return memory
