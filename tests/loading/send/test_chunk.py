"""From a line of a COPY command to the line of a file."""

from __future__ import annotations

from functools import partial

import pytest

from penstock.core.values.dialect import Dialect
from penstock.loading.formats.blocks import BlockReader, make_cutter
from penstock.loading.send.chunk import Chunk
from penstock.loading.values.objects import CopySpec

DIALECT = Dialect(format="csv", delimiter=",", quote='"', escape='"', nulls=("",), has_header=False, encoding="UTF8")
SPEC = CopySpec(
    schema=None,
    table="t",
    columns=("a",),
    format="csv",
    delimiter=",",
    null="",
    quote='"',
    escape='"',
    encoding="UTF8",
)


def _send(chunk: Chunk, data: bytes, *, uri: str = "f", piece_bytes: int = 7, skip: int = 0) -> None:
    """Send an object's blocks untouched, but for the first `skip`."""
    make = partial(make_cutter, DIALECT, server_major=18)
    pieces = [data[start : start + piece_bytes] for start in range(0, len(data), piece_bytes)]
    for block in list(BlockReader(pieces, make(), uri=uri))[skip:]:
        payload = [buffer[start:end] for buffer, start, end in block.segments]
        chunk.add(block, uri=uri, payload=payload, was_rewritten=False, make_cutter=make)


def _line(chunk: Chunk, server_line: int) -> int:
    place = chunk.locate(server_line)
    assert place is not None
    return place.line


def test_nothing_sent_has_no_place() -> None:
    """An error before any data."""
    assert Chunk(SPEC).locate(1) is None


def test_lines_of_one_file_are_its_own() -> None:
    """Where the server counts as an editor does."""
    chunk = Chunk(SPEC)
    _send(chunk, b"a\n" * 100)
    assert [_line(chunk, line) for line in (1, 50, 100)] == [1, 50, 100]
    assert (chunk.records, chunk.bytes_sent) == (100, 200)


def test_last_record_without_a_line_end_ends_on_the_last_line() -> None:
    """Alone in its command, and written again for it in an object of carriage returns."""
    chunk = Chunk(SPEC)
    _send(chunk, b'a\n"b\r\n\nc"', piece_bytes=2, skip=1)
    assert [_line(chunk, line) for line in (1, 2)] == [4, 4]
    chunk, make = Chunk(SPEC), partial(make_cutter, DIALECT, server_major=18)
    [block] = list(BlockReader([b'a\r"b\rc"'], make(), uri="f"))[1:]
    chunk.add(block, uri="f", payload=[b'"b\rc","v\nw"\n'], was_rewritten=True, make_cutter=make)
    assert _line(chunk, 2) == 3


def test_lines_that_only_add_up_are_looked_at() -> None:
    """With CR LF the server counts lone carriage returns in quotes: here as many as there are lone line feeds."""
    chunk = Chunk(SPEC)
    _send(chunk, b'"a\n\nb"\r\nc\r\n"d\r\re"\r\n', piece_bytes=100)
    assert [_line(chunk, line) for line in (1, 2, 5)] == [3, 4, 5]


@pytest.mark.parametrize(("record", "server_lines"), [(b'"a\rb"\n', 2), (b'"a\nb"\n', 1), (b'"a\r\r\nb"\n', 3)])
def test_first_record_of_a_command_ends_on_its_last_line(record: bytes, server_lines: int) -> None:
    """Until it has met a line end the server counts carriage returns in quotes, and no line feeds."""
    chunk = Chunk(SPEC)
    _send(chunk, record + b"c\n" * 10, piece_bytes=1000)
    lines = record.count(b"\n")
    assert [_line(chunk, line) for line in (server_lines, server_lines + 1)] == [lines, lines + 1]


def test_command_that_began_later_counts_from_there() -> None:
    """Its blocks know where they stood."""
    chunk = Chunk(SPEC)
    _send(chunk, b"abcdef\n" * 100, skip=40)
    assert _line(chunk, 1) == 41


def test_second_file_counts_from_its_own_start() -> None:
    """Two objects may travel in one command."""
    chunk = Chunk(SPEC)
    _send(chunk, b"a\n" * 10, uri="one")
    _send(chunk, b"a\n" * 10, uri="two")
    place = chunk.locate(13)
    assert place is not None
    assert (place.file, place.line) == ("two", 3)


def test_lines_in_the_first_record_are_made_up_for() -> None:
    """The server leaves its quoted line feeds out."""
    chunk = Chunk(SPEC)
    _send(chunk, b'"a\n\nb"\nc\nd\n', piece_bytes=100)
    assert [_line(chunk, line) for line in (2, 3)] == [4, 5]


@pytest.mark.parametrize("kept_bytes", [1, 1_000_000])
def test_lines_that_the_server_does_not_count_are_found_in_recent_blocks(kept_bytes: int) -> None:
    """Lone line feeds in quotes where lines end with CR LF; the last block is always kept."""
    chunk = Chunk(SPEC, keeps_bytes=kept_bytes)
    _send(chunk, b'"a\nb"\r\n' * 30, piece_bytes=21)
    assert _line(chunk, 30) == 60
    assert 1 <= _line(chunk, 2) <= 6
