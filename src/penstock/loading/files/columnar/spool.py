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
from penstock.loading.files.columnar.types import check_values, has_dictionary, is_view, name_sql_type, plain_array

# The most rows of a record batch in the copy. A record batch is read into memory as a whole, and polars makes batches
# of millions of rows.
_BATCH_ROWS: Final = 65_536

# Finds the column's name in the error of a failed conversion from pandas.
_COLUMN = re.compile("Conversion failed for column (.*) with type")


def write_stream(source: Any, path: Path) -> None:
    """Write the rows of an object with `__arrow_c_stream__` to a new file. Raises DataError, SourceError.

    Columns with dictionaries are decoded, because a stream may have many dictionaries for a column and a file only one.
    """
    inner: list[str] = []
    try:
        stream = pa.RecordBatchReader.from_stream(_with_index(source))
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
        # Arrow's own errors are not attached as causes, because the message quotes them.
        raise _explain(source, exc, inner) from None


def _with_index(source: Any) -> Any:
    """Return a table of pandas with its index as a column, if the stream would leave out an index with a name.

    pandas makes a RangeIndex of an index with the values 1, 2, 3, and streams other indexes only.
    """
    index = getattr(source, "index", None) if hasattr(source, "reset_index") else None
    if index is None or type(index).__name__ != "RangeIndex" or index.name is None:
        return source
    is_copy = index.name in source.columns and index.equals(source.set_index(index.name).index)
    return source if is_copy else source.reset_index()


def _explain(source: Any, exc: Exception, inner: Sequence[str]) -> PenstockError:
    """Return the error for a table that Arrow cannot convert.

    If a pandas column has values of two types, the error names the value.

    `inner` are the columns with dictionaries inside lists, structs or maps, which are not decoded.
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
    """Return the first value with another type than the values before it, and the value's row, counted from 1."""
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
