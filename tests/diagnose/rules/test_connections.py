"""Connections that are opened all the time, or are all taken, in made-up samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.diagnose.examination import diagnose
from support.made_samples import database, recording_of, sample, session

if TYPE_CHECKING:
    from penstock.core.values.diagnosis import Diagnosis

_LIMITS = {"max_connections": "100", "superuser_reserved_connections": "3", "reserved_connections": "0"}


def found_in(counters: Any, **header: Any) -> list[Diagnosis]:
    """Return what is found in half a minute with these counters at each second."""
    samples = [sample(t, *([session()] if t % 4 == 0 else []), xid=t, counters=counters(t)) for t in range(30)]
    return list(diagnose(recording_of(samples, settings=_LIMITS, **header)))


def opened(per_s: int, *, transactions: int = 1) -> Any:
    """Return the counters of a database to which so many connections a second are opened."""
    return lambda t: database(per_s * transactions * t, sessions=5 + per_s * t)


def test_connection_for_each_transaction_is_counted() -> None:
    """Forty a second; samples of active sessions are too few to say anything."""
    (found,) = found_in(opened(40))
    assert (found.code, found.confidence, found.samples) == ("connections-short", "high", 0)
    assert found.claim.startswith("40 connections a second")
    assert "PgBouncer" in found.remedy
    numbers = {each.name: each.value for each in found.evidence}
    assert round(numbers["transactions of each, on average"], 1) == 1.0


def test_sessions_that_are_being_opened_are_counted_if_the_server_shows_them() -> None:
    """One of two at any time."""
    counters = opened(40)
    samples = [sample(t, session(), session(state="starting"), xid=t, counters=counters(t)) for t in range(30)]
    (found,) = diagnose(recording_of(samples))
    assert found.share == 0.5
    assert "sessions being opened, on average" in [each.name for each in found.evidence]


def test_connections_that_are_used_or_rare_are_nothing_remarkable() -> None:
    """With fifty transactions each, two a second, or of others than the application that is looked at."""
    assert found_in(opened(40, transactions=50)) == []
    assert found_in(opened(2)) == []
    assert found_in(opened(40), application="penstock load") == []


def test_pools_that_are_filled_open_no_short_connections() -> None:
    """All connections that were opened are still there at the end; if the pools are emptied again, they are not."""
    for left, is_found in ((5 + 29 * 40, False), (5, True)):
        readings = {0: 5, 20: 5 + 20 * 40, 29: left}
        rows = {t: ({"application": "shop", "of_all": count},) for t, count in readings.items()}
        found = found_in(lambda t, rows=rows: opened(40)(t) | ({"connections": rows[t]} if t in rows else {}))
        assert ("connections-short" in [each.code for each in found]) == is_found


def taken(count: int, *, idle: int) -> Any:
    """Return the counters of a server with so many connections."""
    rows = [{"application": "shop", "user": "web", "connections": count - 7, "idle": idle, "of_all": count},
            {"application": "report", "user": "ann", "connections": 7, "idle": 0, "of_all": count}]  # fmt: skip
    return lambda t: {"connections": tuple(rows)} if t % 10 == 0 else {}


def test_connections_that_are_all_taken_are_named_by_who_has_them() -> None:
    """100 without three for superusers, one of them this process's."""
    (found,) = found_in(taken(96, idle=80))
    assert found.code == "connections-taken"
    assert (
        "all 97 connections that ordinary roles may have are taken, 89 by application shop; 80 are idle" in found.claim
    )
    assert "If they are a pool's, make it smaller" in found.remedy
    assert 'if they were left open: ALTER ROLE "web" SET idle_session_timeout' in found.remedy
    # The largest application is busy, and another role's connections are idle.
    rows = (
        {"application": "shop", "user": "web", "connections": 40, "idle": 0, "of_all": 97, "idle_of_all": 57},
        {"application": "old", "user": "bob", "connections": 30, "idle": 30, "of_all": 97, "idle_of_all": 57},
    )
    (found,) = found_in(lambda t: {"connections": rows} if t % 10 == 0 else {})
    assert 'ALTER ROLE "bob" SET idle_session_timeout' in found.remedy
    (found,) = found_in(taken(97, idle=5))
    assert "idle_session_timeout" not in found.remedy
    assert found_in(taken(95, idle=80)) == []
    assert found_in(taken(97, idle=80), application="penstock load") == []


@pytest.mark.parametrize(("idle_of_all", "expected"), [(90, "; 90 are idle."), (None, "by application shop. The")])
def test_idle_connections_of_small_applications_count_and_hidden_ones_are_not_called_busy(
    idle_of_all: int | None, expected: str
) -> None:
    """The rows are those of the largest applications; a role without pg_read_all_stats sees no states."""
    row = {"application": "shop", "user": "web", "connections": 4, "idle": 0, "of_all": 97, "idle_of_all": idle_of_all}
    (found,) = found_in(lambda t: {"connections": (row,)} if t % 10 == 0 else {})
    assert expected in found.claim
    assert ("of these idle" in [each.name for each in found.evidence]) == (idle_of_all is not None)


def test_a_database_that_is_dropped_opens_no_connections_and_has_no_deadlocks() -> None:
    """Each database has a counter of its own; the sum of all falls when one is dropped, or its statistics are reset."""
    kept, dropped = (
        {"datname": name, "xact_commit": 0, "xact_rollback": 0, "sessions": 90_000, "deadlocks": 500, "blks_read": 0}
        for name in ("shop", "old")
    )
    assert found_in(lambda t: {"pg_stat_database": (kept, dropped) if t < 15 else (kept,)}) == []
    reset = {**kept, "sessions": 0, "deadlocks": 0}
    assert found_in(lambda t: {"pg_stat_database": (kept, dropped) if t < 15 else (reset, dropped)}) == []
