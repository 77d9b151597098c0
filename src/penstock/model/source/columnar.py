"""Values of columnar files (Parquet, Arrow IPC): their columns, and the types that PostgreSQL has for these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ColumnarFormat = Literal["parquet", "arrow"]

# What the formats are called in messages, and what their parts are called.
FORMAT_NAMES: dict[ColumnarFormat, str] = {"parquet": "Parquet", "arrow": "Arrow"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnarField:
    """One column of a columnar file.

    `type_name` is the type's name in Arrow, `sql_type` the type of a column that is created for it, None if penstock
    cannot load values of this type.
    """

    name: str
    type_name: str
    sql_type: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
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
