"""Rows of the campaign as Parquet and Arrow files, in row groups of a few kilobytes, with any codec."""

from __future__ import annotations

import io
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from support.campaign.files import Row

COLUMNAR = ("parquet", "arrow")

_CODECS = ("none", "snappy", "gzip", "zstd", "brotli", "lz4")

# A row group becomes one block, whatever its length: so that faults meet many of them.
_GROUP_ROWS = (30, 300)


def write_columnar(form: str, rows: Sequence[Row], rng: random.Random) -> bytes:
    """Return a file of the rows; how it is written is drawn, so a second one has other row groups."""
    table = pa.table(
        {
            # An id that the table's integers do not hold is a bad record.
            "id": pa.array([int(row[0]) for row in rows], pa.int64()),
            "amount": pa.array([None if row[1] is None else Decimal(row[1]) for row in rows], pa.decimal128(12, 2)),
            "note": pa.array([row[2] for row in rows], pa.string()),
        }
    )
    file, group_rows = io.BytesIO(), rng.randrange(*_GROUP_ROWS)
    if form == "arrow":
        codec = rng.choice((None, "lz4", "zstd"))
        with pa.ipc.new_file(file, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
            writer.write_table(table, group_rows)
    else:
        pq.write_table(
            table,
            file,
            row_group_size=group_rows,
            compression=rng.choice(_CODECS),
            use_dictionary=rng.random() < 0.5,
            data_page_version=rng.choice(("1.0", "2.0")),
        )
    return file.getvalue()
