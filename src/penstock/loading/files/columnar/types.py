"""Finds the PostgreSQL type for each Arrow type, checks Arrow arrays, and removes their encodings."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
from pyarrow import types


def is_text(kind: Any) -> bool:
    """Return whether values of an Arrow type are strings."""
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def is_bytes(kind: Any) -> bool:
    """Return whether values of an Arrow type are byte strings."""
    is_large = types.is_large_binary(kind) or types.is_binary_view(kind)
    return bool(is_large or types.is_binary(kind) or types.is_fixed_size_binary(kind))


def is_list(kind: Any) -> bool:
    """Return whether values of an Arrow type are lists, all of one type."""
    is_view = types.is_list_view(kind) or types.is_large_list_view(kind)
    return bool(is_view or types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def is_nested(kind: Any) -> bool:
    """Return whether values of an Arrow type have parts: lists, structs, maps."""
    return is_list(kind) or bool(types.is_struct(kind) or types.is_map(kind))


def plain_type(kind: Any) -> Any:
    """Return the type of the values without their encoding, such as the type of the values in a dictionary.

    For an extension that is not known here, return the type of its storage.
    """
    if is_encoded(kind):
        return plain_type(kind.value_type)
    if is_view(kind):
        return pa.string() if types.is_string_view(kind) else pa.binary()
    if is_bool8(kind):
        return pa.bool_()
    if isinstance(kind, pa.BaseExtensionType) and not is_uuid(kind) and not is_json(kind):
        return plain_type(kind.storage_type)
    return kind


def is_encoded(kind: Any) -> bool:
    """Return whether an Arrow type is encoded: with a dictionary, or by runs of equal values."""
    return bool(types.is_dictionary(kind) or types.is_run_end_encoded(kind))


def is_view(kind: Any) -> bool:
    """Return whether an Arrow type is string_view or binary_view."""
    return bool(types.is_string_view(kind) or types.is_binary_view(kind))


def has_dictionary(kind: Any) -> bool:
    """Return whether an Arrow type or a type nested in it is encoded with a dictionary."""
    if isinstance(kind, pa.BaseExtensionType):
        return has_dictionary(kind.storage_type)
    parts = (kind.field(number).type for number in range(kind.num_fields))
    return bool(types.is_dictionary(kind)) or any(map(has_dictionary, parts))


def text_type(kind: Any) -> Any:
    """Return the string type for a binary type, and a list of strings for a list of binary values; otherwise None.

    Both types have the same buffers, so an array can be viewed as the other type.
    """
    if types.is_list(kind) or types.is_large_list(kind):
        part = text_type(kind.value_type)
        make = pa.list_ if types.is_list(kind) else pa.large_list
        return None if part is None or is_nested(part) else make(kind.value_field.with_type(part))
    kinds = ((types.is_binary, pa.string()), (types.is_large_binary, pa.large_string()))
    return next((text for is_kind, text in kinds if is_kind(kind)), None)


def is_uuid(kind: Any) -> bool:
    """Return whether an Arrow type is the extension arrow.uuid."""
    return isinstance(kind, pa.BaseExtensionType) and bool(kind.extension_name == "arrow.uuid")


def is_json(kind: Any) -> bool:
    """Return whether an Arrow type is the extension arrow.json."""
    return isinstance(kind, pa.BaseExtensionType) and bool(kind.extension_name == "arrow.json")


def is_bool8(kind: Any) -> bool:
    """Return whether an Arrow type is the extension arrow.bool8."""
    return isinstance(kind, pa.BaseExtensionType) and bool(kind.extension_name == "arrow.bool8")


# Arrow types, each with the PostgreSQL type that holds all its values.
_NAMES: Sequence[tuple[Callable[[Any], bool], str]] = (
    (types.is_boolean, "boolean"),
    (types.is_int8, "smallint"),
    (types.is_uint8, "smallint"),
    (types.is_int16, "smallint"),
    (types.is_uint16, "integer"),
    (types.is_int32, "integer"),
    (types.is_uint32, "bigint"),
    (types.is_int64, "bigint"),
    (types.is_uint64, "numeric(20,0)"),
    (types.is_float16, "real"),
    (types.is_float32, "real"),
    (types.is_float64, "double precision"),
    (types.is_date, "date"),
    (types.is_time, "time without time zone"),
    (types.is_null, "text"),
    (is_text, "text"),
    (is_bytes, "bytea"),
    (is_uuid, "uuid"),
    (is_json, "jsonb"),
)


def name_sql_type(kind: Any) -> str | None:
    """Return the type of a column for values of an Arrow type, None if they cannot be loaded.

    >>> name_sql_type(pa.list_(pa.decimal128(12, 2))), name_sql_type(pa.duration("s"))
    ('numeric(12,2)[]', None)
    """
    if is_encoded(kind) and not _can_take(kind.value_type):
        return None
    # The storage of pandas' own extensions is something else than the value: a period is the number of one.
    if isinstance(kind, pa.BaseExtensionType) and kind.extension_name.startswith("pandas."):
        return None
    kind = plain_type(kind)
    if types.is_decimal(kind):
        # Before PostgreSQL 15, a scale cannot be negative.
        return f"numeric({max(kind.precision - min(kind.scale, 0), kind.scale)},{max(kind.scale, 0)})"
    if types.is_timestamp(kind):
        return f"timestamp {'without' if kind.tz is None else 'with'} time zone"
    if is_nested(kind):
        return _name_nested(kind)
    return next((name for is_kind, name in _NAMES if is_kind(kind)), None)


def _can_take(kind: Any) -> bool:
    """Return whether pyarrow can take single values of a type. It cannot if a nested type is a view or run-end encoded.

    A dictionary of dictionaries is not accepted either, because pyarrow itself writes wrong files for it.
    """
    if types.is_dictionary(kind):
        return False
    kind = plain_type(kind)
    return not any(_has_views(kind.field(number).type) for number in range(kind.num_fields))


def _has_views(kind: Any) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return _has_views(kind.storage_type)
    if types.is_dictionary(kind):
        return _has_views(kind.value_type)
    parts = (kind.field(number).type for number in range(kind.num_fields))
    return is_view(kind) or bool(types.is_run_end_encoded(kind)) or any(map(_has_views, parts))


def _repeats_a_name(kind: Any) -> bool:
    """Return whether a struct has two fields of the same name. JSON would keep only one of them."""
    names = [field.name for field in kind] if types.is_struct(kind) else []
    return len(set(names)) < len(names)


def _name_nested(kind: Any) -> str | None:
    """Return the PostgreSQL type for lists, structs and maps: an array for a list of plain values, otherwise jsonb."""
    if types.is_map(kind):
        parts = [kind.key_type, kind.item_type]
    else:
        parts = [kind.value_type] if is_list(kind) else [field.type for field in kind]
    names = [name_sql_type(part) for part in parts]
    if None in names or _repeats_a_name(kind):
        return None
    return f"{names[0]}[]" if is_list(kind) and not is_nested(plain_type(parts[0])) else "jsonb"


_VIEW_BYTES: Final = 16


class TooLong(ValueError):
    """The values of a batch are longer than 2 GiB, or do not fit into the free memory."""


@contextmanager
def refusing_length() -> Iterator[None]:
    """Raise TooLong if pyarrow reports in the block that there is too much data or too little memory."""
    try:
        yield
    except (pa.ArrowCapacityError, pa.ArrowMemoryError) as error:
        raise TooLong(f"{error}") from error


def plain_array(array: Any) -> Any:
    """Return an array of the same values without their encoding (see `plain_type`)."""
    kind = array.type
    if types.is_dictionary(kind):
        return _take(array.dictionary, array.indices)
    if types.is_run_end_encoded(kind):
        first, count = array.find_physical_offset(), array.find_physical_length()
        return _take(array.values.slice(first, count), _number_runs(array, first, count))
    if is_view(kind):
        return _clear_nulls(array).cast(plain_type(kind))
    if is_bool8(kind):
        return array.storage.cast(pa.bool_())
    if isinstance(kind, pa.BaseExtensionType) and plain_type(kind) != kind:
        return plain_array(array.storage)
    return array


def cast_array(array: Any, kind: Any) -> Any:
    """Return an array converted to another type. Raises pyarrow.ArrowInvalid if the type does not hold a value."""
    # Array.cast is not called needlessly, because it imports pyarrow.compute even if there is nothing to do.
    return array if array.type == kind else array.cast(kind)


def _take(values: Any, indices: Any) -> Any:
    """Return the values at these indices."""
    values = plain_array(values)
    if is_json(values.type):
        texts = plain_array(values.storage).take(indices)
        return pa.ExtensionArray.from_storage(pa.json_(texts.type), texts)
    return values.take(indices)


def _clear_nulls(array: Any) -> Any:
    """Return an array of views in which each null is an empty view.

    Validation does not check the views of nulls, but a cast reads what they refer to.
    """
    if not array.null_count:
        return array
    valid, views, *data = array.buffers()
    stored = pa.Array.from_buffers(pa.binary(_VIEW_BYTES), len(array), [valid, views], offset=array.offset)
    cleared = stored.fill_null(bytes(_VIEW_BYTES))
    nulls = array.is_valid().buffers()[1]
    return pa.Array.from_buffers(array.type, len(array), [nulls, cleared.buffers()[1], *data])


def _number_runs(array: Any, first: int, count: int) -> Any:
    """Return the number of each row's run, counted from 0.

    `first` is the index of the first run that has rows of the array, `count` the number of such runs.
    """
    import pyarrow.compute as pc  # noqa: PLC0415 (40 ms)

    ends = pc.subtract(array.run_ends.slice(first, count).cast(pa.int64()), array.offset)
    ends = pc.min_element_wise(ends, len(array))
    runs = pa.RunEndEncodedArray.from_arrays(ends, pa.array(range(count), pa.int64()))
    return pc.run_end_decode(runs)


def check_values(batch: Any, is_checked: Callable[[Any], bool]) -> None:
    """Raise pyarrow.ArrowInvalid if a column of a batch is damaged. `is_checked` returns whether to check a type.

    pyarrow's full validation also refuses single invalid values: texts that are not UTF-8, times outside the day, dates
    that are not whole days. The load refuses or rejects the rows of such values later. So a column that fails is
    checked again as a type that allows all values. An invalid value inside a list, struct or map is an error of the
    file.
    """
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if not is_checked(column.type):
            continue
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            try:
                column.view(_stored_type(column.type)).validate(full=True)
            except pa.ArrowInvalid:
                raise pa.ArrowInvalid(f'column "{name}": {error}') from error


def _stored_type(kind: Any) -> Any:
    """Return the type that has the same buffers and allows all values, for example binary for string."""
    if types.is_string(kind):
        return pa.binary()
    if types.is_large_string(kind):
        return pa.large_binary()
    if types.is_string_view(kind):
        return pa.binary_view()
    if types.is_date64(kind) or types.is_time64(kind):
        return pa.int64()
    if types.is_time32(kind):
        return pa.int32()
    return pa.binary(kind.byte_width) if types.is_decimal(kind) else kind


def find_nanoseconds(nanoseconds: Any, microseconds: Any) -> int | None:
    """Return the first row with a timestamp that microseconds cannot store, or None.

    Both arrays are the same INT96 column: one was read in nanoseconds, the other in microseconds.
    """
    import pyarrow.compute as pc  # noqa: PLC0415 (40 ms)

    if nanoseconds.type == microseconds.type:
        return None
    if types.is_timestamp(nanoseconds.type):
        # These functions do not check for overflow. The low 64 bits of the results are enough for the comparison.
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
    """Return the row of an array that contains the part with index `part` of its flattened values."""
    if types.is_struct(array.type):
        return part
    import pyarrow.compute as pc  # noqa: PLC0415 (40 ms)

    lengths = pc.subtract(array.offsets[1:], array.offsets[:-1]) if types.is_map(array.type) else array.value_lengths()
    return bisect_right(pc.cumulative_sum(pc.fill_null(lengths, 0)).to_pylist(), part)
