"""Probes a file's first block: combines options, form, encoding, header and notices into a ProbeResult. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from penstock.core.errors import DataError
from penstock.core.frozen import frozen
from penstock.core.values.dialect import Dialect, DialectOptions, Notice
from penstock.core.values.source import Compression
from penstock.loading.formats.probe.content import check_is_delimited
from penstock.loading.formats.probe.form import (
    choose_form,
    complete_options,
    split_header,
    split_record,
    validate_options,
)
from penstock.loading.formats.probe.header import HeaderVerdict, are_row_names, check_is_utf8, judge_header
from penstock.loading.formats.probe.mangling import RecordSample, find_mangling, find_rival

# A preamble is reported only if at least this many records follow it in the sample.
_PREAMBLE_FOLLOWERS: Final = 3
# The first record is compared with at most this many records after it, to find out whether it is a header.
_COMPARED_RECORDS: Final = 100


@frozen
class ProbeResult:
    """A file's dialect, and what else is known from its first block."""

    dialect: Dialect
    # The column names, None if the file has no header.
    header: tuple[str, ...] | None
    # The number of fields of the first record, 0 for an empty file.
    field_count: int
    # An item for each form of the records after the header: the number of fields, and whether the last field is blank.
    shapes: frozenset[tuple[int, bool]]
    # Whether the first fields of these records could be row names.
    has_row_names: bool
    # Which values the dialect would change, and what is unclear.
    notices: tuple[Notice, ...]
    # Why the dialect was chosen, in one line.
    reason: str


def probe_dialect(
    head: bytes,
    *,
    options: DialectOptions,
    is_whole: bool,
    table_columns: Sequence[str] | None,
    uri: str,
    bom: str | None,
    first_line: int = 1,
    rejects: bool = False,
    compression: Compression = "none",
) -> ProbeResult:
    """Find the dialect of a file from its first block. Only what `options` do not give is probed.

    `head` is decompressed, has no byte-order mark, and is in UTF-8 if its encoding is not ASCII-safe. `is_whole`:
    `head` is the whole file. `table_columns` is None if the table is yet to be created. `bom` is the encoding of the
    byte-order mark that was skipped. `first_line` is the line of the file on which `head` begins. `rejects`: the load
    rejects bad records. `compression` is the file's, which a hint names.

    Raises UsageError for options that COPY refuses. Raises DataError if the file is not UTF-8 and no encoding is given,
    or if its header cannot be read. Raises SourceError for what is not delimited text, unless a format is given.
    """
    validate_options(options)
    check_is_delimited(head, is_whole=is_whole, uri=uri, options=options, compression=compression)
    column_count = None if table_columns is None else len(table_columns)
    choice = choose_form(head, options=options, is_whole=is_whole, column_count=column_count)
    form = choice.form
    dialect = complete_options(options, format_name=form.format, delimiter=form.delimiter.decode())
    records = form.cut(head, is_whole=is_whole, first_line=first_line)
    sample = RecordSample(head=head, is_whole=is_whole, uri=uri, form=form, records=records)
    if options.encoding is None:
        check_is_utf8(head, is_whole=is_whole, rejects=rejects, uri=uri, locate=sample.locate)
    header, verdict = read_header(sample, dialect, options=options, table_columns=table_columns)
    rows = _read_rows(sample, dialect, after=0 if header is None else 1)
    first = next((record.text for record in records.pieces), None)
    has_header = header is not None if options.header is None else options.header
    dialect = replace(dialect, has_header=has_header)
    rival = None if options.delimiter is not None else find_rival(sample, is_new=table_columns is None)
    return ProbeResult(
        dialect=dialect,
        header=header,
        field_count=0 if first is None else len(header or ()) or form.count_fields(first),
        shapes=frozenset((len(row), not (row[-1] or "").strip()) for row in rows if any(row) or len(row) > 1),
        has_row_names=are_row_names(rows),
        notices=(
            *_header_notices(verdict, uri, first_line),
            *([separator_notice(uri, first_line - 1)] if first_line == options.skip_lines + 2 else []),
            *_preamble_notices(sample, options),
            *(() if rival is None else (rival,)),
            *find_mangling(sample, dialect, bom=bom),
        ),
        reason=choice.reason,
    )


def read_header(
    sample: RecordSample, dialect: Dialect, *, options: DialectOptions, table_columns: Sequence[str] | None
) -> tuple[tuple[str, ...] | None, HeaderVerdict]:
    """Return the names in the first record, or None if it is not a header, and the verdict on it.

    Raises DataError if `options` say that the file has a header, and the sample does not contain all of it.
    """
    if options.header is False or not sample.records.pieces:
        return None, "none"
    if not sample.records.whole:
        if options.header is None:
            return None, "none"
        msg = "header does not end" if sample.is_whole else f"header does not end within {len(sample.head)} bytes"
        raise DataError(msg, detail=f"{sample.uri} line 1.", hint="Check --format and --quote, or use --no-header.")
    first = sample.records.whole[0]
    fields = split_header(first.text, dialect, uri=sample.uri, line=first.line)
    verdict: HeaderVerdict = "certain"
    if not options.header:
        rows, spelled = _read_rows(sample, dialect, after=1), [options.spell(field) for field in fields]
        verdict = judge_header(fields, rows, table_columns, spelled=spelled)
    return (tuple(fields) if verdict in ("certain", "likely") else None), verdict


def _read_rows(sample: RecordSample, dialect: Dialect, *, after: int) -> list[list[str | None]]:
    """Return the fields of at most 100 records, without the first `after` ones and those that cannot be read."""
    rows = []
    for record in sample.records.whole[after : after + _COMPARED_RECORDS]:
        with suppress(DataError):
            rows.append(split_record(record.text, dialect))
    return rows


def separator_notice(uri: str, line: int) -> Notice:
    """Return the warning that a line such as sep=; is skipped."""
    message = "a line such as sep=; is skipped: it names the delimiter for Excel"
    return Notice(code="separator-line", message=message, uri=uri, line=line, hint="Use --delimiter if it is data.")


def _preamble_notices(sample: RecordSample, options: DialectOptions) -> tuple[Notice, ...]:
    """Return a warning if the first lines have fewer than half as many fields as each record after them."""
    if options.header is not None or options.skip_lines:
        return ()
    counts = [sample.form.count_fields(text) for text in sample.texts]
    usual = Counter(counts).most_common(1)[0][0] if counts else 0
    lead = next((at for at, count in enumerate(counts) if 2 * count >= usual), 0)
    if not lead or len(counts) < lead + _PREAMBLE_FOLLOWERS or any(count != usual for count in counts[lead:]):
        return ()
    first, following = (sample.records.whole[at].line for at in (0, lead))
    skipped = following - first
    lines = f"line {first} does" if skipped == 1 else f"lines {first} to {following - 1} do"
    message = f"{lines} not look like a header or records: {usual} fields begin on line {following}"
    hint = f"Use --skip-lines {skipped} to skip what stands before them, or --header or --no-header if it is data."
    return (Notice(code="preamble", message=message, uri=sample.uri, line=first, hint=hint),)


def _header_notices(verdict: HeaderVerdict, uri: str, first_line: int) -> tuple[Notice, ...]:
    taken = {
        "likely": "first line is taken for a header but could be data",
        "possible": "first line looks like a header but is treated as data",
    }.get(verdict)
    if taken is None:
        return ()
    return (Notice(code="first-line", message=taken, uri=uri, line=first_line, hint="Use --header or --no-header."),)
