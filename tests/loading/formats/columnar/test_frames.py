"""Frames of pandas and polars: every index and column is stored as it is meant, or refused by its name."""

from __future__ import annotations

import datetime as dt
import json  # noqa: F401 (the hint names it)
import re
import uuid
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import penstock
from penstock.core.errors import DataError, SourceError
from penstock.loading.files.columnar.spool import write_stream

if TYPE_CHECKING:
    from pathlib import Path

    from support.loads import Loads

numpy = pytest.importorskip("numpy")
pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")


@pytest.fixture
def copied(tmp_path: Path) -> Any:
    """Provide a function (frame, **options) that returns the columns of the copy, each with its values."""

    def copy(frame: Any, **options: Any) -> dict[str, list[Any]]:
        path = tmp_path / "t.arrow"
        write_stream(frame, path, **options)
        with pa.OSFile(str(path)) as file:
            found: dict[str, list[Any]] = pa.ipc.open_file(file).read_all().to_pydict()
            return found

    return copy


@pytest.mark.parametrize("is_nested", [False, True])
def test_copy_of_views_is_as_large_as_their_texts(tmp_path: Path, *, is_nested: bool) -> None:
    """Each slice of an array of views has the bytes of all its rows."""
    texts = [f"{number:040}" for number in range(200_000)]
    column = pa.array(texts, pa.string_view())
    if is_nested:
        column = pa.StructArray.from_arrays([column], ["inside"])
    path = tmp_path / "t.arrow"
    write_stream(pa.table({"a": column}), path)
    assert path.stat().st_size < 2 * 40 * len(texts)
    with pa.OSFile(str(path)) as file:
        found = pa.ipc.open_file(file).read_all()["a"].to_pylist()
    assert ([each["inside"] for each in found] if is_nested else found) == texts


def _frame(**columns: Any) -> Any:
    return pandas.DataFrame(columns or {"a": [1, 2, 4]})


@pytest.mark.parametrize(
    "index",
    [
        pandas.RangeIndex(3, name="k"),
        pandas.Index([7, 8, 9], name="k"),
        pandas.Index(["x", "y", "z"], name="k"),
        pandas.CategoricalIndex(["x", "y", "x"], name="k"),
        pandas.MultiIndex.from_tuples([(1, "x"), (1, "y"), (2, "x")], names=["k", "m"]),
    ],
)
def test_every_named_index_is_a_column(copied: Any, index: Any) -> None:
    """Before the others, as to_sql has it; the frame itself is left as it was."""
    frame = _frame().set_index(index)
    before = frame.copy()
    found = copied(frame)
    assert list(found) == [*index.names, "a"]
    assert found["k"] == list(index.get_level_values("k"))
    pandas.testing.assert_frame_equal(frame, before)


@pytest.mark.parametrize("rows", [[0, 1, 2], [1, 2], [0, 2, 1], []])
def test_index_without_a_name_that_numbers_rows_is_no_column(copied: Any, rows: list[int]) -> None:
    """Nor that of a frame that was filtered or sorted."""
    assert list(copied(_frame().iloc[rows])) == ["a"]
    assert list(copied(pandas.concat([_frame(), _frame()]))) == ["a"]


@pytest.mark.parametrize(
    "index",
    [
        pandas.Index(["x", "y", "z"]),
        pandas.date_range("2026-01-01", periods=3),
        pandas.MultiIndex.from_tuples([(1, 1), (1, 2), (2, 1)], names=["k", None]),
    ],
)
def test_other_index_without_a_name_is_refused(copied: Any, index: Any) -> None:
    """It has values that no column has, and no name to store them by."""
    with pytest.raises(SourceError, match="an index of a DataFrame has no name"):
        copied(_frame().set_index(index))


def test_columns_of_several_levels_are_joined_for_snake_names_only(loads: Loads) -> None:
    """As groupby().agg() makes them; a level that is empty adds nothing."""
    frame = pandas.DataFrame({"t": ["x", "x", "y"], "v": [1, 2, 3]}).groupby("t").agg({"v": ["min", "max"]})
    for each in (frame, frame.reset_index()):
        with pytest.raises(SourceError, match="names of several levels") as caught:
            penstock.load(each, "t", to=loads.conninfo, create=True)
        assert 'names="snake"' in (caught.value.hint or "")
        penstock.load(each, "t", to=loads.conninfo, create=True, names="snake", mode="replace")
        assert loads.execute("SELECT t, v_min, v_max FROM t ORDER BY t") == [("x", 1, 2), ("y", 3, 3)]
    dialect = penstock.Dialect(names="snake")
    assert penstock.load(frame, "t", to=loads.conninfo, dialect=dialect).rows == 2


@pytest.mark.parametrize(
    ("labels", "options"),
    [
        (["a", "a"], {}),
        ([1, "1"], {}),
        (pandas.MultiIndex.from_tuples([("a_b", "c"), ("a", "b_c")]), {"joins_levels": True}),
    ],
)
def test_name_that_two_columns_have_is_refused(copied: Any, labels: Any, options: dict[str, Any]) -> None:
    """Also if only the joined names are the same."""
    with pytest.raises(SourceError, match="two columns or indexes with the name"):
        copied(pandas.DataFrame([[1, 2]], columns=labels), **options)


def test_index_with_the_name_of_a_column_is_stored_once_if_it_has_its_values(copied: Any) -> None:
    """Else the frame is refused."""
    frame = _frame().set_index("a", drop=False)
    assert copied(frame) == {"a": [1, 2, 4]}
    with pytest.raises(SourceError, match='two columns or indexes with the name "a"'):
        copied(frame.assign(a=0))


@pytest.mark.parametrize("label", [None, float("nan"), "", pandas.NaT])
def test_column_without_a_name_is_refused(copied: Any, label: Any) -> None:
    """Pandas makes "nan" of it, which is a name like any other if it is a text."""
    with pytest.raises(SourceError, match="a column of a DataFrame has no name"):
        copied(pandas.DataFrame([[1, 2]], columns=["a", label]))
    assert copied(_frame(nan=[1])) == {"nan": [1]}


_AWARE = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
_NAIVE = _AWARE.replace(tzinfo=None, hour=5)


@pytest.mark.parametrize(
    "values",
    [
        [dt.date(2026, 1, 1), _NAIVE],
        [_NAIVE, dt.date(2026, 1, 1)],
        [_AWARE, _NAIVE],
        [2.5, True],
        [True, 2],
        [b"a", "b"],
        ["a", b"b"],
        ["a", 1],
        [Decimal(1), 2.5],
        [[1], ["x"]],
        [{"a": 1}, {"b": 2}],
        [{"a": 1}, {"a": 1, "b": 2}],
        [{"a": 1}, {"a": "x"}],
        [{"a": {"b": 1}}, {"a": {"c": 1}}],
        [{"a": 1}, [1]],
        [{"at": _NAIVE.date()}, {"at": _NAIVE}],
        [[_NAIVE.date()], [_NAIVE]],
        [[_NAIVE], [None, _AWARE]],
        [numpy.array([1]), numpy.array(["x"])],
        [numpy.array([_NAIVE.date()], dtype=object), numpy.array([_NAIVE], dtype=object)],
        [numpy.float16(0.5), 1],
        [1, numpy.float16(0.5)],
        [[1], [numpy.float16(0.5)]],
        [numpy.datetime64("2026-01-01T05:00:00", "s"), numpy.float16(0.5)],
        [_NAIVE.time(), 1],
        [1, uuid.UUID(int=5)],
    ],
)
def test_column_with_values_of_several_types_is_refused_with_the_first_row(copied: Any, values: list[Any]) -> None:
    """Arrow stores a part of some of them, such as the date of a timestamp, without an error."""
    column = pandas.Series([*values[:1], None, *values[1:]], dtype=object)
    with pytest.raises(DataError, match='column "c" of a table has values of several types') as caught:
        copied(_frame(c=column))
    assert caught.value.location is not None
    assert caught.value.location.line == 3


@pytest.mark.parametrize(
    "values",
    [
        ["a", None, float("nan"), pandas.NA],
        [dt.date(2026, 1, 1), pandas.NaT],
        [1, 2.5, None],
        [Decimal("1.5"), 2],
        [True, None],
        [_AWARE, pandas.Timestamp("2026-01-01", tz="Europe/Berlin")],
        [{"a": 1, "b": "x"}, {"b": None, "a": 2.5}],
        [{"a": [1]}, {"a": []}, {"a": [None, 2]}, {"a": None}],
        [[1], [2.5, None], (3,), []],
        [numpy.array([1]), numpy.array([2.5]), numpy.array(1)[None][:0]],
        [["a", float("nan")], ["b"]],
        [numpy.float16(0.5), numpy.float16(1.5)],
    ],
)
def test_nulls_and_numbers_of_several_types_are_stored(copied: Any, values: list[Any]) -> None:
    """As they are, nulls as null."""
    found = copied(_frame(c=pandas.Series(values, dtype=object)))["c"]
    assert [each is None for each in found] == list(pandas.isna(pandas.Series(values, dtype=object)))


@pytest.mark.parametrize("wrap", [lambda value: value, lambda value: [value], lambda value: {"at": value}])
def test_nanoseconds_among_objects_are_refused(copied: Any, wrap: Any) -> None:
    """Arrow cuts them off; those that are zero are stored."""
    stamp = pandas.Timestamp("2026-01-01 05:00")
    assert copied(_frame(c=pandas.Series([wrap(stamp)], dtype=object)))["c"] == [wrap(_NAIVE)]
    with pytest.raises(DataError, match='column "c" of a table has a value of type') as caught:
        copied(_frame(c=pandas.Series([wrap(stamp), wrap(stamp + pandas.Timedelta(1, "ns"))], dtype=object)))
    assert caught.value.location is not None
    assert caught.value.location.line == 2


def test_mixed_dicts_are_loaded_into_jsonb_by_the_hint(loads: Loads) -> None:
    """As text that is JSON, which the text of a dict by Python is not."""
    frame = _frame(c=pandas.Series([{"a": 1}, None, {"b": True}], dtype=object))
    loads.execute("CREATE TABLE t (c jsonb)")
    with pytest.raises(DataError) as caught:
        penstock.load(frame, "t", to=loads.conninfo)
    (code,) = re.findall(r"as by (.*)\.$", caught.value.hint or "")
    penstock.load(frame.assign(c=eval(code)), "t", to=loads.conninfo)  # noqa: S307 (the hint's own code)
    assert loads.execute("SELECT c FROM t ORDER BY c::text") == [({"a": 1},), ({"b": True},), (None,)]


@pytest.mark.parametrize(("value", "kind"), [(2**64, "int"), (1j, "complex"), (object(), "object")])
def test_value_that_arrow_has_no_type_for_is_named(copied: Any, value: object, kind: str) -> None:
    """It is alone in its column."""
    with pytest.raises(DataError, match=f'column "c" of a table has a value of type {kind}, which cannot be loaded'):
        copied(_frame(c=pandas.Series([value], dtype=object)))


_TYPED = {
    "Int64": (pandas.array([1, None, 2**62 + 1], dtype="Int64"), [1, None, 2**62 + 1]),
    "UInt64": (pandas.array([1, None, 2**64 - 1], dtype="UInt64"), [1, None, 2**64 - 1]),
    "boolean": (pandas.array([True, None], dtype="boolean"), [True, None]),
    "string": (pandas.array(["a", None], dtype="string"), ["a", None]),
    "category": (pandas.Categorical(["b", "a", None]), ["b", "a", None]),
    "category of dates": (
        pandas.Categorical(pandas.to_datetime(["2026-01-01", None])),
        [_AWARE.replace(tzinfo=None), None],
    ),
    "float": ([1.5, None], [1.5, None]),
    "decimal": (
        pandas.array([Decimal("1.50"), None], dtype=pandas.ArrowDtype(pa.decimal128(9, 2))),
        [Decimal("1.50"), None],
    ),
    "timestamptz": (pandas.to_datetime(["2026-01-01", None], utc=True), [_AWARE, None]),
    "list": (pandas.array([[1], None], dtype=pandas.ArrowDtype(pa.list_(pa.int64()))), [[1], None]),
}


@pytest.mark.parametrize("kind", _TYPED)
def test_categories_and_nullable_and_arrow_types_are_stored(loads: Loads, kind: str) -> None:
    """Their missing values as null."""
    column, stored = _TYPED[kind]
    penstock.load(_frame(n=range(len(stored)), c=column), "t", to=loads.conninfo, create=True)
    assert loads.execute("SELECT c FROM t ORDER BY n") == [(value,) for value in stored]


_REFUSED = {
    "Timedelta": _frame(c=pandas.to_timedelta(["1 day", None])),
    "Period": _frame(c=pandas.Series(pandas.period_range("2026-01", periods=2, freq="M"))),
    "Interval": _frame(c=pandas.Series(pandas.interval_range(0, 2))),
    "Duration of polars": polars.DataFrame({"c": [dt.timedelta(1)]}),
    "Object of polars": polars.DataFrame({"c": polars.Series([object()], dtype=polars.Object)}),
}


@pytest.mark.parametrize("kind", _REFUSED)
def test_type_without_a_counterpart_is_refused_by_the_columns_name(loads: Loads, kind: str) -> None:
    """Rather than stored as the number of a period, or as the address of an object."""
    with pytest.raises(SourceError, match=r'column "c".* has type .*, which cannot be loaded'):
        penstock.load(_REFUSED[kind], "t", to=loads.conninfo, create=True)


@pytest.mark.parametrize("series", [pandas.Series([1], name="s"), polars.Series("s", [1])])
def test_series_is_refused_with_the_way_to_load_it(copied: Any, series: Any) -> None:
    """A table has columns."""
    with pytest.raises(SourceError, match="could not copy a table of type Series") as caught:
        copied(series)
    assert "to_frame()" in (caught.value.hint or "")


def test_columns_of_nulls_alone_are_loaded(loads: Loads) -> None:
    """Of polars, which gives them a buffer too many."""
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"n": [None, None], "l": [[], [None]], "i": [1, 2]})
    assert penstock.load(frame, "t", to=loads.conninfo, create=True, no_record=True).rows == 2
    assert loads.execute("SELECT n, l FROM t ORDER BY i") == [(None, []), (None, [None])]


def test_nulls_alone_in_structs_of_polars_are_loaded(copied: Any) -> None:
    """And in lists and arrays in them."""
    rows = [{"x": 1, "y": None, "l": [[None]], "s": [{"z": None}]}, None]
    frame = polars.DataFrame({"a": rows, "f": polars.Series([[None, None]] * 2, dtype=polars.Array(polars.Null, 2))})
    assert copied(frame) == {"a": rows, "f": [[None, None]] * 2}
