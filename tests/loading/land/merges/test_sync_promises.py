"""--mode sync: a delete touches no record, a unique value may pass on, and what keeps a row or a record is an error."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from penstock.core.errors import DataError, PenstockError, TargetError
from penstock.core.values.job import LoadJob
from penstock.core.values.names import parse_table_name
from penstock.loading.values.plan import ForeseenLoad
from penstock.loading.views.outcome import describe_outcome
from penstock.loading.views.plan import describe_plan
from support.codes import has_code
from support.files import write_to
from support.loads import IMPATIENT, Loads, share_ledger
from support.modes import mode_target

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.values.job import TargetJob

pytestmark = pytest.mark.versions

_REJECT = replace(IMPATIENT, on_error="reject")


def _sync(path: Path, mode: str = "sync", **options: Any) -> TargetJob:
    more = {"max_delete": 100} if mode == "sync" else {}
    return mode_target(path, mode, **({"key": ("k",), "has_header": True, "format": "csv"} | more | options))


def _append(path: Path, **options: Any) -> TargetJob:
    return mode_target(path, "append", has_header=True, format="csv", **options)


# ---------------------------------------------------------------- rows that refer to deleted ones

_PARENT = "CREATE TABLE parent (k int PRIMARY KEY, v text); INSERT INTO parent VALUES (1), (2), (3);"
_CHILD = "CREATE TABLE child (k int PRIMARY KEY, p int DEFAULT 1 REFERENCES parent ON DELETE {}, v text);"


@pytest.mark.parametrize("action", ["CASCADE", "SET NULL", "SET DEFAULT"])
def test_table_whose_own_rows_its_deletions_may_change_is_refused(database: str, tmp_path: Path, action: str) -> None:
    """Before anything is staged: a record of the files may refer to a row that is to be deleted."""
    loads = Loads(
        database,
        setup=f"CREATE TABLE e (k int PRIMARY KEY, boss int DEFAULT 1 REFERENCES e ON DELETE {action}, v text);"
        "INSERT INTO e VALUES (1, NULL, 'old'), (2, 1, 'old'), (3, 2, 'old')",
    )
    before = loads.rows("e")
    with pytest.raises(TargetError, match="by the same load") as caught:
        loads.run(_sync(write_to(tmp_path / "f.csv", "k,boss,v\n1,,new\n3,2,new\n"), into="e"))
    assert all(part in str(caught.value.detail) for part in ('"e_boss_fkey"', f"ON DELETE {action}"))
    assert loads.rows("e") == before


@pytest.mark.parametrize("mode", ["sync", "upsert", "insert-new", "append"])
def test_table_that_cascades_reach_is_not_filled_by_the_same_load(database: str, tmp_path: Path, mode: str) -> None:
    """The load that its hint names works: the sync comes after, and deletes only rows without a record."""
    loads = Loads(database, setup=_PARENT + _CHILD.format("CASCADE") + "INSERT INTO child VALUES (1, 2)")
    parents = write_to(tmp_path / "p.csv", "k,v\n1,a\n3,a\n")
    children = write_to(tmp_path / "c.csv", "k,p,v\n7,3,\n")
    child = _append(children, into="child") if mode == "append" else _sync(children, mode, into="child")
    with pytest.raises(TargetError, match="by the same load"):
        loads.run(_sync(parents, into="parent"), child)
    assert (loads.count("parent"), loads.rows("child")) == (3, [(1, 2, None)])
    loads.run(_sync(parents, "upsert", into="parent"), child)
    assert loads.run(_sync(parents, into="parent")).deleted == 1
    assert loads.rows("child") == [(7, 3, None)]


def test_key_that_cascades_only_since_the_load_began_is_noticed(database: str, tmp_path: Path) -> None:
    """At the deletion, in the same transaction."""
    loads = Loads(database, setup=_PARENT + _CHILD.format("NO ACTION"))
    parents = write_to(tmp_path / "p.csv", "k,v\n1,a\n3,a\n")
    children = write_to(tmp_path / "c.csv", "k,p,v\n7,3,\n")
    job = LoadJob(targets=(_sync(parents, into="parent"), _sync(children, into="child")), rules=IMPATIENT)
    with loads.loader() as loader:
        plan = loader.plan(job)
        loads.execute(
            "ALTER TABLE child DROP CONSTRAINT child_p_fkey, ADD FOREIGN KEY (p) REFERENCES parent ON DELETE CASCADE"
        )
        with pytest.raises(TargetError, match="by the same load"):
            loader.run(plan)
    assert (loads.count("parent"), loads.count("child")) == (3, 0)


@pytest.mark.parametrize("synced", ["whole", "part"])
def test_table_and_its_partition_are_not_filled_by_one_sync(database: str, tmp_path: Path, synced: str) -> None:
    """The sync of one would delete the records of the other."""
    loads = Loads(
        database,
        setup="CREATE TABLE whole (k int PRIMARY KEY, v text) PARTITION BY RANGE (k);"
        "CREATE TABLE part PARTITION OF whole FOR VALUES FROM (0) TO (9); INSERT INTO whole VALUES (1, 'old')",
    )
    other = {"whole": "part", "part": "whole"}[synced]
    files = write_to(tmp_path / "f.csv", "k\n2\n"), write_to(tmp_path / "g.csv", "k\n3\n")
    with pytest.raises(TargetError, match="by the same load"):
        loads.run(_sync(files[0], into=synced), _sync(files[1], "upsert", into=other))
    assert loads.rows("whole") == [(1, "old")]


def test_table_is_not_synced_by_a_load_that_makes_a_part_of_its_partition(ledger18: str, tmp_path: Path) -> None:
    """Its rows would be there behind the sync, and the next one would delete them."""
    loads = Loads(
        ledger18,
        setup="CREATE TABLE whole (k int PRIMARY KEY, v text) PARTITION BY RANGE (k);"
        "CREATE TABLE part PARTITION OF whole FOR VALUES FROM (0) TO (99) PARTITION BY RANGE (k);"
        "CREATE TABLE first PARTITION OF part FOR VALUES FROM (0) TO (9)",
    )
    files = write_to(tmp_path / "f.csv", "k\n2\n"), write_to(tmp_path / "g.csv", "k,v\n13,x\n")
    new = replace(
        _append(files[1], into="second"), partition_of=parse_table_name("part"), for_values="FROM (9) TO (99)"
    )
    with pytest.raises(TargetError, match="by the same load"):
        loads.run(_sync(files[0], into="whole"), new)
    assert loads.count("whole") == 0
    assert loads.run(_sync(files[0], into="first"), new).rows == 2


@pytest.mark.parametrize("mode", ["append", "replace", "upsert"])
def test_table_that_cascades_reach_through_others_is_refused(database: str, tmp_path: Path, mode: str) -> None:
    """Through a partitioned table that the load does not fill."""
    loads = Loads(
        database,
        setup=_PARENT + "CREATE TABLE middle (m int PRIMARY KEY, p int REFERENCES parent ON DELETE CASCADE)"
        " PARTITION BY RANGE (m); CREATE TABLE middle_1 PARTITION OF middle DEFAULT;"
        "CREATE TABLE leaf (k int PRIMARY KEY, m int REFERENCES middle ON DELETE SET NULL);"
        "INSERT INTO middle VALUES (10, 1)",
    )
    key = {"key": ("k",)} if mode == "upsert" else {}
    leaves = write_to(tmp_path / "l.csv", "k,m\n7,10\n")
    jobs = (
        _sync(write_to(tmp_path / "p.csv", "k,v\n2,a\n3,a\n"), into="parent"),
        mode_target(leaves, mode, into="leaf", has_header=True, format="csv", **key),
    )
    with pytest.raises(TargetError, match="by the same load"):
        loads.run(*jobs)
    assert (loads.count("parent"), loads.count("leaf")) == (3, 0)


def test_tables_that_a_cascade_changes_are_named(ledger18: str, tmp_path: Path) -> None:
    """By the plan, by the outcome and as JSON; not if no row is deleted."""
    loads = Loads(ledger18, setup=_PARENT + _CHILD.format("CASCADE") + "INSERT INTO child VALUES (1, 2)")
    path = write_to(tmp_path / "p.csv", "k,v\n1,a\n3,a\n")
    with loads.loader() as loader:
        plan = loader.plan(LoadJob(targets=(_sync(path, into="parent"),), rules=IMPATIENT))
    assert "in public.child (ON DELETE CASCADE)" in "\n".join(describe_plan(ForeseenLoad(plan=plan)))
    for expected in ("public.child (ON DELETE CASCADE)",), ():
        outcome = loads.run(_sync(path, into="parent"))
        assert outcome.cascades == expected
        assert any("public.child (ON DELETE CASCADE)" in line for line in describe_outcome(outcome)) == bool(expected)


# ---------------------------------------------------------------- unique values that pass on

_UNIQUE = (
    "CREATE TABLE t (k int PRIMARY KEY, u int {}, v text); INSERT INTO t SELECT n, n * 10 FROM generate_series(1, 9) n;"
)
_PASSED = "k,u\n" + "".join(f"{n},{n * 10}\n" for n in range(1, 9)) + "10,90\n"


@pytest.mark.parametrize("kind", ["UNIQUE", "UNIQUE DEFERRABLE INITIALLY DEFERRED", "EXCLUDE USING btree (u WITH =)"])
@pytest.mark.parametrize("rules", [IMPATIENT, _REJECT], ids=["stop", "reject"])
def test_unique_value_passes_from_a_deleted_row_to_a_record(
    database: str, tmp_path: Path, kind: str, rules: Any
) -> None:
    """The rows are deleted first, only because the merge would fail otherwise."""
    parts = ("", f", {kind}") if kind.startswith("EXCLUDE") else (kind, "")
    setup = f"CREATE TABLE t (k int PRIMARY KEY, u int {parts[0]}, v text{parts[1]});"
    loads = Loads(database, setup=setup + "INSERT INTO t SELECT n, n * 10 FROM generate_series(1, 9) n")
    outcome = loads.run(_sync(write_to(tmp_path / "f.csv", _PASSED)), rules=rules)
    assert (outcome.inserted, outcome.updated, outcome.deleted, outcome.rejected or 0) == (1, 8, 1, 0)
    assert sorted(row[:2] for row in loads.rows()) == [*((n, n * 10) for n in range(1, 9)), (10, 90)]


def test_unique_value_of_a_row_that_stays_is_an_error_as_before(database: str, tmp_path: Path) -> None:
    """The error names the record, and the deletions are undone."""
    loads = Loads(database, setup=_UNIQUE.format("UNIQUE"))
    before = loads.rows()
    path = write_to(tmp_path / "f.csv", _PASSED + "11,10\n")
    with pytest.raises(DataError, check=has_code("23505")) as caught:
        loads.run(_sync(path))
    assert "f.csv line 11" in str(caught.value.detail)
    assert loads.rows() == before


def test_reject_rolls_the_deletions_back_too(database: str, tmp_path: Path) -> None:
    """A record is rejected all the same, so no row may be deleted: the record that needs the value is rejected too."""
    loads = Loads(database, setup=_UNIQUE.format("UNIQUE"))
    path = write_to(tmp_path / "f.csv", _PASSED + "11,10\n")
    outcome = loads.run(_sync(path), rules=_REJECT)
    assert (outcome.rejected, outcome.deleted, outcome.updated, loads.count()) == (2, 0, 8, 9)
    assert "not-deleted" in [notice.code for notice in outcome.warnings]


def test_rows_that_others_refer_to_are_never_deleted_first(database: str, tmp_path: Path) -> None:
    """The children that move to another parent would be deleted with it, or keep it."""
    loads = Loads(
        database,
        setup=_UNIQUE.format("UNIQUE") + "CREATE TABLE c (k int PRIMARY KEY, t int REFERENCES t ON DELETE CASCADE);"
        "INSERT INTO c VALUES (1, 9)",
    )
    with pytest.raises(DataError, check=has_code("23505")):
        loads.run(_sync(write_to(tmp_path / "f.csv", _PASSED)))
    assert (loads.count(), loads.rows("c")) == (9, [(1, 9)])


# ---------------------------------------------------------------- what keeps a row, or a record from its row

_T = "CREATE TABLE t (k int PRIMARY KEY, v text); INSERT INTO t SELECT n, 'old' FROM generate_series(1, 5) n;"
_ON = (
    "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {} END $$; CREATE TRIGGER g {} EXECUTE FUNCTION"
    " f();"
)


@pytest.mark.parametrize(
    ("body", "event", "message"),
    [
        ("RETURN NULL;", "BEFORE DELETE ON t FOR EACH ROW", "2 rows that the files do not have could not be deleted"),
        (
            "INSERT INTO t VALUES (OLD.k); RETURN NULL;",
            "AFTER DELETE ON t FOR EACH ROW",
            "2 rows that the files do not have could not be deleted",
        ),
        ("NEW.k := NEW.k + 100; RETURN NEW;", "BEFORE INSERT ON t FOR EACH ROW", "would have no row with its key"),
        (
            "DELETE FROM t WHERE k = 1; RETURN NULL;",
            "AFTER DELETE ON t FOR EACH ROW WHEN (OLD.k > 1)",
            "1 record of the files would have no row",
        ),
    ],
)
def test_trigger_that_breaks_the_promise_of_a_sync_stops_it(
    database: str, tmp_path: Path, body: str, event: str, message: str
) -> None:
    """After the deletions and before the commit; nothing is changed, and the trigger is named."""
    loads = Loads(database, setup=_T + _ON.format(body, event))
    before = loads.rows()
    with pytest.raises(TargetError, match=message) as caught:
        loads.run(_sync(write_to(tmp_path / "f.csv", "k,v\n1,new\n2,new\n3,new\n9,new\n")))
    assert "g ON " in str(caught.value.detail)
    assert loads.rows() == before


def test_trigger_that_a_partition_has_of_its_parent_is_checked_too(database: str, tmp_path: Path) -> None:
    """If the partition is the target, the trigger that breaks the promise is a copy of its parent's."""
    loads = Loads(
        database,
        setup="CREATE TABLE t (k int PRIMARY KEY, v text) PARTITION BY RANGE (k);"
        "CREATE TABLE part PARTITION OF t FOR VALUES FROM (0) TO (1000); INSERT INTO t VALUES (1, 'old'), (2, 'old');"
        + _ON.format("NEW.k := NEW.k + 100; RETURN NEW;", "BEFORE INSERT ON t FOR EACH ROW"),
    )
    before = loads.rows()
    with pytest.raises(TargetError, match="would have no row with its key"):
        loads.run(_sync(write_to(tmp_path / "f.csv", "k,v\n1,new\n3,new\n"), into="part"))
    assert loads.rows() == before


def test_rows_that_a_trigger_adds_are_deleted_even_if_none_was_missing(database: str, tmp_path: Path) -> None:
    """They are rows that the files do not have."""
    loads = Loads(
        database,
        setup=_T + _ON.format("INSERT INTO t VALUES (77) ON CONFLICT DO NOTHING; RETURN NULL;", "AFTER UPDATE ON t"),
    )
    path = write_to(tmp_path / "f.csv", "k,v\n" + "".join(f"{n},new\n" for n in range(1, 6)))
    assert loads.run(_sync(path)).deleted == 1
    assert [k for k, _ in loads.rows()] == [1, 2, 3, 4, 5]


def test_skipped_updates_do_not_hide_rows_that_a_trigger_deletes(database: str, tmp_path: Path) -> None:
    """A record whose update is skipped has its row, so no other record may lack one for it."""
    loads = Loads(
        database,
        setup="CREATE TABLE t (k int PRIMARY KEY, v text); INSERT INTO t VALUES (1), (2), (3);"
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.k = 1 THEN RETURN NULL; END IF;"
        " IF NEW.k = 3 THEN DELETE FROM t WHERE k = 2; END IF; RETURN NEW; END $$;"
        "CREATE TRIGGER f BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION f()",
    )
    path = write_to(tmp_path / "f.csv", "k,v\n1,a\n2,a\n3,a\n")
    with pytest.raises(TargetError, match="1 record of the files would have no row with its key"):
        loads.run(_sync(path, into="t"))
    assert loads.rows("t") == [(1, None), (2, None), (3, None)]


def test_records_that_a_trigger_skips_are_no_error(database: str, tmp_path: Path) -> None:
    """As documented: they are counted."""
    body = "IF NEW.k > 5 THEN RETURN NULL; END IF; RETURN NEW;"
    loads = Loads(database, setup=_T + _ON.format(body, "BEFORE INSERT ON t FOR EACH ROW"))
    outcome = loads.run(_sync(write_to(tmp_path / "f.csv", "k,v\n1,new\n8,new\n9,new\n")))
    assert (outcome.suppressed, outcome.updated, outcome.deleted, loads.rows()) == (2, 1, 4, [(1, "new")])


def test_policy_that_hides_rows_from_a_delete_stops_a_sync(
    database: str, user_name: str, user_conninfo: str, tmp_path: Path
) -> None:
    """The role sees the row, and may not delete it: DELETE itself says nothing."""
    loads = Loads(
        database,
        setup=_T + "ALTER TABLE t ENABLE ROW LEVEL SECURITY; CREATE POLICY a ON t USING (true);"
        "CREATE POLICY b ON t AS RESTRICTIVE FOR DELETE USING (k > 4);"
        f'GRANT ALL ON t TO "{user_name}"',
    )
    share_ledger(loads, f'"{user_name}"')
    loads.execute(f'GRANT CREATE ON SCHEMA penstock TO "{user_name}"')
    with pytest.raises(TargetError, match="1 row that the files do not have could not be deleted") as caught:
        Loads(user_conninfo).run(_sync(write_to(tmp_path / "f.csv", "k,v\n1,new\n2,new\n3,new\n")))
    assert "row-level security" in str(caught.value.detail)
    assert loads.count() == 5


def test_row_keeps_its_key_if_the_record_writes_it_otherwise(database: str, tmp_path: Path) -> None:
    """1 equals 1.0: setting it would fire ON UPDATE of referencing tables, and lock out inserts into them."""
    loads = Loads(database, setup="CREATE TABLE t (k numeric PRIMARY KEY, v text); INSERT INTO t VALUES (1.0), (2.50)")
    outcome = loads.run(_sync(write_to(tmp_path / "f.csv", "k,v\n1,new\n2.5,new\n")))
    assert (outcome.updated, outcome.deleted) == (2, 0)
    assert loads.execute("SELECT k::text, v FROM t ORDER BY k") == [("1.0", "new"), ("2.50", "new")]


# ---------------------------------------------------------------- what a statement reports, and what was sent


@pytest.mark.parametrize("mode", ["upsert", "sync", "insert-new", "truncate"])
def test_records_that_are_gone_from_the_staging_table_stop_the_load(ledger18: str, tmp_path: Path, mode: str) -> None:
    """The statement's count is held against the records that were sent, before the commit."""
    loads = Loads(ledger18, setup=_T)
    # Stop the load once, with its records staged.
    options: dict[str, Any] = {"key": ("k",)} if mode != "truncate" else {}
    options |= {"max_delete": 100} if mode == "sync" else {}
    rules = replace(IMPATIENT, atomic=mode == "truncate")
    loads.execute("ALTER TABLE t ADD CONSTRAINT c CHECK (v <> 'new') NOT VALID")
    path = write_to(tmp_path / "f.csv", "k,v\n" + "".join(f"{n},new\n" for n in range(1, 9)))
    job = mode_target(path, mode, has_header=True, format="csv", **options)
    with pytest.raises(PenstockError, check=has_code("23514")):
        loads.run(job, rules=rules)
    ((staging,),) = loads.execute("SELECT landing_table FROM penstock.targets")
    loads.execute(f"DELETE FROM penstock.{staging} WHERE k = 3; ALTER TABLE t DROP CONSTRAINT c")
    before = loads.rows()
    with pytest.raises(TargetError, match="7 of 8 records were stored"):
        loads.run(job, rules=rules)
    assert loads.rows() == before


def test_small_partitions_that_a_merge_has_updated_are_vacuumed(ledger18: str, tmp_path: Path) -> None:
    """Their pages and their counts of inserted rows stay the same."""
    loads = Loads(
        ledger18,
        setup="CREATE TABLE t (k int PRIMARY KEY, v int) PARTITION BY RANGE (k);"
        "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (10); CREATE TABLE t2 PARTITION OF t DEFAULT;"
        "INSERT INTO t SELECT n, 0 FROM generate_series(1, 20) n",
    )
    for value in 1, 2:
        path = write_to(tmp_path / f"{value}.csv", "k,v\n" + "".join(f"{n},{value}\n" for n in range(1, 10)))
        outcome = loads.run(mode_target(path, "upsert", key=("k",), has_header=True), rules=IMPATIENT)
        assert outcome.steps["upkeep"].vacuumed == ("public.t1",)  # type: ignore[attr-defined]
