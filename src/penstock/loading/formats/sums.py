"""Compares committed ranges with an object's present content, and finds the blocks that are not committed."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Literal

from isal import isal_zlib

from penstock.core.values.source import Range
from penstock.ledger.values import CommittedRange
from penstock.loading.values.block import Block


class RangeSums:
    """Computes the CRC-32 of an object's present bytes in the ranges of each committed row, as its pieces are read.

    `header` is the object's present header record; the caller sets it if there is one.
    """

    def __init__(self, committed: Sequence[CommittedRange]) -> None:
        self._wanted = [row.checksum for row in committed]
        self._found = [0] * len(committed)
        self._last = max((end for row in committed for _, end in row.ranges), default=0)
        self._last_byte = b""
        self.header: bytes | None = None
        self._parts = sorted((start, end, index) for index, row in enumerate(committed) for start, end in row.ranges)
        self._offset = 0

    def watch(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Add each piece to the checksums, and yield it. The first piece must begin at the object's start."""
        for piece in pieces:
            self._add(piece)
            yield piece

    @property
    def edges(self) -> list[Range]:
        """Return the ranges whose checksums are not complete."""
        return [(start, end) for start, end, _ in self._parts]

    @property
    def is_done(self) -> bool:
        """Whether the last range has been read."""
        return self._offset >= self._last

    @property
    def are_equal(self) -> bool:
        """Whether all ranges have been read and are the same as when they were committed."""
        # An object that is too short has changed, even if the checksum of what is left matches.
        if not self.is_done:
            return False
        header = isal_zlib.crc32(self.header or b"")
        return all(wanted == found ^ header for wanted, found in zip(self._wanted, self._found, strict=True))

    @property
    def is_followed(self) -> bool:
        """Whether bytes have been read after the last range."""
        return self._offset > self._last

    @property
    def state(self) -> Literal["same", "grown", "changed"]:
        """Return "same" if the object ends with the last range, "grown" if records follow it, else "changed"."""
        if not self.are_equal or (self.is_followed and self._last_byte not in (b"\r", b"\n")):
            return "changed"
        return "grown" if self.is_followed else "same"

    def _add(self, piece: bytes) -> None:
        reach = self._offset + len(piece)
        if self._offset < self._last <= reach:
            self._last_byte = piece[self._last - self._offset - 1 :][:1]
        parts = self._parts
        while parts and parts[0][0] < reach:
            start, end, index = parts.pop(0)
            view = memoryview(piece)[max(0, start - self._offset) : min(end, reach) - self._offset]
            self._found[index] = isal_zlib.crc32(view, self._found[index])
            if end > reach:
                parts.insert(0, (reach, end, index))
                break
        self._offset = reach


class RowSums(RangeSums):
    """Computes the CRC-32 of rows in the form in which they are sent. Blocks must be cut at `edges`."""

    def watch_rows(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """Add each block to the checksums, and yield it. The first block must begin at the first row."""
        for block in blocks:
            self._add_rows(block)
            yield block

    def _add_rows(self, block: Block) -> None:
        # A whole row ends with a line feed.
        self._last_byte = b"\n"
        while self._parts and self._parts[0][1] <= block.start:
            self._parts.pop(0)
        if self._parts and self._parts[0][0] <= block.start < block.end:
            index = self._parts[0][2]
            for buffer, start, end in block.segments:
                self._found[index] = isal_zlib.crc32(memoryview(buffer)[start:end], self._found[index])
        self._offset = block.end


class Edges:
    """Splits an object's pieces at the edges of committed ranges, and finds out which blocks are committed."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        self._starts = [start for start, _ in ranges]
        self._ends = [end for _, end in ranges]
        # Cut one byte after each edge too: if a record ends with a lone carriage return, the next byte shows that.
        self._cuts = sorted({cut for edge in (*self._starts, *self._ends) for cut in (edge, edge + 1)})

    def split(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the same bytes in pieces that have no edge inside. The first piece must begin at the object's start."""
        offset = 0
        for piece in pieces:
            end = offset + len(piece)
            cuts = self._cuts[bisect_right(self._cuts, offset) : bisect_right(self._cuts, end - 1)]
            if cuts:
                bounds = [0, *(cut - offset for cut in cuts), len(piece)]
                for start, stop in pairwise(bounds):
                    yield piece[start:stop]
            else:
                yield piece
            offset = end

    def contain(self, start: int, end: int) -> bool:
        """Return whether a block is committed.

        >>> Edges([(10, 20)]).contain(12, 20), Edges([(10, 20)]).contain(20, 30)
        (True, False)
        """
        index = bisect_right(self._starts, start) - 1
        return index >= 0 and end <= self._ends[index]

    def lie_within(self, start: int, end: int) -> bool:
        """Return whether a committed range begins or ends inside a block. If so, the object has changed.

        >>> Edges([(10, 20)]).lie_within(12, 20), Edges([(10, 20)]).lie_within(15, 21)
        (False, True)
        """
        return any(bisect_right(edges, start) < bisect_left(edges, end) for edges in (self._starts, self._ends))
