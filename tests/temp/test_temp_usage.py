"""Temporary work as `penstock temp usage` reads it from real servers."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import AwsError
from penstock.rds.values import LocalStorageMetrics
from penstock.temp.usage.compare import compare_readings
from penstock.temp.usage.usage import explain_kept, read_usage, temp_usage
from penstock.temp.view import describe_usage

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.embedded.server import EmbeddedServer

SORT = "SELECT md5(g::text) FROM generate_series(1, 200000) AS g ORDER BY 1 OFFSET 199999"


@pytest.fixture
def counting(debian15: int, new_server: Callable[..., EmbeddedServer]) -> str:
    """Provide the conninfo of a server for this test alone that has loaded pg_stat_statements."""
    return new_server(debian15, shared_preload_libraries="pg_stat_statements").ensure_running()


def test_spills_of_a_database_are_those_within_the_interval(database: str) -> None:
    """What was spilled before the first reading is no part of the rate; what is missing is named."""
    with psycopg.connect(database, autocommit=True) as other, ConnectionFactory(database).connect() as watching:
        other.execute("SET work_mem = '64kB'")
        other.execute(SORT)
        _flush(other)
        before = read_usage(watching)
        idle = compare_readings(before, read_usage(watching), top=3)
        other.execute(SORT)
        _flush(other)
        report = compare_readings(before, read_usage(watching), top=3)
        name = other.info.dbname
    assert [each.bytes_per_s for each in idle.databases if each.name == name] == [0]
    assert [each.bytes_per_s > 0 for each in report.databases if each.name == name] == [True]
    assert "pg_default" in [each.name for each in report.tablespaces]
    assert any("CREATE EXTENSION pg_stat_statements" in text for text in report.missing)
    shown = describe_usage(report)
    (heading,) = (number for number, line in enumerate(shown) if line.startswith("Statements, most temporary bytes"))
    assert "none of temp replay" in shown[heading]
    assert shown[heading + 1] == "  not known"


@pytest.mark.part("rest")
def test_spills_and_temporary_tables_are_counted_apart(counting: str) -> None:
    """A sort has temp blocks alone; a temporary table beyond temp_buffers has local ones."""
    with psycopg.connect(counting, autocommit=True) as other, ConnectionFactory(counting).connect() as watching:
        other.execute("CREATE SCHEMA ext; CREATE EXTENSION pg_stat_statements SCHEMA ext")
        other.execute("SET temp_buffers = '800kB'; SET work_mem = '64kB'")
        other.execute(SORT)
        before = read_usage(watching)
        other.execute(SORT)
        other.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {SORT}".encode())
        with other.transaction():
            other.execute(f"DECLARE penstock_proof CURSOR FOR {SORT}".encode())
            other.execute("FETCH 1 FROM penstock_proof")
        other.execute("CREATE TEMPORARY TABLE kept AS SELECT md5(g::text) FROM generate_series(1, 200000) AS g")
        after = read_usage(watching)
    report = compare_readings(before, after, top=10)
    assert not [each for each in report.statements if each.query.startswith(("EXPLAIN (ANALYZE", "FETCH"))]
    (sort,) = [each for each in report.statements if each.query.startswith("SELECT md5")]
    (table,) = [each for each in report.statements if each.query.startswith("CREATE TEMPORARY")]
    assert sort.calls == 1
    assert sort.temp_written_bytes > 0
    assert sort.local_written_bytes == 0
    assert table.local_written_bytes > 0


@pytest.mark.part("rest")
def test_a_role_without_the_schema_of_the_extension_is_shown_what_is_left(counting: str) -> None:
    """Where pg_stat_statements has a schema of its own, its view needs more than PUBLIC has."""
    with psycopg.connect(counting, autocommit=True) as admin:
        admin.execute("CREATE SCHEMA ext; CREATE EXTENSION pg_stat_statements SCHEMA ext; CREATE ROLE ordinary LOGIN")
    report = temp_usage(ConnectionFactory(make_conninfo(counting, user="ordinary")), interval_s=0)
    assert report.statements == ()
    assert any(text.startswith("statements: permission denied for schema ext") for text in report.missing)


@pytest.mark.part("rest")
def test_a_statement_on_temporary_tables_is_shown_once(counting: str) -> None:
    """Each session's table gives it another queryid, which would fill the list."""
    with psycopg.connect(counting, autocommit=True) as other, ConnectionFactory(counting).connect() as watching:
        other.execute("CREATE EXTENSION pg_stat_statements")
        before = read_usage(watching)
        for _ in range(3):
            other.execute("CREATE TEMPORARY TABLE t AS SELECT g, repeat('x', 500) FROM generate_series(1, 40000) AS g")
            other.execute("SELECT count(*) FROM t")
            other.execute("DROP TABLE t")
        after = read_usage(watching)
    for report in (compare_readings(before, after, top=10), compare_readings(after, after, top=10)):
        calls = {each.query.split()[0]: each.calls for each in report.statements}
        assert (len(report.statements), calls) == (2, {"CREATE": 3, "SELECT": 3})


def test_an_ordinary_role_is_told_what_it_lacks(user_conninfo: str) -> None:
    """On each version: no file is seen then, and the tablespaces have their names."""
    report = temp_usage(ConnectionFactory(user_conninfo), interval_s=0)
    assert "GRANT pg_monitor to it" in "\n".join(report.missing)
    space = next(each for each in report.tablespaces if each.name == "pg_default")
    assert (space.temp_files, space.size_bytes) == (None, None)
    assert describe_usage(report)


def test_index_builds_of_large_tables_are_told_while_they_run(database: str) -> None:
    """A build that waits for a lock is at work, too."""
    with psycopg.connect(database, autocommit=True) as admin, psycopg.connect(database) as holder:
        admin.execute("CREATE TABLE large AS SELECT g FROM generate_series(1, 100000) AS g; CREATE TABLE small (a int)")
        admin.execute("VACUUM large")
        holder.execute("INSERT INTO large VALUES (1)")
        holder.execute("INSERT INTO small VALUES (1)")
        builders = [psycopg.connect(database, autocommit=True) for _ in range(2)]
        threads = [
            threading.Thread(target=builder.execute, args=(f"CREATE INDEX CONCURRENTLY ON {what}".encode(),))
            for builder, what in zip(builders, ("large (g)", "small (a)"), strict=True)
        ]
        for thread in threads:
            thread.start()
        name = admin.info.dbname
        while len(admin.execute("SELECT FROM pg_stat_progress_create_index WHERE datname = %s", [name]).fetchall()) < 2:
            pass
        conninfo = make_conninfo(database, options="-c maintenance_work_mem=1MB")
        (build,) = [each for each in temp_usage(ConnectionFactory(conninfo), interval_s=0).builds if each.name]
        holder.rollback()
        for thread in threads:
            thread.join()
        pid = builders[0].info.backend_pid
        for builder in builders:
            builder.close()
    assert (build.name, build.pid, build.database) == ("public.large", pid, name)
    assert build.table_bytes is not None
    assert build.table_bytes > 10**6


def test_a_build_that_holds_its_table_is_told_without_waiting_for_it(database: str) -> None:
    """ALTER TABLE holds the lock that the size of a table would need; the role waits for no lock here."""
    with psycopg.connect(database, autocommit=True) as admin, psycopg.connect(database, autocommit=True) as builder:
        admin.execute("CREATE TABLE held AS SELECT g FROM generate_series(1, 100000) AS g; ")
        admin.execute("VACUUM held")
        # The index waits for this while the table is held already.
        admin.execute(
            "CREATE FUNCTION slow(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS"
            " 'BEGIN PERFORM pg_sleep(60); RETURN $1; END'"
        )
        pid = builder.info.backend_pid
        building = threading.Thread(
            target=_run_until_cancelled, args=(builder, "ALTER TABLE held ADD EXCLUDE (slow(g) WITH =)")
        )
        building.start()
        while not admin.execute("SELECT FROM pg_stat_progress_create_index WHERE pid = %s", [pid]).fetchall():
            pass
        conninfo = make_conninfo(database, options="-c maintenance_work_mem=1MB -c lock_timeout=1s")
        (build,) = [each for each in temp_usage(ConnectionFactory(conninfo), interval_s=0).builds if each.pid == pid]
        builder.cancel_safe()
        building.join()
    assert build.name is not None
    assert build.table_bytes is not None


def _run_until_cancelled(connection: psycopg.Connection, statement: str) -> None:
    with suppress(psycopg.errors.QueryCanceled):
        connection.execute(statement.encode())


@pytest.mark.part("rest")
def test_a_statement_that_begins_to_spill_counts_from_then_and_a_reset_is_told(counting: str) -> None:
    """What it did without spilling before is none of the interval's."""
    with psycopg.connect(counting, autocommit=True) as other, ConnectionFactory(counting).connect() as watching:
        other.execute("CREATE EXTENSION pg_stat_statements")
        other.execute("SET work_mem = '1GB'")
        for _ in range(5):
            other.execute(SORT)
        before = read_usage(watching)
        other.execute("SET work_mem = '64kB'")
        other.execute(SORT)
        spilled = read_usage(watching)
        (sort,) = compare_readings(before, spilled, top=10).statements
        other.execute("SELECT pg_stat_statements_reset()")
        for _ in range(3):
            other.execute(SORT)
        report = compare_readings(spilled, read_usage(watching), top=10)
    assert sort.calls == 1
    assert report.statements[0].calls == 3
    assert "statistics were reset within the interval" in "\n".join(report.missing)


def test_local_storage_of_rds_is_shown_or_why_not(database18: str, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = LocalStorageMetrics(instance="orders", measured_at="2026-11-23", values={"FreeLocalStorage": 3e9})
    monkeypatch.setattr("penstock.temp.usage.usage.ask_local_storage", lambda _: metrics)
    report = temp_usage(ConnectionFactory(database18), interval_s=0, host="orders.rds")
    assert "Local storage of orders (CloudWatch)\n  3.00 GB free" in "\n".join(describe_usage(report))

    def refuse(_: str) -> None:
        raise AwsError("denied")

    monkeypatch.setattr("penstock.temp.usage.usage.ask_local_storage", refuse)
    report = temp_usage(ConnectionFactory(database18), interval_s=0, host="orders.rds")
    assert "CloudWatch's metrics of local storage: denied" in report.missing


def _flush(connection: psycopg.Connection) -> None:
    """Have the session report its counters now: up to 14 a collector takes them, later ones write them when asked."""
    if connection.info.server_version >= 150000:
        connection.execute("SELECT pg_stat_force_next_flush()")
        connection.execute("SELECT 1")
    else:
        pytest.skip("counters of PostgreSQL 14 arrive when its collector sends them")


@pytest.mark.part("rest")
def test_own_statements_have_the_use_case_of_their_plan_and_others_say_that_they_have_none(counting: str) -> None:
    """To plan another's statement would run its functions with this role's rights: here they would show."""
    with psycopg.connect(counting, autocommit=True) as admin:
        admin.execute("CREATE EXTENSION pg_stat_statements; CREATE TABLE t AS SELECT md5(g::text) AS pad, g AS k"
                      " FROM generate_series(1, 100000) AS g; GRANT SELECT ON t TO PUBLIC; ANALYZE t")  # fmt: skip
        admin.execute("CREATE ROLE mallory LOGIN; CREATE SCHEMA mallory AUTHORIZATION mallory")
        with psycopg.connect(make_conninfo(counting, user="mallory"), autocommit=True) as other:
            other.execute(
                "CREATE FUNCTION mallory.evil() RETURNS int IMMUTABLE LANGUAGE plpgsql AS"
                " $$BEGIN IF current_user <> 'mallory' THEN RAISE EXCEPTION 'planned as %', current_user; END IF;"
                " RETURN 1; END$$"
            )
            other.execute("SET work_mem = '64kB'")
            other.execute("SELECT mallory.evil(), pad FROM t ORDER BY pad OFFSET 99999")
        admin.execute("SET work_mem = '64kB'; SET enable_sort = off; SET hash_mem_multiplier = 1")
        admin.execute("EXPLAIN (ANALYZE, BUFFERS) SELECT DISTINCT pad FROM t LIMIT 65000")
        # What looks like a secret is hidden when the text is shown, and not before it is planned.
        admin.execute("SELECT k, length(pad) FROM (SELECT *, pad AS token FROM t) s WHERE token = pad ORDER BY pad")
        report = temp_usage(ConnectionFactory(counting), interval_s=0)
    by_query = {each.query.partition(" FROM")[0]: each for each in report.statements}
    found = {query: each.use_case for query, each in by_query.items()}
    explained = found["EXPLAIN (ANALYZE, BUFFERS) SELECT DISTINCT pad"]
    assert explained is not None
    assert "grouping" in explained.names
    assert "token = *** ORDER BY" in by_query["SELECT k, length(pad)"].query
    ordered = found["SELECT k, length(pad)"]
    assert ordered is not None
    assert "sort" in ordered.names
    assert ordered.remedy.startswith("an index on t.pad")
    hostile = by_query["SELECT mallory.evil(), pad"]
    assert (hostile.use_case, hostile.unplanned) == (None, "it is another role's")
    assert any("may not be planned: it is another role's" in line for line in describe_usage(report))
    assert report.elapsed_s is None
    assert report.databases == ()
    assert report.routes[0].tablespaces == ("pg_default",)


def test_a_planned_statement_is_never_run_and_leaves_nothing(database: str) -> None:
    """Also one with parameters, whatever their types; what cannot be planned has no plan."""
    with ConnectionFactory(database).connect() as connection:
        connection.execute("CREATE TABLE public.t AS SELECT 1 AS a, now() AS b")
        plan = explain_kept(connection, "SELECT * FROM t WHERE a = $1 AND b < $2 ORDER BY a LIMIT $3")
        assert plan is not None
        assert plan["Node Type"] == "Limit"
        assert explain_kept(connection, "SELECT * FROM missing") is None
        assert explain_kept(connection, "SELECT 1; DROP TABLE t") is None
        assert connection.execute("SELECT count(*) FROM public.t").fetchone() == (1,)
        assert connection.execute("SELECT count(*) FROM pg_catalog.pg_prepared_statements").fetchone() == (0,)
