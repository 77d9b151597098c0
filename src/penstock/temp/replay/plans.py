"""Finds spills in a plan of EXPLAIN (ANALYZE, BUFFERS). Pure.

Source: src/backend/commands/explain.c: "Sort Space Type", "Hash Batches", "Disk Usage" and the blocks of temporary
files. The blocks of a node include those of all nodes below it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.model.temp.replay import Spill
from penstock.units import KIB, MIB

if TYPE_CHECKING:
    Plan = dict[str, Any]

# On disk, a sorted row lacks the tuple header and the pointer that it has in memory. So it takes about half as much.
MEMORY_FACTOR = 2.5
_LEAST_NEEDED = MIB


def find_spills(plan: Plan, *, block_bytes: int) -> tuple[Spill, ...]:
    """Return the plan nodes that wrote or read temporary files themselves, the largest first."""
    found = [_describe(node, block_bytes) for node in walk_nodes(plan)]
    return tuple(
        sorted(
            (spill for spill in found if spill.written_bytes or spill.read_bytes), key=lambda each: -each.written_bytes
        )
    )


def sum_field(plan: Plan, field: str) -> int:
    """Return a field's sum over all nodes."""
    return sum(int(node.get(field, 0)) for node in walk_nodes(plan))


def walk_nodes(plan: Plan) -> Iterator[Plan]:
    """Yield a plan's nodes, each before those below it."""
    yield plan
    for below in plan.get("Plans", ()):
        yield from walk_nodes(below)


def _describe(node: Plan, block_bytes: int) -> Spill:
    written, read = (_own(node, field) * block_bytes for field in ("Temp Written Blocks", "Temp Read Blocks"))
    disk_bytes = max(written, _disk_bytes(node))
    needed = max(_LEAST_NEEDED, round(disk_bytes * MEMORY_FACTOR))
    return Spill(node=_name(node), how=_how(node), written_bytes=written, read_bytes=read, needed_bytes=needed)


def _own(node: Plan, field: str) -> int:
    below = sum(
        int(each.get(field, 0)) for each in node.get("Plans", ()) if each.get("Parent Relationship") != "InitPlan"
    )
    return max(0, int(node.get(field, 0)) - below)


def _disk_bytes(node: Plan) -> int:
    sort = int(node.get("Sort Space Used", 0)) if node.get("Sort Space Type") == "Disk" else 0
    return KIB * max(sort, int(node.get("Disk Usage", 0)))


def _name(node: Plan) -> str:
    kind = str(node.get("Node Type", "?"))
    strategy = node.get("Strategy")
    if kind == "Aggregate" and strategy in ("Hashed", "Mixed"):
        kind = "HashAggregate"
    if name := node.get("CTE Name") or node.get("Relation Name"):
        kind = f"{kind} on {name}"
    return kind


def _how(node: Plan) -> str | None:
    if node.get("Sort Space Type") == "Disk":
        return str(node.get("Sort Method", "external sort"))
    if int(node.get("Hash Batches", 1)) > 1:
        return f"{node['Hash Batches']} batches"
    if int(node.get("HashAgg Batches", 1)) > 1:
        return f"{node['HashAgg Batches']} batches"
    return None
