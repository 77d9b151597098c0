"""Wherever quotes stray: every line is in a good record or rejected, exactly once, as a simple model reads the file."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from penstock.core.errors import DataError
from penstock.core.values.dialect import Dialect
from penstock.loading.formats.blocks import TornReader, make_cutter
from penstock.loading.formats.format import Edges
from penstock.loading.formats.text import read_missing
from support.torn_model import FIELD_COUNT, Part, make_file, read_model

if TYPE_CHECKING:
    from penstock.loading.values.objects import Block

LONGEST_PIECE = 20


def read_blocks(
    data: bytes, rng: random.Random, escape: str, *, limit_bytes: int, committed: Edges | None = None
) -> list[Block]:
    """Return the blocks of a file behind its header, in pieces of other lengths each time."""
    dialect = Dialect(
        format="csv", delimiter=",", quote='"', escape=escape, nulls=("",), has_header=True, encoding="UTF8"
    )
    pieces = []
    while data:
        length = rng.randint(1, rng.choice([2, LONGEST_PIECE]))
        pieces.append(data[:length])
        data = data[length:]
    cutter = make_cutter(dialect, server_major=18)
    parts = pieces if committed is None else committed.split(pieces)
    reader = TornReader(parts, cutter, uri="file", max_record_bytes=limit_bytes)
    reader.field_count = FIELD_COUNT
    reader.take_header()
    return list(reader if committed is None else read_missing(reader, committed, uri="file", has_end=True))


def compare(blocks: list[Block], parts: list[Part]) -> None:
    """Compare blocks with the model's parts of the same bytes."""
    found = {part.start: part for part in parts}
    torn = [(block.start, block.end, block.first_line) for block in blocks if block.fault is not None]
    assert torn == [part[:3] for part in parts if part.is_torn]
    for block in blocks:
        if block.records:
            within = [part for part in parts if block.start <= part.start < block.end]
            assert found[block.start].line == block.first_line
            assert within[-1].end == block.end
            assert len(within) == block.records


@pytest.mark.parametrize("escape", ['"', "\\"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@settings(max_examples=5 * settings().max_examples)
@given(seed=st.integers(0, 2**32))
def test_each_line_is_loaded_or_rejected_once(line_end: str, escape: str, seed: int) -> None:
    """Whatever the pieces are, and again where some of the blocks were committed before."""
    rng = random.Random(seed)
    data = make_file(rng, line_end)
    mark = line_end.encode()
    # A header that ends with both says that all lines do.
    assume(mark != b"\r" or not data.startswith(b"a,b,c\r\n"))
    limit_bytes = rng.choice([LONGEST_PIECE + 20, 10_000])
    parts = read_model(data, mark, escape.encode(), limit_bytes=limit_bytes)[1:]
    assume(all(part.end - part.start <= limit_bytes for part in parts))
    blocks = read_blocks(data, rng, escape, limit_bytes=limit_bytes)
    compare(blocks, parts)
    assert all(before.end == after.start for before, after in pairwise(blocks))
    assert (blocks[0].start, blocks[-1].end) == (data.index(mark) + len(mark), len(data))
    assert (
        b"".join(buffer[start:end] for block in blocks for buffer, start, end in block.segments)
        == data[blocks[0].start :]
    )

    done = [block for block in blocks if block.records and rng.random() < 0.5]
    edges = Edges(_join([(block.start, block.end) for block in done]))
    rest = read_blocks(data, rng, escape, limit_bytes=limit_bytes, committed=edges)
    compare(rest, [part for part in parts if not edges.contain(part.start, part.end)])


def _join(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, end in ranges:
        if joined and joined[-1][1] == start:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined


def test_error_behind_a_torn_line_names_its_own_line() -> None:
    """The lines before what was cut again count too."""
    dialect = Dialect(format="csv", delimiter=",", quote='"', escape='"', nulls=("",), has_header=True, encoding="UTF8")
    data = b'a,b,c\n1,a"b,c\n2",e,f\n\\.\n3,x,y\n'
    reader = TornReader([data], make_cutter(dialect, server_major=17), uri="file")
    reader.field_count = FIELD_COUNT
    reader.take_header()
    with pytest.raises(DataError, match="data found after the end-of-copy marker") as caught:
        list(reader)
    assert caught.value.detail == "file line 5."


def test_line_that_is_too_long_to_be_kept_ends_the_load() -> None:
    """With the line that it is."""
    dialect = Dialect(format="csv", delimiter=",", quote='"', escape='"', nulls=("",), has_header=True, encoding="UTF8")
    pieces = [b'a,b,c\n1,x,y\n2,"x,', *[b"y" * 3000] * 6]
    reader = TornReader(pieces, make_cutter(dialect, server_major=18), uri="file", max_record_bytes=10_000)
    reader.field_count, reader.longest_line_bytes = FIELD_COUNT, 15_000
    reader.take_header()
    with pytest.raises(DataError, match=r"a record is longer than 10\.0 kB") as caught:
        list(reader)
    assert "line 3" in str(caught.value.detail)
