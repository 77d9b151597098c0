r"""Writes Arrow columns as COPY text with pyarrow.compute, so Python has no loop over rows.

Each value is written in the form that the input function of its PostgreSQL type reads. Then backslashes and control
characters are escaped as COPY requires, and the values of a row are joined by tabs. Null is \N. Each row is one line. A
value that the type cannot store exactly is a fault: nanoseconds, or a time outside the day. Only faults, and dates
before the year 1 or after 9999, are handled one by one in Python.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from penstock._native import RecordError
from penstock.core.slotted import slotted
from penstock.loading.files.columnar.types import (
    is_bytes,
    is_json,
    is_list,
    is_nested,
    is_text,
    is_uuid,
    plain_array,
    plain_type,
    refusing_length,
)

# The characters that COPY text escapes in a value (copyto.c, CopyAttributeOutText). The backslash is replaced first, so
# that no escape is escaped again.
_ESCAPES: Final = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))
_JSON_ESCAPES: Final = (
    ("\\", "\\\\"),
    ('"', '\\"'),
    *((chr(code), f"\\u{code:04x}") for code in range(0x20)),
)

_INTEGERS: Final = ("smallint", "integer", "bigint")
# Types whose input function reads a list in JSON's form: json, jsonb, and pgvector's types.
_LISTS: Final = re.compile(r"(^|\.)(json|jsonb|vector|halfvec)(\(|$)")
_UUID_BYTES: Final = 16

_DAY: Final = 86_400
_DAY_MS: Final = _DAY * 1000
_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
# 0001-01-01 and the day after 9999-12-31, as days since 1970-01-01. Between them pyarrow writes dates in the form that
# PostgreSQL reads.
_FIRST_DAY: Final = -719_162
_LAST_DAY: Final = 2_932_897


class Fault(NamedTuple):
    """A value that PostgreSQL cannot store exactly."""

    # The index of the value's row in the batch.
    row: int
    reason: str


@slotted
class TextRows:
    """Rows as COPY text, and the values in them that cannot be loaded."""

    data: bytes
    # The offset in `data` at which each row ends.
    ends: Any
    # The faults, each with the index of its column.
    faults: Sequence[tuple[int, Fault]]

    def end_of(self, row: int) -> int:
        """Return the offset at which a row ends. For row -1 return 0, at which the first row begins."""
        return int(self.ends[row].as_py()) if row >= 0 else 0

    def row_at(self, offset: int) -> int:
        """Return the index of the row that contains the byte at `offset`."""
        return bisect_right(range(len(self.ends)), offset, key=self.end_of)

    def field(self, row: int, column: int) -> str:
        """Return the text of a row's column, with COPY's escapes."""
        line = self.data[self.end_of(row - 1) : self.end_of(row) - 1]
        return line.split(b"\t")[column].decode(errors="replace")


class _Text(NamedTuple):
    """Values of a column as text."""

    values: Any
    # Whether the values may contain characters that COPY escapes.
    is_free: bool


def write_rows(columns: Sequence[Any], type_names: Sequence[str | None]) -> TextRows:
    """Return the rows of Arrow arrays as COPY text; `type_names` are the types of the table's columns.

    Raises TooLong.
    """
    with refusing_length():
        return _write_rows(columns, type_names)


def _write_rows(columns: Sequence[Any], type_names: Sequence[str | None]) -> TextRows:
    found: list[tuple[int, Fault]] = []
    written = []
    for index, (column, type_name) in enumerate(zip(columns, type_names, strict=True)):
        faults: list[Fault] = []
        text = _write(column, type_name or "", faults)
        written.append(_escape(text.values) if text.is_free else text.values)
        found += [(index, fault) for fault in faults]
    ended = pc.binary_join_element_wise(written[-1], "", "\n", null_handling="replace", null_replacement="\\N")
    lines = ended
    if len(written) > 1:
        lines = pc.binary_join_element_wise(*written[:-1], ended, "\t", null_handling="replace", null_replacement="\\N")
    return TextRows(data=_data_of(lines), ends=_ends_of(lines), faults=found)


# ---------------------------------------------------------------- values as text


def _write(array: Any, type_name: str, faults: list[Fault]) -> _Text:
    array = plain_array(array)
    kind = array.type
    if is_nested(kind):
        is_array = is_list(kind) and not is_nested(plain_type(kind.value_type)) and not _LISTS.search(type_name)
        if is_array:
            return _Text(_write_list(array, type_name.removesuffix("[]"), faults), is_free=True)
        return _Text(_write_json(array, faults), is_free=True)
    if is_text(kind) or is_json(kind):
        return _Text(_storage(array).cast(pa.string()), is_free=True)
    if is_uuid(kind) or (types.is_fixed_size_binary(kind) and kind.byte_width == _UUID_BYTES and type_name == "uuid"):
        return _Text(_write_uuid(_storage(array)), is_free=False)
    if is_bytes(kind):
        return _Text(pc.binary_join_element_wise("\\x", _hex(array), ""), is_free=True)
    return _Text(_write_plain(array, type_name, faults), is_free=False)


def _write_plain(array: Any, type_name: str, faults: list[Fault]) -> Any:
    """Return numbers, booleans, dates and times as text, which has nothing to escape."""
    kind = array.type
    if types.is_date64(kind):
        return _write_milliseconds(array, faults)
    if types.is_date(kind):
        return _write_dates(array)
    if types.is_timestamp(kind):
        return _write_timestamps(array, faults)
    if types.is_time(kind):
        return _write_times(array, faults)
    if types.is_float16(kind):
        array = array.cast(pa.float32())
    texts = array.cast(pa.string())
    return _write_whole(array, texts) if types.is_floating(kind) and type_name in _INTEGERS else texts


def _write_whole(numbers: Any, texts: Any) -> Any:
    """Return whole numbers without a point or an exponent, so that integer columns can read them.

    pandas stores integers as floating-point numbers if the column has nulls.
    """
    numbers = numbers.cast(pa.float64())
    is_whole = pc.and_(pc.equal(pc.floor(numbers), numbers), pc.less(pc.abs(numbers), 2.0**63))
    whole = pc.if_else(is_whole, numbers, 0.0).cast(pa.int64())
    return pc.if_else(is_whole, whole.cast(pa.string()), texts)


def write_json(array: Any) -> Any:
    """Return lists, structs and maps as JSON. Raises RecordError for a value that JSON cannot have exactly."""
    faults: list[Fault] = []
    texts = _write_json(array, faults)
    if faults:
        raise RecordError(faults[0].reason, faults[0].row, 0)
    return texts


def _storage(array: Any) -> Any:
    return plain_array(array.storage) if isinstance(array.type, pa.BaseExtensionType) else array


# ---------------------------------------------------------------- dates and times


def _write_dates(dates: Any) -> Any:
    days = dates.view(pa.int32())
    odd = _find_outside(days, _FIRST_DAY, _LAST_DAY)
    return _replace(dates.cast(pa.string()), odd, [_name_day(days[row].as_py()) for row in odd])


def _write_milliseconds(dates: Any, faults: list[Fault]) -> Any:
    """Return dates that Arrow stores in milliseconds (date64) as text."""
    counts = dates.view(pa.int64())
    is_day = pc.equal(pc.multiply(pc.divide(counts, _DAY_MS), _DAY_MS), counts)
    odd = sorted({*_rows_of(pc.invert(is_day)), *_find_outside(counts, -(2**31) * _DAY_MS, 2**31 * _DAY_MS)})
    faults += [Fault(row, "the date is not a day in the range of type date") for row in odd]
    texts = _write_dates(dates.cast(pa.date32(), safe=False))
    return _replace(texts, odd, [_name_instant(counts[row].as_py(), "ms", "") for row in odd])


def _write_timestamps(stamps: Any, faults: list[Fault]) -> Any:
    """Return timestamps as text, with at most six decimals. Timestamps with a time zone are in UTC and end with +00."""
    kind = stamps.type
    suffix = "" if kind.tz is None else "+00"
    counts = stamps.view(pa.int64())
    texts = stamps.view(pa.timestamp(kind.unit)).cast(pa.string())
    if kind.unit == "ns":
        texts = _shorten_nanoseconds(texts, counts, faults)
    if suffix:
        texts = pc.binary_join_element_wise(texts, suffix, "")
    per_day = _DAY * _PER_SECOND[kind.unit]
    odd = _find_outside(counts, _FIRST_DAY * per_day, _LAST_DAY * per_day)
    return _replace(texts, odd, [_name_instant(counts[row].as_py(), kind.unit, suffix) for row in odd])


def _write_times(times: Any, faults: list[Fault]) -> Any:
    unit = times.type.unit
    counts = times.view(pa.int32() if unit in ("s", "ms") else pa.int64())
    odd = _find_outside(counts, 0, _DAY * _PER_SECOND[unit])
    texts = times.cast(pa.string())
    if unit == "ns":
        texts = _shorten_nanoseconds(texts, counts, faults)
    faults += [Fault(row, "the time is not one of a day") for row in odd]
    return texts


def _shorten_nanoseconds(texts: Any, counts: Any, faults: list[Fault]) -> Any:
    """Return texts without their last three digits. If these are not 000, the value is a fault."""
    is_exact = pc.equal(pc.multiply(pc.divide(counts, 1000), 1000), counts)
    if pc.all(is_exact, min_count=0).as_py():
        return pc.utf8_slice_codeunits(texts, 0, -3)
    inexact = _rows_of(pc.invert(is_exact))
    faults += [Fault(row, "PostgreSQL has no nanoseconds") for row in inexact]
    return pc.if_else(is_exact, pc.utf8_slice_codeunits(texts, 0, -3), pc.binary_join_element_wise(texts, "ns", " "))


def _name_instant(count: int, unit: str, suffix: str) -> str:
    per_second = _PER_SECOND[unit]
    day, rest = divmod(count, _DAY * per_second)
    second, fraction = divmod(rest, per_second)
    hour, minute = divmod(second // 60, 60)
    digits = f".{fraction:0{len(str(per_second)) - 1}d}".rstrip("0").rstrip(".")
    name, _, era = _name_day(day).partition(" ")
    return f"{name} {hour:02d}:{minute:02d}:{second % 60:02d}{digits}{suffix}{' BC' if era else ''}"


def _name_day(day: int) -> str:
    """Return the date of a day in the form that PostgreSQL reads. `day` is the number of days since 1970-01-01.

    >>> _name_day(0), _name_day(2_932_897), _name_day(-719_163)
    ('1970-01-01', '10000-01-01', '0001-12-31 BC')
    """
    # Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days
    era, day_of_era = divmod(day + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * day_of_year + 2) // 153
    month = month_from_march + 3 if month_from_march < 10 else month_from_march - 9
    year = year_of_era + era * 400 + (month <= 2)
    name = f"{month:02d}-{day_of_year - (153 * month_from_march + 2) // 5 + 1:02d}"
    return f"{year:04d}-{name}" if year > 0 else f"{1 - year:04d}-{name} BC"


def _find_outside(counts: Any, first: int, end: int) -> list[int]:
    """Return the rows whose counts are below `first`, or not below `end`."""
    least, most = (pc.min_max(counts)[name].as_py() for name in ("min", "max"))
    if least is None or (least >= first and most < end):
        return []
    kind = counts.type
    is_below = pc.less(counts, pa.scalar(first, kind)) if _fits(first, kind) else pa.scalar(value=False)
    is_above = pc.greater_equal(counts, pa.scalar(end, kind)) if _fits(end, kind) else pa.scalar(value=False)
    return _rows_of(pc.or_(is_below, is_above))


def _fits(count: int, kind: Any) -> bool:
    return bool(-(2 ** (kind.bit_width - 1)) <= count < 2 ** (kind.bit_width - 1))


def _rows_of(mask: Any) -> list[int]:
    return [int(row) for row in pc.indices_nonzero(pc.fill_null(mask, fill_value=False)).to_pylist()]


def _replace(texts: Any, rows: Sequence[int], replacements: Sequence[str]) -> Any:
    if not rows:
        return texts
    values = texts.to_pylist()
    for row, text in zip(rows, replacements, strict=True):
        values[row] = text
    return pa.array(values, pa.string())


# ---------------------------------------------------------------- byte strings


def _hex(array: Any) -> Any:
    """Return byte strings as hexadecimal digits. All of them are converted by one call."""
    array = array.cast(pa.large_binary())
    _, offsets, data = array.buffers()
    bounds = pa.Array.from_buffers(pa.int64(), len(array) + 1, [None, offsets], offset=array.offset)
    first, last = bounds[0].as_py(), bounds[-1].as_py()
    digits = b"" if data is None else data.slice(first, last - first).to_pybytes().hex().encode()
    doubled = pc.multiply(pc.subtract(bounds, first), 2)
    texts = pa.Array.from_buffers(
        pa.large_string(), len(array), [None, doubled.buffers()[1], pa.py_buffer(digits)], null_count=0
    )
    return _keep_nulls(texts.cast(pa.string()), array)


def _write_uuid(array: Any) -> Any:
    digits = _hex(array)
    parts = (pc.utf8_slice_codeunits(digits, start, end) for start, end in ((0, 8), (8, 12), (12, 16), (16, 20)))
    return pc.binary_join_element_wise(*parts, pc.utf8_slice_codeunits(digits, 20, 32), "-")


# ---------------------------------------------------------------- lists, structs and maps


def _write_list(array: Any, type_name: str, faults: list[Fault]) -> Any:
    """Return lists as PostgreSQL's array literals (utils/adt/arrayfuncs.c, array_in)."""

    def write(values: Any, inner: list[Fault]) -> Any:
        text = _write(values, type_name, inner)
        if not text.is_free:
            return text.values
        return pc.binary_join_element_wise('"', _replace_all(text.values, _JSON_ESCAPES[:2]), '"', "")

    joined = _join_list(array, write, faults, null="NULL")
    return pc.binary_join_element_wise("{", joined, "}", "")


def _join_list(array: Any, write: Callable[[Any, list[Fault]], Any], faults: list[Fault], *, null: str) -> Any:
    """Return one text for each list: its values, written by `write`, joined by commas."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int32())
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
    values, places = _flatten(array, offsets)

    def write_all(inner: list[Fault]) -> Any:
        found: list[Fault] = []
        texts = pc.fill_null(write(values, found), null)
        if places is None:
            inner += found
            return texts
        rows = {fault.row: fault.reason for fault in reversed(found)}
        inner += [
            Fault(at, rows[place]) for at, place in enumerate(places.to_pylist() if rows else ()) if place in rows
        ]
        return texts.take(places)

    return _join(array, offsets, write_all, faults)


def _flatten(array: Any, offsets: Any) -> tuple[Any, Any]:
    """Return the values of all lists, and the indexes of the values in the order of the lists.

    The indexes are None if the values are in that order already.
    """
    kind = array.type
    if types.is_null(kind.value_type):
        # pyarrow cannot flatten slices of lists of nulls.
        return pa.nulls(offsets[-1].as_py()), None
    if not (types.is_list_view(kind) or types.is_large_list_view(kind)):
        return array.flatten(), None
    # List views may overlap, and may be in any order. pyarrow can flatten only some types of them.
    count = offsets[-1].as_py()
    rows = pc.list_parent_indices(pa.ListArray.from_arrays(offsets, pa.nulls(count)))
    starts = array.offsets.cast(pa.int64()).take(rows)
    places = pc.add(starts, pc.subtract(pa.array(range(count), pa.int64()), offsets.take(rows)))
    first, last = (pc.min_max(places)[name].as_py() or 0 for name in ("min", "max"))
    return array.values.slice(first, last - first + 1), pc.subtract(places, first)


def _join(array: Any, offsets: Any, write: Callable[[list[Fault]], Any], faults: list[Fault]) -> Any:
    """Return one text for each row: the parts between the row's offsets, written by `write`, joined by commas."""
    inner: list[Fault] = []
    lists = pa.ListArray.from_arrays(offsets, write(inner))
    if inner:
        parents = pc.list_parent_indices(lists)
        found = ((parents[row].as_py(), reason) for row, reason in inner)
        faults += [Fault(row, reason) for row, reason in found if array[row].is_valid]
    return _keep_nulls(pc.binary_join(lists, ","), array)


def _write_json(array: Any, faults: list[Fault]) -> Any:
    """Return values as JSON. A null value stays null."""
    array = plain_array(array)
    kind = array.type
    if types.is_map(kind):
        return _write_map(array, faults)
    if is_list(kind):
        return pc.binary_join_element_wise("[", _join_list(array, _write_json, faults, null="null"), "]", "")
    if types.is_struct(kind):
        return _write_struct(array, faults)
    if is_json(kind):
        return _storage(array).cast(pa.string())
    text = _write(array, "", faults).values
    is_bare = types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    return text if is_bare or types.is_null(kind) else _quote_json(text)


def _quote_json(texts: Any) -> Any:
    return pc.binary_join_element_wise('"', _replace_all(texts, _JSON_ESCAPES), '"', "")


def _write_struct(array: Any, faults: list[Fault]) -> Any:
    names = [_quote_json(pa.array([field.name]))[0].as_py() for field in array.type]
    parts: list[Any] = []
    for number, (name, child) in enumerate(zip(names, array.flatten(), strict=True)):
        parts += [f"{', ' if number else ''}{name}: ", pc.fill_null(_write_json(child, faults), "null")]
    text = pc.binary_join_element_wise("{", *parts, "}", "") if parts else pa.array(["{}"] * len(array), pa.string())
    return _keep_nulls(text, array)


def _write_map(array: Any, faults: list[Fault]) -> Any:
    # Casts and views to lists of structs are wrong for slices of some types.
    first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
    keys, values = (part.slice(first, last - first) for part in (array.keys, array.items))
    offsets = pc.subtract(array.offsets, first)

    def write(inner: list[Fault]) -> Any:
        names = _quote_json(_write(keys, "", inner).values)
        inner += _find_repeated(names, offsets)
        return pc.binary_join_element_wise(names, pc.fill_null(_write_json(values, inner), "null"), ": ")

    return pc.binary_join_element_wise("{", _join(array, offsets, write, faults), "}", "")


def _find_repeated(names: Any, offsets: Any) -> list[Fault]:
    """Return a fault for each key that a map repeats, because jsonb would keep only the key's last value."""
    parents = pc.list_parent_indices(pa.ListArray.from_arrays(offsets, names))
    pairs = pa.table({"map": parents, "name": names})
    if pairs.group_by(["map", "name"]).aggregate([]).num_rows == pairs.num_rows:
        return []
    seen, found = set[tuple[int, str]](), list[Fault]()
    for row, pair in enumerate(zip(parents.to_pylist(), names.to_pylist(), strict=True)):
        if pair in seen:
            found.append(Fault(row, "a map has a key twice"))
        seen.add(pair)
    return found


# ---------------------------------------------------------------- buffers


def _escape(texts: Any) -> Any:
    return _replace_all(texts, _ESCAPES)


def _replace_all(texts: Any, pairs: Sequence[tuple[str, str]]) -> Any:
    """Return texts with each character of `pairs` replaced. A character that does not occur costs almost no time."""
    data = _data_of(texts)
    for before, after in pairs:
        if before.encode() in data:
            texts = pc.replace_substring(texts, before, after)
    return texts


def _keep_nulls(texts: Any, array: Any) -> Any:
    return texts if not array.null_count else pc.if_else(pc.is_valid(array), texts, pa.scalar(None, pa.string()))


def _data_of(texts: Any) -> bytes:
    bounds, data = _bounds_of(texts), texts.buffers()[2]
    if data is None:
        return b""
    first, last = bounds[0].as_py(), bounds[-1].as_py()
    whole: bytes = data.slice(first, last - first).to_pybytes()
    return whole


def _ends_of(texts: Any) -> Any:
    bounds = _bounds_of(texts)
    return pc.subtract(bounds, bounds[0])[1:]


def _bounds_of(texts: Any) -> Any:
    if not len(texts):
        return pa.array([0], pa.int32())
    return pa.Array.from_buffers(pa.int32(), len(texts) + 1, [None, texts.buffers()[1]], offset=texts.offset)
