"""Every type of Arrow: the rows are those that PostgreSQL makes of the same values written by psycopg."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from loading.formats.columnar import differential
from loading.formats.columnar.flips import open_bytes
from loading.formats.columnar.kinds import ARROW_ONLY, KINDS, make_array
from penstock.api import functions
from penstock.core.errors import DataError, SourceError
from penstock.core.values.job import LoadRules, Transform
from penstock.loading.values.types import identify_type
from support.loads import AGAIN, IMPATIENT, Loads, target
from support.typed import types_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_REJECTING = LoadRules(on_error="reject", retry_for=0.0)


@pytest.mark.parametrize("is_binary", [True, False])
def test_values_are_those_that_pyarrow_reads(loads: Loads, seed: int, tmp_path: Path, is_binary: bool) -> None:
    """2,000 of each type with nulls, by either format of COPY."""
    differential.play(loads, tmp_path, seed=seed, rows=2_000, is_binary=is_binary)


@pytest.mark.part("rest")
@pytest.mark.timeout(600)
def test_many_values_are_those_that_pyarrow_reads(loads: Loads, seed: int, tmp_path: Path) -> None:
    """As above, a million values in files of other layouts; `differential` as a program compares more."""
    for number in range(1, 16):
        for is_binary in (True, False):
            differential.play(loads, tmp_path, seed=seed + number, rows=1_500, is_binary=is_binary)


@pytest.mark.parametrize("file_format", ["parquet", "arrow"])
def test_created_columns_have_the_types_of_the_values(
    loads: Loads, write_parquet: Callable[..., Path], write_arrow: Callable[..., Path], file_format: str
) -> None:
    """Of every kind."""
    names = [name for name in KINDS if file_format == "arrow" or name not in ARROW_ONLY]
    table = pa.table({name: make_array([None], name) for name in names})
    loads.run(target((write_parquet if file_format == "parquet" else write_arrow)(table), create=True))
    types = loads.execute(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
        " WHERE attrelid = 't'::regclass AND attnum > 0"
    )
    assert dict(types) == {name: KINDS[name][2] for name in names}


def test_types_of_added_columns_are_those_of_the_catalogue(loads: Loads, write_arrow: Callable[..., Path]) -> None:
    """They are planned before the server makes them."""
    kinds = [kind for kind, _, _ in KINDS.values() if not pa.types.is_run_end_encoded(kind)]
    path = write_arrow({f"c{n}": pa.nulls(1, kind) for n, kind in enumerate((*kinds, *map(pa.list_, kinds)))})
    fields = open_bytes(path.read_bytes(), "arrow").describe().fields
    names = {field.sql_type for field in fields} - {"jsonb[]", None}
    for name in names - {f"{name}[]" for name in names if str(name).endswith("[]")}:
        loads.execute(f"DROP TABLE IF EXISTS t; CREATE TABLE t (v {name})")
        query = "SELECT atttypid::int, atttypmod FROM pg_attribute WHERE attrelid = 't'::regclass AND attname = 'v'"
        assert loads.execute(query) == [identify_type(str(name))]


def test_nested_values_are_json(loads: Loads, write_parquet: Callable[..., Path]) -> None:
    """Structs, maps, lists of lists and what they hold, nulls on every level."""
    inner = pa.struct(
        [("a", pa.int32()), ('b"\n', pa.list_(pa.string())), ("d", pa.decimal128(5, 1)), ("t", pa.date32())]
    )
    rows: list[Any] = [
        {"a": 1, 'b"\n': ["x\\\x01", None], "d": Decimal("1.5"), "t": dt.date(2020, 2, 29)},
        None,
        {"a": None, 'b"\n': [], "d": None, "t": None},
    ]
    table = pa.table(
        {
            "s": pa.array(rows, inner),
            "m": pa.array([[("k\t", 1.5), ("l", None)], [], None], pa.map_(pa.string(), pa.float64())),
            "l": pa.array([[[1], [2, None], None], [], None], pa.list_(pa.list_(pa.int8()))),
            "ls": pa.array([rows, [None], None], pa.list_(inner)),
            "n": pa.array([1, 2, 3]),
        }
    )
    loads.run(target(write_parquet(table), into="t", create=True))
    first = {"a": 1, 'b"\n': ["x\\\x01", None], "d": 1.5, "t": "2020-02-29"}
    empty = {"a": None, 'b"\n': [], "d": None, "t": None}
    assert loads.execute("SELECT s, m, l, ls FROM t ORDER BY n") == [
        (first, {"k\t": 1.5, "l": None}, [[1], [2, None], None], [first, None, empty]),
        (None, {}, [], [None]),
        (empty, None, None, None),
    ]


def test_lists_of_scalars_fill_jsonb_columns_as_json(loads: Loads, write_parquet: Callable[..., Path]) -> None:
    """The type of the table's column decides."""
    loads.execute("CREATE TABLE t (a jsonb, b json)")
    loads.run(target(write_parquet({"a": [[1, None]], "b": [["x"]]})))
    assert loads.execute("SELECT a, b FROM t") == [([1, None], ["x"])]


@pytest.mark.parametrize("name", ["vector", "halfvec"])
def test_lists_fill_columns_of_vectors(loads: Loads, write_parquet: Callable[..., Path], name: str) -> None:
    """As pgvector reads them, whose types are played by types like text here, and in a domain over them."""
    loads.execute(f"""
        CREATE TYPE {name};
        CREATE FUNCTION v_in(cstring) RETURNS {name} LANGUAGE internal IMMUTABLE STRICT AS 'textin';
        CREATE FUNCTION v_out({name}) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'textout';
        CREATE TYPE {name} (INPUT = v_in, OUTPUT = v_out, LIKE = text);
        CREATE DOMAIN places AS {name};
        CREATE TABLE t (a {name}, b text[], c places)
    """)
    vectors = pa.array([[0.5, -1.0, 1e-7], None], pa.list_(pa.float32(), 3))
    loads.run(target(write_parquet({"a": vectors, "b": [["x"], None], "c": vectors})))
    assert loads.execute("SELECT a::text, b, c::text FROM t") == [
        ("[0.5,-1,1e-7]", ["x"], "[0.5,-1,1e-7]"),
        (None, None, None),
    ]


def test_dates_beyond_four_digits_and_before_christ(loads: Loads, write_arrow: Callable[..., Path]) -> None:
    """PostgreSQL's limits; what pyarrow writes of these it would not read."""
    days = [-719_163, 2_932_897, -2_440_588, 2**31 - 1 - 1_000_000 - 4_713 * 366, 11_248_738]
    stamps = [
        -62_135_596_800 * 10**6 - 1,
        253_402_300_800 * 10**6,
        -210_866_803_200 * 10**6,
        9_224_318_015_999_999_999,
        5,
    ]
    table = pa.table({"n": range(5), "d": pa.array(days, pa.int32()).view(pa.date32())})
    for unit in ("s", "us"):
        counts = [count // 10**6 if unit == "s" else count for count in stamps]
        counts = [min(count, 9_223_371_331_200_000_000) for count in counts]
        table = table.append_column(f"t{unit}", pa.array(counts, pa.int64()).view(pa.timestamp(unit)))
        table = table.append_column(f"z{unit}", pa.array(counts, pa.int64()).view(pa.timestamp(unit, "UTC")))
    loads.run(target(write_arrow(table), create=True))
    for number, day in enumerate(days):
        assert loads.execute(f"SELECT d - date '1970-01-01' FROM t WHERE n = {number}") == [(day,)]
    for column in ("tus", "zus", "ts", "zs"):
        found = loads.execute(f"SELECT (extract(epoch FROM {column}) * 1000000)::numeric(30) FROM t ORDER BY n")
        expected = [min(count, 9_223_371_331_200_000_000) for count in stamps]
        if column.endswith("s") and column not in ("tus", "zus"):
            expected = [count // 10**6 * 10**6 for count in stamps]
        assert [int(count) for (count,) in found] == expected


@pytest.mark.parametrize(
    ("array", "value"),
    [
        (pa.array([0, 123_456_789, 0], pa.int64()).view(pa.timestamp("ns")), "1970-01-01 00:00:00.123456789"),
        (pa.array([0, 1, 0], pa.int64()).view(pa.time64("ns")), "00:00:00.000000001"),
        (pa.array(["x", "a\0b", "y"]), "a\0b"),
        (pa.array([0, -1, 0], pa.int64()).view(pa.time64("us")), "-1"),
        (
            pa.array([[], [0, 1], []], pa.list_(pa.int64())).cast(pa.list_(pa.timestamp("ns"))),
            "1970-01-01 00:00:00.000000001",
        ),
    ],
    ids=["timestamp", "time", "NUL", "no time", "list"],
)
def test_value_that_postgresql_cannot_hold_is_an_error_with_its_place(
    loads: Loads, write_arrow: Callable[..., Path], array: pa.Array, value: str
) -> None:
    """File, record batch, row and column; no row is loaded and nothing is rounded."""
    error = loads.refuse(target(write_arrow({"n": [1, 2, 3], "v": array}), create=True))
    assert isinstance(error, DataError)
    assert error.location is not None
    assert (error.location.line, error.location.column, error.location.part) == (2, "v", "record batch 1")
    assert 'f.arrow record batch 1, row 2, column "v"' in (error.detail or "")
    assert value in (error.detail or "")


def test_such_values_are_rejected_and_loaded_once_they_are_corrected(
    loads: Loads, write_parquet: Callable[..., Path], tmp_path: Path
) -> None:
    """Two faults and a value that the server refuses; a retry without a correction leaves them."""
    stamps = pa.array([0, 123_456_789, 2_000, 5], pa.int64()).view(pa.timestamp("ns"))
    path = write_parquet({"n": ["1", "2", "x", "4"], "v": stamps})
    loads.execute("CREATE TABLE t (n int, v timestamp)")
    outcome = loads.run(target(path), rules=_REJECTING)
    assert (outcome.rows, outcome.rejected) == (1, 3)
    load_id = str(outcome.load_id)
    assert loads.execute('SELECT start, line, "column" FROM penstock.rejects ORDER BY 1') == [
        (1, 2, None),
        (2, 3, "n"),
        (3, 4, None),
    ]
    assert functions.retry(load_id, to=loads.conninfo).left == 3
    rejects = tmp_path / "bad.txt"
    again = functions.load(
        path, "t", to=loads.conninfo, on_error="reject", again=True, reject_file=rejects, no_record=True
    )
    written = rejects.read_text()
    assert written.splitlines()[0] == "n\tv"
    rejects.write_text(written.replace("456789 ns", "457").replace("x", "3").replace("000005 ns", "000"))
    loads.execute("DELETE FROM t")
    assert functions.retry(str(again.load_id), rejects, to=loads.conninfo).left == 0
    assert [row[0] for row in loads.execute("SELECT n FROM t ORDER BY n")] == [2, 3, 4]


@pytest.mark.parametrize("has_schema", [True, False])
def test_int96_is_read_in_any_year(loads: Loads, write_parquet: Callable[..., Path], has_schema: bool) -> None:
    """As Spark, Hive and Impala write timestamps; 64-bit nanoseconds end in 2262."""
    seconds = pa.array([253_402_300_799, -62_135_596_800, None, 0], pa.timestamp("s"))
    path = write_parquet({"v": seconds}, use_deprecated_int96_timestamps=True, store_schema=has_schema)
    loads.run(target(path, create=True))
    found = [row[0] for row in loads.execute("SELECT v::text FROM t")]
    assert found == ["9999-12-31 23:59:59", "0001-01-01 00:00:00", None, "1970-01-01 00:00:00"]


def test_nanoseconds_of_int96_are_an_error_with_their_place(loads: Loads, write_parquet: Callable[..., Path]) -> None:
    """They are not rounded."""
    stamps = pa.array([0, 5_000, 7_000, 1_001], pa.timestamp("ns"))
    path = write_parquet({"v": stamps}, use_deprecated_int96_timestamps=True, row_group_size=3)
    error = loads.refuse(target(path, create=True))
    assert isinstance(error, DataError)
    assert error.location is not None
    assert (error.location.line, error.location.column, error.location.part) == (4, "v", "row group 2")


def test_int96_in_lists_structs_and_maps_is_read_in_any_year(loads: Loads, write_parquet: Callable[..., Path]) -> None:
    """And those beside them, whose column is none of these."""
    stamps = pa.array([1_577_836_800, 253_402_300_799, -62_135_596_800, None], pa.timestamp("s"))
    texts = ["2020-01-01 00:00:00", "9999-12-31 23:59:59", "0001-01-01 00:00:00", None]
    ends = pa.array([0, 1, 2, 3, 4], pa.int32())
    table = {
        "a": stamps,
        "n": range(4),
        "l": pa.ListArray.from_arrays(ends, stamps),
        "s": pa.StructArray.from_arrays([stamps], ["x"]),
        "m": pa.MapArray.from_arrays(ends, pa.array(["k"] * 4), stamps),
    }
    path = write_parquet(table, use_deprecated_int96_timestamps=True, row_group_size=3)
    loads.run(target(path, create=True))
    assert types_of(loads)[::2] == ["timestamp without time zone", "timestamp without time zone[]", "jsonb"]
    found = loads.execute(
        "SELECT a::text, l[1]::text, (s->>'x')::timestamp::text, (m->>'k')::timestamp::text FROM t ORDER BY n"
    )
    assert found == [(text, text, text, text) for text in texts]
    loads.run(target(path, into="u", create=True, skip=["l", "s", "m"]))
    assert [row[0] for row in loads.execute("SELECT a::text FROM u ORDER BY n")] == texts


@pytest.mark.parametrize("kind", ["list", "struct", "map", "list of structs"])
def test_nanoseconds_of_nested_int96_are_an_error_with_their_row(
    loads: Loads, write_parquet: Callable[..., Path], kind: str
) -> None:
    """They are looked for in all levels."""
    stamps = pa.array([0, 5_000, 7_000, 1_001, 9_000], pa.timestamp("ns"))
    ends = pa.array([0, 2, 2, 4, 5], pa.int32())
    column = {
        "list": lambda: pa.ListArray.from_arrays(ends, stamps),
        "struct": lambda: pa.StructArray.from_arrays([pa.nulls(4, pa.int32()), stamps.slice(1)], ["a", "b"]),
        "map": lambda: pa.MapArray.from_arrays(ends, pa.array(list("abcde")), stamps),
        "list of structs": lambda: pa.ListArray.from_arrays(ends, pa.StructArray.from_arrays([stamps], ["a"])),
    }[kind]()
    path = write_parquet({"n": range(4), "v": column}, use_deprecated_int96_timestamps=True)
    error = loads.refuse(target(path, create=True))
    assert isinstance(error, DataError)
    assert error.location is not None
    assert (error.location.line, error.location.column) == (3, "v")


@pytest.mark.parametrize("value", ["INTERVAL '1 day'", "[INTERVAL '1 day']", "{'a': INTERVAL '1 day'}"])
def test_interval_of_parquet_is_refused_by_name(loads: Loads, tmp_path: Path, value: str) -> None:
    """Also in lists and structs. Without the column the file is loaded."""
    duckdb = pytest.importorskip("duckdb")
    path = tmp_path / "f.parquet"
    duckdb.sql(f"COPY (SELECT 1 AS id, {value} AS v) TO '{path}' (FORMAT parquet)")
    error = loads.refuse(target(path, create=True))
    assert isinstance(error, SourceError)
    assert error.message.startswith('column "v" has type ')
    assert "Interval(DayTime)" in error.message
    assert loads.run(target(path, create=True, skip=["v"])).rows == 1


_WORDS = [b"hello", "w\u00f6rld".encode(), b"tab\t\\", None, b""]
_DECODED = [None if word is None else word.decode() for word in _WORDS]


@pytest.mark.parametrize("rules", [IMPATIENT, _REJECTING], ids=["binary", "text"])
def test_bytes_without_a_type_are_text_in_columns_of_text(
    loads: Loads, write_parquet: Callable[..., Path], rules: LoadRules
) -> None:
    """As some writers write texts; in other columns they are bytes."""
    loads.execute("CREATE TABLE t (n int, s text, v varchar(9), l text[], b bytea, p bpchar, m name)")
    words = pa.array(_WORDS, pa.binary())
    lists = pa.array([[word] for word in _WORDS], pa.list_(pa.binary()))
    columns = {"n": range(5), "s": words, "v": words, "l": lists, "b": words, "p": words, "m": words}
    loads.run(target(write_parquet(columns, row_group_size=2)), rules=rules)
    found = loads.execute("SELECT s, v, l, b, p, m::text FROM t ORDER BY n")
    assert found == [(text, text, [text], word, text, text) for text, word in zip(_DECODED, _WORDS, strict=True)]


def test_bytes_that_are_not_all_text_do_not_become_hex_digits_in_a_column_of_texts(
    loads: Loads, write_parquet: Callable[..., Path]
) -> None:
    """One value of the last row group decides for the file; a file without values, and other columns, are no matter."""
    loads.execute("CREATE TABLE t (n int, s text, b bytea)")
    texts = [b"a", b"b", b"\xff"]
    path = write_parquet({"n": range(3), "s": texts, "b": texts}, row_group_size=1)
    with pytest.raises(SourceError, match=r'column "s" of .* has bytes that are not UTF-8') as caught:
        loads.run(target(path))
    assert "--skip" in str(caught.value.hint)
    assert loads.count() == 0
    assert loads.run(replace(target(path, skip=["s"]), missing="default")).rows == 3
    loads.run(target(write_parquet({"n": range(3), "s": pa.nulls(3, pa.binary()), "b": texts})), rules=AGAIN)
    assert loads.count() == 6


@pytest.mark.parametrize("is_arrow", [True, False], ids=["arrow", "fixed length"])
def test_bytes_of_other_types_do_not_become_hex_digits_in_a_column_of_texts(
    loads: Loads, write_parquet: Callable[..., Path], write_arrow: Callable[..., Path], is_arrow: bool
) -> None:
    """They are bytes, whatever their values are: Arrow has a type for texts."""
    loads.execute("CREATE TABLE t (n int, s text)")
    if is_arrow:
        path = write_arrow({"n": [1], "s": pa.array([b"ab"], pa.binary())})
    else:
        path = write_parquet({"n": [1], "s": pa.array([b"ab"], pa.binary(2))})
    with pytest.raises(SourceError, match=r'column "s" has type .*Binary.*, and its column in the table is for text'):
        loads.run(target(path))
    transform = Transform(
        name="t.sql", text="INSERT INTO t SELECT n::int, convert_from(s::bytea, 'UTF8') FROM :staging"
    )
    loads.run(replace(target(path), transform=transform))
    assert loads.rows() == [(1, "ab")]


def test_created_column_of_bytes_that_are_all_text_is_warned_of(
    loads: Loads, write_parquet: Callable[..., Path]
) -> None:
    """It is bytea. There is no warning for bytes and nulls, a column that is skipped, and a table that exists."""
    nulls = pa.nulls(2, pa.binary())
    columns = {"n": [1, 2], "s": [b"a", b"b"], "x": [b"a", b"\xff"], "k": [b"a", b"b"], "nulls": nulls}
    path = write_parquet(columns, row_group_size=1)
    job = target(path, create=True, skip=["k"])
    warnings = loads.run(job).warnings
    assert [(each.code, '"s"' in each.message) for each in warnings] == [("binary-text", True)]
    assert types_of(loads) == ["bigint", "bytea", "bytea", "bytea"]
    assert loads.run(job, rules=AGAIN).warnings == ()


def test_keys_that_jsonb_would_drop_are_refused(
    loads: Loads, write_parquet: Callable[..., Path], write_arrow: Callable[..., Path]
) -> None:
    """A map with a key twice is a rejected row, a struct with a field twice a type that cannot be loaded."""
    maps: list[Any] = [[("a", 1)], None, [("a", 1), ("b", 2), ("a", 3)], [("a", 4)]]
    kind = pa.map_(pa.string(), pa.int32())
    table = pa.table(
        {"n": range(4), "m": pa.array(maps, kind), "l": pa.array([[], [maps[0]] * 2, [], []], pa.list_(kind))}
    )
    path = write_parquet(table)
    error = loads.refuse(target(path, create=True))
    assert error.message == "a map has a key twice"
    assert (error.location.line, error.location.column) == (3, "m")  # type: ignore[attr-defined]
    assert loads.run(target(path, create=True), rules=_REJECTING).rejected == 1
    assert loads.execute("SELECT n, l FROM t ORDER BY n") == [(0, []), (1, [{"a": 1}, {"a": 1}]), (3, [])]
    twice = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"])
    error = loads.refuse(target(write_arrow({"v": twice}), into="u", create=True))
    assert error.message == 'column "v" has type Struct("x": Int64, "x": Int64), which cannot be loaded'


def test_dates_of_milliseconds_must_be_days(loads: Loads, write_arrow: Callable[..., Path]) -> None:
    """Others are rejected with what they are."""
    counts = [0, 1, None, -1, 86_400_000 * 2**31, -86_400_000]
    path = write_arrow({"v": pa.array(counts, pa.int64()).view(pa.date64())})
    error = loads.refuse(target(path, create=True))
    assert 'record batch 1, row 2, column "v": "1970-01-01 00:00:00.001 ms"' in (error.detail or "")
    assert loads.run(target(path, create=True), rules=_REJECTING).rejected == 3
    assert loads.execute("SELECT v::text FROM t ORDER BY v") == [("1969-12-31",), ("1970-01-01",), (None,)]
    assert [row[0] for row in loads.execute("SELECT raw FROM penstock.rejects ORDER BY line")] == [
        b"1970-01-01 00:00:00.001 ms\n",
        b"1969-12-31 23:59:59.999 ms\n",
        b"5881580-07-12\n",
    ]


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_whole_floats_fill_columns_of_integers(
    loads: Loads, write_parquet: Callable[..., Path], kind: pa.DataType
) -> None:
    """As pandas writes integers beside nulls; others are errors."""
    loads.execute("CREATE TABLE t (a bigint)")
    loads.run(target(write_parquet({"a": pa.array([1.0, None, -0.0, 2.0**40, -(2.0**63), 1e10], kind)})))
    assert [row[0] for row in loads.execute("SELECT a FROM t")] == [1, None, 0, 2**40, -(2**63), 10**10]
    loads.execute("DELETE FROM t")
    for value in (1.5, math.nan, math.inf, 2.0**63):
        assert (
            loads.refuse(target(write_parquet({"a": pa.array([1.0, value], kind)}, name=str(value)))).sqlstate
            == "22P02"
        )


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (pa.duration("us"), "Duration(µs)"),
        (pa.month_day_nano_interval(), "Interval(MonthDayNano)"),
        (pa.list_(pa.duration("s")), "List(Duration(s))"),
    ],
)
def test_type_that_cannot_be_loaded_is_refused_before_the_first_row(
    loads: Loads, write_arrow: Callable[..., Path], kind: pa.DataType, name: str
) -> None:
    """In one line that names the column; with --skip the others are loaded."""
    path = write_arrow({"a": [1, 2], "v": pa.nulls(2, kind)})
    error = loads.refuse(target(path, create=True))
    assert isinstance(error, SourceError)
    assert error.message == f'column "v" has type {name}, which cannot be loaded'
    assert loads.run(target(path, create=True, skip=["v"])).rows == 2


@pytest.mark.parametrize("is_binary", [True, False])
def test_value_out_of_range_names_row_group_row_and_column(
    loads: Loads, write_parquet: Callable[..., Path], is_binary: bool
) -> None:
    """It is found here in the binary format, and by the server in text."""
    loads.execute(f"CREATE TABLE t (a smallint, b {'numeric(3,1)' if is_binary else 'real'})")
    path = write_parquet({"a": [1] * 50 + [2**15] + [1] * 49, "b": [Decimal("1.0")] * 100}, row_group_size=40)
    error = loads.refuse(target(path))
    assert error.sqlstate == (None if is_binary else "22003")
    assert f'{path} row group 2, row 51, column "a": "32768".' in (error.detail or "")
    assert error.location is not None
    assert (error.location.line, error.location.column, error.location.part) == (51, "a", "row group 2")


def test_value_that_the_server_refuses_in_binary_is_named_too(loads: Loads, write_parquet: Callable[..., Path]) -> None:
    """The context of a binary COPY has row and column."""
    loads.execute("CREATE TABLE t (a int, b varchar(3))")
    path = write_parquet({"a": range(100), "b": ["abcd" if n == 77 else "abc" for n in range(100)]}, row_group_size=40)
    error = loads.refuse(target(path))
    assert error.sqlstate == "22001"
    assert f'{path} row group 2, row 78, column "b".' in (error.detail or "")
