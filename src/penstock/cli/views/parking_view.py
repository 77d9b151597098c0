"""Renders what is parked of a table's indexes and keys, as text and as objects for --json. Pure."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from penstock.cli.terminal.columns import line_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.model.load.shape import ParkingPlan, Part, RepairStep

# If more partitions than this have an equal index of their own, the indexes share one row.
_FEW = 3


def describe_parking(parking: ParkingPlan) -> list[str]:
    """Return a line for each index and key: whether it is parked or kept, and why."""
    lines = [f"indexes  {'dropped and rebuilt after the load' if parking.parked else 'kept'}: {parking.reason}"]
    rows = _rows("drop", parking.parked) + _rows("keep", parking.kept)
    lines += line_up(rows, align="<<<<", indent="  ")
    return lines if parking.gain is None else [*lines, parking.gain]


def _rows(word: str, parts: Sequence[Part]) -> list[tuple[str, str, str, str]]:
    """Return a row for each index and key; many equal indexes of partitions share one row."""
    alike: dict[tuple[bool, str, str], list[Part]] = {}
    for part in parts:
        alike.setdefault((part.is_of_partition, part.what, part.reason), []).append(part)
    rows = []
    for (is_of_partition, what, reason), found in alike.items():
        if is_of_partition and len(found) > _FEW:
            names = f"{found[0].name} and {len(found) - 1} more on partitions"
            rows.append((word, what, names, reason))
        else:
            rows += [(word, what, name_with_attached(part), reason) for part in found]
    return rows


def name_with_attached(part: Part | RepairStep) -> str:
    """Return the name of an index or key, with the number of attached ones on partitions."""
    return f"{part.name}, with {part.attached} on partitions" if part.attached else part.name


def parking_object(parking: ParkingPlan | None) -> dict[str, object] | None:
    """Return what --json prints of a table's parked indexes and keys, None if nothing can be parked."""
    if parking is None:
        return None
    return {
        "reason": parking.reason,
        "parked": [asdict(part) for part in parking.parked],
        "kept": [asdict(part) for part in parking.kept],
        "gain": parking.gain,
    }
