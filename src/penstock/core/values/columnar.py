"""Values of columnar files (Parquet, Arrow IPC): their columns, with the types that PostgreSQL has for these."""

from __future__ import annotations

from typing import Literal

from penstock.core.frozen import frozen

ColumnarFormat = Literal["parquet", "arrow"]

# What the formats are called in messages, and what their parts are called.
FORMAT_NAMES: dict[ColumnarFormat, str] = {"parquet": "Parquet", "arrow": "Arrow"}


@frozen
class ColumnarField:
    """One column of a columnar file.

    `type_name` is the type's name in Arrow, `sql_type` the type of a column that is created for it, None if penstock
    cannot load values of this type. `is_untold`: the file does not say whether the values are texts or bytes.
    """

    name: str
    type_name: str
    sql_type: str | None
    is_untold: bool = False


@frozen
class ColumnarSample:
    """What the footer of a columnar file says, and how long its rows are as COPY text.

    `parts` is the number of its row groups (Parquet) or record batches (Arrow). `row_bytes` is the length of a row as
    text, on average over the first ones, 0 for a file without rows.
    """

    format: ColumnarFormat
    fields: tuple[ColumnarField, ...]
    rows: int
    parts: int
    row_bytes: float

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the columns, in the file's order."""
        return tuple(field.name for field in self.fields)

    @property
    def text_bytes(self) -> float:
        """Return the expected length of all rows as COPY text."""
        return self.rows * self.row_bytes
