"""Causes planted on real servers: each is named first, with its remedy, and not what only looks like the cause."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.diagnose.examination import diagnose
from support.parts import rest
from support.recorded import execute, recording, working

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.diagnose.values import Diagnosis
    from penstock.lab.embedded import EmbeddedServer
    from penstock.watch.values import Sample, SessionSample

# More samples than are needed to claim anything.
ENOUGH = 40


def is_locked(session: SessionSample) -> bool:
    """Return whether a session waits for a lock."""
    return session.wait_event_type == "Lock"


def evidence_of(found: Diagnosis) -> dict[str, float]:
    """Return the numbers of a diagnosis by their names."""
    return {each.name: each.value for each in found.evidence}


def test_deadlocks_are_named_with_both_statements(database: str) -> None:
    """Two sessions lock two tables, each in its own order, until the recording has seen enough."""
    execute(database, "CREATE TABLE orders AS SELECT 1 AS n", "CREATE TABLE stock AS SELECT 1 AS n")
    together, ended = threading.Barrier(2, timeout=60), threading.Event()

    def lock(first: str, second: str) -> None:
        with suppress(threading.BrokenBarrierError), psycopg.connect(database, application_name="shop") as connection:
            connection.execute("SET deadlock_timeout = '300ms'")
            connection.commit()
            while not ended.is_set():
                with suppress(psycopg.errors.DeadlockDetected), connection.transaction():
                    connection.execute(f"UPDATE {first} SET n = n + 1".encode())
                    together.wait()
                    connection.execute(f"UPDATE {second} SET n = n + 1".encode())

    threads = [threading.Thread(target=lock, args=names) for names in (("orders", "stock"), ("stock", "orders"))]
    with recording(database) as taken:
        for thread in threads:
            thread.start()
        taken.await_sessions(ENOUGH, is_locked)
        # The server reports its counters once a second.
        taken.await_samples(40)
        ended.set()
        together.abort()
        for thread in threads:
            thread.join()
    first, *others = diagnose(taken.recording)
    assert first.code == "deadlocks"
    assert "UPDATE orders SET n = n + ? and UPDATE stock SET n = n + ?" in first.claim
    assert evidence_of(first)["deadlocks"] > 0.3
    assert "_backend(" not in first.remedy
    assert "lock-wait" not in [each.code for each in others]


def test_alter_table_that_waits_for_a_report_is_named_not_the_report(database: str) -> None:
    """Everybody who comes later waits behind it, although they would read beside the report."""
    execute(database, "CREATE TABLE orders AS SELECT 1 AS n")
    run: Callable[..., Callable[[], None]] = partial(partial, execute, database)
    with psycopg.connect(database, application_name="report") as report:
        report.execute("SELECT count(*) FROM orders")
        with recording(database) as taken, working(database, run("ALTER TABLE orders ADD COLUMN paid bool")):
            taken.await_sessions(1, is_locked)
            with working(database, *[run("SELECT sum(n) FROM orders")] * 3):
                taken.await_sessions(ENOUGH, is_locked)
                taken.await_sessions(1, lambda session: is_locked(session) and (session.query_s or 0) > 1)
                report.rollback()
        pid = report.info.backend_pid
    first, *others = diagnose(taken.recording)
    assert first.code == "lock-queue"
    assert "its statement: ALTER TABLE orders ADD COLUMN paid bool. It waits itself, for backend" in first.claim
    assert f"for backend {pid} (application report" in first.claim
    assert "pg_cancel_backend(" in first.remedy
    assert f"backend({pid})" not in first.remedy
    assert evidence_of(first)["sessions behind the waiting statement, at most"] == 3
    assert "lock-wait" not in [each.code for each in others]


# A row to a page, so that each update after a checkpoint writes a whole page to WAL.
ONE_ROW_TO_A_PAGE = (
    "CREATE TABLE orders (id int PRIMARY KEY, n int, filler text) WITH (fillfactor = 10)",
    "INSERT INTO orders SELECT id, 0, repeat('x', 700) FROM generate_series(0, 19999) id",
    "VACUUM ANALYZE orders",
)
# Twenty rows, of a fourth of the table that is the session's own.
UPDATE = (
    "UPDATE orders SET n = n + 1 WHERE id = ANY"
    " (ARRAY (SELECT 4 * (4999 * random())::int + {} FROM generate_series(1, 20)))"
)


def repeat(conninfo: str, statement: str, ended: threading.Event) -> None:
    """Run a statement again and again, each in a transaction of its own."""
    with psycopg.connect(conninfo, autocommit=True, application_name="shop") as connection:
        while not ended.is_set():
            connection.execute(statement.encode())


def count_checkpoints(samples: list[Sample]) -> int:
    """Return how many requested checkpoints the samples count."""
    counts = [
        row.get("num_requested", row.get("checkpoints_req"))
        for sample in samples
        for view in ("pg_stat_checkpointer", "pg_stat_bgwriter")
        for row in sample.counters.get(view, ())
    ]
    known = [count for count in counts if isinstance(count, int)]
    return known[-1] - known[0] if known else 0


@pytest.mark.parametrize("major", [18, rest(15)])
def test_checkpoints_by_wal_are_named_before_commits(new_server: Callable[..., EmbeddedServer], major: int) -> None:
    """Commits wait for flushes of WAL that is mostly full pages, because each 16 MiB of it start a checkpoint."""
    slow = {"fsync": "on", "full_page_writes": "on", "commit_delay": "20000", "commit_siblings": "0"}
    conninfo = new_server(major, max_wal_size="32MB", **slow).ensure_running()
    execute(conninfo, *ONE_ROW_TO_A_PAGE)
    ended = threading.Event()
    with recording(conninfo) as taken, working(
        conninfo, *(partial(repeat, conninfo, UPDATE.format(number), ended) for number in range(4))
    ):  # fmt: skip
        try:
            taken.await_sessions(5 * ENOUGH)
            deadline_s = time.monotonic() + 60
            while count_checkpoints(list(taken.samples)) < 5:
                assert time.monotonic() < deadline_s
                time.sleep(0.1)
        finally:
            ended.set()
    first = diagnose(taken.recording)[0]
    assert first.code == "checkpoints-forced"
    assert evidence_of(first)["of the WAL are full-page images, at most"] > 50
    assert "because WAL reaches max_wal_size (32MB)" in first.claim
    assert "ALTER SYSTEM SET max_wal_size = '" in first.remedy
