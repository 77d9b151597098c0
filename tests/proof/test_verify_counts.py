"""What a load, or all loads together, must have left in a table; who else wrote; keys that are written otherwise."""

from __future__ import annotations

import gzip
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
import pytest

import penstock
from penstock.api.connect import connect_to
from penstock.api.ledger_view import LedgerView
from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import DataError, TargetError
from penstock.core.values.table import TableName
from support.loads import Loads, target, write_csv
from support.modes import mode_target
from support.proofs import load, load_in_tiny_blocks, refuse, said, verify, write_records

if TYPE_CHECKING:
    from pathlib import Path

_PARTITIONED = """
    CREATE TABLE p (a int PRIMARY KEY, b text) PARTITION BY RANGE (a);
    CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (100);
    CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (100) TO (1000);
"""


@pytest.fixture
def loads(ledger18: str) -> Loads:
    """Provide loads in tiny blocks into a database with table t."""
    return load_in_tiny_blocks(ledger18)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Provide a csv file of 200 records."""
    return write_records(tmp_path)


def write_more(folder: Path, name: str, first: int, count: int = 3) -> Path:
    """Write a csv file of records with other numbers."""
    return write_csv(folder / f"{name}.csv", [f"{first + number},{name}" for number in range(count)])


def look(loads: Loads, load_id: str) -> tuple[int, bool, bool]:
    """Return how many problems counts find, whether they agree, and whether the load is said to be alone."""
    outcome = verify(loads, load_id, values=False)
    return len(outcome.problems), outcome.agrees, outcome.tables[0].is_alone


# ---------------------------------------------------------------- rows that must be there


@pytest.mark.parametrize("mode", ["upsert", "sync", "insert-new"])
def test_rows_that_a_load_has_updated_or_found_must_be_there(loads: Loads, path: Path, mode: str) -> None:
    """Also if it has stored none."""
    loads.execute("ALTER TABLE t ADD PRIMARY KEY (a); INSERT INTO t SELECT g, 'old' FROM generate_series(0, 199) g")
    load_id = load(loads, mode_target(path, mode, key=("a",)))
    assert verify(loads, load_id, values=False).agrees
    loads.execute("DELETE FROM t WHERE a > 2")
    assert said(verify(loads, load_id, values=False)) == [
        ("has 3 rows, and the load has stored, updated or found 200", None)
    ]


@pytest.mark.part("rest")
def test_record_that_a_retry_merges_into_its_own_row_is_one_row(loads: Loads, tmp_path: Path) -> None:
    """It is counted as stored and as updated."""
    loads.execute("ALTER TABLE t ADD PRIMARY KEY (a), ADD CHECK (b <> 'bad')")
    path = write_csv(tmp_path / "t.csv", ["1,x", "2,y", "1,bad"])
    load_id = load(loads, mode_target(path, "upsert", key=("a",), keep="last"), on_error="reject")
    loads.execute("ALTER TABLE t DROP CONSTRAINT t_b_check")
    assert penstock.retry(load_id, to=loads.conninfo).rows == 1
    assert loads.count() == 2
    assert look(loads, load_id)[:2] == (0, True)


@pytest.mark.part("rest")
def test_loads_together_must_have_left_their_rows(loads: Loads, tmp_path: Path) -> None:
    """What is missing may be another load's, or deleted by others: counts differ, and that is no problem."""
    ids = [load(loads, target(write_more(tmp_path, f"f{n}", 1000 * n, 100))) for n in range(3)]
    assert [look(loads, each)[:2] for each in ids] == [(0, True)] * 3
    loads.execute("DELETE FROM t WHERE a < 1050")
    assert [look(loads, each)[:2] for each in ids] == [(0, False)] * 3
    assert verify(loads, ids[2], values=False).tables[0].floor_of_all == 300
    # A load that has not ended has left rows too.
    loads.execute(f"UPDATE penstock.loads SET state = 'running' WHERE id = '{ids[0]}'")
    assert look(loads, ids[2])[:2] == (0, False)
    loads.execute("DELETE FROM t WHERE a < 2050")
    assert look(loads, ids[2])[:2] == (1, False)


@pytest.mark.part("rest")
def test_rows_from_before_a_table_was_emptied_do_not_count(loads: Loads, tmp_path: Path) -> None:
    """By a truncation, a replacement or a sync; what was added since does."""
    loads.execute("ALTER TABLE t ADD PRIMARY KEY (a)")
    load(loads, target(write_more(tmp_path, "before", 1000, 50)))
    for mode in ("truncate", "replace", "sync"):
        options = {"key": ("a",), "max_delete": 100} if mode == "sync" else {}
        emptying = load(loads, mode_target(write_more(tmp_path, mode, 0), mode, **options))
        assert look(loads, emptying)[:2] == (0, True)
        later = load(loads, target(write_more(tmp_path, f"after {mode}", 10)))
        assert verify(loads, later, values=False).tables[0].floor_of_all == 6
        assert [look(loads, each)[:2] for each in (emptying, later)] == [(0, True)] * 2
        loads.execute("DELETE FROM t WHERE a = 11")
        assert look(loads, emptying)[:2] == (0, False)


@pytest.mark.part("rest")
def test_equal_rows_of_two_loads_are_verified_only_by_a_key(loads: Loads, tmp_path: Path) -> None:
    """One row may stand for both records, unless they cannot be equal."""
    loads.execute("CREATE TABLE u (a int PRIMARY KEY, b text)")
    for table in ("t", "u"):
        names = ("one", "two")
        first = 0 if table == "t" else 10
        rows = [[f"{first * number},x"] for number in range(2)]
        files = [write_csv(tmp_path / f"{table}{name}.csv", row) for name, row in zip(names, rows, strict=True)]
        ids = [load(loads, target(each, into=table)) for each in files]
        assert [verify(loads, each).is_verified for each in ids] == [True, True]
        loads.execute(f"DELETE FROM {table} WHERE ctid = '(0,1)'")
        outcome = verify(loads, ids[1])
        assert (outcome.problems, outcome.agrees, outcome.is_verified) == ((), False, table == "u")


# ---------------------------------------------------------------- who else wrote


@pytest.mark.part("rest")
def test_load_into_a_partition_is_another_writer(loads: Loads, path: Path) -> None:
    """Or into the parent, or an unended one, or another target of the same load."""
    loads.execute(_PARTITIONED)
    first = load(loads, mode_target(path, "truncate", into="p"))
    assert look(loads, first) == (0, True, True)
    load(loads, target(write_more(path.parent, "more", 300), into="p2"))
    assert look(loads, first) == (0, True, False)
    of_part = load(loads, mode_target(write_more(path.parent, "low", 0), "truncate", into="p1"))
    assert look(loads, of_part) == (0, True, True)
    loads.execute("UPDATE penstock.loads SET state = 'running' WHERE 'public.p2' = ANY (tables)")
    load(loads, target(write_more(path.parent, "lower", 50), into="p"))
    assert look(loads, of_part) == (0, True, False)
    assert "may not have the rows" in refuse(loads, first)


def test_unended_load_is_a_writer_even_if_it_began_before(loads: Loads, tmp_path: Path) -> None:
    """It may have added rows since."""
    other = load(loads, target(write_more(tmp_path, "other", 10)))
    first = load(loads, mode_target(write_more(tmp_path, "first", 0), "truncate"))
    assert look(loads, first) == (0, True, True)
    loads.execute(f"UPDATE penstock.loads SET state = 'running' WHERE id = '{other}'")
    assert look(loads, first) == (0, True, False)


@pytest.mark.part("rest")
@pytest.mark.parametrize("shift", ["+2 hours", "-2 hours"])
def test_clocks_decide_nothing(loads: Loads, tmp_path: Path, shift: str) -> None:
    """A server's clock may be set back, or a role may write any time into the ledger."""
    first = load(loads, mode_target(write_more(tmp_path, "first", 0), "truncate"))
    second = load(loads, target(write_more(tmp_path, "second", 10)))
    loads.execute(
        f"UPDATE penstock.loads SET began_at = began_at + interval '{shift}', changed_at = changed_at + interval"
        f" '{shift}' WHERE id = '{first}'"
    )
    assert [look(loads, each) for each in (first, second)] == [(0, True, False)] * 2
    assert find_newest(loads) == second
    third = load(loads, mode_target(write_more(tmp_path, "third", 20), "truncate"))
    loads.execute(f"UPDATE penstock.loads SET changed_at = changed_at + interval '{shift}' WHERE id = '{second}'")
    loads.execute("INSERT INTO t VALUES (99, 'stray')")
    assert look(loads, third) == (1, False, True)


@pytest.mark.part("rest")
def test_table_that_existed_is_not_one_that_the_load_created(loads: Loads, tmp_path: Path) -> None:
    """Whatever the option says; a created table belongs to a merge alone too."""
    loads.execute("INSERT INTO t VALUES (100, 'x'), (101, 'y')")
    path = write_more(tmp_path, "file", 0)
    assert look(loads, load(loads, target(path, create=True))) == (0, True, False)
    merged = load(loads, replace(mode_target(path, "sync", into="u", key=("a",), create=True), types="infer"))
    assert look(loads, merged) == (0, True, True)
    loads.execute("INSERT INTO u VALUES (99, 'stray')")
    assert look(loads, merged) == (1, False, True)
    assert [each.record for each in verify(loads, merged).problems] == [None, "(99,stray)"]


@pytest.mark.part("rest")
@pytest.mark.parametrize(
    ("mode", "into", "is_gone"),
    [
        ("append", "p", False),
        ("upsert", "p", False),
        ("sync", "p", True),
        ("sync", "p2", True),
        ("truncate", "p2", True),
        ("truncate", "p", True),
    ],
)
def test_load_whose_rows_a_later_load_may_have_removed_is_refused(
    loads: Loads, path: Path, mode: str, into: str, is_gone: bool
) -> None:
    """By a sync, or by emptying a parent or a partition."""
    loads.execute(_PARTITIONED)
    first = load(loads, replace(target(path, into="p"), missing="default"))
    later = write_more(path.parent, "later", 300)
    job = replace(mode_target(later, mode, into=into), missing="default")
    if mode not in ("append", "truncate"):
        job = replace(job, key=("a",))
    if job.mode == "sync":
        job = replace(job, max_delete=100.0)
    load(loads, job)
    if is_gone:
        assert "may not have the rows" in refuse(loads, first)
    else:
        assert verify(loads, first).problems == ()


# ---------------------------------------------------------------- latest


def find_newest(loads: Loads) -> str:
    """Return the load that latest means."""
    with LedgerView(ConnectionFactory(loads.conninfo)) as view:
        return view.find_newest("latest")


def test_latest_is_no_older_load_if_the_newest_has_failed(loads: Loads, tmp_path: Path) -> None:
    """Before its first commit, so that the ledger does not have it any more. The next load is the newest again."""
    first = load(loads, target(write_more(tmp_path, "first", 0)))
    bad = write_csv(tmp_path / "bad.csv", ["1,x", "y,z"])
    with pytest.raises(DataError):
        load(loads, target(bad))
    with pytest.raises(TargetError, match="is not in the ledger any more") as caught:
        find_newest(loads)
    assert first in str(caught.value.hint)
    second = load(loads, target(write_more(tmp_path, "second", 5)))
    assert find_newest(loads) == second
    # Another session of the role writes to that load's row, and the failed load does not wait for it.
    with psycopg.connect(loads.conninfo) as other:
        other.execute("SELECT FROM penstock.loads WHERE id = %s FOR UPDATE", [second])
        with pytest.raises(DataError):
            load(loads, target(bad))
    with pytest.raises(TargetError, match="is not in the ledger any more"):
        find_newest(loads)


def test_latest_is_of_this_role_whatever_others_record(loads: Loads, tmp_path: Path) -> None:
    """Who shares the ledger cannot keep others from their own newest load."""
    first = load(loads, target(write_more(tmp_path, "first", 0)))
    load_of_other = load(loads, target(write_more(tmp_path, "second", 5)))
    loads.execute(
        "UPDATE penstock.loads SET owner = 'pg_monitor', login = NULL, began_at = '2099-01-01', event = 1000000"
        f" WHERE id = '{load_of_other}'"
    )
    assert find_newest(loads) == first
    loads.execute("UPDATE penstock.loads SET state = 'running'")
    with LedgerView(ConnectionFactory(loads.conninfo)) as view:
        assert view.find_unfinished("latest") == first


# ---------------------------------------------------------------- files


@pytest.mark.parametrize("values", [False, True])
def test_file_that_was_changed_in_place_with_its_time_put_back_has_changed(
    loads: Loads, path: Path, values: bool
) -> None:
    """Its ctime says that it may have, so it is read. A file of which only the rights were changed has not."""
    load_id = load(loads, target(path))
    path.chmod(0o600)
    assert verify(loads, load_id, values=values).problems == ()
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(6)
        file.write(b"Z")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == (before.st_mtime_ns, before.st_ino)
    assert said(verify(loads, load_id, values=values)) == [("has changed since it was loaded", None)]


def test_file_that_a_load_has_left_out_is_a_problem_until_a_later_load_has_it(loads: Loads, tmp_path: Path) -> None:
    """Of the earlier load alone it stays one."""
    whole, torn = write_more(tmp_path, "whole", 0), tmp_path / "torn.csv.gz"
    data = gzip.compress(b"a,b\n" + "".join(f"{n},{n * n:x}\n" for n in range(3000)).encode())
    torn.write_bytes(data[:20])
    job = target([whole, torn], format="csv", has_header=True)
    load_id = load(loads, job, on_error="reject")
    for values in (False, True):
        (problem,) = verify(loads, load_id, values=values).problems
        assert (problem.uri, problem.message[:15]) == (str(torn), "was not loaded:")
    torn.write_bytes(gzip.compress(b"a,b\n7,seven\n"))
    load(loads, job)
    with LedgerView(connect_to(loads.conninfo)) as view:
        assert view.verify_table(TableName(schema=None, name="t"), values=True).is_verified
    assert not verify(loads, load_id).is_verified


# ---------------------------------------------------------------- keys


def test_keys_of_rows_that_a_load_has_kept_are_compared(loads: Loads, path: Path) -> None:
    """With insert-new the rows keep their other values, and the keys must be there. The values are not verified."""
    loads.execute("ALTER TABLE t ADD PRIMARY KEY (a); INSERT INTO t VALUES (1, 'kept'), (500, 'other')")
    load_id = load(loads, mode_target(path, "insert-new", key=("a",)))
    outcome = verify(loads, load_id)
    assert (outcome.agrees, outcome.is_verified, outcome.tables[0].has_only_keys) == (True, False, True)
    loads.execute("UPDATE t SET a = 600 WHERE a = 1")
    assert said(verify(loads, load_id)) == [("is not in the table", 3)]


@pytest.mark.parametrize(
    ("kind", "rows", "records", "otherwise"),
    [
        ("numeric", "('1.0'), ('2.50')", ["1", "2.5", "3"], 2),
        ("jsonb", """('{"a": 1.0}')""", ['"{""a"": 1}"'], 1),
        ("interval", "('24:00')", ["1 day"], 1),
        ("float8", "('-0')", ["0", "2"], 1),
    ],
)
@pytest.mark.parametrize("mode", ["upsert", "sync"])
def test_equal_keys_that_are_written_otherwise_are_equal(
    loads: Loads, tmp_path: Path, kind: str, rows: str, records: list[str], otherwise: int, mode: str
) -> None:
    """The row keeps its key, and a merge stores nothing else than it says; other columns are compared to the bit."""
    loads.execute(f"CREATE TABLE u (k {kind} PRIMARY KEY, v numeric); INSERT INTO u (k) VALUES {rows}")
    path = write_csv(tmp_path / "u.csv", [f"{each},1.0" for each in records], header="k,v")
    load_id = load(loads, mode_target(path, mode, into="u", key=("k",)))
    outcome = verify(loads, load_id)
    assert (outcome.is_verified, outcome.tables[0].written_otherwise) == (True, otherwise)
    loads.execute("UPDATE u SET v = '1.00' WHERE ctid = (SELECT min(ctid) FROM u)")
    assert len(verify(loads, load_id).problems) == 1
    loads.execute("DELETE FROM u")
    assert verify(loads, load_id).tables[0].missing == len(records)


@pytest.mark.part("rest")
def test_collation_of_the_keys_index_decides_what_is_equal(database: str, tmp_path: Path) -> None:
    """Which differs from the column's; a null equals a null if the index says so."""
    loads = load_in_tiny_blocks(database)
    try:
        loads.execute("CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    except psycopg.errors.FeatureNotSupported as reason:
        pytest.skip(str(reason))
    ((version,),) = loads.execute("SELECT current_setting('server_version_num')::int")
    nulls = "NULLS NOT DISTINCT" if version >= 150000 else ""
    loads.execute(
        f"CREATE TABLE u (k text, v int); CREATE UNIQUE INDEX ON u (k COLLATE ci) {nulls};"
        "INSERT INTO u VALUES ('Ann', 0)" + (", (NULL, 0)" if nulls else "")
    )
    path = write_csv(tmp_path / "u.csv", ["ANN,1", "Bob,2", *([",3"] if nulls else [])], header="k,v")
    load_id = load(loads, mode_target(path, "upsert", into="u", key=("k",)))
    outcome = verify(loads, load_id)
    assert (outcome.is_verified, outcome.tables[0].written_otherwise) == (True, 1)
    loads.execute("UPDATE u SET v = 9 WHERE k IS NULL OR k = 'Ann'")
    assert verify(loads, load_id).tables[0].missing == (2 if nulls else 1)
