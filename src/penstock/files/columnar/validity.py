"""Checks that what is decoded refers to nothing beyond its buffers: offsets, indices of dictionaries, views, runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyarrow import types


def check_values(batch: Any, is_checked: Callable[[Any], bool]) -> None:
    """Raise pyarrow.ArrowInvalid if a column of a batch is damaged; `is_checked` says which types are looked at.

    pyarrow's full validation also refuses values that the row with them is refused or rejected for later: texts that
    are not UTF-8, times that are not of a day, dates that are not days. So a column that fails is looked at once more,
    as what it is stored as. Such values in lists, structs and maps are an error of the file.
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
    """Return a type without rules for its values, of the same buffers."""
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
