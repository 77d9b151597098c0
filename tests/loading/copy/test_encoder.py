r"""Which COPY command carries a dialect, and when the file's own bytes are its payload."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.errors import UsageError
from penstock.core.values.dialect import Dialect, TextFormat
from penstock.core.values.table import ColumnMap, TableName
from penstock.loading.copy.payload import Encoder, make_encoder
from penstock.loading.values.objects import Block, LineEnd

TABLE = TableName(schema="s", name="t")
PLAIN = ColumnMap(columns=("a", "b"), field_count=2)


def _encoder(file_format: TextFormat, column_map: ColumnMap = PLAIN, *, nulls: tuple[str, ...] = ("\\N",)) -> Encoder:
    mark = '"' if file_format == "csv" else None
    dialect = Dialect(
        format=file_format, delimiter="\t", quote=mark, escape=mark, nulls=nulls, has_header=False, encoding="UTF8"
    )
    return make_encoder(dialect, column_map, table=TABLE, encoding="UTF8")


def _block(data: bytes, *, strays: int = 0, line_end: LineEnd = "lf") -> Block:
    facts: dict[str, Any] = {
        "segments": ((b"xx" + data + b"yy", 2, 2 + len(data)),),
        "start": 0,
        "end": len(data),
        "first_line": 1,
        "lines": data.count(b"\n"),
        "server_lines": data.count(b"\n"),
        "records": data.count(b"\n"),
        "is_unended": False,
    }
    return Block(stray_backslashes=strays, line_end=line_end, **facts)


def _payload(encoder: Encoder, block: Block) -> bytes:
    return b"".join(encoder.encode(block))


@pytest.mark.parametrize("file_format", ["csv", "text"])
@pytest.mark.parametrize("line_end", ["lf", "crlf", "cr"])
def test_csv_and_text_travel_untouched(file_format: TextFormat, line_end: LineEnd) -> None:
    """Whatever ends their lines."""
    encoder, block = _encoder(file_format), _block(b"1\t\\\\\n", strays=2, line_end=line_end)
    assert encoder.is_untouched(block)
    assert _payload(encoder, block) == b"1\t\\\\\n"
    assert encoder.spec.format == file_format


def test_tsv_travels_as_text() -> None:
    r"""Without quote or escape, \N being null."""
    spec = _encoder("tsv").spec
    assert (spec.format, spec.null, spec.quote, spec.escape) == ("text", "\\N", None, None)


def test_tsv_without_backslashes_of_its_own_travels_untouched() -> None:
    r"""Those of \N are text's too."""
    assert _payload(_encoder("tsv"), _block(b'1\t\\N\n2\t"q\n')) == b'1\t\\N\n2\t"q\n'


def test_tsv_with_backslashes_has_them_doubled() -> None:
    r"""But for those of \N."""
    block = _block(b"1\t\\N\n2\ta\\tb\n", strays=1)
    assert _payload(_encoder("tsv"), block) == b"1\t\\N\n2\ta\\\\tb\n"


def test_tsv_with_other_line_ends_is_given_line_feeds() -> None:
    """One command takes one kind, and rewritten blocks end with a line feed."""
    encoder, block = _encoder("tsv"), _block(b"1\tx\r\n", line_end="crlf")
    assert not encoder.is_untouched(block)
    assert _payload(encoder, block) == b"1\tx\n"


@pytest.mark.parametrize("file_format", ["csv", "text", "tsv"])
def test_fields_left_out_and_constants_are_rewritten(file_format: TextFormat) -> None:
    """In the order that the COPY column list has."""
    column_map = ColumnMap(columns=("b", "c"), keep=(1,), constants=("x",), field_count=2)
    encoder = _encoder(file_format, column_map)
    expected = b'y\t"x"\n' if file_format == "csv" else b"y\tx\n"
    assert _payload(encoder, _block(b"1\ty\n")) == expected
    assert encoder.spec.columns == ("b", "c")


def test_several_nulls_become_one() -> None:
    """The first one, in csv and text."""
    encoder = _encoder("csv", nulls=("", "NULL"))
    assert encoder.spec.null == ""
    assert _payload(encoder, _block(b'NULL\t"NULL"\n')) == b'\t"NULL"\n'


def test_null_that_the_format_cannot_have_is_a_usage_error() -> None:
    """With the option to change as the hint."""
    with pytest.raises(UsageError) as caught:
        _encoder("csv", nulls=('"',))
    assert "--null" in str(caught.value.hint)
