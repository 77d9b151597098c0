"""The formats of text, whose blocks are parts of the file's own bytes: their base class, and delimited text.

Delimited text is csv, tsv, or COPY's own format text. The dialect says which of these a file is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

from penstock.core.connect.errors import hint_for
from penstock.core.errors import DataError, FileLocation, TargetError, UsageError
from penstock.core.units import count_nouns
from penstock.core.values.dialect import Dialect, DialectOptions
from penstock.core.values.job import TargetJob
from penstock.core.values.server import ServerFacts
from penstock.core.values.source import Compression, ObjectSample
from penstock.core.values.table import ColumnMap, TableFacts
from penstock.ledger.rejects import RecordForm
from penstock.ledger.values import CommittedRange, LedgerUnit
from penstock.loading.copy.payload import Encoder
from penstock.loading.files.encodings import client_encoding, normalize_encoding
from penstock.loading.files.streams import ObjectStream
from penstock.loading.formats.blocks import BlockReader, TornReader, make_cutter
from penstock.loading.formats.format import Depth, Edges, Format, Opened, RangeSums, ReadTools
from penstock.loading.formats.probe.content import check_is_delimited
from penstock.loading.formats.probe.form import find_header, split_header
from penstock.loading.formats.probe.mangling import explain_misfit, find_misfit
from penstock.loading.formats.probe.probing import (
    Contradiction,
    ProbeResult,
    find_contradiction,
    probe_dialect,
    refuse_unclear_escapes,
    separator_notice,
)
from penstock.loading.formats.sent import make_object_encoder, refuse_unfit
from penstock.loading.values.objects import Block, PlannedObject
from penstock.loading.values.plan import TargetPlan, table_after_creation
from penstock.loading.warned import WarningLog

# The first version of PostgreSQL without the encoding MULE_INTERNAL.
_WITHOUT_MULE_INTERNAL = 19


class Textual(Format):
    """The base class of the formats of text. Blocks are parts of the file's text, and ranges count its bytes."""

    unit: LedgerUnit = "bytes"
    sums = RangeSums
    may_be_blank = True

    def open(self, work: PlannedObject, tools: ReadTools, *, sums: RangeSums | None = None) -> Opened:
        target, source = work.target, work.source
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
            encoder, form = self._make_encoder(work, blocks, stream)
            if isinstance(blocks, TornReader) and target.dialect.format == "csv":
                blocks.field_count, blocks.ends_empty = form.column_map.field_count, form.column_map.ends_empty
            if sums is not None:
                sums.header = form.header
        except BaseException:
            stream.close()
            raise
        given: Iterable[Block] = blocks
        if work.coverage.ranges:
            given = read_missing(blocks, edges, uri=source.uri, has_end=work.coverage.has_end)
        if tools.rejects_torn and not work.coverage.ranges:
            given = refuse_unfit(given, form, uri=source.uri)
        return stream, given, encoder, form

    def compare(
        self, work: PlannedObject, committed: Sequence[CommittedRange], tools: ReadTools
    ) -> Literal["same", "grown", "changed"]:
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

    def _make_encoder(
        self, work: PlannedObject, blocks: BlockReader, stream: ObjectStream
    ) -> tuple[Encoder, RecordForm]:
        target, uri = work.target, work.source.uri
        header, record = target.header, None
        if target.dialect.has_header and (record := blocks.take_header()) is not None:
            header = tuple(split_header(record.rstrip(b"\r\n"), target.dialect, uri=uri, line=stream.first_line))
        column_map = target.column_map
        if header != target.header or target.job.set or self.is_by_name:
            # Map the columns of this object if they may be in another order, or if a constant may contain the object's
            # name. For JSON Lines, map them in any case: how a value is sent depends on the type of its column, which
            # may have been found or changed since the plan was made.
            column_map = self.map_object(header, target, uri=uri)
        form = RecordForm(
            # The encoding is that of this object's byte-order mark, which the first object may lack.
            dialect=replace(target.dialect, encoding=normalize_encoding(stream.encoding or target.dialect.encoding)),
            column_map=column_map,
            table=target.table if work.landing is None else work.landing,
            encoding=client_encoding(target.dialect.encoding),
            header=record,
            allows_suppressed_rows=target.allows_suppressed_rows,
            working_names=work.working_names,
            bom=stream.bom,
        )
        return make_object_encoder(form, work), form


class DelimitedText(Textual):
    """Delimited text: csv, tsv, or COPY's own format text."""

    name = "text"
    is_delimited = True
    import_obstacle = None

    def recognize(self, head: bytes, options: DialectOptions, *, is_whole: bool) -> bool:
        return True

    def title(self, own: object) -> str:
        return "delimited text"

    def check_content(self, sample: ObjectSample, options: DialectOptions) -> None:
        check_is_delimited(
            sample.head,
            is_whole=sample.is_whole,
            uri=sample.source.uri,
            options=options,
            compression=sample.compression,
        )

    def probe(
        self, sample: ObjectSample, job: TargetJob, facts: TableFacts | None, *, server: ServerFacts, rejects: bool
    ) -> ProbeResult:
        """Return what `Format.probe` returns.

        Raises its errors, and DataError if the backslashes in the sample may be escapes or data. Raises TargetError if
        the server does not have the file's encoding, and UsageError for SQL_ASCII if the database has another one.
        """
        loadable = None
        if facts is not None and job.transform is None:
            loadable = [column.name for column in facts.columns if not column.is_generated]
        options = _options_of(sample, job.dialect)
        if options.encoding is None and server.server_encoding == "SQL_ASCII":
            # Accept any bytes, as COPY does in a database with encoding SQL_ASCII.
            options = replace(options, encoding="SQL_ASCII")
        _refuse_encoding(options.encoding, server)
        probe = probe_dialect(
            sample.head,
            options=options,
            is_whole=sample.is_whole,
            table_columns=loadable,
            uri=sample.source.uri,
            bom=sample.bom,
            first_line=sample.first_line,
            rejects=rejects,
            compression=sample.compression,
        )
        refuse_unclear_escapes(
            sample.head,
            is_whole=sample.is_whole,
            dialect=probe.dialect,
            options=options,
            uri=sample.source.uri,
            first_line=sample.first_line,
        )
        return probe

    def check_sample(self, sample: ObjectSample, target: TargetPlan, warnings: WarningLog, *, depth: Depth) -> None:
        """Raise DataError if an object seems to have another dialect than the first one, and no option decides.

        With depth "columns" and "records", raise DataError or TargetError if its header, or one of its first records,
        does not fit. Warn if the first line of another object than the first one names a separator.
        """
        if sample.separator not in (None, target.dialect.delimiter):
            raise DataError(
                "files of one load have different dialects",
                detail=f"{sample.source.uri} line {sample.first_line - 1}: sep={sample.separator}\n"
                f"By the first file's dialect, the delimiter is {target.dialect.delimiter!r}.",
                hint=f"Use --delimiter if one is right for every file, or {target.landing.alone}.",
            )
        if sample.separator is not None and sample.source != target.objects[0]:
            warnings.add(separator_notice(sample.source.uri, sample.first_line - 1))
        if (found := _find_contradiction(sample, target)) is not None:
            location = FileLocation(file=sample.source.uri, line=sample.first_line + found.line - 1)
            raise _explain(found, location, otherwise=target.landing.alone)
        if depth == "dialect":
            return
        column_map = self.map_sample(sample, target)
        if depth == "records":
            _refuse_misfit(sample, target.dialect, column_map)

    def find_header(self, sample: ObjectSample, target: TargetPlan) -> Sequence[str] | None:
        if not target.dialect.has_header:
            return None
        uri, line = sample.source.uri, sample.first_line
        return find_header(sample.head, target.dialect, is_whole=sample.is_whole, uri=uri, line=line)

    def describe(self, target: TargetPlan) -> str:
        return describe_dialect(target.dialect, target.sample.compression, bom=target.sample.bom)


def _refuse_encoding(encoding: str | None, server: ServerFacts) -> None:
    """Raise TargetError if the server has a file's encoding no more, and UsageError if it would store any bytes."""
    name = None if encoding is None else normalize_encoding(encoding)
    if name == "SQL_ASCII" and server.server_encoding != "SQL_ASCII":
        raise UsageError(
            f"encoding SQL_ASCII cannot be used with a database in {server.server_encoding}",
            detail="Bytes are not checked then: clients cannot read invalid ones, and no dump with them is restored.",
            hint="Give the file's own encoding, as --encoding UTF8 or --encoding LATIN1.",
        )
    if name == "MULE_INTERNAL" and server.major >= _WITHOUT_MULE_INTERNAL:
        raise TargetError(
            f"PostgreSQL {server.major} has no encoding MULE_INTERNAL",
            detail=f"Versions before {_WITHOUT_MULE_INTERNAL} have it.",
            hint="Convert the file to UTF-8 first. Emacs does: it is the encoding emacs-mule there.",
        )


def _options_of(sample: ObjectSample, options: DialectOptions) -> DialectOptions:
    """Return the dialect options of an object: the user's, and the delimiter of a first line such as sep=;."""
    return options if sample.separator is None else replace(options, delimiter=sample.separator)


def read_missing(blocks: Iterable[Block], edges: Edges, *, uri: str, has_end: bool) -> Iterator[Block]:
    """Yield the blocks that are not committed.

    `has_end` says whether the end of the object is committed. If only the end is missing, because COPY's end-of-data
    mark follows the last record, yield a block without records. Raises DataError if a committed range begins or ends
    inside a record, because the object has changed then.
    """
    for block in blocks:
        # The header is not a block. If a committed range ends inside the header, the object was different when that
        # range was committed.
        is_in_header = block.is_first and edges.lie_within(0, block.start)
        if is_in_header or edges.lie_within(block.start, block.end):
            raise DataError(
                f'"{uri}" has changed in a part that is already loaded',
                detail=f"A record near line {block.first_line} is committed in part.",
                hint="Restore the object, or remove the load's rows and run penstock loads forget ID --keep-rows.",
            )
        if not edges.contain(block.start, block.end):
            yield block
        elif block.is_last and not has_end:
            yield _make_end(block)


def _make_end(block: Block) -> Block:
    """Return the end of an object, whose last block is `block`, as a block without records."""
    return replace(
        block,
        segments=(),
        start=block.end,
        lines=0,
        server_lines=0,
        records=0,
        stray_backslashes=0,
        is_unended=False,
        is_first=False,
        fault=None,
    )


# ---------------------------------------------------------------- further objects


def _find_contradiction(sample: ObjectSample, target: TargetPlan) -> Contradiction | None:
    """Return the line of a sample that contradicts the dialect of the first object, or None."""
    fields = target.column_map.field_count
    if fields is None:
        fields = len(target.column_map.columns) - len(target.column_map.constants)
    columns = None
    if target.job.columns is None:
        columns = [column.name for column in table_after_creation(target).columns]
    return find_contradiction(
        sample.head,
        is_whole=sample.is_whole,
        dialect=target.dialect,
        options=_options_of(sample, target.job.dialect),
        header=target.header,
        table_columns=columns,
        column_count=fields,
    )


def _refuse_misfit(sample: ObjectSample, dialect: Dialect, column_map: ColumnMap) -> None:
    if (field_count := column_map.field_count) is None:
        return
    misfit = find_misfit(
        sample.head, dialect, is_whole=sample.is_whole, field_count=field_count, ends_empty=column_map.ends_empty
    )
    if misfit is None:
        return
    record, count = misfit
    hint = explain_misfit(
        record.text, dialect, field_count=field_count, uri=sample.source.uri, compression=sample.compression
    )
    location = FileLocation(file=sample.source.uri, line=sample.first_line + record.line - 1)
    raise DataError(
        f"a record has {count_nouns(count, 'field')}, and {field_count} are expected",
        detail=f"{location}.",
        hint=hint or hint_for("22P04"),
        location=location,
    )


def _explain(found: Contradiction, location: FileLocation, *, otherwise: str) -> DataError:
    first, second = found.options
    return DataError(
        "files of one load have different dialects",
        detail=f"{location}: {found.text}\n"
        f"By the first file's dialect, this is {found.before}.\n"
        f"By its own, it is {found.here}.",
        hint=f"Use {first} or {second} if it is right for every file, or {otherwise}.",
        location=location,
    )


# ---------------------------------------------------------------- words


def describe_dialect(dialect: Dialect, compression: Compression, *, bom: str | None) -> str:
    r"""Return a dialect in one line. Characters are written as on the command line, such as \t.

    `bom` is the encoding of the file's byte-order mark, None if it has none. It is shown instead of the dialect's
    encoding.

    >>> from penstock.core.values.dialect import Dialect
    >>> tsv = Dialect(format="tsv", delimiter="\t", quote=None, escape=None, nulls=(r"\N",), has_header=True,
    ...               encoding="UTF8")
    >>> print(describe_dialect(tsv, "gzip", bom=None))
    tsv, delimiter '\t', no quoting, null '\N', header, UTF8, gzip
    """
    quoting = "no quoting"
    if dialect.quote is not None:
        quoting = f"quote {_spell(dialect.quote)}"
        if dialect.escape not in (None, dialect.quote):
            quoting += f", escape {_spell(dialect.escape or '')}"
    return ", ".join(
        (
            dialect.format,
            f"delimiter {_spell(dialect.delimiter)}",
            quoting,
            "null " + " or ".join(f"'{null}'" for null in dialect.nulls) if dialect.nulls else "no null",
            "header" if dialect.has_header else "no header",
            bom or dialect.encoding,
            "not compressed" if compression == "none" else compression,
        )
    )


def _spell(character: str) -> str:
    r"""Return a character in quotes, spelled as --delimiter takes it.

    >>> print(_spell("\t"), _spell("|"), _spell("\x1f"))
    '\t' '|' '\x1f'
    """
    if character.isprintable():
        return f"'{character}'"
    return f"'{character.encode('unicode_escape').decode()}'"
