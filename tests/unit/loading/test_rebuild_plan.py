"""How indexes are made again: how many at once, and what disk that takes."""

from __future__ import annotations

import doctest

from penstock.changes.kinds import rebuild_plan
from penstock.changes.kinds.rebuild_plan import plan_rebuild
from penstock.units import GIB


def test_sessions_share_a_quarter_of_the_memory() -> None:
    """And none has more than a sort uses well."""
    assert plan_rebuild(5, cpu_count=4, memory_bytes=8 * GIB).memory_bytes == GIB // 2
    assert plan_rebuild(5, cpu_count=4, memory_bytes=256 * GIB).memory_bytes == GIB


def test_examples_hold() -> None:
    """What a docstring shows is what happens."""
    assert doctest.testmod(rebuild_plan).failed == 0
