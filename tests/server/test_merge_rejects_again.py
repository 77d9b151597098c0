"""Rejected records of loads that land by another table, tried again: merged as the load's own were, and counted."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from penstock.api import connect_to
from penstock.api.ledger_view import LedgerView
from penstock.errors import DataError
from penstock.model.job import LoadRules, Transform
from support.loads import Loads, Row, target
from support.modes import Killed, killing_at, mode_target

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.model.job import TargetJob
    from penstock.model.outcome import LoadOutcome

REJECT = LoadRules(retry_for_s=0.0, on_error="reject")

SETUP = """
    CREATE TABLE t (k int PRIMARY KEY, v text NOT NULL CHECK (v <> 'no'), w int DEFAULT 7);
    INSERT INTO t VALUES (1, 'old', 1), (2, 'old', 2);
"""


@pytest.fixture
def loads(database18: str) -> Loads:
    """Provide loads in tiny blocks into a database with table t."""
    loads = Loads(database18, piece_bytes=40)
    loads.execute(SETUP)
    return loads


@pytest.fixture
def ledger(loads: Loads) -> Iterator[LedgerView]:
    """Provide what the ledger of the database says."""
    with LedgerView(connect_to(loads.conninfo)) as view:
        yield view


def write(path: Path, records: list[str], header: str = "k,v") -> Path:
    """Write a csv file and return its path."""
    path.write_text("".join(f"{record}\n" for record in [header, *records]))
    return path


def find_sums(loads: Loads) -> list[Row]:
    """Return records, rows, suppressed and rejected of each object in the ledger."""
    return loads.execute(
        "SELECT object, sum(records)::int, sum(rows)::int, sum(suppressed)::int, sum(rejected)::int"
        " FROM penstock.ranges GROUP BY 1 ORDER BY 1"
    )


def find_counts(loads: Loads) -> list[Row]:
    """Return what became of staged records, and the load's rows."""
    return loads.execute(
        "SELECT t.staged, t.inserted, t.updated, t.duplicates, t.existing, t.suppressed, l.rows"
        " FROM penstock.targets AS t JOIN penstock.loads AS l ON l.id = t.load ORDER BY t.number"
    )


def load(loads: Loads, *jobs: TargetJob, rules: LoadRules = REJECT) -> str:
    """Load and return the load's id."""
    outcome: LoadOutcome = loads.run(*jobs, rules=rules)
    assert outcome.load_id is not None
    return outcome.load_id


def edit(ledger: LedgerView, load_id: str, path: Path, changes: dict[str, str]) -> Path:
    """Write a load's rejected records to a file, with some texts in place of others."""
    (path,) = ledger.write_rejects(load_id, path)
    text = path.read_text()
    for before, after in changes.items():
        assert before in text
        text = text.replace(before, after)
    path.write_text(text)
    return path


def test_edited_rejects_of_an_upsert_are_merged(loads: Loads, ledger: LedgerView, tmp_path: Path) -> None:
    """By the same key: rows are updated and inserted, one record is refused by COPY again and one by the merge."""
    records = ["1,no", "3,new", "4,no", "x,y", "5,no", "6,no", "7,new"]
    load_id = load(
        loads, mode_target(write(tmp_path / "file", records), "upsert", key=("k",), format="csv", has_header=True)
    )
    assert find_counts(loads) == [(2, 2, 0, 0, 0, 0, 2)]
    path = edit(ledger, load_id, tmp_path / "rejects", {"1,no": "1,one", "4,no": "4,four", "x,y": "y,x", "6,no": "6,"})
    done = ledger.retry(load_id, path)
    assert (done.rows, done.left) == (2, 3)
    assert loads.rows() == [(1, "one", 1), (2, "old", 2), (3, "new", 7), (4, "four", 7), (7, "new", 7)]
    assert loads.execute("SELECT raw, line, sqlstate FROM penstock.rejects ORDER BY start") == [
        (b"y,x\n", 5, "22P02"),
        (b"5,no\n", 6, "23514"),
        (b"6,\n", 7, "23502"),
    ]
    assert find_sums(loads) == [(0, 7, 4, 0, 3)]
    assert find_counts(loads) == [(4, 3, 1, 0, 0, 0, 4)]
    record, (item,) = ledger.load(load_id)
    assert (record.rows, item.rejected, record.state) == (4, 3, "complete")
    assert loads.lingering() == 0


@pytest.mark.parametrize(("keep", "value"), [("first", "a"), ("last", "c")])
def test_rejects_with_the_same_key_give_way_to_each_other(
    loads: Loads, ledger: LedgerView, tmp_path: Path, keep: str, value: str
) -> None:
    """By file order, as the load's own; a refused one makes room."""
    job = mode_target(
        write(tmp_path / "file", ["5,no", "5,no", "5,no", "5,no"]),
        "upsert",
        key=("k",),
        keep=keep,
        format="csv",
        has_header=True,
    )
    load_id = load(loads, job)
    assert find_sums(loads) == [(0, 4, 0, 0, 4)]
    path = tmp_path / "rejects"
    path.write_text("k,v\n5,a\n5,b\n5,c\n5,no\n" if keep == "last" else "k,v\n5,no\n5,a\n5,b\n5,c\n")
    done = ledger.retry(load_id, path)
    assert (done.rows, done.duplicates, done.left) == (1, 2, 1)
    assert loads.rows()[-1] == (5, value, 7)
    assert find_counts(loads) == [(3, 1, 0, 2, 0, 0, 1)]
    assert find_sums(loads) == [(0, 4, 3, 0, 1)]


def test_rejects_that_must_not_have_the_same_key_stay(loads: Loads, ledger: LedgerView, tmp_path: Path) -> None:
    """With --keep error nothing is changed; the error names both."""
    job = mode_target(write(tmp_path / "file", ["5,no", "x,y"]), "upsert", key=("k",), format="csv", has_header=True)
    load_id = load(loads, job)
    before = loads.execute("SELECT start, raw, sqlstate FROM penstock.rejects ORDER BY start")
    path = tmp_path / "rejects"
    path.write_text("k,v\n5,a\n5,b\n")
    with pytest.raises(DataError, match="duplicated in the files"):
        ledger.retry(load_id, path)
    assert loads.execute("SELECT start, raw, sqlstate FROM penstock.rejects ORDER BY start") == before
    assert loads.count() == 2


def test_rejects_of_insert_new_leave_rows_as_they_are(loads: Loads, ledger: LedgerView, tmp_path: Path) -> None:
    """A record whose key has a row by now is counted as such, and rejected no more."""
    job = mode_target(
        write(tmp_path / "file", ["x,one", "y,eight"]), "insert-new", key=("k",), format="csv", has_header=True
    )
    load_id = load(loads, job)
    done = ledger.retry(load_id, edit(ledger, load_id, tmp_path / "rejects", {"x": "1", "y": "8"}))
    assert (done.rows, done.existing, done.left) == (1, 1, 0)
    assert loads.rows() == [(1, "old", 1), (2, "old", 2), (8, "eight", 7)]
    assert find_counts(loads) == [(2, 1, 0, 0, 1, 0, 1)]


@pytest.mark.parametrize("mode", ["replace", "truncate"])
def test_rejects_of_a_table_that_was_filled_anew_are_added(
    loads: Loads, ledger: LedgerView, tmp_path: Path, mode: str
) -> None:
    """The counts add up: records are rows and rejected ones."""
    job = mode_target(write(tmp_path / "file", ["5,five", "6x,six", "x,y"]), mode, format="csv", has_header=True)
    load_id = load(loads, job, rules=LoadRules(retry_for_s=0.0, on_error="reject", is_atomic=True))
    done = ledger.retry(load_id, edit(ledger, load_id, tmp_path / "rejects", {"6x,six": "6,six"}))
    assert (done.rows, done.left) == (1, 1)
    assert loads.rows() == [(5, "five", 7), (6, "six", 7)]
    assert find_sums(loads) == [(0, 3, 2, 0, 1)]
    assert loads.execute("SELECT rows FROM penstock.loads") == [(2,)]


def test_rejects_of_a_transform_go_through_it(loads: Loads, ledger: LedgerView, tmp_path: Path) -> None:
    """The statement that the load ran takes them on."""
    transform = Transform(name="t.sql", text="INSERT INTO t SELECT k::int, upper(v) FROM :staging")
    job = mode_target(
        write(tmp_path / "file", ["5,five", "6"]), "append", transform=transform, format="csv", has_header=True
    )
    load_id = load(loads, job)
    assert ledger.retry(load_id, edit(ledger, load_id, tmp_path / "rejects", {"6": "6,six"})).left == 0
    assert loads.rows()[2:] == [(5, "FIVE", 7), (6, "SIX", 7)]


def test_targets_that_land_in_their_own_way_are_retried_together(
    loads: Loads, ledger: LedgerView, tmp_path: Path
) -> None:
    """One that COPY fills and one that is merged; a file is one order for both, without one they go in as they are."""
    loads.execute("CREATE TABLE plain (k int, v text CHECK (v <> 'no'))")
    one = target(write(tmp_path / "one", ["1,no", "2,x"]), into="plain", format="csv", has_header=True)
    two = mode_target(write(tmp_path / "two", ["3,no", "4,x"]), "upsert", key=("k",), format="csv", has_header=True)
    load_id = load(loads, one, two)
    loads.execute("ALTER TABLE plain DROP CONSTRAINT plain_v_check; ALTER TABLE t DROP CONSTRAINT t_v_check")
    done = ledger.retry(load_id)
    assert (done.rows, done.left) == (2, 0)
    assert loads.rows("plain") == [(1, "no"), (2, "x")]
    assert loads.rows()[2:] == [(3, "no", 7), (4, "x", 7)]
    assert loads.execute("SELECT rows FROM penstock.loads") == [(4,)]


def test_records_that_refer_to_a_merged_one_go_in_with_it(loads: Loads, ledger: LedgerView, tmp_path: Path) -> None:
    """By one retry, though they are copied and that is merged behind them."""
    loads.execute("CREATE TABLE child (k int, r int REFERENCES t)")
    one = target(write(tmp_path / "one", ["1,3", "2,4"], header="k,r"), into="child", format="csv", has_header=True)
    two = mode_target(write(tmp_path / "two", ["3,no", "4,x"]), "upsert", key=("k",), format="csv", has_header=True)
    load_id = load(loads, one, two)
    assert loads.rows("child") == [(2, 4)]
    loads.execute("ALTER TABLE t DROP CONSTRAINT t_v_check")
    done = ledger.retry(load_id)
    assert (done.rows, done.left) == (2, 0)
    assert loads.rows("child") == [(1, 3), (2, 4)]


def test_retry_that_dies_leaves_all_as_it_was(loads: Loads, ledger: LedgerView, tmp_path: Path) -> None:
    """Whichever statement it dies at; the next one does all of it, once."""
    job = mode_target(
        write(tmp_path / "file", ["1,no", "3,no", "x,y"]), "upsert", key=("k",), format="csv", has_header=True
    )
    load_id = load(loads, job)
    path = edit(ledger, load_id, tmp_path / "rejects", {"1,no": "1,one", "3,no": "3,three"})
    rejects = loads.execute("SELECT start, raw, sqlstate FROM penstock.rejects ORDER BY start")
    done, statement = None, 13
    while done is None:
        with LedgerView(connect_to(loads.conninfo)) as view, suppress(Killed), killing_at(statement):
            done = view.retry(load_id, path)
        if done is None:
            assert loads.execute("SELECT start, raw, sqlstate FROM penstock.rejects ORDER BY start") == rejects
            assert loads.rows() == [(1, "old", 1), (2, "old", 2)]
        statement += 6
    assert (done.rows, done.left) == (2, 1)
    assert loads.rows() == [(1, "one", 1), (2, "old", 2), (3, "three", 7)]
    assert find_counts(loads) == [(2, 1, 1, 0, 0, 0, 2)]
