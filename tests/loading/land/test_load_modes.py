"""Ways to land: what each mode leaves in the table, what readers see meanwhile, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
import pytest

from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import DataError, FileLocation, PenstockError, TargetError, UsageError
from penstock.core.values.job import LoadJob, LoadRules, Transform
from penstock.ledger.listing import list_loads
from penstock.loading.indexes.table_changes import TableChanges
from penstock.loading.jobs import make_target, read_job_file
from penstock.loading.loader import Loader
from penstock.loading.plan.identity import job_from_json, job_to_json
from penstock.loading.views.outcome import describe_outcome, outcome_object
from penstock.loading.views.plan import describe_plan
from support.codes import has_code
from support.files import write_to
from support.loads import IMPATIENT, Loads, share_ledger, target
from support.modes import Killed, landing_tables, mode_target

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.loading.values.outcome import LoadProgress


# What is typed for a load of one file; what is not named was not given.
ATOMIC = replace(IMPATIENT, atomic=True)


def write(path: Path, *lines: str, header: str = "k,v") -> Path:
    """Write a csv file and return its path."""
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


@pytest.fixture
def loads(database: str) -> Loads:
    """Provide loads into a database with table t (k int PRIMARY KEY, v text DEFAULT 'd') that has rows 1 and 2."""
    return Loads(
        database,
        piece_bytes=64,
        setup="CREATE TABLE t (k int PRIMARY KEY, v text DEFAULT 'd', w int); INSERT INTO t VALUES (1, 'a'), (2, 'b')",
    )


@pytest.fixture
def loads18(database18: str) -> Loads:
    """Provide the same on the newest version only."""
    return Loads(
        database18,
        piece_bytes=64,
        setup="CREATE TABLE t (k int PRIMARY KEY, v text DEFAULT 'd', w int); INSERT INTO t VALUES (1, 'a'), (2, 'b')",
    )


# ---------------------------------------------------------------- truncate


def test_truncate_leaves_the_files_rows_only(loads: Loads, tmp_path: Path) -> None:
    """And does so each time that it is run."""
    path = write(tmp_path / "f", "2,x,", "3,y,", header="k,v,w")
    for _ in range(2):
        outcome = loads.run(mode_target(path, "truncate"))
        assert outcome.rows == 2
        assert loads.rows() == [(2, "x", None), (3, "y", None)]


def test_failure_between_the_truncation_and_the_first_row_says_that_the_table_is_empty(
    loads18: Loads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that comes after it fails: nothing was attempted, and the rows are gone."""

    def fail(*_: object, **__: object) -> None:
        raise TargetError("no change today")

    monkeypatch.setattr(TableChanges, "before", fail)
    job = replace(target(write(tmp_path / "f", "1,a,1", header="k,v,w")), mode="truncate")
    with pytest.raises(TargetError, match="no change today") as caught:
        loads18.run(job, rules=LoadRules(triggers="disable"))
    assert 'No rows were loaded; "public.t" is empty.' in str(caught.value.detail)
    assert loads18.count() == 0
    monkeypatch.undo()
    loads18.execute("INSERT INTO t VALUES (1, 'old')")
    with loads18.loader() as loader, pytest.raises(PenstockError) as caught:
        plan = loader.plan(LoadJob(targets=(job,), rules=LoadRules(retry_for=0.0)))
        monkeypatch.setattr("penstock.loading.steps.order.Truncation.before", fail)
        loader.run(plan)
    assert str(caught.value.detail) == "No rows were loaded."
    assert loads18.count() == 1


def test_table_that_a_killed_run_truncated_is_said_to_be_empty(
    loads18: Loads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run that resumes it fails before it would truncate: the ledger knows that it was."""

    def die(*_: object) -> None:
        raise Killed

    def fail(*_: object) -> None:
        raise TargetError("no space today")

    job = mode_target(write(tmp_path / "f", "1,a,", header="k,v,w"), "truncate")
    with monkeypatch.context() as patch:
        patch.setattr("penstock.loading.steps.changes.Changes.before", die)
        with pytest.raises(Killed):
            loads18.run(job)
    assert loads18.count() == 0
    monkeypatch.setattr("penstock.loading.steps.columns.SpaceCheck.before", fail)
    with pytest.raises(TargetError, match="no space today") as caught:
        loads18.run(job)
    assert caught.value.detail == 'No rows were loaded; "public.t" is empty.'


def test_truncate_names_the_tables_that_refer_to_it(loads: Loads, tmp_path: Path) -> None:
    """Before anything is done, and never with CASCADE."""
    loads.execute("CREATE TABLE child (k int REFERENCES t); CREATE TABLE own (a int PRIMARY KEY, b int REFERENCES own)")
    path = write(tmp_path / "f", "2,x,", header="k,v,w")
    with pytest.raises(TargetError, match="other tables reference it") as caught:
        loads.run(mode_target(path, "truncate"))
    assert "public.child" in str(caught.value)
    assert loads.count() == 2
    assert loads.run(mode_target(write(tmp_path / "g", "1,1", header="a,b"), "truncate", into="own")).rows == 1


@pytest.mark.part("rest")
def test_truncate_that_gets_no_lock_names_who_holds_it(loads18: Loads, tmp_path: Path) -> None:
    """And nothing of the load stays, so that it can be run again."""
    path = write(tmp_path / "f", "2,x,", header="k,v,w")
    with psycopg.connect(loads18.conninfo) as reader:
        reader.execute("SELECT FROM t")
        with pytest.raises(PenstockError, check=has_code("55P03")) as caught:
            loads18.run(mode_target(path, "truncate"))
        assert f"pid {reader.info.backend_pid}" in str(caught.value)
    assert loads18.count() == 2
    assert loads18.execute("SELECT * FROM penstock.loads") == []
    assert loads18.run(mode_target(path, "truncate")).rows == 1


def test_time_of_builds_is_not_that_of_a_statement(loads18: Loads, tmp_path: Path) -> None:
    """A replacement has indexes to create and no staged rows; a merge has those."""
    for mode, step in ("replace", "replace"), ("upsert", "store"):
        path = write(tmp_path / mode, "5,x,1", header="k,v,w")
        options = {"key": ("k",)} if mode == "upsert" else {}
        accounts = loads18.run(mode_target(path, mode, **options)).accounts
        assert accounts is not None
        assert {"replace", "store"} & accounts.steps_s.keys() == {step}


def test_time_of_a_step_before_the_rows_is_counted_by_itself(loads18: Loads, tmp_path: Path) -> None:
    """To disable triggers may wait for a lock, which is no build of an index after the rows."""
    loads18.execute(
        "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN new; END $$;"
        "CREATE TRIGGER keep BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION keep()"
    )
    path = write(tmp_path / "f", "5,x,1", header="k,v,w")
    accounts = loads18.run(mode_target(path, "append"), rules=replace(IMPATIENT, triggers="disable")).accounts
    assert accounts is not None
    assert {"changes before", "changes"} <= accounts.steps_s.keys()


@pytest.mark.part("rest")
def test_atomic_truncate_shows_old_or_new_rows(loads18: Loads, tmp_path: Path) -> None:
    """A bad record at the end leaves the old ones."""
    good = [f"{n},x,{n}" for n in range(500)]
    path = write(tmp_path / "f", *good, "500,x,bad", header="k,v,w")
    seen = set()
    loads18.at_piece = lambda _: seen.add(loads18.count())
    with pytest.raises(DataError):
        loads18.run(mode_target(path, "truncate"), rules=ATOMIC)
    assert loads18.count() == 2
    outcome = loads18.run(mode_target(write(path, *good, header="k,v,w"), "truncate"), rules=ATOMIC)
    assert (outcome.rows, loads18.count()) == (500, 500)
    assert seen == {2}
    assert landing_tables(loads18) == []


def test_view_is_not_truncated(loads18: Loads, tmp_path: Path) -> None:
    """TRUNCATE is for tables."""
    loads18.execute(
        "CREATE VIEW w AS SELECT * FROM t;"
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
        "CREATE TRIGGER g INSTEAD OF INSERT ON w FOR EACH ROW EXECUTE FUNCTION f()"
    )
    with pytest.raises(TargetError, match="not a table"):
        loads18.run(mode_target(write(tmp_path / "f", "2,x,", header="k,v,w"), "truncate", into="w"))


# ---------------------------------------------------------------- insert-new, upsert


def test_upsert_inserts_and_updates_by_key(loads: Loads, tmp_path: Path) -> None:
    """Columns that the file lacks keep their values, or get their defaults."""
    loads.execute("UPDATE t SET w = 7")
    path = write(tmp_path / "f", "2,x", "3,y")
    outcome = loads.run(mode_target(path, "upsert", key=("k",)), batch_bytes=1)
    assert loads.rows() == [(1, "a", 7), (2, "x", 7), (3, "y", None)]
    assert (outcome.rows, outcome.inserted, outcome.updated) == (2, 1, 1)
    assert landing_tables(loads) == []
    assert loads.run(mode_target(path, "upsert", key=("k",))).objects_skipped == 1


@pytest.mark.parametrize(("keep", "kept"), [("first", "x"), ("last", "z")])
def test_keep_says_which_record_counts(loads18: Loads, tmp_path: Path, keep: str, kept: str) -> None:
    """By file order, over files too."""
    paths = [write(tmp_path / "f", "2,x", "3,y"), write(tmp_path / "g", "2,z")]
    outcome = loads18.run(mode_target(paths, "upsert", key=("k",), keep=keep), sessions=3, batch_bytes=1)
    assert loads18.rows()[1] == (2, kept, None)
    assert (outcome.rows, outcome.duplicates) == (2, 1)


def test_duplicate_key_is_an_error_and_can_be_gone_on_with(loads18: Loads, tmp_path: Path) -> None:
    """The table is as it was; the same load goes on with another word on duplicates, and sends nothing again."""
    path = write(tmp_path / "f", "2,x", "3,y", "2,z")
    with pytest.raises(DataError, match="duplicated in the files") as caught:
        loads18.run(mode_target(path, "upsert", key=("k",)))
    assert f"First in {path} line 2, then in {path} line 4." in str(caught.value)
    assert caught.value.location == FileLocation(file=str(path), line=4)
    assert "No table was changed; 3 records are staged" in str(caught.value)
    assert loads18.count() == 2
    outcome = loads18.run(mode_target(path, "upsert", key=("k",), keep="last"))
    assert (outcome.rows, outcome.bytes_copied, outcome.duplicates) == (2, 0, 1)
    assert loads18.rows() == [(1, "a", None), (2, "z", None), (3, "y", None)]


def test_corrected_file_takes_the_place_of_what_was_staged(loads18: Loads, tmp_path: Path) -> None:
    """Its own records go, those of other files stay."""
    path, other = write(tmp_path / "f", "2,x", "2,y"), write(tmp_path / "g", "9,g")
    with pytest.raises(DataError, match="duplicated"):
        loads18.run(mode_target([path, other], "upsert", key=("k",)))
    write(path, "2,x", "3,y")
    rules = replace(IMPATIENT, changed="load")
    outcome = loads18.run(mode_target([path, other], "upsert", key=("k",)), rules=rules)
    assert outcome.rows == 3
    assert loads18.rows() == [(1, "a", None), (2, "x", None), (3, "y", None), (9, "g", None)]


def test_insert_new_leaves_rows_that_exist(loads: Loads, tmp_path: Path) -> None:
    """And the first record of each key is used."""
    outcome = loads.run(mode_target(write(tmp_path / "f", "2,x", "3,y", "3,z"), "insert-new", key=("k",)))
    assert loads.rows() == [(1, "a", None), (2, "b", None), (3, "y", None)]
    assert (outcome.rows, outcome.existing, outcome.duplicates, outcome.updated) == (1, 1, 1, 0)


@pytest.mark.parametrize("mode", ["upsert", "insert-new"])
def test_key_without_unique_index_is_refused_first(loads18: Loads, tmp_path: Path, mode: str) -> None:
    """Nothing is written down for it."""
    with pytest.raises(TargetError, match="no unique index"):
        loads18.run(mode_target(write(tmp_path / "f", "2,x"), mode, key=("v",)))
    assert not loads18.has_table("penstock.loads")
    assert landing_tables(loads18) == []


def test_refused_combinations(loads18: Loads, tmp_path: Path) -> None:
    """Each with what to do."""
    path = write(tmp_path / "f", "2,x")
    transform = Transform(name="f.sql", text="INSERT INTO t (k) SELECT k::int FROM :staging")
    for wrong in (
        mode_target(path, "upsert"),
        mode_target(path, "append", key=("k",)),
        mode_target(path, "insert-new", key=("k",), keep="last"),
        mode_target(path, "truncate", transform=transform, constants={"w": "1"}),
        mode_target(path, "append", transform=transform, create=True, into="new"),
    ):
        with pytest.raises(UsageError):
            loads18.run(wrong)
    with pytest.raises(UsageError, match="two sets of sources"):
        loads18.run(mode_target(path, "upsert", key=("k",)), mode_target(path, "truncate", constants={"w": "1"}))
    # The ledger would take the rows of one for staged records of the other.
    with pytest.raises(UsageError, match="two sets of sources") as caught:
        loads18.run(
            mode_target(write(tmp_path / "g", "3,y"), "append", constants={"w": "1"}),
            mode_target(path, "append", transform=transform),
        )
    assert "one has a transform" in str(caught.value.detail)


def test_counts_tell_what_triggers_kept_out(loads18: Loads, tmp_path: Path) -> None:
    """Records cut are rows, suppressed, duplicates and existing."""
    loads18.execute(
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN IF new.v = ''no'' THEN RETURN NULL; END IF;"
        " RETURN new; END'; CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f()"
    )
    outcome = loads18.run(mode_target(write(tmp_path / "f", "2,x", "3,no", "4,y", "4,z"), "insert-new", key=("k",)))
    assert (outcome.rows, outcome.suppressed, outcome.duplicates, outcome.existing) == (1, 1, 1, 1)


# ---------------------------------------------------------------- row-level security


def test_policies_are_obeyed_by_way_of_staging(
    database: str, user_name: str, user_conninfo: str, tmp_path: Path
) -> None:
    """COPY would be refused; a row that a policy forbids ends the load and leaves nothing."""
    admin = Loads(database)
    admin.execute(
        f'CREATE TABLE t (k int, v text); GRANT SELECT, INSERT ON t TO "{user_name}";'
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON t USING (v <> 'no')"
    )
    share_ledger(admin, f'"{user_name}"')
    loads = Loads(user_conninfo)
    with pytest.raises(TargetError, match="permission denied for schema") as caught:
        loads.run(target(write(tmp_path / "f", "1,a", "2,b")))
    assert "CREATE on schema penstock" in str(caught.value)
    admin.execute(f'GRANT CREATE ON SCHEMA penstock TO "{user_name}"')
    assert loads.run(target(tmp_path / "f")).rows == 2
    with pytest.raises(PenstockError, match="row-level security") as caught:
        loads.run(target(write(tmp_path / "g", "3,a", "4,no")))
    assert f"One such record: {tmp_path / 'g'} line 3." in str(caught.value)
    assert "pg_policies" in str(caught.value.hint)
    assert admin.count() == 2


# ---------------------------------------------------------------- replace


def test_replace_puts_a_new_table_in_place(loads: Loads, tmp_path: Path) -> None:
    """With indexes, defaults, grants and sequences; each time that it is run."""
    loads.execute("CREATE INDEX i ON t (v); GRANT SELECT ON t TO PUBLIC; ALTER TABLE t ADD s serial")
    path = write(tmp_path / "f", "5,x,1,40", "6,y,2,41", header="k,v,w,s")
    for _ in range(2):
        before = loads.execute("SELECT 't'::regclass::oid")
        assert loads.run(mode_target(path, "replace"), batch_bytes=1).rows == 2
        assert loads.execute("SELECT 't'::regclass::oid") != before
        assert loads.rows() == [(5, "x", 1, 40), (6, "y", 2, 41)]
    assert loads.execute("SELECT count(*) FROM pg_indexes WHERE tablename = 't'") == [(2,)]
    assert loads.execute("SELECT has_table_privilege('public', 't', 'SELECT')") == [(True,)]
    assert loads.execute("INSERT INTO t (k) VALUES (7) RETURNING s") == [(42,)]
    assert landing_tables(loads) == []
    loads.execute("DELETE FROM t WHERE k = 7")
    assert loads.run(target(path)).objects_skipped == 1


@pytest.mark.parametrize(("mode", "activity"), [("replace", "replacing tables"), ("upsert", "storing staged rows")])
def test_progress_names_what_follows_the_last_row(loads: Loads, tmp_path: Path, mode: str, activity: str) -> None:
    """It may take long, and no row is sent meanwhile."""
    shown: list[LoadProgress] = []
    path = write(tmp_path / "f", "5,x,1", header="k,v,w")
    job = mode_target(path, mode, **({"key": ("k",)} if mode == "upsert" else {}))
    loads.run(job, on_progress=shown.append)
    assert activity in [progress.activity for progress in shown]


def test_hint_of_a_trigger_stays_in_the_error_of_a_merge(loads: Loads, tmp_path: Path) -> None:
    """The trigger's author knows better what to do than the hint for a unique index."""
    loads.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE unique_violation USING HINT = 'Ask Ann.'; END $$;"
        " CREATE TRIGGER refuse BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
    path = write(tmp_path / "f", "5,x,1", header="k,v,w")
    with pytest.raises(DataError) as caught:
        loads.run(mode_target(path, "upsert", key=("k",)))
    assert "Ask Ann." in str(caught.value.hint)


def test_replace_names_what_depends_on_the_table(loads18: Loads, tmp_path: Path) -> None:
    """Before anything is made."""
    loads18.execute("CREATE VIEW w AS SELECT * FROM t")
    with pytest.raises(TargetError, match="cannot replace table"):
        loads18.run(mode_target(write(tmp_path / "f", "5,x,1", header="k,v,w"), "replace"))
    assert landing_tables(loads18) == []
    assert loads18.count() == 2


def test_replacing_rows_that_break_a_constraint_leave_the_old_table(loads18: Loads, tmp_path: Path) -> None:
    """The unique index is made after the rows; giving the load up drops what was made."""
    path = write(tmp_path / "f", "5,x,1", "5,y,1", header="k,v,w")
    with pytest.raises(DataError) as caught:
        loads18.run(mode_target(path, "replace"))
    assert "No table was changed" in str(caught.value)
    assert loads18.rows() == [(1, "a", None), (2, "b", None)]


def test_replace_puts_records_aside_that_break_any_constraint(loads: Loads, tmp_path: Path) -> None:
    """Keys, checks and foreign keys of the new table refuse rows as they come, and are named as the old one's."""
    loads.execute(
        "CREATE TABLE p (id int PRIMARY KEY); INSERT INTO p VALUES (1);"
        "ALTER TABLE t ADD UNIQUE (v), ADD CONSTRAINT small CHECK (k < 100), ADD CONSTRAINT ref FOREIGN KEY (w)"
        " REFERENCES p; ALTER TABLE t ALTER v SET NOT NULL; DELETE FROM t WHERE k = 2; CREATE INDEX helps ON t (w)"
    )
    lines = ["5,x,1", "5,dup,1", "6,x,1", "x,type,1", "7,y,9", "100,z,1", "8,\\N,1", "9,ok,1"]
    file = write(tmp_path / "f", *lines, header="k,v,w")
    job = mode_target(file, "replace", format="csv", has_header=True, nulls=("\\N",))
    outcome = loads.run(job, rules=replace(IMPATIENT, on_error="reject"), sessions=1)
    assert (outcome.rows, outcome.rejected) == (2, 6)
    assert loads.rows() == [(5, "x", 1), (9, "ok", 1)]
    found = dict(loads.execute("SELECT line, sqlstate || ' ' || message FROM penstock.rejects"))
    assert {line: text[:5] for line, text in found.items()} == {
        3: "23505",
        4: "23505",
        5: "22P02",
        6: "23503",
        7: "23514",
        8: "23502",
    }
    assert not [text for text in found.values() if "penstock_" in text]
    assert '"t_v_key"' in found[4]
    assert loads.execute("SELECT count(*) FROM pg_indexes WHERE tablename = 't'") == [(3,)]
    assert landing_tables(loads) == []


def test_replacement_that_refers_to_itself_gets_that_key_at_the_end(loads18: Loads, tmp_path: Path) -> None:
    """A record may stand before the one that it refers to."""
    loads18.execute("ALTER TABLE t ADD FOREIGN KEY (w) REFERENCES t")
    file = write(tmp_path / "f", "5,x,6", "6,y,", "x,z,6", header="k,v,w")
    job = mode_target(file, "replace", format="csv", has_header=True)
    outcome = loads18.run(job, rules=replace(IMPATIENT, on_error="reject"))
    assert (outcome.rows, outcome.rejected) == (2, 1)
    assert loads18.rows() == [(5, "x", 6), (6, "y", None)]


@pytest.mark.part("rest")
def test_replaced_table_without_the_row_that_it_refers_to_names_itself(loads18: Loads, tmp_path: Path) -> None:
    """No record is rejected for that; the hint names the mode that does."""
    loads18.execute("ALTER TABLE t ADD FOREIGN KEY (w) REFERENCES t")
    file = write(tmp_path / "f", "5,x,99", "6,y,", header="k,v,w")
    rejecting = replace(IMPATIENT, on_error="reject")
    with pytest.raises(DataError) as caught:
        loads18.run(mode_target(file, "replace"), rules=rejecting)
    assert caught.value.sqlstate == "23503"
    assert "penstock_" not in f"{caught.value.message} {(caught.value.detail or '').replace('penstock_test', '')}"
    assert '"t"' in caught.value.message
    assert "--mode truncate" in (caught.value.hint or "")
    outcome = loads18.run(mode_target(file, "truncate"), rules=rejecting)
    assert (outcome.rows, outcome.rejected) == (1, 1)


def test_replace_keeps_indexes_whose_functions_need_the_users_search_path(loads: Loads, tmp_path: Path) -> None:
    """Their bodies name what they call without a schema: they are on the new table before its rows."""
    loads.execute(
        "CREATE FUNCTION inner_one(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN $1 + 1; END';"
        "CREATE FUNCTION outer_one(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN inner_one($1); END';"
        "TRUNCATE t; CREATE INDEX i ON t (outer_one(k)); CREATE UNIQUE INDEX u ON t (k) WHERE outer_one(k) > 3;"
        "CREATE INDEX plain ON t (v)"
    )
    path = write(tmp_path / "f", "5,x,1", "6,y,2", header="k,v,w")
    assert loads.run(mode_target(path, "replace")).rows == 2
    assert loads.rows() == [(5, "x", 1), (6, "y", 2)]
    indexes = "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = 't'::regclass AND indisvalid ORDER BY 1"
    assert loads.execute(indexes) == [("i",), ("plain",), ("t_pkey",), ("u",)]
    assert [text for text in loads.notices if 'not analyzed: "public.t"; ' in text]


@pytest.mark.part("rest")
@pytest.mark.pg("< 17")
def test_replace_refuses_before_the_first_row_what_the_planner_would_inline(loads: Loads, tmp_path: Path) -> None:
    """An index needs the user's search_path though the table is empty; the error says what to give the function."""
    loads.execute(
        "CREATE FUNCTION inner_one(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN $1 + 1; END';"
        "CREATE FUNCTION outer_one(int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT inner_one($1)';"
        "CREATE INDEX i ON t (outer_one(k))"
    )
    path = write(tmp_path / "f", "5,x,1", "bad,y,2", header="k,v,w")
    with pytest.raises(TargetError, match="cannot make the indexes") as caught:
        loads.run(mode_target(path, "replace"))
    assert 'SQL function "outer_one"' in str(caught.value.detail)
    assert "SET search_path" in str(caught.value.hint)
    assert landing_tables(loads) == []
    loads.execute("ALTER FUNCTION outer_one SET search_path = public")
    path = write(tmp_path / "f", "5,x,1", header="k,v,w")
    assert loads.run(mode_target(path, "replace")).rows == 1


def test_refusal_of_a_replacement_names_the_table_that_users_know(loads18: Loads, tmp_path: Path) -> None:
    """Not the one that it is until the swap."""
    loads18.execute("ALTER TABLE t ALTER v SET NOT NULL")
    file = write(tmp_path / "f", "5,\\N,6", header="k,v,w")
    with pytest.raises(DataError, match='of relation "t"'):
        loads18.run(mode_target(file, "replace", format="csv", has_header=True, nulls=("\\N",)))


def test_replacement_begins_anew_when_the_table_was_altered(loads18: Loads, tmp_path: Path) -> None:
    """A load that is taken up again carries the table as it is now."""
    path = write(tmp_path / "f", "5,x,1", "5,y,1", header="k,v,w")
    with pytest.raises(DataError):
        loads18.run(mode_target(path, "replace"))
    loads18.execute("ALTER TABLE t DROP CONSTRAINT t_pkey; ALTER TABLE t ADD z int DEFAULT 3")
    assert loads18.run(mode_target(path, "replace")).rows == 2
    assert loads18.rows() == [(5, "x", 1, 3), (5, "y", 1, 3)]
    assert landing_tables(loads18) == []


# ---------------------------------------------------------------- transform


def test_check_of_a_transform_looks_at_the_files_alone(loads18: Loads, tmp_path: Path) -> None:
    """Its columns are text, so that only records of another width are bad."""
    transform = Transform(name="f.sql", text="INSERT INTO t (k) SELECT size::int FROM :staging")
    path = write(tmp_path / "f", "one,10", "two,20,3", header="Name,Size")
    assert loads18.check(mode_target(path, "append", transform=transform)).problem_count == 1


def test_transform_takes_records_on(loads: Loads, tmp_path: Path) -> None:
    """Staged as text, named by the header in lower case."""
    path = write(tmp_path / "f", "one,10", "two,20", header="Name,Size")
    text = "INSERT INTO t (k, v) SELECT size::int + 1, upper(name) FROM :staging WHERE size <> '20'"
    outcome = loads.run(mode_target(path, "append", transform=Transform(name="f.sql", text=text)))
    assert loads.rows() == [(1, "a", None), (11, "ONE", None), (2, "b", None)]
    assert [statement.tag for statement in outcome.statements] == ["INSERT 0 1"]
    assert landing_tables(loads) == []


@pytest.mark.pg(">= 15")
def test_a_transform_is_reported_as_the_server_does(loads: Loads, tmp_path: Path) -> None:
    """By statement, in the job's order; no count is credited to a table that the statement has left alone."""
    loads.execute("CREATE TABLE other (k int PRIMARY KEY, v text); INSERT INTO other VALUES (1), (2), (3), (4)")
    merge = "MERGE INTO other AS o USING (SELECT k::int FROM :staging) AS s ON o.k = s.k WHEN MATCHED THEN DELETE"
    insert = "INSERT INTO other SELECT k::int + 10 FROM :staging"
    targets = [
        mode_target(
            write(tmp_path / name, *lines), "append", transform=Transform(name=f"{name}.sql", text=text), into="t"
        )
        for name, lines, text in (("merge", ("1,x", "2,x", "3,x"), merge), ("insert", ("5,x", "6,x"), insert))
    ]
    outcome = loads.run(*targets)
    told = [(each.name, each.table, each.records, each.tag) for each in outcome.statements]
    assert told == [("merge.sql", "public.t", 3, "MERGE 3"), ("insert.sql", "public.t", 2, "INSERT 0 2")]
    assert (outcome.rows, outcome.inserted) == (0, 0)
    assert loads.count("other") == 3
    first, *lines = describe_outcome(outcome)
    assert first.startswith("staged 5 records in ")
    assert lines[:2] == ["ran merge.sql on 3 records: MERGE 3", "ran insert.sql on 2 records: INSERT 0 2"]
    assert not any("public.t" in line for line in (first, *lines) if not line.startswith("vacuumed"))
    assert '"tag": "MERGE 3"' in json.dumps(outcome_object(outcome))


def test_transform_that_stores_nothing_does_not_look_like_an_emptied_table(loads: Loads, tmp_path: Path) -> None:
    """The objects are loaded, and a repeat has nothing to do."""
    loads.execute("TRUNCATE t")
    job = mode_target(
        write(tmp_path / "f", "1,10"),
        "append",
        transform=Transform(name="f.sql", text="INSERT INTO t (k) SELECT k::int FROM :staging WHERE false"),
    )
    assert loads.run(job).rows == 0
    assert loads.run(job).rows == 0


def test_transform_that_has_deleted_the_last_row_is_not_run_again(loads18: Loads, tmp_path: Path) -> None:
    """Nobody has emptied the table: the statement has, and its files are loaded."""
    loads18.execute("TRUNCATE t; INSERT INTO t (k, w) VALUES (1, 1)")
    text = "MERGE INTO t USING :staging AS s ON t.k = s.k::int WHEN MATCHED THEN DELETE"
    job = mode_target(write(tmp_path / "f", "1,10"), "append", transform=Transform(name="f.sql", text=text))
    loads18.run(job)
    assert loads18.count() == 0
    assert loads18.run(job).objects_skipped == 1


def test_staged_records_are_not_listed_as_rows(loads18: Loads, tmp_path: Path) -> None:
    """Neither before the merge nor behind it: there the rows are what was stored."""

    def listed() -> list[int]:
        with ConnectionFactory(loads18.conninfo).connect() as connection:
            return [load.rows for load in list_loads(connection, "penstock")]

    path = write(tmp_path / "f", "1,10", "1,11", "2,20")
    loads18.execute("TRUNCATE t")
    with pytest.raises(DataError):
        loads18.run(mode_target(path, "upsert", key=("k",)))
    assert listed() == [0]
    loads18.run(mode_target(path, "upsert", key=("k",), keep="last"))
    assert listed()[-1] == 2


def test_slip_in_a_transform_shows_before_anything_is_loaded(loads18: Loads, tmp_path: Path) -> None:
    """With its place in the file."""
    transform = Transform(name="f.sql", text="INSERT INTO t (k)\nSELECT nam FROM :staging")
    with pytest.raises(TargetError) as caught:
        loads18.run(mode_target(write(tmp_path / "f", "one,10"), "append", transform=transform))
    assert "f.sql line 2" in str(caught.value)
    assert loads18.execute("SELECT * FROM penstock.loads") == []


# ---------------------------------------------------------------- as it is asked for


def test_job_file_and_options_say_the_same(tmp_path: Path) -> None:
    """The transform's text is read with either, since a load may go on where the file is not."""
    sql_file = write_to(tmp_path / "f.sql", "INSERT INTO t SELECT k::int FROM :staging")
    typed = make_target({"into": "t", "transform": str(sql_file)}, sources=["/f.csv"])
    job_file = write_to(tmp_path / "job.toml", '[[target]]\nsources = ["/f.csv"]\ninto = "t"\ntransform = "f.sql"\n')
    (written,) = read_job_file(job_file).job.targets
    assert typed == written
    assert typed.transform == Transform(name="f.sql", text=sql_file.read_text())
    assert job_from_json(job_to_json(LoadJob(targets=(typed,)))).targets == (typed,)
    job_file.write_text(
        '[[target]]\nsources = "/f.csv"\ninto = "t"\nmode = "upsert"\nkey = ["a", "b"]\nkeep = "last"\n'
    )
    typed = make_target({"into": "t", "mode": "upsert", "key": "a, b", "keep": "last"}, sources=["/f.csv"])
    assert read_job_file(job_file).job.targets == (typed,)


def test_plan_says_what_readers_see(loads18: Loads, tmp_path: Path) -> None:
    """Each way in one line."""
    path = write(tmp_path / "f", "2,x,1", header="k,v,w")
    shown = {}
    with Loader(ConnectionFactory(loads18.conninfo)) as loader:
        for mode, key in (("append", ()), ("truncate", ()), ("replace", ()), ("upsert", ("k",))):
            lines = describe_plan(loader.foresee(loader.plan(LoadJob(targets=(mode_target(path, mode, key=key),)))))
            shown[mode] = next(line for line in lines if line.startswith("mode"))
    assert "readers see rows as they are committed" in shown["append"]
    assert "an empty table, then rows" in shown["truncate"]
    assert "takes the old one's place, readers see all or nothing" in shown["replace"]
    assert (
        "upsert by k, duplicates are an error; through a staging table, readers see all or nothing" in shown["upsert"]
    )


# ---------------------------------------------------------------- bad records


def test_rejected_records_do_not_reach_the_merge(loads18: Loads, tmp_path: Path) -> None:
    """The others do, and the counts add up."""
    path = write(tmp_path / "f", "2,x", "bad,y", "3,z", "3,zz")
    rules = replace(IMPATIENT, on_error="reject")
    outcome = loads18.run(mode_target(path, "upsert", key=("k",), keep="last"), rules=rules)
    assert (outcome.rows, outcome.rejected, outcome.duplicates) == (2, 1, 1)
    assert loads18.rows() == [(1, "a", None), (2, "x", None), (3, "zz", None)]


# ---------------------------------------------------------------- several ways in one load


def test_targets_of_one_load_land_in_their_own_ways(loads18: Loads, tmp_path: Path) -> None:
    """All in one last transaction, but for what COPY puts into its table."""
    loads18.execute("CREATE TABLE u (k int, v text); CREATE TABLE r (LIKE t INCLUDING ALL)")
    path = write(tmp_path / "f", "2,x,5", "3,y,6", header="k,v,w")
    outcome = loads18.run(
        mode_target(path, "upsert", key=("k",)),
        target(path, into="u", skip=["w"]),
        mode_target(path, "replace", into="r"),
    )
    assert outcome.rows == 6
    assert loads18.rows() == [(1, "a", None), (2, "x", 5), (3, "y", 6)]
    assert loads18.rows("r") == [(2, "x", 5), (3, "y", 6)]
    assert loads18.count("u") == 2


def test_publication_for_all_tables_refuses_landing_tables(loads18: Loads, tmp_path: Path) -> None:
    """Its subscribers lack them; the error has the statement that they need."""
    loads18.run(target(write(tmp_path / "e", "8,e,1", header="k,v,w")))
    loads18.execute("CREATE PUBLICATION p FOR ALL TABLES")
    with pytest.raises(TargetError, match="would stop the subscribers") as caught:
        loads18.run(mode_target(write(tmp_path / "f", "2,x"), "upsert", key=("k",)))
    assert 'CREATE TABLE "penstock"."staging_' in str(caught.value)
    with pytest.raises(TargetError, match="would stop the subscribers"):
        loads18.run(mode_target(write(tmp_path / "f", "2,x,1", header="k,v,w"), "replace"))
    assert loads18.execute("SELECT state FROM penstock.loads") == [("complete",)]
