"""Opens a columnar object, and yields its rows as blocks in COPY's text or binary format.

A block's start and end are row numbers of the file, so ranges, resuming and checksums work on rows. Its bytes are the
rows as they are sent, which do not depend on the file's own encoding. Rows are sent as text if records may be rejected
or are staged, or if columns are set to constants. Other rows are sent in the binary format, if this format has the
types of all columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Self

from penstock import _native
from penstock.core.errors import DataError, FileLocation
from penstock.core.slotted import slotted
from penstock.core.units import MIB
from penstock.core.values.source import ColumnarSample, Range
from penstock.loading.copy.payload import OTHER, find_kept_type, make_form_encoder
from penstock.loading.files.columnar.binary import Wire, choose_wires, may_differ, write_binary
from penstock.loading.files.columnar.types import TooLong
from penstock.loading.formats.format import Edges, Format, Opened, RangeSums, ReadTools
from penstock.loading.formats.probe.columnar import kept_fields, probe_columnar, refuse_unsupported
from penstock.loading.formats.sent import make_row_block, make_row_form, watch_rows
from penstock.loading.values.block import Block
from penstock.loading.values.plan import table_after_creation

if TYPE_CHECKING:
    from penstock.loading.files.columnar.ranged import RangedFile
    from penstock.loading.files.columnar.reader import RecordBatch
    from penstock.loading.files.columnar.text import TextRows
    from penstock.loading.values.work import PlannedObject

# How many bytes of values, in Arrow's form, become one block. A larger block would save only some microseconds for each
# column, and queues hold eight blocks of an object in memory.
_BLOCK_BYTES: Final = MIB

# Matches the types of columns that store a text unchanged.
_TEXT: Final = re.compile(r"(text|character varying|character)(\(\d+\))?(\[\])?")

_FITTING: Final = "Write the file with a value that fits, or use --on-error reject."
_WIDER: Final = "Give the table's column a wider type, or use --on-error reject."


class RowStream:
    """An open columnar object. `text_s` is the seconds of decoding rows, including `reading_s`."""

    def __init__(self, file: RangedFile, tools: ReadTools) -> None:
        self._file = file
        self._clock = tools.clock
        self.text_s = 0.0

    @property
    def bytes_read(self) -> int:
        """Return how many stored bytes were read."""
        return self._file.bytes_read

    @property
    def reading_s(self) -> float:
        """Return the seconds that the stream has waited for stored bytes."""
        return self._file.reading_s

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def time(self, batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        """Yield batches, and add the time of decoding them to `text_s`."""
        began_s = self._clock()
        for batch in batches:
            self.text_s += self._clock() - began_s
            yield batch
            began_s = self._clock()
        self.text_s += self._clock() - began_s


def open_rows(file_format: Format, work: PlannedObject, tools: ReadTools, *, sums: RangeSums | None) -> Opened:
    """Open a columnar object, as Format.open describes."""
    target, uri = work.target, work.source.uri
    assert isinstance(target.own, ColumnarSample)
    file, opened = tools.sources.open_columnar(work.source, target.own.format)
    try:
        sample = opened.describe()
        probe_columnar(sample, target.job, uri=uri)
        column_map = file_format.map_object(sample.names, target, uri=uri)
        refuse_unsupported(sample, column_map, uri=uri)
        names = [sample.fields[index].name for index in kept_fields(sample, column_map)]
        form = make_row_form(names, replace(column_map, keep=None, field_count=len(names)), work)
        encoder = make_form_encoder(form, positions=work.number if work.has_positions else None)
        table = table_after_creation(target)
        found = [table.column(name) for name in form.column_map.columns[: len(names)]]
        types = [None if column is None else column.base.name for column in found]
        opened.read_as_text([name for name, kind in zip(names, types, strict=True) if _TEXT.fullmatch(kind or "")])
        kept = [find_kept_type(column) for column in found]
        pairs = zip(opened.types(names), kept, strict=True)
        changing = [each if may_differ(kind, each) else OTHER for kind, each in pairs]
        if target.facts is not None and changing != [OTHER] * len(names):
            encoder = replace(encoder, kept=changing)
        wires = None
        if not (work.has_positions or column_map.constants or tools.rejects_torn or tools.sends_text):
            # The binary format has no encoder for domains.
            declared = [None if column is None else column.type_name for column in found]
            wires = choose_wires(opened.types(names), declared, kept)
        if wires is not None:
            encoder = replace(encoder, spec=replace(encoder.spec, format="binary"), passes_all=True)
        ranges = find_missing(work.coverage.ranges, () if sums is None else sums.edges, opened.rows, uri=uri)
    except BaseException:
        file.close()
        raise
    stream = RowStream(file, tools)
    writer = _RowWriter(names=names, types=types, wires=wires, uri=uri, rejects=tools.rejects_torn, rows=opened.rows)
    blocks = writer.blocks(stream.time(opened.batches(names, ranges)))
    return stream, watch_rows(blocks, form, sums), encoder, form


def find_missing(committed: Sequence[Range], edges: Sequence[Range], rows: int, *, uri: str) -> list[Range]:
    """Return the ranges of rows that are not committed.

    These ranges are cut where a committed range or one of `edges` begins or ends.

    Raises DataError if rows are committed that the file does not have.

    >>> find_missing([(2, 5)], [(6, 8)], 9, uri="a")
    [(0, 2), (5, 6), (6, 8), (8, 9)]
    """
    if committed and committed[-1][1] > rows:
        raise DataError(
            f'"{uri}" has changed in a part that is already loaded',
            detail=f"{committed[-1][1]} of its rows were loaded, and it has {rows}.",
            hint="Restore the object, or remove the load's rows and run penstock loads forget ID --keep-rows.",
        )
    cuts = sorted({0, rows, *(cut for part in (*committed, *edges) for cut in part if cut < rows)})
    loaded = Edges([part for part in committed if part[0] < part[1]])
    return [part for part in pairwise(cuts) if not loaded.contain(*part)]


@slotted
class _RowWriter:
    """Makes blocks of the rows of one object: in the binary format if `wires` are given, otherwise as text."""

    # The file's columns.
    names: Sequence[str]
    # The base types of the table's columns that are filled from the file's columns.
    types: Sequence[str | None]
    wires: Sequence[Wire] | None
    uri: str
    # Whether a row that cannot be sent becomes a block with a fault, instead of an error.
    rejects: bool
    # The number of rows of the file.
    rows: int

    def blocks(self, batches: Iterable[RecordBatch]) -> Iterator[Block]:
        """Yield the blocks of batches. For a file without rows, yield one empty block."""
        if not self.rows:
            yield make_row_block(b"", 0, 0, is_last=True)
        for batch in batches:
            step = max(1, _BLOCK_BYTES * batch.rows // max(batch.size_bytes, 1))
            for first in range(0, batch.rows, step):
                yield from self._write(batch.slice(first, min(first + step, batch.rows)))

    def _write(self, batch: RecordBatch) -> Iterator[Block]:
        try:
            yield from self._make_blocks(batch)
        except TooLong as error:
            # Write the batch in halves until its parts are short enough. The values of a dictionary or of a run may be
            # much longer as text than they are in memory.
            if batch.rows == 1:
                location = FileLocation(file=self.uri, line=batch.start + 1, part=batch.part)
                raise DataError("the row is too long", detail=f"{location}: {error}.", location=location) from error
            for first, stop in pairwise((0, batch.rows // 2, batch.rows)):
                yield from self._write(batch.slice(first, stop))

    def _make_blocks(self, batch: RecordBatch) -> Iterator[Block]:
        rows = (batch.start, batch.start + batch.rows)
        if self.wires is not None:
            yield self._make_block(self._write_binary(batch, self.wires), rows, part=batch.part)
            return
        text = self._write_text(batch)
        if not self.rejects:
            self._refuse_faults(text, batch)
        if text.faults:
            yield from self._part(text, batch)
        else:
            yield self._make_block(text.data, rows, part=batch.part)

    def _write_text(self, batch: RecordBatch) -> TextRows:
        from penstock.loading.files.columnar.text import write_rows  # noqa: PLC0415 (40 ms, pyarrow.compute)

        return write_rows(batch.columns, self.types)

    def _write_binary(self, batch: RecordBatch, wires: Sequence[Wire]) -> bytes:
        try:
            return write_binary(batch.columns, wires)
        except _native.RecordError as error:
            # Write the rows as text, so that the error can quote the value.
            text = self._write_text(batch)
            self._refuse_faults(text, batch)
            reason, row, index = error.args
            raise self._explain(text, batch, (row, index, reason), hint=_WIDER) from error

    def _part(self, text: TextRows, batch: RecordBatch) -> Iterator[Block]:
        """Yield each row that has a fault as a block of its own."""
        faults = {fault.row: f'column "{self.names[index]}": {fault.reason}' for index, fault in reversed(text.faults)}
        bounds = sorted({0, batch.rows, *faults, *(row + 1 for row in faults)})
        for first, stop in pairwise(bounds):
            data = text.data[text.end_of(first - 1) : text.end_of(stop - 1)]
            rows = (batch.start + first, batch.start + stop)
            yield replace(self._make_block(data, rows, part=batch.part), fault=faults.get(first))

    def _refuse_faults(self, text: TextRows, batch: RecordBatch) -> None:
        found = [(fault.row, index, fault.reason) for index, fault in text.faults]
        if (at := text.data.find(0)) >= 0:
            row = text.row_at(at)
            index = text.data.count(b"\t", text.end_of(row - 1), at)
            found.append((row, index, "a text has the character NUL, which PostgreSQL cannot store"))
        if found:
            raise self._explain(text, batch, min(found))

    def _explain(
        self, text: TextRows, batch: RecordBatch, found: tuple[int, int, str], *, hint: str = _FITTING
    ) -> DataError:
        row, index, reason = found
        location = FileLocation(file=self.uri, line=batch.start + row + 1, column=self.names[index], part=batch.part)
        return DataError(
            reason,
            detail=f'{location}, column "{self.names[index]}": "{text.field(row, index)}".',
            hint=hint,
            location=location,
        )

    def _make_block(self, data: bytes, rows: Range, *, part: str) -> Block:
        return make_row_block(data, *rows, is_last=rows[1] == self.rows, part=part)
