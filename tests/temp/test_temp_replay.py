"""Statements replayed on real servers: what spills, what is refused, what two places differ in."""

from __future__ import annotations

import os
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from penstock.cli.main import main
from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import PenstockError, TargetError, UsageError
from penstock.core.units import format_bytes
from penstock.temp.replay.replay import replay_statements
from penstock.temp.replay.run import ReplaySession, find_top_statements, read_totals
from penstock.temp.view import describe_replay
from support.codes import has_code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.embedded.server import EmbeddedServer
    from penstock.temp.values import Comparison, ReplayResult

TABLE = "CREATE TABLE t AS SELECT g AS id, md5(g::text) AS pad FROM generate_series(1, 60000) AS g; ANALYZE t"


@pytest.fixture
def place(database: str, user_name: str) -> Iterator[str]:
    """Provide a tablespace, on each version, that the ordinary role may use; and table t, which it may read."""
    with psycopg.connect(database, autocommit=True) as connection:
        row = connection.execute("SELECT current_setting('data_directory')").fetchone()
        assert row is not None
        owner = Path(row[0]).stat()
        name = f"place_{connection.info.dbname}"
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            Path(folder).chmod(0o755)
            directory = Path(folder, "ts")
            directory.mkdir(mode=0o700)
            if os.geteuid() == 0:
                os.chown(directory, owner.st_uid, owner.st_gid)
            quoted = sql.Identifier(name)
            connection.execute(sql.SQL("CREATE TABLESPACE {} LOCATION {}").format(quoted, sql.Literal(str(directory))))
            connection.execute(TABLE.encode())
            role = sql.Identifier(user_name)
            connection.execute(sql.SQL("GRANT SELECT ON t TO {}").format(role))
            connection.execute(sql.SQL("GRANT CREATE ON TABLESPACE {} TO {}").format(quoted, role))
            try:
                yield name
            finally:
                connection.execute(sql.SQL("DROP TABLESPACE {}").format(quoted))


def run(conninfo: str, text: str, tmp_path: Path, *, role: str | None = None, **options: object) -> ReplayResult:
    """Replay a text with little memory, by one session unless given."""
    path, setup = tmp_path / "q.sql", tmp_path / "setup.sql"
    path.write_text(text)
    setup.write_text("SET work_mem = '64kB'; SET hash_mem_multiplier = 1; SET max_parallel_workers_per_gather = 0;")
    given = {"concurrencies": (1,), "rounds": 3, "setup": setup, **options}
    return replay_statements(ConnectionFactory(conninfo, role=role), sql=path, **given)  # type: ignore[arg-type]


def only(result: ReplayResult) -> Comparison:
    (found,) = result.comparisons
    return found


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ("SELECT * FROM t ORDER BY pad", "Sort"),
        ("\ufeffSELECT * FROM t ORDER BY pad", "Sort"),
        ("SELECT pad, count(*) FROM t GROUP BY pad", "HashAggregate"),
        ("SELECT count(*) FROM t a JOIN t b USING (pad)", "Hash"),
        ("WITH c AS MATERIALIZED (SELECT * FROM t) SELECT count(*), (SELECT max(pad) FROM c) FROM c", "CTE Scan on c"),
    ],
)
def test_what_spills_is_named_with_its_node_and_its_bytes(
    place: str, user_conninfo: str, tmp_path: Path, text: str, node: str
) -> None:
    setup = "SET enable_sort = off" if node == "HashAggregate" else "SET enable_mergejoin = off"
    conninfo = make_conninfo(user_conninfo, options=f"-c {setup.removeprefix('SET ').replace(' = ', '=')}")
    found = only(run(conninfo, text, tmp_path, place=place))
    assert found.verdict != "does not spill"
    assert node in [spill.node for spill in found.first[0].spills]
    for one in (*found.first, *found.second):
        assert one.written_bytes > 500_000
        assert one.written_bytes == found.first[0].written_bytes
    assert len(found.first) == len(found.second) == 3
    assert found.trial is not None
    assert found.trial.written_bytes < found.first[0].written_bytes


@pytest.mark.part("rest")
def test_the_remedy_is_tried_only_as_far_as_the_servers_memory_allows(
    place: str, user_conninfo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a server in a control group that is the group's: more would have the kernel kill it."""
    monkeypatch.setattr("penstock.temp.replay.run.memory_bytes", lambda pid: 12 * 1024 * 1024 if pid else 2**40)
    found = only(run(user_conninfo, "SELECT * FROM t ORDER BY pad", tmp_path, place=place))
    assert found.trial is None
    monkeypatch.setattr("penstock.temp.replay.run.memory_bytes", lambda pid: 96 * 1024 * 1024 if pid else 2**40)
    found = only(run(user_conninfo, "SELECT * FROM t ORDER BY pad", tmp_path, place=place))
    assert found.trial is not None
    assert found.trial.work_mem_bytes == 8 * 1024 * 1024


@pytest.mark.part("rest")
def test_all_sessions_run_at_once_and_their_bytes_are_summed(place: str, user_conninfo: str, tmp_path: Path) -> None:
    result = run(user_conninfo, "SELECT * FROM t ORDER BY pad", tmp_path, place=place, concurrencies=(1, 3))
    one, three = result.comparisons
    assert [len(each.first[0].session_s) for each in (one, three)] == [1, 3]
    assert three.first[0].written_bytes == 3 * one.first[0].written_bytes


def test_order_of_the_places_is_drawn_by_the_seed_that_is_recorded(
    place: str, user_conninfo: str, tmp_path: Path
) -> None:
    """A machine that grows slower meanwhile would favour whichever always came first."""
    found = [run(user_conninfo, "SELECT 1", tmp_path, place=place, rounds=6, seed=1) for _ in range(2)]
    assert [each.seed for each in found] == [1, 1]
    first, second = map(only, found)
    assert set(first.began_with) == {1, 2}
    assert first.began_with == second.began_with


def test_what_does_not_spill_says_so(place: str, user_conninfo: str, tmp_path: Path) -> None:
    found = only(run(user_conninfo, "SELECT count(*) FROM t", tmp_path, place=place))
    assert (found.verdict, found.trial) == ("does not spill", None)


@pytest.mark.parametrize(
    "hostile",
    [
        "WITH d AS (DELETE FROM t RETURNING 1) SELECT * FROM d",
        "SELECT * FROM t FOR UPDATE",
        "SELECT nextval('s')",
        "SELECT writes()",
    ],
)
def test_what_would_write_fails_in_the_server(
    place: str, database: str, user_conninfo: str, user_name: str, tmp_path: Path, hostile: str
) -> None:
    """Also what a function does; the table has its rows."""
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(
            sql.SQL("GRANT ALL ON t TO {role}; CREATE SEQUENCE s; GRANT ALL ON SEQUENCE s TO {role}").format(
                role=sql.Identifier(user_name)
            )
        )
        admin.execute("CREATE FUNCTION writes() RETURNS void LANGUAGE sql AS 'DELETE FROM t'")
        found = only(run(user_conninfo, hostile, tmp_path, place=place))
        assert found.verdict == "failed"
        assert found.failure is not None
        row = admin.execute("SELECT count(*) FROM t").fetchone()
    assert row == (60000,)


@pytest.mark.parametrize(
    ("hostile", "left"),
    [
        ("SELECT lo_create(0)", "SELECT count(*) FROM pg_largeobject_metadata"),
        ("SELECT 1 AS a INTO x", "SELECT count(*) FROM pg_class WHERE relname = 'x'"),
    ],
)
def test_what_older_servers_do_in_a_read_only_transaction_is_undone(
    place: str, database: str, user_conninfo: str, tmp_path: Path, hostile: str, left: str
) -> None:
    """PostgreSQL 14 runs SELECT INTO under EXPLAIN there, and 14 and 15 make large objects."""
    run(user_conninfo, hostile, tmp_path, place=place)
    with psycopg.connect(database, autocommit=True) as admin:
        assert admin.execute(left.encode()).fetchone() == (0,)


def test_one_statement_alone_goes_to_the_server(place: str, user_conninfo: str, tmp_path: Path) -> None:
    """What would end the EXPLAIN in front of it, or begin another behind it, is refused before anything is run."""
    for text in ("COPY t TO PROGRAM 'true'", "SELECT 1; COMMIT; DELETE FROM t"):
        with pytest.raises(UsageError, match="cannot replay"):
            run(user_conninfo, text, tmp_path, place=place)


def test_same_place_twice_and_superusers_are_refused(
    place: str, database: str, user_conninfo: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="both places are the same: pg_default"):
        run(user_conninfo, "SELECT 1", tmp_path)
    with pytest.raises(TargetError, match="not replayed as a superuser"):
        run(database, "SELECT 1", tmp_path, place=place)
    assert run(database, "SELECT 1", tmp_path, place=place, allows_superuser=True).comparisons


def test_superuser_that_took_another_role_is_refused_and_who_may_take_a_superusers(
    place: str, database: str, user_conninfo: str, user_name: str, tmp_path: Path
) -> None:
    """A function that a statement calls can end SET ROLE, and begin it: it runs programs then."""
    with pytest.raises(TargetError):
        run(database, "SELECT 1", tmp_path, role=user_name, place=place)
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE ROLE boss SUPERUSER; GRANT boss TO {}").format(sql.Identifier(user_name)))
        try:
            with pytest.raises(TargetError):
                run(user_conninfo, "SELECT 1", tmp_path, place=place)
        finally:
            admin.execute(b"DROP ROLE boss")


def test_place_in_force_for_the_role_is_the_second(
    place: str, database: str, user_conninfo: str, user_name: str, tmp_path: Path
) -> None:
    with psycopg.connect(database, autocommit=True) as admin:
        role, name = sql.Identifier(user_name), sql.Identifier(place)
        admin.execute(sql.SQL("ALTER ROLE {} SET temp_tablespaces = {}").format(role, name))
        try:
            result = run(user_conninfo, "SELECT * FROM t ORDER BY pad", tmp_path)
        finally:
            admin.execute(sql.SQL("ALTER ROLE {} RESET temp_tablespaces").format(role))
    assert (result.first_place, result.second_place) == ("pg_default", place)


def test_place_that_the_role_may_not_use_is_refused(
    place: str, database: str, user_conninfo: str, user_name: str, tmp_path: Path
) -> None:
    """Where it is only stored, PostgreSQL would say nothing, and both places be the same."""
    with psycopg.connect(database, autocommit=True) as admin:
        role, name = sql.Identifier(user_name), sql.Identifier(place)
        admin.execute(sql.SQL("REVOKE CREATE ON TABLESPACE {} FROM {}").format(name, role))
    with pytest.raises(PenstockError, check=has_code("42501")):
        run(user_conninfo, "SELECT 1", tmp_path, place=place)


def test_a_statement_that_takes_too_long_is_cancelled(place: str, user_conninfo: str, tmp_path: Path) -> None:
    found = only(run(user_conninfo, "SELECT pg_sleep(60)", tmp_path, place=place, timeout_s=0.2))
    assert "statement timeout" in str(found.failure)


def test_replay_of_which_every_statement_failed_is_no_success(
    place: str, user_conninfo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "slow.sql"
    path.write_text("SELECT pg_sleep(60)")
    argv = ["temp", "replay", "--sql", str(path), "--timeout", "200ms", "--place", place, "--concurrency", "1"]
    assert main([*argv, "--to", user_conninfo]) == 7
    assert "failed with 1 session: canceling statement due to statement timeout" in capsys.readouterr().out


def test_more_sessions_than_there_is_room_for_lose_nothing_that_was_measured(
    place: str, database: str, user_conninfo: str, user_name: str, tmp_path: Path
) -> None:
    with psycopg.connect(database, autocommit=True) as admin:
        role = sql.Identifier(user_name)
        admin.execute(sql.SQL("ALTER ROLE {} CONNECTION LIMIT 4").format(role))
        try:
            one, many = run(user_conninfo, "SELECT 1", tmp_path, place=place, concurrencies=(1, 5)).comparisons
        finally:
            admin.execute(sql.SQL("ALTER ROLE {} CONNECTION LIMIT -1").format(role))
    assert (one.failure, len(one.first)) == (None, 3)
    assert "too many connections for role" in str(many.failure)


@pytest.mark.part("rest")
def test_full_disk_is_told_and_the_statement_runs_at_the_first_place(
    disk: Any, database18: str, tmp_path: Path
) -> None:
    """The second place is a file system of 16 MB, which a sort of more fills."""
    assert disk
    with psycopg.connect(database18, autocommit=True) as admin:
        admin.execute(TABLE.replace("60000", "400000").encode())
    result = run(database18, "SELECT * FROM t ORDER BY pad", tmp_path, place="penstock_small", allows_superuser=True)
    found = only(result)
    assert found.failure is None
    assert [each.is_elsewhere for each in (*found.first, *found.second)] == [False] * 3 + [True] * 3
    assert found.verdict == "was full"
    assert any("penstock_small was full in 3 of 3 rounds with 1 session" in line for line in describe_replay(result))


@pytest.mark.part("rest")
def test_totals_of_two_servers_are_paired_by_their_statement(
    new_server: Callable[..., EmbeddedServer], debian15: int, database18: str, tmp_path: Path
) -> None:
    """With calls and milliseconds of each; where a server lacks the extension, that is said."""
    both = [new_server(debian15, shared_preload_libraries="pg_stat_statements").ensure_running() for _ in range(2)]
    for calls, conninfo in enumerate(both, start=1):
        with psycopg.connect(conninfo, autocommit=True) as admin:
            admin.execute(b"CREATE SCHEMA ext; CREATE EXTENSION pg_stat_statements SCHEMA ext; " + TABLE.encode())
            for number in range(calls):
                admin.execute(f"SELECT count(*) FROM t WHERE id > {number}".encode())
            admin.execute(f"SELECT {calls} AS only_here_{calls}".encode())
    text = "SELECT count(*) FROM t"
    result = run(both[0], text, tmp_path, against=ConnectionFactory(both[1]), allows_superuser=True)
    (total,) = [each for each in result.totals if "FROM t WHERE" in each.statement]
    assert (total.first_calls, total.second_calls) == (1, 2)
    assert total.speed_up == pytest.approx(2 * total.first_ms / total.second_ms)
    assert not [each for each in result.totals if "only_here" in each.statement]
    assert any(line.endswith("SELECT count(*) FROM t WHERE id > $1") for line in describe_replay(result))
    with psycopg.connect(database18, autocommit=True) as admin:
        admin.execute(TABLE.encode())
    result = run(both[0], text, tmp_path, against=ConnectionFactory(database18), allows_superuser=True)
    assert result.totals == ()
    assert [each.statement for each in result.skipped] == ["total_exec_time by statement"]


@pytest.mark.part("rest")
def test_top_statements_are_not_those_that_a_replay_has_run(
    new_server: Callable[..., EmbeddedServer], debian15: int
) -> None:
    """Its EXPLAINs spill as the statements do, more often, and would take their places. The text is as it was sent."""
    conninfo = new_server(debian15, shared_preload_libraries="pg_stat_statements").ensure_running()
    text = "SELECT * FROM (SELECT pad, pad AS token FROM t) AS s WHERE s.token = s.pad ORDER BY pad"
    with psycopg.connect(conninfo, autocommit=True) as admin:
        admin.execute(b"CREATE EXTENSION pg_stat_statements; " + TABLE.encode())
        admin.execute(b"ALTER ROLE CURRENT_USER SET work_mem = '64kB'")
    with psycopg.connect(conninfo, autocommit=True) as admin:
        admin.execute(b"SELECT pg_stat_statements_reset()")
        admin.execute(text.encode())
    with closing(ReplaySession(ConnectionFactory(conninfo), timeout_s=600)) as session:
        for _ in range(2):
            assert session.explain(text, tablespace="").plan["Temp Written Blocks"] > 0
    with ConnectionFactory(conninfo).connect(label="test") as connection:
        assert find_top_statements(connection, 1) == ([text], [])
        assert not [each for each in read_totals(connection) or {} if each.startswith("EXPLAIN")]


def test_place_whose_name_needs_quotes_is_the_second(
    place: str, database: str, user_conninfo: str, tmp_path: Path
) -> None:
    """Two names with a comma between them are one tablespace where that is its name."""
    with psycopg.connect(database, autocommit=True) as admin:
        odd = 'Big, "One"'
        rename = sql.SQL("ALTER TABLESPACE {} RENAME TO {}")
        admin.execute(rename.format(sql.Identifier(place), sql.Identifier(odd)))
        try:
            result = run(user_conninfo, "SELECT * FROM t ORDER BY pad", tmp_path, place='"Big, ""One"""')
        finally:
            admin.execute(rename.format(sql.Identifier(odd), sql.Identifier(place)))
    assert result.second_place == odd
    assert only(result).failure is None


@pytest.mark.parametrize("has_prewarm", [False, True])
@pytest.mark.part("rest")
def test_tables_of_the_statements_are_read_on_a_copy_first(
    new_server: Callable[..., EmbeddedServer], debian15: int, tmp_path: Path, has_prewarm: bool
) -> None:
    """With progress, and their indexes too by pg_prewarm; other tables are not. A server is a copy of itself."""
    conninfo = new_server(debian15).ensure_running()
    with psycopg.connect(conninfo, autocommit=True) as admin:
        admin.execute(TABLE.encode())
        admin.execute(b"CREATE INDEX ON t (pad)")
        admin.execute(b"CREATE TABLE other AS SELECT 1 AS a")
        if has_prewarm:
            admin.execute(b"CREATE SCHEMA ext; CREATE EXTENSION pg_prewarm SCHEMA ext")
        sizes = admin.execute(
            "SELECT pg_relation_size(oid), pg_indexes_size(oid) + pg_indexes_size(reltoastrelid)"
            " FROM pg_class WHERE relname = 't'"
        ).fetchone()
    assert sizes is not None
    whole = format_bytes(sizes[0] + (sizes[1] if has_prewarm else 0))
    said: list[str] = []
    text, against = "SELECT * FROM t ORDER BY pad", ConnectionFactory(conninfo)
    result = run(conninfo, text, tmp_path, against=against, allows_superuser=True, say=said.append)
    copy, blocks = result.checks
    assert (copy.severity, copy.claim) == ("ok", "the second server is a copy of the first")
    end = ", indexes included" if has_prewarm else ", without indexes: the database lacks extension pg_prewarm"
    assert blocks.claim == f"read {whole} of 1 table on the second server{end}"
    assert f"read {whole} of {whole} of the second server's tables" in said
    assert f"ok: {copy.claim}" in describe_replay(result)
    with psycopg.connect(conninfo, autocommit=True) as admin:
        admin.execute(b"CREATE ROLE reader LOGIN; CREATE VIEW v AS SELECT * FROM t; GRANT SELECT ON v TO reader")
        admin.execute(b"GRANT pg_read_all_stats TO reader")
    own = make_conninfo(conninfo, user="reader")
    result = run(own, "SELECT * FROM v ORDER BY pad; SELECT * FROM gone", tmp_path, against=ConnectionFactory(own))
    (refused,) = [each for each in result.checks if each.code == "blocks"]
    assert (refused.severity, "public.t" in refused.claim) == ("warning", True)
    assert [comparison.failure is None for comparison in result.comparisons] == [True, False]


@pytest.mark.part("rest")
def test_another_database_is_no_copy(
    new_server: Callable[..., EmbeddedServer], database18: str, tmp_path: Path
) -> None:
    """Its tables are not read, and the result says why times may differ."""
    other = new_server().ensure_running()
    for conninfo in (database18, other):
        with psycopg.connect(conninfo, autocommit=True) as admin:
            admin.execute(TABLE.encode())
    text, against = "SELECT * FROM t ORDER BY pad", ConnectionFactory(other)
    result = run(database18, text, tmp_path, against=against, allows_superuser=True)
    assert [(each.severity, each.code) for each in result.checks[:1]] == [("warning", "copy")]
    assert "blocks" not in {each.code for each in result.checks}


@pytest.mark.part("rest")
def test_waits_for_temporary_files_are_known_to_who_may_time_them(
    place: str, database: str, user_conninfo: str, tmp_path: Path, pg_major: int
) -> None:
    """From 15 on; a part of the time, which a disk that never waits would spare."""
    text = "SELECT * FROM t ORDER BY pad"
    found = run(database, text, tmp_path, place=place, allows_superuser=True)
    wait_s = only(found).first_wait_s
    if pg_major < 15:
        assert wait_s is None
        return
    assert wait_s is not None
    assert 0 < wait_s < only(found).first_s
    assert any("on a disk that never waits at least" in line for line in describe_replay(found))
    assert only(run(user_conninfo, text, tmp_path, place=place)).first_wait_s is None


def test_a_statement_with_parameters_is_prepared_by_the_setup(place: str, user_conninfo: str, tmp_path: Path) -> None:
    """And executed with values; one that writes fails in the server."""
    setup = tmp_path / "prepare.sql"
    setup.write_text(
        "SET work_mem = '64kB'; PREPARE sorted(int) AS SELECT * FROM t WHERE id > $1 ORDER BY pad;"
        "PREPARE writes(int) AS INSERT INTO t VALUES ($1)"
    )
    found = only(run(user_conninfo, "EXECUTE sorted(10)", tmp_path, place=place, setup=setup))
    assert "Sort" in [spill.node for spill in found.first[0].spills]
    failed = only(run(user_conninfo, "EXECUTE writes(1)", tmp_path, place=place, setup=setup))
    assert failed.verdict == "failed"
