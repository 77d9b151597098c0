"""Types of Arrow with random values of them, as Python has them."""

from __future__ import annotations

import datetime as dt
import json
import math
import struct
import uuid
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

_UTC = dt.UTC
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=_UTC)
_CHARACTERS = "ab,;\"'\\\t\n\r{}()NULL é€😀\x01\x7f\u2028 "


def random_text(rng: random.Random) -> str:
    """Return a text with characters that COPY, arrays, JSON or quotes treat specially."""
    return "".join(rng.choices(_CHARACTERS, k=rng.randrange(12))) + rng.choice(["", "\\N", "\\.", "\\", "x" * 300])


def _float(rng: random.Random) -> float:
    odd = [0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, 1.7976931348623157e308, 0.1, 1e22, 123456789.0]
    return rng.choice([rng.choice(odd), struct.unpack("d", rng.randbytes(8))[0], rng.uniform(-1e6, 1e6)])


def _float32(rng: random.Random) -> float:
    return float(struct.unpack("f", rng.randbytes(4))[0])


def _instant(rng: random.Random, unit_us: int) -> dt.datetime:
    lowest, highest = -62_135_596_800 * 10**6, 253_402_300_799_999_999
    spread = rng.choice([(lowest, highest), (0, 2 * 10**15)])
    return _EPOCH + dt.timedelta(microseconds=rng.randrange(*spread) // unit_us * unit_us)


def _naive(rng: random.Random, unit_us: int) -> dt.datetime:
    return _instant(rng, unit_us).replace(tzinfo=None)


def _near(rng: random.Random) -> dt.datetime:
    return _EPOCH.replace(tzinfo=None) + dt.timedelta(microseconds=rng.randrange(-(10**15), 10**15))


def _decimal(rng: random.Random, precision: int, scale: int) -> Decimal:
    return Decimal(rng.randrange(-(10**precision) + 1, 10**precision)).scaleb(-scale)


def _day(rng: random.Random) -> dt.date:
    return dt.date.fromordinal(rng.randrange(1, dt.date.max.toordinal() + 1))


def _time(rng: random.Random, unit_us: int) -> dt.time:
    return (_EPOCH + dt.timedelta(microseconds=rng.randrange(86_400_000_000) // unit_us * unit_us)).time()


def _struct(rng: random.Random) -> dict[str, Any]:
    return {"a": rng.choice([None, rng.random()]), 'b"\n': [rng.choice([None, random_text(rng)])]}


# The Arrow type, what makes a value of it, and the type of the column that is created.
KINDS: dict[str, tuple[pa.DataType, Callable[[random.Random], Any], str]] = {
    "int8": (pa.int8(), lambda rng: rng.randrange(-128, 128), "smallint"),
    "uint8": (pa.uint8(), lambda rng: rng.randrange(256), "smallint"),
    "int16": (pa.int16(), lambda rng: rng.randrange(-(2**15), 2**15), "smallint"),
    "uint16": (pa.uint16(), lambda rng: rng.randrange(2**16), "integer"),
    "int32": (pa.int32(), lambda rng: rng.randrange(-(2**31), 2**31), "integer"),
    "uint32": (pa.uint32(), lambda rng: rng.randrange(2**32), "bigint"),
    "int64": (pa.int64(), lambda rng: rng.randrange(-(2**63), 2**63), "bigint"),
    "uint64": (pa.uint64(), lambda rng: rng.randrange(2**64), "numeric(20,0)"),
    "float32": (pa.float32(), _float32, "real"),
    "float64": (pa.float64(), _float, "double precision"),
    "decimal32": (pa.decimal32(7, 3), lambda rng: _decimal(rng, 7, 3), "numeric(7,3)"),
    "decimal64": (pa.decimal64(18, 0), lambda rng: _decimal(rng, 18, 0), "numeric(18,0)"),
    "decimal128": (pa.decimal128(38, 10), lambda rng: _decimal(rng, rng.randrange(1, 39), 10), "numeric(38,10)"),
    "decimal256": (pa.decimal256(76, 75), lambda rng: _decimal(rng, rng.randrange(1, 77), 75), "numeric(76,75)"),
    "boolean": (pa.bool_(), lambda rng: rng.random() < 0.5, "boolean"),
    "string": (pa.string(), random_text, "text"),
    "large_string": (pa.large_string(), random_text, "text"),
    "dictionary": (pa.dictionary(pa.int16(), pa.string()), lambda rng: rng.choice(["a", "\t", "\\N"]), "text"),
    "binary": (pa.binary(), lambda rng: rng.randbytes(rng.randrange(20)), "bytea"),
    "large_binary": (pa.large_binary(), lambda rng: rng.randbytes(rng.randrange(20)), "bytea"),
    "fixed_binary": (pa.binary(3), lambda rng: rng.randbytes(3), "bytea"),
    "date32": (pa.date32(), _day, "date"),
    "date64": (pa.date64(), _day, "date"),
    "time_s": (pa.time32("s"), lambda rng: _time(rng, 10**6), "time without time zone"),
    "time_ms": (pa.time32("ms"), lambda rng: _time(rng, 1000), "time without time zone"),
    "time_us": (pa.time64("us"), lambda rng: _time(rng, 1), "time without time zone"),
    "time_ns": (pa.time64("ns"), lambda rng: _time(rng, 1), "time without time zone"),
    "timestamp_s": (pa.timestamp("s"), lambda rng: _naive(rng, 10**6), "timestamp without time zone"),
    "timestamp_ms": (pa.timestamp("ms"), lambda rng: _naive(rng, 1000), "timestamp without time zone"),
    "timestamp_us": (pa.timestamp("us"), lambda rng: _naive(rng, 1), "timestamp without time zone"),
    "timestamp_ns": (pa.timestamp("ns"), _near, "timestamp without time zone"),
    "timestamptz_s": (pa.timestamp("s", "UTC"), lambda rng: _instant(rng, 10**6), "timestamp with time zone"),
    "timestamptz_us": (
        pa.timestamp("us", "America/New_York"),
        lambda rng: _EPOCH + dt.timedelta(microseconds=rng.randrange(4 * 10**15)),
        "timestamp with time zone",
    ),
    "uuid": (pa.uuid(), lambda rng: uuid.UUID(bytes=rng.randbytes(16)), "uuid"),
    "json": (pa.json_(), lambda rng: json.dumps({"k": rng.random(), "t": "a\t\\"}), "jsonb"),
    "null": (pa.null(), lambda _: None, "text"),
    "float16": (pa.float16(), lambda rng: rng.choice([0.0, -0.0, math.nan, rng.randrange(2048) / 8]), "real"),
    "string_view": (pa.string_view(), random_text, "text"),
    "binary_view": (pa.binary_view(), lambda rng: rng.randbytes(rng.randrange(20)), "bytea"),
    "dictionary_int": (pa.dictionary(pa.uint8(), pa.int64()), lambda rng: rng.randrange(-9, 9), "bigint"),
    "runs": (pa.run_end_encoded(pa.int32(), pa.string()), lambda rng: rng.choice("ab"), "text"),
    "bool8": (pa.bool8(), lambda rng: rng.random() < 0.5, "boolean"),
    "struct": (pa.struct([("a", pa.float64()), ('b"\n', pa.list_(pa.string()))]), _struct, "jsonb"),
    "map": (
        pa.map_(pa.string(), pa.int64()),
        lambda rng: [(f"{key}\t", rng.choice([None, rng.randrange(2**63)])) for key in range(rng.randrange(3))],
        "jsonb",
    ),
    "list_view": (pa.list_view(pa.string()), lambda rng: [random_text(rng)] * rng.randrange(3), "text[]"),
    "list_int": (
        pa.list_(pa.int32()),
        lambda rng: [rng.choice([None, 1, -7]) for _ in range(rng.randrange(4))],
        "integer[]",
    ),
    "list_text": (
        pa.list_(pa.string()),
        lambda rng: [rng.choice([None, random_text(rng)]) for _ in range(rng.randrange(4))],
        "text[]",
    ),
    "large_list": (pa.large_list(pa.date32()), lambda rng: [_day(rng) for _ in range(rng.randrange(3))], "date[]"),
    "fixed_list": (pa.list_(pa.float64(), 2), lambda rng: [rng.random(), None], "double precision[]"),
    "list_bytes": (pa.list_(pa.binary()), lambda rng: [rng.randbytes(3), None], "bytea[]"),
}


# Parquet has none of these.
ARROW_ONLY = ("date64", "timestamp_s", "timestamptz_s", "time_s", "runs")
# These have no binary format in the columns that are created for them.
TEXT_ONLY = ("decimal256", "list_int", "list_text", "large_list", "fixed_list", "list_bytes", "list_view")


def make_values(name: str, rng: random.Random, count: int) -> list[Any]:
    """Return values of a kind, some of them None."""
    make = KINDS[name][1]
    return [None if rng.random() < 0.1 else make(rng) for _ in range(count)]


def _store(value: Any) -> Any:
    """Return what an extension type stores for a value."""
    if isinstance(value, uuid.UUID):
        return value.bytes
    return int(value) if isinstance(value, bool) else value


def make_array(values: list[Any], name: str) -> pa.Array:
    """Return values of a kind as an array."""
    kind = KINDS[name][0]
    if isinstance(kind, pa.BaseExtensionType):
        stored = [_store(value) for value in values]
        return pa.ExtensionArray.from_storage(kind, pa.array(stored, kind.storage_type))
    if kind == pa.date64():
        # pa.array() takes dates for milliseconds there.
        return pa.array(values, pa.date32()).cast(pa.date64())
    if pa.types.is_run_end_encoded(kind):
        return pc.run_end_encode(pa.array(values, kind.value_type))
    return pa.array(values, kind)
