"""Finds timestamps of INT96 that are not whole microseconds, in columns and in their lists, structs and maps.

INT96 is a day and its nanoseconds, without bounds. Read as 64-bit nanoseconds, a year such as 9999 becomes another one,
but the difference to its microseconds is right in the lowest 64 bits.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from pyarrow import types

from penstock.files.columnar.types import is_list


def find_nanoseconds(nanoseconds: Any, microseconds: Any) -> int | None:
    """Return the first row that has nanoseconds. Both are the same column; its INT96 are read in these units."""
    import pyarrow.compute as pc  # noqa: PLC0415 (40 ms)

    if nanoseconds.type == microseconds.type:
        return None
    if types.is_timestamp(nanoseconds.type):
        # These multiply and subtract without a check: in the lowest 64 bits.
        rest = pc.subtract(nanoseconds.view("int64"), pc.multiply(microseconds.view("int64"), 1000))
        row = pc.index(pc.equal(rest, 0), False).as_py()
        return None if row < 0 else int(row)
    pairs = zip(_list_parts(nanoseconds), _list_parts(microseconds), strict=True)
    rows = [row for one, other in pairs if (row := find_nanoseconds(one, other)) is not None]
    return _find_row(nanoseconds, min(rows)) if rows else None


def _list_parts(array: Any) -> list[Any]:
    """Return the values of lists, the keys and items of maps, or the fields of structs."""
    if types.is_map(array.type):
        first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
        return [part.slice(first, last - first) for part in (array.keys, array.items)]
    return [array.flatten()] if is_list(array.type) else array.flatten()


def _find_row(array: Any, part: int) -> int:
    """Return the row of an array that one of its parts is of."""
    if types.is_struct(array.type):
        return part
    import pyarrow.compute as pc  # noqa: PLC0415 (40 ms)

    lengths = pc.subtract(array.offsets[1:], array.offsets[:-1]) if types.is_map(array.type) else array.value_lengths()
    return bisect_right(pc.cumulative_sum(pc.fill_null(lengths, 0)).to_pylist(), part)
