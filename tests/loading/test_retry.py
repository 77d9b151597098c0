"""How long a load waits for a fault to pass, and with how many sessions it goes on."""

from __future__ import annotations

import pytest

from penstock.core.errors import ServerError
from penstock.loading.context import Patience, fewer_sessions, patiently
from penstock.loading.values.plan import SessionPlan

FOUR = SessionPlan(initial=4, maximum=8, is_adaptive=True, reason="")


class Clock:
    """A clock that is set by hand."""

    now_s = 0.0

    def __call__(self) -> float:
        """Return the time it was set to."""
        return self.now_s


def test_waits_double_up_to_a_quarter_of_a_minute() -> None:
    """Half a second at first."""
    patience = Patience(1000.0, Clock())
    assert [patience.next_delay_s() for _ in range(7)] == [0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0]


def test_patience_runs_out_without_progress() -> None:
    """Counted from the first failure."""
    clock = Clock()
    patience = Patience(30.0, clock)
    assert patience.next_delay_s() == 0.5
    clock.now_s = 29.5
    assert patience.next_delay_s() == 0.5
    clock.now_s = 30.0
    assert patience.next_delay_s() is None


def test_progress_renews_patience() -> None:
    """More rows are committed than after the last failure."""
    clock = Clock()
    patience = Patience(30.0, clock)
    patience.note_progress(10)
    patience.next_delay_s()
    clock.now_s = 40.0
    patience.note_progress(11)
    assert patience.next_delay_s() == 0.5


def test_no_patience_means_no_second_attempt() -> None:
    """--retry-for 0."""
    assert Patience(0.0, Clock()).next_delay_s() is None


def test_what_passes_is_done_again_and_said() -> None:
    """The last attempt's result counts."""
    outcomes: list[ServerError | int] = [
        ServerError("gone", is_transient=True),
        ServerError("gone", is_transient=True),
        7,
    ]
    notices: list[str] = []
    slept: list[float] = []

    def act() -> int:
        outcome = outcomes.pop(0)
        if isinstance(outcome, ServerError):
            raise outcome
        return outcome

    assert patiently(act, Patience(30.0, Clock()), sleep=slept.append, notice=notices.append) == 7
    assert slept == [0.5, 1.0]
    assert notices == ["gone: retrying in 0.5 s", "gone: retrying in 1.0 s"]


@pytest.mark.parametrize(("is_transient", "retry_for_s"), [(False, 30.0), (True, 0.0)])
def test_what_does_not_pass_is_raised_at_once(is_transient: bool, retry_for_s: float) -> None:
    """And so is everything with --retry-for 0."""

    def act() -> None:
        raise ServerError("gone", is_transient=is_transient)

    with pytest.raises(ServerError, match="gone"):
        patiently(act, Patience(retry_for_s, Clock()), sleep=lambda _: pytest.fail("it waits"), notice=None)


@pytest.mark.parametrize(("sqlstate", "count"), [("40P01", 2), ("57014", 1), ("08006", 4)])
def test_sessions_that_hinder_each_other_become_fewer(sqlstate: str, count: int) -> None:
    """Half after a deadlock, one after a wait for each other, and all of them after anything else."""
    assert fewer_sessions(FOUR, ServerError("m", sqlstate=sqlstate)).initial == count
