"""How indexes are made again: how many at once, and what disk that takes."""

from __future__ import annotations

import doctest

import pytest

from penstock.loading import rebuild_plan
from penstock.loading.rebuild_plan import peak_beyond, plan_rebuild
from penstock.units import GIB


@pytest.mark.parametrize(
    ("steps", "sessions", "beyond"),
    [
        ([], 1, 0),
        ([(10, 0), (5, 0)], 2, 0),
        # The last sort stands beside all that is there already.
        ([(10, 8), (10, 8), (10, 8)], 1, 8),
        ([(10, 8), (10, 8), (10, 8)], 2, 16),
        # The first is over before much stands.
        ([(10, 8), (5, 0), (5, 0)], 1, 0),
        # A disk of their own.
        ([(0, 8), (0, 7), (0, 1)], 2, 15),
    ],
)
def test_peak_is_what_sorts_take_beside_what_stands(
    steps: list[tuple[float, float]], sessions: int, beyond: float
) -> None:
    """The largest comes first."""
    assert peak_beyond(steps, sessions=sessions) == beyond


def test_sessions_share_a_quarter_of_the_memory() -> None:
    """And none has more than a sort uses well."""
    assert plan_rebuild(5, cpu_count=4, memory_bytes=8 * GIB).memory_bytes == GIB // 2
    assert plan_rebuild(5, cpu_count=4, memory_bytes=256 * GIB).memory_bytes == GIB


def test_examples_hold() -> None:
    """What a docstring shows is what happens."""
    assert doctest.testmod(rebuild_plan).failed == 0
