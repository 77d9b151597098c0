"""Cuts the pieces of a decompressed object into blocks of whole records, even after a stray quote.

The Rust cutter decides where records end. This module keeps the byte and line positions for errors, and turns the
cutter's errors into those of penstock. It does not use tables or servers.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

from penstock import _native
from penstock.core.errors import DataError, FileLocation, PenstockError
from penstock.core.units import KIB, format_bytes
from penstock.core.values.dialect import Dialect
from penstock.loading.values.objects import Block, LineEnd, Segment

# The longest header that is accepted. 1600 columns (PostgreSQL's maximum) with names of the maximum length take half of
# it.
HEADER_LIMIT_BYTES = 256 * KIB

_HINTS = {
    "quote": r"Check --quote, use --escape '\\' if backslashes escape quotes, or --format tsv if quotes are data.",
    "line end": r"Make all line ends alike, as sed 's/\r$//' does, and quote those that are data.",
    "notation": "Correct the value, or check --decimal-comma, --thousands and --date-order.",
    "unknown": "Name it with --columns, skip it with --skip, or add a column for it with --add-columns.",
}


class RecordFormError(DataError):
    """COPY would refuse a record because of its form, such as a stray quote, or a record is too long."""


def make_cutter(dialect: Dialect, *, server_major: int) -> _native.RecordCutter:
    r"""Return the Rust cutter, which finds out where the records of a dialect end.

    Before PostgreSQL 18, a line with only `\.` ends csv data too, so the cutter looks for it (release notes of 18,
    "COPY FROM ... end-of-data marker").
    """
    return _native.RecordCutter(
        format=dialect.format,
        delimiter=dialect.delimiter.encode(),
        quote=None if dialect.quote is None else dialect.quote.encode(),
        escape=None if dialect.escape is None else dialect.escape.encode(),
        checks_end_marker=server_major < 18,
    )


class BlockReader:
    """Cuts the text of one object into blocks of whole records. If it has a header, call `take_header` first.

    Then iterate once. `pieces` are parts of the text in their order; the text begins on line `first_line` of the file.
    Raises DataError, which names the object and the line, if COPY would refuse the form of a record. It also does so if
    a record is longer than `max_record_bytes`, because an unclosed quote would otherwise fill the memory. Pieces must
    be shorter than `max_record_bytes`.
    """

    def __init__(
        self,
        pieces: Iterable[bytes],
        cutter: _native.RecordCutter,
        *,
        uri: str,
        max_record_bytes: int = sys.maxsize,
        first_line: int = 1,
    ) -> None:
        self._pieces = iter(pieces)
        self._cutter = cutter
        self._uri = uri
        self._max_record_bytes = max_record_bytes
        self._carry: list[Segment] = []
        # The length of _carry. It is kept because adding up the lengths takes long if a record consists of many pieces.
        self._carried_bytes = 0
        # The piece that is being cut, which follows _carry.
        self._piece = b""
        self._offset = 0
        self._line = first_line
        # The line of the file at which the cutter's line 0 is.
        self._cutter_line = first_line
        self._rest: bytes | None = None
        self._is_first = True

    def take_header(self) -> bytes | None:
        """Return the first record with its line end, or None if the object has no record.

        Raises DataError if the header is too long, or if COPY would refuse its form.
        """
        gathered = bytearray()
        for piece in self._pieces:
            cut = self._feed(piece, only_first=True)
            if cut.records:
                gathered += piece[: cut.end]
                self._rest = piece[cut.end :]
                return self._pass_header(bytes(gathered), cut)
            gathered += piece
            if len(gathered) > HEADER_LIMIT_BYTES:
                raise DataError(
                    f"the header does not end within {HEADER_LIMIT_BYTES} bytes",
                    detail=f"{self._uri} line {self._line}.",
                    hint="Use --no-header, or check --quote and --escape.",
                )
        cut = self._finish()
        return self._pass_header(bytes(gathered), cut) if cut.records else None

    def _pass_header(self, header: bytes, cut: _native.Cut) -> bytes:
        self._offset += len(header)
        self._line += cut.lines
        return header

    def __iter__(self) -> Iterator[Block]:
        # One block is held back, because only the end of the object shows whether it is the last block.
        held: Block | None = None
        try:
            for block in self._cut():
                if held is not None:
                    yield held
                held = block
        except PenstockError:
            # Yield the block before the error, because it is valid and --check examines it too.
            if held is not None:
                yield held
            raise
        yield self._empty_block() if held is None else replace(held, is_last=True)

    def _empty_block(self) -> Block:
        return Block(
            segments=(),
            start=self._offset,
            end=self._offset,
            first_line=self._line,
            lines=0,
            server_lines=0,
            records=0,
            line_end=self._cutter.line_end or "lf",
            stray_backslashes=0,
            is_unended=False,
            is_first=True,
            is_last=True,
        )

    def _cut(self) -> Iterator[Block]:
        for piece in self._remaining():
            self._piece = piece
            if self._carry and self._carried_bytes + len(piece) > self._max_record_bytes:
                # Cut only the first record, to find out where the carried record ends.
                cut = self._feed(piece, only_first=True)
                if not cut.records or self._carried_bytes + cut.end > self._max_record_bytes:
                    raise self._too_long()
                yield self._make_block(piece, cut)
                self._piece = piece = piece[cut.end :]  # noqa: PLW2901
            cut = self._feed(piece)
            if cut.records:
                yield self._make_block(piece, cut)
            if cut.end < len(piece):
                self._carry.append((piece, cut.end, len(piece)))
                self._carried_bytes += len(piece) - cut.end
        self._piece = b""
        cut = self._finish()
        # Yield the rest as the last block. In JSON Lines, the rest may be blanks without a record.
        if cut.records or (self._carry and not cut.is_end):
            yield self._make_block(b"", cut, is_unended=cut.records > 0 and not self._ends_with_return())

    def _too_long(self) -> RecordFormError:
        return RecordFormError(
            f"a record is longer than {format_bytes(self._max_record_bytes)}",
            detail=f"It begins in {self._uri} line {self._line}.",
            hint=f"If the record is right, raise --max-record. {_HINTS['quote']}",
            location=FileLocation(file=self._uri, line=self._line),
        )

    def _remaining(self) -> Iterator[bytes]:
        if self._rest:
            yield self._rest
        self._rest = None
        yield from self._pieces

    def _make_block(self, piece: bytes, cut: _native.Cut, *, is_unended: bool = False) -> Block:
        segments = (*self._carry, (piece, 0, cut.end)) if cut.end else tuple(self._carry)
        self._carry, self._carried_bytes = [], 0
        block = Block(
            segments=segments,
            start=self._offset,
            end=self._offset + sum(end - start for _, start, end in segments),
            first_line=self._line,
            lines=cut.lines,
            server_lines=cut.server_lines,
            records=cut.records,
            line_end=self._cutter.line_end or "lf",
            stray_backslashes=cut.stray_backslashes,
            is_unended=is_unended,
            is_first=self._is_first,
        )
        return self._pass(block)

    def _pass(self, block: Block) -> Block:
        self._is_first = False
        self._offset = block.end
        self._line += block.lines
        return block

    def _ends_with_return(self) -> bool:
        buffer, _, end = self._carry[-1]
        return self._cutter.line_end == "cr" and buffer[end - 1 : end] == b"\r"

    def _feed(self, piece: bytes, *, only_first: bool = False) -> _native.Cut:
        try:
            return self._cutter.feed_one(piece) if only_first else self._cutter.feed(piece)
        except _native.RecordError as exc:
            raise record_error(exc, uri=self._uri, first_line=self._cutter_line) from exc

    def _finish(self) -> _native.Cut:
        try:
            return self._cutter.finish()
        except _native.RecordError as exc:
            raise record_error(exc, uri=self._uri, first_line=self._cutter_line) from exc


def record_error(exc: _native.RecordError, *, uri: str, first_line: int = 1) -> RecordFormError:
    """Return the error for a record that the Rust cutter refused.

    The cutter counts lines from 0; its line 0 is line `first_line` of the file.
    """
    message, _, line = exc.args
    hint = _HINTS["quote"] if "quoted field" in message else None
    hint = _HINTS["line end"] if message.endswith(" found in data") else hint
    hint = _HINTS["unknown"] if "belongs to no column" in message else hint
    hint = _HINTS["notation"] if " is not written as " in message else hint
    location = FileLocation(file=uri, line=first_line + line)
    return RecordFormError(message, detail=f"{location}.", hint=hint, location=location)


# The size of the first part that is cut again after a torn record, in case another torn record is near. Each further
# part is twice as long.
_WINDOW_BYTES = 16 * KIB


class _Torn(Exception):
    """A record is torn: `start` is its offset in the bytes that are not in a block yet.

    `records` and `lines` are the numbers of records and lines in these bytes before the torn record.
    """

    def __init__(self, start: int, records: int, lines: int, reason: str) -> None:
        super().__init__(reason)
        self.start, self.records, self.lines, self.reason = start, records, lines, reason


class TornReader(BlockReader):
    """A BlockReader that continues after a record whose form COPY would refuse, such as one with a stray quote.

    The first line of such a record becomes a block of its own, with the reason as its fault. Raises RecordFormError if
    a line is longer than both `longest_line_bytes` and `max_record_bytes`, or if data follows the end-of-data marker.
    """

    # How many fields each record of csv must have. If it is None, records that span several lines are not checked.
    field_count: int | None = None
    # Whether a record may have one field more, if that field is empty.
    ends_empty: bool = False
    # The longest line that can be rejected, unless `max_record_bytes` is more. The ledger stores a rejected line as one
    # value, which has at most 1 GB, and several copies of the line are in memory.
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
        """Yield the records before a torn record, and the torn record's first line. Later bytes are cut again."""
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
        # The characters that end the line. A line feed ends it even if the records end with CR. If CR was guessed
        # wrongly, the object's other lines are then rejected one by one.
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
