"""Columnar files whose parts contradict each other, or that claim sizes: no row is lost or changed, no process ends."""

from __future__ import annotations

import base64
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from loading.formats.columnar.flips import change_bytes, open_bytes, read_rows
from penstock.api import functions
from penstock.core.errors import DataError, SourceError
from penstock.core.values.job import LoadRules
from penstock.loading.files.columnar.reader import SentColumn
from support.loads import Loads, target
from support.typed import types_of

if TYPE_CHECKING:
    from collections.abc import Callable

_REJECTING = LoadRules(on_error="reject", retry_for=0.0)
_PLAIN: Any = {"compression": "none", "use_dictionary": False, "write_page_checksum": False}
# A string in a footer: its converted type, and its logical type.
_STRING = b"\x25\x00\x4c\x1c\x00\x00"


@pytest.mark.parametrize(
    "enum", [b"\x25\x08\x4c\x4c\x00\x00", b"\x25\x08\x5c\x1c\x00\x00"], ids=["logical", "converted"]
)
def test_enum_of_parquet_is_text(loads: Loads, write_parquet: Callable[..., Path], enum: bytes) -> None:
    """As writers of Avro and Protobuf store it. The logical type may be absent."""
    path = change_bytes(write_parquet({"v": ["red", None, "blue"]}, store_schema=False), _STRING, enum)
    loads.run(target(path, create=True))
    assert types_of(loads) == ["text"]
    assert loads.execute("SELECT v FROM t") == [("red",), (None,), ("blue",)]


# ---------------------------------------------------------------- rejected values

_NS = pa.array([1], pa.int64()).view(pa.timestamp("ns"))
_MS = pa.array([1], pa.int64()).view(pa.date64())
_TWICE = pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int32()))
_ENDS = pa.array([0, 1], pa.int32())
_STRUCT = pa.StructArray.from_arrays([_NS], ["x"])
_JSON = pa.ExtensionArray.from_storage(pa.json_(), pa.array(['1, "b": 2']))


@pytest.mark.parametrize(
    ("array", "kind"),
    [
        (_MS, "date"),
        (pa.ListArray.from_arrays(_ENDS, _MS), "date[]"),
        (pa.ListArray.from_arrays(_ENDS, _NS), "text[]"),
        (_TWICE, "jsonb"),
        (_TWICE, "json"),
        (_STRUCT, "jsonb"),
        (pa.ListArray.from_arrays(_ENDS, _STRUCT), "json"),
        (pa.MapArray.from_arrays(_ENDS, pa.array(["k"]), _NS), "jsonb"),
    ],
    ids=["date", "dates", "texts", "map", "map in json", "struct", "list of structs", "map of timestamps"],
)
def test_retry_without_a_correction_stores_no_value_that_was_rejected(
    loads: Loads, write_arrow: Callable[..., Path], array: pa.Array, kind: str
) -> None:
    """The server refuses what the line has of it."""
    loads.execute(f"CREATE TABLE t (v {kind})")
    outcome = loads.run(target(write_arrow({"v": array})), rules=_REJECTING)
    assert outcome.rejected == 1
    assert functions.retry(str(outcome.load_id), to=loads.conninfo).left == 1
    assert loads.count() == 0


def test_null_key_of_a_map_is_an_error(loads: Loads, write_parquet: Callable[..., Path]) -> None:
    """Not the key "". The keys of this file become optional, so that their levels are those of nulls."""
    path = write_parquet({"m": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32()))}, **_PLAIN)
    change_bytes(path, b"\x25\x00\x18\x03key", b"\x25\x02\x18\x03key")
    error = loads.refuse(target(path, create=True))
    assert isinstance(error, DataError)
    assert error.message == "a map has a key that is null"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('1, "b": 2', "a JSON text is not valid"),
        ("", "a JSON text is not valid"),
        ('{"a": 1, "a": 2}', "a map has a key twice"),
    ],
)
def test_json_in_a_struct_is_one_valid_text(
    loads: Loads, write_arrow: Callable[..., Path], text: str, message: str
) -> None:
    """Another one would change the struct."""
    texts = pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"k": [null]}', text]))
    path = write_arrow({"v": pa.StructArray.from_arrays([texts], fields=[pa.field("a", pa.json_())])})
    error = loads.refuse(target(path, create=True))
    assert (error.message, error.location.line) == (message, 2)  # type: ignore[attr-defined]
    assert loads.run(target(path, create=True), rules=_REJECTING).rejected == 1
    assert loads.execute("SELECT v FROM t") == [({"a": {"k": [None]}},)]


# ---------------------------------------------------------------- metadata


@pytest.mark.parametrize("parts", [["group"], ["file"], ["group", "file"]], ids=" and ".join)
def test_rows_that_the_metadata_leaves_out_are_an_error(
    loads: Loads, write_parquet: Callable[..., Path], parts: list[str]
) -> None:
    """No row is lost: 16,384, a whole batch, are named, and the column has 20,000."""
    path = write_parquet({"v": range(20_000)})
    for part in parts:
        # The field that follows the rows of a row group is its offset, that of the file the list of row groups.
        behind = {"group": b"\x26", "file": b"\x19"}[part]
        change_bytes(path, b"\x16\xc0\xb8\x02" + behind, b"\x16\x80\x80\x02" + behind)
    assert isinstance(loads.refuse(target(path, create=True)), SourceError)


@pytest.mark.parametrize(
    ("array", "told", "expected"),
    [
        (pa.array([1_000], pa.int64()).view(pa.timestamp("ns")), pa.timestamp("us"), "1970-01-01 00:00:00.000001"),
        (
            pa.array([1_000], pa.int64()).view(pa.timestamp("ns")),
            pa.timestamp("s", "UTC"),
            "1970-01-01 00:00:00.000001",
        ),
        (pa.array([Decimal("1.2500")], pa.decimal128(10, 4)), pa.decimal256(40, 2), "1.2500"),
        (pa.array([Decimal("1.2500")], pa.decimal128(10, 4)), pa.decimal64(10, 3), "1.2500"),
    ],
    ids=["microseconds", "zoned seconds", "wide decimal", "short decimal"],
)
def test_units_and_scales_are_those_of_parquet(
    loads: Loads, tmp_path: Path, array: pa.Array, told: pa.DataType, expected: str
) -> None:
    """Whatever Arrow's schema in the file says."""
    schema = base64.b64encode(pa.schema([("v", told)]).serialize())
    table, path = pa.table({"v": array}), tmp_path / "f.parquet"
    with pq.ParquetWriter(path, table.schema, store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({"ARROW:schema": schema})
    loads.run(target(path, create=True))
    assert loads.execute("SELECT v::text FROM t") == [(expected,)]


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint8(), pa.int16(), pa.uint16()], ids=str)
def test_integer_that_does_not_fit_its_type_is_an_error(
    loads: Loads, write_parquet: Callable[..., Path], kind: pa.DataType
) -> None:
    """All integers of up to 32 bits are stored in 32 bits, of which none is cut off."""
    first = b"\x2c\x00\x01\x00" if kind.bit_width == 16 else b"\x2c\x01\x00\x00"
    path = write_parquet(
        {"n": [1, 2], "v": pa.array([44, 45], kind), "l": pa.array([[46], [47]], pa.list_(kind))}, **_PLAIN
    )
    change_bytes(path, b"\x2c\x00\x00\x00\x2d\x00\x00\x00", first + b"\x2d\x00\x00\x00")
    error = loads.refuse(target(path, create=True))
    assert isinstance(error, SourceError)
    assert f'row group 1, column "v": an integer does not fit the {kind.bit_width} bits' in (error.detail or "")
    assert loads.run(target(path, create=True, skip=["v"])).rows == 2


# ---------------------------------------------------------------- sizes


def test_schema_with_groups_in_groups_does_not_end_the_process() -> None:
    """It has 200,000 of them, each in the one before it."""
    root, group, leaf = b"\x48\x01r\x15\x02\x00", b"\x35\x00\x18\x01a\x15\x02\x00", b"\x15\x02\x25\x00\x18\x01a\x00"
    footer = b"\x15\x02\x19\xfc\xc2\x9a\x0c" + root + group * 200_000 + leaf + b"\x16\x00\x19\x0c\x00"
    with pytest.raises(SourceError, match="not a valid Parquet file"):
        open_bytes(b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1", "parquet")


def test_values_of_a_huge_fixed_length_are_refused(write_parquet: Callable[..., Path]) -> None:
    """Also if all are null: the decoder takes memory for all of a batch."""
    path = write_parquet({"v": pa.nulls(1, pa.binary(2_000_000))})
    with pytest.raises(SourceError) as caught:
        open_bytes(path.read_bytes(), "parquet")
    assert "a value has a fixed length of more than" in (caught.value.detail or "")


def _peak_kib() -> int:
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])


@pytest.mark.part("rest")
@pytest.mark.parametrize("kind", ["fixed", "wide"])
def test_batches_are_as_short_as_their_values_are_long(write_parquet: Callable[..., Path], kind: str) -> None:
    """20,000 nulls of 8 KiB, and 400 columns of a dictionary."""
    texts = pa.array([str(n % 100) for n in range(20_000)]).dictionary_encode()
    columns = {"v": pa.nulls(20_000, pa.binary(8_192))} if kind == "fixed" else {f"c{n}": texts for n in range(400)}
    opened = open_bytes(write_parquet(columns, compression="zstd").read_bytes(), "parquet")
    # The peak of memory begins anew (proc(5)).
    Path("/proc/self/clear_refs").write_text("5")
    before = _peak_kib()
    sent = [SentColumn(field.name, field.sql_type, field.sql_type) for field in opened.describe().fields]
    found = opened.read(sent, [(0, 20_000)], is_binary=False, rejects=False)
    assert sum(rows.end - rows.start for rows in found) == 20_000
    assert _peak_kib() - before < 60_000


@pytest.mark.part("rest")
@pytest.mark.parametrize("on_error", ["stop", "reject"])
def test_row_that_is_too_long_for_the_server_is_an_error(
    loads: Loads, write_arrow: Callable[..., Path], on_error: Any
) -> None:
    """It is 200 times a text of 8 MB, by a dictionary."""
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 200, pa.int8()), pa.array(["x" * 8_000_000]))
    path = write_arrow({"v": pa.ListArray.from_arrays(pa.array([0, 200], pa.int32()), text)})
    loads.execute("CREATE TABLE t (v text[])")
    with pytest.raises(DataError, match="the value is too long") as caught:
        loads.run(target(path), rules=LoadRules(on_error=on_error, retry_for=0.0))
    assert len(caught.value.detail or "") < 1_000


def test_compressed_buffers_of_a_batch_have_a_limit_together(tmp_path: Path) -> None:
    """Two that claim 3 GiB each, which either might have."""
    path, column = tmp_path / "f.arrow", bytes(range(256)) * 400 + b"".join(n.to_bytes(3, "big") for n in range(60_000))
    table = pa.table({name: pa.array([column], pa.binary()) for name in "ab"})
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema, options=options) as writer:
        writer.write_table(table)
    # Each buffer begins with its length, and then the magic of zstd.
    data, told = path.read_bytes(), len(column).to_bytes(8, "little") + b"\x28\xb5\x2f\xfd"
    assert data.count(told) == 2
    opened = open_bytes(data.replace(told, (3 << 30).to_bytes(8, "little") + told[8:]), "arrow")
    with pytest.raises(SourceError) as caught:
        read_rows(opened, opened.describe().fields, is_binary=False)
    assert "more than 4 GiB" in (caught.value.detail or "")
