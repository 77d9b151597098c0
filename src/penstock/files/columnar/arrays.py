"""Takes the values of an Arrow array out of their encoding, without pyarrow.compute if nothing needs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
from pyarrow import types

from penstock.files.columnar.types import is_bool8, is_json, is_view, plain_type

_VIEW_BYTES: Final = 16


class TooLong(ValueError):
    """The values of some rows are longer than 2 GiB, or than the free memory."""


@contextmanager
def refusing_length() -> Iterator[None]:
    """Raise TooLong for pyarrow's errors of length."""
    try:
        yield
    except (pa.ArrowCapacityError, pa.ArrowMemoryError) as error:
        raise TooLong(f"{error}") from error


def plain_array(array: Any) -> Any:
    """Return the values without their encoding, see types.plain_type."""
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
    """Return an array with values of another type, which must hold them all."""
    # Array.cast imports pyarrow.compute even if there is nothing to do.
    return array if array.type == kind else array.cast(kind)


def _take(values: Any, indices: Any) -> Any:
    """Return the values at some indices."""
    values = plain_array(values)
    if is_json(values.type):
        texts = plain_array(values.storage).take(indices)
        return pa.ExtensionArray.from_storage(pa.json_(texts.type), texts)
    return values.take(indices)


def _clear_nulls(array: Any) -> Any:
    """Return views of which those of nulls are empty: what they refer to is not checked, and a cast reads it."""
    if not array.null_count:
        return array
    valid, views, *data = array.buffers()
    stored = pa.Array.from_buffers(pa.binary(_VIEW_BYTES), len(array), [valid, views], offset=array.offset)
    cleared = stored.fill_null(bytes(_VIEW_BYTES))
    nulls = array.is_valid().buffers()[1]
    return pa.Array.from_buffers(array.type, len(array), [nulls, cleared.buffers()[1], *data])


def _number_runs(array: Any, first: int, count: int) -> Any:
    """Return for each row the number of its run, from 0; `first` and `count` say which runs the rows are in."""
    import pyarrow.compute as pc  # noqa: PLC0415 (40 ms)

    ends = pc.subtract(array.run_ends.slice(first, count).cast(pa.int64()), array.offset)
    ends = pc.min_element_wise(ends, len(array))
    runs = pa.RunEndEncodedArray.from_arrays(ends, pa.array(range(count), pa.int64()))
    return pc.run_end_decode(runs)
