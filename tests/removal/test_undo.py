"""penstock undo removes exactly the rows that a load has stored, and the load from the ledger, or nothing."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import penstock
from penstock.api.ledger_view import LedgerView
from penstock.core.errors import DataError, PenstockError, ServerError, TargetError
from penstock.core.values.job import LoadRules, Transform
from penstock.removal.decide import refuse_load
from support.command import run_process
from support.dumps import copy_as_template, dump_and_restore
from support.loads import IMPATIENT, Loads, await_end_of_backends, share_ledger, target
from support.modes import Killed, killing_at, mode_target

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.values.job import Indexes
    from support.servers import PgServer

BATCH = 2000
OLD = [(-1, "old"), (-2, "old")]


@pytest.fixture
def loads(ledger18: str) -> Loads:
    """Provide loads in tiny batches into a table with two rows of others."""
    setup = "CREATE TABLE t (a int, b text); INSERT INTO t VALUES (-1, 'old'), (-2, 'old')"
    return Loads(ledger18, piece_bytes=509, chunk_bytes=500, setup=setup)


def write(path: Path, numbers: range, *, bad: int | None = None) -> Path:
    """Write a csv file of numbers; the record of `bad` has letters for its number."""
    path.write_text("a,b\n" + "".join(f"{'x' * len(str(n)) if n == bad else n},value {n}\n" for n in numbers))
    return path


def run(loads: Loads, path: Path, mode: str = "append", **options: Any) -> str:
    """Load a file in several transactions and return the load's id."""
    load_id = loads.run(mode_target(path, mode, **options), batch_bytes=BATCH).load_id
    assert load_id is not None
    return load_id


def numbers(loads: Loads) -> list[int]:
    """Return column a in order."""
    return [row[0] for row in loads.execute("SELECT a FROM t ORDER BY a")]


def has_load(loads: Loads, load_id: str) -> bool:
    """Return whether the ledger has a load."""
    return loads.execute(f"SELECT count(*) FROM penstock.loads WHERE id = '{load_id}'") == [(1,)]


def refuse(loads: Loads, load_id: str, match: str, **options: Any) -> PenstockError:
    """Undo a load, which must be refused and change nothing; return the error."""
    before = loads.rows()
    with pytest.raises(PenstockError, match=match) as caught:
        penstock.undo(load_id, to=loads.conninfo, **options)
    assert loads.rows() == before
    assert has_load(loads, load_id)
    return caught.value


@pytest.mark.part("rest")
@pytest.mark.versions
def test_rows_of_the_load_alone_go_and_its_file_can_be_loaded_again(database: str, tmp_path: Path) -> None:
    """Rows of others, and of loads before and after it, stay."""
    setup = "CREATE TABLE t (a int, b text); INSERT INTO t VALUES (-1, 'old'), (-2, 'old')"
    loads = Loads(database, piece_bytes=509, chunk_bytes=500, setup=setup)
    paths = [write(tmp_path / name, range(n, n + 300)) for name, n in (("a", 0), ("b", 1000), ("c", 2000))]
    ids = [run(loads, path) for path in paths]
    planned = penstock.undo(ids[1], to=database, plan=True)
    assert [(each.stored, each.rows) for each in planned.tables] == [(300, 300)]
    assert len(numbers(loads)) == 902
    assert penstock.undo(ids[1][:8], to=database) == planned
    assert numbers(loads) == [-2, -1, *range(300), *range(2000, 2300)]
    assert not has_load(loads, ids[1])
    assert penstock.verify(ids[2], to=database, values=True).is_verified
    assert loads.run(target(paths[1])).rows == 300
    assert loads.count() == 902


@pytest.mark.pg("< 17")
@pytest.mark.parametrize("mode", ["append", "truncate"])
def test_rows_of_a_table_whose_index_needs_the_users_search_path_are_counted(
    ledger: str, tmp_path: Path, mode: str
) -> None:
    """The planner inlines a function of the index in each statement that reads the table: to load, verify and undo."""
    setup = (
        "CREATE TABLE t (a int, b text);"
        "CREATE FUNCTION inner_one(text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN $1; END';"
        "CREATE FUNCTION outer_one(text) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT inner_one($1)';"
        "CREATE INDEX i ON t (outer_one(b)); INSERT INTO t VALUES (-1, 'old')"
    )
    loads = Loads(ledger, setup=setup)
    load_id = run(loads, write(tmp_path / "a", range(3)), mode)
    assert penstock.verify(load_id, to=ledger).agrees
    if mode == "append":
        assert penstock.undo(load_id, to=ledger, plan=True).rows == 3
        penstock.undo(load_id, to=ledger)
    assert numbers(loads) == ([-1] if mode == "append" else [0, 1, 2])


def test_latest_is_the_newest_load(loads: Loads, tmp_path: Path) -> None:
    """And of a table that it created, all rows go; the table stays."""
    path = write(tmp_path / "a", range(300))
    run(loads, path, into="made", create=True)
    assert penstock.undo("latest", to=loads.conninfo).rows == 300
    assert loads.rows("made") == []
    assert run(loads, path, into="made", create=True)


def test_latest_is_no_load_of_another_login_of_the_role(
    database: str, user_name: str, user_conninfo: str, tmp_path: Path
) -> None:
    """An undo that is repeated by mistake would remove it: its row cannot say that a later load was removed."""
    admin = Loads(database, setup="CREATE TABLE t (a int, b text)")
    share_ledger(admin, f'"{user_name}"')
    admin.execute(f'ALTER TABLE t OWNER TO "{user_name}"')
    first = run(Loads(database, role=user_name), write(tmp_path / "a", range(3)))
    run(Loads(user_conninfo), write(tmp_path / "b", range(3, 5)))
    assert penstock.undo("latest", to=user_conninfo).rows == 2
    with pytest.raises(TargetError, match=f"{first}, may have been begun by another login"):
        penstock.undo("latest", to=user_conninfo)
    assert admin.count("t") == 3
    assert penstock.undo(first, to=user_conninfo).rows == 3


def test_latest_is_no_older_load_after_an_undo(loads: Loads, tmp_path: Path) -> None:
    """Who undoes twice by mistake loses nothing; nor does one who forgets. The next load is the newest again."""
    first, second = (run(loads, write(tmp_path / name, range(300))) for name in ("a", "b"))
    penstock.undo("latest", to=loads.conninfo)
    with pytest.raises(TargetError, match=f"{second}, is not in the ledger any more") as caught:
        penstock.undo("latest", to=loads.conninfo)
    assert first in str(caught.value.hint)
    assert loads.count() == 302
    third = run(loads, tmp_path / "b")
    with LedgerView(penstock.connect_to(loads.conninfo)) as view:
        view.forget(view.find_newest("latest"), keeps_rows=True)
        with pytest.raises(TargetError, match=f"{third}, is not in the ledger"):
            view.find_newest("latest")
    assert penstock.undo(first, to=loads.conninfo).rows == 300


def test_names_with_percent_signs_are_no_placeholders(loads: Loads, tmp_path: Path) -> None:
    """One table, and several."""
    loads.execute('CREATE TABLE "a%b" (a int, b text); CREATE TABLE "growth %" (a int, b text)')
    paths = [write(tmp_path / name, range(300)) for name in ("f", "g")]
    for names in (["a%b"], ["a%b", "growth %"]):
        jobs = [target(path, into=f'"{name}"') for path, name in zip(paths, names, strict=False)]
        load_id = str(loads.run(*jobs).load_id)
        assert penstock.undo(load_id, to=loads.conninfo, plan=True).rows == 300 * len(names)
        assert penstock.undo(load_id, to=loads.conninfo).rows == 300 * len(names)
        assert [loads.count(f'"{name}"') for name in names] == [0] * len(names)


def test_plan_names_what_refers_to_the_rows_and_which_right_is_missing(loads: Loads, tmp_path: Path) -> None:
    """ON DELETE CASCADE would delete rows of others."""
    loads.execute("ALTER TABLE t ADD PRIMARY KEY (a); CREATE TABLE c (a int REFERENCES t ON DELETE CASCADE)")
    load_id = run(loads, write(tmp_path / "a", range(300)))
    (table,) = penstock.undo(load_id, to=loads.conninfo, plan=True).tables
    assert table.referrers == ("public.c (c_a_fkey): deletes its rows, too",)
    loads.execute(
        "CREATE ROLE reader; GRANT USAGE ON SCHEMA penstock TO reader; GRANT SELECT ON t TO reader;"
        "GRANT SELECT ON ALL TABLES IN SCHEMA penstock TO reader;"
        f"SET session_replication_role = replica; UPDATE penstock.loads SET owner = 'reader' WHERE id = '{load_id}'"
    )
    try:
        for grant in ("SELECT ON t", "DELETE ON t", "SELECT (a), DELETE ON t"):
            loads.execute(f"REVOKE ALL ON t FROM reader; GRANT {grant} TO reader")
            with pytest.raises(TargetError, match="lacks DELETE or SELECT"):
                penstock.undo(load_id, to=loads.conninfo, role="reader", plan=True)
    finally:
        loads.execute("DROP OWNED BY reader; DROP ROLE reader")


@pytest.mark.parametrize(
    "done",
    ["VACUUM (FREEZE) t", "VACUUM FULL t", "CREATE INDEX i ON t (a); CLUSTER t USING i", "ALTER TABLE t RENAME TO u"],
)
def test_what_keeps_rows_as_they_are_does_not_hinder(loads: Loads, tmp_path: Path, done: str) -> None:
    """Freezing and writing the table anew leave xmin; a renamed table is the same table."""
    load_id = run(loads, write(tmp_path / "a", range(300)))
    for statement in done.split("; "):
        loads.execute(statement)
    assert penstock.undo(load_id, to=loads.conninfo).rows == 300
    assert loads.rows("u" if "RENAME" in done else "t") == sorted(OLD, key=repr)


def test_frozen_rows_of_a_created_table_go(loads: Loads, tmp_path: Path) -> None:
    """COPY FREEZE writes the transaction's number too."""
    job = target(write(tmp_path / "a", range(300)), into="made", create=True)
    load_id = loads.run(job, rules=replace(IMPATIENT, freeze="auto")).load_id
    assert load_id is not None
    assert penstock.undo(load_id, to=loads.conninfo).rows == 300
    assert loads.rows("made") == []


@pytest.mark.parametrize(
    ("change", "left"),
    [
        ("DELETE FROM t WHERE a = 7", []),
        ("UPDATE t SET b = 'changed' WHERE a = 7", [(7, "changed")]),
    ],
)
def test_rows_that_were_changed_since_are_told_and_only_partial_removes_the_rest(
    loads: Loads, tmp_path: Path, change: str, left: list[Any]
) -> None:
    """An updated row is not the load's any more."""
    load_id = run(loads, write(tmp_path / "a", range(300)))
    loads.execute(change)
    error = refuse(loads, load_id, "cannot be undone as a whole")
    assert "299" in str(error.detail)
    assert "partial=True" in str(error.hint)
    (done,) = penstock.undo(load_id, to=loads.conninfo, partial=True).tables
    assert (done.stored, done.rows) == (300, 299)
    assert loads.rows() == sorted([*OLD, *left], key=repr)


def test_load_of_which_no_row_is_as_it_was_is_refused(loads: Loads, tmp_path: Path) -> None:
    """Its files would count as not loaded, and all rows be stored again: as after ALTER TABLE has written the table."""
    load_id = run(loads, write(tmp_path / "a", range(300)))
    loads.execute("ALTER TABLE t ALTER a TYPE bigint")
    error = refuse(loads, load_id, "no row of it", partial=True)
    assert "--keep-rows" in str(error.hint)


def test_table_that_was_dropped_has_no_rows_to_remove(loads: Loads, tmp_path: Path) -> None:
    """Those of the other tables of the load go, if so asked."""
    loads.execute("CREATE TABLE u (a int, b text)")
    jobs = [target(write(tmp_path / into, range(300)), into=into) for into in ("t", "u")]
    load_id = str(loads.run(*jobs).load_id)
    loads.execute("DROP TABLE u")
    assert "partial=True" in str(refuse(loads, load_id, "does not exist any more").hint)
    assert penstock.undo(load_id, to=loads.conninfo, partial=True).rows == 300
    assert loads.rows() == sorted(OLD, key=repr)


def test_files_that_another_load_has_loaded_too_are_counted(loads: Loads, tmp_path: Path) -> None:
    """They still count as loaded."""
    path = write(tmp_path / "a", range(300))
    run(loads, path)
    again = loads.run(target(path), rules=replace(IMPATIENT, again=True)).load_id
    assert penstock.undo(str(again), to=loads.conninfo).shared == 1
    assert loads.run(target(path)).rows == 0


def test_row_that_moved_to_another_partition_is_told(loads: Loads, tmp_path: Path) -> None:
    """Others of all partitions go."""
    loads.execute(
        "CREATE TABLE p (a int, b text) PARTITION BY RANGE (a);"
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (100);"
        "CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (100) TO (1000)"
    )
    load_id = run(loads, write(tmp_path / "a", range(300)), into="p")
    loads.execute("UPDATE p SET a = 500 WHERE a = 7")
    refuse(loads, load_id, "cannot be undone as a whole")
    penstock.undo(load_id, to=loads.conninfo, partial=True)
    assert loads.rows("p") == [(500, "value 7")]


def test_rows_of_a_table_that_inherits_stay(loads: Loads, tmp_path: Path) -> None:
    """COPY had stored none in it."""
    load_id = run(loads, write(tmp_path / "a", range(300)))
    loads.execute("CREATE TABLE child () INHERITS (t); INSERT INTO child SELECT * FROM ONLY t WHERE a > 0")
    penstock.undo(load_id, to=loads.conninfo)
    assert loads.count() == 299 + 2


@pytest.mark.parametrize(
    ("mode", "options", "rules", "match"),
    [
        ("truncate", {}, IMPATIENT, "removed the table's former rows"),
        ("replace", {}, IMPATIENT, "replaced the table"),
        ("upsert", {"key": ("a",)}, IMPATIENT, "updated rows"),
        ("sync", {"key": ("a",), "max_delete": 100}, IMPATIENT, "updated or deleted rows"),
        ("append", {}, replace(IMPATIENT, on_error="reject"), "savepoints"),
        ("insert-new", {"key": ("a",)}, replace(IMPATIENT, on_error="reject"), "savepoints"),
        (
            "append",
            {"transform": Transform(name="f.sql", text="INSERT INTO t SELECT a::int, b FROM :staging")},
            IMPATIENT,
            "transform",
        ),
    ],
)
def test_load_that_did_what_cannot_be_reverted_is_refused_with_the_reason(
    loads: Loads, tmp_path: Path, mode: str, options: dict[str, Any], rules: LoadRules, match: str
) -> None:
    """The hint says what to do by hand; that of a full refresh, that the next one takes the place of its rows."""
    loads.execute("DELETE FROM t; ALTER TABLE t ADD PRIMARY KEY (a)")
    outcome = loads.run(mode_target(write(tmp_path / "a", range(300)), mode, **options), rules=rules)
    error = refuse(loads, str(outcome.load_id), match, partial=True)
    is_refresh = mode in ("truncate", "replace")
    assert (f'with mode="{mode}"' if is_refresh else "penstock loads forget") in str(error.hint)


KEYED = "DELETE FROM t WHERE a = -2; ALTER TABLE t ADD PRIMARY KEY (a); INSERT INTO t VALUES (7, 'old'), (900, 'old')"


@pytest.mark.part("rest")
@pytest.mark.versions
def test_new_rows_of_an_insert_new_go_and_those_that_had_their_keys_stay(database: str, tmp_path: Path) -> None:
    """A savepoint has stored them, and so their xmin is not the number of the transaction."""
    loads = Loads(database, setup=f"CREATE TABLE t (a int, b text); INSERT INTO t VALUES (-1, 'old'); {KEYED}")
    path = write(tmp_path / "a", range(300))
    load_id = run(loads, path, "insert-new", key=("a",))
    assert loads.count() == 302
    planned = penstock.undo(load_id, to=database, plan=True)
    assert [(each.stored, each.rows) for each in planned.tables] == [(299, 299)]
    assert penstock.undo(load_id, to=database) == planned
    assert loads.rows() == sorted([(-1, "old"), (7, "old"), (900, "old")], key=repr)
    assert loads.run(mode_target(path, "insert-new", key=("a",))).rows == 299


def test_insert_new_of_several_tables_and_partitions_is_undone(loads: Loads, tmp_path: Path) -> None:
    """Each table has a savepoint of its own. A trigger with an exception block has others."""
    loads.execute(
        f"{KEYED}; CREATE TABLE p (a int PRIMARY KEY, b text) PARTITION BY RANGE (a);"
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (100);"
        "CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (100) TO (1000);"
        "CREATE FUNCTION tried() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " BEGIN INSERT INTO seen VALUES (NEW.a); EXCEPTION WHEN unique_violation THEN NULL; END; RETURN NEW; END $$;"
        "CREATE TABLE seen (a int PRIMARY KEY);"
        "CREATE TRIGGER x BEFORE INSERT ON p FOR EACH ROW EXECUTE FUNCTION tried()"
    )
    targets = [
        mode_target(write(tmp_path / into, range(300)), "insert-new", into=into, key=("a",)) for into in ("t", "p")
    ]
    outcome = loads.run(*targets)
    assert (loads.count(), loads.count("p"), loads.count("seen")) == (302, 300, 300)
    undone = penstock.undo(str(outcome.load_id), to=loads.conninfo)
    assert [each.rows for each in undone.tables] == [300, 299]
    assert (loads.count(), loads.count("p")) == (3, 0)


@pytest.mark.part("rest")
def test_insert_new_whose_rows_were_changed_or_doubled_is_told(loads: Loads, tmp_path: Path) -> None:
    """As those of an append."""
    loads.execute(KEYED)
    path = write(tmp_path / "a", range(300))
    load_id = run(loads, path, "insert-new", key=("a",))
    run(loads, write(tmp_path / "b", range(5)), "upsert", key=("a",))
    refuse(loads, load_id, "cannot be undone as a whole")
    assert penstock.undo(load_id, to=loads.conninfo, partial=True).rows == 294
    loads.execute(
        "CREATE FUNCTION twice() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF NEW.a = 7000 THEN INSERT INTO t VALUES (-7, NEW.b); END IF; RETURN NEW; END $$;"
        "CREATE TRIGGER x AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION twice()"
    )
    load_id = run(loads, write(tmp_path / "c", range(6900, 7100)), "insert-new", key=("a",))
    loads.execute("DROP TRIGGER x ON t")
    refuse(loads, load_id, "more rows", partial=True)


def test_later_loads_that_skipped_records_with_existing_keys_are_told(loads: Loads, tmp_path: Path) -> None:
    """They may have skipped them because of this load's rows; those loads' files bring them, if loaded again."""
    loads.execute(KEYED)
    run(loads, write(tmp_path / "earlier", range(5, 10)), "insert-new", key=("a",))
    first = run(loads, write(tmp_path / "first", range(20, 23)))
    second = mode_target(write(tmp_path / "second", range(21, 24)), "insert-new", key=("a",))
    second_id = str(loads.run(second).load_id)
    run(loads, write(tmp_path / "third", range(30, 33)), "insert-new", key=("a",))
    planned = penstock.undo(first, to=loads.conninfo, plan=True)
    assert [each.code for each in planned.warnings] == ["existing-keys"]
    assert second_id in str(planned.warnings[0].hint)
    assert penstock.undo(first, to=loads.conninfo) == planned
    assert loads.run(second, rules=replace(IMPATIENT, again=True)).rows == 2
    assert [n for n in numbers(loads) if 20 <= n < 30] == [21, 22, 23]


def test_interrupted_insert_new_has_stored_no_rows(loads: Loads, tmp_path: Path) -> None:
    """Its staging table goes, and the ledger's record of it."""
    loads.execute(KEYED)
    path = write(tmp_path / "a", range(600), bad=500)
    with pytest.raises(DataError):
        run(loads, path, "insert-new", key=("a",))
    undone = penstock.undo("latest", to=loads.conninfo)
    assert undone.tables == ()
    assert loads.count() == 3
    assert loads.execute("SELECT count(*) FROM pg_class WHERE relname LIKE 'staging%'") == [(0,)]


def test_rows_that_came_through_a_staging_table_are_refused() -> None:
    """As those of a table with row security, or of several tables with --atomic."""
    staged = {"mode": "append", "landing": "staging", "transform": False}
    with pytest.raises(TargetError, match="moved from a staging table"):
        refuse_load("1", meaning=json.dumps({"targets": [staged]}), job="{}", is_partial=False)
    refuse_load("1", meaning=json.dumps({"targets": [staged | {"landing": "table"}]}), job="{}", is_partial=False)


def test_interrupted_load_is_undone(loads: Loads, tmp_path: Path) -> None:
    """What it has committed goes, and the corrected file is loaded as a whole."""
    path = write(tmp_path / "a", range(600), bad=500)
    with pytest.raises(DataError):
        run(loads, path)
    assert 2 < loads.count() < 602
    (load_id,) = [str(row[0]) for row in loads.execute("SELECT id FROM penstock.loads")]
    penstock.undo(load_id, to=loads.conninfo)
    assert loads.rows() == sorted(OLD, key=repr)
    run(loads, write(path, range(600)))
    assert numbers(loads) == [-2, -1, *range(600)]


def test_running_load_is_refused(loads: Loads, tmp_path: Path) -> None:
    """Its process would go on to store rows."""
    caught: list[PenstockError] = []

    def undo(number: int) -> None:
        if number == 8:
            with pytest.raises(TargetError, match="is running") as error:
                penstock.undo("latest", to=loads.conninfo)
            caught.append(error.value)

    loads.at_piece = undo
    run(loads, write(tmp_path / "a", range(600)))
    assert caught
    assert loads.count() == 602


def test_resumed_load_of_several_processes_is_undone_as_a_whole(loads: Loads, tmp_path: Path) -> None:
    """Its batches are of several sessions and runs."""
    paths = [write(tmp_path / f"f{n}", range(n * 100, n * 100 + 100)) for n in range(6)]
    rules = replace(IMPATIENT, join=True)

    pieces = itertools.count()

    def die(_number: int) -> None:
        if next(pieces) == 8:
            raise Killed

    loads.at_piece = die
    with pytest.raises(Killed):
        loads.run(target(paths, into="t"), rules=rules, batch_bytes=500)
    loads.at_piece = None
    outcome = loads.run(target(paths, into="t"), rules=rules, batch_bytes=500)
    assert loads.count() == 602
    assert penstock.undo(str(outcome.load_id), to=loads.conninfo).rows == 600
    assert loads.rows() == sorted(OLD, key=repr)


def test_foreign_key_holds_as_for_any_delete(loads: Loads, tmp_path: Path) -> None:
    """The error is the server's, its hint is not that of a load, and nothing is changed."""
    loads.execute("CREATE TABLE p (a int PRIMARY KEY, b text); CREATE TABLE c (a int REFERENCES p)")
    load_id = run(loads, write(tmp_path / "a", range(300)), into="p")
    loads.execute("INSERT INTO c VALUES (7)")
    with pytest.raises(PenstockError) as caught:
        penstock.undo(load_id, to=loads.conninfo)
    assert caught.value.sqlstate == "23503"
    assert "rows that refer to it" in str(caught.value.hint)
    assert loads.count("p") == 300
    assert has_load(loads, load_id)


@pytest.mark.parametrize("action", ["NO ACTION", "RESTRICT", "CASCADE", "SET NULL"])
def test_tables_that_refer_to_each_other_are_undone_together(loads: Loads, tmp_path: Path, action: str) -> None:
    """No row of the load then refers to one that is gone, whichever table's name comes first."""
    loads.execute(
        "CREATE TABLE cust (a int PRIMARY KEY, b text);"
        f"CREATE TABLE ord (a int REFERENCES cust ON DELETE {action}, b text)"
    )
    targets = [target(write(tmp_path / into, range(300)), into=into) for into in ("cust", "ord")]
    load_id = str(loads.run(*targets).load_id)
    undone = penstock.undo(load_id, to=loads.conninfo)
    assert [(each.table, each.rows) for each in undone.tables] == [("public.cust", 300), ("public.ord", 300)]
    assert (loads.count("cust"), loads.count("ord")) == (0, 0)


@pytest.mark.parametrize("indexes", ["rebuild", "keep"])
@pytest.mark.parametrize("pieces", [1, 50])
def test_keys_that_a_killed_load_has_dropped_are_told(
    loads: Loads, tmp_path: Path, indexes: Indexes, pieces: int
) -> None:
    """The foreign key of table c does not hold then. It does if only autovacuum is left paused."""
    loads.execute("ALTER TABLE t ADD PRIMARY KEY (a); CREATE TABLE c (a int REFERENCES t)")
    left = itertools.count(pieces, -1)

    def die(_number: int) -> None:
        if not next(left):
            raise Killed

    loads.at_piece = die
    rules = replace(IMPATIENT, indexes=indexes, autovacuum="pause")
    with pytest.raises(Killed):
        loads.run(target(write(tmp_path / "a", range(3000))), rules=rules, batch_bytes=BATCH)
    await_end_of_backends(loads)
    assert (loads.count() > 2) == (pieces > 1)
    is_dropped = indexes == "rebuild"
    planned = penstock.undo("latest", to=loads.conninfo, plan=True)
    assert [each.code for each in planned.warnings] == ["not-restored"] * is_dropped
    done = run_process("undo", "latest", "--to", loads.conninfo, "--json")
    assert (done.code, len(done.object["warnings"])) == (0, is_dropped)
    assert ('warning: a load has dropped keys of table "public.t"' in done.err) == is_dropped
    assert loads.rows() == sorted(OLD, key=repr)


def test_trigger_that_keeps_rows_is_told(loads: Loads, tmp_path: Path) -> None:
    """The server reports fewer deleted rows."""
    load_id = run(loads, write(tmp_path / "a", range(300)))
    loads.execute(
        "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql"
        " AS $$ BEGIN IF OLD.a = 7 THEN RETURN NULL; END IF; RETURN OLD; END $$;"
        "CREATE TRIGGER x BEFORE DELETE ON t FOR EACH ROW EXECUTE FUNCTION keep()"
    )
    refuse(loads, load_id, "cannot be undone as a whole")


def test_rows_that_a_trigger_added_to_the_table_are_not_removed(loads: Loads, tmp_path: Path) -> None:
    """They have the same transaction, so the load's own cannot be told from them."""
    loads.execute(
        "CREATE FUNCTION twice() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF NEW.a = 7 THEN INSERT INTO t VALUES (-7, NEW.b); END IF; RETURN NEW; END $$;"
        "CREATE TRIGGER x AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION twice()"
    )
    load_id = run(loads, write(tmp_path / "a", range(300)))
    error = refuse(loads, load_id, "triggers may have changed other rows", partial=True)
    assert error.detail == "Triggers: x ON public.t."
    loads.execute("DROP TRIGGER x ON t")
    refuse(loads, load_id, "more rows", partial=True)


@pytest.mark.parametrize("into", ["t", "p"])
def test_rows_of_another_load_that_a_trigger_has_updated_are_not_removed(
    loads: Loads, tmp_path: Path, into: str
) -> None:
    """They have this load's transactions, and as many of its own rows have those of a later one."""
    loads.execute(
        "CREATE TABLE p (a int, b text) PARTITION BY RANGE (a); CREATE TABLE p1 PARTITION OF p DEFAULT;"
        f"CREATE FUNCTION latest() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        f" UPDATE {into} SET b = 'x' WHERE a = NEW.a AND b < NEW.b; RETURN NULL; END $$;"
        f"CREATE TRIGGER x AFTER INSERT ON {into.replace('p', 'p1')} FOR EACH ROW EXECUTE FUNCTION latest()"
    )
    ids = []
    for number in range(3):
        path = tmp_path / str(number)
        path.write_text("a,b\n" + "".join(f"{n},value {number}\n" for n in range(300)))
        ids.append(run(loads, path, into=into))
    before = loads.rows(into)
    for options in ({}, {"partial": True}, {"plan": True}):
        refuse(loads, ids[1], "triggers may have changed other rows", **options)
    assert loads.rows(into) == before


def test_trigger_that_changes_the_new_row_or_another_table_alone_keeps_no_load_from_being_undone(
    loads: Loads, tmp_path: Path
) -> None:
    """The tables of EXECUTE, and of functions in other languages than PL/pgSQL and C, are not known."""
    loads.execute(
        "CREATE TABLE log (a int); ALTER TABLE t ADD v tsvector DEFAULT '';"
        "CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN NEW.b := NEW.b || '!'; RETURN NEW; END $$;"
        "CREATE FUNCTION logs() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN INSERT INTO log VALUES (NEW.a); RETURN NULL; END $$;"
        "CREATE TRIGGER a BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION stamp();"
        "CREATE TRIGGER b AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION logs();"
        "CREATE TRIGGER c BEFORE INSERT ON t FOR EACH ROW"
        " EXECUTE FUNCTION tsvector_update_trigger(v, 'pg_catalog.english', b);"
        "CREATE FUNCTION dynamic() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN EXECUTE 'SELECT 1'; RETURN NULL; END $$;"
    )
    load_id = run(loads, write(tmp_path / "a", range(300)))
    loads.execute("CREATE TRIGGER d AFTER INSERT ON t FOR EACH STATEMENT EXECUTE FUNCTION dynamic()")
    refuse(loads, load_id, "triggers may have changed other rows")
    loads.execute("ALTER TABLE t DISABLE TRIGGER d")
    assert penstock.undo(load_id, to=loads.conninfo).rows == 300


@pytest.mark.part("rest")
def test_rows_that_were_stored_under_savepoints_by_one_run_alone_are_not_taken_for_changed(
    loads: Loads, tmp_path: Path
) -> None:
    """--partial would leave them, and forget the load."""
    path = write(tmp_path / "a", range(600), bad=590)
    with pytest.raises(PenstockError):
        loads.run(
            mode_target(path, "append"), batch_bytes=BATCH, rules=replace(IMPATIENT, on_error="reject", max_rejects=0)
        )
    write(tmp_path / "a", range(600))
    loads.run(mode_target(path, "append"), batch_bytes=BATCH, rules=replace(IMPATIENT, changed="load"))
    ((load_id,),) = loads.execute("SELECT id::text FROM penstock.loads")
    refuse(loads, load_id, "does not have the transactions of all its rows", partial=True)


# Partitioning by inheritance: rows from 100 on go into another table.
ROUTED = (
    "CREATE TABLE child () INHERITS (t);"
    "CREATE FUNCTION route() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
    " IF NEW.a < 100 THEN RETURN NEW; END IF; INSERT INTO child VALUES (NEW.*); RETURN NULL; END $$;"
    "CREATE TRIGGER route BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION route()"
)


@pytest.mark.parametrize("mode", ["append", "insert-new"])
@pytest.mark.parametrize("first", [0, 100])
def test_records_that_triggers_may_have_stored_elsewhere_are_told(
    loads: Loads, tmp_path: Path, mode: str, first: int
) -> None:
    """Only --partial removes the rows of the table itself, also if there are none."""
    loads.execute(f"ALTER TABLE t ADD PRIMARY KEY (a); {ROUTED}")
    load_id = run(
        loads, write(tmp_path / "a", range(first, 300)), mode, **({} if mode == "append" else {"key": ("a",)})
    )
    error = refuse(loads, load_id, 'row triggers skipped 200 records of table "public.t"')
    assert "partial=True" in str(error.hint)
    refuse(loads, load_id, "row triggers skipped", plan=True)
    assert penstock.undo(load_id, to=loads.conninfo, partial=True).rows == 100 - first
    assert (loads.count(), loads.count("child")) == (202, 200)
    assert not has_load(loads, load_id)


def test_load_into_a_view_is_refused(loads: Loads, tmp_path: Path) -> None:
    """Its trigger has stored the rows in other tables."""
    loads.execute(
        "CREATE VIEW v AS SELECT * FROM t; CREATE FUNCTION into_t() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " INSERT INTO t VALUES (NEW.*); RETURN NEW; END $$;"
        "CREATE TRIGGER x INSTEAD OF INSERT ON v FOR EACH ROW EXECUTE FUNCTION into_t()"
    )
    load_id = run(loads, write(tmp_path / "a", range(300)), into="v")
    error = refuse(loads, load_id, '"public.v" is a view', partial=True)
    assert "--keep-rows" in str(error.hint)
    refuse(loads, load_id, "is a view", plan=True)


@pytest.mark.parametrize("how", ["dump", "template"])
def test_copy_of_the_database_is_refused(loads: Loads, tmp_path: Path, pg18: PgServer, how: str) -> None:
    """Its rows have other transactions, or those of a database that is not this one."""
    load_id = run(loads, write(tmp_path / "a", range(300)))
    into = pg18.fresh_database()
    move = dump_and_restore if how == "dump" else copy_as_template
    there = Loads(move(pg18, loads.conninfo, into))
    refuse(there, load_id, "is a copy, or was restored", partial=True)


def test_load_that_was_resumed_in_a_copy_is_refused(loads: Loads, tmp_path: Path, pg18: PgServer) -> None:
    """The rows that the dump brought have other transactions than the ledger says."""
    path, pieces = write(tmp_path / "a", range(3000)), itertools.count()

    def die(_number: int) -> None:
        if next(pieces) == 50:
            raise Killed

    loads.at_piece = die
    with pytest.raises(Killed):
        run(loads, path)
    stored = loads.count()
    assert 2 < stored < 3002
    there = Loads(dump_and_restore(pg18, loads.conninfo, pg18.fresh_database()))
    load_id = run(there, path)
    assert there.count() == 3002
    refuse(there, load_id, "another database", partial=True)


@pytest.mark.parametrize("mode", ["append", "truncate"])
def test_pruned_load_of_one_batch_is_refused(loads: Loads, tmp_path: Path, mode: str) -> None:
    """The ledger does not say any more in which mode it was, though it has its transaction."""
    load_id = str(loads.run(mode_target(write(tmp_path / "a", range(3)), mode)).load_id)
    prune(loads)
    refuse(loads, load_id, "pruned", partial=True)


def prune(loads: Loads) -> None:
    """Prune all loads."""
    loads.execute(
        "UPDATE penstock.loads SET changed_at = now() - interval '2 days', began_at = now() - interval '3 days'"
    )
    with LedgerView(penstock.connect_to(loads.conninfo)) as view:
        view.prune(age_s=3600)


def test_pruned_load_and_dropped_table_are_refused(loads: Loads, tmp_path: Path) -> None:
    """The ledger has not kept the transactions; there is nothing to remove."""
    loads.execute("CREATE TABLE u (a int, b text)")
    ids = [run(loads, write(tmp_path / name, range(300)), into=name) for name in ("t", "u")]
    loads.execute("DROP TABLE u")
    refuse(loads, ids[1], "does not exist any more")
    prune(loads)
    refuse(loads, ids[0], "pruned")


@pytest.mark.part("rest")
def test_row_that_another_session_holds_ends_the_undo(loads: Loads, tmp_path: Path) -> None:
    """It waits as every command waits for locks, and for as long as the role allows. Nothing is changed."""
    load_id = run(loads, write(tmp_path / "a", range(300)))
    with psycopg.connect(loads.conninfo) as holder:
        holder.execute("SELECT FROM t WHERE a = 7 FOR UPDATE")
        with pytest.raises(ServerError) as caught:
            penstock.undo(load_id, to=make_conninfo(loads.conninfo, options="-c lock_timeout=100ms"))
        assert caught.value.sqlstate == "55P03"
    assert has_load(loads, load_id)
    assert penstock.undo(load_id, to=loads.conninfo).rows == 300


@pytest.mark.parametrize("timing", ["NOT DEFERRABLE", "DEFERRABLE INITIALLY DEFERRED"])
def test_delete_triggers_find_what_they_name_in_the_users_search_path(
    loads: Loads, tmp_path: Path, timing: str
) -> None:
    """As in a DELETE by psql: most audit triggers name their table without its schema."""
    load_id = run(loads, write(tmp_path / "a", range(300)))
    loads.execute(
        "CREATE TABLE audit (a int);"
        "CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN INSERT INTO audit VALUES (OLD.a); RETURN NULL; END';"
        f"CREATE CONSTRAINT TRIGGER audit AFTER DELETE ON t {timing} FOR EACH ROW EXECUTE FUNCTION audit()"
    )
    assert penstock.undo(load_id, to=loads.conninfo).rows == 300
    assert loads.count("audit") == 300


def test_batch_that_is_committed_while_the_undo_waits_is_undone_too(loads: Loads, tmp_path: Path) -> None:
    """What the load has stored is read when no process can commit more of it."""
    load_id = run(loads, write(tmp_path / "a", range(300)))
    rows: list[int] = []
    thread = threading.Thread(target=lambda: rows.append(penstock.undo(load_id, to=loads.conninfo).rows))
    with psycopg.connect(loads.conninfo) as worker:
        worker.execute("SELECT FROM penstock.loads WHERE id = %s FOR SHARE", [load_id])
        thread.start()
        while not loads.execute("SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'"):
            time.sleep(0.01)
        worker.execute("INSERT INTO t VALUES (300, 'value 300')")
        worker.execute(
            "INSERT INTO penstock.ranges (load, object, start, ranges, has_start, has_end, records, rows, suppressed,"
            " checksum) SELECT load, object, 1000000, '{[1000000,1000001)}', false, false, 1, 1, 0, 0"
            " FROM penstock.ranges WHERE load = %s LIMIT 1",
            [load_id],
        )
    thread.join()
    assert rows == [301]
    assert loads.rows() == sorted(OLD, key=repr)


@pytest.mark.part("rest")
def test_load_from_a_pipe_is_undone_as_a_whole_or_not(loads: Loads) -> None:
    """The ledger has no job of it, so --partial could leave rows that were stored under savepoints."""
    text = "a,b\n" + "".join(f"{n},value {n}\n" for n in range(300))
    argv = [sys.executable, "-m", "penstock", "load", "-", "--into=t", f"--to={loads.conninfo}"]
    for options in ([], ["--on-error=reject"]):
        subprocess.run([*argv, *options], input=text, text=True, check=True, capture_output=True)
        load_id = str(loads.execute("SELECT id FROM penstock.loads ORDER BY event DESC LIMIT 1")[0][0])
        refuse(loads, load_id, "from a pipe", partial=True)
        if options:
            refuse(loads, load_id, "does not have the transactions of all its rows")
        else:
            assert penstock.undo(load_id, to=loads.conninfo).rows == 300


def test_two_undos_at_once_remove_the_rows_once(loads: Loads, tmp_path: Path) -> None:
    """The other finds no such load."""
    load_id = run(loads, write(tmp_path / "a", range(300)))
    results: list[int | PenstockError] = []

    def undo() -> None:
        try:
            results.append(penstock.undo(load_id, to=loads.conninfo).rows)
        except PenstockError as error:
            results.append(error)

    threads = [threading.Thread(target=undo) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [each for each in results if each == 300] == [300]
    assert loads.rows() == sorted(OLD, key=repr)


@pytest.mark.part("rest")
def test_undo_that_dies_at_any_statement_leaves_all_or_nothing(loads: Loads, tmp_path: Path) -> None:
    """Before each of its statements, until one run gets through."""
    load_id = run(loads, write(tmp_path / "a", range(300)))
    for statement in range(100):
        with killing_at(statement), suppress(Killed):
            penstock.undo(load_id, to=loads.conninfo)
            break
        assert loads.count() == 302
        assert has_load(loads, load_id)
    assert 5 < statement < 99
    assert loads.rows() == sorted(OLD, key=repr)
    assert not has_load(loads, load_id)


def test_load_of_another_role_is_refused(loads: Loads, tmp_path: Path) -> None:
    """As forget, retry and resume are."""
    load_id = run(loads, write(tmp_path / "a", range(300)))
    loads.execute(
        f"SET session_replication_role = replica; UPDATE penstock.loads SET owner = 'somebody' WHERE id = '{load_id}'"
    )
    refuse(loads, load_id, 'belongs to role "somebody"')
