"""A load that is taken up again sends exactly what is missing, however its blocks were cut before and are cut now."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.files.blocks import BlockReader, make_cutter
from penstock.loading.coverage import Edges, join_ranges
from penstock.model.dialect import Dialect

CSV = Dialect(format="csv", delimiter=",", quote='"', escape='"', nulls=("",), has_header=True, encoding="UTF8")
TSV = Dialect(format="tsv", delimiter="\t", quote=None, escape=None, nulls=("\\N",), has_header=False, encoding="UTF8")


def make_file(rng: random.Random, dialect: Dialect, line_end: str) -> bytes:
    """Return a file of a few dozen records, some of them empty, some with line ends inside quotes."""
    fields = ["", "1", "word", "longer text"]
    if dialect.format == "csv":
        fields += [f'"in{line_end}side"', '"a ""quote"""', f'"{line_end}"']
    records = [dialect.delimiter.join(rng.choices(fields, k=rng.randint(1, 3))) for _ in range(rng.randint(0, 40))]
    # A lone empty field is an empty line, which is a record too.
    text = line_end.join(["head", *records])
    return (text + rng.choice(["", line_end])).encode()


def in_pieces(data: bytes, rng: random.Random) -> list[bytes]:
    """Return the data in random pieces."""
    pieces = []
    while data:
        size = rng.randint(1, 1 + rng.choice([3, 20, 400]))
        pieces.append(data[:size])
        data = data[size:]
    return pieces


def read_blocks(data: bytes, dialect: Dialect, rng: random.Random, committed: Edges | None = None):
    """Return the blocks of a file whose pieces are cut anew, those that are committed too."""
    pieces = in_pieces(data, rng)
    cutter = make_cutter(dialect, server_major=18)
    reader = BlockReader(pieces if committed is None else committed.split(pieces), cutter, uri="file")
    if dialect.has_header:
        reader.take_header()
    return list(reader)


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("dialect", [CSV, TSV], ids=["csv", "tsv"])
@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_resumed_blocks_are_what_is_missing(dialect: Dialect, line_end: str, seed: int) -> None:
    """Ranges committed, ranges sent: together the whole file, and no byte twice."""
    rng = random.Random(seed)
    data = make_file(rng, dialect, line_end)
    before = read_blocks(data, dialect, rng)
    done = [block for block in before if rng.random() < 0.5 and block.start < block.end]
    ranges = join_ranges((block.start, block.end) for block in done)
    edges = Edges(ranges)
    sent = [block for block in read_blocks(data, dialect, rng, edges) if not edges.contain(block.start, block.end)]
    pieces = [*ranges, *((block.start, block.end) for block in sent if block.start < block.end)]
    whole = join_ranges(pieces)
    assert sum(end - start for start, end in pieces) == sum(end - start for start, end in whole)
    assert whole == join_ranges((block.start, block.end) for block in before if block.start < block.end)
    assert sum(block.records for block in [*done, *sent]) == sum(block.records for block in before)
    assert [block.first_line for block in before if block.is_first] == [
        block.first_line for block in [*done, *sent] if block.is_first
    ]
    assert sum(block.is_last for block in [*done, *sent]) == 1


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9))))
def test_joined_ranges_hold_the_same_bytes(parts: list[tuple[int, int]]) -> None:
    """Sorted, apart from each other, and with every byte of the parts."""
    joined = join_ranges((start, start + length) for start, length in parts)
    assert all(end < start for (_, end), (start, _) in pairwise(joined))
    assert {byte for start, end in joined for byte in range(start, end)} == {
        byte for start, length in parts for byte in range(start, start + length)
    }
