"""Values of columnar files (Parquet, Arrow IPC): their columns, each with its PostgreSQL type."""

from __future__ import annotations

from typing import Literal

from penstock.core.frozen import frozen

ColumnarFormat = Literal["parquet", "arrow"]

# The names of the formats and of their parts in messages.
FORMAT_NAMES: dict[ColumnarFormat, str] = {"parquet": "Parquet", "arrow": "Arrow"}


@frozen
class ColumnarField:
    """One column of a columnar file."""

    name: str
    # The type's name in Arrow.
    type_name: str
    # The type of a column that is created for it, None if penstock cannot load values of this type.
    sql_type: str | None
    # Whether the file does not say if the values are texts or bytes.
    is_untold: bool = False


@frozen
class ColumnarSample:
    """The columns and the size of a columnar file, from its footer."""

    format: ColumnarFormat
    fields: tuple[ColumnarField, ...]
    rows: int
    # The number of row groups (Parquet) or record batches (Arrow).
    parts: int
    # The mean length of a row as COPY text, 0 for a file without rows.
    row_bytes: float

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the columns, in the file's order."""
        return tuple(field.name for field in self.fields)

    @property
    def text_bytes(self) -> float:
        """Return the expected length of all rows as COPY text."""
        return self.rows * self.row_bytes
