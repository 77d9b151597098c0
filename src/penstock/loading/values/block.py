"""Values of a block of whole records, and of the COPY command that can send it."""

from __future__ import annotations

from typing import Literal

from penstock.core.slotted import slotted

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
