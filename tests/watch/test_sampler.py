"""What the sampler sees of real servers, of every version."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from penstock.commits.probe import probe_commits
from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import ServerError
from penstock.core.host.disks import find_device
from penstock.core.host.process import process_cpu_s
from penstock.core.values.device import TieredCache
from penstock.watch import activity
from penstock.watch.activity import ask_tiered_cache
from penstock.watch.sampler import Sampler, sample_on_clock
from penstock.watch.view import View, describe_tiered_cache
from support.stopped import stopped_backend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.core.errors import PenstockError
    from penstock.embedded.server import EmbeddedServer
    from penstock.watch.values import Sample, SessionSample


@pytest.fixture
def disk_folder(database18: str) -> Iterator[Path]:
    """Provide a folder on a disk that the server may use as a tablespace."""
    with psycopg.connect(database18) as connection:
        row = connection.execute("SELECT current_setting('data_directory')").fetchone()
    assert row is not None
    owner = Path(row[0]).stat()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        Path(name).chmod(0o755)
        folder = Path(name, "tablespace")
        folder.mkdir(mode=0o700)
        if os.geteuid() == 0:
            os.chown(folder, owner.st_uid, owner.st_gid)
        yield folder


@contextmanager
def sampling(conninfo: str, **options: bool) -> Iterator[Sampler]:
    """Provide a sampler, closed at the end."""
    sampler = Sampler(ConnectionFactory(conninfo, allows_standby=True), interval_s=0.1, **options)
    try:
        yield sampler
    finally:
        sampler.close()


def sample_until(sampler: Sampler, is_seen: Callable[[SessionSample], bool]) -> SessionSample:
    """Return the first session that will do."""
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s:
        for session in sampler.sample().sessions:
            if is_seen(session):
                return session
        time.sleep(0.05)
    raise AssertionError("no such session was seen")


def views_of(major: int) -> set[str]:
    """Return the views that a primary without extensions has rows in, or may have."""
    newer = {16: {"pg_stat_io"}, 17: {"pg_stat_checkpointer"}}
    common = {"pg_stat_database", "pg_stat_bgwriter", "pg_stat_wal", "pg_stat_replication", "pg_stat_wal_receiver"}
    common |= {"temp_files", "pg_statio_user_indexes", "connections", "prepared", *activity.SLOW}
    common |= {f"pg_stat_progress_{command}" for command in ("copy", "create_index", "vacuum")}
    return common.union(*(views for since, views in newer.items() if major >= since))


def test_each_version_gives_the_views_that_it_has(database: str) -> None:
    """Newer versions have more; what is missing is not read, and no error."""
    with sampling(database) as sampler:
        sample = sampler.sample()
        major = sampler.header.version_num // 10_000
    # The tests' servers are in memory, or on a disk, and on this machine, or elsewhere.
    assert set(sample.counters) - {"host_devices", "host_processes"} == views_of(major)
    (own,) = [row for row in sample.counters["pg_stat_database"] if row["datname"] == sampler.header.database]
    assert own["xact_commit"] >= 0  # type: ignore[operator]
    assert sample.progress.wal_bytes
    assert sample.progress.next_xid
    assert [unread.what for unread in sampler.header.unread] == ["pg_stat_statements"]


def test_sampler_is_not_in_its_samples(database: str) -> None:
    """Neither its session nor its statement."""
    with sampling(database) as sampler:
        sessions = [session for _ in range(5) for session in sampler.sample().sessions]
    assert not [session for session in sessions if "observe" in (session.application or "")]


@pytest.mark.part("rest")
def test_own_transactions_are_those_that_the_server_counted(database: str) -> None:
    """In a database where nobody else works, what its counter gained is the sampler's.

    A worker of autovacuum may come at any time, and commits too; not each of three times.
    """
    assert any(0 < gained <= own for gained, own in (count_commits(database) for _ in range(3)))


def count_commits(database: str) -> tuple[int, int]:
    """Return what a database's counter gained while it was sampled, and the most that the sampler says is its own."""
    with sampling(database) as sampler:
        samples = [sampler.sample(reads_all=True)]
        while not has_moved(samples, sampler.header.database):
            time.sleep(0.1)
            samples.append(sampler.sample(reads_all=True))
    commits = [commits_of(sample, sampler.header.database) for sample in samples]
    # The session reports once a second: what it did of late is not counted yet. Version 14 cannot be made to report
    # what connecting took before the first sample.
    return commits[-1] - commits[0], samples[-1].own_commits + (40 if sampler.header.version_num < 150_000 else 0)


def has_moved(samples: list[Sample], database: str) -> bool:
    """Return whether the database's counter arrived twice."""
    counts = {commits_of(sample, database) for sample in samples}
    return len(samples) > 200 or (len(samples) > 30 and len(counts) > 1)


def commits_of(sample: Sample, database: str) -> int:
    """Return what a database has committed."""
    (row,) = [row for row in sample.counters["pg_stat_database"] if row["datname"] == database]
    count = row["xact_commit"]
    assert isinstance(count, int)
    return count


def test_queries_are_planned_once(database: str) -> None:
    """Three statements, however many views are read: sessions, progress, and all views."""
    with sampling(database) as sampler:
        for _ in range(3):
            sampler.sample(reads_all=True)
        rows = sampler._reader._connection.execute(
            "SELECT generic_plans FROM pg_prepared_statements WHERE custom_plans = 0"
        ).fetchall()
    # Others are of the sampler's start.
    assert rows.count((3,)) == 3


def test_busy_processors_are_not_measured_over_a_moment(database18: str) -> None:
    """Ticks of 10 ms within a millisecond would be ten processors, so the next sample has them."""
    now_s = iter([0.0, 1.0, 1.001, 2.0])
    sampler = Sampler(ConnectionFactory(database18), interval_s=1.0, clock=lambda: next(now_s))
    try:
        busy = [sampler.sample().host_busy_cpus for _ in range(3)]
    finally:
        sampler.close()
    assert [each is None for each in busy] == [False, True, False]


@pytest.mark.part("rest")
def test_processor_time_of_the_server_has_that_of_sessions_that_have_ended(database18: str) -> None:
    """A session computes, and ends before the second reading."""
    with sampling(database18) as sampler:
        first = sampler.sample(reads_all=True)
        if "host_processes" not in first.counters:
            pytest.skip("the server's processes are not seen here")
        with psycopg.connect(database18, autocommit=True) as connection:
            pid = connection.info.backend_pid
            connection.execute("DO $$BEGIN FOR i IN 1..2000000 LOOP PERFORM i; END LOOP; END$$")
            spent_s = process_cpu_s(pid)
        deadline_s = time.monotonic() + 60
        while process_cpu_s(pid) is not None:
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
        last = sampler.sample(reads_all=True)
    own_s, all_s = (
        float(str(last.counters["host_processes"][0][name])) - float(str(first.counters["host_processes"][0][name]))
        for name in ("server_cpu_s", "busy_cpu_s")
    )
    assert spent_s is not None
    # Ended processes are counted in ticks of 10 ms.
    assert own_s > spent_s - 0.02
    assert all_s > own_s - 0.1


def test_connections_are_counted_by_application(database18: str) -> None:
    """With those that are idle, and without the sampler's own."""
    name = "counted in test_sampler"
    with sampling(database18) as sampler, psycopg.connect(database18, application_name=name, autocommit=True):
        rows = sampler.sample(reads_all=True).counters["connections"]
    (row,) = [row for row in rows if row["application"] == name]
    assert (row["user"], row["connections"], row["idle"]) == ("postgres", 1, 1)
    assert "penstock observe" not in [row["application"] for row in rows]
    assert int(str(row["of_all"])) >= 1
    assert int(str(row["idle_of_all"])) >= 1


def test_idle_session_that_blocks_others_is_seen(database: str) -> None:
    """An advisory lock of a session outlives its transactions; without one who waits, an idle session is no news."""
    lock = "SELECT pg_advisory_lock(1)"
    with psycopg.connect(database, autocommit=True) as holder, sampling(database) as sampler:
        holder.execute(lock)
        assert holder.info.backend_pid not in [session.pid for session in sampler.sample().sessions]
        with psycopg.connect(database, autocommit=True) as waiter:
            waiting = threading.Thread(target=waiter.execute, args=(lock,))
            waiting.start()
            seen = sample_until(sampler, lambda session: session.pid == holder.info.backend_pid)
            holder.execute("SELECT pg_advisory_unlock(1)")
            waiting.join()
    assert (seen.state, seen.query) == ("idle", "SELECT pg_advisory_lock(?)")


def test_waiting_session_is_seen_with_who_blocks_it(database18: str) -> None:
    """By pid, with the statement without its literals."""
    with psycopg.connect(database18, autocommit=True) as holder, sampling(database18) as sampler:
        holder_pid = holder.info.backend_pid
        holder.execute("CREATE TABLE held (id int)")
        holder.execute("BEGIN; LOCK held; SELECT 'secret'")
        with psycopg.connect(database18, autocommit=True, application_name="waits") as waiter:
            waiting = threading.Thread(
                target=waiter.execute, args=("SELECT * FROM held WHERE id IN (1, 2) AND 'secret' <> ''",)
            )
            waiting.start()
            seen = sample_until(sampler, lambda session: session.wait_event_type == "Lock")
            blocker = sample_until(sampler, lambda session: session.pid == holder_pid)
            holder.execute("COMMIT")
            waiting.join()
    assert seen.application == "waits"
    assert seen.blocked_by == (holder_pid,)
    assert seen.query == "SELECT * FROM held WHERE id IN (?, ...) AND ? <> ?"
    assert blocker.state == "idle in transaction"
    assert blocker.query == "BEGIN; LOCK held; SELECT ?"


def test_query_text_is_whole_if_asked_for(database18: str) -> None:
    """With the literals that it has."""
    with psycopg.connect(database18) as other, sampling(database18, with_query_text=True) as sampler:
        other.execute("SELECT 'kept'")
        seen = sample_until(sampler, lambda session: session.pid == other.info.backend_pid)
    assert seen.query == "SELECT 'kept'"
    assert sampler.header.has_query_text


def test_ordinary_role_is_told_what_it_cannot_see(pg18: object, database18: str) -> None:
    """Others' sessions are there, without what they do; the header says why."""
    role = sql.Identifier("sees little")
    with psycopg.connect(database18) as other, psycopg.connect(database18, autocommit=True) as admin:
        other.execute("SELECT 1")
        admin.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'hunter2'").format(role))
        try:
            with sampling(make_conninfo(database18, user="sees little", password="hunter2")) as sampler:
                seen = sample_until(sampler, lambda session: session.pid == other.info.backend_pid)
        finally:
            admin.execute(sql.SQL("DROP ROLE {}").format(role))
    assert (seen.state, seen.wait_event, seen.query) == (None, None, None)
    unread = {found.what: found.why for found in sampler.header.unread}
    assert unread["activity of other roles"] == "the role is not a member of pg_read_all_stats"


def test_lost_connection_is_made_again(database18: str) -> None:
    """A backend that is killed costs ticks, not the recording."""
    lost: list[PenstockError] = []
    stop = threading.Event()
    seen: list[Sample] = []
    with sampling(database18) as sampler, psycopg.connect(database18, autocommit=True) as admin:
        for sample in sample_on_clock(sampler, interval=lambda: 0.05, stop=stop, on_lost=lost.append):
            seen.append(sample)
            if len(seen) == 3:
                query = (
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND application_name LIKE '%observe'"
                )
                assert admin.execute(query).fetchall() == [(True,)]
            if len(seen) == 6:
                stop.set()
    assert len(lost) == 1
    assert len(seen) == 7
    assert [sample.at_s for sample in seen] == sorted(sample.at_s for sample in seen)


def test_session_in_which_another_thread_waits_is_not_closed(database18: str) -> None:
    """What is opened next could get its socket, and the thread would read what is meant for that."""
    taken: list[Sample] = []
    with sampling(database18) as sampler:
        with stopped_backend(database18, "observe"):
            waiting = threading.Thread(target=lambda: taken.append(sampler.sample()))
            waiting.start()
            while not sampler._in_use.locked():
                time.sleep(0.01)
            sampler.close()
        waiting.join()
    assert len(taken) == 1


def test_intervals_are_those_of_the_clock(database18: str) -> None:
    """Each sample's interval is the time since the one before, however late its tick came."""
    stop = threading.Event()
    seen = []
    with sampling(database18) as sampler:
        for sample in sample_on_clock(sampler, interval=lambda: 0.05, stop=stop, for_s=1.0):
            seen.append(sample)
            time.sleep(0.02 * (len(seen) % 5))
    for before, after in pairwise(seen):
        assert after.interval_s == pytest.approx(after.at_s - before.at_s)
    assert seen[-1].counters


@pytest.mark.part("rest")
def test_statements_are_read_where_the_extension_is(new_server: Callable[..., EmbeddedServer], debian15: int) -> None:
    """Rows of those that were called meanwhile, their texts without literals."""
    server = new_server(debian15, shared_preload_libraries="pg_stat_statements")
    conninfo = server.ensure_running()
    with psycopg.connect(conninfo, autocommit=True) as other:
        other.execute("CREATE SCHEMA ext; CREATE EXTENSION pg_stat_statements SCHEMA ext")
        with sampling(conninfo) as sampler:
            sampler.sample()
            other.execute("SELECT 'secret' AS planted")
            other.execute("SET application_name = 'secret'")
            rows = sampler.sample(reads_all=True).counters["pg_stat_statements"]
            again = sampler.sample(reads_all=True).counters["pg_stat_statements"]
    texts = [row["query"] for row in rows]
    assert "SELECT $1 AS planted" in texts
    assert "SET application_name = ?" in texts
    assert "SELECT $1 AS planted" not in [row["query"] for row in again]


def test_commits_of_auroras_storage_are_read_by_its_function(database18: str) -> None:
    """A fake: functions of Aurora's names that return what a test says; the real ones run on Aurora alone."""
    with psycopg.connect(database18, autocommit=True) as admin:
        admin.execute("SET allow_system_table_mods = on")
        admin.execute("CREATE FUNCTION pg_catalog.aurora_version() RETURNS text LANGUAGE sql AS $$ SELECT '17.4' $$")
        admin.execute(
            "CREATE FUNCTION pg_catalog.aurora_stat_get_db_commit_latency(oid) RETURNS bigint LANGUAGE sql"
            " AS $$ SELECT CASE datname WHEN current_database() THEN 1234 END FROM pg_database WHERE oid = $1 $$"
        )
        admin.execute(
            "CREATE FUNCTION pg_catalog.aurora_stat_optimized_reads_cache(OUT total_size bigint, OUT used_size bigint)"
            " RETURNS SETOF record LANGUAGE sql AS $$ SELECT 1054000000000, 975000000000 $$"
        )
    with sampling(database18) as sampler:
        read = sampler.sample()
        rows = read.counters["aurora_commits"]
        # Unless wal_level is logical, Aurora's functions for WAL positions raise an error.
        assert read.progress.wal_bytes is None
        seen = View.of(sampler.header, [read])
    assert seen.tiered_cache == TieredCache(total_bytes=1054 * 10**9, used_bytes=975 * 10**9)
    assert describe_tiered_cache(seen.tiered_cache) == "tiered cache: 975 GB of 1.05 TB used (93%)"
    with psycopg.connect(database18, autocommit=True) as admin:
        assert ask_tiered_cache(admin) == seen.tiered_cache
        admin.execute("SET allow_system_table_mods = on")
        # Aurora's own function raises an error if the cache is off.
        admin.execute("DROP FUNCTION pg_catalog.aurora_stat_optimized_reads_cache()")
        assert ask_tiered_cache(admin) is None
    assert sampler.header.flavour == "aurora"
    (own,) = [row for row in rows if row["datname"] == sampler.header.database]
    assert own["commit_latency_us"] == 1234


@pytest.mark.parametrize("encoding", ["UTF8", "SQL_ASCII", "LATIN1", "EUC_JP", "EUC_TW"])
def test_text_that_is_none_in_this_encoding_is_no_error(database18: str, encoding: str) -> None:
    """Sessions of other databases are in these encodings, and those of SQL_ASCII in none."""
    name = sql.Identifier(f"reader {encoding}")
    with psycopg.connect(database18, autocommit=True) as admin:
        for other, its in ((name, encoding), (sql.Identifier("any bytes"), "SQL_ASCII")):
            made = "CREATE DATABASE {} ENCODING {} LOCALE 'C' LOCALE_PROVIDER libc TEMPLATE template0"
            admin.execute(sql.SQL(made).format(other, its))
        try:
            conninfo = make_conninfo(database18, dbname="any bytes", client_encoding="SQL_ASCII")
            with (
                psycopg.connect(conninfo) as writer,
                sampling(make_conninfo(database18, dbname=name._obj[0])) as sampler,
            ):
                writer.execute(b"SET application_name = 'caf\xe9'; SELECT 'se\xe9' AS \"\xe9'\xff\", 'cret'")
                seen = sample_until(sampler, lambda session: session.pid == writer.info.backend_pid)
        finally:
            for other in (name, sql.Identifier("any bytes")):
                admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(other))
    assert seen.application is not None
    assert seen.application.startswith("caf")
    assert seen.query is not None
    assert seen.query.startswith("SET application_name = ?; SELECT ? AS ")
    assert seen.query.endswith(", ?")


def test_end_without_a_server_keeps_what_was_seen(database18: str) -> None:
    """The last sample is reported as lost, and the time without samples stands for no sessions."""
    lost: list[PenstockError] = []
    stop = threading.Event()
    query = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name LIKE '%observe'"
    with sampling(database18) as sampler, psycopg.connect(database18, autocommit=True) as admin:
        samples = sample_on_clock(sampler, interval=lambda: 0.05, stop=stop, on_lost=lost.append)
        next(samples)
        admin.execute(query)
        stop.set()
        assert list(samples) == []
        assert len(lost) == 1
        time.sleep(0.5)
        began_s = time.monotonic()
        sampler.reconnect()
        assert sampler.sample().interval_s <= time.monotonic() - began_s


def test_settings_that_were_changed_meanwhile_are_read_again(database18: str) -> None:
    """A history of weeks outlives its server's restarts and reloads."""
    with sampling(database18) as sampler, psycopg.connect(database18, autocommit=True) as admin:
        before = sampler.header.settings["max_slot_wal_keep_size"]
        admin.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '17GB'")
        try:
            admin.execute("SELECT pg_reload_conf()")
            ends_s = time.monotonic() + 60
            while sampler.header.settings["max_slot_wal_keep_size"] == before and time.monotonic() < ends_s:
                sampler.sample(reads_all=True)
            assert sampler.header.settings["max_slot_wal_keep_size"] == "17GB"
        finally:
            admin.execute("ALTER SYSTEM RESET max_slot_wal_keep_size")
            admin.execute("SELECT pg_reload_conf()")


@pytest.mark.part("rest")
def test_outage_is_reported_once(new_server: Callable[..., EmbeddedServer]) -> None:
    """However many ticks it lasts: a server that is away for ten minutes must not fill the terminal."""
    server = new_server()
    lost: list[PenstockError] = []
    stop = threading.Event()
    with sampling(server.ensure_running()) as sampler:
        ticks = iter(range(100))

        def tick() -> float:
            if next(ticks) == 8:
                stop.set()
            return 0.05

        samples = sample_on_clock(sampler, interval=tick, stop=stop, on_lost=lost.append)
        next(samples)
        server.stop("immediate")
        assert list(samples) == []
    assert len(lost) == 1


@pytest.mark.part("rest")
def test_probe_gives_up_a_commit_that_nobody_acknowledges(new_server: Callable[..., EmbeddedServer]) -> None:
    """A standby that is missing is waited for without end."""
    conninfo = new_server().ensure_running()
    with psycopg.connect(conninfo, autocommit=True) as admin:
        admin.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        admin.execute("SELECT pg_reload_conf()")
        while admin.execute("SHOW synchronous_standby_names").fetchone() != ("nobody",):
            time.sleep(0.05)
    with pytest.raises(ServerError, match="was not acknowledged within 1 s"):
        probe_commits(ConnectionFactory(conninfo), give_up_s=1.0)


def test_temporary_files_are_sampled_by_tablespace_and_backend(database18: str) -> None:
    """A cursor that sorts keeps its files."""
    with psycopg.connect(database18) as connection, sampling(database18) as sampler:
        connection.execute("SET work_mem = '64kB'")
        connection.execute("DECLARE c CURSOR FOR SELECT g FROM generate_series(1, 200000) AS g ORDER BY -g")
        connection.execute("FETCH 1 FROM c")
        sample = sampler.sample(reads_all=True)
        pid = connection.info.backend_pid
    (spill,) = [row for row in sample.counters["temp_files"] if row["pid"] == pid]
    assert spill["tablespace"] == "pg_default"
    assert int(str(spill["bytes"])) > 1_000_000


def test_devices_below_tablespaces_are_sampled(database18: str, disk_folder: Path) -> None:
    """One that is on a disk has its counters and its space."""
    with psycopg.connect(database18, autocommit=True) as connection:
        name = f"disk_{connection.info.dbname}"
        connection.execute(
            sql.SQL("CREATE TABLESPACE {} LOCATION {}").format(sql.Identifier(name), sql.Literal(str(disk_folder)))
        )
        try:
            with sampling(database18) as sampler:
                samples = [sampler.sample(reads_all=True) for _ in range(2)]
        finally:
            connection.execute(sql.SQL("DROP TABLESPACE {}").format(sql.Identifier(name)))
    device = find_device(disk_folder)
    assert device is not None
    if device.number is None:
        pytest.skip(f"{device.file_system} has no block device")
    first, second = (
        next(row for row in each.counters["host_devices"] if row["tablespace"] == name) for each in samples
    )
    assert first["device"] == second["device"] == device.name
    assert float(str(second["at_s"])) > float(str(first["at_s"]))
    assert 0 < int(str(second["free_bytes"])) < int(str(second["size_bytes"]))


def test_a_role_without_pg_monitor_is_told_that_temporary_files_are_not_read(user_conninfo: str) -> None:
    """As of everything else that it may not see."""
    with sampling(user_conninfo) as sampler:
        assert "temp_files" in [unread.what for unread in sampler.header.unread]
        assert "temp_files" not in sampler.sample(reads_all=True).counters


@pytest.mark.part("rest")
@pytest.mark.pg(">= 19")
def test_parallel_worker_of_autovacuum_has_its_leaders_statement(
    new_server: Callable[..., EmbeddedServer], pg_major: int
) -> None:
    """The server shows none of its own: it would count as a client's session that waits for nothing."""
    conninfo = new_server(
        pg_major,
        autovacuum_naptime="1s",
        autovacuum_vacuum_cost_delay="0",
        autovacuum_max_parallel_workers="2",
        min_parallel_index_scan_size="0",
    ).ensure_running()
    eager = "autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000"
    with psycopg.connect(conninfo, autocommit=True) as admin, sampling(conninfo) as sampler:
        admin.execute(f"CREATE TABLE orders WITH ({eager}) AS SELECT n AS id FROM generate_series(1, 500000) AS n")
        for _ in range(3):
            admin.execute("CREATE INDEX ON orders (id)")
        admin.execute("DELETE FROM orders WHERE id % 2 = 0")
        found = sample_until(sampler, lambda session: session.leader_pid is not None)
    assert found.backend_type == "autovacuum worker"
    assert (found.query or "").startswith("autovacuum: VACUUM")


def test_a_sequence_that_another_session_has_locked_does_not_stop_the_sampler(database: str) -> None:
    """The sequences are missing from this sample, and there in the next. Nothing else is."""
    with psycopg.connect(database) as other:
        other.execute("CREATE TABLE orders (id serial)")
        other.commit()
        with sampling(database) as sampler:
            other.execute("TRUNCATE orders RESTART IDENTITY")
            seen = sampler.sample(reads_all=True).counters
            assert "pg_stat_database" in seen
            assert {*activity.SLOW} - {*seen} == {"sequences"}
            other.rollback()
            (row,) = sampler.sample(reads_all=True).counters["sequences"]
            assert (row["sequencename"], row["last_value"], row["last_possible"]) == ("orders_id_seq", None, 2**31 - 1)


def test_a_sequence_ends_where_the_domain_of_its_column_does(database: str) -> None:
    """A domain over integer holds what integer does, whatever the sequence's own maximum."""
    with psycopg.connect(database, autocommit=True) as other, sampling(database) as sampler:
        other.execute("CREATE DOMAIN key AS int; CREATE DOMAIN code AS key; CREATE SEQUENCE s")
        other.execute("CREATE TABLE t (id code DEFAULT nextval('s')); ALTER SEQUENCE s OWNED BY t.id")
        (row,) = sampler.sample(reads_all=True).counters["sequences"]
        assert (row["sequencename"], row["last_possible"]) == ("s", 2**31 - 1)


def test_sequences_count_the_numbers_that_they_have_drawn(database: str) -> None:
    """Upwards and downwards, to the end of the sequence or of its column."""
    with psycopg.connect(database, autocommit=True) as admin:
        for name, options, value in (
            ("up", "MAXVALUE 1000", 999),
            ("down", "INCREMENT -1 MINVALUE -1000", -999),
            ("upper", "MINVALUE 500 MAXVALUE 1000", 999),
            ("endless", "INCREMENT -1", -999),
            ("cycling", "INCREMENT -1 MINVALUE -1000 CYCLE", -999),
            ("ofcolumn", "INCREMENT -1", -32000),
        ):
            admin.execute(f"CREATE SEQUENCE {name} {options}; SELECT setval('{name}', {value})".encode())
        admin.execute("CREATE TABLE orders (id int2)")
        admin.execute("ALTER SEQUENCE ofcolumn OWNED BY orders.id")
    with sampling(database) as sampler:
        rows = sampler.sample(reads_all=True).counters["sequences"]
    assert {row["sequencename"]: (row["last_value"], row["last_possible"]) for row in rows} == {
        "up": (999, 1000),
        "down": (999, 1000),
        "upper": (500, 501),
        "ofcolumn": (32_000, 32_768),
    }
