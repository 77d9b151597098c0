"""Makes blocks of rows that a format writes itself, and refuses objects whose records have a wrong number of fields."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from penstock import _native
from penstock.core.errors import DataError, FileLocation
from penstock.core.units import MIB, format_count
from penstock.core.values.table import ColumnMap
from penstock.ledger.rejects import RecordForm
from penstock.loading.copy.payload import Encoder, find_kept_types, make_form_encoder
from penstock.loading.formats.blocks import record_error
from penstock.loading.formats.format import RangeSums, RowSums
from penstock.loading.formats.probe.columnar import SENT_DIALECT
from penstock.loading.formats.probe.mangling import explain_misfit
from penstock.loading.values.objects import Block, PlannedObject
from penstock.loading.values.plan import table_after_creation


def make_object_encoder(form: RecordForm, work: PlannedObject) -> Encoder:
    """Return the encoder for an object's blocks.

    The encoder knows the types of the columns that may change a value, as numeric(10,2) does by rounding. If the load
    creates the table, no type does so.
    """
    encoder = make_form_encoder(form, positions=work.number if work.has_positions else None)
    if work.target.facts is None:
        # The columns of a table that the load creates have types that keep all values, or type text.
        return encoder
    fed, table = len(form.column_map.columns) - len(form.column_map.constants), table_after_creation(work.target)
    return replace(encoder, kept=find_kept_types([table.column(name) for name in form.column_map.columns[:fed]]))


def make_row_form(names: Sequence[str], column_map: ColumnMap, work: PlannedObject) -> RecordForm:
    """Return how rows that penstock itself writes as COPY text are read.

    The result has the dialect, the columns, and the header of reject files. `names` are the names of the fields.
    """
    escapes = {ord("\\"): "\\\\", ord("\t"): "\\t", ord("\n"): "\\n", ord("\r"): "\\r"}
    target = work.target
    return RecordForm(
        dialect=SENT_DIALECT,
        column_map=column_map,
        table=target.table if work.landing is None else work.landing,
        encoding="UTF8",
        # A reject file begins with the names of the fields.
        header=("\t".join(name.translate(escapes) for name in names) + "\n").encode(),
        allows_suppressed_rows=target.allows_suppressed_rows,
        working_names=work.working_names,
    )


def make_row_block(data: bytes, start: int, end: int, *, is_last: bool, part: str | None = None) -> Block:
    """Return a block of rows that penstock has written as COPY text. `data` is that text.

    `start` is the first row, and `end` the row after the last one, counted from 0. `part` names the part of the file
    that contains the rows. It is None if each row is a line of the file.
    """
    return Block(
        segments=((data, 0, len(data)),) if data else (),
        start=start,
        end=end,
        first_line=start + 1,
        lines=end - start,
        server_lines=end - start,
        records=end - start,
        line_end="lf",
        stray_backslashes=0,
        is_unended=False,
        is_first=start == 0,
        is_last=is_last,
        unit="rows",
        part=part,
    )


def watch_rows(blocks: Iterable[Block], form: RecordForm, sums: RangeSums | None) -> Iterable[Block]:
    """Return the blocks. If `sums` is given, each block is added to it when it is taken from the result.

    The blocks must be cut at the edges of `sums`.
    """
    if sums is None:
        return blocks
    assert isinstance(sums, RowSums)
    sums.header = form.header
    return sums.watch_rows(blocks)


# If this many records have a wrong number of fields, the dialect or the columns are wrong, not the records.
_RECORDS: Final = 1000
# The most bytes of blocks that are held in memory until a record fits. If these bytes have fewer than 1,000 records,
# the object is not refused.
_HELD_BYTES: Final = 64 * MIB


def refuse_unfit(blocks: Iterable[Block], form: RecordForm, *, uri: str) -> Iterator[Block]:
    """Yield an object's blocks. Raise DataError if none of its first records has the right number of fields.

    The first records are those in the blocks that contain the first 1,000 records, or all records if the object has 2
    to 999. If these blocks have more than 64 MiB, nothing is refused.
    """
    encoder = make_form_encoder(form, checks_width=True)
    left = iter(blocks)
    held: list[Block] = []
    records = held_bytes = 0
    for block in left:
        held.append(block)
        records += block.records
        held_bytes += block.end - block.start
        if (block.records and encoder.fits_any(block)) or held_bytes > _HELD_BYTES:
            break
        if records >= _RECORDS:
            raise _describe(held, encoder, form, f"the first {format_count(_RECORDS)}", uri=uri)
    else:
        if records > 1:
            raise _describe(held, encoder, form, f"all {format_count(records)}", uri=uri)
    yield from held
    yield from left


def explain_line(block: Block, line: int, form: RecordForm, *, uri: str) -> str | None:
    """Return what to do about a record with another number of fields than expected, None if its cause is not clear.

    The record is on line `line` of the block, counted from 0.
    """
    lines = b"".join(buffer[start:end] for buffer, start, end in block.segments).splitlines()
    if form.column_map.field_count is None or line >= len(lines):
        return None
    return explain_misfit(lines[line], form.dialect, field_count=form.column_map.field_count, uri=uri)


def _describe(held: list[Block], encoder: Encoder, form: RecordForm, which: str, *, uri: str) -> DataError:
    first = next(block for block in held if block.records)
    reason, location = first.fault, FileLocation(file=uri, line=first.first_line)
    found_hint = None
    if reason is None:
        try:
            encoder.encode(first)
        except _native.RecordError as error:
            found = record_error(error, uri=uri, first_line=first.first_line)
            reason, location, found_hint = found.message, found.location or location, found.hint
    hint = (
        explain_line(first, 0, form, uri=uri)
        or "Check --delimiter and --quote, or name the fields of the records with --columns."
    )
    is_by_name = encoder.is_by_name
    return DataError(
        "no record can be loaded" if is_by_name else "no record has the number of fields that the table takes",
        detail=f"{location}: {reason}. So are {which} records of {uri}.",
        hint=found_hint if is_by_name else hint,
        location=location,
    )
