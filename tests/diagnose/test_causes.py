"""Causes planted on real servers: each is named first, with its remedy, and not what only looks like the cause."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from penstock.core.host.machine import cpu_count
from penstock.diagnose.examination import diagnose, examine
from penstock.diagnose.rules import locks
from penstock.watch.holders import AWAIT_APPLY, release_holder
from support import made_samples
from support.parts import rest
from support.recorded import execute, find_pgbench, recording, working
from support.slow import slow_link

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.core.values.diagnosis import Diagnosis
    from penstock.embedded.server import EmbeddedServer
    from penstock.watch.values import Sample, SessionSample
    from support.servers import PgServer

# More samples than are needed to claim anything.
ENOUGH = 40


def is_locked(session: SessionSample) -> bool:
    """Return whether a session waits for a lock."""
    return session.wait_event_type == "Lock"


def evidence_of(found: Diagnosis) -> dict[str, float]:
    """Return the numbers of a diagnosis by their names."""
    return {each.name: each.value for each in found.evidence}


@pytest.mark.part("rest")
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
    assert evidence_of(first)["deadlocks in the recording"] > 0
    assert "_backend(" not in first.remedy
    assert "lock-wait" not in [each.code for each in others]


def test_alter_table_that_waits_for_a_report_is_named_not_the_report(database: str) -> None:
    """Everybody who comes later waits behind it, although they would read beside the report."""
    execute(database, "CREATE TABLE orders AS SELECT 1 AS n")
    alter = partial(execute, database, "ALTER TABLE orders ADD COLUMN paid bool")
    read = partial(execute, database, "SELECT sum(n) FROM orders")
    with psycopg.connect(database, application_name="report") as report:
        report.execute("SELECT count(*) FROM orders")
        with recording(database) as taken, working(database, alter):
            taken.await_sessions(1, is_locked)
            with working(database, *[read] * 3):
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


def test_worker_that_applies_a_subscription_is_not_cancelled() -> None:
    """It would begin again, or disable its subscription, and the publisher's slot would keep WAL."""
    worker = made_samples.session(backend_type="logical replication apply worker", query="TRUNCATE orders")
    text = locks._release(7, worker, datetime.now(UTC), outlasts=True)
    assert text == AWAIT_APPLY
    assert "pg_cancel_backend" not in text
    assert release_holder({"kind": "apply", "pid": 7, "state": "active", "xid_age": 9}) == AWAIT_APPLY


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


@pytest.mark.part("rest")
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
            taken.await_that(lambda samples: count_checkpoints(samples) >= 5, patience_s=60)
        finally:
            ended.set()
    first = diagnose(taken.recording)[0]
    assert first.code == "checkpoints-forced"
    assert evidence_of(first)["of the WAL are full-page images, at most"] > 50
    assert "because WAL reaches max_wal_size (32MB)" in first.claim
    assert "ALTER SYSTEM SET max_wal_size = '" in first.remedy


@pytest.mark.part("rest")
def test_transactions_over_a_slow_network_are_bound_by_their_gaps(pg18: PgServer) -> None:
    """One session, whose statements take a moment each, 20 ms away."""
    near = pg18.over_tcp(pg18.fresh_database())
    execute(near, "CREATE TABLE orders AS SELECT 1 AS n")
    ended = threading.Event()
    with slow_link(int(conninfo_to_dict(near)["port"] or 0), delay_s=0.01) as port:

        def order() -> None:
            with psycopg.connect(make_conninfo(near, port=port), application_name="shop") as connection:
                while not ended.is_set():
                    with connection.transaction():
                        connection.execute("UPDATE orders SET n = n + 1")
                        connection.execute("SELECT n FROM orders")
                        connection.execute("UPDATE orders SET n = n + 1")

        with recording(near) as taken, working(near, order):
            try:
                taken.await_sessions(2 * ENOUGH)
            finally:
                ended.set()
    first = diagnose(taken.recording)[0]
    assert first.code == "client-bound"
    assert 15 < evidence_of(first)["from one statement of a transaction to the next, about"] < 60
    assert "it is the network" in first.remedy


def test_connection_for_each_query_is_counted(database: str) -> None:
    """Samples hardly show what such sessions do."""
    ended = threading.Event()

    def ask() -> None:
        while not ended.is_set():
            with psycopg.connect(database, autocommit=True, application_name="shop") as connection:
                connection.execute("SELECT 1")

    def count_opened() -> int:
        opened: dict[object, list[int]] = {}
        for sample in list(taken.samples):
            for row in sample.counters.get("pg_stat_database", ()):
                if isinstance(value := row.get("sessions"), int):
                    opened.setdefault(row.get("datname"), []).append(value)
        return max((values[-1] - values[0] for values in opened.values()), default=0)

    with recording(database) as taken, working(database, *4 * [ask]):
        try:
            deadline_s = time.monotonic() + 60
            while count_opened() < 200:
                assert time.monotonic() < deadline_s
                time.sleep(0.1)
        finally:
            ended.set()
    first = diagnose(taken.recording)[0]
    assert first.code == "connections-short"
    assert evidence_of(first)["transactions of each, on average"] < 5


@pytest.mark.parametrize("major", [18, rest(15)])
def test_connections_that_are_all_taken_are_named_by_their_application(
    new_server: Callable[..., EmbeddedServer], major: int
) -> None:
    """Seven idle ones and this recording's, of ten of which two are reserved."""
    conninfo = new_server(major, max_connections="10", superuser_reserved_connections="2").ensure_running()
    with ExitStack() as stack:
        for _ in range(7):
            stack.enter_context(psycopg.connect(conninfo, autocommit=True, application_name="shop"))
        with recording(conninfo) as taken:
            taken.await_samples(5)
    first = diagnose(taken.recording)[0]
    assert first.code == "connections-taken"
    assert "all 8 connections that ordinary roles may have are taken, 7 by application shop; 7 are idle" in first.claim


@pytest.mark.part("rest")
def test_other_programs_are_named_last_and_change_no_finding(database18: str) -> None:
    """As many as there are processors compute while sessions wait for a lock."""
    execute(database18, "CREATE TABLE orders AS SELECT 1 AS n")
    burning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(cpu_count())]
    try:
        with psycopg.connect(database18, application_name="report") as holder:
            holder.execute("UPDATE orders SET n = n + 1")
            update = partial(execute, database18, "UPDATE orders SET n = n + 1")
            with recording(database18) as taken, working(database18, update, update):
                taken.await_sessions(2 * ENOUGH, is_locked)
            holder.rollback()
    finally:
        for process in burning:
            process.kill()
            process.wait()
    found = diagnose(taken.recording)
    assert [found[0].code, found[-1].code] == ["lock-wait", "other-programs"]
    assert "waits-disagree-with-cpu" not in [each.code for each in found]


@pytest.mark.part("rest")
@pytest.mark.parametrize("major", [18, 15])
def test_healthy_workloads_have_none_of_these_causes(new_server: Callable[..., EmbeddedServer], major: int) -> None:
    """TPC-B, a load of rows, and VACUUM, one after the other on a server as it comes."""
    server = new_server(major, fsync="on", full_page_writes="on")
    conninfo = server.ensure_running()
    pgbench = find_pgbench(server)
    with recording(conninfo) as taken:
        subprocess.run([pgbench, "--initialize", "--quiet", "--scale=5", conninfo], check=True, capture_output=True)
        subprocess.run([pgbench, "-c", "4", "-T", "5", conninfo], check=True, capture_output=True)
        execute(conninfo, "VACUUM (FULL) pgbench_accounts", "VACUUM ANALYZE pgbench_accounts")
    causes = {"deadlocks", "lock-queue", "checkpoints-forced", "checkpoints-timed", "connections-short"}
    causes |= {"sequential-scan", "no-statistics", "statement-spills", "foreign-key-unindexed", "xmin-held"}
    found = examine(taken.recording)
    assert not {*causes, "connections-taken"} & {each.code for each in found.diagnoses}
    # The disk is this machine's.
    assert {each.code for each in found.risks} <= {"disk-full"}
