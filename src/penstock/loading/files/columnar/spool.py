"""Copies a table in memory (anything with the Arrow C stream interface) to an Arrow IPC file, which is then loaded."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.ipc

from penstock.core.errors import PenstockError, SourceError
from penstock.loading.files.columnar.frames import find_refused, plain_frame, refuse_values
from penstock.loading.files.columnar.types import check_values, has_dictionary, is_view, name_sql_type, plain_array

# The most rows of a record batch in the copy. A record batch is read into memory as a whole, and polars makes batches
# of millions of rows.
_BATCH_ROWS: Final = 65_536

# Finds the column's name in the error of a failed conversion from pandas.
_COLUMN = re.compile("Conversion failed for column (.*) with type")


def write_stream(source: Any, path: Path, *, joins_levels: bool = False) -> None:
    """Write the rows of an object with `__arrow_c_stream__` to a new file. Raises DataError, SourceError.

    `joins_levels` is about names of columns in several levels (see `plain_frame`). Columns with dictionaries are
    decoded, because a stream may have many dictionaries for a column and a file only one.
    """
    inner: list[str] = []
    source = plain_frame(source, joins_levels=joins_levels)
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
    except (pa.ArrowException, OSError, OverflowError, TypeError, ValueError) as exc:
        # Arrow's own errors are not attached as causes, because the message quotes them.
        raise _explain(source, exc, inner) from None


def _explain(source: Any, exc: Exception, inner: Sequence[str]) -> PenstockError:
    """Return the error for a table that Arrow cannot convert. If it is about a column of pandas, it names the value.

    `inner` are the columns with dictionaries inside lists, structs or maps, which are not decoded.
    """
    reason, kind = str(exc.args[0]) if exc.args else f"{exc}", type(source).__name__
    named = _COLUMN.search(" ".join(map(str, exc.args)))
    column = find_refused(source) if named is None else named[1]
    if column is not None:
        return refuse_values(source, column, reason)
    names = ", ".join(f'"{name}"' for name in inner)
    hint = f"If it is about dictionaries, decode those in the values of: {names}." if inner else None
    if hasattr(source, "to_frame"):
        hint = f"A {kind} is one column: load its to_frame()."
    return SourceError(f"could not copy a table of type {kind} to a temporary file", detail=reason, hint=hint)


def _refuse_nested(schema: Any) -> None:
    """Raise SourceError for dictionaries of dictionaries, which pyarrow writes as other values."""
    for field in schema:
        if has_dictionary(field.type) and name_sql_type(field.type) is None:
            raise SourceError(f'column "{field.name}" has type {field.type}, which cannot be loaded')


def _written(array: Any) -> Any:
    return plain_array(array) if pa.types.is_dictionary(array.type) or is_view(array.type) else array
