"""Commits and rows while counters move, stand still, and arrive all at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.watch.rates import measure_rates
from support.made_samples import database, sample, session

if TYPE_CHECKING:
    from penstock.watch.values import Sample

CALLING = "call my_insert(?, ?)"


def calling(at_s: float, *, since_s: float, done: int, counted: int = 0, **more: int) -> Sample:
    """Return a sample within a call that commits each row: 100 a second, of which so many are counted."""
    inside = session("IO:WalSync", query=CALLING, query_s=at_s - since_s, transaction_s=0.0)
    return sample(at_s, inside, xid=done, wal=170 * done, counters=database(counted), **more)


def after(at_s: float, *, done: int, counted: int) -> Sample:
    """Return a sample without the call."""
    return sample(at_s, xid=done, wal=170 * done, counters=database(counted, counted))


def test_commits_are_believed_where_they_move() -> None:
    """Transactions' numbers also went to subtransactions and to what was rolled back."""
    samples = [
        sample(t, session(), xid=500 * t, counters=database(100 * t, 300 * t, rollbacks=7 * t)) for t in range(11)
    ]
    found = measure_rates(samples)
    assert (found.commits_per_s, found.rollbacks_per_s) == (100, 7)
    assert (found.rows_per_commit, found.is_exact) == (3, True)


def test_own_commits_of_the_sampler_are_taken_off() -> None:
    """The server counts them with the others'."""
    samples = [sample(t, session(), xid=0, own_commits=t, counters=database(11 * t)) for t in range(11)]
    assert measure_rates(samples).commits_per_s == 10


def test_rows_are_of_commits_that_wrote() -> None:
    """Those that only read take no number."""
    samples = [sample(t, session(), xid=10 * t, counters=database(1000 * t, 40 * t)) for t in range(11)]
    found = measure_rates(samples)
    assert (found.commits_per_s, found.rows_per_commit) == (1000, 4)


def test_numbers_count_while_a_procedure_commits_inside() -> None:
    """The counters stand still, but for the sampler's own."""
    samples = [calling(t, since_s=-5, done=100 * t, counted=t, own_commits=t) for t in range(11)]
    found = measure_rates(samples)
    assert found.commits_per_s == 100
    assert found.rows_per_commit == pytest.approx(1, rel=0.01)
    assert not found.is_exact


@pytest.mark.parametrize("began_s", [2, -50])
@pytest.mark.parametrize("after_s", [0, 1, 5])
def test_counters_that_arrive_at_once_count_for_the_time_that_was_watched(began_s: int, after_s: int) -> None:
    """A procedure that ends at 10 s, and began before the first sample or after it."""
    worked = [max(0, min(t, 10) - max(began_s, 0)) for t in range(11 + after_s)]
    total = 100 * (10 - began_s)
    samples = [
        calling(t, since_s=began_s, done=100 * worked[t]) if began_s <= t < 10 else after(
            t, done=100 * worked[t], counted=total if t >= 10 else 0
        )
        for t in range(11 + after_s)
    ]  # fmt: skip
    found = measure_rates(samples)
    assert found.commits_per_s == pytest.approx(100 * worked[-1] / (10 + after_s))
    assert found.rows_per_commit == pytest.approx(1)
    assert found.is_exact


@pytest.mark.parametrize("rows", [1, 10, 100])
def test_rows_per_commit_are_estimated_by_measured_sizes_of_wal(rows: int) -> None:
    """As a procedure's inserts into demo write them on 18.4."""
    wal = {1: 170.6, 10: 1344.5, 100: 13085.0}[rows]
    inside = session("IO:WalSync", query_s=9.0, transaction_s=0.0)
    samples = [sample(t, inside, xid=100 * t, wal=round(100 * wal * t), counters=database(0)) for t in range(11)]
    assert measure_rates(samples).rows_per_commit == pytest.approx(rows, rel=0.01)


def test_procedure_that_has_not_counted_yet_is_not_taken_for_none() -> None:
    """It was seen at the tick before the last."""
    samples = [calling(t, since_s=-5, done=100 * t) for t in range(10)]
    found = measure_rates([*samples, after(10, done=1000, counted=3)])
    assert found.commits_per_s == 100
    assert not found.is_exact


def test_subtransactions_of_a_procedure_are_not_commits() -> None:
    """Once it has counted: it takes a number for each row, and commits each hundredth."""
    samples = [calling(t, since_s=0, done=1010 * t) for t in range(10)]
    found = measure_rates([*samples, sample(10, xid=10100, counters=database(100, 10000))])
    assert (found.commits_per_s, found.rows_per_commit, found.is_exact) == (10, 100, True)


def test_readers_beside_a_procedure_stay_counted() -> None:
    """Their commits take no numbers, and a procedure that began before counts a thousand of its own at once."""
    samples = [calling(t, since_s=-10, done=100 * t, counted=50 * t) for t in range(20)]
    found = measure_rates([*samples, after(20, done=2000, counted=1000 + 3000)])
    assert found.commits_per_s == pytest.approx(150, rel=0.05)


def test_long_transaction_of_many_subtransactions_commits_nothing() -> None:
    """Its numbers move, and no statement has committed inside."""
    samples = [sample(t, session(transaction_s=t + 5.0), xid=900 * t, counters=database(0)) for t in range(11)]
    assert measure_rates(samples).commits_per_s == 0


def test_numbers_count_where_sessions_are_hidden_and_counters_stand_still() -> None:
    """A role without pg_read_all_stats sees no transactions' ages."""
    hidden = session(state=None, query_s=None, transaction_s=None)
    samples = [sample(t, hidden, xid=50 * t, counters=database(0)) for t in range(11)]
    assert measure_rates(samples).commits_per_s == 50
    assert measure_rates([sample(t, hidden, xid=50 * t) for t in range(11)]).commits_per_s == 50


def test_counters_are_believed_across_a_reset() -> None:
    """A crash of the server resets them: what each reading added counts, not the last one alone."""
    counted = [900, 1000, 1100, 1200, 100, 200, 300, 1400, 1500, 1600, 1700]
    samples = [sample(t, session(), xid=1000 * t, counters=database(n, 2 * n)) for t, n in enumerate(counted)]
    assert measure_rates(samples).commits_per_s == (300 + 100 + 1600) / 10
    assert measure_rates(samples).rows_per_commit == 2


def test_reset_counters_begin_anew() -> None:
    """What was counted before the reset is lost, and nothing falls below zero."""
    samples = [sample(0, xid=0, counters=database(900)), sample(10, session(), xid=100, counters=database(100))]
    assert measure_rates(samples).commits_per_s == 10


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_samples_have_no_rates(count: int) -> None:
    """None is not zero."""
    assert measure_rates([after(0, done=1, counted=1)] * count).commits_per_s is None
