"""Who counts as active, and what is said of them together."""

from __future__ import annotations

import pytest

from penstock.watch.waits import measure_activity
from support.made_samples import sample, session


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, 1),
        ({"state": "fastpath function call"}, 1),
        ({"backend_type": "parallel worker"}, 1),
        ({"backend_type": "autovacuum worker"}, 0),
        ({"backend_type": "background worker"}, 1),
        ({"backend_type": "walsender"}, 0),
        ({"state": "idle in transaction"}, 0),
        ({"state": None, "backend_type": None}, 0),
    ],
)
def test_active_is_who_works_for_somebody(more: dict[str, str | None], expected: int) -> None:
    """A walsender says that it is active while it streams."""
    assert measure_activity([sample(0, session(**more))]).samples == expected


def test_samples_count_for_the_time_that_they_stand_for() -> None:
    """A tick that came late stands for more."""
    short, long = sample(1, session("IO:WALSync"), interval_s=1.0), sample(4, session(), session(), interval_s=3.0)
    found = measure_activity([short, long])
    assert (found.elapsed_s, found.samples, found.sessions) == (4.0, 3, 7 / 4)
    assert [(part.name, part.sessions) for part in found.waits] == [("CPU", 6 / 4), ("IO:WALSync", 1 / 4)]
    assert sum(part.share for part in found.classes) == pytest.approx(1)


def test_spelling_of_wait_events_makes_no_difference() -> None:
    """PostgreSQL 17 spells WalSync what was WALSync."""
    found = measure_activity([sample(0, session("IO:WALSync"), session("IO:WalSync"))])
    assert [(part.name, part.sessions) for part in found.waits] == [("IO:WALSync", 2.0)]


def test_statements_are_one_by_their_id_and_else_by_their_text() -> None:
    """Texts of one id may differ in their comments."""
    by_id = [session(query_id=7, query="select 1 -- a"), session(query_id=7, query="select 1 -- b")]
    by_text = [session(query="select 2"), session(query="select\n 2"), session(query=None)]
    found = measure_activity([sample(0, *by_id, *by_text)])
    assert [(part.name, part.sessions) for part in found.statements] == [
        ("select 1 -- a", 2.0),
        ("select 2", 2.0),
        ("(query hidden)", 1.0),
    ]


def test_nothing_is_measured_of_nothing() -> None:
    """Of no samples, and of a first one that no time has passed before."""
    assert measure_activity([]).sessions == 0.0
    assert measure_activity([sample(0, session(), interval_s=0.0)]).sessions == 1.0
