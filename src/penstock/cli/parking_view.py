"""What is parked of a table and what was rebuilt, as text and as objects for --json. Pure."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from penstock.cli.columns import line_up
from penstock.units import format_duration

if TYPE_CHECKING:
    from penstock.model.outcome import LoadOutcome
    from penstock.model.shape import ParkingPlan, Part


def describe_parking(parking: ParkingPlan) -> list[str]:
    """Return what is parked and what stays, a line for each index and key, with why."""
    lines = [f"indexes  {'parked while loading' if parking.parked else 'kept'}: {parking.reason}"]
    rows = [("park", part.what, part.name, part.reason) for part in parking.parked]
    rows += [("keep", part.what, part.name, part.reason) for part in parking.kept]
    return lines + line_up(rows, align="<<<<", indent="  ")


def parking_object(parking: ParkingPlan | None) -> dict[str, object] | None:
    """Return what --json prints of it, None where there is nothing to park."""
    if parking is None:
        return None
    return {
        "reason": parking.reason,
        "parked": [_part_object(part) for part in parking.parked],
        "kept": [_part_object(part) for part in parking.kept],
    }


def describe_rebuilt(outcome: LoadOutcome) -> list[str]:
    """Return what was rebuilt after a load, with its seconds; nothing where nothing was."""
    if not outcome.rebuilt:
        return []
    count = len(outcome.rebuilt)
    what = "1 index or key" if count == 1 else f"{count} indexes and keys"
    lines = [f"rebuilt {what} in {format_duration(outcome.rebuild_seconds)}, which is part of that time"]
    rows = [(each.table, each.name, format_duration(each.seconds)) for each in outcome.rebuilt]
    return lines + line_up(rows, align="<<>", indent="  ")


def _part_object(part: Part) -> dict[str, object]:
    return asdict(part)
