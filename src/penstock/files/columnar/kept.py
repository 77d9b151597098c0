"""Says which columns of Arrow types a table's column may store otherwise than they are. Pure."""

from __future__ import annotations

from typing import Any, Final

from pyarrow import types

from penstock.files.columnar.types import is_text, plain_type

# A type's name in the Rust core, and its limit (penstock.copyformat.kept).
KeptType = tuple[str, int]

_DECIMALS: Final = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def may_differ(kind: Any, kept: KeptType) -> bool:
    """Return whether a column of a type may change values of an Arrow type; then their text is looked through.

    >>> import pyarrow as pa
    >>> may_differ(pa.date32(), ("date", -1)), may_differ(pa.timestamp("us"), ("date", -1))
    (False, True)
    >>> may_differ(pa.decimal128(12, 3), ("numeric", 2)), may_differ(pa.float64(), ("numeric", 2**31 - 1))
    (True, True)
    """
    (name, limit), kind = kept, plain_type(kind)
    # Texts for a varchar stay in the binary format, where blanks beyond its length are not looked for.
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
    # Nanoseconds that the server does not keep are refused.
    is_rounded = 0 <= limit < _DECIMALS[kind.unit]
    if types.is_time(kind):
        return name not in ("time", "timetz") or is_rounded
    holding = ("timestamptz",) if kind.tz is not None else ("timestamp", "timestamptz")
    return name not in holding or is_rounded
