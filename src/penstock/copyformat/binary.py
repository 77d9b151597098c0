"""Encodes blocks of text in COPY's binary format, and says which tables and files allow it. Pure.

The Rust encoder takes a block only if each value is in a form whose meaning depends on no setting; the others go as
text. docs/copy-format.md lists the types and the forms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from penstock import _native
from penstock.copyformat.kept import find_kept_type
from penstock.frozen import frozen
from penstock.model.server.table import Column, ColumnMap
from penstock.model.source.block import Block, CopySpec
from penstock.model.source.dialect import Dialect

# The encoder's kind of each type, by pg_type.oid. Domains and enums have other oids, and go as text.
# Source: pg_type.dat; tests/server/test_binary_types.py compares it to pg_type on every version.
KINDS: Final = {
    16: "bool",
    20: "int8",
    21: "int2",
    23: "int4",
    25: "text",
    700: "float4",
    701: "float8",
    1042: "text",
    1043: "text",
    1082: "date",
    1114: "timestamp",
    1184: "timestamptz",
    1700: "numeric",
    2950: "uuid",
}


@frozen
class GivingUp:
    """When the rest of an object goes as text: each block that declines costs a COPY command of its own."""

    declined_in_a_row: int = 3
    # At least `declined_in_a_row` blocks, and one of so many blocks.
    blocks_per_declined: int = 10


class BinaryBlocks:
    """Encodes the blocks of one object, until too many of them decline; `spec` is the COPY command's.

    Sessions share it without a lock: a block that is counted twice, or not, changes only when the encoder gives up.
    """

    def __init__(self, encoder: _native.BinaryEncoder, spec: CopySpec, rule: GivingUp) -> None:
        self.spec = spec
        self.is_active = True
        self.encoded = 0
        self.declined = 0
        self._in_a_row = 0
        self._encoder = encoder
        self._rule = rule

    def encode(self, block: Block) -> bytes | None:
        """Return a block's rows, None if it must go as text."""
        if not self.is_active or block.fault is not None:
            return None
        rows = self._encoder.encode(block.segments, block.line_end, block.records)
        if rows is not None:
            self.encoded += 1
            self._in_a_row = 0
            return rows
        self.declined += 1
        self._in_a_row += 1
        least, share = self._rule.declined_in_a_row, self._rule.blocks_per_declined
        is_frequent = self.declined >= least and self.declined * share >= self.declined + self.encoded
        self.is_active = self._in_a_row < least and not is_frequent
        return None


def make_binary(
    dialect: Dialect,
    column_map: ColumnMap,
    columns: Sequence[Column | None],
    spec: CopySpec,
    *,
    rule: GivingUp | None = None,
) -> BinaryBlocks | None:
    """Return the encoder of an object's blocks, None if they must go as text; `spec` is that of the text."""
    if find_obstacle(dialect, column_map, columns) is not None:
        return None
    known = [column for column in columns if column is not None]
    return BinaryBlocks(
        make_native(dialect, known),
        replace(spec, format="binary", type_oids=tuple(column.type_oid for column in known)),
        rule if rule is not None else GivingUp(),
    )


def make_native(dialect: Dialect, columns: Sequence[Column]) -> _native.BinaryEncoder:
    """Return the Rust encoder for columns, which must have no obstacle. It declines values that they do not keep."""
    return _native.BinaryEncoder(
        format=dialect.format,
        delimiter=dialect.delimiter.encode(),
        quote=None if dialect.quote is None else dialect.quote.encode(),
        null=dialect.nulls[0].encode(),
        kinds=[KINDS[column.type_oid] for column in columns],
        column_types=[find_kept_type(column) for column in columns],
    )


def find_obstacle(dialect: Dialect, column_map: ColumnMap, columns: Sequence[Column | None]) -> str | None:
    """Return why records of a dialect cannot be encoded for columns, None if they can.

    Records are encoded only as they are: nothing is skipped, added or read in two ways.
    """
    for column in columns:
        if column is None or column.type_oid not in KINDS:
            named = (
                "a column that is not known" if column is None else f'column "{column.name}", type {column.type_name}'
            )
            return f"{named}, has no binary encoder"
    obstacles = (
        ("there are no columns", not columns),
        ("records are JSON Lines", column_map.names is not None),
        ("values of --set go as text", bool(column_map.constants)),
        ("columns of the files are skipped (--skip)", column_map.keep is not None),
        ("an empty field behind the last one is dropped", column_map.ends_empty),
        ("there are several null strings (--null)", len(dialect.nulls) != 1),
        ("the null string is not \\N and has a backslash", _has_odd_null(dialect)),
        ("quoted fields may be null (--force-null)", bool(dialect.force_null)),
        ("quote and escape of the files differ", dialect.quote != dialect.escape),
        ("the files are not in UTF8", dialect.encoding != "UTF8"),
    )
    return next((words for words, is_so in obstacles if is_so), None)


def _has_odd_null(dialect: Dialect) -> bool:
    return dialect.format == "text" and "\\" in dialect.nulls[0] and dialect.nulls[0] != "\\N"
