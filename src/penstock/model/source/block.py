"""A block of whole records on its way from an object to a COPY."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LineEnd = Literal["lf", "crlf", "cr"]

# A run of one buffer: (buffer, start, end). Blocks are made of runs so that no byte is copied to join two of them.
Segment = tuple[bytes, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    r"""Whole records of one object.

    `start` and `end` are the byte range in the decompressed object; `first_line` counts from 1. `lines` are physical
    lines, `server_lines` what the server's own line counter advances by. `stray_backslashes` of tsv are no `\N`
    field's and must be doubled in COPY text. `is_unended`: the last record has no line end, so nothing may follow it in
    the same COPY. `is_first` and `is_last`: the object's first and last records are in it; an object without records
    is one block without segments that is both. `fault` is why the block's one record is rejected unsent.
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
    """One COPY command's meaning: blocks that share it may travel in the same command.

    `columns` is the COPY column list; `encoding` PostgreSQL's name of what the payload is in. `quote` and `escape` are
    None for text. `force_null` are those whose quoted fields may be null.
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
