"""Encodes blocks of text before they are sent: in COPY's binary format, or as csv that has no quotes.

Both forms save work of the server, which stores the same rows as from the text. A block that an encoder declines is
sent as text, in a COPY command of its own. Which encoder a table has is decided in send/formats.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from penstock import _native
from penstock.core.slotted import slotted
from penstock.core.values.dialect import Dialect
from penstock.core.values.table import Column, ColumnMap
from penstock.loading.copy.payload import Encoder, find_kept_type
from penstock.loading.values.objects import Block, CopySpec

# The encoder's kind for each type, by pg_type.oid. Domains and enums have other oids, and are sent as text. Source:
# pg_type.dat; tests/loading/copy/test_binary_types.py compares the oids with pg_type on every version.
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


@slotted
class GivingUp:
    """When to send the rest of an object as text: after how many blocks that the encoder declines.

    Each declined block needs a COPY command of its own.
    """

    declined_in_a_row: int = 3
    # The encoder gives up after `declined_in_a_row` declined blocks, if they follow each other, or if at least one in
    # this many blocks was declined.
    blocks_per_declined: int = 10


class EncodedBlocks:
    """Encodes the blocks of one object in COPY's binary format, or as csv without quotes.

    `spec` describes the COPY command of the encoded blocks. A block for which `encode` returns None must be sent as
    text. After too many blocks that cannot be encoded, `encode` returns None for all others (see GivingUp).

    Sessions share the encoder without a lock. A block may then be counted twice, or not at all. This only changes when
    the encoder gives up.
    """

    def __init__(
        self,
        encode: Callable[[Block], bytes | None],
        spec: CopySpec,
        *,
        rule: GivingUp | None = None,
        # The byte with which encoding begins. Blocks are sent as text until one contains this byte. All later blocks
        # are encoded, because a change between text and encoded blocks costs a COPY command.
        awaited: bytes = b"",
    ) -> None:
        self.spec = spec
        self.is_active = True
        self.encoded = 0
        self.declined = 0
        self._in_a_row = 0
        self._encode = encode
        self._rule = rule if rule is not None else GivingUp()
        self._awaited = awaited

    @property
    def is_expected(self) -> bool:
        """Return whether the next block will probably be encoded, and not declined."""
        return self.is_active and not self._awaited

    def encode(self, block: Block) -> bytes | None:
        """Return a block's rows in the format of `spec`, or None if the block must be sent as text."""
        if not self.is_active or block.fault is not None:
            return None
        if self._awaited:
            if not any(buffer.find(self._awaited, start, end) >= 0 for buffer, start, end in block.segments):
                return None
            self._awaited = b""
        rows = self._encode(block)
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
    dialect: Dialect, column_map: ColumnMap, columns: Sequence[Column | None], encoder: Encoder
) -> EncodedBlocks | None:
    """Return what encodes an object's blocks in the binary format, or None if the blocks must be sent as text.

    `columns` are the columns that the payload fills, in its order; None stands for an unknown one. `encoder` encodes
    the same blocks as text.
    """
    if find_obstacle(dialect, column_map, columns) is not None:
        return None
    known = [column for column in columns if column is not None]
    native = make_native(dialect, known)
    spec = replace(encoder.spec, format="binary", type_oids=tuple(column.type_oid for column in known))
    if not column_map.notations:
        return EncodedBlocks(lambda block: native.encode(block.segments, block.line_end, block.records), spec)

    def encode_plain(block: Block) -> bytes | None:
        try:
            plain = encoder.rewriter.rewrite(block.segments, block.line_end)
        except _native.RecordError:
            # The block is then encoded as text, which raises the error with the record's position.
            return None
        return native.encode([(plain, 0, len(plain))], "lf", block.records)

    return EncodedBlocks(encode_plain, spec)


# The delimiter, the quote and the null of csv without quotes: control characters, which text hardly has.
_MARKS: Final = "\x1f\x1e\x1d"


def make_plain(dialect: Dialect, column_map: ColumnMap, encoder: Encoder) -> EncodedBlocks | None:
    """Return what writes an object's blocks as csv without quotes, or None if the blocks must be sent as text.

    `encoder` encodes the same blocks as text. Blocks are sent as text until one contains a quote or, in formats text
    and tsv, a backslash.
    """
    delimiter, quote, null = _MARKS
    spec, rewriter = encoder.spec, encoder.rewriter
    if find_plain_obstacle(dialect, column_map) is not None or not isinstance(rewriter, _native.Rewriter):
        return None
    marks, width = _MARKS.encode(), len(spec.columns)
    return EncodedBlocks(
        lambda block: rewriter.write_plain(block.segments, block.line_end, block.records, marks=marks, columns=width),
        replace(spec, format="csv", delimiter=delimiter, quote=quote, escape=quote, null=null),
        awaited=b"\\" if dialect.quote is None else dialect.quote.encode(),
    )


def make_native(dialect: Dialect, columns: Sequence[Column]) -> _native.BinaryEncoder:
    """Return the Rust encoder for columns for which `find_obstacle` finds none.

    It declines a block if a column would store one of its values differently.
    """
    return _native.BinaryEncoder(
        format=dialect.format,
        delimiter=dialect.delimiter.encode(),
        quote=None if dialect.quote is None else dialect.quote.encode(),
        null=dialect.nulls[0].encode(),
        kinds=[KINDS[column.type_oid] for column in columns],
        column_types=[find_kept_type(column) for column in columns],
    )


def find_obstacle(dialect: Dialect, column_map: ColumnMap, columns: Sequence[Column | None]) -> str | None:
    """Return why records cannot be encoded in the binary format for these columns, or None if they can.

    A record is encoded only if each of its fields fills one column: no field is skipped or added.
    """
    for column in columns:
        if column is None or column.type_oid not in KINDS:
            named = (
                "a column that is not known" if column is None else f'column "{column.name}", type {column.type_name}'
            )
            return f"{named}, has no binary encoder"
    obstacles = (
        *_find_common_obstacles(dialect, column_map),
        ("columns of the files are skipped", column_map.keep is not None),
        ("an empty field behind the last one is dropped", column_map.ends_empty),
        # The rewriter writes such values as COPY text, with the escapes of that format.
        ("values of tsv are in another notation", dialect.format == "tsv" and bool(column_map.notations)),
        ("there are several null strings (--null)", len(dialect.nulls) != 1),
        ("the null string is not \\N and has a backslash", _has_odd_null(dialect)),
        ("quote and escape of the files differ", dialect.quote != dialect.escape),
        ("the files are not in UTF8", dialect.encoding != "UTF8"),
    )
    return next((words for words, is_so in obstacles if is_so), None)


def find_plain_obstacle(dialect: Dialect, column_map: ColumnMap) -> str | None:
    """Return why records cannot be written as csv without quotes, or None if they can."""
    obstacles = (
        *_find_common_obstacles(dialect, column_map),
        ("values are written in another notation", bool(column_map.notations)),
    )
    return next((words for words, is_so in obstacles if is_so), None)


def _find_common_obstacles(dialect: Dialect, column_map: ColumnMap) -> tuple[tuple[str, bool], ...]:
    return (
        ("there are no columns", not column_map.columns),
        ("records are JSON Lines", column_map.names is not None),
        ("values of --set go as text", bool(column_map.constants)),
        ("quoted fields may be null (--force-null)", bool(dialect.force_null)),
    )


def _has_odd_null(dialect: Dialect) -> bool:
    return dialect.format == "text" and "\\" in dialect.nulls[0] and dialect.nulls[0] != "\\N"


@slotted
class CellGains:
    """How many ns a value saves if it is sent in the binary format and not as text.

    A gain is the time that the server saves minus the time of the encoder. A null saves nothing. The figures depend on
    the machine's speed, but their signs hardly do.
    """

    # The gain of each kind whose gain does not depend on the width.
    by_kind: Mapping[str, float]
    # The gain of a text is `text_ns_per_byte` for each byte, because the server need not read each byte, minus
    # `text_ns`, because it must read the length. The gain is at least `least_text_ns`. The figures describe the line
    # through the gains of texts of 12 and 200 bytes.
    text_ns: float
    text_ns_per_byte: float
    least_text_ns: float


# The gains by the first version of PostgreSQL that they are about. The gains of 14 are medians of several runs of
# benchmarks/copy_format.py (PostgreSQL 18, 2 sessions). The gains of 19 are from its record of 2026-11-27 (19~rc1). The
# gains of texts on 19 are the line through -14 ns at 32 bytes and 43 ns at 200 bytes. The 43 ns were measured over
# whole processes.
GAINS: Final = {
    14: CellGains(
        by_kind={
            "bool": 12.0,
            "int2": 0.0,
            "int4": 23.0,
            "numeric": -3.0,
            "int8": 45.0,
            "float4": 33.0,
            "float8": 120.0,
            "date": 110.0,
            "timestamp": 292.0,
            "timestamptz": 286.0,
            "uuid": 392.0,
        },
        text_ns=33.5,
        text_ns_per_byte=1.96,
        least_text_ns=-24.0,
    ),
    19: CellGains(
        by_kind={
            "bool": -34.0,
            "int2": 12.0,
            "int4": 10.0,
            "numeric": -53.0,
            "int8": 15.0,
            "float4": 11.0,
            "float8": 113.0,
            "date": 98.0,
            "timestamp": 247.0,
            "timestamptz": 221.0,
            "uuid": 293.0,
        },
        text_ns=25.0,
        text_ns_per_byte=0.34,
        least_text_ns=-25.0,
    ),
}


def gains_of(major: int) -> CellGains:
    """Return the gains of values on a server of a major version."""
    return GAINS[max(first for first in GAINS if first <= max(major, min(GAINS)))]


def gain_per_row(oids: Sequence[int], widths: Sequence[tuple[int, int]], *, records: int, gains: CellGains) -> float:
    """Return how many ns a row saves on average if it is sent in the binary format.

    `oids` are the types of the columns. `widths` has, for each column, the number of values that are not null, and
    their total bytes. `records` is the number of records in which these were counted.

    >>> round(gain_per_row([23, 25], [(10, 40), (5, 50)], records=10, gains=GAINS[14]), 2)
    16.05
    """
    return sum(_gain(oid, *width, gains) for oid, width in zip(oids, widths, strict=True)) / max(records, 1)


def _gain(oid: int, values: int, length_bytes: int, gains: CellGains) -> float:
    kind = KINDS[oid]
    if kind != "text":
        return values * gains.by_kind[kind]
    return max(values * gains.least_text_ns, length_bytes * gains.text_ns_per_byte - values * gains.text_ns)
