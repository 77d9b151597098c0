"""What larger batches would buy, from samples of one batch length."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from penstock.commits.view import describe_commits
from penstock.diagnose.batches import report_commits
from support.made_samples import HEADER, database, sample, session

if TYPE_CHECKING:
    from penstock.watch.values import Sample

# A transaction of 100 rows at 10 us each and a commit of 1 ms: it takes 2 ms, so 500 of them are done a second.
_COMMITS_PER_S = 500
_ROWS = 100


def run(*waiting: bool, cpu_share: float | None = None, **more: object) -> list[Sample]:
    """Return a second each of the workload, seen waiting for its commit or not."""
    return [
        sample(
            second,
            session(
                "IPC:SyncRep" if waits else None,
                cpu_s=None if cpu_share is None else second * cpu_share,
                **more,
            ),
            xid=second * _COMMITS_PER_S,
            wal=second * 1000,
            counters=database(second * _COMMITS_PER_S, second * _COMMITS_PER_S * _ROWS),
        )
        for second, waits in enumerate(waiting)
    ]


_HALF = [True, False] * 30


def test_samples_divide_a_transaction_where_the_server_is_elsewhere() -> None:
    """Half of them wait: half of the 2 ms is the commit's."""
    (committer,) = report_commits(run(*_HALF)).committers
    assert committer.commit_s == pytest.approx(0.001, rel=0.05)
    assert committer.row_s == pytest.approx(0.00001, rel=0.05)
    assert committer.rows_per_commit == pytest.approx(_ROWS)
    assert committer.rows_by == "server"
    assert committer.predict_s(1_000_000, 10) == pytest.approx(110, rel=0.05)
    assert committer.predict_s(1_000_000, 10_000) == pytest.approx(10.1, rel=0.05)
    assert committer.enough_rows == pytest.approx(400, rel=0.1)


def test_processor_time_is_believed_where_samples_see_waits_only() -> None:
    """A sampler that gets its turn when the workload sleeps sees no work; the processor's account has it."""
    (committer,) = report_commits(run(*[True] * 60, cpu_share=0.5)).committers
    assert committer.waiting == 1.0
    assert committer.row_s == pytest.approx(0.00001, rel=0.05)


def test_probe_is_believed_unless_it_is_most_of_the_transaction() -> None:
    """Of 2 ms, a probe of 0.4 ms leaves 1.6 for the rows; one of 1.9 ms leaves its own error."""
    (committer,) = report_commits(run(*_HALF), probed_s=0.0004).committers
    assert committer.commit_s == pytest.approx(0.0004)
    assert committer.row_s == pytest.approx(0.000016, rel=0.05)
    (committer,) = report_commits(run(*_HALF), probed_s=0.0019).committers
    assert committer.commit_s == pytest.approx(0.001, rel=0.05)


def test_client_that_thinks_in_its_transaction_is_the_rows_time() -> None:
    """Idle in transaction is no wait for a commit, and larger batches would not spare it."""
    samples = run(*[True] * 30) + [
        sample(
            second,
            session(state="idle in transaction"),
            xid=second * _COMMITS_PER_S,
            counters=database(second * _COMMITS_PER_S, second * _COMMITS_PER_S * _ROWS),
        )
        for second in range(30, 60)
    ]
    (committer,) = report_commits(samples).committers
    assert committer.waiting == pytest.approx(0.5)
    assert committer.row_s == pytest.approx(0.00001, rel=0.05)


@pytest.mark.parametrize(("reads", "row_s"), [(0, 0.00003), (20, 0.00001)])
def test_transactions_that_only_read_are_not_the_rows_time(reads: int, row_s: float) -> None:
    """A session without a transaction id will write or not: the server counts those that do not."""
    samples = [
        sample(
            second,
            session("IPC:SyncRep" if second % 2 else None, xid_age=1),
            session(pid=2),
            xid=second * _COMMITS_PER_S,
            counters=database(second * _COMMITS_PER_S * (1 + reads), second * _COMMITS_PER_S * _ROWS),
        )
        for second in range(60)
    ]
    (committer,) = report_commits(samples).committers
    assert committer.commit_s == pytest.approx(0.001, rel=0.05)
    assert committer.row_s == pytest.approx(row_s, rel=0.05)


def test_too_few_samples_foretell_nothing() -> None:
    """Under 20 it is not said what batches would buy."""
    (committer,) = report_commits(run(*[True, False] * 8)).committers
    assert committer.predict_s(1_000_000, 10) is None
    assert committer.enough_rows is None


def test_who_does_not_wait_for_commits_is_left_out() -> None:
    """Readers, and autovacuum, which commits for nobody."""
    readers = report_commits(run(*[False] * 40)).committers
    assert readers == ()
    assert report_commits(run(*[True] * 40, backend_type="autovacuum worker")).committers == ()


def test_applications_are_apart_and_the_longest_waiting_comes_first() -> None:
    """Commits are attributed by the time in which each waits for them."""
    samples = [
        sample(
            second,
            session("IO:WalSync", application="waits more", pid=1),
            session("IO:WALSync" if second % 4 == 0 else None, application="waits less", pid=2),
            xid=second * _COMMITS_PER_S,
            counters=database(second * _COMMITS_PER_S, second * _COMMITS_PER_S),
        )
        for second in range(40)
    ]
    first, second = report_commits(samples).committers
    assert (first.application, second.application) == ("waits more", "waits less")
    assert first.commits_per_s is not None
    assert second.commits_per_s is not None
    assert first.commits_per_s / second.commits_per_s == pytest.approx(4.0, rel=0.1)


def _two_applications(*, statements: bool, shared: bool = False) -> list[Sample]:
    """Return a load of 1,600 rows to a commit beside orders of one row each."""
    samples = []
    for second in range(60):
        counters = database(11 * second, 10 * second + 1600 * second)
        if statements and second % 10 == 0:
            rows = [(1, 10 * second, 10 * second), (2, second, 1600 * second)]
            counters["pg_stat_statements"] = tuple(
                {"queryid": query_id, "userid": 10, "dbid": 5, "calls": calls, "rows": count}
                for query_id, calls, count in rows
            )
        orders = session("IO:WalSync" if second % 2 else None, application="orders", query_id=1, xid_age=1)
        load = session("IO:WalSync" if second % 5 == 0 else None, application="load", query_id=1 if shared else 2)
        samples.append(sample(second, orders, load, xid=11 * second, counters=counters))
    return samples


def test_rows_per_commit_are_each_applications_own_by_its_statements() -> None:
    """The server's average, 146 rows, is neither's."""
    found = {each.application: each for each in report_commits(_two_applications(statements=True)).committers}
    assert (found["orders"].rows_per_commit, found["orders"].rows_by) == (1, "pg_stat_statements")
    assert (found["load"].rows_per_commit, found["load"].rows_by) == (1600, "pg_stat_statements")


@pytest.mark.parametrize(("statements", "shared"), [(False, False), (True, True)])
def test_rows_per_commit_of_one_among_several_applications_are_not_made_up(*, statements: bool, shared: bool) -> None:
    """Without pg_stat_statements, or where both run the same statement: then nothing is foretold either."""
    found = report_commits(_two_applications(statements=statements, shared=shared)).committers
    assert [(each.rows_per_commit, each.rows_by, each.enough_rows) for each in found] == [(None, None, None)] * 2


def test_commits_of_hidden_sessions_are_attributed_to_nobody() -> None:
    """A role without pg_read_all_stats sees its own wait, and the server counts everybody's commits."""
    hidden = session(state=None, backend_type=None, transaction_s=None, query_s=None, query=None, application="shop")
    report = report_commits([replace(each, sessions=(*each.sessions, hidden)) for each in run(*_HALF)])
    (committer,) = report.committers
    assert report.hides_sessions
    assert committer.waiting == 0.5
    assert (committer.commits_per_s, committer.commit_s, committer.enough_rows) == (None, None, None)
    assert not report_commits(run(*_HALF)).hides_sessions


@pytest.mark.parametrize(("rows", "is_range"), [(1, True), (100, False)])
def test_batches_are_foretold_as_a_range_from_commits_of_few_rows(rows: int, *, is_range: bool) -> None:
    """At least the commits alone: what a statement takes for itself is not its row's."""
    samples = [
        sample(
            second,
            session("IPC:SyncRep" if second % 2 else None),
            xid=second * _COMMITS_PER_S,
            wal=second * 1000,
            counters=database(second * _COMMITS_PER_S, second * _COMMITS_PER_S * rows),
        )
        for second in range(60)
    ]
    report = report_commits(samples)
    shown = describe_commits(HEADER, report, None)
    (line,) = [each for each in shown if each.split()[:1] == ["1,000"]]
    assert (" to " in line) == is_range
    if is_range:
        (committer,) = report.committers
        assert f"{1000 * committer.commit_s:,.1f} to " in line
