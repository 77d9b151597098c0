"""Verification of loads whose table, folder or ledger is another one than when they were loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.api.ledger_view import LedgerView
from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import TargetError
from penstock.core.values.job import Transform
from support.loads import Loads, target, write_csv
from support.modes import mode_target
from support.proofs import RECORDS, copy_again, load, load_in_tiny_blocks, refuse, said, verify, write_records

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def loads(ledger18: str) -> Loads:
    """Provide loads in tiny blocks into a database with table t."""
    return load_in_tiny_blocks(ledger18)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Provide a csv file of 200 records."""
    return write_records(tmp_path)


# ---------------------------------------------------------------- another name


@pytest.mark.parametrize("statement", ["ALTER TABLE t RENAME TO u", "CREATE SCHEMA s; ALTER TABLE t SET SCHEMA s"])
def test_renamed_table_is_counted_and_its_values_are_refused(loads: Loads, path: Path, statement: str) -> None:
    """By its new name, which the load would not find."""
    load_id = load(loads, mode_target(path, "truncate"))
    loads.execute(statement)
    now = "public.u" if "RENAME" in statement else "s.t"
    outcome = verify(loads, load_id, values=False)
    assert (outcome.problems, outcome.tables[0].rows, str(outcome.tables[0].table)) == ((), 200, now)
    assert f'Table "public.t" of the load is "{now}" now.' in refuse(loads, load_id)


def test_file_of_a_renamed_table_is_not_called_changed(loads: Loads, path: Path) -> None:
    """A copy of the file would be read for the table that has the name now, so it cannot be compared."""
    load_id = load(loads, target(path))
    loads.execute("ALTER TABLE t RENAME TO u; CREATE TABLE t (a int, b text)")
    copy_again(path)
    (problem,) = verify(loads, load_id, values=False).problems
    assert problem.message.endswith("cannot be compared: the load would now fill another table")


def test_renamed_table_of_a_transform_is_not_counted(loads: Loads, path: Path) -> None:
    """Its rows are those of the statement, whatever the table's name."""
    made = Transform(name="made.sql", text="INSERT INTO t SELECT a::int, b FROM :staging WHERE a::int < 50")
    load_id = load(loads, mode_target(path, "append", transform=made))
    loads.execute("ALTER TABLE t RENAME TO u")
    outcome = verify(loads, load_id, values=False)
    assert (outcome.problems, outcome.tables[0].rows) == ((), None)


# ---------------------------------------------------------------- other columns


def test_columns_that_were_added_or_widened_make_no_difference(loads: Loads, path: Path) -> None:
    """Only the columns that the files fill are compared."""
    load_id = load(loads, target(path))
    loads.execute("ALTER TABLE t ADD c text DEFAULT 'new', ADD d int, ALTER a TYPE bigint, ALTER b TYPE varchar(9)")
    outcome = verify(loads, load_id)
    assert (outcome.problems, outcome.tables[0].compared) == ((), 200)


def test_value_that_the_new_type_would_read_otherwise_is_found(loads: Loads, tmp_path: Path) -> None:
    """The table has the value of the old type as text, and the file another text."""
    load_id = load(loads, target(write_csv(tmp_path / "t.csv", ["1,x", "007,y"])))
    loads.execute("ALTER TABLE t ALTER a TYPE text")
    assert said(verify(loads, load_id)) == [("is not in the table", 3)]


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("ALTER TABLE t DROP b", '"b"'),
        ("ALTER TABLE t RENAME b TO c", '"b"'),
        ("ALTER TABLE t DROP b; ALTER TABLE t ADD b text", "were added, dropped or renamed"),
    ],
)
def test_table_that_lost_a_column_is_refused_by_its_name(loads: Loads, path: Path, statement: str, reason: str) -> None:
    """Its rows can still be counted."""
    load_id = load(loads, target(path))
    loads.execute(statement)
    said = refuse(loads, load_id)
    assert said.startswith(f"the values of load {load_id} cannot be compared")
    assert reason in said
    assert verify(loads, load_id, values=False).problems == ()


def test_file_without_header_does_not_fit_a_table_with_another_column(loads: Loads, path: Path) -> None:
    """Its fields are matched with all columns, so the values are refused with the reason."""
    write_csv(path, RECORDS[1:], header=RECORDS[0])
    load_id = load(loads, target(path, has_header=False))
    assert verify(loads, load_id).problems == ()
    loads.execute("ALTER TABLE t ADD c text")
    assert "were added, dropped or renamed" in refuse(loads, load_id)
    assert verify(loads, load_id, values=False).problems == ()


# ---------------------------------------------------------------- tables of other kinds


def test_detached_partition_takes_its_rows_along(loads: Loads, path: Path) -> None:
    """They are missing in the table, by count and by value."""
    loads.execute(
        """
        CREATE TABLE u (a int, b text) PARTITION BY RANGE (a);
        CREATE TABLE u_low PARTITION OF u FOR VALUES FROM (0) TO (199);
        CREATE TABLE u_high PARTITION OF u FOR VALUES FROM (199) TO (1000);
        """
    )
    load_id = load(loads, target(path, into="u"))
    assert verify(loads, load_id).problems == ()
    loads.execute("ALTER TABLE u DETACH PARTITION u_high")
    assert said(verify(loads, load_id)) == [
        ("has 199 rows, and the load has stored 200", None),
        ("is not in the table", 201),
    ]


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_generated_columns_are_left_out_and_identities_are_compared_if_the_file_has_them(
    loads: Loads, tmp_path: Path, mode: str
) -> None:
    """The server makes the one, and the other too if the file lacks it."""
    kind = "BY DEFAULT" if mode == "upsert" else "ALWAYS"
    loads.execute(
        f"CREATE TABLE u (a int GENERATED {kind} AS IDENTITY, b text UNIQUE,"
        " c text GENERATED ALWAYS AS (b || '!') STORED)"
    )
    key = ("b",) if mode == "upsert" else ()
    lacking = write_csv(tmp_path / "lacking.csv", ["x", "y"], header="b")
    first = load(loads, mode_target(lacking, mode, into="u", key=key))
    having = write_csv(tmp_path / "having.csv", ["70,p", "71,q"], header="a,b")
    second = load(loads, mode_target(having, mode, into="u", key=key))
    assert (verify(loads, first).problems, verify(loads, second).problems) == ((), ())
    loads.execute("UPDATE u SET a = DEFAULT WHERE b IN ('x', 'q')")
    assert verify(loads, first).problems == ()
    assert said(verify(loads, second)) == [("is not in the table", 3)]


def test_rows_of_a_view_are_not_counted(loads: Loads, path: Path) -> None:
    """It need not show what it has stored."""
    loads.execute(
        """
        CREATE VIEW v AS SELECT * FROM t WHERE a < 10;
        CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO t VALUES (NEW.*); RETURN NEW; END';
        CREATE TRIGGER stores INSTEAD OF INSERT ON v FOR EACH ROW EXECUTE FUNCTION f();
        """
    )
    load_id = load(loads, target(path, into="v"))
    assert (loads.count(), loads.count("v")) == (200, 10)
    assert verify(loads, load_id, values=False).problems == ()
    assert "may change rows: stores" in refuse(loads, load_id)


# ---------------------------------------------------------------- later loads and files


@pytest.mark.part("rest")
def test_key_that_a_later_load_has_updated_is_not_what_the_first_one_stored(loads: Loads, tmp_path: Path) -> None:
    """Each key's last record is compared, over all files of a load."""
    loads.execute("CREATE TABLE u (a int PRIMARY KEY, b text)")
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, records in {"1.csv": ["1,one", "2,two", "1,uno"], "2.csv": ["2,due", "3,tre"]}.items():
        write_csv(folder / name, records)
    first = load(loads, mode_target(folder, "upsert", into="u", key=("a",), keep="last"))
    assert verify(loads, first).problems == ()
    later = write_csv(tmp_path / "later.csv", ["2,zwei"])
    second = load(loads, mode_target(later, "upsert", into="u", key=("a",)))
    assert verify(loads, second).problems == ()
    (problem,) = verify(loads, first).problems
    assert (problem.uri, problem.line) == (str(folder / "2.csv"), 2)


def test_key_without_its_index_is_refused_before_a_file_is_read(loads: Loads, path: Path) -> None:
    """The index says which keys are equal, and so which record of a key is compared."""
    loads.execute("CREATE TABLE u (a int PRIMARY KEY, b text)")
    load_id = load(loads, mode_target(path, "upsert", into="u", key=("a",)))
    loads.execute("ALTER TABLE u DROP CONSTRAINT u_pkey")
    shown: list[object] = []
    with pytest.raises(TargetError, match="no unique index on"):
        penstock.verify(load_id, to=loads.conninfo, values=True, on_progress=shown.append)
    assert shown == []


def test_record_that_the_type_refuses_now_is_not_called_missing(loads: Loads, tmp_path: Path) -> None:
    """The table has its row, from before the domain was altered; the problem has the server's reason."""
    loads.execute("CREATE DOMAIN small AS int; CREATE TABLE u (a small, b text)")
    load_id = load(loads, target(write_csv(tmp_path / "u.csv", ["1,x", "2,y"]), into="u"))
    loads.execute("ALTER DOMAIN small ADD CHECK (VALUE < 2) NOT VALID")
    (problem,) = verify(loads, load_id).problems
    assert (problem.line, problem.message.partition(":")[0]) == (3, "is refused now")
    assert "small_check" in problem.message


@pytest.mark.parametrize("values", [False, True])
def test_other_files_of_the_folder_do_not_matter(loads: Loads, tmp_path: Path, values: bool) -> None:
    """Those that earlier or later loads have loaded may have other columns: only a load's own files are read."""
    folder = tmp_path / "folder"
    folder.mkdir()
    write_csv(folder / "2.csv", ["1,x"])
    ids = [load(loads, target(folder))]
    for name, header, record in [("3.csv", "a,b,c", "2,y,z"), ("1.csv", "c;b;a", "w;v;3")]:
        if name == "3.csv":
            loads.execute("ALTER TABLE t ADD c text")
        write_csv(folder / name, [record], header=header)
        ids.append(load(loads, target(folder)))
    for name in ("1.csv", "2.csv", "3.csv"):
        copy_again(folder / name)
    for load_id in ids:
        outcome = verify(loads, load_id, values=values)
        assert outcome.problems == ()
        assert outcome.tables[0].compared == (1 if values else None)


def test_pruned_load_is_refused(loads: Loads, path: Path) -> None:
    """Its sources are not in the ledger any more; a load beside it is verified, and still not alone."""
    first = load(loads, target(path))
    second = load(loads, target(write_csv(path.parent / "other.csv", ["-1,x"]), into="t"))
    loads.execute(f"UPDATE penstock.loads SET changed_at = changed_at - interval '1 day' WHERE id = '{first}'")
    with LedgerView(ConnectionFactory(loads.conninfo)) as view:
        assert view.prune(age_s=3600).loads == 1
    with pytest.raises(TargetError, match="the ledger does not have its sources"):
        verify(loads, first, values=False)
    assert verify(loads, second).problems == ()
