"""How what is parked is shown."""

from __future__ import annotations

from penstock.cli.views.parking_view import describe_parking, parking_object
from penstock.model.load.shape import ParkingPlan, Part


def part(name: str, **facts: object) -> Part:
    """Return an index."""
    given = {"kind": "index", "what": "index", "relation": "s.t", "reason": "why", **facts}
    return Part(name=name, **given)  # type: ignore[arg-type]


def test_two_hundred_partitions_are_one_line() -> None:
    """Those that are attached are counted; those of their own are named where they are few."""
    own = tuple(part(f"own_{number}", is_of_partition=True) for number in range(200))
    few = tuple(part(f"few_{number}", is_of_partition=True, what="unique index") for number in range(2))
    lines = describe_parking(ParkingPlan(reason="it is empty", parked=(part("key", attached=200), *own), kept=few))
    assert [" ".join(line.split()) for line in lines[1:]] == [
        "drop index key, with 200 on partitions why",
        "drop index own_0 and 199 more on partitions why",
        "keep unique index few_0 why",
        "keep unique index few_1 why",
    ]


def test_what_parking_more_would_gain_is_the_last_line() -> None:
    """Behind what stays; and for programs."""
    plan = ParkingPlan(reason="it is empty", kept=(part("key"),), gain="it would be faster")
    assert describe_parking(plan)[-1] == "it would be faster"
    assert (parking_object(plan) or {})["gain"] == "it would be faster"
