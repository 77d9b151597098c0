"""Every type that Arrow has, alone, encoded, and in lists, structs and maps, is loaded rightly or refused by name."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from loading.formats.columnar.flips import open_bytes, read_rows
from penstock.core.errors import SourceError
from penstock.loading.files.columnar.reader import ColumnarFile, SentColumn
from support.loads import Loads, target
from support.parts import rest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def _extension(kind: Any, values: list[Any]) -> Any:
    return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))


def _zoned() -> Iterator[Any]:
    for unit in ("s", "ms", "us", "ns"):
        for zone in (None, "UTC", "Europe/Berlin", "+02:00"):
            yield pa.array([0, None, 5000, 7000], pa.timestamp(unit, zone))


def _list_leaves() -> list[Any]:
    """Return four values, the second one null, of every type that has no parts, and of pyarrow's extensions."""
    numbers = (pa.int8, pa.uint8, pa.int16, pa.uint16, pa.int32, pa.uint32, pa.int64, pa.uint64)
    floats, decimals = (pa.float16, pa.float32, pa.float64), (pa.decimal32, pa.decimal64, pa.decimal128, pa.decimal256)
    times = (pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"))
    bytes16 = [b"a" * 16, None, b"b" * 16, b"c" * 16]
    objects = ['{"a": 1}', None, "[1, 2]", "null"]
    return [
        pa.nulls(4),
        pa.array([True, None, False, True]),
        *(pa.array([1, None, 2, 3], kind()) for kind in (*numbers, *floats)),
        *(pa.array([Decimal("1.50"), None, Decimal("-2.25"), Decimal(0)], kind(9, 2)) for kind in decimals),
        pa.array([Decimal(100), None, Decimal(200), Decimal(0)], pa.decimal128(5, -2)),
        *(pa.array(['a\t"\\', None, "é", "x" * 20], kind()) for kind in (pa.string, pa.large_string, pa.string_view)),
        *(
            pa.array([b"a\t", None, b"\xff", b"x" * 20], kind())
            for kind in (pa.binary, pa.large_binary, pa.binary_view)
        ),
        pa.array([b"abc", None, b"\0\xff\t", b"xyz"], pa.binary(3)),
        pa.array(bytes16, pa.binary(16)),
        pa.array([0, None, 5, 18_000], pa.date32()),
        pa.array([0, None, 86_400_000, 5 * 86_400_000], pa.int64()).view(pa.date64()),
        *(pa.array([0, None, 5000, 7000], kind) for kind in times),
        *_zoned(),
        *(pa.array([0, None, 5, 7], pa.duration(unit)) for unit in ("s", "ms", "us", "ns")),
        pa.array([(1, 2, 3), None, (0, 0, 0), (1, 1, 1)], pa.month_day_nano_interval()),
        _extension(pa.uuid(), bytes16),
        *(_extension(pa.json_(kind()), objects) for kind in (pa.string, pa.large_string, pa.string_view)),
        _extension(pa.bool8(), [1, None, 0, 3]),
        _extension(pa.opaque(pa.string(), "geometry", "vendor"), ["a", None, "b", "c"]),
        _extension(pa.opaque(pa.binary(), "geometry", "vendor"), [b"a", None, b"b", b"c"]),
        _extension(pa.fixed_shape_tensor(pa.int32(), [2]), [[1, 2], None, [3, 4], [5, 6]]),
        pa.UnionArray.from_sparse(pa.array([0, 1, 0, 1], pa.int8()), [pa.array([1, 2, 3, 4]), pa.array(list("abcd"))]),
        pa.UnionArray.from_dense(
            pa.array([0, 1, 0, 1], pa.int8()),
            pa.array([0, 0, 1, 1], pa.int32()),
            [pa.array([1, 2]), pa.array(["a", "b"])],
        ),
    ]


_LEAVES = _list_leaves()
_ENDS = pa.array([0, 1, 3, 4, 4], pa.int32())
_LONG_ENDS = _ENDS.cast(pa.int64())
_STARTS, _SIZES = [1, 0, 2, 0], [1, 2, 2, 0]
_SECOND, _THIRD = pa.array([False, True, False, False]), pa.array([False, False, True, False])

# What has the four values as its own or in its parts, and the JSON of its rows by that of the values.
_Make = Callable[[Any], Any]
_AROUND: dict[str, tuple[_Make, _Make]] = {
    "list": (lambda a: pa.ListArray.from_arrays(_ENDS, a), lambda v: [[v[0]], [v[1], v[2]], [v[3]], []]),
    "large_list": (
        lambda a: pa.LargeListArray.from_arrays(_LONG_ENDS, a),
        lambda v: [[v[0]], [v[1], v[2]], [v[3]], []],
    ),
    "fixed_size_list": (
        lambda a: pa.FixedSizeListArray.from_arrays(pa.concat_arrays([a, a]), 2),
        lambda v: [[v[0], v[1]], [v[2], v[3]]] * 2,
    ),
    "list_view": (
        lambda a: pa.ListViewArray.from_arrays(
            pa.array(_STARTS, pa.int32()), pa.array(_SIZES, pa.int32()), a, mask=_SECOND
        ),
        lambda v: [[v[1]], None, [v[2], v[3]], []],
    ),
    "large_list_view": (
        lambda a: pa.LargeListViewArray.from_arrays(pa.array(_STARTS, pa.int64()), pa.array(_SIZES, pa.int64()), a),
        lambda v: [[v[1]], [v[0], v[1]], [v[2], v[3]], []],
    ),
    "struct": (
        lambda a: pa.StructArray.from_arrays([a, a], ["x", "y"], mask=_THIRD),
        lambda v: [{"x": v[0], "y": v[0]}, {"x": v[1], "y": v[1]}, None, {"x": v[3], "y": v[3]}],
    ),
    "map": (
        lambda a: pa.MapArray.from_arrays(_ENDS, pa.array(list("klmn")), a),
        lambda v: [{"k": v[0]}, {"l": v[1], "m": v[2]}, {"n": v[3]}, {}],
    ),
    "dictionary": (
        lambda a: pa.DictionaryArray.from_arrays(pa.array([3, None, 1, 0], pa.int16()), a),
        lambda v: [v[3], None, v[1], v[0]],
    ),
    "runs": (
        lambda a: pa.RunEndEncodedArray.from_arrays(pa.array([1, 3, 4, 9], pa.int32()), a).slice(0, 4),
        lambda v: [v[0], v[1], v[1], v[2]],
    ),
}


def _surround(name: str, array: Any, values: list[Any]) -> Iterator[tuple[str, Any, list[Any]]]:
    """Yield the name, the array and the JSON of what has these values as its own or in its parts, if pyarrow has it."""
    for label, (make, compose) in _AROUND.items():
        try:
            yield f"{label}<{name}>", make(array), compose(values)
        except (pa.ArrowException, TypeError):
            continue


def _read_json(array: Any) -> list[Any]:
    """Return the JSON of values, read from the field of a struct."""
    wrapped = pa.StructArray.from_arrays([array], ["x"])
    return _read_rows(open_bytes(_write("arrow", {"v": wrapped}), "arrow"), "v", 0, len(array))


def _read_rows(opened: ColumnarFile, name: str, first: int, stop: int) -> list[Any]:
    """Return the JSON of the field of a column of structs."""
    sent = [SentColumn(name, "jsonb", "jsonb")]
    text = b"".join(rows.data for rows in opened.read(sent, [(first, stop)], is_binary=False, rejects=True))
    unescaped = text.replace(b"\\\\", b"\0").replace(b"\\n", b"\x01").replace(b"\\t", b"\t").replace(b"\0", b"\\")
    lines = unescaped.decode().replace("\x01", "\\n").splitlines()
    return [json.loads(line, parse_float=str, parse_int=str)["x"] for line in lines]


def _is_refused(name: str) -> bool:
    return any(word in name for word in ("duration", "interval", "union"))


def _list_all(leaf: Any) -> list[tuple[str, Any, list[Any]]]:
    """Return a type, what encodes it or has it in its parts, and what encodes these or has them in its parts."""
    name = str(leaf.type)
    values = [None] * 4 if _is_refused(name) else _read_json(leaf)
    found = [(name, leaf, values), *_surround(name, leaf, values)]
    found += [deeper for inner in found[1:] for deeper in _surround(*inner)]
    # pyarrow itself writes other values into files if a dictionary's values are of another dictionary.
    return [each for each in found if not each[0].startswith("dictionary<dictionary<")]


def _write(file_format: str, columns: dict[str, Any]) -> bytes:
    out, table = io.BytesIO(), pa.table(columns)
    if file_format == "parquet":
        pq.write_table(table, out)
    else:
        with pa.ipc.new_file(out, table.schema) as writer:
            writer.write_table(table)
    return out.getvalue()


def test_leaves_and_what_is_around_them_are_all_that_pyarrow_has() -> None:
    """A new type of Arrow's fails here. pyarrow has no arrays of the two intervals."""
    kinds = {array.type for array in _LEAVES} | {make(_LEAVES[2]).type for make, _ in _AROUND.values()}
    listed = {kind.id for kind in kinds}
    named = {name: getattr(pa.lib, name) for name in dir(pa.lib) if name.startswith("Type_")}
    missing = {name for name, number in named.items() if number not in listed}
    assert missing == {"Type_INTERVAL_DAY_TIME", "Type_INTERVAL_MONTHS"}
    extensions = {kind.extension_name for kind in kinds if isinstance(kind, pa.BaseExtensionType)}
    assert extensions == {f"arrow.{name}" for name in ("uuid", "json", "bool8", "opaque", "fixed_shape_tensor")}


def _case(leaf: Any) -> Any:
    """Return the case of a type: of timestamps with a time zone only those in nanoseconds are in the first part."""
    return rest(leaf) if pa.types.is_timestamp(leaf.type) and leaf.type.tz and leaf.type.unit != "ns" else leaf


@pytest.mark.parametrize("file_format", ["arrow", rest("parquet")])
@pytest.mark.parametrize("leaf", [*map(_case, _LEAVES)], ids=lambda leaf: str(leaf.type))
def test_values_are_those_of_the_plain_type(leaf: Any, file_format: Any) -> None:
    """Two levels deep, in slices that begin anywhere; what cannot be loaded has no type."""
    read = 0
    for name, array, values in _list_all(leaf):
        try:
            columns = {"n": range(4), "v": array}
            if file_format == "arrow":
                columns["w"] = pa.StructArray.from_arrays([array], ["x"])
            data = _write(file_format, columns)
            opened = open_bytes(data, file_format)
        except (pa.ArrowException, OSError, SourceError):
            # pyarrow does not write this, or does not read what it writes.
            continue
        field = opened.describe().fields[1]
        if field.sql_type is None:
            assert _is_refused(name) or "struct<x: dictionary" in name, name
            continue
        for first, stop in ((0, 4), (1, 4), (2, 3), (3, 4)):
            if file_format == "arrow":
                assert _read_rows(opened, "w", first, stop) == values[first:stop], (name, first, stop)
            text = read_rows(opened, [field], is_binary=False, first=first, stop=stop)
            assert text.count(b"\n") == stop - first
            read_rows(opened, [field], is_binary=True, first=first, stop=stop)
        read += 1
    assert bool(read) != _is_refused(str(leaf.type)) or file_format == "parquet"


def _named(leaves: list[Any]) -> dict[str, Any]:
    found = (each for leaf in leaves for each in _list_all(leaf)[: 1 + len(_AROUND)])
    return {f"c{number} {name}"[:60]: array for number, (name, array, _) in enumerate(found)}


@pytest.mark.part("rest")
def test_files_and_tables_in_memory_store_the_same(
    loads: Loads, write_arrow: Callable[..., Path], write_parquet: Callable[..., Path]
) -> None:
    """Columns of every type that can be loaded; what Parquet has of them."""
    columns: dict[str, Any] = {"n": pa.array(range(4))}
    for name, array in _named(_LEAVES).items():
        try:
            opened = open_bytes(_write("arrow", {"v": array}), "arrow")
        except SourceError:
            continue
        if opened.describe().fields[0].sql_type is not None:
            columns[name] = array
    names = list(columns)
    assert len(names) > 400
    parts = [
        pa.table({name: columns[name] for name in ["n", *names[at : at + 200]]}) for at in range(1, len(names), 200)
    ]
    for number, part in enumerate(parts):
        loads.run(target(write_arrow(part, name=f"{number}"), into=f"a{number}", create=True))
        outcome = penstock.load(part, f"m{number}", to=loads.conninfo, create=True, no_record=True)
        assert outcome.rows == 4
        query = "SELECT a::text FROM {}{} AS a ORDER BY 1"
        assert loads.execute(query.format("a", number)) == loads.execute(query.format("m", number))
    written = {name: array for name, array in columns.items() if _is_in_parquet(array)}
    assert len(written) > 300
    names = list(written)
    for at in range(1, len(names), 200):
        path = write_parquet({name: written[name] for name in ["n", *names[at : at + 200]]}, name=f"{at}")
        assert loads.run(target(path, into=f"p{at}", create=True)).rows == 4


def _is_in_parquet(array: Any) -> bool:
    try:
        opened = open_bytes(_write("parquet", {"v": array}), "parquet")
    except (pa.ArrowException, OSError):
        return False
    return opened.describe().fields[0].sql_type is not None


_REFUSED = [
    pa.array([1], pa.duration("s")),
    pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
    pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]),
    pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array([[1]], pa.list_(pa.duration("s")))),
]


@pytest.mark.parametrize("array", _REFUSED, ids=lambda array: str(array.type))
@pytest.mark.parametrize("is_in_memory", [False, True])
def test_type_that_cannot_be_loaded_is_refused_by_name(
    loads: Loads, write_arrow: Callable[..., Path], array: Any, is_in_memory: bool
) -> None:
    """With its column; without this the rest is loaded."""
    source = pa.table({"a": [1], "v": array}) if is_in_memory else write_arrow({"a": [1], "v": array})
    with pytest.raises(SourceError) as caught:
        penstock.load(source, "t", to=loads.conninfo, create=True, no_record=True)
    assert caught.value.message.startswith('column "v" has type')
    assert penstock.load(source, "t", to=loads.conninfo, create=True, skip=["v"], no_record=True).rows == 1


def test_dictionaries_of_a_stream_may_differ(loads: Loads) -> None:
    """Also of lists: then the error names the column that is to be decoded."""
    batches = [pa.record_batch({"v": pa.array([text, text]).dictionary_encode()}) for text in ("a", "b")]
    reader = pa.RecordBatchReader.from_batches(batches[0].schema, batches)
    assert penstock.load(reader, "t", to=loads.conninfo, create=True, no_record=True).rows == 4
    lists = [pa.record_batch({"v": pa.ListArray.from_arrays([0, 2], batch.column(0))}) for batch in batches]
    reader = pa.RecordBatchReader.from_batches(lists[0].schema, lists)
    with pytest.raises(SourceError) as caught:
        penstock.load(reader, "u", to=loads.conninfo, create=True, no_record=True)
    assert 'column "v"' in (caught.value.detail or "")
