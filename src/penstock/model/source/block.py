"""A block of whole records, and the COPY command that it can be sent in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LineEnd = Literal["lf", "crlf", "cr"]

# Part of a buffer: (buffer, start, end). A block is a list of them, so that joining two buffers copies no bytes.
Segment = tuple[bytes, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    r"""Whole records of one object.

    `start` and `end` are the byte range in the decompressed object; `first_line` counts from 1. `lines` is the number
    of physical lines, `server_lines` how far the server's line counter advances. `stray_backslashes` (tsv) is the
    number of backslashes outside `\N` fields, which must be doubled in COPY text. `is_unended`: the last record has no
    line end, so nothing may follow it in the same COPY. `is_first` and `is_last`: the block has the object's first or
    last record; an object without records is one block without segments, for which both are true. `fault` is why the
    block's only record is rejected without being sent.
    """

    segments: tuple[Segment, ...]
    start: int
    end: int
    first_line: int
    lines: int
    server_lines: int
    records: int
    line_end: LineEnd
    stray_backslashes: int
    is_unended: bool
    is_first: bool = False
    is_last: bool = False
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CopySpec:
    """Table, columns and options of a COPY command: blocks with equal ones may be sent in the same command.

    `columns` is the COPY column list; `encoding` is PostgreSQL's name of the payload's encoding. `quote` and `escape`
    are None for text. `force_null` are the columns whose quoted fields may be null.
    """

    schema: str | None
    table: str
    columns: tuple[str, ...]
    format: Literal["csv", "text"]
    delimiter: str
    null: str
    quote: str | None
    escape: str | None
    encoding: str
    force_null: tuple[str, ...] = ()
