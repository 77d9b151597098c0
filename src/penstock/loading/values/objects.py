"""Values of an object of a load, of a block of whole records of it, and of the COPY command that can send the block.

An object has a target, a number in the ledger, and ranges that are committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Literal

from penstock.core.slotted import slotted
from penstock.core.values.source import SourceObject
from penstock.core.values.table import TableName
from penstock.ledger.values import Coverage, LedgerObject, LedgerUnit
from penstock.loading.files.listing import ctime_ns, lasting_version, recorded_name
from penstock.loading.values.plan import TargetPlan

LineEnd = Literal["lf", "crlf", "cr"]

# A part of a buffer: (buffer, start, end). A block is a list of such parts, so that no bytes are copied if a block
# spans two buffers.
Segment = tuple[bytes, int, int]


@slotted
class Block:
    """Whole consecutive records of one object, as bytes, with their range in the object."""

    segments: tuple[Segment, ...]
    # The range of bytes in the decompressed object, or of row numbers from 0 (see `unit`).
    start: int
    end: int
    # The number of the first line, counted from 1.
    first_line: int
    # The number of physical lines.
    lines: int
    # By how much the server's line counter advances when the block is sent.
    server_lines: int
    records: int
    line_end: LineEnd
    # In tsv, the number of backslashes outside `\N` fields, which must be doubled in COPY text.
    stray_backslashes: int
    # Whether the last record has no line end, so that nothing may follow it in the same COPY.
    is_unended: bool
    # Whether the block has the object's first or last record. An object without records is one block without segments,
    # for which both fields are true.
    is_first: bool = False
    is_last: bool = False
    # Why the block's only record is rejected without being sent, None if it is sent.
    fault: str | None = None
    # What `start` and `end` count. If it is rows, each is one line, and the segments are the rows as COPY sends them.
    unit: Literal["bytes", "rows"] = "bytes"
    # The row group or record batch that contains the rows of a columnar file, None if rows are lines of their file.
    part: str | None = None

    @property
    def size_bytes(self) -> int:
        """Return the number of bytes in the segments."""
        return sum(end - start for _, start, end in self.segments)


@slotted
class CopySpec:
    """The table, columns and options of a COPY command. Blocks with equal specs may be sent in the same command.

    In format binary, the options of text and csv are not used.
    """

    schema: str | None
    table: str
    # The column list of the command.
    columns: tuple[str, ...]
    format: Literal["csv", "text", "binary"]
    delimiter: str
    null: str
    # The quote and the escape character, None for format text.
    quote: str | None
    escape: str | None
    # PostgreSQL's name of the payload's encoding.
    encoding: str
    # The columns of FORCE_NULL: in these columns a quoted field that equals `null` is null too.
    force_null: tuple[str, ...] = ()
    # The types for which blocks of text were encoded in the binary format. That format does not contain types, so the
    # command is accepted only if the columns have these types.
    type_oids: tuple[int, ...] = ()
    # Whether COPY freezes the rows. COPY can do so only if its transaction has truncated the table.
    freezes: bool = False


@slotted
class PlannedObject:
    """One object of a load, with its target and what is committed of it."""

    target: TargetPlan
    source: SourceObject
    # The number of the object in the load, from 0.
    number: int
    # What is committed of the object. Blocks within it are not sent again.
    coverage: Coverage = field(default_factory=Coverage)
    # The index of the target in the job.
    target_index: int = 0
    # The table that COPY fills, if it is not the target's own table or was just created.
    landing: TableName | None = None
    # The present names of a replacing table and of its indexes, each with its final name.
    working_names: tuple[tuple[str, str], ...] = ()

    @property
    def has_positions(self) -> bool:
        """Whether the table that COPY fills stores the position of each record in its object."""
        return self.landing is not None and self.target.is_staged

    @property
    def is_fresh(self) -> bool:
        """Return whether the object is loaded even if an earlier load has loaded it.

        This is so for a pipe, which has no version, and if the mode needs all objects of the sources, such as replace.
        """
        return self.target.landing.is_fresh or self.target.landing.deletes or self.source.is_pipe


def all_objects(targets: Sequence[TargetPlan]) -> list[PlannedObject]:
    """Return every object of a plan's targets, numbered from 0 in the order of the job, as if none were loaded."""
    found = [(index, target, source) for index, target in enumerate(targets) for source in target.objects]
    return [
        PlannedObject(target=target, source=source, number=number, target_index=index)
        for number, (index, target, source) in enumerate(found)
    ]


def ledger_object(
    source: SourceObject, *, number: int, target_oid: int, target: TableName, unit: LedgerUnit = "bytes"
) -> LedgerObject:
    """Return an object as the ledger records it. `number` is its number in the load, `target_oid` the table's OID.

    `unit` is what the ranges of the object count.
    """
    return LedgerObject(
        number=number,
        target_oid=target_oid,
        target=target,
        uri=recorded_name(source),
        version=lasting_version(source),
        size_bytes=source.size_bytes,
        ctime_ns=ctime_ns(source),
        unit=unit,
    )
