"""Blocks joined are the object, at the positions they say, wherever its pieces were parted."""

from __future__ import annotations

from itertools import chain, repeat
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import DataError
from penstock.core.values.dialect import Dialect, TextFormat
from penstock.loading.formats.blocks import BlockReader, make_cutter

if TYPE_CHECKING:
    from penstock.loading.values.objects import Block

PIECES = st.lists(st.integers(1, 40), min_size=1, max_size=5)


def _dialect(file_format: TextFormat) -> Dialect:
    mark = '"' if file_format == "csv" else None
    return Dialect(
        format=file_format, delimiter=",", quote=mark, escape=mark, nulls=("\\N",), has_header=False, encoding="UTF8"
    )


def _part(data: bytes, lengths: list[int]) -> list[bytes]:
    """Return the data in pieces of these lengths, over and over."""
    pieces, start, number = [], 0, 0
    while start < len(data):
        pieces.append(data[start : start + lengths[number % len(lengths)]])
        start, number = start + len(pieces[-1]), number + 1
    return pieces


def _reader(data: bytes, lengths: list[int], *, file_format: TextFormat = "csv") -> BlockReader:
    cutter = make_cutter(_dialect(file_format), server_major=18)
    return BlockReader(_part(data, lengths), cutter, uri="s3://b/file")


def _bytes_of(block: Block) -> bytes:
    return b"".join(buffer[start:end] for buffer, start, end in block.segments)


@given(records=st.lists(st.integers(1, 60), min_size=1, max_size=8), pieces=st.lists(st.integers(1, 20), min_size=1))
def test_record_that_is_too_long_is_an_error_on_its_line(records: list[int], pieces: list[int]) -> None:
    """However the object comes in pieces; a record of just that length is none."""
    data = b"".join(b"x" * (length - 1) + b"\n" for length in records)
    limit_bytes = 30
    blocks = BlockReader(
        _part(data, pieces),
        make_cutter(_dialect("csv"), server_major=18),
        uri="s3://b/file",
        max_record_bytes=limit_bytes,
    )
    too_long = next((line for line, length in enumerate(records, 1) if length > limit_bytes), None)
    if too_long is None:
        assert b"".join(map(_bytes_of, blocks)) == data
        return
    with pytest.raises(DataError, match="a record is longer than 30 B") as caught:
        list(blocks)
    assert caught.value.detail == f"It begins in s3://b/file line {too_long}."


def test_record_without_an_end_is_too_long_too() -> None:
    """A quote that never ends would take all memory: no more than the limit is held."""
    cutter = make_cutter(_dialect("csv"), server_major=18)
    pieces = chain([b'a,"b\n'], repeat(b"c,d\n"))
    with pytest.raises(DataError, match="longer than 20 B"):
        list(BlockReader(pieces, cutter, uri="f", max_record_bytes=20))
    assert next(pieces) == b"c,d\n"


@st.composite
def _objects(draw: st.DrawFn) -> tuple[TextFormat, str, bytes]:
    """Draw a format, its line end, and an object of it."""
    file_format: TextFormat = draw(st.sampled_from(("csv", "text", "tsv")))
    line_end = draw(st.sampled_from(("\n", "\r\n", "\r")))
    fields = ["", "a", "bc", "é", "\\N"]
    # How an editor counts: what is quoted ends in the same way as the lines do, or in LF where that is part of it.
    fields += [f'"x{line_end}y"', f'"{line_end}"'] if file_format == "csv" else []
    records = draw(st.lists(st.lists(st.sampled_from(fields), min_size=1, max_size=3).map(",".join), max_size=30))
    if line_end == "\r" and records:
        # Only the first line end shows that carriage returns alone end lines.
        records[0] = "first"
    text = line_end.join(records) + draw(st.sampled_from(("", line_end)))
    return file_format, line_end, text.encode()


@given(drawn=_objects(), lengths=PIECES, takes_header=st.booleans())
def test_blocks_joined_equal_the_object(
    drawn: tuple[TextFormat, str, bytes], lengths: list[int], takes_header: bool
) -> None:
    """Byte ranges and lines go on where the block before has ended."""
    file_format, line_end, data = drawn
    reader = _reader(data, lengths, file_format=file_format)
    joined = (reader.take_header() if takes_header else None) or b""
    for block in reader:
        content = _bytes_of(block)
        assert (block.start, block.end) == (len(joined), len(joined) + len(content))
        assert block.first_line == 1 + joined.count(line_end.encode())
        assert block.records > 0 or (block.is_first and block.is_last)
        joined += content
    assert joined == data


@given(drawn=_objects(), lengths=PIECES)
def test_records_and_lines_do_not_depend_on_the_pieces(
    drawn: tuple[TextFormat, str, bytes], lengths: list[int]
) -> None:
    """Their sums are those of one piece."""
    file_format, _, data = drawn

    def sums(parted: list[int]) -> tuple[int, int, int]:
        blocks = list(_reader(data, parted, file_format=file_format))
        return sum(b.records for b in blocks), sum(b.lines for b in blocks), sum(b.server_lines for b in blocks)

    assert sums(lengths) == sums([1_000_000])


@pytest.mark.parametrize(
    ("data", "is_unended"),
    [(b"1\n2\n", False), (b"1\n2", True), (b"1\r2\r", False), (b"1\r2", True), (b"1\r\n2", True)],
)
def test_last_record_without_a_line_end_is_marked(data: bytes, is_unended: bool) -> None:
    """Nothing may follow it in the same COPY; a carriage return at the very end is a line end."""
    assert list(_reader(data, [100]))[-1].is_unended is is_unended


@pytest.mark.parametrize("length", [1, 2, 3, 100])
def test_error_names_object_and_line(length: int) -> None:
    """This does not depend on the pieces.

    The error for a quote that never ends names the line on which its record began.
    """
    with pytest.raises(DataError, match="unterminated") as caught:
        list(_reader(b'1\n"2\n3"\n"4\n5\n', [length]))
    assert caught.value.detail == "s3://b/file line 4."


@pytest.mark.parametrize("data", [b"", b"\n", b"a,b", b"a,b\r\n1,2"])
def test_header_is_the_first_record(data: bytes) -> None:
    """None where there is nothing at all."""
    expected = data[: data.find(b"\n") + 1] or data or None
    assert _reader(data, [2]).take_header() == expected
