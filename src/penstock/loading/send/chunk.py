"""Records what one COPY command and one transaction have sent, to check row counts and to find an error's line."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from isal import isal_zlib

from penstock.core.errors import FileLocation
from penstock.core.values.source import Range
from penstock.ledger.values import CommittedRange
from penstock.loading.rejects.pieces import MakeCutter, index_records, knowing, make_payload_cutter
from penstock.loading.values.objects import Block, CopySpec, LineEnd

# How many bytes of the last blocks are kept. Data that the server has not read yet is in socket buffers, a few MiB at
# most. So the record of an error is among these bytes.
_KEPT_BYTES = 8 * 1024 * 1024


@dataclass(slots=True, kw_only=True)
class _Carried:
    """The lines of a block in its file and in the COPY command."""

    uri: str
    first_line: int
    lines: int
    server_lines: int
    records: int
    make_cutter: MakeCutter
    # The line end of the payload's records.
    line_end: LineEnd
    # The block's bytes and its payload, if they may be needed to find a line.
    kept: tuple[bytes, bytes] | None = None
    part: str | None = None


@dataclass(slots=True)
class Chunk:
    """The blocks of one COPY command in the order in which they were sent, to find the line of an error in the files.

    The bytes of the last blocks are kept, if lines can be found only in them.
    """

    spec: CopySpec
    keeps_bytes: int = _KEPT_BYTES
    records: int = 0
    bytes_sent: int = 0
    _carried: list[_Carried] = field(default_factory=list)
    _kept: deque[_Carried] = field(default_factory=deque)
    _kept_bytes: int = 0
    _counted: list[str] = field(default_factory=list)
    # How many lines of the command's first record the server did not count.
    _missed: int = 0
    # The line on which the command's first record ends, in the server's count.
    _missed_until: int = 0

    def add(
        self,
        block: Block,
        *,
        uri: str,
        payload: Sequence[bytes | memoryview],
        was_rewritten: bool,
        make_cutter: MakeCutter,
    ) -> None:
        """Add a block of the object `uri` that is sent as `payload`.

        `was_rewritten` says that the payload is not the block's own bytes. `make_cutter` returns a new cutter for the
        dialect of the object.
        """
        carried = _Carried(
            uri=uri,
            first_line=block.first_line,
            lines=block.lines + block.is_unended,
            server_lines=_count_lines(payload, block, self.spec, was_rewritten=was_rewritten),
            records=block.records,
            make_cutter=knowing(block.line_end, make_cutter),
            line_end="lf" if was_rewritten else block.line_end,
            part=block.part,
        )
        if not self._carried and self.spec.format == "csv" and (was_rewritten or block.line_end == "lf"):
            self._note_first(payload)
        self.records += block.records
        self.bytes_sent += block.size_bytes
        self._carried.append(carried)
        # The file's lines match the server's lines if the server counts each line feed as a line, or if every record is
        # one line. Otherwise the totals may be equal although single lines differ.
        is_even = (not was_rewritten and block.line_end == "lf") or carried.lines == block.records
        if carried.lines != carried.server_lines or not is_even:
            self._keep(carried, block, payload)

    def count(self, block: Block, *, uri: str, records: int) -> None:
        """Add a block without its lines, because `locate` is not called for it. `records` is how many records are sent.

        Its records are kept by a RejectKeeper, which finds their lines, or the block is sent again as text after an
        error.
        """
        self.records += records
        self.bytes_sent += block.size_bytes
        if uri not in self._counted:
            self._counted.append(uri)

    @property
    def uris(self) -> list[str]:
        """Return the URIs of the objects in the command, in the order of their first blocks."""
        return list(dict.fromkeys([*self._counted, *(carried.uri for carried in self._carried)]))

    def locate(self, server_line: int) -> FileLocation | None:
        """Return the file and the line on which a record ends, given the line that an error of the COPY command names.

        The server names the last line of the record. The result is exact if the server counts every line feed of the
        object, or if the record's bytes are still kept. Otherwise it is some line of the right block. The server counts
        no lone line feed inside quotes in a file with CR LF, and no escaped line feed in format text. Return None if no
        block was added by `add`.
        """
        # The server names the last line of a record. This also applies to the first record.
        remaining = max(server_line, self._missed_until) + self._missed
        for carried in self._carried:
            is_last = carried is self._carried[-1]
            if remaining <= carried.server_lines or is_last:
                line = min(remaining, carried.lines)
                if carried.kept is not None:
                    line = self._line_within(carried, server_line if carried is self._carried[0] else remaining)
                return FileLocation(file=carried.uri, line=carried.first_line + line - 1, part=carried.part)
            remaining -= carried.server_lines
        return None

    def _note_first(self, payload: Sequence[bytes | memoryview]) -> None:
        """Record how many lines of the command's first record the server does not count.

        Before its first line end, the server counts carriage returns inside quotes, not line feeds (copyfromparse.c,
        CopyReadLineText).
        """
        cutter = make_payload_cutter(self.spec)
        cuts = (cutter.feed_one(bytes(part)) for part in payload)
        cut = next((cut for cut in cuts if cut.records), None)
        unended = 0
        if cut is None:
            # The command's first record is also the object's last one, and has no line end.
            cut, unended = cutter.finish(), 1
        self._missed, self._missed_until = cut.lines + unended - cut.server_lines, cut.server_lines

    def _keep(self, carried: _Carried, block: Block, payload: Sequence[bytes | memoryview]) -> None:
        data = b"".join(buffer[start:end] for buffer, start, end in block.segments)
        carried.kept = (data, b"".join(payload))
        self._kept.append(carried)
        self._kept_bytes += sum(map(len, carried.kept))
        while self._kept_bytes > self.keeps_bytes and len(self._kept) > 1:
            dropped = self._kept.popleft()
            assert dropped.kept is not None
            self._kept_bytes -= sum(map(len, dropped.kept))
            dropped.kept = None

    def _line_within(self, carried: _Carried, server_line: int) -> int:
        """Return the block's line on which the record at `server_line` of the payload ends. Both count from 1."""
        assert carried.kept is not None
        data, payload = carried.kept
        make: MakeCutter = partial(make_payload_cutter, self.spec)
        if carried is not self._carried[0]:
            # Only in the command's first record does the server not know yet how lines end.
            make = knowing(carried.line_end, make)
        sent = index_records(payload, carried.records, make())
        following = sent.find_server_line(server_line) + 1
        lines = index_records(data, carried.records, carried.make_cutter()).lines
        assert lines is not None
        return lines[following] if following < carried.records else carried.lines


def _count_lines(payload: Sequence[bytes | memoryview], block: Block, spec: CopySpec, *, was_rewritten: bool) -> int:
    """Return how many lines the server counts in a block if it already knows how lines end."""
    if spec.format != "csv":
        return block.records
    if was_rewritten:
        return sum(bytes(part).count(b"\n") for part in payload)
    return block.lines + block.is_unended if block.line_end == "lf" else block.server_lines


@dataclass(slots=True)
class _Share:
    """The part of a batch that belongs to one object. The object's blocks are added in their order."""

    start: int
    header_checksum: int
    ranges: list[Range] = field(default_factory=list)
    has_start: bool = False
    has_end: bool = False
    records: int = 0
    suppressed: int = 0
    rejected: int = 0
    form: str | None = None
    checksum: int = 0


class Batch:
    """The blocks of one transaction, and what the ledger records of them for each object.

    That includes a CRC-32 of the bytes of the blocks and of the object's header.
    """

    def __init__(self) -> None:
        self._shares: dict[int, _Share] = {}
        self.bytes_sent = 0

    def __bool__(self) -> bool:
        return bool(self._shares)

    def add(self, object_number: int, block: Block, *, header: bytes | None) -> None:
        """Add a block of an object. `header` is the object's header record, None without one.

        A block without records is an object without records, or the end of an object by itself.
        """
        share = self._shares.get(object_number)
        if share is None:
            share = self._shares[object_number] = _Share(block.start, isal_zlib.crc32(header or b""))
        share.has_start |= block.is_first
        share.has_end |= block.is_last
        share.records += block.records
        for buffer, start, end in block.segments:
            share.checksum = isal_zlib.crc32(memoryview(buffer)[start:end], share.checksum)
        self.bytes_sent += block.size_bytes
        if block.start == block.end:
            return
        if share.ranges and share.ranges[-1][1] == block.start:
            share.ranges[-1] = (share.ranges[-1][0], block.end)
        else:
            share.ranges.append((block.start, block.end))

    def note_suppressed(self, object_number: int, rows: int) -> None:
        """Count rows of an object that the table's triggers skipped."""
        self._shares[object_number].suppressed += rows

    def note_rejected(self, object_number: int, records: int, *, form: str) -> None:
        """Count rejected records of an object. `form` is its RecordForm as JSON: how its records are read."""
        share = self._shares[object_number]
        share.rejected += records
        share.form = form

    @property
    def rows(self) -> int:
        """Return how many rows the transaction has stored: its records without those suppressed or rejected."""
        return sum(share.records - share.suppressed - share.rejected for share in self._shares.values())

    def committed_ranges(self) -> list[CommittedRange]:
        """Return the rows that are inserted into the ledger's table "ranges" for the batch: one for each object."""
        return [
            CommittedRange(
                object_number=number,
                start=share.start,
                ranges=tuple(share.ranges),
                has_start=share.has_start,
                has_end=share.has_end,
                records=share.records,
                rows=share.records - share.suppressed - share.rejected,
                suppressed=share.suppressed,
                rejected=share.rejected,
                form=share.form,
                checksum=share.checksum ^ share.header_checksum,
            )
            for number, share in self._shares.items()
        ]
