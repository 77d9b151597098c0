"""A program that reads damaged columnar files: `flips.py FORMAT FIRST LAST`. Its exit code says whether one ended it.

Each number is a file in which some bytes are changed, added or taken away. It is read as a load reads it.
"""

from __future__ import annotations

import io
import random
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from penstock._native import RecordError
from penstock.core.errors import PenstockError
from penstock.loading.files.columnar.reader import ColumnarFile, RangedFile, SentColumn

_ROWS = 120


class StoredBytes:
    """An object that is in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read_at(self, start: int, length_bytes: int) -> bytes:
        """Return the stored bytes from `start`."""
        return self._data[start : start + length_bytes]

    def close(self) -> None:
        """Do nothing."""


def open_bytes(data: bytes, file_format: Any) -> ColumnarFile:
    """Return the reader of a columnar file that is in memory."""
    return ColumnarFile(RangedFile(StoredBytes(data), size_bytes=len(data)), file_format, uri="f")


def read_rows(opened: ColumnarFile, fields: Any, *, is_binary: bool, first: int = 0, stop: int | None = None) -> bytes:
    """Return rows with the columns of these fields, as they are sent to columns of the types that --create chooses."""
    sent = [SentColumn(field.name, field.sql_type, field.sql_type) for field in fields]
    if is_binary and not all(map(opened.fits_binary, sent)):
        return b""
    ranges = [(first, opened.rows if stop is None else stop)]
    return b"".join(rows.data for rows in opened.read(sent, ranges, is_binary=is_binary, rejects=not is_binary))


def change_bytes(path: Path, old: bytes, new: bytes) -> Path:
    """Change bytes that a file has once into as many others."""
    data = path.read_bytes()
    assert (data.count(old), len(old)) == (1, len(new))
    path.write_bytes(data.replace(old, new))
    return path


def make_table() -> pa.Table:
    """Return some rows of types whose values have offsets, indices, views and runs."""
    rng = random.Random(0)

    def values(make: Any) -> list[Any]:
        return [None if rng.random() < 0.1 else make() for _ in range(_ROWS)]

    texts = values(lambda: "x" * rng.randrange(20))
    lists = values(lambda: [rng.choice([None, 1, 2]) for _ in range(rng.randrange(4))])
    numbers = pa.array(values(lambda: rng.randrange(3)))
    columns = {
        "i": numbers,
        "s": pa.array(texts),
        "d": pa.array(values(lambda: rng.choice("abc"))).dictionary_encode(),
        "l": pa.array(lists),
        "t": pa.array(values(lambda: {"a": 1, "b": ["x", "yy"]})),
        "m": pa.array(values(lambda: [("k", 1), ("j", None)]), pa.map_(pa.string(), pa.int32())),
        "b": pa.array(values(lambda: rng.randbytes(5))),
        "u": pa.array(values(lambda: rng.randbytes(16)), pa.binary(16)),
    }
    return pa.table(columns)


def make_file(file_format: str) -> bytes:
    """Return a file of these rows; an Arrow file has views and runs as well."""
    table, out = make_table(), io.BytesIO()
    if file_format == "parquet":
        pq.write_table(table, out, row_group_size=50)
        return out.getvalue()
    table = table.append_column("sv", table["s"].cast(pa.string_view()))
    table = table.append_column("bv", table["b"].cast(pa.binary_view()))
    table = table.append_column("lv", pa.array(table["l"].to_pylist(), pa.list_view(pa.int64())))
    table = table.append_column("r", pa.compute.run_end_encode(table["i"].combine_chunks()))
    with pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table, 50)
    return out.getvalue()


def damage(data: bytes, rng: random.Random) -> bytes:
    """Return a file with one to four changes, most of them in what describes it or in a whole number."""
    found = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        at = rng.randrange(len(found)) if rng.random() < 0.6 else len(found) - 1 - rng.randrange(len(found) // 3)
        kind = rng.randrange(4)
        if kind == 0:
            found[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            found[at] = rng.choice([0, 1, 127, 128, 255])
        elif kind == 2:
            found[at : at + 4] = rng.choice([2**32 - 1, 2**31 - 1, 2**31, rng.randrange(2**32)]).to_bytes(4, "little")
        elif rng.random() < 0.5:
            del found[at : at + rng.randrange(1, 9)]
        else:
            found[at:at] = rng.randbytes(rng.randrange(1, 9))
    return bytes(found)


def read(data: bytes, file_format: str) -> None:
    """Write all rows that can be loaded, in both formats of COPY. Raises PenstockError, RecordError."""
    opened = open_bytes(data, file_format)
    fields = [field for field in opened.describe().fields if field.sql_type is not None]
    if not fields or len({field.name for field in fields}) < len(fields):
        return
    read_rows(opened, fields, is_binary=False)
    for field in fields:
        read_rows(opened, [field], is_binary=True)


def main(file_format: str, first: int, last: int) -> None:
    """Read damaged files; print each one's number before."""
    data = make_file(file_format)
    read(data, file_format)
    for number in range(first, last):
        print(number, flush=True)
        try:
            read(damage(data, random.Random(number)), file_format)
        except (PenstockError, RecordError):
            continue


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
