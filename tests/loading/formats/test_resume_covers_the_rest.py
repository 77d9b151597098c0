"""A load that is taken up again sends exactly what is missing, however its blocks were cut before and are cut now."""

from __future__ import annotations

import random
import zlib
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.errors import DataError
from penstock.core.values.dialect import Dialect
from penstock.ledger.values import CommittedRange
from penstock.loading.formats.blocks import BlockReader, make_cutter
from penstock.loading.formats.format import Edges, RangeSums
from penstock.loading.formats.text import read_missing

if TYPE_CHECKING:
    from collections.abc import Iterable

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


def join_ranges(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ranges in ascending order, those that touch joined."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


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
@settings(max_examples=6 * settings().max_examples)
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


def find_record_ends(data: bytes, dialect: Dialect) -> set[int] | None:
    """Return where the records of a file begin and end, cut byte by byte; None if it is refused."""
    reader = BlockReader([bytes([byte]) for byte in data], make_cutter(dialect, server_major=18), uri="file")
    try:
        if dialect.has_header:
            reader.take_header()
        return {edge for block in reader for edge in (block.start, block.end)}
    except DataError:
        return None


def change(data: bytes, rng: random.Random, line_end: str) -> bytes:
    """Return a file that has grown, at its end mostly, or lost some of its end."""
    added = "".join(rng.choices(["7", "word", ",", "\t", '"', line_end, f"8,9{line_end}", "\\"], k=rng.randint(1, 6)))
    place = len(data) if rng.random() < 0.5 else rng.randint(0, len(data))
    if rng.random() < 0.1:
        return data[:place]
    return data[:place] + added.encode() + data[place:]


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("dialect", [CSV, TSV], ids=["csv", "tsv"])
@settings(max_examples=5 * settings().max_examples)
@given(seed=st.integers(0, 2**32))
def test_changed_file_is_resumed_as_it_is_now_or_refused(dialect: Dialect, line_end: str, seed: int) -> None:
    """What is committed and what is sent are the records of the file as it is now, each once, or nothing is sent."""
    rng = random.Random(seed)
    data = make_file(rng, dialect, line_end)
    share = rng.choice([0.5, 0.9, 1.0])
    done = [block for block in read_blocks(data, dialect, rng) if rng.random() < share and block.start < block.end]
    if not done:
        return
    ranges = join_ranges((block.start, block.end) for block in done)
    committed = [
        CommittedRange(
            object_number=0,
            start=start,
            ranges=((start, end),),
            has_start=False,
            has_end=False,
            records=1,
            rows=1,
            suppressed=0,
            checksum=zlib.crc32(data[start:end]),
        )
        for start, end in ranges
    ]
    now = change(data, rng, line_end)
    sums = RangeSums(committed)
    for _ in sums.watch(in_pieces(now, rng)):
        pass
    if sums.state == "changed":
        return
    edges = Edges(ranges)
    try:
        sent = list(
            read_missing(read_blocks(now, dialect, rng, edges), edges, uri="file", has_end=sums.state == "same")
        )
    except DataError:
        return
    ends = find_record_ends(now, dialect)
    assert ends is not None
    places = [*ranges, *((block.start, block.end) for block in sent if block.records)]
    assert ends.issuperset(edge for place in places for edge in place)
    assert join_ranges(places) == [(min(ends), len(now))]
    assert sum(end - start for start, end in places) == len(now) - min(ends)
    assert all(data[start:end] == now[start:end] for start, end in ranges)
    assert sum(block.is_last for block in sent) == (sums.state == "grown")


@settings(max_examples=2 * settings().max_examples)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9))))
def test_joined_ranges_hold_the_same_bytes(parts: list[tuple[int, int]]) -> None:
    """Sorted, apart from each other, and with every byte of the parts."""
    joined = join_ranges((start, start + length) for start, length in parts)
    assert all(end < start for (_, end), (start, _) in pairwise(joined))
    assert {byte for start, end in joined for byte in range(start, end)} == {
        byte for start, length in parts for byte in range(start, start + length)
    }
