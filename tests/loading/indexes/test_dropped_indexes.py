"""Loads that drop: what is said of it, who may do it, and what comes of other ways to land."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import subprocess
import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import DataError, PenstockError, ServerError, TargetError
from penstock.core.values.job import LoadJob, LoadRules
from penstock.ledger.ledger import Ledger
from penstock.loading.indexes.table_changes import TableChanges
from penstock.loading.loader import Loader
from penstock.restore.repair import Repairer
from support.codes import has_code
from support.files import write_to
from support.loads import Loads, await_end_of_backends, indexes_of, share_ledger, target
from support.modes import Killed, mode_target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.core.values.accounts import StepProgress
    from penstock.core.values.job import Indexes
    from penstock.embedded.server import EmbeddedServer
    from penstock.loading.values.outcome import LoadProgress
    from support.servers import PgServer

pytestmark = pytest.mark.versions

REBUILD = LoadRules(retry_for=0.0, indexes="rebuild")
AUTO = LoadRules(retry_for=0.0)


@pytest.fixture
def loads(ledger18: str) -> Loads:
    """Provide loads into a database with a table that has a key and an index."""
    return Loads(ledger18, piece_bytes=20, setup="CREATE TABLE t (a int PRIMARY KEY, b text); CREATE INDEX i ON t (b)")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Provide a csv file."""
    return write_to(tmp_path / "file.csv", "a,b\n" + "".join(f"{n},x{n}\n" for n in range(20)))


@pytest.fixture
def role(loads: Loads) -> Iterator[str]:
    """Provide an ordinary role that may use the ledger and owns the table."""
    name = f"user_{secrets.token_hex(4)}"
    loads.execute(f"CREATE ROLE {name} LOGIN; GRANT CREATE ON SCHEMA public TO {name}; ALTER TABLE t OWNER TO {name}")
    share_ledger(loads, name)
    yield name
    loads.execute(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}")


def look_while_loading(loads: Loads) -> list[list[str]]:
    """Have a look at the table's indexes when its rows are under way."""
    seen: list[list[str]] = []
    loads.at_piece = lambda number: None if number else seen.append(loads.indexes())
    return seen


def die_while_loading(loads: Loads, path: Path) -> None:
    """Have the loader die while its rows are under way."""

    def die(_number: int) -> None:
        raise Killed

    loads.at_piece = die
    with pytest.raises(Killed):
        loads.run(target(path), rules=REBUILD)
    loads.at_piece = None
    # The server may notice a moment later, and until then the load counts as one at work.
    await_end_of_backends(loads)
    assert loads.indexes() == []


def test_a_large_load_into_an_empty_table_parks(loads: Loads, path: Path) -> None:
    """All but the key; its outcome says what was rebuilt, and what more would gain. A table with rows keeps all."""
    loads.tune(least_dropping_bytes=10)
    seen = look_while_loading(loads)
    outcome = loads.run(target(path), rules=AUTO)
    assert seen == [["t_pkey"]]
    assert loads.indexes() == ["i", "t_pkey"]
    assert {(each.kind, each.name) for each in indexes_of(outcome).rebuilt} == {("index", "i")}
    assert "--indexes rebuild: it builds t_pkey once" in indexes_of(outcome).gains[0]
    path.write_text("a,b\n90,x\n")
    seen = look_while_loading(loads)
    assert indexes_of(loads.run(target(path), rules=replace(AUTO, again=True, changed="load"))).rebuilt == ()
    assert seen == [["i", "t_pkey"]]


def test_a_small_pipe_is_not_told_what_a_rebuild_would_gain(loads: Loads, tmp_path: Path) -> None:
    """Its size is known at its end only; then it is two rows."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=["a,b\n1,x\n2,y\n"])
    writer.start()
    outcome = loads.run(target(pipe), rules=AUTO)
    writer.join()
    assert outcome.rows == 2
    assert indexes_of(outcome).gains == ()


def test_a_rebuilding_load_into_an_empty_table_drops_its_key(loads: Loads, path: Path) -> None:
    """Its outcome and its progress say what was rebuilt, and nothing is left to gain."""
    seen = look_while_loading(loads)
    shown: list[LoadProgress] = []
    outcome = loads.run(target(path), rules=REBUILD, on_progress=shown.append)
    activities = [progress.activity for progress in shown]
    assert {progress.to_rebuild for progress in shown if not progress.activity} == {2}
    assert seen == [[]]
    assert loads.indexes() == ["i", "t_pkey"]
    names = {(each.kind, each.name) for each in indexes_of(outcome).rebuilt}
    assert names == {("index", "i"), ("constraint", "t_pkey")}
    assert indexes_of(outcome).seconds > 0
    assert {"rebuilding indexes, 0 of 2 done", "rebuilding index t_pkey"} <= set(activities)
    assert indexes_of(outcome).gains == ()


def test_a_btree_is_sorted_in_little_memory_and_gin_has_the_servers(loads: Loads, path: Path) -> None:
    """A sort in more than one merge needs is slower; another method keeps a setting that is larger than penstock's."""
    loads.execute(
        "ALTER TABLE t ADD tags int[] DEFAULT '{1}'; CREATE INDEX g ON t USING gin (tags);"
        "CREATE TABLE built (tag text, name text, memory text);"
        "CREATE FUNCTION note() RETURNS event_trigger LANGUAGE plpgsql SET search_path = public AS $$ BEGIN"
        " INSERT INTO built SELECT tg_tag, object_identity, current_setting('maintenance_work_mem')"
        " FROM pg_event_trigger_ddl_commands(); END $$;"
        "DO $$ BEGIN"
        " EXECUTE format('ALTER DATABASE %I SET maintenance_work_mem = %L', current_database(), '2GB'); END $$"
    )
    loads.execute("CREATE EVENT TRIGGER note ON ddl_command_end EXECUTE FUNCTION note()")
    loads.run(target(path), rules=REBUILD)
    assert loads.indexes() == ["g", "i", "t_pkey"]
    found = dict(loads.execute("SELECT name, memory FROM built WHERE tag = 'CREATE INDEX' AND name LIKE 'public.%'"))
    # With parallel workers, which machines with many CPUs start, each process has as much.
    assert found.pop("public.g") == "2GB"
    assert {name: memory.endswith("MB") for name, memory in found.items()} == {"public.i": True, "public.t_pkey": True}


@pytest.mark.part("rest")
def test_full_pages_of_an_index_are_compressed_by_lz4_where_the_server_has_it(
    new_server: Callable[..., EmbeddedServer], debian15: int, path: Path
) -> None:
    """Debian's servers have it; the setting of other sessions stays."""
    conninfo = new_server(debian15).ensure_running()
    loads = Loads(conninfo, piece_bytes=20, setup="CREATE TABLE t (a int PRIMARY KEY, b text)")
    loads.execute(
        "CREATE TABLE built (compression text);"
        "CREATE FUNCTION note() RETURNS event_trigger LANGUAGE plpgsql SET search_path = public AS $$ BEGIN"
        " INSERT INTO built SELECT current_setting('wal_compression')"
        " FROM pg_event_trigger_ddl_commands() WHERE object_identity LIKE 'public.%'; END $$"
    )
    loads.execute("CREATE EVENT TRIGGER note ON ddl_command_end WHEN TAG IN ('CREATE INDEX') EXECUTE FUNCTION note()")
    loads.run(target(path), rules=REBUILD)
    assert loads.execute("SELECT * FROM built") == [("lz4",)]
    assert loads.execute("SHOW wal_compression") == [("off",)]


def test_another_sessions_row_is_held_against_the_key(loads: Loads, path: Path) -> None:
    """By default: no two rows with one key come to stand in a table that was empty, and the key is never away."""
    loads.tune(least_dropping_bytes=10)
    loads.at_piece = lambda number: None if number else loads.execute("INSERT INTO t VALUES (5, 'another')")
    with pytest.raises(DataError, check=has_code("23505")):
        loads.run(target(path), rules=AUTO)
    assert loads.execute("SELECT count(*) FROM t WHERE a = 5") == [(1,)]
    assert loads.indexes() == ["i", "t_pkey"]
    assert loads.execute("SELECT count(*) FROM penstock.changes") == [(0,)]


@pytest.mark.parametrize("indexes_rule", ["auto", "rebuild"])
def test_nothing_that_refuses_rows_has_dropped_if_they_are_rejected(
    loads: Loads, path: Path, indexes_rule: Indexes
) -> None:
    """Whatever is said of indexes: keys, constraints and an index of texts send records to the rejects."""
    loads.tune(least_dropping_bytes=10)
    loads.execute("CREATE INDEX plain ON t (a)")
    loads.execute("CREATE TABLE p (a int PRIMARY KEY); INSERT INTO p SELECT generate_series(0, 20)")
    loads.execute("ALTER TABLE t ADD FOREIGN KEY (a) REFERENCES p, ADD CONSTRAINT x EXCLUDE USING hash (b WITH =)")
    long = "".join(hashlib.sha256(b"%d" % number).hexdigest() for number in range(200))
    path.write_text(f"a,b\n1,x\n1,y\n2,z\n3,z\n99,v\n4,{long}\n")
    seen = look_while_loading(loads)
    rules = replace(REBUILD, on_error="reject", indexes=indexes_rule)
    outcome = loads.run(target(path), rules=rules, sessions=1)
    assert seen == [["i", "t_pkey", "x"]]
    assert [each.name for each in indexes_of(outcome).rebuilt] == ["plain"]
    assert loads.execute("SELECT line, sqlstate FROM penstock.rejects ORDER BY line") == [
        (3, "23505"),
        (5, "23P01"),
        (6, "23503"),
        (7, "54000"),
    ]


def test_a_table_that_is_replaced_sends_what_breaks_its_keys_to_the_rejects(loads: Loads, path: Path) -> None:
    """The new one has them before its rows."""
    loads.execute("CREATE TABLE p (a int PRIMARY KEY); INSERT INTO p SELECT generate_series(0, 20)")
    loads.execute("ALTER TABLE t ADD FOREIGN KEY (a) REFERENCES p, ADD CHECK (b <> 'bad')")
    path.write_text("a,b\n1,x\n1,y\n2,bad\n99,v\n")
    outcome = loads.run(mode_target(path, "replace"), rules=replace(AUTO, on_error="reject"), sessions=1)
    assert (outcome.rows, outcome.rejected) == (1, 3)
    assert loads.indexes() == ["i", "t_pkey"]


@pytest.mark.pg("!= 17")
def test_an_index_stays_whose_functions_may_need_the_users_search_path(pg: PgServer, database: str, path: Path) -> None:
    """CREATE INDEX would run them with another. Those that set their own, or came with the server, are no matter."""
    loads = Loads(database, piece_bytes=20)
    loads.execute("CREATE TABLE t (a int, b text); CREATE FUNCTION f(int) RETURNS int IMMUTABLE RETURN $1")
    loads.execute(
        "CREATE OPERATOR === (LEFTARG = int, RIGHTARG = int, FUNCTION = same, COMMUTATOR = ===)".join(
            ("CREATE FUNCTION same(int, int) RETURNS bool IMMUTABLE RETURN $1 = $2;", "")
        )
    )
    loads.execute("CREATE INDEX expression ON t (f(a)); CREATE INDEX condition ON t (a) WHERE f(a) > 0")
    loads.execute("CREATE INDEX operator ON t (a) WHERE a === 1; CREATE INDEX plain ON t (lower(b)) WHERE a + 1 > 0")
    loads.execute("CREATE FUNCTION g(int) RETURNS int IMMUTABLE SET search_path = public RETURN f($1)")
    loads.execute("CREATE INDEX own ON t (g(a))")
    outcome = loads.run(target(path), rules=REBUILD)
    assert {each.name for each in indexes_of(outcome).rebuilt} == {"own", "plain"}


def test_a_small_load_leaves_all_in_place(loads: Loads, path: Path) -> None:
    """It would cost more than it saves."""
    seen = look_while_loading(loads)
    assert indexes_of(loads.run(target(path), rules=AUTO)).rebuilt == ()
    assert seen == [["i", "t_pkey"]]


@pytest.mark.parametrize(
    ("mode", "options", "left"),
    [
        ("truncate", {}, []),
        ("upsert", {"key": ("a",)}, ["t_pkey"]),
        ("insert-new", {"key": ("a",)}, ["t_pkey"]),
        ("replace", {}, ["i", "t_pkey"]),
    ],
)
def test_modes_drop_what_they_do_not_need(
    loads: Loads, path: Path, mode: str, options: dict[str, tuple[str, ...]], left: list[str]
) -> None:
    """And all is there in the end."""
    loads.execute("INSERT INTO t VALUES (100, 'old')")
    seen = look_while_loading(loads)
    loads.run(mode_target(path, mode, **options), rules=REBUILD)
    assert seen == [left]
    assert loads.indexes() == ["i", "t_pkey"]
    assert loads.count() == (20 if mode in ("truncate", "replace") else 21)
    assert loads.execute("SELECT count(*) FROM penstock.changes") == [(0,)]


def test_an_ordinary_owner_drops_and_a_superuser_repairs_as_it(loads: Loads, path: Path, role: str) -> None:
    """What is stored is run with the rights of whoever stored it."""
    owner = Loads(loads.conninfo, role=role, piece_bytes=20)
    die_while_loading(owner, path)
    assert loads.execute("SELECT DISTINCT owner::text FROM penstock.changes") == [(role,)]
    with Repairer(ConnectionFactory(loads.conninfo)) as repairer:
        assert {step.owner for step in repairer.plan()} == {role}
        repairer.run().raise_first()
    assert loads.indexes() == ["i", "t_pkey"]


def test_a_role_that_may_not_become_the_owner_is_told_who_can(loads: Loads, path: Path, role: str) -> None:
    """And changes nothing."""
    die_while_loading(loads, path)
    with Repairer(ConnectionFactory(loads.conninfo, role=role)) as repairer:
        error: PenstockError = repairer.run().errors[0]
    assert isinstance(error, TargetError)
    assert "postgres" in str(error.detail)
    assert "penstock repair" in str(error.hint)
    assert loads.indexes() == []


def test_who_does_not_own_the_table_keeps_all(loads: Loads, path: Path, role: str) -> None:
    """The plan says whose it is."""
    loads.execute(f"ALTER TABLE t OWNER TO postgres; GRANT INSERT ON t TO {role}")
    other = Loads(loads.conninfo, role=role, piece_bytes=20)
    assert indexes_of(other.run(target(path), rules=REBUILD)).rebuilt == ()


def test_a_later_run_of_the_same_command_puts_back_what_is_left(loads: Loads, path: Path) -> None:
    """Also where there is nothing to load any more."""
    loads.run(target(path), rules=REBUILD)
    second = path.with_name("second.csv")
    second.write_text("a,b\n500,y\n")
    die_while_loading(loads, second)
    assert loads.run(target(path), rules=AUTO).load_id is None
    assert loads.indexes() == ["i", "t_pkey"]


def test_the_same_command_restores_what_a_load_that_died_behind_its_end_has_left(
    loads: Loads, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the lock by which that load's hold would look alive, and has nothing to load."""

    def die(*_: object, **__: object) -> None:
        raise Killed

    job = mode_target(path, "upsert", key=("a",))
    with monkeypatch.context() as patch:
        patch.setattr(TableChanges, "after", die)
        with pytest.raises(Killed):
            loads.run(job, rules=REBUILD)
    await_end_of_backends(loads)
    assert loads.execute("SELECT state FROM penstock.loads") == [("complete",)]
    assert "i" not in loads.indexes()
    assert loads.run(job, rules=REBUILD).objects_skipped == 1
    assert loads.indexes() == ["i", "t_pkey"]
    assert loads.execute("SELECT count(*) FROM penstock.holds") == [(0,)]


def test_a_table_that_is_gone_is_nothing_to_repair(loads: Loads, path: Path) -> None:
    """Its records go."""
    die_while_loading(loads, path)
    loads.execute("DROP TABLE t")
    with Repairer(ConnectionFactory(loads.conninfo)) as repairer:
        assert {step.action for step in repairer.plan()} == {"forget"}
        done = repairer.run()
        assert (done.rebuilt, done.errors) == ([], [])
        assert repairer.plan() == []


def test_a_table_whose_files_are_all_loaded_keeps_its_indexes(loads: Loads, path: Path) -> None:
    """The job names it, and no row of it is left to load."""
    loads.execute("CREATE TABLE u (a int PRIMARY KEY, b text)")
    loads.run(target(path), target(write_second(path), into="u"), rules=REBUILD)
    path.with_name("second.csv").unlink()
    third = write_to(path.with_name("third.csv"), "a,b\n17,x\n")
    outcome = loads.run(target(path), target(third, into="u"), rules=REBUILD)
    assert [(each.table, each.name) for each in indexes_of(outcome).rebuilt] == [("public.u", "u_pkey")]


def test_a_load_that_widens_and_drops_is_attempted_again(loads: Loads, path: Path) -> None:
    """What it has altered is no reason to refuse: the indexes that are dropped are its own."""
    loads.execute("ALTER TABLE t DROP CONSTRAINT t_pkey; INSERT INTO t VALUES (1, 'x')")
    path.write_text("a,b\n" + "".join(f"{n},x{n}\n" for n in range(20)) + "3000000000,y\n")
    ended: list[int] = []

    def end_sessions(number: int) -> None:
        # Behind the look at all values, and behind the steps before the rows.
        if not ended and loads.indexes() == []:
            ended.append(number)
            loads.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
                " AND pid <> pg_backend_pid() AND application_name LIKE 'penstock%'"
            )

    loads.at_piece = end_sessions
    outcome = loads.run(replace(target(path), types="widen"), rules=replace(REBUILD, retry_for=30.0))
    assert (outcome.rows, len(ended), loads.indexes()) == (21, 1, ["i"])


def test_no_column_gets_another_type_while_its_index_is_dropped(loads: Loads, path: Path) -> None:
    """The server would allow it, and the index or key could never be made again as it was."""
    die_while_loading(loads, path)
    second = write_to(path.with_name("second.csv"), "a,b\n3000000000,x\n")
    widening = replace(target(second), types="widen")
    with pytest.raises(TargetError, match=r'columns of table "public\.t" cannot get other types now') as caught:
        loads.run(widening)
    assert "penstock repair" in str(caught.value.hint)
    loads.repair().raise_first()
    with pytest.raises(DataError, match="t_pkey"):
        loads.run(widening)
    assert loads.indexes() == ["i", "t_pkey"]


def test_forgetting_a_load_does_not_lose_what_it_dropped(loads: Loads, path: Path) -> None:
    """The records are the table's, not the load's."""
    die_while_loading(loads, path)
    loads.execute("DELETE FROM penstock.loads")
    loads.repair().raise_first()
    assert loads.indexes() == ["i", "t_pkey"]


def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run penstock."""
    argv = [sys.executable, "-m", "penstock", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


@pytest.mark.part("rest")
def test_the_plan_shows_what_is_dropped_and_why(loads: Loads, path: Path) -> None:
    """As text, and as JSON."""
    loads.execute("CREATE INDEX plain ON t (a)")
    options = ["load", str(path), "--into", "t", "--to", loads.conninfo, "--plan"]
    shown = run_command(*options, "--indexes", "rebuild", "--on-error", "reject").stdout
    assert "indexes  dropped and rebuilt after the load: --indexes rebuild" in shown
    assert "  drop  index        plain" in shown
    assert "  keep  index        i       storing a record in it may fail" in shown
    assert "  keep  primary key  t_pkey  keys stay in place with --on-error reject: each row is" in shown
    told = json.loads(run_command(*options, "--json").stdout)["steps"]["changes"]["tables"][0]["indexes"]
    assert "too little" in told["reason"]
    assert [part["name"] for part in told["kept"]] == ["i", "plain", "t_pkey"]


@pytest.mark.part("rest")
def test_progress_tells_how_far_each_index_is(loads: Loads, tmp_path: Path) -> None:
    """Two that take a second and more, by their names and the phase they are in."""
    loads.execute("CREATE TABLE slow (a int)")
    loads.execute(
        "CREATE FUNCTION wait(int) RETURNS int LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog AS"
        " 'BEGIN PERFORM pg_sleep(0.4); RETURN $1; END'"
    )
    for name in ("one", "two"):
        loads.execute(f"CREATE INDEX {name} ON slow (wait(a))")
    path = write_to(tmp_path / "slow.csv", "a\n1\n2\n3\n4\n")
    seen: list[StepProgress] = []
    loads.run(target(path, into="slow"), rules=REBUILD, on_progress=lambda progress: seen.extend(progress.steps))
    assert {(step.name, step.phase) for step in seen} >= {("one", "scanning"), ("two", "scanning")}
    assert all(step.fraction is None or 0 <= step.fraction <= 1 for step in seen)


def test_an_unknown_word_for_indexes_is_refused(loads: Loads, path: Path) -> None:
    """With the words there are."""
    done = run_command("load", str(path), "--into", "t", "--to", loads.conninfo, "--indexes", "drop")
    assert done.returncode == 2
    assert "auto, keep or rebuild" in done.stderr


@pytest.mark.part("rest")
def test_the_command_tells_of_each_index(loads: Loads, path: Path) -> None:
    """When it is dropped, when it is rebuilt, and how long that took."""
    done = run_command("load", str(path), "--into", "t", "--to", loads.conninfo, "--indexes", "rebuild")
    assert done.returncode == 0
    # An index of so few rows may be rebuilt before the first report.
    assert re.search(r"progress: rebuilding indexes, [012] of 2 done", done.stderr)
    assert "rebuilt 2 indexes and keys in" in done.stdout


def test_dropped_foreign_keys_let_all_sessions_work(loads: Loads, path: Path) -> None:
    """Of two tables of one load; kept in place they leave one session, in the order of the job."""
    loads.execute("CREATE TABLE child (a int REFERENCES t, b text)")
    jobs = (target(path, into="child"), target(path))
    with Loader(ConnectionFactory(loads.conninfo)) as loader:
        kept = loader.plan(LoadJob(targets=jobs, sessions=2, rules=AUTO))
        dropped = loader.plan(LoadJob(targets=jobs, sessions=2, rules=REBUILD))
    assert (kept.sessions.maximum, kept.is_in_job_order) == (1, True)
    assert (dropped.sessions.maximum, dropped.is_in_job_order, dropped.notices) == (2, False, ())
    outcome = loads.run(*jobs, rules=REBUILD)
    assert outcome.rows == 40
    assert "child_a_fkey" in {each.name for each in indexes_of(outcome).rebuilt}
    orphans = "INSERT INTO child VALUES (999, 'x')"
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        loads.execute(orphans)


def test_a_truncated_table_is_empty_for_the_plan(loads: Loads, path: Path) -> None:
    """Its old rows are gone before the first new one."""
    loads.tune(least_dropping_bytes=10)
    loads.execute("INSERT INTO t VALUES (100, 'old')")
    seen = look_while_loading(loads)
    loads.run(mode_target(path, "truncate"), rules=AUTO)
    assert seen == [["t_pkey"]]
    assert loads.indexes() == ["i", "t_pkey"]


@pytest.mark.part("rest")
def test_who_keeps_a_table_from_being_dropped_is_named(loads: Loads, path: Path) -> None:
    """And nothing has changed, but for the rows that nobody loaded."""
    with psycopg.connect(loads.conninfo, application_name="someone else") as reader:
        reader.execute("SELECT count(*) FROM t")
        with pytest.raises(ServerError, match="could not get a lock") as caught:
            loads.run(target(path), rules=REBUILD)
    assert "someone else" in str(caught.value.detail)
    assert loads.indexes() == ["i", "t_pkey"]
    assert loads.execute("SELECT count(*) FROM penstock.changes") == [(0,)]


def test_a_rebuild_that_is_interrupted_stays_dropped_and_says_so(loads: Loads, path: Path) -> None:
    """It is not begun again against the user's will."""

    def interrupt(progress: LoadProgress) -> None:
        if progress.activity:
            raise KeyboardInterrupt

    with pytest.raises(PenstockError, match="interrupted"):
        loads.run(target(path), rules=REBUILD, on_progress=interrupt)
    assert any("penstock repair" in text for text in loads.notices)
    loads.repair().raise_first()
    assert loads.indexes() == ["i", "t_pkey"]
    assert loads.run(target(path), rules=REBUILD).rows_before == 20


def test_a_rebuild_begins_again_if_the_callers_function_has_failed(loads: Loads, path: Path) -> None:
    """That is no user's wish to leave the indexes dropped."""

    def fail(progress: LoadProgress) -> None:
        if progress.activity:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        loads.run(target(path), rules=REBUILD, on_progress=fail)
    (note,) = caught.value.__notes__
    assert "penstock resume" in note
    assert (loads.indexes(), loads.count()) == (["i", "t_pkey"], 20)


@pytest.mark.parametrize(
    ("raised", "words"),
    [(SystemExit(143), "load interrupted"), (ZeroDivisionError(), "load ended by ZeroDivisionError")],
)
def test_a_programs_exit_restores_as_an_interrupt_does(
    loads: Loads, path: Path, raised: BaseException, words: str
) -> None:
    """As a handler of SIGTERM in Python raises it, or a scheduler's timeout."""

    def leave(_number: int) -> None:
        raise raised

    loads.at_piece = leave
    with pytest.raises(type(raised)) as caught:
        loads.run(target(path), rules=REBUILD)
    (note,) = caught.value.__notes__
    assert note.startswith(words)
    assert loads.indexes() == ["i", "t_pkey"]
    assert loads.execute("SELECT count(*) FROM penstock.loads") == [(0,)]


def test_a_foreign_key_of_a_users_own_type_comes_back(loads: Loads, path: Path) -> None:
    """Its type is written down with its schema, whatever the session's path."""
    loads.execute("CREATE DOMAIN number AS int; CREATE TABLE up (a number PRIMARY KEY)")
    loads.execute("INSERT INTO up SELECT generate_series(0, 30)")
    loads.execute("ALTER TABLE t ALTER a TYPE number; ALTER TABLE t ADD CONSTRAINT f FOREIGN KEY (a) REFERENCES up")
    assert "f" in {each.name for each in indexes_of(loads.run(target(path), rules=REBUILD)).rebuilt}


def write_second(path: Path) -> Path:
    """Write another file beside the first."""
    second = path.with_name("second.csv")
    second.write_text("a,b\n7,x\n8,y\n")
    return second


def test_what_a_killed_load_left_dropped_is_the_replacements_too(loads: Loads, path: Path) -> None:
    """It is put back before the new table is made after the old one."""
    die_while_loading(loads, path)
    loads.run(mode_target(write_second(path), "replace"), rules=AUTO)
    assert (loads.indexes(), loads.count()) == (["i", "t_pkey"], 2)


def test_a_replaced_table_keeps_the_foreign_key_that_a_load_of_another_dropped(loads: Loads, path: Path) -> None:
    """The record is of the table that it refers to."""
    loads.execute("CREATE TABLE child (a int REFERENCES t, b text)")
    die_while_loading(loads, path)
    loads.execute("TRUNCATE t, child; INSERT INTO t VALUES (7, ''), (8, '')")
    loads.run(mode_target(write_second(path), "replace", into="child"), rules=AUTO)
    keys = "SELECT conname::text FROM pg_constraint WHERE conrelid = 'child'::regclass AND contype = 'f'"
    assert loads.execute(keys) == [("child_a_fkey",)]


def test_a_table_that_is_being_loaded_without_its_key_is_not_replaced(loads: Loads, path: Path) -> None:
    """The other load would put the key back at a table that is gone."""
    errors: list[PenstockError] = []
    other = Loads(loads.conninfo)

    def replace_it(number: int) -> None:
        if number == 0:
            with pytest.raises(TargetError, match="cannot be replaced") as caught:
                other.run(mode_target(write_second(path), "replace"), rules=AUTO)
            errors.append(caught.value)

    loads.at_piece = replace_it
    loads.run(target(path), rules=REBUILD)
    assert "is being loaded by load" in str(errors[0].detail)
    assert loads.indexes() == ["i", "t_pkey"]


def test_a_table_that_lacks_its_key_when_it_is_looked_at_is_not_replaced(
    loads: Loads, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody may drop between the two looks; nothing is written down then."""
    die_while_loading(loads, path)
    monkeypatch.setattr("penstock.loading.indexes.table_changes.TableChanges.restore_replaced", lambda *_: None)
    with pytest.raises(TargetError, match="are dropped or disabled"):
        loads.run(mode_target(write_second(path), "replace"), rules=AUTO)
    assert loads.execute("SELECT count(*) FROM penstock.loads") == [(1,)]


def test_what_another_role_has_written_down_is_not_taken_away(loads: Loads, path: Path, role: str) -> None:
    """It could be put back as that role alone."""
    group = f"{role}_all"
    loads.execute(f"CREATE ROLE {group}; GRANT {group} TO {role}")
    loads.execute(f"CREATE ROLE {role}_other LOGIN IN ROLE {group}; GRANT CREATE ON SCHEMA public TO {group}")
    loads.execute(f"ALTER TABLE t OWNER TO {group}")
    share_ledger(loads, f"{role}_other")
    try:
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
            patch.setattr("penstock.changes.tables.indexes.IndexesAndKeys.apply", die)
            Loads(make_conninfo(loads.conninfo, user=role)).run(target(path), rules=REBUILD)
        assert loads.execute("SELECT DISTINCT owner::text FROM penstock.changes") == [(role,)]
        other = Loads(make_conninfo(loads.conninfo, user=f"{role}_other"))
        assert indexes_of(other.run(target(write_second(path)), rules=REBUILD)).rebuilt == ()
        assert any('indexes of "public.t" are kept: ' in text for text in other.notices)
        assert loads.indexes() == ["i", "t_pkey"]
    finally:
        loads.execute(f"ALTER TABLE t OWNER TO {role}")
        for name in (f"{role}_other", group):
            loads.execute(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}")


def die(*_: object) -> None:
    """Die."""
    raise Killed


@pytest.mark.part("rest")
def test_a_load_that_was_not_told_to_park_does_without(loads: Loads, path: Path) -> None:
    """Where somebody reads the table and does not end; it says so."""
    loads.tune(least_dropping_bytes=10)
    seen = look_while_loading(loads)
    with psycopg.connect(loads.conninfo) as reader:
        reader.execute("SELECT count(*) FROM t")
        assert loads.run(target(path), rules=AUTO).rows == 20
    assert any("are kept: could not get a lock" in text for text in loads.notices)
    assert seen == [["i", "t_pkey"]]
    assert loads.execute("SELECT count(*) FROM penstock.changes") == [(0,)]


@pytest.mark.part("rest")
def test_a_load_of_tables_that_wait_for_each_other_needs_its_locks(loads: Loads, path: Path) -> None:
    """With the foreign key in place its sessions would wait for each other's rows."""
    loads.tune(least_dropping_bytes=10)
    loads.execute("CREATE TABLE child (a int REFERENCES t, b text)")
    with psycopg.connect(loads.conninfo) as reader:
        reader.execute("SELECT count(*) FROM child")
        with pytest.raises(ServerError, check=has_code("55P03")):
            loads.run(target(path, into="child"), target(path), rules=AUTO)


def test_a_merge_by_a_key_that_is_dropped_is_told_why_it_is_missing(loads: Loads, path: Path) -> None:
    """Rather than to make another one."""
    die_while_loading(loads, path)
    with pytest.raises(TargetError, match="no unique index") as caught:
        loads.run(mode_target(write_second(path), "upsert", key=("a",)), rules=AUTO)
    assert "penstock repair" in str(caught.value.hint)


def copy_ledger(loads: Loads, *, oid_of: str) -> None:
    """Have the records as a dump brings them into another database, where another table has their table's oid."""
    loads.execute("CREATE TABLE saved AS TABLE penstock.changes; DROP SCHEMA penstock CASCADE")
    with ConnectionFactory(loads.conninfo).connect() as connection:
        Ledger().ensure(connection)
    oid = f"'{oid_of}'::regclass"
    loads.execute(f"UPDATE saved SET target_oid = {oid}, relation_oid = {oid}")
    loads.execute("INSERT INTO penstock.changes TABLE saved; DROP TABLE saved")


@pytest.mark.part("rest")
def test_a_record_that_came_with_a_dump_changes_no_other_table(loads: Loads, path: Path) -> None:
    """Oids are another database's: the table that has one here may well have columns of those names."""
    die_while_loading(loads, path)
    loads.execute("CREATE TABLE u (a int, b text)")
    copy_ledger(loads, oid_of="u")
    loads.execute("CREATE INDEX u_b ON u (b)")
    outcome = loads.run(target(path, into="u"), rules=REBUILD)
    assert [each.name for each in indexes_of(outcome).rebuilt] == ["u_b"]
    with pytest.raises(TargetError, match="came with a dump"):
        loads.run(target(path))
    with Repairer(ConnectionFactory(loads.conninfo)) as repairer:
        assert {step.action for step in repairer.plan()} == {"rebuild"}
        assert repairer.run().errors == []
    assert loads.indexes() == ["i", "t_pkey"]
    assert loads.execute("SELECT count(*) FROM pg_index WHERE indrelid = 'u'::regclass") == [(1,)]


def test_a_table_of_the_same_oid_as_in_a_dump_gets_its_own_records(loads: Loads, path: Path) -> None:
    """Those of the dump stay beside them, of the same oid and the same name."""
    die_while_loading(loads, path)
    copy_ledger(loads, oid_of="t")
    loads.execute("TRUNCATE t; ALTER TABLE t ADD PRIMARY KEY (a); CREATE INDEX i ON t (b)")
    assert {each.name for each in indexes_of(loads.run(target(path), rules=REBUILD)).rebuilt} == {"i", "t_pkey"}
    assert loads.indexes() == ["i", "t_pkey"]


def test_a_load_that_fails_while_its_lock_is_held_leaves_the_rest_to_a_repair(
    loads: Loads, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its own lost session perhaps, which rebuilds nothing."""
    path.write_text("a,b\n1,x\nz,y\n")
    monkeypatch.setattr("penstock.loading.indexes.table_changes.try_lock", lambda *_: False)
    loads.tune(lock_patience_s=0.1)
    with pytest.raises(DataError):
        loads.run(target(path), rules=REBUILD)
    assert any(
        "indexes, keys or triggers were not restored" in text and "penstock repair" in text for text in loads.notices
    )


def test_an_interrupt_behind_the_rebuild_of_a_failed_load_is_no_warning_of_it(
    loads: Loads, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while the settings are restored has every step undone again, without a connection."""
    path.write_text("a,b\n1,x\nz,y\n")
    interrupts = [KeyboardInterrupt]

    def interrupt(*_: object) -> None:
        if interrupts:
            raise interrupts.pop()

    monkeypatch.setattr("penstock.loading.steps.settings.SettingsStep.on_failure", interrupt)
    with pytest.raises(DataError):
        loads.run(target(path), rules=REBUILD)
    assert (interrupts, loads.indexes()) == ([], ["i", "t_pkey"])
    assert not any("not restored" in text for text in loads.notices)


def test_indexes_are_rebuilt_whatever_another_step_raises(
    loads: Loads, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before their turn; the user sees that error, since it is a bug."""
    path.write_text("a,b\n1,x\nz,y\n")

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("penstock.loading.steps.order.References.on_failure", fail)
    with pytest.raises(ZeroDivisionError):
        loads.run(target(path), rules=REBUILD)
    assert loads.indexes() == ["i", "t_pkey"]
