"""Verification of a table: all loads together that have filled it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.api.ledger_view import LedgerView
from penstock.core.errors import TargetError
from penstock.core.values.job import LoadRules, Transform
from penstock.core.values.table import TableName
from penstock.proof.view import describe_table
from support.loads import Loads, target, write_csv
from support.modes import Killed, mode_target
from support.proofs import load, load_in_tiny_blocks

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.proof.values import TableOutcome


@pytest.fixture
def loads(database18: str) -> Loads:
    """Provide loads in tiny blocks into a database with table t."""
    return load_in_tiny_blocks(database18)


def night(folder: Path, number: int) -> Path:
    """Write the file of a night, with 10 records."""
    return write_csv(folder / f"{number}.csv", [f"{number * 10 + n},v" for n in range(10)])


def fill(loads: Loads, folder: Path, *, nights: int = 3) -> list[str]:
    """Create table n by the first of some loads; return their ids."""
    return [load(loads, target(night(folder, each), into="n", create=each == 0)) for each in range(nights)]


def verify(loads: Loads, into: str = "n", *, values: bool = True) -> TableOutcome:
    """Verify a table."""
    with LedgerView(penstock.connect_to(loads.conninfo)) as view:
        return view.verify_table(TableName(schema=None, name=into), values=values)


@pytest.mark.part("rest")
@pytest.mark.versions
def test_table_has_the_rows_of_all_its_loads(database: str, tmp_path: Path) -> None:
    """A row that is missing, or that no load has stored, is a problem though each load by itself would agree."""
    loads = load_in_tiny_blocks(database)
    ids = fill(loads, tmp_path)
    outcome = verify(loads)
    assert [each.load_id for each in outcome.loads] == ids
    assert (outcome.expected, outcome.is_verified, outcome.agrees) == (30, True, True)
    loads.execute("INSERT INTO n VALUES (99, 'w')")
    added = verify(loads, values=False)
    assert [each.message for each in added.problems] == ["has 31 rows, and all loads together have stored 30"]
    assert not any(each.problems for each in added.loads)
    loads.execute("DELETE FROM n WHERE a IN ('99', '7')")
    assert [each.message for each in verify(loads, values=False).problems] == [
        "has 29 rows, and all loads together have stored 30"
    ]


@pytest.mark.part("rest")
def test_changed_row_is_a_problem_of_its_load(loads: Loads, tmp_path: Path) -> None:
    """Of that load alone."""
    fill(loads, tmp_path)
    loads.execute("UPDATE n SET b = 'w' WHERE a = '17'")
    outcome = verify(loads)
    assert [len(each.problems) for each in outcome.loads] == [0, 1, 0]
    assert (len(outcome.problems), outcome.agrees) == (1, False)


@pytest.mark.part("rest")
def test_loads_whose_rows_were_removed_do_not_count(loads: Loads, tmp_path: Path) -> None:
    """Nor need the rows of others be there, if the table was there before."""
    first = load(loads, target(night(tmp_path, 0), into="t"))
    loads.execute("INSERT INTO t VALUES (-1, 'other')")
    outcome = verify(loads, "t")
    assert (outcome.expected, outcome.is_verified) == (None, True)
    second = load(loads, mode_target(night(tmp_path, 1), "truncate", into="t"))
    third = load(loads, target(night(tmp_path, 2), into="t"))
    outcome = verify(loads, "t")
    assert (outcome.removed, [each.load_id for each in outcome.loads]) == ((first,), [second, third])
    assert (outcome.expected, outcome.is_verified) == (20, True)


def test_load_that_has_not_ended_or_whose_file_is_gone_is_a_problem(loads: Loads, tmp_path: Path) -> None:
    """The others are verified nevertheless."""
    fill(loads, tmp_path)
    (tmp_path / "1.csv").unlink()
    path = write_csv(tmp_path / "3.csv", [f"{n},v" for n in range(100, 400)])

    def die(number: int) -> None:
        if number == 2:
            raise Killed

    loads.at_piece = die
    with pytest.raises(Killed):
        load(loads, target(path, into="n"))
    outcome = verify(loads)
    assert [each.message.split(":")[0] for each in outcome.problems] == ["cannot be verified", "has not ended"]
    assert [each.is_verified for each in outcome.loads] == [True, True]
    assert (outcome.expected, outcome.agrees, outcome.is_verified) == (None, False, False)


def test_column_that_later_json_lines_have_added_is_null_in_the_rows_before(loads: Loads, tmp_path: Path) -> None:
    """The earlier files are still compared, and their rows have nothing there."""
    loads.execute("CREATE TABLE n (a int, b text)")
    for number, text in enumerate(['{"a":1,"b":"x"}\n', '{"a":2,"b":"y","c":3}\n']):
        path = tmp_path / f"{number}.jsonl"
        path.write_text(text)
        load(loads, replace(target(path, into="n"), add_columns=True, types="widen"))
    assert verify(loads).is_verified
    loads.execute("UPDATE n SET c = 4 WHERE a = 1")
    assert [each.line for each in verify(loads).problems] == [1]


@pytest.mark.parametrize("has_key", [False, True])
def test_equal_records_of_two_loads_need_a_row_each(loads: Loads, tmp_path: Path, *, has_key: bool) -> None:
    """Though each load by itself has all its rows, and the table as many as it should. A key keeps them unequal."""
    loads.execute("CREATE TABLE n (a int, b text)" if not has_key else "CREATE TABLE n (a int PRIMARY KEY, b text)")
    load(loads, mode_target(write_csv(tmp_path / "1.csv", ["1,x", "2,y"]), "truncate", into="n"))
    load(loads, target(write_csv(tmp_path / "2.csv", ["4,x" if has_key else "1,x", "3,z"]), into="n"))
    assert verify(loads).is_verified
    if not has_key:
        loads.execute("DELETE FROM n WHERE ctid = '(0,1)'; INSERT INTO n VALUES (9, 'other')")
        outcome = verify(loads)
        assert (outcome.is_verified, [each.message for each in outcome.problems]) == (
            False,
            ["lacks 1 row, because records of several loads are equal to one row"],
        )


def upsert(loads: Loads, path: Path, records: list[str], *, header: str = "a,b") -> None:
    """Write a file and merge it into table t, also if another version of it was loaded."""
    job = target(write_csv(path, records, header=header), format="csv")
    rules = LoadRules(retry_for=0.0, changed="load")
    loads.run(replace(job, mode="upsert", key=("a",)), rules=rules)


def fill_keyed(loads: Loads, folder: Path, records: list[str]) -> Path:
    """Fill table t, which then has a key, by a file with one record and another with some. Return the other."""
    loads.execute("ALTER TABLE t ADD PRIMARY KEY (a)")
    load(loads, mode_target(write_csv(folder / "0.csv", ["0,z"]), "truncate"))
    path = write_csv(folder / "t.csv", records)
    load(loads, target(path))
    return path


@pytest.mark.versions
def test_row_that_a_later_upsert_has_updated_is_compared_with_it(database: str, tmp_path: Path) -> None:
    """In the columns of the upsert's files, and in the others with the earlier file."""
    loads = load_in_tiny_blocks(database)
    loads.execute("ALTER TABLE t ADD c text, ADD PRIMARY KEY (a)")
    first = target(write_csv(tmp_path / "1.csv", [f"{n},v,w" for n in range(50)], header="a,b,c"), format="csv")
    load(loads, replace(first, mode="truncate"))
    changes = [f"{n},x" for n in range(40, 60)]
    for name, mode in (("2.csv", "upsert"), ("3.csv", "insert-new")):
        job = target(write_csv(tmp_path / name, changes, header="a,b"), format="csv")
        load(loads, replace(job, mode=mode, key=("a",)))
    assert (verify(loads, "t").is_verified, verify(loads, "t").expected) == (True, 60)
    for changed in ("b = 'v'", "c = 'z'"):
        loads.execute(f"UPDATE t SET {changed} WHERE a = 45")
        assert len(verify(loads, "t").loads[0].problems) == 1
        loads.execute("UPDATE t SET b = 'x', c = 'w' WHERE a = 45")


def test_rows_that_an_insert_new_has_stored_are_compared_too(loads: Loads, tmp_path: Path) -> None:
    """Of such a load by itself only the keys are, if it has kept rows of others."""
    fill_keyed(loads, tmp_path, ["1,v", "2,v"])
    load(loads, mode_target(write_csv(tmp_path / "n.csv", ["2,w", "3,w"]), "insert-new", key=("a",)))
    outcome = verify(loads, "t")
    assert (outcome.expected, outcome.compared, outcome.is_verified) == (4, 4, True)
    loads.execute("UPDATE t SET b = 'z' WHERE a = 3")
    assert (verify(loads, "t").problems, verify(loads, "t").is_verified) == ((), False)


def test_file_that_was_corrected_by_an_upsert_is_verified_by_its_newest_version(loads: Loads, tmp_path: Path) -> None:
    """If no row of a former version can be left; else counts agree, and nothing is verified."""
    path = fill_keyed(loads, tmp_path, ["1,v", "2,v"])
    upsert(loads, path, ["1,v", "2,w"])
    upsert(loads, path, ["1,v", "2,x", "3,x"])
    outcome = verify(loads, "t")
    assert [len(each.renewed) for each in outcome.loads] == [0, 1, 1, 0]
    assert (outcome.expected, outcome.compared, outcome.is_verified, outcome.problems) == (4, 4, True, ())
    loads.execute("UPDATE t SET b = 'v' WHERE a = 2")
    assert [each.line for each in verify(loads, "t").problems] == [3]
    loads.execute("UPDATE t SET b = 'x' WHERE a = 2")
    upsert(loads, path, ["1,y"])
    outcome = verify(loads, "t")
    assert (outcome.expected, outcome.compared, outcome.agrees, outcome.is_verified) == (4, 2, True, False)


def test_column_that_only_a_former_version_has_filled_is_not_verified(loads: Loads, tmp_path: Path) -> None:
    """The corrected file has each row, and lacks a column."""
    path = fill_keyed(loads, tmp_path, ["1,v", "2,v"])
    upsert(loads, path, ["1", "2"], header="a")
    outcome = verify(loads, "t")
    assert (outcome.problems, outcome.agrees, outcome.is_verified) == ((), True, False)


def test_load_into_a_parent_leaves_the_number_of_rows_open(loads: Loads, tmp_path: Path) -> None:
    """The ledger does not know into which partition its rows went."""
    loads.execute(
        "CREATE TABLE p (a int, b text) PARTITION BY RANGE (a);"
        "CREATE TABLE n PARTITION OF p FOR VALUES FROM (0) TO (1000)"
    )
    load(loads, mode_target(night(tmp_path, 0), "truncate", into="n"))
    load(loads, target(night(tmp_path, 1), into="p"))
    outcome = verify(loads)
    assert (outcome.expected, outcome.agrees) == (None, True)


def test_rows_that_loads_put_into_partitions_are_not_taken_for_verified(loads: Loads, tmp_path: Path) -> None:
    """Nobody has looked at them. Loads before the table was emptied do not count."""
    partition(loads)
    load(loads, target(write_csv(tmp_path / "all.csv", ["1,x", "20,y"]), into="n"))
    load(loads, target(write_csv(tmp_path / "low.csv", ["2,z"]), into="low"))
    loads.execute("UPDATE low SET b = 'changed' WHERE a = 2")
    outcome = verify(loads)
    assert (outcome.has_parts, outcome.is_verified, outcome.agrees) == (True, False, True)
    assert any("verify each of these with --into" in line for line in describe_table(outcome, ""))
    load(loads, mode_target(write_csv(tmp_path / "new.csv", ["3,x"]), "truncate", into="n"))
    assert verify(loads).is_verified


def test_load_that_ended_behind_a_truncation_is_not_taken_for_gone(loads: Loads, tmp_path: Path) -> None:
    """It was begun before. Its records were staged until then."""
    loads.execute("CREATE TABLE n (a int PRIMARY KEY, b text)")
    job = mode_target(write_csv(tmp_path / "delta.csv", [f"{n},new" for n in range(5, 15)]), "upsert", key=("a",))

    def die(_number: int) -> None:
        raise Killed

    job = replace(job, into=TableName(schema=None, name="n"))
    loads.at_piece = die
    with pytest.raises(Killed):
        loads.run(job)
    loads.at_piece = None
    base = load(
        loads, mode_target(write_csv(tmp_path / "base.csv", [f"{n},v" for n in range(10)]), "truncate", into="n")
    )
    delta = str(loads.run(job).load_id)
    assert penstock.verify(delta, to=loads.conninfo, values=True).is_verified
    outcome = verify(loads)
    assert [each.load_id for each in outcome.loads] == [base, delta]
    assert (outcome.is_verified, outcome.expected) == (True, 15)


def test_a_prune_makes_no_former_version_of_a_file_a_problem(loads: Loads, tmp_path: Path) -> None:
    """The ledger still has which load has loaded the present one."""
    loads.execute("CREATE TABLE n (a int PRIMARY KEY, b text)")
    path = write_csv(tmp_path / "f.csv", ["1,x", "bad,y"])
    job = mode_target(path, "upsert", key=("a",), into="n")
    load(loads, job, on_error="reject")
    write_csv(path, ["1,x", "2,y"])
    loads.run(job, rules=LoadRules(retry_for=0.0, changed="load"))
    assert verify(loads, values=False).problems == ()
    loads.execute("UPDATE penstock.loads SET changed_at = now() - interval '2 days'")
    with LedgerView(penstock.connect_to(loads.conninfo)) as view:
        assert view.prune(age_s=3600).loads == 1
    outcome = verify(loads, values=False)
    assert [each.renewed for each in outcome.loads] == [(str(path),)]
    assert (outcome.problems, len(outcome.unknown)) == ((), 1)


def test_table_that_no_load_has_filled_is_refused(loads: Loads) -> None:
    """And one that does not exist."""
    with pytest.raises(TargetError, match="does not exist"):
        verify(loads, "none")
    loads.execute("CREATE TABLE u (a int)")
    with pytest.raises(TargetError):
        verify(loads, "u")


def partition(loads: Loads) -> None:
    """Create table n with two partitions."""
    loads.execute(
        "CREATE TABLE n (a int, b text) PARTITION BY RANGE (a);"
        "CREATE TABLE low PARTITION OF n FOR VALUES FROM (MINVALUE) TO (10);"
        "CREATE TABLE high PARTITION OF n FOR VALUES FROM (10) TO (MAXVALUE)"
    )


def test_load_of_which_a_later_one_has_emptied_a_partition_is_not_taken_for_gone(loads: Loads, tmp_path: Path) -> None:
    """Its rows in other partitions may be damaged, and nobody has looked at them."""
    partition(loads)
    load(loads, target(write_csv(tmp_path / "all.csv", ["1,x", "20,y"]), into="n"))
    load(loads, mode_target(write_csv(tmp_path / "low.csv", ["2,z"]), "truncate", into="low"))
    with pytest.raises(TargetError, match="has no load that can be verified"):
        verify(loads)
    load(loads, target(write_csv(tmp_path / "more.csv", ["30,x"]), into="n"))
    outcome = verify(loads)
    assert [each.is_verified for each in outcome.loads] == [True]
    assert (outcome.is_partial, outcome.is_verified, outcome.agrees) == (True, False, True)
    assert verify(loads, "low").is_verified


def test_loads_before_the_table_was_emptied_do_not_keep_it_from_being_verified(loads: Loads, tmp_path: Path) -> None:
    """Also if it has partitions: TRUNCATE of the table empties all."""
    partition(loads)
    load(loads, target(write_csv(tmp_path / "1.csv", ["1,x", "20,y"]), into="n"))
    load(loads, mode_target(write_csv(tmp_path / "2.csv", ["2,z"]), "truncate", into="n"))
    outcome = verify(loads)
    assert (len(outcome.removed), outcome.is_partial, outcome.is_verified) == (1, False, True)


def test_nulls_in_a_unique_key_do_not_keep_rows_from_being_equal(loads: Loads, tmp_path: Path) -> None:
    """Each merge inserts its record with a null in the key. One row counted for both."""
    loads.execute("CREATE TABLE n (a int UNIQUE, b text)")
    for name in ("1.csv", "2.csv"):
        load(loads, mode_target(write_csv(tmp_path / name, [",x"]), "upsert", key=("a",), into="n"))
    for name, record in (("3.csv", "1,x"), ("4.csv", "1,y")):
        load(loads, mode_target(write_csv(tmp_path / name, [record]), "upsert", key=("a",), into="n"))
    assert verify(loads).is_verified
    loads.execute("DELETE FROM n WHERE ctid = '(0,1)'; INSERT INTO n VALUES (9, 'other')")
    outcome = verify(loads)
    assert [each.message for each in outcome.problems] == [
        "lacks 1 row, because records of several loads are equal to one row"
    ]


def test_transform_of_another_table_of_the_load_is_no_obstacle(loads: Loads, tmp_path: Path) -> None:
    """The values of this one are those of its files."""
    loads.execute("CREATE TABLE totals (a int, b text)")
    path = write_csv(tmp_path / "1.csv", ["1,x", "2,y"])
    sums = Transform(name="totals.sql", text="INSERT INTO totals SELECT count(*), 'all' FROM :staging")
    other = replace(target(night(tmp_path, 3), into="totals"), transform=sums)
    outcome = loads.run(target(path, into="n", create=True), other)
    assert outcome.rows
    assert verify(loads).is_verified


def test_columns_of_a_former_version_are_not_asked_of_the_rest_of_its_load(loads: Loads, tmp_path: Path) -> None:
    """The first file of a load has decided its columns, and was corrected since."""
    loads.execute("CREATE TABLE n (id int, x text, y text)")
    folder = tmp_path / "f"
    folder.mkdir()
    (folder / "a.csv").write_text("id,x\n1,p\n")
    (folder / "b.csv").write_text("id,x,y\n2,q,r\n")
    job = replace(target(folder, into="n"), missing="default")
    load(loads, job)
    (folder / "a.csv").write_text("id,x\n1,p\n3,s\n")
    loads.run(job, rules=LoadRules(retry_for=0.0, changed="load"))
    assert [each.message for each in verify(loads).problems] == []
