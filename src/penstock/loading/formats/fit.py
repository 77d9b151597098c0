"""Refuses an object if no record has the number of fields that the table takes, before any of it is sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from penstock import _native
from penstock.copyformat import Encoder, make_form_encoder
from penstock.errors import DataError, FileLocation
from penstock.files.blocks import record_error
from penstock.files.probe import explain_misfit
from penstock.model.load.reject import RecordForm
from penstock.model.source.block import Block
from penstock.units import MIB, format_count

# If this many records have a wrong number of fields, the dialect or the columns are wrong, not the records.
_RECORDS: Final = 1000
# Blocks are held in memory until a record fits. If records are so long that these bytes have fewer than 1,000 of them,
# the object is not refused.
_HELD_BYTES: Final = 64 * MIB


def refuse_unfit(blocks: Iterable[Block], form: RecordForm, *, uri: str) -> Iterator[Block]:
    """Yield an object's blocks.

    Raises DataError if the first 1,000 records, or all of 2 to 999, have a wrong number of fields.
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
    """Return what to do about a record with another number of fields, which is on that line of a block, from 0."""
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
