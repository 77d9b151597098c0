"""Writes Arrow columns in COPY's binary format, and finds the columns whose type could change values.

An Arrow column is sent in the binary format only if the type of PostgreSQL's column holds all its values exactly. So
the table gets the same rows as from text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
from pyarrow import types

from penstock import _native
from penstock.core.slotted import slotted
from penstock.loading.files.columnar.types import (
    cast_array,
    is_bytes,
    is_json,
    is_nested,
    is_text,
    is_uuid,
    plain_array,
    plain_type,
    refusing_length,
)

# The type of a column: its name in the Rust core, and the limit in the column's type modifier
# (penstock.loading.copy.payload).
KeptType = tuple[str, int]

_DECIMALS: Final = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def may_differ(kind: Any, kept: KeptType) -> bool:
    """Return whether a column of the type `kept` may change values of an Arrow type.

    If so, the values are sent as text and checked.

    >>> import pyarrow as pa
    >>> may_differ(pa.date32(), ("date", -1)), may_differ(pa.timestamp("us"), ("date", -1))
    (False, True)
    >>> may_differ(pa.decimal128(12, 3), ("numeric", 2)), may_differ(pa.float64(), ("numeric", 2**31 - 1))
    (True, True)
    """
    (name, limit), kind = kept, plain_type(kind)
    # A varchar may change a text: the server cuts blanks that exceed its length. penstock does not check this change,
    # so texts for a varchar are sent in the binary format.
    if name in ("other", "varchar"):
        return False
    if types.is_integer(kind) or types.is_decimal(kind) or types.is_floating(kind):
        return _may_change_number(kind, name, limit)
    if types.is_timestamp(kind) or types.is_time(kind):
        return _may_change_moment(kind, name, limit)
    return is_text(kind)


def _may_change_number(kind: Any, name: str, scale: int) -> bool:
    if types.is_floating(kind):
        return name != "float8" and (name != "float4" or types.is_float64(kind))
    if types.is_decimal(kind):
        return name != "numeric" or max(kind.scale, 0) > scale
    if name == "numeric":
        return scale < 0
    bits = {"float4": 24, "float8": 53}.get(name)
    return bits is not None and kind.bit_width > bits


def _may_change_moment(kind: Any, name: str, limit: int) -> bool:
    # A type without a limit keeps microseconds, and nanoseconds that do not fit are refused when the text is written.
    is_rounded = 0 <= limit < _DECIMALS[kind.unit]
    if types.is_time(kind):
        return name not in ("time", "timetz") or is_rounded
    holding = ("timestamptz",) if kind.tz is not None else ("timestamp", "timestamptz")
    return name not in holding or is_rounded


_MODIFIER: Final = re.compile(r"\(.*?\)")
_INTEGERS: Final = {"smallint": "int2", "integer": "int4", "bigint": "int8"}
_TEXTS: Final = ("text", "character varying", "character")
_JSON: Final = {"json": "text", "jsonb": "jsonb"}
_UUID_BYTES: Final = 16
_MOST_DIGITS: Final = 38

# Arrow's unsigned types, each with the signed type that holds all its values.
_SIGNED: Final = ((types.is_uint8, pa.int16()), (types.is_uint16, pa.int32()), (types.is_uint32, pa.int64()))


def _keep(array: Any) -> Any:
    return array


@slotted
class Wire:
    """How an Arrow column is sent in COPY's binary format."""

    # The Rust encoder's name for the kind of value.
    kind: str
    # The bytes of a value in Arrow's buffer; for a numeric, its scale.
    width: int = 0
    # The unit of a time or timestamp.
    unit: str = ""
    # Converts an array to the type that the encoder reads.
    prepare: Callable[[Any], Any] = _keep


def choose_wires(
    kinds: Sequence[Any], type_names: Sequence[str | None], kept: Sequence[KeptType] = ()
) -> list[Wire] | None:
    """Return how to send columns of Arrow types to columns of the table's types, None if they must be sent as text.

    All columns are sent as text if a column of the table may change a value, because changed values are found only in
    text. `kept` has the types of the table's columns that may change values.
    """
    if any(may_differ(kind, each) for kind, each in zip(kinds, kept, strict=False)):
        return None
    wires = [_choose(plain_type(kind), name or "") for kind, name in zip(kinds, type_names, strict=True)]
    return None if None in wires else [wire for wire in wires if wire is not None]


def write_binary(columns: Sequence[Any], wires: Sequence[Wire]) -> bytes:
    """Return the rows of Arrow arrays in COPY's binary format.

    Raises penstock._native.RecordError (message, row, column), TooLong.
    """
    with refusing_length():
        buffers = [_find_buffers(column, wire) for column, wire in zip(columns, wires, strict=True)]
    return _native.encode_rows(buffers, len(columns[0]))


def _choose(kind: Any, type_name: str) -> Wire | None:
    base = _MODIFIER.sub("", type_name)
    if types.is_null(kind):
        return Wire(kind="text", prepare=lambda array: cast_array(array, pa.string()))
    if is_nested(kind):
        return Wire(kind=_JSON[base], prepare=_write_json) if base in _JSON else None
    if is_text(kind) or is_json(kind):
        name = "text" if base in _TEXTS else _JSON.get(base)
        return None if name is None else Wire(kind=name, prepare=lambda array: cast_array(array, pa.string()))
    return _choose_bytes(kind, base) or _choose_number(kind, base) or _choose_time(kind, base)


def _choose_bytes(kind: Any, base: str) -> Wire | None:
    is_sixteen = types.is_fixed_size_binary(kind) and kind.byte_width == _UUID_BYTES
    if base == "uuid" and (is_uuid(kind) or is_sixteen):
        return Wire(kind="uuid", width=_UUID_BYTES)
    if base == "bytea" and is_bytes(kind):
        return Wire(kind="bytea", prepare=lambda array: cast_array(array, pa.binary()))
    return None


def _choose_number(kind: Any, base: str) -> Wire | None:
    if types.is_integer(kind) and base in _INTEGERS and not types.is_uint64(kind):
        signed = next((signed for is_kind, signed in _SIGNED if is_kind(kind)), kind)
        return Wire(kind=_INTEGERS[base], width=signed.bit_width // 8, prepare=lambda array: cast_array(array, signed))
    if types.is_integer(kind) and base == "numeric":
        whole = pa.decimal128(20, 0)
        return Wire(kind="numeric", prepare=lambda array: cast_array(array, whole))
    if types.is_decimal(kind) and base == "numeric" and kind.scale >= 0 and kind.precision <= _MOST_DIGITS:
        wide = pa.decimal128(kind.precision, kind.scale)
        return Wire(kind="numeric", width=kind.scale, prepare=lambda array: cast_array(array, wide))
    if types.is_boolean(kind) and base == "boolean":
        return Wire(kind="bool")
    if base == "real" and (types.is_float16(kind) or types.is_float32(kind)):
        return Wire(kind="float4", width=4, prepare=lambda array: cast_array(array, pa.float32()))
    return Wire(kind="float8", width=8) if base == "double precision" and types.is_float64(kind) else None


def _choose_time(kind: Any, base: str) -> Wire | None:
    if types.is_date(kind) and base == "date":
        return Wire(kind="date", width=4, prepare=_to_days)
    if types.is_timestamp(kind) and base == f"timestamp {'without' if kind.tz is None else 'with'} time zone":
        return Wire(kind="timestamp", width=8, unit=kind.unit)
    if types.is_time(kind) and base == "time without time zone":
        return Wire(kind="time", width=kind.bit_width // 8, unit=kind.unit)
    return None


def _to_days(array: Any) -> Any:
    try:
        return cast_array(array, pa.date32())
    except pa.ArrowInvalid as exc:
        # pyarrow's error does not name the row. After a RecordError, the caller writes the rows as text, which finds
        # the row.
        raise _native.RecordError("the date is not a day in the range of type date", 0, 0) from exc


def _write_json(array: Any) -> Any:
    from penstock.loading.files.columnar.text import write_json  # noqa: PLC0415 (40 ms, pyarrow.compute)

    return write_json(array)


def _find_buffers(column: Any, wire: Wire) -> _native.Buffers:
    array = plain_array(column)
    array = wire.prepare(plain_array(array.storage) if isinstance(array.type, pa.BaseExtensionType) else array)
    rows, bit = len(array), array.offset % 8
    valid = None if not array.null_count else _take_bits(array, array.buffers()[0])
    if wire.kind in ("text", "jsonb", "bytea"):
        _, offsets, data = array.buffers()
        bounds = pa.Array.from_buffers(pa.int32(), rows + 1, [None, offsets], offset=array.offset)
        first, last = bounds[0].as_py(), bounds[-1].as_py()
        values = b"" if data is None else data.slice(first, last - first).to_pybytes()
        starts = offsets.slice(array.offset * 4, (rows + 1) * 4).to_pybytes()
        return wire.kind, wire.width, wire.unit, values, starts, valid, bit
    data = array.buffers()[1]
    if wire.kind == "bool":
        return wire.kind, wire.width, wire.unit, _take_bits(array, data), None, valid, bit
    width = array.type.bit_width // 8
    values = data.slice(array.offset * width, rows * width).to_pybytes()
    return wire.kind, wire.width, wire.unit, values, None, valid, bit


def _take_bits(array: Any, buffer: Any) -> bytes:
    """Return the part of a bitmap that has the bits of an array's rows. Its first byte has the bit of the first row."""
    first = array.offset // 8
    bits: bytes = buffer.slice(first, (array.offset + len(array) + 7) // 8 - first).to_pybytes()
    return bits
