"""Records on the way to a staging table carry their object and block."""

from __future__ import annotations

import pytest

from penstock._native import RecordError, Rewriter
from penstock.core.catalogue.staging import SENT_COLUMNS
from penstock.core.values.dialect import Dialect, TextFormat
from penstock.core.values.table import ColumnMap, TableName
from penstock.loading.copy.payload import Encoder, make_encoder
from penstock.loading.values.objects import Block, LineEnd

PLAIN = ColumnMap(columns=("a", "b"), field_count=2)


def _encoder(
    file_format: TextFormat,
    column_map: ColumnMap = PLAIN,
    *,
    positions: int | None = 7,
    nulls: tuple[str, ...] = ("\\N",),
) -> Encoder:
    mark = '"' if file_format == "csv" else None
    dialect = Dialect(
        format=file_format, delimiter="|", quote=mark, escape=mark, nulls=nulls, has_header=False, encoding="UTF8"
    )
    table = TableName(schema="s", name="t")
    return make_encoder(dialect, column_map, table=table, encoding="UTF8", positions=positions)


def _payload(encoder: Encoder, data: bytes, *, start: int = 40, line_end: LineEnd = "lf") -> bytes:
    block = Block(
        segments=((data, 0, len(data)),),
        start=start,
        end=start + len(data),
        first_line=1,
        lines=1,
        server_lines=1,
        records=1,
        line_end=line_end,
        stray_backslashes=0,
        is_unended=not data.endswith((b"\n", b"\r")),
    )
    assert encoder.positions is None or not encoder.is_untouched(block)
    return b"".join(encoder.encode(block))


@pytest.mark.parametrize(
    ("file_format", "data", "line_end", "expected"),
    [
        ("csv", b'1|"x\r\ny"\r\n2|', "crlf", b'1|"x\r\ny"|"7"|"40"\n2||"7"|"40"\n'),
        ("text", b"1|\\N\r2|a\\|b\r", "cr", b"1|\\N|7|40\n2|a\\|b|7|40\n"),
        ("tsv", b'1|"\\\n', "lf", b'1|"\\\\|7|40\n'),
    ],
)
def test_each_record_carries_object_and_block(
    file_format: TextFormat, data: bytes, line_end: LineEnd, expected: bytes
) -> None:
    """Whatever ends it, and whatever is in its fields."""
    assert _payload(_encoder(file_format), data, line_end=line_end) == expected


def test_blocks_of_one_encoder_differ_in_their_offset() -> None:
    """The offset is the block's own."""
    encoder = _encoder("text")
    assert [_payload(encoder, b"1|x\n", start=start) for start in (0, 2**40)] == [
        b"1|x|7|0\n",
        b"1|x|7|1099511627776\n",
    ]


def test_positions_stand_behind_constants_in_the_column_list() -> None:
    """Payload and COPY command agree on the order."""
    column_map = ColumnMap(columns=("b", "c"), keep=(1,), constants=("x",), field_count=2)
    encoder = _encoder("text", column_map)
    assert encoder.spec.columns == ("b", "c", *SENT_COLUMNS)
    assert _payload(encoder, b"1|y\n") == b"y|x|7|40\n"


def test_position_that_spells_null_is_no_null() -> None:
    """A file may say 7 for null."""
    assert _payload(_encoder("text", nulls=("7",)), b"7|x\n") == b"7|x|\\067|40\n"


@pytest.mark.parametrize(("record", "found"), [(b"1\n", 1), (b"1|2|3\n", 3)])
def test_field_count_is_that_of_the_file(record: bytes, found: int) -> None:
    """The columns added here must not fill in for a missing field."""
    with pytest.raises(RecordError, match=f"expected 2 columns, found {found}"):
        _payload(_encoder("text"), record)


def test_without_positions_nothing_changes() -> None:
    """The file's own bytes travel, to the file's own columns."""
    encoder = _encoder("csv", positions=None)
    assert encoder.spec.columns == PLAIN.columns
    assert _payload(encoder, b"1|x") == b"1|x"


def test_extra_constant_that_cannot_be_written_is_refused() -> None:
    """As a constant of the whole file is."""
    rewriter = Rewriter(format="text", delimiter=b"\t", nulls=[b""])
    with pytest.raises(ValueError, match="an empty string cannot be told from null"):
        rewriter.rewrite([(b"a\n", 0, 2)], "lf", extra=[b""])
