"""The tree of sessions that wait for locks."""

from __future__ import annotations

from dataclasses import replace

from penstock.watch.waits import find_blocking
from support import made_samples


def waiting(pid: int, *blockers: int, seconds: float = 1.0):
    """Return a session that waits for others."""
    return replace(made_samples.session(), pid=pid, blocked_by=blockers, query_s=seconds)


def test_each_session_is_below_its_first_blocker() -> None:
    """1 blocks 2 and 4, and 2 blocks 3; the session that waits longest comes first."""
    sample = made_samples.sample(
        0.0, waiting(1), waiting(2, 1, seconds=5), waiting(3, 2), waiting(4, 1, 2, seconds=9), waiting(5)
    )
    assert [(each.depth, each.pid) for each in find_blocking(sample)] == [(0, 1), (1, 4), (1, 2), (2, 3)]


def test_blockers_that_no_sample_shows_are_heads() -> None:
    """A prepared transaction has pid 0 and no session."""
    found = find_blocking(made_samples.sample(0.0, waiting(7, 0)))
    assert [(each.depth, each.pid, each.state) for each in found] == [(0, 0, "prepared transaction"), (1, 7, "active")]


def test_deadlocks_end_the_walk() -> None:
    """Two sessions that block each other have no head; a third that waits for one of them does not hang the walk."""
    sample = made_samples.sample(0.0, waiting(1, 2), waiting(2, 1), waiting(3, 1))
    assert find_blocking(sample) == ()
