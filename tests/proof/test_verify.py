"""Verification of loads: what was deleted, repeated or changed is found, and nothing is found if nothing was."""

from __future__ import annotations

import gzip
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from psycopg.conninfo import make_conninfo

import penstock
from penstock.core.errors import SourceError, TargetError
from penstock.core.values.job import LoadRules, Transform
from support.files import write_to
from support.loads import Loads, target, write_csv
from support.modes import Killed, killing_at, mode_target
from support.proofs import RECORDS, copy_again, load, load_in_tiny_blocks, refuse, said, verify, write_records

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.loading.values.outcome import LoadProgress


@pytest.fixture
def loads(ledger18: str) -> Loads:
    """Provide loads in tiny blocks into a database with table t."""
    return load_in_tiny_blocks(ledger18)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Provide a csv file of 200 records."""
    return write_records(tmp_path)


# ---------------------------------------------------------------- nothing is wrong


@pytest.mark.versions
def test_load_that_nobody_touched_is_verified(database: str, path: Path) -> None:
    """On each version; it is said what was counted and compared."""
    loads = Loads(database, piece_bytes=101)
    outcome = verify(loads, load(loads, target(path, create=True)))
    assert outcome.problems == ()
    (table,) = outcome.tables
    assert (str(table.table), table.records, table.inserted, table.rows) == ("public.t", 200, 200, 200)
    assert (table.is_alone, table.compared, table.missing, table.extra) == (True, 200, 0, 0)
    assert table.compared_bytes == path.stat().st_size - len("a,b\n")


def test_counts_alone_read_no_file(loads: Loads, path: Path) -> None:
    """Without values, no record is compared, and the same counts are returned."""
    outcome = verify(loads, load(loads, target(path)), values=False)
    assert outcome.problems == ()
    assert [(table.rows, table.compared, table.is_alone) for table in outcome.tables] == [(200, None, False)]


_FORMS: dict[str, tuple[bytes, dict[str, Any]]] = {
    "quoted": (b'a,b\n1,"two\nlines"\n2,"a ""quote"""\n3,\n', {}),
    "crlf": (b"a,b\r\n1,x\r\n2,\r\n", {}),
    "no end": (b"a,b\n1,x\n2,y", {}),
    "tsv": (b"a\tb\n1\tback\\slash\n2\t\\N\n", {"format": "tsv"}),
    "jsonl": (b'{"a":1,"b":"x"}\n\n{"b":"y","a":2}\n{"a":3}\n', {"format": "jsonl"}),
    "latin": ("a,b\n1,é\n".encode("latin-1"), {"encoding": "LATIN1"}),
    "gzip": (gzip.compress(b"a,b\n1,x\n2,y\n"), {}),
}


@pytest.mark.parametrize("form", _FORMS)
def test_every_form_of_files_is_verified(loads: Loads, tmp_path: Path, form: str) -> None:
    """And the record that was changed in the table is found in it."""
    data, options = _FORMS[form]
    load_id = load(loads, target(write_to(tmp_path / "file", data), **options))
    assert verify(loads, load_id).problems == ()
    loads.execute("UPDATE t SET b = 'other' WHERE a = 1")
    (problem,) = verify(loads, load_id).problems
    assert (problem.message, problem.line) == ("is not in the table", 1 if form == "jsonl" else 2)


def test_columnar_files_are_verified(loads: Loads, tmp_path: Path) -> None:
    """The line of a problem is then the row of the file."""
    pq.write_table(pa.table({"a": [*range(50)], "b": ["x"] * 50}), tmp_path / "rows.parquet", row_group_size=7)
    load_id = load(loads, target(tmp_path / "rows.parquet"))
    assert verify(loads, load_id).problems == ()
    loads.execute("UPDATE t SET b = 'y' WHERE a = 30")
    assert said(verify(loads, load_id)) == [("is not in the table", 31)]


_KINDS = """
    CREATE TYPE mood AS ENUM ('sad', 'ok');
    CREATE DOMAIN positive AS int CHECK (VALUE > 0);
    CREATE TYPE pair AS (x int, y text);
    CREATE TABLE u (a int[], b mood, c positive, d pair, e bytea, f uuid, g inet, h tsrange, i char(5), j numeric(6,2),
                    k timestamptz(0), l bit(3), m jsonb)
"""
_VALUES = (
    r""""{1,NULL,3}",ok,7,"(1,""a b"")",\xdead,6f9619ff-8b86-d011-b42d-00c04fc964ff,10.0.0.1/8,"""
    r'''"[2026-01-01,2026-02-01)",ab,1.005,2026-01-01 12:00:00.6+02,101,"{""b"": 1, ""a"": 2}"'''
)


@pytest.mark.versions
def test_types_of_every_kind_are_verified(database: str, tmp_path: Path) -> None:
    """Arrays, enums, domains, composites, and types with a modifier that changes values; a row of nulls is none."""
    loads = Loads(database, setup=_KINDS)
    path = write_csv(tmp_path / "u.csv", [_VALUES, "," * 12], header="a,b,c,d,e,f,g,h,i,j,k,l,m")
    load_id = load(loads, target(path, into="u"))
    assert verify(loads, load_id).problems == ()
    loads.execute("UPDATE u SET d = (1, 'a c')::pair WHERE c = 7")
    assert said(verify(loads, load_id)) == [("is not in the table", 2)]


@pytest.mark.part("rest")
@pytest.mark.versions
def test_type_without_a_binary_form_is_refused_before_a_file_is_sent(database: str, tmp_path: Path) -> None:
    """Also within other types, by the column. Counts can be verified, and values too if the files lack the column."""
    loads = Loads(database, setup="CREATE TYPE pair AS (x int, y aclitem); CREATE DOMAIN acl AS aclitem[]")
    loads.execute("CREATE TABLE u (a int, b aclitem, c acl, d pair[])")
    path = write_csv(tmp_path / "u.csv", ["1,,,", "2,=r/postgres,{=r/postgres},"], header="a,b,c,d")
    load_id = load(loads, target(path, into="u", format="csv"))
    shown: list[object] = []
    with pytest.raises(TargetError) as caught:
        penstock.verify(load_id, to=loads.conninfo, values=True, on_progress=shown.append)
    assert str(caught.value.detail).splitlines() == [
        f'Column "{name}" of table "public.u": type aclitem has no binary output.' for name in "bcd"
    ]
    assert shown == []
    assert verify(loads, load_id, values=False).problems == ()
    job = replace(target(write_csv(tmp_path / "v.csv", ["3"], header="a"), into="u", format="csv"), missing="default")
    lacking = load(loads, job)
    assert verify(loads, lacking).problems == ()


def test_partitions_belong_to_the_table_and_children_do_not(loads: Loads, path: Path) -> None:
    """COPY fills the partitions of a table, and only the table itself if others inherit from it."""
    loads.execute(
        """
        CREATE TABLE u (a int, b text) PARTITION BY RANGE (a);
        CREATE TABLE u_low PARTITION OF u FOR VALUES FROM (0) TO (100);
        CREATE TABLE u_high (b text, a int NOT NULL);
        ALTER TABLE u ATTACH PARTITION u_high FOR VALUES FROM (100) TO (1000);
        """
    )
    load_id = load(loads, mode_target(path, "truncate", into="u"), mode_target(path, "truncate", into="t"))
    loads.execute("CREATE TABLE child () INHERITS (t); INSERT INTO child VALUES (1, 'of the child')")
    assert verify(loads, load_id).problems == ()
    loads.execute("UPDATE u_high SET b = 'other' WHERE a = 150")
    assert [problem.line for problem in verify(loads, load_id).problems] == [152, None]


@pytest.mark.parametrize("copy_format", ["text", "binary"])
def test_values_that_penstock_has_written_anew_are_verified(loads: Loads, tmp_path: Path, copy_format: Any) -> None:
    """By its own encoder, or from the notation of a file: the server reads each again, as text."""
    loads.execute("CREATE TABLE u (n numeric, d date, f float8, s timestamptz)")
    path = write_to(tmp_path / "u.csv", "n;d;f;s\n1.234,50;31.12.2025;0,1;2026-01-01 12:00+02\n;;;\n")
    job = target(path, into="u", delimiter=";", decimal_comma=("*",), thousands={"n": "."}, date_order={"d": "dmy"})
    load_id = load(loads, replace(job, copy_format=copy_format))
    assert verify(loads, load_id).problems == ()
    loads.execute("UPDATE u SET f = f + 1e-16 WHERE n IS NOT NULL")
    assert said(verify(loads, load_id)) == [("is not in the table", 2)]


def write_months(folder: Path, *, columnar: bool = False) -> Path:
    """Write files of which the second has another column, and the third fewer; the records of all are alike."""
    for month, columns in enumerate((("a", "b"), ("a", "b", "c"), ("b",))):
        records = [{"a": n, "b": f"v{n % 7}", "c": f"c{n}"} for n in range(100)]
        if columnar:
            found = pa.table({name: [each[name] for each in records] for name in columns})
            pq.write_table(found, folder / f"{month}.parquet")
        else:
            lines = [",".join(str(each[name]) for name in columns) for each in records]
            write_to(folder / f"{month}.csv", "\n".join([",".join(columns), *lines, ""]).encode())
    return folder


@pytest.mark.part("rest")
@pytest.mark.parametrize("columnar", [False, True])
@pytest.mark.parametrize("mode", ["append", "replace"])
def test_files_with_different_columns_are_verified(loads: Loads, tmp_path: Path, columnar: bool, mode: str) -> None:
    """Each column of each file."""
    loads.execute("ALTER TABLE t ALTER a SET DEFAULT -1, ADD c text DEFAULT 'none'")
    load_id = load(loads, mode_target(write_months(tmp_path, columnar=columnar), mode, into="t"))
    outcome = verify(loads, load_id)
    assert outcome.is_verified
    (table,) = outcome.tables
    assert (table.compared, table.missing, table.extra) == (300, 0, 0)
    for change, file in (
        ("c = 'other' WHERE c = 'c7'", "1"),
        ("b = 'x' WHERE c = 'c7'", "1"),
        ("a = 700 WHERE c = 'c7'", "1"),
        ("a = 700 WHERE c = 'none' AND a = 7", "0"),
    ):
        loads.execute(f"BEGIN; CREATE TABLE kept AS TABLE t; UPDATE t SET {change}; COMMIT")
        wrong = [each for each in verify(loads, load_id).problems if each.line is not None]
        assert file in [Path(each.uri).stem for each in wrong], change
        loads.execute("BEGIN; DELETE FROM t; INSERT INTO t TABLE kept; DROP TABLE kept; COMMIT")
    assert verify(loads, load_id).problems == ()


@pytest.mark.part("rest")
def test_lost_row_is_found_though_a_row_of_a_file_with_more_columns_is_like_it(loads: Loads, tmp_path: Path) -> None:
    """No row stands for the records of two files, and the number of rows does not hide it."""
    loads.execute("ALTER TABLE t ALTER a SET DEFAULT -1, ADD c text DEFAULT 'none'")
    load_id = load(loads, mode_target(write_months(tmp_path), "replace", into="t"))
    loads.execute("DELETE FROM t WHERE a = 7 AND c = 'none'; INSERT INTO t VALUES (8, 'v1', 'c8')")
    messages = {each.message for each in verify(loads, load_id).problems}
    assert messages == {"is not in the table", "has a row that is not in the files"}


@pytest.mark.parametrize("has_key", [False, True])
def test_files_that_lack_columns_of_each_other_are_verified_only_by_a_key(
    loads: Loads, tmp_path: Path, has_key: bool
) -> None:
    """Without one, a value may have moved from the row of one file to that of the other."""
    loads.execute("ALTER TABLE t ALTER b SET DEFAULT 'none', ADD c text DEFAULT 'none'")
    if has_key:
        loads.execute("ALTER TABLE t ADD PRIMARY KEY (a)")
    write_to(tmp_path / "1.csv", b"a,b\n1,x\n")
    write_to(tmp_path / "2.csv", f"a,c\n{2 if has_key else 1},y\n".encode())
    load_id = load(loads, target(tmp_path, into="t"))
    outcome = verify(loads, load_id)
    assert (outcome.problems, outcome.agrees, outcome.is_verified) == ((), True, has_key)


@pytest.mark.part("rest")
def test_constants_and_skipped_fields_are_verified(loads: Loads, tmp_path: Path) -> None:
    """What the table has by its default, or has generated, is left out."""
    loads.execute("CREATE TABLE u (a int, b text, c int DEFAULT 3, d int GENERATED ALWAYS AS (a + 1) STORED)")
    path = write_csv(tmp_path / "u.csv", ["1,x"], header="a,e")
    job = replace(target(path, into="u", skip=["e"], constants={"b": "name"}), missing="default")
    loads.execute("ALTER TABLE u ALTER c SET DEFAULT 4")
    load_id = load(loads, job)
    assert verify(loads, load_id).problems == ()
    loads.execute("UPDATE u SET c = 5")
    assert verify(loads, load_id).problems == ()
    loads.execute("UPDATE u SET b = 'other'")
    assert said(verify(loads, load_id)) == [("is not in the table", 2)]


@pytest.mark.part("rest")
@pytest.mark.parametrize("mode", ["truncate", "replace"])
@pytest.mark.parametrize("is_atomic", [False, True])
def test_emptied_tables_belong_to_the_load_alone(loads: Loads, path: Path, mode: str, is_atomic: bool) -> None:
    """A row that somebody has added since is found, by count and by value."""
    loads.execute("INSERT INTO t VALUES (-1, 'before')")
    rules = LoadRules(retry_for=0.0, atomic=is_atomic)
    load_id = str(loads.run(mode_target(path, mode), rules=rules).load_id)
    assert verify(loads, load_id).problems == ()
    loads.execute("INSERT INTO t VALUES (-2, 'after')")
    outcome = verify(loads, load_id)
    assert [problem.record for problem in outcome.problems] == [None, "(-2,after)"]
    assert outcome.tables[0].extra == 1


def test_several_tables_and_objects_are_verified(loads: Loads, tmp_path: Path) -> None:
    """Each with the objects that filled it; problems name the table and the file."""
    loads.execute("CREATE TABLE u (a int, b text)")
    ones = [write_csv(tmp_path / f"one-{number}.csv", [f"{number},x"]) for number in range(3)]
    twos = write_csv(tmp_path / "two.csv", ["1,x", "2,y"])
    load_id = load(loads, target(ones), target(twos, into="u"))
    assert verify(loads, load_id).problems == ()
    loads.execute("DELETE FROM t WHERE a = 1; DELETE FROM u WHERE a = 2")
    problems = [(problem.uri, problem.line) for problem in verify(loads, load_id).problems]
    assert problems[-2:] == [(str(ones[1]), 2), (str(twos), 3)]


# ---------------------------------------------------------------- something is wrong

_OTHER = "the load has stored 200"


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        ("DELETE FROM t WHERE a = 40", [(f"has 199 rows, and {_OTHER}", None), ("is not in the table", 42)]),
        (
            "INSERT INTO t SELECT * FROM t WHERE a = 40",
            [(f"has 201 rows, and {_OTHER}", None), ("has a row that is not in the files", None)],
        ),
        (
            "UPDATE t SET b = 'v' WHERE a = 40",
            [("is not in the table", 42), ("has a row that is not in the files", None)],
        ),
        (
            "UPDATE t SET b = CASE a WHEN 40 THEN 'v6' ELSE 'v5' END WHERE a IN (40, 41)",
            [
                ("is not in the table", 42),
                ("is not in the table", 43),
                *[("has a row that is not in the files", None)] * 2,
            ],
        ),
    ],
    ids=["deleted", "repeated", "changed", "swapped"],
)
def test_damage_is_found(loads: Loads, path: Path, damage: str, found: list[tuple[str, int | None]]) -> None:
    """With the line of each record that the table has not, and the row that the files have not."""
    load_id = load(loads, mode_target(path, "truncate"))
    loads.execute(damage)
    assert said(verify(loads, load_id)) == found


def test_rows_of_others_hide_no_damage(loads: Loads, path: Path) -> None:
    """Of a table that others fill too, each record of the files must be there as often as in the files."""
    loads.execute("INSERT INTO t VALUES (40, 'v5'), (-1, 'other')")
    twice = write_csv(path.parent / "twice.csv", ["40,v5", *RECORDS])
    load_id = load(loads, target(twice))
    assert verify(loads, load_id).problems == ()
    loads.execute("DELETE FROM t WHERE a = 40")
    outcome = verify(loads, load_id)
    assert (outcome.tables[0].missing, outcome.tables[0].extra) == (2, 0)
    assert said(outcome)[-2:] == [("is not in the table", 2), ("is not in the table", 43)]


def test_only_the_first_ten_are_shown(loads: Loads, path: Path) -> None:
    """All are counted."""
    load_id = load(loads, mode_target(path, "truncate"))
    loads.execute("UPDATE t SET b = b || '!'")
    outcome = verify(loads, load_id)
    assert (outcome.tables[0].missing, outcome.tables[0].extra, len(outcome.problems)) == (200, 200, 20)
    assert [problem.line for problem in outcome.problems[:10]] == [*range(2, 12)]


@pytest.mark.parametrize(
    ("kind", "value", "other"),
    [
        ("numeric", "1.0", "1.00"),
        ("float8", "0", "-0"),
        ("jsonb", '"{""a"": 1}"', '{"a": 1.0}'),
        ("point", '"(1,2)"', "(1,2.5)"),
        ("json", '"{""a"": 1}"', '{"a":1}'),
        ("interval", "1 day", "24:00"),
    ],
)
def test_values_that_are_merely_equal_differ(loads: Loads, tmp_path: Path, kind: str, value: str, other: str) -> None:
    """Whether or not the type has an operator =, and whatever that says."""
    loads.execute(f"CREATE TABLE u (a {kind})")
    load_id = load(loads, target(write_csv(tmp_path / "u.csv", [value], header="a"), into="u", format="csv"))
    assert verify(loads, load_id).problems == ()
    loads.execute(f"UPDATE u SET a = '{other}'")
    assert said(verify(loads, load_id)) == [("is not in the table", 2)]


def test_changed_file_is_named_and_not_compared(loads: Loads, path: Path) -> None:
    """So is one that is gone from a folder of sources."""
    other = write_csv(path.parent / "other.csv", ["1,x"])
    load_id = load(loads, target(path.parent))
    write_csv(path, RECORDS[:-1])
    other.unlink()
    outcome = verify(loads, load_id)
    found = {(problem.uri, problem.message) for problem in outcome.problems}
    assert found == {
        (str(path), "has changed since it was loaded"),
        (str(other), "is not among the load's sources any more"),
    }
    assert outcome.tables[0].compared is None


def test_named_file_must_exist_only_if_the_load_has_loaded_it(loads: Loads, path: Path) -> None:
    """If it was missing then, that is a problem; if an earlier load has loaded it, it is none."""
    early, late, gone = (path.with_name(name) for name in ("early.csv", "late.csv", "gone.csv"))
    load(loads, target(write_csv(early, ["1,x"])))
    load_id = load(loads, target([early, path, gone, write_csv(late, ["2,y"])]), on_error="reject")
    early.unlink()
    outcome = verify(loads, load_id)
    assert [problem.uri for problem in outcome.problems] == [str(gone)]
    assert (outcome.is_verified, outcome.tables[0].compared) == (False, 201)
    late.unlink()
    with pytest.raises(SourceError, match=r"late\.csv"):
        verify(loads, load_id)


@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize("form", _FORMS)
def test_file_that_was_copied_again_has_not_changed(loads: Loads, tmp_path: Path, form: str, values: bool) -> None:
    """Its bytes are compared with the checksums in the ledger; a file of that size with another byte has changed."""
    data, options = _FORMS[form]
    path = write_to(tmp_path / "file", data)
    load_id = load(loads, target(path, **options))
    copy_again(path)
    assert verify(loads, load_id, values=values).problems == ()
    changed = data.replace(b"1", b"8", 1) if form != "gzip" else gzip.compress(b"a,b\n8,x\n2,y\n")
    assert len(changed) == len(data)
    write_to(path, changed)
    os.utime(path, ns=(2, 2))
    assert said(verify(loads, load_id, values=values)) == [("has changed since it was loaded", None)]


@pytest.mark.parametrize("mode", ["append", "replace", "upsert"])
def test_columnar_file_that_was_copied_again_has_not_changed(loads: Loads, tmp_path: Path, mode: str) -> None:
    """Its rows are encoded again, in the form in which they were sent."""
    loads.execute("CREATE TABLE u (a int PRIMARY KEY, b text)")
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"a": [*range(50)], "b": ["x"] * 50}), path)
    load_id = load(loads, mode_target(path, mode, into="u", key=("a",) if mode == "upsert" else ()))
    copy_again(path)
    assert verify(loads, load_id, values=False).problems == ()


def test_file_of_a_transform_that_was_copied_again_has_not_changed(loads: Loads, path: Path) -> None:
    """Its bytes are compared, although its rows cannot be."""
    made = Transform(name="made.sql", text="INSERT INTO t SELECT a::int, b FROM :staging")
    load_id = load(loads, mode_target(path, "append", transform=made))
    copy_again(path)
    assert verify(loads, load_id, values=False).problems == ()


def test_created_columnar_table_is_verified_after_its_file_was_copied_again(loads: Loads, tmp_path: Path) -> None:
    """The plan was made before the table existed, and is now made from the table."""
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"a": [*range(50)], "b": ["x"] * 50}), path)
    load_id = load(loads, target(path, into="u", create=True))
    copy_again(path)
    assert verify(loads, load_id, values=False).problems == ()


def test_touched_file_that_cannot_be_compared_is_named_with_the_reason(loads: Loads, tmp_path: Path) -> None:
    """Because its header does not fit the table, or because the ledger has no checksum; an empty file is the same."""
    folder = tmp_path / "folder"
    folder.mkdir()
    path, bare, empty = (folder / name for name in ("1.csv", "2.csv", "3.csv"))
    write_csv(path, ["1,x"])
    write_to(bare, "a,b\n")
    write_to(empty, "")
    load_id = load(loads, target(folder))
    for each in (path, bare, empty):
        copy_again(each)
    (problem,) = verify(loads, load_id).problems
    assert (problem.uri, problem.message[-32:]) == (str(bare), "the ledger has no checksum of it")
    write_csv(path, ["1,x"], header="a,c")
    os.utime(path, ns=(3, 3))
    found = {each.uri: each.message for each in verify(loads, load_id).problems}
    assert found.keys() == {str(path), str(bare)}
    assert "time of change than when it was loaded, and cannot be compared: " in found[str(path)]
    assert '"c"' in found[str(path)]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("DELETE FROM penstock.ranges WHERE NOT has_start AND NOT has_end", "a part of it is missing in the ledger"),
        ("UPDATE penstock.ranges SET has_end = false", "a part of it is missing in the ledger"),
        (
            "UPDATE penstock.ranges SET ranges = ranges + int8multirange(int8range(upper(ranges), upper(ranges) + 1))",
            "a part of it is in the ledger more than once",
        ),
    ],
)
def test_damaged_ledger_is_found(loads: Loads, path: Path, damage: str, message: str) -> None:
    """A range that is missing, one that overlaps, and an end that is not there."""
    load_id = load(loads, target(path))
    loads.execute(damage)
    assert message in [problem.message for problem in verify(loads, load_id, values=False).problems]


# ---------------------------------------------------------------- rejects and merges


@pytest.mark.part("rest")
def test_rejected_records_are_left_out(loads: Loads, tmp_path: Path) -> None:
    """Whether the table or its types refuse them, and in every block; what was loaded since must be there."""
    loads.execute("CREATE TABLE u (a int CHECK (a <> 13), b text NOT NULL)")
    records = [f"{number},{'' if number % 17 == 0 else 'x'}" for number in range(100)]
    records[40] = "forty,x"
    records[50] = "50,x,y"
    load_id = load(loads, target(write_csv(tmp_path / "u.csv", records), into="u"), on_error="reject")
    outcome = verify(loads, load_id)
    assert outcome.problems == ()
    assert (outcome.tables[0].rejected, outcome.tables[0].compared) == (9, 91)
    loads.execute("UPDATE u SET b = 'y' WHERE a = 14; ALTER TABLE u DROP CONSTRAINT u_a_check")
    penstock.retry(load_id, to=loads.conninfo)
    outcome = verify(loads, load_id)
    assert (outcome.tables[0].rejected, said(outcome)) == (8, [("is not in the table", 16)])


@pytest.mark.part("rest")
@pytest.mark.parametrize("mode", ["append", "truncate", "replace", "upsert"])
def test_corrected_records_are_left_out(loads: Loads, tmp_path: Path, mode: str) -> None:
    """The table has others in their place, also if a retry stored them later; what is wrong with others is found."""
    loads.execute("CREATE TABLE u (a int PRIMARY KEY, b text CHECK (b <> 'no'))")
    bad = tmp_path / "bad.csv"
    path = write_csv(tmp_path / "u.csv", ["1,x", "two,y", "3,no", "4,no", "5,z"])
    job = mode_target(path, mode, into="u", key=("a",) if mode == "upsert" else ())
    load_id = load(loads, job, on_error="reject")
    penstock.rejects(load_id, bad, to=loads.conninfo)
    bad.write_text("a,b\n2,y\n33,no\n4,no\n")
    assert penstock.retry(load_id, bad, to=loads.conninfo).left == 2
    assert (verify(loads, load_id).problems, verify(loads, load_id).tables[0].corrected) == ((), 1)
    loads.execute("ALTER TABLE u DROP CONSTRAINT u_b_check")
    assert penstock.retry(load_id, to=loads.conninfo).left == 0
    assert loads.execute("SELECT a FROM u ORDER BY a") == [(1,), (2,), (4,), (5,), (33,)]
    outcome = verify(loads, load_id)
    assert (outcome.problems, outcome.is_verified) == ((), True)
    assert (outcome.tables[0].corrected, outcome.tables[0].compared) == (2, 3)
    loads.execute("UPDATE u SET b = 'other' WHERE a = 4")
    assert said(verify(loads, load_id)) == [("is not in the table", 5)]


def test_discarded_rejects_cannot_be_told_from_missing_records(loads: Loads, tmp_path: Path) -> None:
    """Counts can still be compared."""
    load_id = load(loads, target(write_csv(tmp_path / "t.csv", ["1,x", "two,y"])), on_error="reject")
    loads.execute("DELETE FROM penstock.rejects")
    assert "discarded" in refuse(loads, load_id)
    assert verify(loads, load_id, values=False).problems == ()


@pytest.mark.parametrize(("mode", "keep"), [("upsert", "first"), ("upsert", "last"), ("sync", "last")])
def test_merge_is_verified_by_the_record_of_each_key_that_it_keeps(
    loads: Loads, tmp_path: Path, mode: str, keep: str
) -> None:
    """Rows of the table that no record names are nobody's business; a sync has deleted them."""
    loads.execute(
        "CREATE TABLE u (a int PRIMARY KEY, b text, c text); INSERT INTO u VALUES (1, 'old', 'c'), (9, 'old', 'd')"
    )
    path = write_csv(tmp_path / "u.csv", ["1,one", "2,two", "1,uno", "2,due", "3,tre"])
    limit = {"max_delete": 100} if mode == "sync" else {}
    load_id = load(loads, mode_target(path, mode, into="u", key=("a",), keep=keep, **limit))
    outcome = verify(loads, load_id)
    assert (outcome.problems, outcome.tables[0].is_alone) == ((), False)
    loads.execute("UPDATE u SET b = CASE b WHEN 'one' THEN 'uno' ELSE 'one' END WHERE a = 1")
    assert said(verify(loads, load_id)) == [("is not in the table", 2 if keep == "first" else 4)]


# ---------------------------------------------------------------- refused


def test_rows_that_a_statement_or_a_trigger_made_are_refused_by_name(loads: Loads, tmp_path: Path) -> None:
    """The rows need not be the records of the files."""
    path = write_csv(tmp_path / "t.csv", ["1,x"])
    made = Transform(name="made.sql", text="INSERT INTO t SELECT a::int, b FROM :staging")
    transformed = load(loads, mode_target(path, "append", transform=made))
    assert 'Transform "made.sql"' in refuse(loads, transformed)
    assert verify(loads, transformed, values=False).problems == ()
    loads.execute(
        """
        CREATE TABLE v (a int, b text);
        CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
        CREATE TRIGGER changes BEFORE INSERT ON v FOR EACH ROW EXECUTE FUNCTION f();
        """
    )
    assert "may change rows: changes" in refuse(loads, load(loads, target(path, into="v")))


def test_load_whose_rows_are_gone_is_refused(loads: Loads, path: Path) -> None:
    """Because a later load has emptied the table, or somebody has dropped it."""
    first = load(loads, target(path))
    second = load(loads, mode_target(path, "truncate"))
    assert "may not have the rows" in refuse(loads, first)
    assert verify(loads, second).problems == ()
    loads.execute("DROP TABLE t")
    assert "may not have the rows" in refuse(loads, second)


@pytest.mark.parametrize(
    ("setting", "value", "column", "text"),
    [("DateStyle", "ISO,DMY", "date", "01/02/2026"), ("IntervalStyle", "sql_standard", "interval", "-1 2:03:04")],
)
def test_load_that_would_be_read_otherwise_is_refused(
    loads: Loads, tmp_path: Path, setting: str, value: str, column: str, text: str
) -> None:
    """With a setting that decides how dates or intervals are read, whichever of the two runs has it."""
    loads.execute(f"CREATE TABLE u (a {column})")
    other = make_conninfo(loads.conninfo, options=f"-c {setting}={value}")
    path = write_csv(tmp_path / "u.csv", [text], header="a")
    plain = load(loads, target(path, into="u", format="csv"))
    assert verify(loads, plain).problems == ()
    with pytest.raises(TargetError) as caught:
        penstock.verify(plain, to=other, values=True)
    assert f"{setting} was" in str(caught.value.detail)
    loads.execute("TRUNCATE u")
    set_so = penstock.load(path, into="u", to=other, again=True).load_id
    with pytest.raises(TargetError) as caught:
        verify(loads, set_so)
    assert f"{setting} was" in str(caught.value.detail)
    assert penstock.verify(set_so, to=other, values=True).problems == ()


def test_unended_load_is_refused(loads: Loads, path: Path) -> None:
    """It is resumed first."""
    load_id = load(loads, target(path))
    loads.execute("UPDATE penstock.loads SET state = 'running'")
    assert "has not ended" in refuse(loads, load_id)


# ---------------------------------------------------------------- faults

_WAYS: dict[str, dict[str, Any]] = {
    "append": {},
    "truncate": {},
    "replace": {},
    "upsert": {"key": ("a",), "keep": "last"},
    "sync": {"key": ("a",), "keep": "last"},
}


@pytest.mark.parametrize("mode", _WAYS)
def test_nothing_is_found_after_a_load_that_died_and_was_resumed(
    loads: Loads, path: Path, mode: str, some: Callable[[Sequence[int], int], list[int]]
) -> None:
    """Whichever statement it died at; of each mode, a few in the first part."""
    setup = "DROP TABLE t; CREATE TABLE t (a int PRIMARY KEY, b text)"
    job = mode_target(path, mode, **_WAYS[mode])
    loads.execute(setup)
    with killing_at(-1) as sent:
        load(loads, job)
    died, points = 0, some(range(sent[0]), 8)
    for point in points:
        loads.execute(f"DROP SCHEMA penstock CASCADE; {setup}")
        with killing_at(point):
            try:
                load(loads, job)
            except Killed:
                died += 1
        loads.run(job, batch_bytes=500)
        (record,) = penstock.loads(to=loads.conninfo)[-1:]
        outcome = verify(loads, record.load_id)
        assert outcome.problems == (), f"died at statement {point}"
        assert outcome.tables[0].compared == 200
    # A session that waits asks again and again, so that a load may end with fewer statements than the first one.
    assert died > 0.7 * len(points)


def test_progress_is_shown(loads: Loads, path: Path) -> None:
    """The last step is the comparison."""
    shown: list[LoadProgress] = []
    load_id = load(loads, target(path))
    penstock.verify(load_id, to=loads.conninfo, values=True, on_progress=shown.append)
    assert (shown[-1].activity, shown[-1].rows) == ("comparing with public.t", 200)


def test_interrupted_comparison_leaves_nothing(loads: Loads, path: Path) -> None:
    """Neither a session nor its temporary tables."""

    def interrupt(_: LoadProgress) -> None:
        raise KeyboardInterrupt

    load_id = load(loads, target(path))
    with pytest.raises(KeyboardInterrupt):
        penstock.verify(load_id, to=loads.conninfo, values=True, on_progress=interrupt)
    assert loads.lingering() == 0
    assert loads.execute("SELECT relname FROM pg_class WHERE relname = 'penstock_sent'") == []
