"""Pieces: consecutive records that can be split at any record and sent again after a COPY has failed. Pure.

A `RecordIndex` says where the records of a buffer begin, and on which lines, as the file counts them and as the server
does.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

from penstock import _native
from penstock.core.recorded import make_recorded, reading_record, to_json
from penstock.core.values.dialect import Dialect
from penstock.core.values.table import ColumnMap, TableName
from penstock.ledger.rejects import RecordForm
from penstock.loading.copy.payload import Encoder, make_form_encoder
from penstock.loading.formats.blocks import make_cutter
from penstock.loading.read.feed import OpenObject
from penstock.loading.values.objects import Block, CopySpec, LineEnd

if TYPE_CHECKING:
    from collections import deque


MakeCutter = Callable[[], _native.RecordCutter]

# An empty record with each line end. The byte after the lone carriage return shows that no line feed follows. The
# cutter does not consume that byte.
_EMPTY_RECORDS: dict[LineEnd, bytes] = {"lf": b"\n", "crlf": b"\r\n", "cr": b"\r."}

# How many bytes are searched first for the end of a record. If the search fails, the number is doubled.
_WINDOW_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordIndex:
    """Where each record of a buffer begins."""

    data: bytes
    # The offset of each record, followed by the offset at which the last one ends.
    starts: Sequence[int]
    # The number of lines before each record, None if each record is one line.
    lines: Sequence[int] | None = None
    # The number of lines before each record, as the server counts them in a COPY of the buffer.
    server_lines: Sequence[int] = ()

    def find_server_line(self, line: int) -> int:
        """Return the index of the record in which an error of COPY says "line N", where N is `line`."""
        return bisect_left(self.server_lines, line) - 1


def index_records(data: bytes, records: int, cutter: _native.RecordCutter) -> RecordIndex:
    """Return where each of the `records` records of a buffer begins. Records may contain line ends.

    `cutter` is a new cutter, which no data was given to.
    """
    starts, lines, server_lines = [0], [0], [0]
    feed_one = cutter.feed_one
    for _ in range(records - 1):
        at, length, line_end = starts[-1], _WINDOW_BYTES, cutter.line_end
        while not (cut := feed_one(data[at : at + length])).records:
            cutter.restart(line_end)
            length *= 2
            assert at + length < 2 * len(data) + 2 * _WINDOW_BYTES
        starts.append(at + cut.end)
        lines.append(lines[-1] + cut.lines)
        server_lines.append(server_lines[-1] + cut.server_lines)
    return RecordIndex(data=data, starts=[*starts, len(data)], lines=lines, server_lines=server_lines)


def make_payload_cutter(spec: CopySpec) -> _native.RecordCutter:
    """Return a new cutter that finds the records in the payload of a COPY command."""
    return _native.RecordCutter(
        format=spec.format,
        delimiter=spec.delimiter.encode(),
        quote=None if spec.quote is None else spec.quote.encode(),
        escape=None if spec.escape is None else spec.escape.encode(),
    )


def knowing(line_end: LineEnd, make_cutter: MakeCutter) -> MakeCutter:
    """Return a function that makes the same cutters as `make_cutter`, but for data after an object's first record.

    These cutters know from the start that lines end with `line_end`. A new cutter counts the lines inside the first
    record differently, as the server does until it has seen a line end (copyfromparse.c, CopyReadLineText).
    """

    def make() -> _native.RecordCutter:
        cutter = make_cutter()
        if not cutter.feed_one(_EMPTY_RECORDS[line_end]).records:
            # In JSON Lines, an empty line is not a record.
            cutter.restart(None)
        return cutter

    return make


_LINE_ENDS: dict[LineEnd, bytes] = {"lf": b"\n", "crlf": b"\r\n", "cr": b"\r"}


@dataclass(slots=True, kw_only=True, eq=False)
class Origin:
    """The object that records come from, with what is needed to cut and encode them again."""

    number: int
    uri: str
    form: RecordForm
    encoder: Encoder
    server_major: int

    def cutter_for(self, line_end: LineEnd) -> MakeCutter:
        """Return a function that makes new cutters, which can start at any record of the object.

        They know from the start that records end with `line_end`.
        """
        return knowing(line_end, partial(make_cutter, self.form.dialect, server_major=self.server_major))


def origin_of(opened: OpenObject, server_major: int) -> Origin:
    """Return the origin of the records of an open object."""
    return Origin(
        number=opened.work.number,
        uri=opened.source.uri,
        form=opened.form,
        encoder=opened.encoder,
        server_major=server_major,
    )


class Bounds(NamedTuple):
    """Where a record begins and ends in its object, and the line on which it begins, from 1.

    `start` and `end` are offsets in the decompressed object, in bytes, or in rows if its ranges count rows.
    """

    start: int
    end: int
    line: int


@dataclass(slots=True, kw_only=True, eq=False)
class Piece:
    """Consecutive whole records of one object, as bytes.

    Pieces that are cut from a piece share its bytes and its index of records. The methods count records from 0.
    """

    origin: Origin
    block: Block
    _index: RecordIndex | None = None
    _first: int = 0

    @property
    def records(self) -> int:
        """Return the number of records in the piece."""
        return self.block.records

    @property
    def is_untouched(self) -> bool:
        """Return whether the payload for COPY is the bytes of the records as the object has them."""
        return self.origin.encoder.is_untouched(self.block)

    @property
    def payload_line_end(self) -> LineEnd:
        """Return the line end of the records in the payload for COPY."""
        return self.block.line_end if self.is_untouched else "lf"

    def payload(self) -> Sequence[bytes | memoryview]:
        """Return the payload for COPY. Raises penstock._native.RecordError for a record that cannot be encoded."""
        if self.block.fault is not None:
            raise _native.RecordError(self.block.fault, 0, 0)
        return self.origin.encoder.encode(self.block)

    def bounds(self, record: int) -> Bounds:
        """Return where the record with this index is in its object."""
        if self.block.unit == "rows":
            start = self.block.start + record
            return Bounds(start, start + 1, self.block.first_line + record)
        index, at = self._indexed(), self._first + record
        starts = index.starts
        offset = self.block.start - starts[self._first]
        line = self.block.first_line + self._lines_to(at)
        return Bounds(starts[at] + offset, starts[at + 1] + offset, line)

    def raw(self, record: int) -> bytes:
        """Return the bytes of the record with this index as the object has them, with the line end."""
        index, at = self._indexed(), self._first + record
        return index.data[index.starts[at] : index.starts[at + 1]]

    def decode(self) -> None:
        """Raise UnicodeDecodeError if the encoding is UTF-8 and the records are not valid UTF-8, or contain a NUL."""
        if self.origin.form.encoding.upper() != "UTF8":
            return
        index = self._indexed()
        data = index.data[index.starts[self._first] : index.starts[self._first + self.records]]
        data.decode()
        if (at := data.find(0)) >= 0:
            raise UnicodeDecodeError("utf-8", data, at, at + 1, "NUL")

    def record_at(self, offset: int) -> int:
        """Return the index of the record that contains the byte at `offset` of the piece."""
        starts = self._indexed().starts
        return bisect_right(starts, starts[self._first] + offset) - 1 - self._first

    def records_at(self, starts: Sequence[int]) -> list[int]:
        """Return the indexes of the records to which rejects with these offsets belong, if they are in the piece.

        `starts` are Reject.start of rejects of the object, in ascending order. Offsets outside the piece are ignored. A
        reject of JSON Lines may begin later than its record, because it lacks the blank lines that begin the record.
        """
        here = starts[bisect_left(starts, self.block.start) : bisect_left(starts, self.block.end)]
        records = range(self.records)
        return [bisect_right(records, start, key=lambda record: self.bounds(record).start) - 1 for start in here]

    def at_server_line(self, line: int) -> int:
        """Return the index of the record to which a line of the piece belongs.

        Lines are counted from 1, as the server counts them in a COPY in which other records precede the piece.
        """
        index, first = self._indexed(), self._first
        return index.find_server_line(line + index.server_lines[first]) - first

    def cut(self, first: int, stop: int) -> Piece:
        """Return a piece with the records from index `first` up to but not including index `stop`."""
        index, block = self._indexed(), self.block
        start, end = index.starts[self._first + first], index.starts[self._first + stop]
        is_tail = stop == block.records
        offset = block.start - index.starts[self._first]
        bounds = (start + offset, end + offset)
        if block.unit == "rows":
            bounds = (block.start + first, block.start + stop)
        lines_before = self._lines_to(self._first + first)
        lines = block.lines if is_tail else self._lines_to(self._first + stop)
        is_unended = block.is_unended and is_tail
        return Piece(
            origin=self.origin,
            block=replace(
                block,
                segments=((index.data, start, end),),
                start=bounds[0],
                end=bounds[1],
                first_line=block.first_line + lines_before,
                lines=lines - lines_before,
                server_lines=lines - lines_before,
                records=stop - first,
                stray_backslashes=self._count_strays(index.data[start:end], is_unended=is_unended),
                is_unended=is_unended,
                is_first=block.is_first and first == 0,
                is_last=block.is_last and is_tail,
            ),
            _index=index,
            _first=self._first + first,
        )

    def _lines_to(self, at: int) -> int:
        """Return how many lines are between the piece's first record and the record `at` of the index."""
        lines = self._indexed().lines
        return at - self._first if lines is None else lines[at] - lines[self._first]

    def _count_strays(self, data: bytes, *, is_unended: bool) -> int:
        if not self.block.stray_backslashes:
            return 0
        cut = self.origin.cutter_for(self.block.line_end)().feed(data)
        # The cut does not include a last record without a line end. Count at least one backslash, so that this record
        # is rewritten field by field, which is always correct.
        return max(cut.stray_backslashes, 1) if is_unended else cut.stray_backslashes

    def _indexed(self) -> RecordIndex:
        if self._index is None:
            block = self.block
            data = b"".join(buffer[start:end] for buffer, start, end in block.segments)
            if _is_lines(data, records=block.records, line_end=block.line_end):
                starts = list(accumulate(map(len, data.splitlines(keepends=True)), initial=0))
                self._index = RecordIndex(data=data, starts=starts)
            else:
                self._index = index_records(data, block.records, self.origin.cutter_for(block.line_end)())
        return self._index


def count_records(pieces: Iterable[Piece]) -> int:
    """Return how many records pieces have."""
    return sum(piece.block.records for piece in pieces)


def take_records(pieces: deque[Piece], limit: int) -> list[Piece]:
    """Remove the first `limit` records from the left end of a queue of pieces, and return them as pieces."""
    taken: list[Piece] = []
    while pieces and limit:
        piece = pieces.popleft()
        if piece.records > limit:
            pieces.appendleft(piece.cut(limit, piece.records))
            piece = piece.cut(0, limit)
        taken.append(piece)
        limit -= piece.records
    return taken


def runs(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Yield groups of consecutive pieces, each of which one COPY command can carry.

    A record without a line end must be the last one of its group. If triggers may skip rows, a group has pieces of one
    object only, because skipped rows are counted for each object.
    """
    run: list[Piece] = []
    for piece in pieces:
        if run and not _may_follow(piece, run[-1]):
            yield run
            run = []
        run.append(piece)
    if run:
        yield run


def _may_follow(piece: Piece, before: Piece) -> bool:
    if before.block.is_unended and before.is_untouched:
        return False
    if piece.origin.number != before.origin.number and piece.origin.form.allows_suppressed_rows:
        return False
    is_same = piece.origin.encoder.spec == before.origin.encoder.spec
    return is_same and piece.payload_line_end == before.payload_line_end


def find_record(pieces: Sequence[Piece], position: int, *, ends: Sequence[int] | None = None) -> tuple[Piece, int]:
    """Return the piece of a record and the record's index in it.

    `position` is the record's number in all pieces, from 1. `ends` are the numbers of the last records of the pieces;
    they are counted if they are not given.
    """
    ends = list(accumulate(piece.records for piece in pieces)) if ends is None else ends
    number = bisect_left(ends, position)
    return pieces[number], position - (ends[number - 1] if number else 0) - 1


def find_positions(pieces: Sequence[Piece], spec: CopySpec, lines: Sequence[int]) -> list[int] | None:
    """Return for each line number which record is on this line, as its number in all pieces, from 1.

    `lines` are the line numbers, in ascending order, that the server reports for one COPY of the pieces. Return None if
    the records found are not in ascending order. In format text the server counts one line for each record. In csv it
    also counts line ends inside a record, if they are of the same kind as the ends of records.
    """
    found: list[int] = []
    passed = records = 0
    for number, piece in enumerate(pieces):
        if len(found) == len(lines):
            break
        payload = b"".join(piece.payload())
        find, count = _read_lines(piece, payload, spec, is_first=number == 0)
        is_last = number == len(pieces) - 1
        here = [line - passed for line in lines[len(found) :] if is_last or line - passed <= count]
        found += [records + min(find(line), piece.records - 1) + 1 for line in here]
        passed += count
        records += piece.records
    is_ordered = all(earlier < later for earlier, later in pairwise(found))
    return found if is_ordered and len(found) == len(lines) else None


# ---------------------------------------------------------------- where records are


def _is_lines(data: bytes, *, records: int, line_end: LineEnd) -> bool:
    """Return whether every line end ends a record: there are as many as records, and all are of the same kind."""
    mark = _LINE_ENDS[line_end]
    count = data.count(mark)
    if count + (not data.endswith(mark)) != records:
        return False
    if line_end == "lf":
        return b"\r" not in data
    if line_end == "cr":
        return b"\n" not in data
    return data.count(b"\n") == data.count(b"\r") == count


def _read_lines(piece: Piece, payload: bytes, spec: CopySpec, *, is_first: bool) -> tuple[Callable[[int], int], int]:
    """Return a function that finds the index of the record on a line, and the number of lines.

    Lines are those that the server counts in the payload.
    """
    line_end = piece.payload_line_end
    if spec.format == "text" or _is_lines(payload, records=piece.records, line_end=line_end):
        return lambda line: line - 1, piece.records
    make: MakeCutter = partial(make_payload_cutter, spec)
    if not is_first:
        # Before its first line end, the server counts lines inside a record in another way than after it.
        make = knowing(line_end, make)
    count = make().feed(payload).server_lines
    if piece.is_untouched and not is_first:
        return piece.at_server_line, count
    return index_records(payload, piece.records, make()).find_server_line, count


def find_line_end(raw: bytes) -> LineEnd | None:
    r"""Return the line end of a record, or None if it has none because it is the last one of a file.

    >>> find_line_end(b"a\r\n"), find_line_end(b"a")
    ('crlf', None)
    """
    ends: tuple[LineEnd, ...] = ("crlf", "lf", "cr")
    return next((name for name in ends if raw.endswith(_LINE_ENDS[name])), None)


def form_to_json(form: RecordForm) -> str:
    """Return how an object's records are read and sent (RecordForm) as JSON, which `form_from_json` reads."""
    fields = asdict(form)
    # The header has bytes of any encoding, so write it as hexadecimal digits, which every database can store.
    del fields["header"]
    fields["header_hex"] = None if form.header is None else form.header.hex()
    return to_json(fields)


def form_from_json(text: str) -> RecordForm:
    """Return the RecordForm that `form_to_json` wrote as JSON.

    Raises TargetError if another version of penstock wrote it and this version does not know all of its parts.
    """
    fields = json.loads(text)
    with reading_record("how rejected records are read"):
        header, columns = fields.pop("header_hex"), fields["column_map"]
        if columns.get("names") is not None:
            columns["names"] = tuple(map(tuple, columns["names"]))
        read = {
            "dialect": make_recorded(Dialect, fields["dialect"], part="field"),
            "column_map": make_recorded(ColumnMap, columns, part="field"),
            "table": make_recorded(TableName, fields["table"], part="field"),
            "header": None if header is None else bytes.fromhex(header),
            "working_names": tuple((working, name) for working, name in fields["working_names"]),
        }
        return make_recorded(RecordForm, fields | read, part="field")


def make_origin(form: RecordForm, *, number: int, uri: str, server_major: int, has_positions: bool = False) -> Origin:
    """Return what is needed to cut and send records of object `number` without opening the object.

    `form` names the table that they are sent to. `has_positions` says that it is a staging table, which also stores the
    position of each record.
    """
    encoder = make_form_encoder(form, positions=number if has_positions else None)
    return Origin(number=number, uri=uri, form=form, encoder=encoder, server_major=server_major)
