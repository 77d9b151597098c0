"""How a plan shows which indexes and keys are dropped, and which are kept."""

from __future__ import annotations

from penstock.changes.values import IndexOrKey, IndexPlan
from penstock.loading.steps.changes import ChangesPlan, TableChangesPlan
from penstock.loading.views.outcome import describe_steps


def part(name: str, **facts: object) -> IndexOrKey:
    """Return an index."""
    given = {"kind": "index", "what": "index", "relation": "s.t", "reason": "why", **facts}
    return IndexOrKey(name=name, **given)  # type: ignore[arg-type]


def describe(*plans: IndexPlan) -> list[str]:
    """Return the lines of tables a, b and so on."""
    tables = tuple(
        TableChangesPlan(table=name, triggers=(), autovacuum=None, indexes=plan)
        for name, plan in zip("ab", plans, strict=False)
    )
    return [" ".join(line.split()) for line in describe_steps({"changes": ChangesPlan(tables=tables)})]


def test_two_hundred_partitions_are_one_line() -> None:
    """Attached indexes are counted; indexes of partitions are named if there are few."""
    own = tuple(part(f"own_{number}", is_of_partition=True) for number in range(200))
    few = tuple(part(f"few_{number}", is_of_partition=True, what="unique index") for number in range(2))
    assert describe(IndexPlan(reason="it is empty", dropped=(part("key", attached=200), *own), kept=few)) == [
        "indexes dropped and rebuilt after the load: it is empty",
        "drop index key, with 200 on partitions why",
        "drop index own_0 and 199 more on partitions why",
        "keep unique index few_0 why",
        "keep unique index few_1 why",
    ]


def test_the_gain_of_dropping_more_is_the_last_line() -> None:
    """It follows the indexes that are kept."""
    assert describe(IndexPlan(reason="it is empty", kept=(part("key"),), gain="faster"))[-1] == "faster"


def test_several_tables_are_named() -> None:
    """With one table, its name is not repeated."""
    lines = describe(IndexPlan(reason="x"), IndexPlan(reason="y"))
    assert lines == ["indexes of a kept: x", "indexes of b kept: y"]
