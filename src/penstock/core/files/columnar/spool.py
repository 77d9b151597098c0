"""Copies a table in memory (anything with the Arrow C stream interface) to an Arrow IPC file, which is then loaded."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.ipc

from penstock.core.errors import DataError, FileLocation, PenstockError, SourceError
from penstock.core.files.columnar.types import check_values, has_dictionary, is_view, name_sql_type, plain_array

# A record batch is read as a whole, and polars gives millions of rows in one.
_BATCH_ROWS: Final = 65_536

# How pandas' conversion by pyarrow names the column.
_COLUMN = re.compile("Conversion failed for column (.*) with type")


def write_stream(source: Any, path: Path) -> None:
    """Write the rows of an object with `__arrow_c_stream__` to a new file. Raises DataError, SourceError.

    Dictionaries are decoded: a file may have only one for each column, and a stream many.
    """
    inner: list[str] = []
    try:
        stream = pa.RecordBatchReader.from_stream(source)
        schema = pa.schema([field.with_type(_written(pa.nulls(0, field.type)).type) for field in stream.schema])
        _refuse_nested(schema)
        inner = [field.name for field in schema if has_dictionary(field.type)]
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
            for batch in stream:
                check_values(batch, lambda _: True)
                for start in range(0, batch.num_rows, _BATCH_ROWS):
                    part = batch.slice(start, _BATCH_ROWS)
                    writer.write_batch(pa.record_batch(list(map(_written, part.columns)), schema=schema))
    except (pa.ArrowException, OSError, TypeError, ValueError) as exc:
        # The causes are Arrow's own; what they say is in the message.
        raise _explain(source, exc, inner) from None


def _explain(source: Any, exc: Exception, inner: Sequence[str]) -> PenstockError:
    """Return the error for a table that Arrow does not convert: with the value, if pandas has one of another type.

    `inner` are the columns with dictionaries in their parts, of which a file may have one each.
    """
    reason, kind = str(exc.args[0]) if exc.args else f"{exc}", type(source).__name__
    found = _COLUMN.search(" ".join(map(str, exc.args)))
    if found is None:
        names = ", ".join(f'"{name}"' for name in inner)
        hint = f"If it is about dictionaries, decode those in the values of: {names}." if inner else None
        return SourceError(f"could not copy a table of type {kind} to a temporary file", detail=reason, hint=hint)
    column = found[1]
    row, value = _find_value(source, column)
    where = FileLocation(file=kind, line=row, column=column)
    shown = "" if row is None else f": {value!r:.100}"
    return DataError(
        f'column "{column}" of a table has values of several types',
        detail=f'{kind}{"" if row is None else f" row {row}"}, column "{column}"{shown}. {reason}',
        hint=f"Give all values of the column one type, as by frame[{column!r}].astype(str).",
        location=where,
    )


def _find_value(source: Any, column: str) -> tuple[int | None, object]:
    """Return the number of the first row, from 1, whose value does not fit those before it, and the value."""
    try:
        values = list(source[column])
    except (KeyError, TypeError, ValueError):
        return None, None
    first = bisect_left(range(len(values) + 1), True, key=lambda count: not _fits(values[:count]))
    return (first, values[first - 1]) if 0 < first <= len(values) else (None, None)


def _fits(values: Sequence[object]) -> bool:
    try:
        pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False
    return True


def _refuse_nested(schema: Any) -> None:
    """Raise SourceError for dictionaries of dictionaries, which pyarrow writes as other values."""
    for field in schema:
        if has_dictionary(field.type) and name_sql_type(field.type) is None:
            raise SourceError(f'column "{field.name}" has type {field.type}, which cannot be loaded')


def _written(array: Any) -> Any:
    return plain_array(array) if pa.types.is_dictionary(array.type) or is_view(array.type) else array
