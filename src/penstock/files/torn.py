"""Cuts records so that a stray quote or an endless line spoils one line only: that line is rejected.

A record is torn if the object ends within it, if it is too long, if it has a stray line end, or if it spans lines and
has another number of fields than expected. Its first line becomes a block with a `fault`, and cutting begins again with
the next line. Which records are torn depends on the object's bytes only, not on how they are divided into pieces.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.files.blocks import BlockReader, RecordFormError
from penstock.units import KIB

if TYPE_CHECKING:
    from penstock import _native
    from penstock.model.source.block import Block, LineEnd, Segment

# The size of the first part that is cut again after a torn record, in case another torn record is near. Each further
# part is twice as long.
_WINDOW_BYTES = 16 * KIB


class _Torn(Exception):
    """A record is torn: `start` is its offset in the bytes that are not in a block yet.

    `records` and `lines` are the numbers of records and lines before it among these bytes.
    """

    def __init__(self, start: int, records: int, lines: int, reason: str) -> None:
        super().__init__(reason)
        self.start, self.records, self.lines, self.reason = start, records, lines, reason


class TornReader(BlockReader):
    """A BlockReader that yields the first line of each torn record as a block with a fault.

    `field_count` is how many fields a record must have. It is None if that is not known, or if a record that spans
    lines may have any number of fields. With `ends_empty`, a record may have one more field, which is empty. Raises
    RecordFormError if a line is longer than both a record may be and `longest_line_bytes`, or if data follows the
    end-of-data marker.
    """

    field_count: int | None = None
    ends_empty: bool = False
    # The ledger stores a rejected line whole. A value has 1 GB at most there, and several copies of it are in memory.
    longest_line_bytes: int = 256_000_000
    # The line end of the good records so far, None before the first.
    _line_end: LineEnd | None = None

    def _cut(self) -> Iterator[Block]:
        self._again = deque([self._rest] if self._rest else [])
        self._rest = None
        self._line_end = self._cutter.line_end
        while True:
            try:
                yield from super()._cut()
            except _Torn as torn:
                yield from self._part(torn)
            except RecordFormError as error:
                yield from self._part(self._find_first(error))
            else:
                return

    def _remaining(self) -> Iterator[bytes]:
        while True:
            if self._again:
                yield self._again.popleft()
            elif (piece := next(self._pieces, None)) is not None:
                yield piece
            else:
                return

    def _make_block(self, piece: bytes, cut: _native.Cut, *, is_unended: bool = False) -> Block:
        self._refuse_torn([*self._carry, (piece, 0, cut.end)], cut, is_unended=is_unended)
        self._line_end = self._cutter.line_end
        return super()._make_block(piece, cut, is_unended=is_unended)

    def _refuse_torn(self, segments: list[Segment], cut: _native.Cut, *, is_unended: bool = False) -> None:
        """Raise _Torn if a record in `segments` is torn. `segments` hold whole records."""
        if self.field_count is not None and cut.lines + is_unended > cut.records:
            torn = self._cutter.find_torn(segments, field_count=self.field_count, ends_empty=self.ends_empty)
            if torn is not None:
                raise _Torn(*torn)

    def _find_first(self, error: RecordFormError) -> _Torn:
        """Return the first torn record, after the cutter failed with `error`.

        Raise `error` again if data follows the end-of-data marker.
        """
        cut = self._cutter.salvage()
        if cut.is_end:
            raise error
        try:
            self._refuse_torn(self._split(cut.end)[0], cut)
        except _Torn as torn:
            return torn
        return _Torn(cut.end, cut.records, cut.lines, error.message)

    def _part(self, torn: _Torn) -> Iterator[Block]:
        """Yield the records before a torn record, and its first line; the bytes after that line are cut again."""
        good, rest = self._split(torn.start)
        self._carry, self._carried_bytes = [], 0
        self._again.extendleft(reversed([*_windows(rest[0]), *rest[1:]]))
        if torn.records:
            self._line_end = self._cutter.line_end
            yield self._pass(self._describe(good, records=torn.records, lines=torn.lines))
        yield self._pass(self._take_line(torn.reason))
        self._cutter.restart(self._line_end)
        self._cutter_line = self._line

    def _split(self, at: int) -> tuple[list[Segment], list[bytes]]:
        """Return the carried bytes and the current piece in two parts: the first `at` bytes, and the rest."""
        before: list[Segment] = []
        rest: list[bytes] = []
        for buffer, start, end in (*self._carry, (self._piece, 0, len(self._piece))):
            middle = min(end, start + at)
            at -= middle - start
            before += [(buffer, start, middle)] if start < middle else []
            rest += [buffer[middle:end]] if middle < end else []
        return before, rest

    def _take_line(self, reason: str) -> Block:
        """Return a block of the next line, with its fault."""
        # A line feed ends the line even if the records end with CR. If CR was guessed wrongly, the rest is rejected
        # line by line.
        marks = (b"\r", b"\n") if self._line_end == "cr" else (b"\n",)
        taken: list[Segment] = []
        length_bytes, end = 0, 0
        for piece in self._remaining():
            end = min((at + 1 for mark in marks if (at := piece.find(mark)) >= 0), default=0)
            taken.append((piece, 0, end or len(piece)))
            length_bytes += end or len(piece)
            if length_bytes > max(self._max_record_bytes, self.longest_line_bytes):
                raise self._too_long()
            if end:
                self._again.extendleft([piece[end:]] if end < len(piece) else [])
                break
        lines = int(end > 0 and taken[-1][0][end - 1 : end] == marks[0])
        return replace(self._describe(taken, records=1, lines=lines), is_unended=not end, fault=reason)

    def _describe(self, segments: list[Segment], *, records: int, lines: int) -> Block:
        return replace(
            self._empty_block(),
            segments=tuple(segments),
            end=self._offset + sum(end - start for _, start, end in segments),
            records=records,
            lines=lines,
            server_lines=lines,
            is_first=self._is_first,
            is_last=False,
        )


def _windows(data: bytes) -> Iterator[bytes]:
    at, length_bytes = 0, _WINDOW_BYTES
    while at < len(data):
        yield data[at : at + length_bytes]
        at += length_bytes
        length_bytes *= 2
