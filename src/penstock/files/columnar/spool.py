"""Copies a table in memory (anything with the Arrow C stream interface) to an Arrow IPC file, which is then loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.ipc

from penstock.errors import SourceError
from penstock.files.columnar.arrays import plain_array
from penstock.files.columnar.types import plain_type

# A record batch is read as a whole, and polars gives millions of rows in one.
_BATCH_ROWS: Final = 65_536


def write_stream(source: Any, path: Path) -> None:
    """Write the rows of an object with `__arrow_c_stream__` to a new file. Raises SourceError.

    Dictionaries are decoded: a file may have only one for each column, and a stream many.
    """
    try:
        stream = pa.RecordBatchReader.from_stream(source)
        schema = pa.schema([field.with_type(_written_type(field.type)) for field in stream.schema])
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
            for batch in stream:
                for start in range(0, batch.num_rows, _BATCH_ROWS):
                    part = batch.slice(start, _BATCH_ROWS)
                    writer.write_batch(pa.record_batch(list(map(_written, part.columns)), schema=schema))
    except (pa.ArrowException, OSError, TypeError, ValueError) as exc:
        raise SourceError(
            f"could not copy a table of type {type(source).__name__} to a temporary file", detail=f"{exc}"
        ) from exc


def _written_type(kind: Any) -> Any:
    decoded = plain_type(kind) if pa.types.is_dictionary(kind) else kind
    return pa.string() if pa.types.is_string_view(decoded) else decoded


def _written(array: Any) -> Any:
    return (plain_array(array) if pa.types.is_dictionary(array.type) else array).cast(_written_type(array.type))
