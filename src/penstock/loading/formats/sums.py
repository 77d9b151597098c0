"""Compares what is committed of an object with its present bytes or rows, by the checksums in the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from isal import isal_zlib

from penstock.model.load.ledger import CommittedRange
from penstock.model.source.block import Block
from penstock.model.source.source import Range


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
        """Add each piece to the checksums, and yield it; the first piece must begin at the object's start."""
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
    """Computes the CRC-32 of rows, as they are sent; blocks must be cut at `edges`."""

    def watch_rows(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """Add each block to the checksums, and yield it; the first block must begin at the first row."""
        for block in blocks:
            self._add_rows(block)
            yield block

    def _add_rows(self, block: Block) -> None:
        # Whole rows end with a line feed.
        self._last_byte = b"\n"
        while self._parts and self._parts[0][1] <= block.start:
            self._parts.pop(0)
        if self._parts and self._parts[0][0] <= block.start < block.end:
            index = self._parts[0][2]
            for buffer, start, end in block.segments:
                self._found[index] = isal_zlib.crc32(memoryview(buffer)[start:end], self._found[index])
        self._offset = block.end
