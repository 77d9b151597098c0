"""What recordings of real runs are diagnosed as: what has the bottleneck, and what has not."""

from __future__ import annotations

import subprocess
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.diagnose.examination import diagnose
from penstock.watch.rates import measure_rates
from penstock_lab.bench.commits.experiment import MY_INSERT
from support.recorded import execute, find_pgbench, recording, working

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.embedded.server import EmbeddedServer
    from penstock.watch.values import Recording, Sample
    from penstock_lab.topology.lab import Lab

# More than are needed to claim anything.
ENOUGH = 40

INSERT_DOCUMENT = """
    INSERT INTO documents SELECT to_tsvector('simple', string_agg(md5(random()::text), ' ')) FROM generate_series(1, 30)
"""

WRONG = {
    "commit-local-flush",
    "commit-standby",
    "commit-aurora-storage",
    "standby-missing",
    "lock-wait",
    "client-bound",
}


def codes(recorded: Recording) -> list[str]:
    """Return the codes of what is found."""
    return [found.code for found in diagnose(recorded)]


def xids_per_s(samples: list[Sample]) -> float:
    """Return the transactions a second that took numbers."""
    first, last = samples[0], samples[-1]
    assert last.progress.next_xid is not None
    assert first.progress.next_xid is not None
    return (last.progress.next_xid - first.progress.next_xid) / (last.at_s - first.at_s)


@pytest.mark.part("rest")
def test_commits_behind_a_slow_local_flush(new_server: Callable[..., EmbeddedServer]) -> None:
    """Each flush takes 20 ms, as on a slow disk: who leads the group sleeps so long, the others wait behind it."""
    conninfo = new_server(fsync="on", commit_delay="20000", commit_siblings="0").ensure_running()
    execute(conninfo, MY_INSERT)
    insert = "DO $$BEGIN FOR i IN 1..1000 LOOP INSERT INTO demo VALUES (i * 10 + %s, i); COMMIT; END LOOP; END$$"
    with recording(conninfo) as taken, working(
        conninfo, *(lambda number=number: execute(conninfo, insert % number) for number in range(4))
    ):  # fmt: skip
        taken.await_sessions(5 * ENOUGH)
    first = diagnose(taken.recording)[0]
    assert first.code == "commit-local-flush"
    assert first.confidence != "too few samples"
    assert "of this, application worker" in [number.name for number in first.evidence]


@pytest.mark.part("rest")
def test_commits_of_a_quorum_wait_for_standbys_and_then_for_missing_ones(quorum: Lab) -> None:
    """One more than a zone is lost while a procedure runs: those that are missing are named, and no others."""
    conninfo = quorum.conninfo()
    execute(conninfo, MY_INSERT)
    with working(conninfo, lambda: execute(conninfo, "CALL my_insert(1000000, 1)")):
        with recording(conninfo, interval_s=0.1) as taken:
            taken.await_sessions(ENOUGH)
        assert codes(taken.recording)[0] == "commit-standby"
        rates = measure_rates(taken.samples)
        assert rates.commits_per_s == pytest.approx(xids_per_s(taken.samples), rel=0.05)
        assert rates.rows_per_commit == pytest.approx(1, rel=0.5)
        assert not rates.is_exact
        quorum.kill("zone-b")
        quorum.kill("c1")
        with recording(conninfo) as taken:
            taken.await_sessions(ENOUGH)
        quorum.heal()
    first = diagnose(taken.recording)[0]
    assert first.code == "standby-missing"
    assert first.share > 0.9
    assert "are missing: b1, b2, c1" in first.claim


@pytest.mark.part("rest")
@pytest.mark.parametrize(("rows", "rows_per_commit"), [(200_000, 1), (600_000, 100)])
@pytest.mark.parametrize("begins", ["before", "during"])
def test_rates_of_a_procedure_hold_when_its_counters_arrive(
    database: str, rows: int, rows_per_commit: int, begins: str
) -> None:
    """Whether the recording begins before the procedure or while it runs; all of it is counted when it ends."""
    execute(database, MY_INSERT)
    call = f"CALL my_insert({rows}, {rows_per_commit})"
    if begins == "before":
        with recording(database, interval_s=0.1) as taken:
            execute(database, call)
            taken.await_samples(15)
    else:
        with working(database, lambda: execute(database, call)) as threads:
            time.sleep(0.3)
            with recording(database, interval_s=0.1) as taken:
                threads[0].join()
                taken.await_samples(15)
    assert any(session.application == "worker" for sample in taken.samples for session in sample.sessions)
    found = measure_rates(taken.samples)
    assert found.is_exact
    assert found.commits_per_s == pytest.approx(xids_per_s(taken.samples), rel=0.05)
    assert found.rows_per_commit == pytest.approx(rows_per_commit, rel=0.05)


@pytest.mark.part("rest")
@pytest.mark.parametrize("rows_per_commit", [1, 10, 100])
def test_rows_per_commit_are_estimated_while_a_procedure_runs(database18: str, rows_per_commit: int) -> None:
    """Within a factor of two, from WAL."""
    execute(database18, MY_INSERT)
    with working(database18, lambda: execute(database18, f"CALL my_insert(100000000, {rows_per_commit})")):
        with recording(database18, interval_s=0.2) as taken:
            taken.await_sessions(10)
        found = measure_rates(taken.samples)
    assert not found.is_exact
    assert found.rows_per_commit is not None
    assert rows_per_commit / 2 < found.rows_per_commit < rows_per_commit * 2
    assert found.commits_per_s == pytest.approx(xids_per_s(taken.samples), rel=0.05)


def test_holder_of_a_lock_that_is_idle_in_its_transaction_is_named(database: str) -> None:
    """With its pid, application and last statement."""
    execute(database, "CREATE TABLE orders (id int PRIMARY KEY)", "INSERT INTO orders VALUES (1)")
    update = "UPDATE orders SET id = id"
    with psycopg.connect(database, application_name="report") as holder:
        holder.execute("UPDATE orders SET id = id WHERE id = 1")
        with recording(database) as taken, working(database, *[lambda: execute(database, update)] * 2):
            taken.await_sessions(ENOUGH, lambda session: session.wait_event_type == "Lock")
        pid = holder.info.backend_pid
        holder.rollback()
    first = diagnose(taken.recording)[0]
    assert first.code == "lock-wait"
    assert f"backend {pid} (application report, user postgres), idle in transaction" in first.claim
    assert "UPDATE orders SET id = id WHERE id = ?" in first.claim
    assert not WRONG - {"lock-wait"} & set(codes(taken.recording))


@pytest.mark.part("rest")
def test_copy_from_a_slow_client_is_bound_by_it(database18: str) -> None:
    """The server waits for more of the file."""
    execute(database18, "CREATE TABLE target (id int)")
    with (
        recording(database18) as taken,
        psycopg.connect(database18) as client,
        client.cursor().copy("COPY target FROM STDIN") as copy,
    ):
        while sum(map(len, (sample.sessions for sample in list(taken.samples)))) < ENOUGH:
            copy.write_row((1,))
            time.sleep(0.01)
    assert [code for code in codes(taken.recording) if code in WRONG] == ["client-bound"]


def test_sessions_that_compute_are_bound_by_processors(database18: str) -> None:
    """Twice as many as there are processors."""
    compute = "DO $$BEGIN FOR i IN 1..1000000000 LOOP PERFORM i; END LOOP; END$$"
    with recording(database18) as taken:
        cpus = taken.header.cpu_count
        assert cpus is not None
        with working(database18, *[lambda: execute(database18, compute)] * (2 * cpus)):
            taken.await_sessions(ENOUGH * cpus)
            recorded = taken.recording
    first = diagnose(recorded)[0]
    assert first.code == "cpu-bound"
    assert not WRONG & set(codes(recorded))


@pytest.mark.part("rest")
@pytest.mark.pg(">= 18")
@pytest.mark.parametrize(
    ("statement", "code", "named"),
    [
        # A wait class of its own since PostgreSQL 19
        ("PERFORM nextval('numbers')", "lwlock-contention", "BufferContent"),
        (INSERT_DOCUMENT, "relation-extension", "extend"),
    ],
)
def test_sessions_that_contend_wait_for_one_another(database: str, statement: str, code: str, named: str) -> None:
    """24 sessions use one sequence, whose page is locked for each number; or they extend a table and its GIN index."""
    create = "CREATE TABLE documents (words tsvector)", "CREATE INDEX ON documents USING gin (words)"
    execute(database, "CREATE SEQUENCE numbers", *create)
    work = f"DO $$BEGIN LOOP {statement}; END LOOP; END$$"
    with recording(database) as taken, working(database, *[partial(execute, database, work)] * 24):
        taken.await_sessions(24 * ENOUGH)
    first = diagnose(taken.recording)[0]
    assert first.code == code
    assert named in first.claim


@pytest.mark.part("rest")
def test_short_reads_are_nothing_remarkable(new_server: Callable[..., EmbeddedServer]) -> None:
    """Pgbench -S, by as many clients as the machine here has processors; nobody else commits, autovacuum neither."""
    server = new_server(autovacuum="off")
    database = server.ensure_running()
    pgbench = find_pgbench(server)
    subprocess.run([pgbench, "--initialize", "--quiet", "--scale=1", database], check=True, capture_output=True)
    # What made the tables is counted by then, by PostgreSQL 14's collector too.
    time.sleep(2)
    with recording(database) as taken:
        subprocess.run([pgbench, "-S", "-c", "2", "-T", "4", database], check=True, capture_output=True)
    assert not WRONG & set(codes(taken.recording))
    rates = measure_rates(taken.samples)
    assert rates.commits_per_s is not None
    assert rates.commits_per_s > 10
    assert rates.rows_per_commit is None or rates.rows_per_commit < 5


@pytest.mark.part("rest")
def test_long_transaction_alone_is_nothing_remarkable(database18: str) -> None:
    """It writes for a while, and is then left open: nobody waits for it."""
    execute(database18, "CREATE TABLE target (id int PRIMARY KEY)")
    with recording(database18) as taken, psycopg.connect(database18) as client:
        client.execute("INSERT INTO target SELECT generate_series(1, 1000000)")
        taken.await_samples(ENOUGH)
        client.rollback()
    assert not WRONG & set(codes(taken.recording))


@pytest.mark.part("rest")
def test_autovacuum_of_the_table_that_is_changed_is_named(new_server: Callable[..., EmbeddedServer]) -> None:
    """Its worker never sleeps, and the processors are all in use."""
    conninfo = new_server(autovacuum_naptime="1s", autovacuum_vacuum_cost_delay="0").ensure_running()
    eager = "autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000"
    rows = "SELECT n AS id, 0 AS n FROM generate_series(1, 1500000) n"
    execute(conninfo, f"CREATE TABLE orders WITH ({eager}) AS {rows}", *["CREATE INDEX ON orders (id)"] * 3)
    ended = threading.Event()

    def change(remainder: int) -> None:
        # Each statement is a transaction: autovacuum learns of changed rows when a transaction has ended.
        while not ended.is_set():
            execute(conninfo, f"UPDATE orders SET n = n + 1 WHERE id % 20 = {remainder}")

    working_now = "SELECT count(*) FROM pg_stat_progress_vacuum"
    with working(conninfo, *(partial(change, number) for number in range(2))):
        try:
            with psycopg.connect(conninfo, autocommit=True) as watcher:
                while watcher.execute(working_now).fetchone() == (0,):
                    time.sleep(0.05)
            # Before, autovacuum was in nobody's way.
            with recording(conninfo) as taken:
                taken.await_sessions(ENOUGH, lambda session: session.backend_type == "autovacuum worker")
        finally:
            ended.set()
    found = {each.code: each for each in diagnose(taken.recording)}
    assert "autovacuum on public.orders" in found["autovacuum"].claim
