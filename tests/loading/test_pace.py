"""How many sessions: the start, the climb, the step taken back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.loading.pace import Pace, limit_sessions, next_pace, plan_sessions


@pytest.mark.parametrize(
    ("asked", "cpus", "free", "initial", "maximum"),
    [
        (None, 2, 100, 2, 4),
        (None, 8, 100, 7, 16),
        (None, 8, 3, 3, 3),
        (None, None, 100, 4, 64),
        (None, 2, 1, 1, 1),
        (5, 2, 100, 5, 5),
        (5, 2, 3, 3, 3),
    ],
)
def test_start_and_range_follow_cpus_and_connections(
    asked: int | None, cpus: int | None, free: int, initial: int, maximum: int
) -> None:
    """The server's CPUs less one, at least 2, capped by free connections; what was asked is not adapted."""
    plan = plan_sessions(asked=asked, cpu_count=cpus, free_connections=free)
    assert (plan.initial, plan.maximum) == (initial, maximum)
    assert plan.is_adaptive == (asked is None and maximum > 1)
    assert plan.reason


@pytest.mark.parametrize(
    ("size_bytes", "initial"), [(None, 7), (0, 1), (1, 1), (2_000_000, 2), (7 * 2**20, 7), (10**12, 7)]
)
def test_little_to_read_needs_few_sessions(size_bytes: int | None, initial: int) -> None:
    """A load could end before another session has connected; where it lasts after all, more are added."""
    plan = plan_sessions(asked=None, cpu_count=8, free_connections=100, size_bytes=size_bytes)
    assert (plan.initial, plan.maximum, plan.is_adaptive) == (initial, 16, True)


def _climb(rates: dict[int, float], *, cpu_count: int = 8, steps: int = 100) -> list[int]:
    """Return the session counts a load goes through where each count has that rate."""
    plan = plan_sessions(asked=None, cpu_count=cpu_count, free_connections=100)
    pace = Pace(sessions=plan.initial)
    counts = [pace.sessions]
    for _ in range(steps):
        pace = next_pace(pace, rate=rates.get(pace.sessions, 100.0), plan=plan)
        counts.append(pace.sessions)
    return counts


def test_sessions_are_added_while_that_pays() -> None:
    """Up to the maximum, and there it stays."""
    counts = _climb({count: 100.0 * count for count in range(1, 17)})
    assert counts[:10] == list(range(7, 17))
    assert set(counts[10:]) == {16}


def test_step_that_did_not_pay_is_taken_back() -> None:
    """9 sessions are worth it, 10 are not."""
    counts = _climb({7: 100.0, 8: 120.0, 9: 140.0, 10: 141.0})
    assert counts[:5] == [7, 8, 9, 10, 9]
    assert set(counts[4:]) == {9}


def test_fewer_sessions_are_tried_where_more_did_not_pay() -> None:
    """And kept as long as nothing is lost by it."""
    counts = _climb({8: 100.0, 7: 100.0, 6: 101.0, 5: 99.0})
    assert counts[:5] == [7, 8, 6, 5, 6]
    assert set(counts[4:]) == {6}


@given(rates=st.lists(st.floats(0, 1e9), max_size=50), cpus=st.integers(1, 64), free=st.integers(1, 200))
def test_sessions_never_leave_their_range(rates: list[float], cpus: int, free: int) -> None:
    """Whatever is measured."""
    plan = plan_sessions(asked=None, cpu_count=cpus, free_connections=free)
    pace = Pace(sessions=plan.initial)
    for rate in rates:
        pace = next_pace(pace, rate=rate, plan=plan)
        assert min(2, plan.maximum) <= pace.sessions <= plan.maximum


@pytest.mark.parametrize(("members", "initial", "maximum"), [(1, 7, 16), (3, 7, 9), (10, 2, 2), (40, 1, 1)])
def test_hosts_of_one_load_share_the_free_connections(members: int, initial: int, maximum: int) -> None:
    """One connection of each claims objects, and each has at least one session."""
    plan = plan_sessions(asked=None, cpu_count=8, free_connections=30)
    limited = limit_sessions(plan, connections=30, members=members)
    assert (limited.initial, limited.maximum) == (initial, maximum)
    assert members * (limited.maximum + 1) <= max(30, 2 * members)
