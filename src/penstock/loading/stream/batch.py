"""Records what one transaction contains of each object, for its ledger rows. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from isal import isal_zlib

from penstock.model.load.ledger import CommittedRange
from penstock.model.source.block import Block
from penstock.model.source.source import Range


@dataclass(slots=True)
class _Share:
    """What a batch contains of one object. The blocks of an object are added in their order."""

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
    """Blocks of one transaction, with the checksum of their bytes and their header."""

    def __init__(self) -> None:
        self._shares: dict[int, _Share] = {}
        self.bytes_sent = 0

    def __bool__(self) -> bool:
        return bool(self._shares)

    def add(self, object_number: int, block: Block, *, header: bytes | None) -> None:
        """Add a block; a block without records records that its object has none.

        `header` is the object's header record.
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
        """Count rows that the table's triggers suppressed."""
        self._shares[object_number].suppressed += rows

    def note_rejected(self, object_number: int, records: int, *, form: str) -> None:
        """Count rejected records; `form` says how the object's records are read, as JSON."""
        share = self._shares[object_number]
        share.rejected += records
        share.form = form

    @property
    def rows(self) -> int:
        """Return how many rows were stored in the tables."""
        return sum(share.records - share.suppressed - share.rejected for share in self._shares.values())

    def committed_ranges(self) -> list[CommittedRange]:
        """Return the rows for the ledger."""
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
