"""How indexes are made again: how many at once, and what disk that takes."""

from __future__ import annotations

from penstock.changes.tables.rebuild_plan import RebuildPlan, choose_memory, choose_workers, plan_rebuild
from penstock.core.units import GIB, MIB


def test_sessions_share_a_quarter_of_the_memory() -> None:
    """And none has more than a sort uses well."""
    assert plan_rebuild(5, cpu_count=4, memory_bytes=8 * GIB).memory_bytes == 8 * GIB // 4 // 5
    assert plan_rebuild(5, cpu_count=4, memory_bytes=256 * GIB).memory_bytes == GIB


def test_a_sort_has_the_least_memory_with_which_one_merge_is_enough() -> None:
    """More is slower, since the sort leaves the CPU's caches; less would write and read everything twice."""
    plan = RebuildPlan(sessions=2, cpus=2, memory_bytes=GIB)
    found = {size: choose_memory(plan, method="btree", table_bytes=size) for size in (0, 10 * GIB, 1024 * GIB)}
    assert found[0] == (8 * MIB, True)
    assert found[10 * GIB][0] < 64 * MIB
    assert found[1024 * GIB] == (GIB, True)
    for size, (memory_bytes, _) in found.items():
        merged_at_once = min(500, memory_bytes // (33 * 8192))
        assert size == 1024 * GIB or size <= (merged_at_once + 1) * memory_bytes


def test_parallel_sorts_have_enough_memory_for_the_server_to_start_workers() -> None:
    """It starts none with less than 32 MB for each process."""
    plan = RebuildPlan(sessions=1, cpus=4, memory_bytes=GIB)
    assert choose_memory(plan, method="btree", table_bytes=MIB, workers=3) == (4 * 32 * MIB, True)


def test_an_index_that_would_be_built_alone_at_the_end_has_workers() -> None:
    """It is more than one CPU's part of the work; with indexes of equal cost, CPUs that are left over are shared."""
    plan = RebuildPlan(sessions=2, cpus=2, memory_bytes=GIB)
    assert [choose_workers(plan, share=share) for share in (0.9, 0.1)] == [1, 0]
    many = RebuildPlan(sessions=5, cpus=16, memory_bytes=GIB)
    assert 5 * (1 + choose_workers(many, share=0.2)) <= 16
    assert choose_workers(many, share=0.2) > 0


def test_an_index_that_is_not_sorted_has_all_the_memory() -> None:
    """GIN and GiST collect entries in it, and a larger setting of the server stays."""
    plan = RebuildPlan(sessions=2, cpus=2, memory_bytes=GIB)
    assert choose_memory(plan, method="gin", table_bytes=MIB) == (GIB, False)
