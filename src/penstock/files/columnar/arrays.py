"""Takes the values of an Arrow array out of their encoding, without pyarrow.compute if nothing needs it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import types

from penstock.files.columnar.types import plain_type


def plain_array(array: Any) -> Any:
    """Return the values without their encoding, see types.plain_type."""
    kind = array.type
    if types.is_dictionary(kind):
        if types.is_string_view(kind.value_type):
            # pyarrow cannot take values of such a dictionary.
            array = pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(pa.string()))
        return plain_array(array.dictionary_decode())
    if types.is_run_end_encoded(kind):
        from pyarrow.compute import run_end_decode  # noqa: PLC0415 (40 ms)

        return plain_array(run_end_decode(array))
    if isinstance(kind, pa.BaseExtensionType) and plain_type(kind) != kind:
        return plain_array(array.storage)
    return array


def cast_array(array: Any, kind: Any) -> Any:
    """Return an array with values of another type, which must hold them all."""
    # Array.cast imports pyarrow.compute even if there is nothing to do.
    return array if array.type == kind else array.cast(kind)
