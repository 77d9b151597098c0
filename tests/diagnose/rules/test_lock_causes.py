"""Deadlocks and queues of locks in made-up samples, and holders that are not blamed for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.diagnose.examination import diagnose
from support.made_samples import database, recording_of, sample, session

if TYPE_CHECKING:
    from penstock.core.values.diagnosis import Diagnosis
    from penstock.watch.values import SessionSample

_UPDATE = "update orders set paid = ?"


def found_in(*sessions: SessionSample, deadlocks_per_s: float = 0.0, seconds: int = 30) -> dict[str, Diagnosis]:
    """Return what is found if each second shows the same sessions."""
    samples = [
        sample(t, *sessions, counters=database(t, t, deadlocks=int(deadlocks_per_s * t))) for t in range(seconds)
    ]
    return {found.code: found for found in diagnose(recording_of(samples))}


def waiting(pid: int, *blockers: int, wait: str = "Lock:transactionid", **more: object) -> SessionSample:
    """Return a session that waits for the locks of others."""
    return session(wait, pid=pid, blocked_by=blockers, **more)


def test_deadlocks_are_counted_and_named_with_both_statements() -> None:
    """A third session waits behind them; none of the three is to be cancelled."""
    circle = [waiting(1, 2, query=_UPDATE), waiting(2, 1, query="update stock set n = ?")]
    found = found_in(*circle, waiting(3, 1), deadlocks_per_s=0.5)
    assert list(found) == ["deadlocks"]
    assert found["deadlocks"].share == 1.0
    assert "0.48 deadlocks a second" in found["deadlocks"].claim
    assert "update orders set paid = ? and update stock set n = ?" in found["deadlocks"].claim
    assert "one order" in found["deadlocks"].remedy
    assert "backend(" not in found["deadlocks"].remedy


def test_deadlocks_between_samples_are_named_without_statements() -> None:
    """What a sample shows then is a lock that its holder had for a moment."""
    holder = session(pid=1, transaction_s=0.2)
    found = found_in(holder, waiting(2, 1, query_s=0.1), deadlocks_per_s=0.5)
    assert list(found) == ["deadlocks"]
    assert "the server's log has them" in found["deadlocks"].claim
    alone = found_in(deadlocks_per_s=0.5)["deadlocks"]
    assert alone.share == 0


def test_lasting_holder_is_named_beside_deadlocks_of_others() -> None:
    """Someone left a transaction open, and elsewhere two sessions are in a deadlock for a part of the time."""
    left = session(pid=7, state="idle in transaction", query_s=60.0, transaction_s=60.0)
    found = found_in(left, waiting(8, 7), waiting(1, 2), waiting(2, 1), deadlocks_per_s=0.5)
    assert list(found) == ["deadlocks"]
    found = found_in(left, *(waiting(pid, 7) for pid in (8, 9, 10)), waiting(1, 2), waiting(2, 1), deadlocks_per_s=0.5)
    assert list(found) == ["lock-wait", "deadlocks"]


def test_circles_without_a_counted_deadlock_are_locks_held_in_turn() -> None:
    """The lock of a row has changed hands between the readings of two sessions."""
    circle = [waiting(1, 2), waiting(2, 1)]
    found = found_in(*circle, *(session(pid=pid) for pid in range(20, 25)))
    assert "which several sessions hold in turn" in found["lock-wait"].claim
    assert "deadlocks" not in found


def test_deadlocks_of_other_applications_are_no_finding_about_one_application() -> None:
    """The server counts all, and no session of this application waits for another in a circle."""
    samples = [sample(t, session(), counters=database(t, t, deadlocks=t)) for t in range(30)]
    assert "deadlocks" in [found.code for found in diagnose(recording_of(samples))]
    assert "deadlocks" not in [found.code for found in diagnose(recording_of(samples, application="worker"))]


def test_one_deadlock_in_a_while_is_no_cause() -> None:
    """One in half a minute."""
    assert found_in(session(), deadlocks_per_s=0.05) == {}


def test_statement_that_waits_is_what_blocks_the_queue_behind_it() -> None:
    """A report reads the table, ALTER TABLE waits for it, and readers wait for the ALTER TABLE."""
    report = session(pid=7, application="report", query_s=600.0, transaction_s=600.0)
    alter = waiting(8, 7, wait="Lock:relation", query="alter table orders add n int", query_s=9.0)
    readers = [waiting(pid, 8, wait="Lock:relation", query="select from orders") for pid in (9, 10, 11)]
    found = found_in(report, alter, *readers)
    assert list(found) == ["lock-queue"]
    assert "behind backend 8 (application worker, user ann), active" in found["lock-queue"].claim
    assert "alter table orders add n int" in found["lock-queue"].claim
    assert "It waits itself, for backend 7 (application report" in found["lock-queue"].claim
    assert "pg_cancel_backend(8)" in found["lock-queue"].remedy
    assert "backend(7)" not in found["lock-queue"].remedy
    assert "lock_timeout" in found["lock-queue"].remedy
    numbers = {each.name: each.value for each in found["lock-queue"].evidence}
    assert numbers["sessions behind the waiting statement, at most"] == 3
    assert numbers["sessions in the queue, on average"] == 4


def test_queue_for_what_the_holder_has_is_the_holders() -> None:
    """Two that lock a table wait for one that has it locked: without the first, the second waits as long."""
    holder = session(pid=7, state="idle in transaction", query_s=60.0, transaction_s=60.0)
    first = waiting(8, 7, wait="Lock:relation")
    assert list(found_in(holder, first, waiting(9, 7, 8, wait="Lock:relation"))) == ["lock-wait"]
    # A queue for a row is no queue for a table.
    assert list(found_in(holder, waiting(8, 7), waiting(9, 8, wait="Lock:tuple"))) == ["lock-wait"]


def test_open_transaction_that_rows_are_waited_for_is_named_beside_the_queue_at_its_table() -> None:
    """Ten updates wait for it before an ALTER TABLE waits for all of them, and one reader waits behind that."""
    left = session(pid=7, state="idle in transaction", query_s=60.0, transaction_s=60.0)
    updates = [waiting(pid, 7, query=_UPDATE, query_s=50.0) for pid in range(20, 30)]
    alter, reader = (
        waiting(8, 20, 7, wait="Lock:relation", query_s=9.0),
        waiting(9, 8, wait="Lock:relation", query_s=8.0),
    )
    found = found_in(left, *updates, alter, reader)
    assert {code: round(each.share, 2) for code, each in found.items()} == {"lock-wait": 0.83, "lock-queue": 0.17}
    assert "pg_terminate_backend(7)" in found["lock-wait"].remedy
    assert "pg_cancel_backend(8)" in found["lock-queue"].remedy


def test_statement_whose_transaction_may_hold_the_lock_is_not_to_be_cancelled() -> None:
    """It has inserted into the table that ALTER TABLE wants, and waits for another table: it is a victim itself."""
    left = session(pid=7, state="idle in transaction", query_s=60.0, transaction_s=60.0)
    victim = waiting(8, 7, wait="Lock:relation", query="select from other", query_s=20.0, transaction_s=40.0)
    alter = waiting(9, 8, wait="Lock:relation", query="alter table orders add n int", query_s=9.0)
    found = found_in(left, victim, alter, waiting(10, 9, wait="Lock:relation", query_s=5.0))
    remedy = found["lock-queue"].remedy
    assert "backend(8)" not in remedy
    assert "pg_terminate_backend(7)" in remedy


def test_holder_that_is_idle_is_not_ended_for_a_lock_of_its_next_transaction() -> None:
    """Its state was read before its lock; only an advisory lock outlives a transaction."""
    idle = session(pid=7, state="idle", query_s=60.0, transaction_s=None)
    for wait, is_ended in (("Lock:transactionid", False), ("Lock:advisory", True)):
        remedy = found_in(idle, waiting(8, 7, wait=wait))["lock-wait"].remedy
        assert ("pg_terminate_backend(7)" in remedy) == is_ended
        assert ("pg_advisory_unlock" in remedy) == is_ended


def test_command_that_ends_a_holder_names_the_time_at_which_it_was_seen() -> None:
    """The last sample is of the 29th second, and the server's clock is an hour ahead of the recorder's."""
    left = session(pid=7, state="idle in transaction", query_s=60.0, transaction_s=60.0)
    samples = [sample(float(second), left, waiting(8, 7)) for second in range(30)]
    (found,) = diagnose(recording_of(samples, clock_ahead_s=3600.0))
    condition = "WHERE pid = 7 AND xact_start < '2026-01-01 01:00:29.000+00:00'. For good"
    assert f"SELECT pg_terminate_backend(7) FROM pg_stat_activity {condition}" in found.remedy


def test_hot_row_beside_deadlocks_of_others_keeps_its_waits() -> None:
    """The server counts three deadlocks in a minute, and no sample shows a circle."""
    holder = session(pid=1, transaction_s=0.2)
    waits = [waiting(pid, 1, query_s=0.1) for pid in (2, 3, 4, 5)]
    found = found_in(holder, *waits, deadlocks_per_s=0.06, seconds=60)
    assert found["deadlocks"].share == 0
    assert found["lock-wait"].share == pytest.approx(0.8)


@pytest.mark.parametrize(("age_s", "is_named"), [(0.02, False), (60.0, True)])
def test_prepared_transactions_of_a_moment_are_not_to_be_rolled_back(age_s: float, is_named: bool) -> None:
    """Their transaction manager ends them; no reading shows that a session waits for one of them."""
    row = {"gid": "tx9", "owner": "ann", "datname": "shop", "age_s": age_s, "blocks": []}
    samples = [sample(float(t), waiting(2, 0), counters={"prepared": (row,)} if t % 10 == 9 else {}) for t in range(30)]
    (found,) = diagnose(recording_of(samples))
    assert ("ROLLBACK PREPARED 'tx9'" in found.remedy) == is_named
    assert ("which several sessions hold in turn" in found.claim) != is_named


@pytest.mark.parametrize(
    ("wait", "query", "words", "is_ended"),
    [
        ("Client:ClientRead", "copy orders from stdin", "A cancel waits for the client too", True),
        (None, "create index concurrently on orders (id)", "leaves an invalid index behind", False),
        (None, "update orders set n = ?", "pg_cancel_backend(7)", False),
    ],
)
def test_holder_is_told_to_be_ended_by_what_ends_it_without_harm(
    wait: str | None, query: str, words: str, *, is_ended: bool
) -> None:
    """The server cancels no statement that waits for its client, and a build that is cancelled leaves its index."""
    holder = session(wait, pid=7, query=query, query_s=60.0, transaction_s=60.0)
    remedy = found_in(holder, *(waiting(pid, 7, wait="Lock:relation") for pid in (8, 9, 10)))["lock-wait"].remedy
    assert words in remedy
    assert ("pg_terminate_backend(7)" in remedy) == is_ended
    assert ("pg_cancel_backend(7)" in remedy) == ("pg_cancel" in words)
