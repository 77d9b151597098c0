"""What follows a load is decided without a server: what is vacuumed, and whether a checkpoint is written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.core.units import GIB, MB
from penstock.loading.plan.notices import decide_checkpoint, decide_vacuum
from penstock.loading.values.plan import CheckpointDecision, Relation, VacuumPlan

# A mebibyte in pages.
MIB_PAGES = 128

TABLE = Relation(
    root_oid=1,
    oid=1,
    schema="public",
    name="t",
    kind="r",
    pages=100,
    known_pages=0,
    written=10,
    changes=10,
    may_vacuum=True,
)
PARENT = replace(TABLE, kind="p", pages=0)
LEAVES = [replace(TABLE, oid=oid, name=f"p{oid}") for oid in (2, 3, 4)]


def decide(*relations: Relation, stored_bytes: float = 100 * MB, major: int = 18, **more: object) -> VacuumPlan:
    """Decide for a load that filled table 1."""
    words: dict[str, object] = {"before": {}} | more
    return decide_vacuum(relations, [1], stored_bytes=stored_bytes, major=major, **words)  # type: ignore[arg-type]


def commands(plan: VacuumPlan) -> list[str]:
    """Return the commands in short: V, A, VA, and the table's name."""
    return [f"{'V' * step.vacuums}{'A' * step.analyzes} {step.relation.name}" for step in plan.steps]


def test_partition_that_is_as_it_was_is_left_alone() -> None:
    """The partition's size and the count of its rows show this."""
    before = {leaf.oid: leaf for leaf in (LEAVES[0], replace(LEAVES[1], pages=99), replace(LEAVES[2], written=9))}
    assert commands(decide(PARENT, *LEAVES, before=before)) == ["VA p3", "VA p4", "A t"]


def test_partitions_of_a_load_that_was_taken_up_again_are_told_by_what_vacuum_last_saw() -> None:
    """Which of them an earlier run filled nobody has noted."""
    quiet = replace(LEAVES[0], known_pages=100, changes=0)
    grown = replace(LEAVES[1], known_pages=99, changes=0)
    assert commands(decide(PARENT, quiet, grown)) == ["VA p3", "A t"]


def test_parent_is_analyzed_with_its_partitions_before_postgresql_18() -> None:
    """ANALYZE of it includes them, so that they are not analyzed twice."""
    assert commands(decide(PARENT, *LEAVES, major=17)) == ["V p2", "V p3", "V p4", "A t"]
    assert decide(PARENT, *LEAVES, major=18).steps[-1].is_only


def test_parent_with_a_partition_of_others_is_not_analyzed_before_postgresql_18() -> None:
    """The server would skip that one with a warning; the others are analyzed one by one."""
    plan = decide(PARENT, LEAVES[0], replace(LEAVES[1], may_vacuum=False), major=17)
    assert commands(plan) == ["VA p2"]
    assert len(plan.left_out) == 1


@pytest.mark.parametrize(("stored_bytes", "expected"), [(19 * MB, ["A t"]), (22 * MB, ["VA t"])])
def test_table_of_more_than_ten_times_what_was_loaded_is_only_analyzed(
    stored_bytes: float, expected: list[str]
) -> None:
    """One of 200 MiB; autovacuum does the rest when it is due."""
    table = replace(TABLE, pages=200 * MIB_PAGES)
    assert commands(decide(table, stored_bytes=stored_bytes)) == expected


def test_small_table_is_vacuumed_however_little_was_loaded() -> None:
    """Below 64 MiB nobody notices."""
    assert commands(decide(replace(TABLE, pages=63 * MIB_PAGES), stored_bytes=1)) == ["VA t"]


def test_partitions_count_together() -> None:
    """A thousand of them are as one table of their size."""
    leaves = [replace(leaf, pages=40 * MIB_PAGES) for leaf in LEAVES]
    assert commands(decide(PARENT, *leaves, stored_bytes=1 * MB)) == ["A p2", "A p3", "A p4", "A t"]


def test_table_without_new_rows_is_left_alone() -> None:
    """One of several targets got none."""
    assert commands(decide(replace(TABLE, root_oid=7, oid=7))) == []


def checkpoint(**words: object) -> CheckpointDecision:
    """Decide where nothing stands in the way."""
    usual = {"asked": None, "stored_bytes": 5 * GIB, "is_leased": True, "is_aurora": False, "may_checkpoint": True}
    return decide_checkpoint(**(usual | words))  # type: ignore[arg-type]


def test_checkpoint_follows_a_large_load_for_which_settings_were_changed() -> None:
    """And a smaller one, or one under the server's own settings, only where it is asked for."""
    assert checkpoint().is_due
    assert not checkpoint(is_leased=False).is_due
    assert not checkpoint(stored_bytes=GIB - 1).is_due
    assert checkpoint(stored_bytes=0, is_leased=False, asked=True).is_due
    assert not checkpoint(asked=False).is_due


def test_aurora_gets_no_checkpoint() -> None:
    """It gets none even if one is requested, and that is reported."""
    for asked in (None, True):
        decision = checkpoint(is_aurora=True, asked=asked)
        assert (decision.is_due, decision.is_refused) == (False, True)
    assert not checkpoint(is_aurora=True, asked=None, is_leased=False).is_refused


def test_missing_right_is_told_and_tried_where_it_is_asked_for() -> None:
    """Managed services have their own rules, which no catalogue shows."""
    assert checkpoint(may_checkpoint=False).is_refused
    assert checkpoint(may_checkpoint=False, asked=True).is_due


@pytest.mark.parametrize(
    ("more", "freezes"),
    [
        ({}, False),
        ({"before": {1: replace(TABLE, pages=0)}}, True),
        ({"before": {1: replace(TABLE, pages=1)}}, False),
        ({"emptied": {1}}, True),
    ],
)
def test_only_a_table_that_the_load_alone_has_filled_is_frozen(more: dict[str, object], freezes: bool) -> None:
    """VACUUM (FREEZE) of others would write the pages again that were there before."""
    (step,) = decide(TABLE, **more).steps
    assert step.freezes is freezes
