"""--mode sync: what it deletes or marks, what it keeps, and what stops it."""

from __future__ import annotations

import gzip
import json
import random
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from penstock.api.connect import connect_to
from penstock.api.ledger_view import LedgerView
from penstock.core.errors import PenstockError, TargetError, UsageError
from penstock.core.values.job import LoadJob, Transform
from penstock.ledger.rejects import RejectStore
from penstock.loading.values.plan import ForeseenLoad
from penstock.loading.views.outcome import describe_outcome
from penstock.loading.views.plan import describe_plan, plan_object
from support.codes import has_code
from support.files import write_to
from support.loads import IMPATIENT, Loads, share_ledger
from support.modes import Killed, await_waiter, landing_tables, mode_target

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.values.job import TargetJob
    from penstock.loading.values.outcome import LoadOutcome


def _make_loads(database: str) -> Loads:
    return Loads(
        database,
        piece_bytes=64,
        setup="CREATE TABLE t (k int PRIMARY KEY, v text, gone_at timestamptz);"
        "INSERT INTO t SELECT n, 'old' FROM generate_series(0, 19) AS n",
    )


@pytest.fixture
def loads(database: str) -> Loads:
    """Provide loads into a database with table t, whose keys are 0 to 19."""
    return _make_loads(database)


@pytest.fixture
def loads18(ledger18: str) -> Loads:
    """Provide the same on the newest version only."""
    return _make_loads(ledger18)


def _write(path: Path, keys: Any, value: str = "new") -> Path:
    return write_to(path, "k,v\n" + "".join(f"{key},{value}\n" for key in keys))


def _sync(path: Path | list[Path], **options: Any) -> TargetJob:
    return mode_target(path, "sync", **({"key": ("k",), "has_header": True} | options))


def _codes(outcome: LoadOutcome) -> list[str]:
    return [notice.code for notice in outcome.warnings]


def test_foreign_keys_to_the_table_hold_although_indexes_are_rebuilt(loads: Loads, tmp_path: Path) -> None:
    """They rely on another index than that of the key. Rows that they refer to are not deleted, and nothing is."""
    loads.execute("ALTER TABLE t DROP CONSTRAINT t_pkey, ADD UNIQUE (k), ADD id int UNIQUE")
    loads.execute("UPDATE t SET id = k; CREATE TABLE orders (id int REFERENCES t (id)); INSERT INTO orders VALUES (0)")
    path = _write(tmp_path / "f.csv", range(1, 20))
    with pytest.raises(PenstockError, check=has_code("23503")):
        loads.run(_sync(path), rules=replace(IMPATIENT, indexes="rebuild"))
    assert loads.count() == 20
    loads.execute("TRUNCATE orders")
    assert loads.run(_sync(path), rules=replace(IMPATIENT, indexes="rebuild")).deleted == 1


def test_foreign_keys_of_a_table_of_the_same_job_hold_although_indexes_are_rebuilt(
    loads: Loads, tmp_path: Path
) -> None:
    """An older order refers to a row that is to be deleted, so nothing is."""
    loads.execute("CREATE TABLE orders (id int, t int REFERENCES t); INSERT INTO orders VALUES (1, 5)")
    keys = [key for key in range(20) if key != 5]
    orders = write_to(tmp_path / "orders.csv", "id,t\n2,6\n")
    jobs = _sync(_write(tmp_path / "f.csv", keys)), mode_target(orders, "append", into="orders", has_header=True)
    rules = replace(IMPATIENT, indexes="rebuild")
    with pytest.raises(PenstockError, check=has_code("23503")):
        loads.run(*jobs, rules=rules)
    assert (loads.count(), loads.rows("orders")) == (20, [(1, 5)])
    loads.execute("UPDATE orders SET t = 6")
    assert loads.run(*jobs, rules=rules).deleted == 1
    assert loads.rows("orders") == [(1, 6), (2, 6)]


@pytest.mark.part("rest")
def test_row_with_a_null_key_stays_although_a_constraint_says_that_there_is_none(
    loads18: Loads, tmp_path: Path
) -> None:
    """From PostgreSQL 18 on, NOT NULL may be NOT VALID: it holds for new rows alone."""
    loads18.execute("ALTER TABLE t DROP CONSTRAINT t_pkey, ALTER k DROP NOT NULL, ADD UNIQUE (k)")
    loads18.execute("INSERT INTO t VALUES (NULL, 'kept'); ALTER TABLE t ADD CONSTRAINT n NOT NULL k NOT VALID")
    outcome = loads18.run(_sync(_write(tmp_path / "f.csv", range(20))))
    assert (outcome.deleted, loads18.count()) == (0, 21)


def test_rows_that_the_files_do_not_have_are_deleted(loads: Loads, tmp_path: Path) -> None:
    """The others are updated or inserted; the outcome counts each."""
    outcome = loads.run(_sync(_write(tmp_path / "f.csv", range(2, 22))), batch_bytes=1)
    assert [row[:2] for row in loads.rows()] == sorted(((n, "new") for n in range(2, 22)), key=repr)
    assert (outcome.inserted, outcome.updated, outcome.deleted) == (2, 18, 2)
    assert "2 inserted, 18 updated, 2 deleted" in describe_outcome(outcome)
    assert landing_tables(loads) == []


def test_more_than_max_delete_stops_it_with_nothing_changed(loads18: Loads, tmp_path: Path) -> None:
    """The error names the number; the same load with a larger limit goes on with what is staged."""
    path, before = _write(tmp_path / "f.csv", range(3, 20)), loads18.rows()
    with pytest.raises(TargetError, match=r"3 of its 20 rows are not in the files, which is more than 10%") as caught:
        loads18.run(_sync(path))
    assert str(caught.value.hint).endswith("run the same load command again with --max-delete 15%.")
    assert loads18.rows() == before
    outcome = loads18.run(_sync(path, max_delete="15%"))
    assert (outcome.deleted, outcome.bytes_copied, loads18.count()) == (3, 0, 17)


def test_as_many_as_max_delete_allows_are_deleted_and_no_more(loads18: Loads, tmp_path: Path) -> None:
    """Also if rows are added between the count and the deletion: then more would be deleted than was allowed."""
    loads18.execute(
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO t SELECT n FROM"
        " generate_series(100, 101) AS n ON CONFLICT DO NOTHING; RETURN NULL; END';"
        "CREATE TRIGGER g AFTER UPDATE ON t EXECUTE FUNCTION f()"
    )
    before = loads18.rows()
    with pytest.raises(TargetError, match="4 of its 20 rows"):
        loads18.run(_sync(_write(tmp_path / "f.csv", range(2, 20))))
    assert loads18.rows() == before


def test_limit_of_zero_percent_lets_a_sync_only_add_and_update(loads18: Loads, tmp_path: Path) -> None:
    """And an empty file deletes a whole table only if asked to."""
    assert loads18.run(_sync(_write(tmp_path / "f.csv", range(30)), max_delete="0%")).deleted == 0
    with pytest.raises(TargetError, match="1 of its 30 rows"):
        loads18.run(_sync(_write(tmp_path / "g.csv", range(29)), max_delete=0))
    empty = _write(tmp_path / "h.csv", ())
    with pytest.raises(TargetError, match="30 of its 30 rows"):
        loads18.run(_sync(empty))
    assert loads18.run(_sync(empty, max_delete=100)).deleted == 30
    assert loads18.count() == 0


# ---------------------------------------------------------------- marks


def test_options_of_sync_are_for_sync(loads18: Loads, tmp_path: Path) -> None:
    """It needs a key, is loaded from one host, and its limit is a percentage."""
    path = _write(tmp_path / "f.csv", range(20))
    for wrong in (
        mode_target(path, "upsert", key=("k",), max_delete=5),
        mode_target(path, "sync"),
    ):
        with pytest.raises(UsageError):
            loads18.run(wrong)
    with pytest.raises(UsageError, match="--join cannot be used with --mode sync"):
        loads18.run(_sync(path), rules=replace(IMPATIENT, join=True))
    for percent in ("101%", "-1", "ten", True):
        with pytest.raises(UsageError, match="max_delete"):
            _sync(path, max_delete=percent)


# ---------------------------------------------------------------- loads that lack records


def test_load_with_rejects_deletes_nothing(loads18: Loads, tmp_path: Path) -> None:
    """Whether COPY or the merge refuses the record; the outcome says so, and the rest is stored."""
    loads18.execute("ALTER TABLE t ADD CHECK (v <> 'bad')")
    rules = replace(IMPATIENT, on_error="reject")
    for name, line in ("copy", "x,new\n"), ("merge", "3,bad\n"):
        path = write_to(tmp_path / name, f"k,v\n2,{name}\n{line}")
        outcome = loads18.run(_sync(path, format="csv", max_delete=100), rules=rules)
        assert (outcome.deleted, outcome.updated, outcome.rejected, loads18.count()) == (0, 1, 1, 20)
        assert "not-deleted" in _codes(outcome)
        assert loads18.execute("SELECT v FROM t WHERE k = 2") == [(name,)]
    assert any("is incomplete: 1 record rejected" in notice for notice in loads18.notices)


def test_load_whose_rejects_were_discarded_deletes_nothing_when_it_is_resumed(loads18: Loads, tmp_path: Path) -> None:
    """The rejected record may be that of a row."""
    path = write_to(tmp_path / "f.csv", "k,v\n" + "".join(f"{n},new\n" for n in range(19)) + "19x,new\n")
    rules = replace(IMPATIENT, on_error="reject")
    loads18.execute("ALTER TABLE t ADD CHECK (v <> 'new') NOT VALID")
    with pytest.raises(PenstockError):
        loads18.run(_sync(path, format="csv", max_delete=100), rules=replace(rules, max_rejects=1))
    with LedgerView(connect_to(loads18.conninfo)) as view:
        (load_id,) = [each.load_id for each in view.loads()]
    with connect_to(loads18.conninfo).connect() as connection:
        assert RejectStore("penstock", load_id).discard(connection) == 1
    loads18.execute("ALTER TABLE t DROP CONSTRAINT t_v_check")
    outcome = loads18.run(_sync(path, format="csv", max_delete=100), rules=replace(rules, max_rejects=1))
    assert (outcome.load_id, outcome.deleted, loads18.count()) == (load_id, 0, 20)
    assert "not-deleted" in _codes(outcome)


def test_every_load_reads_all_files(loads18: Loads, tmp_path: Path) -> None:
    """Also those that are loaded already, those that have changed, and a file that is again what it once was."""
    paths = [_write(tmp_path / "1.csv", range(10)), _write(tmp_path / "2.csv", range(10, 19))]
    assert loads18.run(_sync(paths[0], max_delete=100)).deleted == 10
    for keys in range(10, 19), range(10, 12), range(10, 19):
        _write(paths[1], keys)
        outcome = loads18.run(_sync(paths, max_delete=100))
        assert (outcome.objects_skipped, _codes(outcome)) == (0, [])
        assert loads18.execute("SELECT k FROM t ORDER BY k") == [(k,) for k in range(keys.stop)]
    loads18.execute("DELETE FROM t WHERE k = 3")
    assert loads18.run(_sync(paths)).inserted == 1


def test_load_without_an_unreadable_object_deletes_nothing(loads18: Loads, tmp_path: Path) -> None:
    """Its rows are not known."""
    noise = random.Random(1)
    lines = (f"{n},{noise.getrandbits(160):040x}\n" for n in range(10, 3000))
    whole = gzip.compress(("k,v\n" + "".join(lines)).encode())
    torn = write_to(tmp_path / "2.csv.gz", whole[: len(whole) // 2])
    paths = [_write(tmp_path / "1.csv", range(10)), torn]
    loads18.piece_bytes = 2000
    outcome = loads18.run(_sync(paths, max_delete=100), rules=replace(IMPATIENT, on_error="reject"))
    assert (len(outcome.unreadable), outcome.deleted, loads18.count()) == (1, 0, 20)
    assert "not-deleted" in _codes(outcome)
    write_to(torn, whole)
    assert loads18.run(_sync(paths, max_delete=100)).deleted == 0
    assert loads18.count() == 3000


def test_rows_of_a_load_that_has_not_ended_are_not_deleted(loads18: Loads, tmp_path: Path) -> None:
    """It would be resumed without them."""
    append = mode_target(_write(tmp_path / "a.csv", range(100, 200)), "append", constants={"gone_at": "{null}"})

    def die(number: int) -> None:
        while number == 6 and not loads18.execute("SELECT 1 FROM penstock.ranges LIMIT 1"):
            time.sleep(0.01)
        if number == 6:
            raise Killed

    loads18.at_piece = die
    with pytest.raises(Killed):
        loads18.run(append, batch_bytes=1)
    loads18.at_piece, before = None, loads18.rows()
    job = _sync(_write(tmp_path / "f.csv", range(20)), max_delete=100)
    with pytest.raises(TargetError, match=r"cannot sync table .* another load into it has not ended"):
        loads18.run(job)
    assert loads18.rows() == before
    loads18.run(append, batch_bytes=1)
    assert loads18.run(job).deleted == 100


# ---------------------------------------------------------------- keys


def test_rows_with_a_null_in_the_key_are_neither_updated_nor_deleted(loads18: Loads, tmp_path: Path) -> None:
    """A record without a key is inserted, as an upsert does."""
    loads18.execute(
        "CREATE TABLE n (a int, b int, v text, UNIQUE (a, b)); INSERT INTO n VALUES (1, null, 'x'), (1, 1, 'x')"
    )
    path = write_to(tmp_path / "f.csv", "a,b,v\n1,,new\n2,2,new\n")
    outcome = loads18.run(_sync(path, into="n", key=("a", "b"), max_delete=100))
    assert (outcome.inserted, outcome.deleted) == (2, 1)
    assert loads18.rows("n") == [(1, None, "new"), (1, None, "x"), (2, 2, "new")]


def test_nulls_match_if_the_index_says_so(loads18: Loads, tmp_path: Path) -> None:
    """NULLS NOT DISTINCT: a null is a key like any other."""
    loads18.execute("CREATE TABLE n (a int, v text, UNIQUE NULLS NOT DISTINCT (a)); INSERT INTO n VALUES (null), (1)")
    path = write_to(tmp_path / "f.csv", "a,v\n,new\n")
    outcome = loads18.run(_sync(path, into="n", key=("a",), max_delete=100))
    assert (outcome.updated, outcome.deleted, loads18.rows("n")) == (1, 1, [(None, "new")])
    loads18.run(_sync(write_to(tmp_path / "g.csv", "a,v\n2,new\n"), into="n", key=("a",), max_delete=100))
    assert loads18.rows("n") == [(2, "new")]


def test_partitions_are_synced_and_inheriting_tables_are_not(loads18: Loads, tmp_path: Path) -> None:
    """As the rows of an inheriting table are not found by the key."""
    loads18.execute(
        "CREATE TABLE p (k int PRIMARY KEY, v text) PARTITION BY RANGE (k);"
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);"
        "CREATE TABLE p2 PARTITION OF p DEFAULT;"
        "INSERT INTO p SELECT n, 'old' FROM generate_series(0, 19) AS n;"
        "CREATE TABLE child () INHERITS (t); INSERT INTO child VALUES (500)"
    )
    path = _write(tmp_path / "f.csv", range(9, 12))
    assert loads18.run(_sync(path, into="p", max_delete=100)).deleted == 17
    assert loads18.rows("p") == [(10, "new"), (11, "new"), (9, "new")]
    assert loads18.run(_sync(path, max_delete=100)).deleted == 17
    assert loads18.count() == 4


# ---------------------------------------------------------------- foreign keys, several targets


_FAMILY = """
    CREATE TABLE parent (k int PRIMARY KEY, v text);
    CREATE TABLE child (k int PRIMARY KEY, p int REFERENCES parent {});
    INSERT INTO parent VALUES (1), (2), (3); INSERT INTO child VALUES (1, 1), (2, 2), (3, 3)
"""


@pytest.mark.parametrize("option", ["", "ON DELETE RESTRICT", "DEFERRABLE INITIALLY DEFERRED"])
def test_row_that_others_refer_to_stops_it_with_a_hint(loads18: Loads, tmp_path: Path, option: str) -> None:
    """The server's message names both tables; nothing is changed."""
    loads18.execute(_FAMILY.format(option))
    before = loads18.rows("parent")
    with pytest.raises(PenstockError, match='on table "child"') as caught:
        loads18.run(_sync(_write(tmp_path / "f.csv", [2, 3]), into="parent", max_delete=50))
    assert caught.value.sqlstate in ("23503", "23001")
    assert "by the same job with --mode sync" in str(caught.value.hint)
    assert loads18.rows("parent") == before


@pytest.mark.parametrize("option", ["", "ON DELETE RESTRICT", "DEFERRABLE INITIALLY DEFERRED"])
def test_tables_that_refer_to_each_other_are_synced_by_one_job(loads18: Loads, tmp_path: Path, option: str) -> None:
    """New rows come before those that refer to them, and go after them; a row may refer to another one from now on."""
    loads18.execute(_FAMILY.format(option))
    child = write_to(tmp_path / "child.csv", "k,p\n2,2\n3,4\n")
    parents = _sync(_write(tmp_path / "parent.csv", [2, 4]), into="parent", max_delete=100)
    outcome = loads18.run(_sync(child, into="child", max_delete=100), parents)
    assert (outcome.inserted, outcome.updated, outcome.deleted) == (1, 3, 3)
    assert loads18.rows("parent") == [(2, "new"), (4, "new")]
    assert loads18.rows("child") == [(2, 2), (3, 4)]


def test_table_that_refers_to_itself(loads18: Loads, tmp_path: Path) -> None:
    """Who had a deleted manager has another one now."""
    loads18.execute(
        "CREATE TABLE e (k int PRIMARY KEY, m int REFERENCES e); INSERT INTO e VALUES (1, 1), (2, 1), (3, 2)"
    )
    path = write_to(tmp_path / "f.csv", "k,m\n2,2\n3,2\n")
    assert loads18.run(_sync(path, into="e", max_delete=50)).deleted == 1
    assert loads18.rows("e") == [(2, 2), (3, 2)]


def test_one_target_over_its_limit_stops_all(loads18: Loads, tmp_path: Path) -> None:
    """No table of the job is changed."""
    loads18.execute("CREATE TABLE u (LIKE t INCLUDING ALL); INSERT INTO u SELECT * FROM t")
    before = loads18.rows()
    within, beyond = _write(tmp_path / "1.csv", range(1, 20)), _write(tmp_path / "2.csv", range(5, 20))
    with pytest.raises(TargetError, match=r'cannot sync table "public\.u"'):
        loads18.run(_sync(within), _sync(beyond, into="u"))
    assert loads18.rows() == loads18.rows("u") == before
    outcome = loads18.run(_sync(within), _sync(beyond, into="u", max_delete="25%"))
    assert (outcome.deleted, loads18.count(), loads18.count("u")) == (6, 19, 15)


# ---------------------------------------------------------------- others


@pytest.mark.part("rest")
def test_readers_see_the_table_before_or_after(loads18: Loads, tmp_path: Path) -> None:
    """Never one that is merged, with its missing rows still there, and none that lacks rows."""
    seen: set[Any] = set()
    is_done = threading.Event()

    def look() -> None:
        with psycopg.connect(loads18.conninfo, autocommit=True) as connection:
            while not is_done.is_set():
                seen.update(connection.execute("SELECT min(k), max(k), count(*), count(DISTINCT v) FROM t").fetchall())

    reader = threading.Thread(target=look)
    reader.start()
    try:
        for first in range(1, 6):
            path = _write(tmp_path / f"{first}.csv", range(first, first + 20), value=str(first))
            loads18.run(_sync(path), batch_bytes=1)
    finally:
        is_done.set()
        reader.join()
    assert seen <= {(first, first + 19, 20, 1) for first in range(6)}


def test_sync_waits_for_a_writer_of_the_row_that_it_deletes(loads18: Loads, tmp_path: Path) -> None:
    """As any DELETE; the row is gone in the end."""
    path = _write(tmp_path / "f.csv", range(1, 20))
    with psycopg.connect(loads18.conninfo) as writer:
        writer.execute("UPDATE t SET v = 'theirs' WHERE k = 0")
        found: list[LoadOutcome] = []
        loader = threading.Thread(target=lambda: found.append(loads18.run(_sync(path))))
        loader.start()
        with psycopg.connect(loads18.conninfo, autocommit=True) as watcher:
            await_waiter(watcher, writer.info.backend_pid)
    loader.join()
    assert (found[0].deleted, loads18.count()) == (1, 19)


def test_rows_that_a_session_commits_while_the_merge_waits_for_it_are_deleted_too(
    loads18: Loads, tmp_path: Path
) -> None:
    """No row was missing when they were counted. The limit of deletions holds for them."""
    path = _write(tmp_path / "f.csv", range(20))
    loads18.execute("CREATE TABLE added AS SELECT 100 AS k, 'theirs' AS v, now() AS gone_at")
    for limit, left in ((1, 21), (50, 20)):
        with psycopg.connect(loads18.conninfo) as writer:
            writer.execute("UPDATE t SET v = 'theirs' WHERE k = 0")
            writer.execute("DELETE FROM t WHERE k = 100; INSERT INTO t SELECT * FROM added")
            found: list[LoadOutcome | PenstockError] = []

            def sync(limit: int = limit, found: list[LoadOutcome | PenstockError] = found) -> None:
                try:
                    found.append(loads18.run(_sync(path, max_delete=limit), rules=replace(IMPATIENT, again=True)))
                except PenstockError as error:
                    found.append(error)

            loader = threading.Thread(target=sync)
            loader.start()
            with psycopg.connect(loads18.conninfo, autocommit=True) as watcher:
                await_waiter(watcher, writer.info.backend_pid)
        loader.join()
        assert (loads18.count(), isinstance(found[0], PenstockError)) == (left, limit == 1)
        loads18.execute("DELETE FROM t WHERE k = 100")


def test_statement_that_looks_for_rows_without_a_record_needs_all_records(loads18: Loads, tmp_path: Path) -> None:
    """The rows of a rejected one would be taken for missing."""
    loads18.execute("ALTER TABLE t ALTER v SET NOT NULL")
    text = (
        "MERGE INTO t USING (SELECT k::int, v FROM :staging) AS s ON t.k = s.k WHEN MATCHED THEN UPDATE SET v = s.v"
        " WHEN NOT MATCHED /* ... */ BY source THEN UPDATE SET gone_at = now()"
    )
    job = mode_target(
        write_to(tmp_path / "f.csv", "k,v\n" + "".join(f"{key},new\n" for key in range(19)) + "19,new,more\n"),
        "append",
        transform=Transform(name="mark.sql", text=text),
    )
    with pytest.raises(
        TargetError, match=r"mark[.]sql.* is not run, because the load is incomplete: 1 record rejected"
    ):
        loads18.run(job, rules=replace(IMPATIENT, on_error="reject"))
    assert loads18.execute("SELECT count(*) FROM t WHERE gone_at IS NOT NULL OR v = 'new'") == [(0,)]


def test_role_without_delete_is_refused_before_anything_is_staged(
    loads: Loads, user_name: str, user_conninfo: str, tmp_path: Path
) -> None:
    """The plan looks it up, so nothing is staged."""
    loads.execute(f'GRANT SELECT, INSERT, UPDATE ON t TO "{user_name}"')
    share_ledger(loads, f'"{user_name}"')
    loads.execute(f'GRANT CREATE ON SCHEMA penstock TO "{user_name}"')
    with pytest.raises(PenstockError, check=has_code("42501")):
        Loads(user_conninfo).run(_sync(_write(tmp_path / "f.csv", range(20))))
    assert landing_tables(loads) == []
    loads.execute(f'GRANT DELETE ON t TO "{user_name}"')
    assert Loads(user_conninfo).run(_sync(_write(tmp_path / "g.csv", range(1, 20)))).deleted == 1


def test_rejected_records_of_a_sync_are_retried_without_deletions(loads18: Loads, tmp_path: Path) -> None:
    """A retry has some records only."""
    loads18.execute("ALTER TABLE t ADD CONSTRAINT c CHECK (v <> 'bad')")
    path = write_to(tmp_path / "f.csv", "k,v\n1,bad\n2,new\n")
    outcome = loads18.run(_sync(path, max_delete=100), rules=replace(IMPATIENT, on_error="reject"))
    assert outcome.load_id is not None
    loads18.execute("ALTER TABLE t DROP CONSTRAINT c")
    with LedgerView(connect_to(loads18.conninfo)) as view:
        assert view.retry(outcome.load_id).rows == 1
    assert (loads18.count(), loads18.execute("SELECT v FROM t WHERE k = 1")) == (20, [("bad",)])


def test_plan_says_what_becomes_of_other_rows(loads18: Loads, tmp_path: Path) -> None:
    """For people and as JSON."""
    path = _write(tmp_path / "f.csv", range(20))
    with loads18.loader() as loader:
        plan = loader.plan(LoadJob(targets=(_sync(path, max_delete="2.5%"),), rules=IMPATIENT))
    assert "sync by k, duplicates are an error, rows without a record are deleted (at most 2.5%)" in "\n".join(
        describe_plan(ForeseenLoad(plan=plan))
    )
    assert json.loads(json.dumps(plan_object(ForeseenLoad(plan=plan)), default=str))["targets"][0]["max_delete"] == 2.5
