"""When the encoder of an object gives up, and what a row saves by the cost model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.core.values.dialect import Dialect
from penstock.core.values.table import Column, ColumnMap, TableName
from penstock.loading.copy.encoded import (
    GAINS,
    KINDS,
    EncodedBlocks,
    find_obstacle,
    gain_per_row,
    gains_of,
    make_binary,
)
from penstock.loading.copy.payload import make_encoder as make_text_encoder
from penstock.loading.values.objects import Block

_CSV = Dialect(format="csv", delimiter=",", quote='"', escape='"', nulls=("",), has_header=False, encoding="UTF8")


def make_encoder(notation: str | None = None, *, type_oid: int = 23) -> EncodedBlocks:
    """Return the encoder of an object with one column of a type, by default of integers."""
    column = Column(name="n", type_name="", type_oid=type_oid)
    column_map = ColumnMap(columns=("n",), field_count=1, notations=(notation,) if notation else ())
    text = make_text_encoder(_CSV, column_map, table=TableName(schema="s", name="t"), encoding="UTF8")
    made = make_binary(_CSV, column_map, [column], text)
    assert made is not None
    return made


def block(data: bytes) -> Block:
    """Return a block of one record."""
    return Block(
        segments=((data, 0, len(data)),),
        start=0,
        end=len(data),
        first_line=1,
        lines=1,
        server_lines=1,
        records=1,
        line_end="lf",
        stray_backslashes=0,
        is_unended=False,
    )


_GOOD, _ODD = block(b"1\n"), block(b"+1\n")


@pytest.mark.parametrize(
    ("blocks", "is_active"),
    [
        ("oo", True),
        ("ooo", False),
        ("ogogo", False),
        ("o" + "g" * 9 + "o" + "g" * 9 + "o" + "g" * 9, False),
        ("o" + "g" * 16 + "o" + "g" * 16 + "o" + "g" * 16, True),
        ("g" * 40 + "ogog" + "o", True),
    ],
)
def test_the_rest_goes_as_text_after_three_blocks_in_a_row_or_a_tenth(blocks: str, is_active: bool) -> None:
    """Blocks that are encoded (g) and that decline (o)."""
    encoder = make_encoder()
    for each in blocks:
        assert (encoder.encode(_GOOD if each == "g" else _ODD) is None) == (each == "o" or not encoder.is_active)
    assert encoder.is_active == is_active
    assert (encoder.encode(_GOOD) is not None) == is_active


def test_a_block_with_another_number_of_records_declines() -> None:
    """The cutter and the encoder must agree on where records end."""
    assert make_encoder().encode(block(b"1\n2\n")) is None


def test_values_in_a_notation_are_encoded_plain() -> None:
    """What another notation has, declines."""
    plain = make_encoder(type_oid=1082).encode(block(b"2026-01-31\n"))
    assert make_encoder("dmy", type_oid=1082).encode(block(b"31.1.26\n")) == plain
    assert make_encoder("dmy", type_oid=1082).encode(block(b"2026-01-31\n")) is None


def test_tsv_with_values_in_a_notation_goes_as_text() -> None:
    r"""Rewritten, its texts have the escapes of COPY text: C:\Users would be stored with two backslashes."""
    tsv = replace(_CSV, format="tsv", delimiter="\t", quote=None, escape=None)
    columns = [Column(name="day", type_name="", type_oid=1082), Column(name="path", type_name="", type_oid=25)]
    plain = ColumnMap(columns=("day", "path"), field_count=2)
    assert find_obstacle(tsv, plain, columns) is None
    obstacle = find_obstacle(tsv, replace(plain, notations=("dmy", None)), columns)
    assert obstacle == "values of tsv are in another notation"


def test_the_command_says_the_types_that_rows_are_encoded_for() -> None:
    """Blocks encoded for other types never share a command with them."""
    assert (make_encoder().spec.format, make_encoder().spec.type_oids) == ("binary", (23,))


def test_a_gain_is_known_for_each_kind() -> None:
    """Texts by their width, all others by the kind."""
    for gains in GAINS.values():
        assert set(KINDS.values()) == {*gains.by_kind, "text"}


@pytest.mark.parametrize(("major", "first"), [(14, 14), (18, 14), (19, 19), (20, 19)])
def test_gains_are_those_of_the_server(major: int, first: int) -> None:
    """A new version is taken for the last one that was measured."""
    assert gains_of(major) is GAINS[first]


@pytest.mark.parametrize(("major", "expected"), [(18, [-24, -24, -10, 29, 358]), (19, [-25, -24, -21, -14, 43])])
def test_wide_texts_gain_and_short_ones_lose(major: int, expected: list[int]) -> None:
    """By what was measured for each width."""
    widths = (0, 4, 12, 32, 200)
    gains = [gain_per_row([25], [(10, 10 * width)], records=10, gains=gains_of(major)) for width in widths]
    assert [round(gain) for gain in gains] == expected
