"""Loads whose columns would store values otherwise than the files have them: warned of, or widened."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from psycopg.conninfo import make_conninfo

import penstock
from penstock.core.errors import UsageError
from penstock.core.values.job import LoadRules
from support.loads import Loads
from support.typed import make_target, types_of

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.loading.values.outcome import CheckOutcome, LoadOutcome

Write = Any


def _append(*paths: Any, **options: Any) -> Any:
    return make_target(*paths, **({"create": False, "types": "text"} | options))


def _widen(*paths: Any, **options: Any) -> Any:
    return make_target(*paths, **({"types": "widen"} | options))


def _changed(outcome: LoadOutcome | CheckOutcome) -> list[tuple[str, int | None]]:
    codes = ("value-changed", "unclear-date")
    return [(each.code, each.line) for each in outcome.warnings if each.code in codes]


_CHANGED = [
    ("date", "2026-11-02 23:59:59"),
    ("date", "2026-11-02T08:00:00Z"),
    ("timestamp", "2026-11-02T08:00:00Z"),
    ("timestamp", "2026-11-02 08:00:00 America/New_York"),
    ("timestamp", "2026-11-02 08:00:00.1234567"),
    ("timestamptz", "2026-11-02 08:00:00.1234567+00"),
    ("timestamp(0)", "2026-11-02 08:00:00.5"),
    ("time", "08:00:00+02"),
    ("time", "08:00:60"),
    ("timetz", "08:00:60"),
    ("integer", "007"),
    ("smallint", "-0"),
    ("bigint", "007"),
    ("numeric", "007.50"),
    ("numeric", "-0.0"),
    ("numeric(10,2)", "1.005"),
    ("real", "0.123456789"),
    ("double precision", "0.12345678901234567"),
    ("varchar(3)", "abc  "),
]


@pytest.mark.parametrize(("type_name", "value"), _CHANGED)
@pytest.mark.parametrize("copy_format", ["text", "auto", "binary"])
def test_append_warns_of_what_a_column_changes(
    loads: Loads, write: Write, type_name: str, value: str, copy_format: str
) -> None:
    """The warning has the line and the value, whatever format the rows are sent in; strict loads store nothing."""
    if copy_format == "binary" and type_name in ("time", "timetz"):
        pytest.skip(f"type {type_name} has no binary encoder")
    loads.execute(f"CREATE TABLE t (id int, a {type_name})")
    path = write(f"id,a\n1,\n2,{value}\n3,{value}\n")
    target = _append(path, copy_format=copy_format)
    with pytest.raises(UsageError) as caught:
        loads.run(target, rules=LoadRules(retry_for=0, warnings="error"))
    assert loads.count() == 0
    assert value in caught.value.message
    outcome = loads.run(target, rules=LoadRules(retry_for=0, again=True))
    assert (outcome.rows, _changed(outcome)) == (3, [("value-changed", 3)])
    (notice,) = outcome.warnings
    assert "and 1 more" in notice.message
    assert notice.hint is not None
    kept = notice.hint.partition("run: ")[2].partition(";")[0]
    loads.execute(f"TRUNCATE t; {kept}")
    again = loads.run(target, rules=LoadRules(retry_for=0, again=True))
    assert _changed(again) == []


@pytest.mark.parametrize("value", ["01/02/2026", "02.03.2026", "2.3.26"])
@pytest.mark.parametrize("type_name", ["date", "timestamp", "timestamptz"])
def test_dates_that_datestyle_decides_are_a_warning_until_it_is_chosen(
    loads: Loads, write: Write, value: str, type_name: str
) -> None:
    """PGOPTIONS, or the role, chooses the order for the load, and ends the warning."""
    loads.execute(f"CREATE TABLE t (a {type_name})")
    target = _append(write(f"a\n2026-01-31\n{value}\n"))
    with pytest.raises(UsageError):
        loads.run(target, rules=LoadRules(retry_for=0, warnings="error"))
    assert loads.count() == 0
    outcome = loads.run(target)
    assert _changed(outcome) == [("unclear-date", 3)]
    assert "DateStyle" in outcome.warnings[0].message
    chosen = Loads(make_conninfo(loads.conninfo, options="-c datestyle=ISO,DMY"))
    strict = chosen.run(target, rules=LoadRules(retry_for=0, again=True, warnings="error"))
    assert (strict.rows, _changed(strict)) == (2, [])


def test_ordinary_values_are_no_warning(loads: Loads, write: Write) -> None:
    """Forms that programs write, with zeros at the end, blanks, signs, exponents, midnights, offsets and nulls."""
    loads.execute(
        "CREATE TABLE t (i int, n numeric, p numeric(10,2), f float8, r real, d date, ts timestamp, tz timestamptz,"
        " c char(5), v varchar(5), b boolean, x text)"
    )
    path = write(
        "i,n,p,f,r,d,ts,tz,c,v,b,x\n"
        "0,1.50,1.500,-73.982154846191406,1.5,2026-01-31,2026-01-31,2026-01-31 10:00:00,ab,ab ,yes,007\n"
        "-7,1e3,1e-2,0.10000000000000001,-0.0,2026-01-31 00:00:00,2026-01-31T10:00,2026-01-31T10:00:00.1Z,x  ,,t,0x1F\n"
        "+7, 5,0.00,-0.0,1e3,31-Jan-2026,31/01/2026,2026-01-31 10:00:00 Europe/Rome,,ab,f,-0\n"
        "7,NaN,,1e300,,infinity,2026-01-31 10:00:00.1230000000,2026-01-31 10:00:00+05:30,,,,01/02/2026\n"
    )
    loads.execute("ALTER ROLE CURRENT_USER SET datestyle = 'ISO, DMY'")
    try:
        outcome = loads.run(_append(path), rules=LoadRules(retry_for=0, warnings="error"))
    finally:
        loads.execute("ALTER ROLE CURRENT_USER RESET datestyle")
    assert outcome.warnings == ()


def test_other_days_load_with_widen_stores_what_the_files_say(loads: Loads, write: Write) -> None:
    """The second file's forms make the columns text, and its dates timestamps; the first file's values stay."""
    loads.run(_widen(write("id,code,d,q,s\n1,123,2026-01-31,1.5,2026-01-31\n2,456,2026-02-01,2,2026-02-01\n", "1.csv")))
    assert types_of(loads) == ["integer", "integer", "date", "numeric", "date"]
    second = write(
        "id,code,d,q,s\n3,007,01/02/2026,1e3,2026-11-02T08:00:00\n4,0x1F, 2026-03-01,1_000,2026-03-01\n", "2.csv"
    )
    outcome = loads.run(_widen(second))
    assert types_of(loads) == ["integer", "text", "text", "text", "timestamp without time zone"]
    rows = loads.execute("SELECT code, d, q, s::text FROM t ORDER BY id")
    assert rows == [
        ("123", "2026-01-31", "1.5", "2026-01-31 00:00:00"),
        ("456", "2026-02-01", "2", "2026-02-01 00:00:00"),
        ("007", "01/02/2026", "1e3", "2026-11-02 08:00:00"),
        ("0x1F", " 2026-03-01", "1_000", "2026-03-01 00:00:00"),
    ]
    assert _changed(outcome) == [("unclear-date", 2)]


@pytest.mark.parametrize(
    ("type_name", "value", "expected"),
    [
        ("date", "2026-11-02", "date"),
        ("date", "2026-11-02 00:00:00", "date"),
        ("date", "2026-11-02 23:59:59", "timestamp without time zone"),
        ("date", "2026-11-02T08:00:00Z", "timestamp with time zone"),
        ("timestamp", "2026-11-02 08:00:00+02", "timestamp with time zone"),
        ("timestamp", "2026-11-02 08:00:00.1234567", "text"),
        ("timestamptz", "2026-11-02 08:00:00", "timestamp with time zone"),
        ("date", "yesterday evening", "text"),
        ("integer", "-0", "text"),
        ("numeric", "-0.0", "text"),
        ("numeric", "0.123456789012345678901234567890", "numeric"),
    ],
)
def test_columns_are_widened_to_keep_a_value(
    loads: Loads, write: Write, type_name: str, value: str, expected: str
) -> None:
    """Dates become timestamps, and timestamps get a zone; the row that was there keeps its value."""
    was = "5" if type_name in ("integer", "numeric") else "2026-01-31"
    loads.execute(f"CREATE TABLE t (a {type_name}); INSERT INTO t VALUES ('{was}')")
    outcome = loads.run(_widen(write(f"a\n{value}\n"), create=False))
    assert types_of(loads) == [expected]
    assert _changed(outcome) == []
    if expected == "text":
        assert (value,) in loads.rows()


def test_a_chosen_order_keeps_a_column_of_dates(loads: Loads, write: Write) -> None:
    """With DateStyle chosen, widen reads 01/02/2026 by it."""
    loads.execute("CREATE TABLE t (a date)")
    chosen = Loads(make_conninfo(loads.conninfo, options="-c datestyle=ISO,DMY"))
    outcome = chosen.run(_widen(write("a\n01/02/2026\n"), create=False))
    assert (types_of(loads), _changed(outcome)) == (["date"], [])
    assert [str(value) for (value,) in loads.rows()] == ["2026-02-01"]


def test_negative_zero_and_long_decimals_keep_their_sign_and_digits(loads: Loads, write: Write) -> None:
    """No type is chosen that loses them."""
    loads.run(
        make_target(
            write("i,n,m,e,l\n-0,-0.0,-0,1e5,0.12345678901234567\n1,1.5,12345678901234567890,0.12345678901234567,1\n")
        )
    )
    assert types_of(loads) == ["double precision", "double precision", "text", "text", "numeric"]
    assert loads.execute("SELECT i::text, n::text, m, e, l::text FROM t ORDER BY l::text LIMIT 1") == [
        ("-0", "-0", "-0", "1e5", "0.12345678901234567")
    ]


def test_json_lines_are_looked_through_as_text_is(loads: Loads, write: Write) -> None:
    """Strings and numbers of records, and the line behind blank ones."""
    loads.execute("CREATE TABLE t (a int, d date, p numeric(10,2))")
    lines = [{"a": 1, "d": "2026-01-31", "p": 1.5}, {"a": "007", "d": "2026-01-31T10:00:00Z", "p": 1.005}]
    text = "\n\n".join(json.dumps(line) for line in lines)
    outcome = loads.run(_append(write(text, "f.jsonl")))
    assert _changed(outcome) == [("value-changed", 3)] * 3
    loads.run(_widen(write('{"a": "08"}\n', "2.jsonl"), create=False))
    assert types_of(loads)[0] == "text"


def test_timestamps_of_columnar_files_into_a_date_column(loads: Loads, write: Write) -> None:
    """A time of day or a zone is lost with a warning, a midnight is not; decimals are rounded with a warning."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = write("").with_name("f.parquet")
    day, us = 20_000 * 86_400_000_000, pa.timestamp("us")
    pq.write_table(
        pa.table(
            {
                "a": pa.array([day, day + 43_200_000_000], us),
                "b": pa.array([day, 2 * day], us),
                "c": pa.array([day, day], pa.timestamp("us", tz="UTC")),
                "d": pa.array([20_000, 20_001], pa.date32()),
                "e": pa.array([150, 155], pa.int64()).cast(pa.decimal128(21, 0)).cast(pa.decimal128(30, 3)),
                "f": pa.array(["007", "7"]),
                "g": pa.array([1.5, 0.1], pa.float64()),
            }
        ),
        path,
    )
    loads.execute("CREATE TABLE t (a date, b date, c timestamp, d date, e numeric(10,-1), f int, g float8)")
    outcome = loads.run(_append(path))
    assert outcome.rows == 2
    assert _changed(outcome) == [("value-changed", line) for line in (1, 1, 2, 2)]


def test_later_columnar_file_of_wider_types_is_warned_of_in_the_table_that_the_first_has_made(
    loads: Loads, write: Write
) -> None:
    """A time of day, a zone and digits are lost; the first file by itself loses nothing."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    day = 20_000 * 86_400_000_000
    first = {
        "a": pa.array([20_000], pa.date32()),
        "b": pa.array([day], pa.timestamp("us")),
        "c": pa.array([150], pa.int64()).cast(pa.decimal128(21, 0)).cast(pa.decimal128(30, 2)),
        "d": pa.array([1.5], pa.float32()),
    }
    second = {
        "a": pa.array([day + 1_000_000], pa.timestamp("us")),
        "b": pa.array([day], pa.timestamp("us", tz="UTC")),
        "c": pa.array([1.2345], pa.float64()).cast(pa.decimal128(30, 4)),
        "d": pa.array([0.1234567890123], pa.float64()),
    }
    folder = write("").parent / "folder"
    folder.mkdir()
    pq.write_table(pa.table(first), folder / "a.parquet")
    assert _changed(loads.run(make_target(folder, types="text", into="one"))) == []
    pq.write_table(pa.table(second), folder / "b.parquet")
    outcome = loads.run(make_target(folder, types="text"))
    assert outcome.rows == 2
    assert _changed(outcome) == [("value-changed", 1)] * 4


def test_hint_has_the_rows_removed_before_the_table_is_altered(loads: Loads, write: Write) -> None:
    """Typed in its order, each row is there once. An undo finds no row of a table that was altered since."""
    loads.execute("CREATE TABLE t (zip int)")
    path = write("zip\n01067\n")
    outcome = loads.run(_append(path))
    hint = outcome.warnings[-1].hint or ""
    assert hint.startswith("If that matters, first remove what is loaded (penstock undo ID), then run: ALTER TABLE ")
    assert penstock.undo(str(outcome.load_id), to=loads.conninfo).rows == 1
    loads.execute(hint.partition("run: ")[2].partition(";")[0])
    loads.run(_append(path))
    assert loads.rows() == [("01067",)]


def _hint_of(loads: Loads, path: Path, **options: Any) -> str:
    return loads.run(_append(path, **options), rules=LoadRules(retry_for=0, again=True)).warnings[-1].hint or ""


def test_hint_fits_what_the_mode_leaves(loads: Loads, write: Write) -> None:
    """One file alone would remove the rows of the others, and existing keys are skipped; a check has stored nothing."""
    loads.execute("CREATE TABLE t (k int PRIMARY KEY, a numeric(9,2))")
    path = write("k,a\n1,1.005\n")
    again = "run the same command again."
    for mode, end in (("truncate", again), ("upsert", "load the file again, with --again."), ("sync", again)):
        key = {} if mode == "truncate" else {"key": "k"}
        hint = _hint_of(loads, path, mode=mode, **key)
        assert hint.startswith("If that matters, run: ALTER TABLE ")
        assert end in hint
    loads.execute("TRUNCATE t")
    assert "penstock undo" in _hint_of(loads, path, mode="insert-new", key="k")
    checked = loads.check(_append(path)).warnings[-1].hint or ""
    assert "before the load." in checked
    assert "undo" not in checked


def test_hint_for_a_partition_names_the_column_of_its_parent(loads: Loads, write: Write) -> None:
    """PostgreSQL alters the type of no inherited column."""
    loads.execute("CREATE TABLE p (a numeric(9,2)) PARTITION BY RANGE (a); CREATE TABLE t PARTITION OF p DEFAULT")
    hint = _hint_of(loads, write("a\n1.005\n"))
    assert "give the column of the partitioned table a type that keeps it, such as numeric," in hint
    assert "--types widen" not in hint


def test_check_and_rejecting_loads_warn_too(loads: Loads, write: Write) -> None:
    """A check counts what a load would change, and so does a load that rejects other records."""
    loads.execute("CREATE TABLE t (a int)")
    path = write("a\n1\n07\nx\n")
    assert _changed(loads.check(_append(path))) == [("value-changed", 3)]
    outcome = loads.run(_append(path), rules=LoadRules(retry_for=0, on_error="reject"))
    assert (outcome.rows, _changed(outcome)) == (2, [("value-changed", 3)])


def test_upsert_warns_too(loads: Loads, write: Write) -> None:
    """Staged records are looked through."""
    loads.execute("CREATE TABLE t (k int PRIMARY KEY, a date)")
    outcome = loads.run(_append(write("k,a\n1,2026-01-31 10:00\n"), mode="upsert", key="k"))
    assert _changed(outcome) == [("value-changed", 2)]


def test_changes_in_many_blocks_are_one_warning(database18: str, write: Write) -> None:
    """The count is of all blocks, and the line is the first one's; other columns do not matter."""
    loads = Loads(database18, piece_bytes=1000, chunk_bytes=1000)
    loads.execute("CREATE TABLE t (a int, x text)")
    rows = "".join(f"{number},{number:05}\n" for number in range(1, 5000))
    path = write("a,x\n" + rows + "007,x\n" + rows + "007,x\n")
    outcome = loads.run(_append(path))
    assert _changed(outcome) == [("value-changed", 5001)]
    assert "and 1 more" in outcome.warnings[0].message
