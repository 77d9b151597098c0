"""Values of columnar files (Parquet, Arrow IPC): their columns, and the types that PostgreSQL has for these."""

from __future__ import annotations

import re
from typing import Final, Literal

from penstock.frozen import frozen

ColumnarFormat = Literal["parquet", "arrow"]

# What the formats are called in messages, and what their parts are called.
FORMAT_NAMES: dict[ColumnarFormat, str] = {"parquet": "Parquet", "arrow": "Arrow"}

# pg_type.oid of the types that columns are created with, and of their arrays (pg_type.dat).
_OIDS: Final = {
    "boolean": (16, 1000),
    "bytea": (17, 1001),
    "bigint": (20, 1016),
    "smallint": (21, 1005),
    "integer": (23, 1007),
    "text": (25, 1009),
    "real": (700, 1021),
    "double precision": (701, 1022),
    "date": (1082, 1182),
    "time without time zone": (1083, 1183),
    "timestamp without time zone": (1114, 1115),
    "timestamp with time zone": (1184, 1185),
    "numeric": (1700, 1231),
    "uuid": (2950, 2951),
    "jsonb": (3802, 3807),
}
_PRECISION: Final = re.compile(r"\((\d+),(\d+)\)")


def identify_type(name: str) -> tuple[int, int]:
    """Return pg_attribute's atttypid and atttypmod of a column that is created with a type.

    >>> identify_type("text"), identify_type("numeric(10,2)[]")
    ((25, -1), (1231, 655366))
    """
    found = _PRECISION.search(name)
    # numerictypmodin in utils/adt/numeric.c
    modifier = -1 if found is None else (int(found[1]) << 16 | int(found[2])) + 4
    scalar, array = _OIDS[_PRECISION.sub("", name).removesuffix("[]")]
    return (array if name.endswith("[]") else scalar, modifier)


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
