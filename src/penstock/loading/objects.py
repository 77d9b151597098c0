"""Opens an object for loading: its stream, its header, its blocks, and the encoder that the header asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.copyformat import Encoder, make_encoder
from penstock.errors import DataError
from penstock.files.blocks import BlockReader, make_cutter
from penstock.files.encodings import client_encoding
from penstock.files.probe import split_record
from penstock.loading.columns import map_columns
from penstock.loading.plan import table_after_creation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.files import ObjectStream
    from penstock.loading.tools import LoadTools
    from penstock.model.block import Block
    from penstock.model.plan import TargetPlan
    from penstock.model.source import SourceObject


def open_blocks(
    target: TargetPlan, source: SourceObject, tools: LoadTools
) -> tuple[ObjectStream, Iterable[Block], Encoder]:
    """Return an object's open stream, its blocks and their encoder; the caller closes the stream.

    Raises SourceError, DataError, TargetError where the object's own header does not fit the table.
    """
    stream = tools.sources.open(source, encoding=target.job.dialect.encoding)
    try:
        cutter = make_cutter(target.dialect, server_major=tools.server_major)
        blocks = BlockReader(stream, cutter, uri=source.uri)
        encoder = _make_encoder(target, blocks, uri=source.uri)
    except BaseException:
        stream.close()
        raise
    return stream, blocks, encoder


def _make_encoder(target: TargetPlan, blocks: BlockReader, *, uri: str) -> Encoder:
    header = target.header
    if target.dialect.has_header and (record := blocks.take_header()) is not None:
        header = read_header(record, target, uri=uri)
        _refuse_other_header(header, target, uri=uri)
    column_map = target.column_map
    if header != target.header or target.job.constants:
        # Objects may order their columns differently, and a constant may hold the object's name.
        column_map = map_columns(header, job=target.job, table=table_after_creation(target), uri=uri)
    encoding = client_encoding(target.dialect.encoding)
    return make_encoder(target.dialect, column_map, table=target.table, encoding=encoding)


def _refuse_other_header(header: tuple[str, ...], target: TargetPlan, *, uri: str) -> None:
    """Refuse to drop a record unseen: with --columns nobody looks at the headers but for the first object's."""
    if target.job.columns is not None and target.job.dialect.has_header is None and header != target.header:
        raise DataError(
            "the first record is not the header that the first object has",
            detail=f"{uri} line 1.",
            hint="Say --header if every object begins with one, or --no-header if none does.",
        )


def read_header(record: bytes, target: TargetPlan, *, uri: str) -> tuple[str, ...]:
    """Return the names of a header record; raises DataError where it is not text in its encoding."""
    try:
        names = split_record(record.rstrip(b"\r\n"), target.dialect)
    except UnicodeDecodeError as exc:
        raise DataError(
            "the header is not valid text",
            detail=f"{uri} line 1, byte {exc.start}.",
            hint="Name the file's encoding with --encoding.",
        ) from exc
    return tuple(name or "" for name in names)
