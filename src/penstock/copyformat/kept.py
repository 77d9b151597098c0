"""Says which columns may store a value otherwise than it is in a file, without an error. Pure.

The Rust core decides for each value (rust/src/kept.rs). The names of types and their limits are those it takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.model.server.table import Column

# A type's name in the Rust core, and its limit: digits behind the point or of a second, or a length.
KeptType = tuple[str, int]

OTHER: Final[KeptType] = ("other", -1)
# By pg_type.oid (pg_type.dat). Domains have oids of their own, and are not checked.
_NAMES: Final = {
    20: "integer",
    21: "integer",
    23: "integer",
    700: "float4",
    701: "float8",
    1043: "varchar",
    1082: "date",
    1083: "time",
    1114: "timestamp",
    1184: "timestamptz",
    1266: "timetz",
    1700: "numeric",
}
_NO_SCALE: Final = 2**31 - 1
# VARHDRSZ, which is part of the modifiers of character varying and numeric (varchar.c, numeric.c)
_HEADER: Final = 4


def find_kept_type(column: Column | None) -> KeptType:
    """Return how the Rust core knows the type of a column, OTHER if it changes no value.

    >>> find_kept_type(Column(name="a", type_name="numeric(10,2)", type_oid=1700, type_modifier=(10 << 16 | 2) + 4))
    ('numeric', 2)
    """
    if column is None or column.type_oid not in _NAMES:
        return OTHER
    name, modifier = _NAMES[column.type_oid], column.type_modifier
    if name == "numeric":
        return name, _NO_SCALE if modifier < 0 else _find_scale(modifier)
    if name == "varchar":
        return (name, modifier - _HEADER) if modifier >= 0 else OTHER
    return name, modifier


def find_kept_types(columns: Sequence[Column | None]) -> tuple[KeptType, ...]:
    """Return how the Rust core knows the types of columns, () if none of them changes a value."""
    found = tuple(map(find_kept_type, columns))
    return () if all(each == OTHER for each in found) else found


def _find_scale(modifier: int) -> int:
    """Return the scale of a numeric, 11 bits that are negative from 1024 on (numeric_typmod_scale in numeric.c).

    >>> _find_scale((10 << 16 | 2) + 4), _find_scale((5 << 16 | (-3 & 0x7FF)) + 4)
    (2, -3)
    """
    return ((modifier - _HEADER & 0x7FF) ^ 1024) - 1024
