"""Opens a columnar object, and yields its rows as blocks in COPY's text or binary format.

A block's start and end are row numbers of the file, so ranges, resuming and checksums work on rows. Its bytes are the
rows as they are sent, which do not depend on the file's own encoding. Rows are sent as text if records may be rejected
or are staged, or if columns are set to constants. Other rows are sent in the binary format, if this format has the
types of all columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from penstock import _native
from penstock.core.errors import DataError, FileLocation, SourceError
from penstock.core.values.source import ColumnarSample, Range
from penstock.loading.copy.payload import OTHER, find_kept_type, make_form_encoder
from penstock.loading.files.columnar.reader import ColumnarFile, SentColumn, SentRows
from penstock.loading.formats.format import Edges, Format, Opened, RangeSums, ReadTools
from penstock.loading.formats.probe.columnar import TEXT_TYPES, kept_fields, probe_columnar, refuse_unsupported
from penstock.loading.formats.sent import make_row_block, make_row_form, watch_rows
from penstock.loading.values.objects import Block, PlannedObject
from penstock.loading.values.plan import table_after_creation

_FITTING: Final = "Write a value that fits, or use --on-error reject."
_WIDER: Final = "Give the table's column a wider type, or use --on-error reject."


def open_rows(file_format: Format, work: PlannedObject, tools: ReadTools, *, sums: RangeSums | None) -> Opened:
    """Open a columnar object, as Format.open describes."""
    target, uri = work.target, work.source.uri
    assert isinstance(target.own, ColumnarSample)
    file, opened = tools.sources.open_columnar(work.source, target.own.format)
    try:
        sample = opened.describe()
        probe_columnar(sample, target.job, uri=uri)
        column_map = file_format.map_object(sample.names, target, uri=uri)
        refuse_unsupported(sample, column_map, target, uri=uri)
        names = [sample.fields[index].name for index in kept_fields(sample, column_map)]
        form = make_row_form(names, replace(column_map, keep=None, field_count=len(names)), work)
        encoder = make_form_encoder(form, positions=work.number if work.has_positions else None)
        table = table_after_creation(target)
        found = [table.column(name) for name in form.column_map.columns[: len(names)]]
        sent = [
            # The binary format has no encoder for domains, so the name of the table's own type decides.
            SentColumn(name, None if column is None else column.type_name, None if column is None else column.base.name)
            for name, column in zip(names, found, strict=True)
        ]
        texts = opened.read_as_text([column.name for column in sent if TEXT_TYPES.fullmatch(column.base_name or "")])
        _refuse_bytes(texts, is_transformed=target.text_columns is not None, uri=uri)
        kept = [find_kept_type(column) for column in found]
        changing = [each if opened.may_differ(name, each) else OTHER for name, each in zip(names, kept, strict=True)]
        is_kept = changing == [OTHER] * len(names)
        if not is_kept:
            encoder = replace(encoder, kept=changing)
        # All columns are sent as text if a column may change a value, because changed values are found only in text.
        is_binary = (
            not (work.has_positions or column_map.constants or tools.rejects_torn or tools.sends_text)
            and is_kept
            and all(map(opened.fits_binary, sent))
        )
        if is_binary:
            # The types are those of the plan; a type that the plan does not know is not compared.
            oids = tuple(0 if column is None else column.type_oid for column in found)
            spec = replace(encoder.spec, format="binary", type_oids=oids if all(oids) else ())
            encoder = replace(encoder, spec=spec, passes_all=True)
        ranges = find_missing(work.coverage.ranges, () if sums is None else sums.edges, opened.rows, uri=uri)
    except BaseException:
        file.close()
        raise
    read = opened.read(sent, ranges, is_binary=is_binary, rejects=tools.rejects_torn)
    blocks = _make_blocks(opened, read, names, uri=uri)
    return file, watch_rows(blocks, form, sums), encoder, form


def _refuse_bytes(texts: Mapping[str, bool], *, is_transformed: bool, uri: str) -> None:
    """Raise SourceError if a column that fills one of texts has other bytes, of which it would get the hex digits."""
    hint = "Load it into a column of type bytea, or leave it out by --skip."
    if is_transformed:
        hint = "A transform reads texts: load the file into a table with a column of type bytea, and transform that."
    for name, is_text in texts.items():
        if not is_text:
            raise SourceError(
                f'column "{name}" of "{uri}" has bytes that are not UTF-8, and its column in the table is for text',
                hint=hint,
            )


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


def _make_blocks(opened: ColumnarFile, found: Iterator[SentRows], names: Sequence[str], *, uri: str) -> Iterator[Block]:
    """Yield the blocks of rows. For a file without rows, yield one empty block. Raises DataError."""
    if not opened.rows:
        yield make_row_block(b"", 0, 0, is_last=True)
    try:
        for data, start, end, part, fault in found:
            block = make_row_block(data, start, end, is_last=end == opened.rows, part=part)
            yield block if fault is None else replace(block, fault=f'column "{names[fault[0]]}": {fault[1]}')
    except _native.RecordError as error:
        reason, row, column, value, part, is_range = error.args
        location = FileLocation(file=uri, line=row + 1, column=names[column], part=part)
        raise DataError(
            reason,
            detail=f'{location}, column "{names[column]}": "{value}".',
            hint=_WIDER if is_range else _FITTING,
            location=location,
        ) from error
