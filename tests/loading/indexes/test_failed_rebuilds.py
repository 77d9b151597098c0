"""A rebuild that rows are in the way of: what is missing is shown, and nothing is loaded until it is repaired."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.api.ledger_view import LedgerView
from penstock.changes.tables.rebuild import is_lasting
from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import DataError, ServerError, TargetError
from penstock.core.values.job import LoadRules
from penstock.restore.repair import Repairer
from support.codes import has_code
from support.files import write_to
from support.loads import Loads, share_ledger, target
from support.modes import Killed, mode_target

if TYPE_CHECKING:
    from pathlib import Path

    from support.servers import PgServer

REBUILD = LoadRules(retry_for=0.0, indexes="rebuild")
AUTO = LoadRules(retry_for=0.0)

LACKS = 'table "public.t" lacks constraint "t_pkey"'
KEY = "Key (a)=(1) is duplicated."


@pytest.fixture
def loads(ledger18: str) -> Loads:
    """Provide loads into a database with a table that has a key and an index."""
    return Loads(ledger18, piece_bytes=20, setup="CREATE TABLE t (a int PRIMARY KEY, b text); CREATE INDEX i ON t (b)")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Provide a csv file that breaks the key."""
    return write_to(tmp_path / "file.csv", "a,b\n1,x\n1,y\n")


@pytest.fixture
def second(tmp_path: Path) -> Path:
    """Provide a file that does not."""
    return write_to(tmp_path / "second.csv", "a,b\n7,x\n8,y\n")


def break_the_key(loads: Loads, path: Path) -> None:
    """Leave the key missing: rows break it."""
    with pytest.raises(DataError, match="t_pkey"):
        loads.run(target(path), rules=REBUILD)
    assert loads.indexes() == ["i"]


def run_command(loads: Loads, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run penstock."""
    argv = [sys.executable, "-m", "penstock", *arguments, "--to", loads.conninfo]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("mode", ["append", "truncate", "replace", "upsert"])
def test_no_load_goes_into_a_table_that_lacks_its_key(loads: Loads, path: Path, second: Path, mode: str) -> None:
    """Whatever it would do to the table; the error has the row that is in the way. A repair lets it go."""
    break_the_key(loads, path)
    job = mode_target(second, mode, key=("a",) if mode == "upsert" else ())
    with pytest.raises(TargetError, match="because a rebuild failed") as caught:
        loads.run(job, rules=AUTO)
    assert caught.value.message.startswith(LACKS)
    assert KEY in str(caught.value.detail)
    assert "penstock repair" in str(caught.value.hint)
    assert loads.count() == 2
    loads.execute("DELETE FROM t WHERE b = 'y'")
    with pytest.raises(TargetError):
        loads.run(job, rules=AUTO)
    loads.repair().raise_first()
    # A load that has not ended is in the way of --mode truncate.
    loads.execute("DELETE FROM penstock.loads")
    loads.run(job, rules=AUTO)
    assert loads.indexes() == ["i", "t_pkey"]


def test_the_load_itself_ends_once_it_is_repaired(loads: Loads, path: Path) -> None:
    """Run again before that, it is refused as any other; the error says what ends it."""
    with pytest.raises(DataError, match="t_pkey") as caught:
        loads.run(target(path), rules=REBUILD)
    assert "Resume with" not in str(caught.value.hint)
    ((load_id,),) = loads.execute("SELECT id::text FROM penstock.loads")
    assert f"Once it is repaired, end the load with: penstock resume {load_id}" in str(caught.value.hint)
    with pytest.raises(TargetError, match="t_pkey"):
        loads.run(target(path), rules=REBUILD)
    assert loads.execute("SELECT state FROM penstock.loads") == [("running",)]
    # A repair loads nothing: it speaks of rows that are there.
    (error,) = loads.repair().errors
    assert str(error.hint).startswith("Rows of the table violate it, and it is missing")
    loads.execute("DELETE FROM t WHERE b = 'y'")
    loads.repair().raise_first()
    loads.run(target(path), rules=REBUILD)
    assert loads.indexes() == ["i", "t_pkey"]
    assert loads.execute("SELECT state FROM penstock.loads") == [("complete",)]


@pytest.mark.part("rest")
def test_doctor_plan_and_loads_tell_what_is_missing(loads: Loads, path: Path, second: Path) -> None:
    """With the row that is in the way and what to run; a load is refused with exit code 6."""
    break_the_key(loads, path)
    doctor = run_command(loads, "doctor", "--into", "t")
    plan = run_command(loads, "load", str(second), "--into", "t", "--plan")
    load = run_command(loads, "load", str(second), "--into", "t")
    listed = run_command(loads, "loads")
    assert (doctor.returncode, plan.returncode, load.returncode, listed.returncode) == (9, 6, 6, 0)
    for shown in (doctor.stdout, plan.stderr, load.stderr, listed.stdout):
        words = " ".join(shown.replace('"public.t"', "public.t").split())
        assert 'table public.t lacks constraint "t_pkey" because a rebuild failed' in words
        assert KEY in words
        assert "penstock repair" in words
    told = json.loads(run_command(loads, "loads", "--json").stdout)["missing"]
    assert [(each["table"], each["names"]) for each in told] == [("public.t", ['constraint "t_pkey"'])]
    steps = json.loads(run_command(loads, "repair", "--plan", "--json").stdout)["steps"]
    assert [KEY in step["reason"] for step in steps] == [True]


def test_rejected_records_are_not_tried_again_without_the_key(loads: Loads, path: Path, tmp_path: Path) -> None:
    """It is what would refuse them."""
    other = write_to(tmp_path / "other.csv", "a,b\n9,x\nz,y\n")
    load_id = loads.run(target(other), rules=LoadRules(retry_for=0.0, on_error="reject")).load_id
    assert load_id is not None
    break_the_key(loads, path)
    with LedgerView(ConnectionFactory(loads.conninfo)) as view, pytest.raises(TargetError, match="t_pkey"):
        view.retry(load_id)


def test_other_tables_are_loaded_all_the_same(loads: Loads, path: Path, second: Path) -> None:
    """Also one that has the same indexes."""
    loads.execute("CREATE TABLE u (LIKE t INCLUDING ALL)")
    break_the_key(loads, path)
    assert loads.run(target(second, into="u"), rules=AUTO).rows == 2


def test_a_table_whose_foreign_key_waits_for_the_key_is_not_loaded(loads: Loads, path: Path, tmp_path: Path) -> None:
    """Its rows could refer to nothing."""
    loads.execute("CREATE TABLE child (a int REFERENCES t)")
    break_the_key(loads, path)
    orphans = write_to(tmp_path / "child.csv", "a\n9\n")
    with pytest.raises(TargetError, match="lacks valid foreign key"):
        loads.run(target(orphans, into="child"), rules=AUTO)
    assert loads.count("child") == 0


def test_a_key_that_was_made_again_by_hand_is_not_missing(loads: Loads, path: Path, second: Path) -> None:
    """The catalogue decides, and the record goes."""
    break_the_key(loads, path)
    loads.execute("DELETE FROM t WHERE b = 'y'; ALTER TABLE t ADD PRIMARY KEY (a)")
    assert loads.run(target(second), rules=AUTO).rows == 2
    assert loads.execute("SELECT count(*) FROM penstock.changes") == [(0,)]


@pytest.mark.parametrize("mode", ["append", "replace"])
def test_what_a_dead_load_has_left_is_put_back_or_nothing_is_loaded(
    loads: Loads, path: Path, second: Path, mode: str
) -> None:
    """The next load tries to restore it, and is refused before its first row. Later loads report the reason."""

    def die(_number: int) -> None:
        raise Killed

    loads.at_piece = die
    with pytest.raises(Killed):
        loads.run(target(path), rules=REBUILD)
    loads.at_piece = None
    loads.execute("TRUNCATE t; INSERT INTO t VALUES (1, 'x'), (1, 'y')")
    with pytest.raises(TargetError) as caught:
        loads.run(mode_target(second, mode), rules=AUTO)
    assert KEY in str(caught.value.detail)
    assert loads.count() == 2
    loads.execute("DELETE FROM t WHERE b = 'y'")
    loads.repair().raise_first()
    loads.run(mode_target(second, mode), rules=AUTO)
    assert loads.indexes() == ["i", "t_pkey"]


@pytest.mark.pg("!= 17")
@pytest.mark.parametrize("partitioned", ["", " PARTITION BY RANGE (a)"])
def test_a_foreign_key_that_rows_break_is_enforced_for_new_ones(
    pg: PgServer, database: str, path: Path, partitioned: str
) -> None:
    """By default, where another session's row refers to nothing; the others are valid, and the error names it."""
    loads = Loads(database, piece_bytes=20, least_dropping_bytes=0, least_part_bytes=0)
    loads.execute("CREATE TABLE p (a int PRIMARY KEY); INSERT INTO p SELECT generate_series(0, 20)")
    columns = "a int CONSTRAINT f REFERENCES p, b text, c int DEFAULT 1 CONSTRAINT g REFERENCES p"
    loads.execute(f"CREATE TABLE t ({columns}){partitioned}")
    if partitioned:
        loads.execute("CREATE TABLE t1 PARTITION OF t DEFAULT")
    loads.at_piece = lambda number: None if number else loads.execute("INSERT INTO t VALUES (99, 'another')")
    with pytest.raises(DataError, check=has_code("23503")) as caught:
        loads.run(target(path), rules=AUTO)
    assert "enforced for new rows" in str(caught.value.hint)
    query = "SELECT conname, convalidated FROM pg_constraint WHERE conrelid = %s::regclass AND contype = 'f' ORDER BY 1"
    leaf = "t1" if partitioned else "t"
    with psycopg.connect(loads.conninfo, autocommit=True) as connection:
        assert connection.execute(query, [leaf]).fetchall() == [("f", False), ("g", True)]
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            connection.execute("INSERT INTO t VALUES (98)")
    with pytest.raises(TargetError, match='foreign key "f"') as refused:
        loads.run(target(path), rules=AUTO)
    assert "(a)=(99)" in str(refused.value.detail)
    loads.execute("DELETE FROM t WHERE a = 99")
    loads.repair().raise_first()
    assert loads.run(target(path), rules=AUTO).rows == 0


def test_foreign_keys_come_back_though_a_key_does_not(loads: Loads, path: Path) -> None:
    """But for those that rely on it, which come with it."""
    loads.execute("CREATE TABLE p (a int PRIMARY KEY); INSERT INTO p VALUES (1)")
    loads.execute("ALTER TABLE t ADD CONSTRAINT f FOREIGN KEY (a) REFERENCES p")
    loads.execute("CREATE TABLE child (a int REFERENCES t)")
    break_the_key(loads, path)
    foreign_keys = """
        SELECT conname::text
          FROM pg_constraint
         WHERE contype = 'f' AND convalidated AND connamespace = 'public'::regnamespace
         ORDER BY 1
    """
    assert loads.execute(foreign_keys) == [("f",)]
    loads.execute("DELETE FROM t WHERE b = 'y'")
    loads.repair().raise_first()
    assert loads.execute(foreign_keys) == [("child_a_fkey",), ("f",)]


def test_a_key_that_rows_fit_stands_though_another_does_not(loads: Loads, tmp_path: Path) -> None:
    """Its constraint is there again, and so is the foreign key that relies on it."""
    loads.execute("CREATE TABLE u (id int PRIMARY KEY, a int UNIQUE)")
    loads.execute("CREATE TABLE child (id int REFERENCES u ON DELETE CASCADE)")
    path = write_to(tmp_path / "u.csv", "id,a\n1,1\n2,1\n")
    with pytest.raises(DataError, match="u_a_key") as caught:
        loads.run(target(path, into="u"), rules=REBUILD)
    assert "more could not be rebuilt" not in str(caught.value.detail)
    query = (
        "SELECT conname::text FROM pg_constraint WHERE contype IN ('p', 'u', 'f') AND conrelid = ANY (%s) ORDER BY 1"
    )
    tables = "ARRAY['u', 'child']::regclass[]"
    assert loads.execute(query.replace("%s", tables)) == [("child_id_fkey",), ("u_pkey",)]
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        loads.execute("INSERT INTO child VALUES (4711)")


def die_after_the_drop(loads: Loads, path: Path) -> None:
    """Have the loader of table t die before its first row, when its keys and indexes are dropped."""

    def die(_number: int) -> None:
        raise Killed

    loads.at_piece = die
    with pytest.raises(Killed):
        loads.run(target(path), rules=REBUILD)
    loads.at_piece = None
    assert loads.indexes() == []


def test_indexes_that_cannot_be_built_keep_no_other_away(loads: Loads, path: Path) -> None:
    """All others are rebuilt; the error counts those that are not, and its hint names what forgets each of them."""
    indexes = [f"CREATE INDEX a{number} ON t (a, b)" for number in range(3)]
    loads.execute(
        "; ".join([*indexes, "CREATE INDEX j ON t (b DESC)", "ALTER TABLE t ADD COLUMN c int DEFAULT 1 UNIQUE"])
    )
    die_after_the_drop(loads, path)
    loads.execute("ALTER TABLE t RENAME a TO aa")
    done = loads.repair()
    assert loads.indexes() == ["i", "j", "t_c_key"]
    assert len(done.errors) == 4
    with pytest.raises(TargetError, match='column "a" was changed') as caught:
        done.raise_first()
    assert "3 more could not be rebuilt" in str(caught.value.detail)
    (name,) = [name for name in ("a0", "a1", "a2", "t_pkey") if f'"{name}"' in caught.value.message]
    assert f"penstock repair --forget-missing {name}" in str(caught.value.hint)
    assert run_command(loads, "repair", "--forget-missing", "a0,a1,a2,t_pkey").returncode == 0
    assert loads.repair().errors == []


@pytest.mark.parametrize("way", ["drop", "forget"])
def test_an_index_whose_name_another_has_keeps_no_other_away(loads: Loads, path: Path, second: Path, way: str) -> None:
    """The user drops the other, or forgets the one that was dropped, and keeps the other."""
    die_after_the_drop(loads, path)
    loads.execute("CREATE INDEX i ON t (a)")
    (error,) = loads.repair().errors
    assert "is not the one that was dropped" in error.message
    assert loads.indexes() == ["i", "t_pkey"]
    with pytest.raises(TargetError, match='lacks index "i" because a rebuild failed'):
        loads.run(target(second), rules=AUTO)
    if way == "drop":
        loads.execute("DROP INDEX i")
    else:
        assert "penstock repair --forget-missing i" in str(error.hint)
        assert run_command(loads, "repair", "--forget-missing", "i").returncode == 0
    assert loads.repair().errors == []
    assert loads.indexes() == ["i", "t_pkey"]
    columns = loads.execute("SELECT pg_get_indexdef('i'::regclass, 1, false)")
    assert columns == [("b" if way == "drop" else "a",)]
    assert loads.execute("SELECT count(*) FROM penstock.changes") == [(0,)]


def test_a_foreign_key_whose_name_another_has_can_be_forgotten(loads: Loads, path: Path) -> None:
    """As an index."""
    loads.execute("CREATE TABLE p (a int PRIMARY KEY); ALTER TABLE t ADD CONSTRAINT f FOREIGN KEY (a) REFERENCES p")
    die_after_the_drop(loads, path)
    loads.execute("ALTER TABLE t ADD COLUMN c int; ALTER TABLE t ADD CONSTRAINT f FOREIGN KEY (c) REFERENCES p")
    (error,) = loads.repair().errors
    assert "is not the one that was dropped" in error.message
    assert "penstock repair --forget-missing f" in str(error.hint)
    assert run_command(loads, "repair", "--forget-missing", "f").returncode == 0
    assert loads.repair().errors == []


def test_a_key_without_its_constraint_is_not_said_to_be_restored(loads: Loads, path: Path) -> None:
    """Its index alone was built."""
    die_after_the_drop(loads, path)
    loads.execute("ALTER TABLE t ALTER a DROP NOT NULL; INSERT INTO t VALUES (NULL, 'x')")
    done = loads.repair()
    assert [error.sqlstate for error in done.errors] == ["23502"]
    assert [each.name for each in done.rebuilt] == ["i"]
    loads.execute("TRUNCATE t")
    assert [each.name for each in loads.repair().rebuilt] == ["t_pkey"]


def test_an_index_of_one_partition_that_cannot_be_built_keeps_no_other_away(ledger18: str, path: Path) -> None:
    """It keeps the partitioned table's away alone, which is not said to be restored."""
    loads = Loads(ledger18, piece_bytes=20)
    loads.execute(
        "CREATE TABLE t (a int UNIQUE, b text) PARTITION BY RANGE (a); CREATE INDEX i ON t (b);"
        "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (10); CREATE TABLE t2 PARTITION OF t DEFAULT"
    )
    die_after_the_drop(loads, path)
    loads.execute("INSERT INTO t VALUES (1, 'x'), (1, 'y'), (11, 'z')")
    done = loads.repair()
    assert [error.sqlstate for error in done.errors] == ["23505"]
    assert [each.name for each in done.rebuilt] == ["i"]
    assert loads.indexes() == ["i"]
    loads.execute("DELETE FROM t WHERE b = 'y'")
    assert [each.name for each in loads.repair().rebuilt] == ["t_a_key"]


def test_locks_and_cancels_end_a_rebuild_at_once() -> None:
    """As do a cancel and a lost connection: every other index would wait as long, or fail too."""
    passing = [ServerError("not now", sqlstate=code) for code in ("55P03", "57014")]
    assert not any(map(is_lasting, [*passing, ServerError("lost", is_transient=True)]))
    assert is_lasting(DataError("a key is violated", sqlstate="23505"))


@pytest.mark.part("rest")
def test_a_key_that_is_not_wanted_any_more_is_given_up(loads: Loads, path: Path, second: Path) -> None:
    """By its name alone, which must be that of something missing; nothing of the table changes, and loads go on."""
    break_the_key(loads, path)
    for name in ("i", "nothing", ""):
        refused = run_command(loads, "repair", "--forget-missing", name)
        assert refused.returncode == 6
        assert f'no table lacks "{name}"' in refused.stderr
        assert '"public.t.t_pkey"' in refused.stderr
    assert "--forget-missing" in run_command(loads, "load", str(second), "--into", "t").stderr
    for only_planned in (["--plan"], []):
        assert loads.execute("SELECT count(*) FROM penstock.changes") == [(1,)]
        done = run_command(loads, "repair", "--forget-missing", "t_pkey", *only_planned)
        assert done.returncode == 0
        assert "t_pkey" in done.stdout
        assert "will not be rebuilt" in done.stdout
    statement = done.stdout.partition("by hand: ")[2]
    assert loads.indexes() == ["i"]
    assert loads.count() == 2
    assert loads.execute("SELECT count(*) FROM penstock.changes") == [(0,)]
    assert loads.run(target(second), rules=AUTO).rows == 2
    loads.execute(f"DELETE FROM t WHERE b = 'y'; {statement}")
    assert loads.indexes() == ["i", "t_pkey"]
    assert "Nothing is missing" in run_command(loads, "repair", "--forget-missing", "t_pkey").stderr


def test_a_key_that_is_given_up_keeps_what_else_was_dropped(loads: Loads, path: Path, second: Path) -> None:
    """What waited behind it is rebuilt by the next load."""
    loads.execute("ALTER TABLE t ADD CONSTRAINT x UNIQUE (b), ADD CONSTRAINT y CHECK (a < 100)")
    path.write_text("a,b\n1,x\n2,x\n")
    with pytest.raises(DataError, match='"x"'):
        loads.run(target(path), rules=REBUILD)
    done = json.loads(run_command(loads, "repair", "--forget-missing", "public.t.x", "--json").stdout)["steps"]
    assert [(each["table"], each["name"], each["action"]) for each in done] == [("public.t", "x", "forget")]
    assert loads.run(target(second), rules=AUTO).rows == 2
    assert loads.indexes() == ["i", "t_pkey"]


@pytest.mark.pg("!= 17")
@pytest.mark.parametrize("partitioned", ["", " PARTITION BY RANGE (a)"])
def test_a_foreign_key_that_is_given_up_stays_for_new_rows(
    pg: PgServer, database: str, path: Path, partitioned: str
) -> None:
    """With those of its partitions; the statement that is printed makes it valid."""
    loads = Loads(database, piece_bytes=20, least_dropping_bytes=0, least_part_bytes=0)
    loads.execute("CREATE TABLE p (a int PRIMARY KEY); INSERT INTO p SELECT generate_series(0, 20)")
    loads.execute(f"CREATE TABLE t (a int CONSTRAINT f REFERENCES p, b text){partitioned}")
    if partitioned:
        loads.execute("CREATE TABLE t1 PARTITION OF t DEFAULT")
    loads.at_piece = lambda number: None if number else loads.execute("INSERT INTO t VALUES (99, 'another')")
    with pytest.raises(DataError, check=has_code("23503")):
        loads.run(target(path), rules=AUTO)
    with Repairer(ConnectionFactory(database)) as repairer:
        (given_up,) = repairer.forget_missing(["f"])
    leaf = "t1" if partitioned else "t"
    query = f"SELECT convalidated FROM pg_constraint WHERE conrelid = '{leaf}'::regclass AND contype = 'f'"
    assert loads.execute(query) == [(False,)]
    assert loads.execute("SELECT count(*) FROM penstock.changes") == [(0,)]
    loads.execute(f"DELETE FROM t WHERE a = 99; {given_up.reason.partition('by hand: ')[2]}")
    assert (True,) in loads.execute(query)


def test_a_foreign_key_is_of_the_table_that_refers(loads: Loads, tmp_path: Path) -> None:
    """Also if the other one was loaded; a name at two tables needs the table's."""
    for child in ("child", "other"):
        loads.execute(f"CREATE TABLE {child} (a int CONSTRAINT f REFERENCES t)")
    path = write_to(tmp_path / "file.csv", "a,b\n1,x\n2,y\n")

    def break_them(number: int) -> None:
        if not number:
            loads.execute("INSERT INTO child VALUES (99); INSERT INTO other VALUES (99)")

    loads.at_piece = break_them
    with pytest.raises(DataError, match=r'foreign key "f" of table "public\.(child|other)"', check=has_code("23503")):
        loads.run(target(path), rules=REBUILD)
    with pytest.raises(TargetError, match=r'lacks valid foreign key "f" of "public\.child", valid foreign'):
        loads.run(target(path), rules=AUTO)
    with Repairer(ConnectionFactory(loads.conninfo)) as repairer:
        assert {step.table for step in repairer.plan()} == {"public.child", "public.other"}
        with pytest.raises(TargetError, match="several tables lack"):
            repairer.forget_missing(["f"])
        assert [each.table for each in repairer.forget_missing(["public.child.f"])] == ["public.child"]
        assert {step.table for step in repairer.plan()} == {"public.other"}


def test_what_another_role_has_dropped_is_not_given_up(loads: Loads, path: Path) -> None:
    """It is put back, and given up, by who may become that role."""
    break_the_key(loads, path)
    loads.execute("CREATE ROLE keys_giver LOGIN; GRANT INSERT ON t TO keys_giver")
    share_ledger(loads, "keys_giver")
    try:
        connect = ConnectionFactory(loads.conninfo, role="keys_giver")
        with Repairer(connect) as repairer, pytest.raises(TargetError, match="as role"):
            repairer.forget_missing(["t_pkey"])
        assert loads.execute("SELECT count(*) FROM penstock.changes") != [(0,)]
    finally:
        loads.execute("DROP OWNED BY keys_giver CASCADE; DROP ROLE keys_giver")


def test_why_is_written_down_by_the_role_that_dropped_alone(loads: Loads, path: Path, second: Path) -> None:
    """A repair by another role reports that it may not restore the object, and keeps the recorded reason."""
    break_the_key(loads, path)
    loads.execute("CREATE ROLE keys_other LOGIN; GRANT INSERT ON t TO keys_other")
    share_ledger(loads, "keys_other")
    try:
        other = Loads(loads.conninfo, role="keys_other")
        with Repairer(ConnectionFactory(loads.conninfo, role="keys_other")) as repairer:
            assert "as role" in repairer.run().errors[0].message
        with pytest.raises(TargetError, match="t_pkey") as caught:
            other.run(target(second), rules=AUTO)
        assert KEY in str(caught.value.detail)
    finally:
        loads.execute("DROP OWNED BY keys_other CASCADE; DROP ROLE keys_other")
