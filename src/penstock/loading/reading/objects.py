"""Opens an object for loading: its stream, its header, its blocks, and the encoder that fits the header."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from penstock.copyformat import Encoder, make_form_encoder
from penstock.copyformat.kept import KeptType, find_kept_types
from penstock.errors import DataError
from penstock.files.blocks import BlockReader, make_cutter
from penstock.files.encodings import client_encoding, normalize_encoding
from penstock.files.probe import split_header
from penstock.files.torn import TornReader
from penstock.loading.plan.dialects import map_object, refuse_other_pipe
from penstock.loading.plan.plan import table_after_creation
from penstock.loading.reading.coverage import Edges
from penstock.loading.reading.fit import refuse_unfit
from penstock.loading.reading.sums import RangeSums, RowSums
from penstock.model.load.reject import RecordForm

if TYPE_CHECKING:
    from penstock.files import ObjectStream
    from penstock.loading.context import LoadTools
    from penstock.loading.plan.work import ObjectWork
    from penstock.loading.reading.format_check import FormatCheck
    from penstock.loading.reading.rows import RowStream
    from penstock.model.load.ledger import CommittedRange
    from penstock.model.load.plan import TargetPlan
    from penstock.model.source.block import Block


def open_blocks(
    work: ObjectWork, tools: LoadTools, *, sums: RangeSums | None = None, format_check: FormatCheck | None = None
) -> tuple[ObjectStream | RowStream, Iterable[Block], Encoder, RecordForm]:
    """Return an object's open stream, the blocks that are not committed, their encoder, and how their records are read.

    `sums` checks the bytes as they are read, `format_check` the blocks. The caller closes the stream. Raises
    SourceError, DataError, and TargetError if the object's own header does not fit the table.
    """
    target, source = work.target, work.source
    if target.columnar is not None:
        from penstock.loading.reading.rows import open_rows  # noqa: PLC0415 (300 ms, pyarrow)

        return open_rows(work, tools, sums=sums if isinstance(sums, RowSums) else None)
    refuse_other_pipe(work, tools.sources, tools.warnings)
    stream = tools.sources.open(source, target.job.dialect)
    edges = Edges(work.coverage.ranges)
    try:
        cutter = make_cutter(target.dialect, server_major=tools.server_major)
        pieces = stream if sums is None else sums.watch(stream)
        parts = edges.split(pieces) if work.coverage.ranges else pieces
        kind = TornReader if tools.rejects_torn else BlockReader
        blocks = kind(
            parts,
            cutter,
            uri=source.uri,
            max_record_bytes=tools.max_record_bytes,
            first_line=stream.first_line,
        )
        encoder, form = _make_encoder(work, blocks, stream)
        if isinstance(blocks, TornReader) and target.dialect.format == "csv":
            blocks.field_count, blocks.ends_empty = form.column_map.field_count, form.column_map.ends_empty
        if sums is not None:
            sums.header = form.header
    except BaseException:
        stream.close()
        raise
    given: Iterable[Block] = read_missing(blocks, edges, uri=source.uri) if work.coverage.ranges else blocks
    if tools.rejects_torn and not work.coverage.ranges:
        given = refuse_unfit(given, form, uri=source.uri)
    return stream, given if format_check is None else format_check.watch(given, work, encoder), encoder, form


def read_missing(blocks: Iterable[Block], edges: Edges, *, uri: str) -> Iterator[Block]:
    """Yield the blocks that are not committed. Raises DataError if a record is committed in part."""
    for block in blocks:
        # The header is not a block. If a committed range ends inside the header, the object was different then.
        is_in_header = block.is_first and edges.lie_within(0, block.start)
        if is_in_header or edges.lie_within(block.start, block.end):
            raise DataError(
                f'"{uri}" has changed in a part that is already loaded',
                detail=f"A record near line {block.first_line} is committed in part.",
                hint="Restore the object, or remove the load's rows and run penstock loads forget ID --keep-rows.",
            )
        if not edges.contain(block.start, block.end):
            yield block


def compare_committed(
    work: ObjectWork, committed: Sequence[CommittedRange], tools: LoadTools
) -> Literal["same", "grown", "changed"]:
    """Compare an object with what is committed of it; see RangeSums.state. Raises SourceError, DataError."""
    if work.target.columnar is not None:
        from penstock.loading.reading.rows import compare_rows  # noqa: PLC0415 (300 ms, pyarrow)

        return compare_rows(work, committed, tools)
    sums, dialect = RangeSums(committed), work.target.dialect
    with tools.sources.open(work.source, work.target.job.dialect) as stream:
        pieces = sums.watch(stream)
        if dialect.has_header:
            cutter = make_cutter(dialect, server_major=tools.server_major)
            sums.header = BlockReader(pieces, cutter, uri=work.source.uri).take_header()
        for _ in pieces:
            if sums.is_followed:
                break
    return sums.state


def make_sums(work: ObjectWork, committed: Sequence[CommittedRange]) -> RangeSums:
    """Return what `open_blocks` takes to compare an object with what is committed of it."""
    return (RangeSums if work.target.columnar is None else RowSums)(committed)


def _make_encoder(work: ObjectWork, blocks: BlockReader, stream: ObjectStream) -> tuple[Encoder, RecordForm]:
    target, uri = work.target, work.source.uri
    header, record = target.header, None
    if target.dialect.has_header and (record := blocks.take_header()) is not None:
        header = tuple(split_header(record.rstrip(b"\r\n"), target.dialect, uri=uri, line=stream.first_line))
    column_map = target.column_map
    if header != target.header or target.job.set or target.dialect.format == "jsonl":
        # Each object may have its own order of columns, and a constant may contain the object's name. How a JSON value
        # is sent depends on the type of its column, which may have been found or changed since.
        column_map = map_object(header, target, uri=uri)
    form = RecordForm(
        # This object's byte-order mark may give the encoding, although the first object has no mark.
        dialect=replace(target.dialect, encoding=normalize_encoding(stream.encoding or target.dialect.encoding)),
        column_map=column_map,
        table=target.table if work.landing is None else work.landing,
        encoding=client_encoding(target.dialect.encoding),
        header=record,
        allows_suppressed_rows=target.allows_suppressed_rows,
        working_names=work.working_names,
        bom=stream.bom,
    )
    encoder = make_form_encoder(form, positions=work.number if work.has_positions else None)
    fed = len(column_map.columns) - len(column_map.constants)
    return replace(encoder, kept=find_changing(target, column_map.columns[:fed])), form


def find_changing(target: TargetPlan, names: Sequence[str]) -> tuple[KeptType, ...]:
    """Return the types of columns as far as they may change values, () if none does.

    A table that the load creates has types that keep all values, or text.
    """
    table = table_after_creation(target)
    return () if target.facts is None else find_kept_types([table.column(name) for name in names])
