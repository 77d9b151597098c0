"""Probes a file's first block: combines options, form, encoding, header and notices into a ProbeResult. Pure.

Also checks whether another object's first block has the dialect of the load's first object. If not, shows both
readings.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from penstock.core.errors import DataError, FileLocation, UsageError
from penstock.core.slotted import slotted
from penstock.core.values.dialect import Dialect, DialectOptions
from penstock.core.values.notice import Notice
from penstock.core.values.source import Compression
from penstock.loading.files.encodings import decode
from penstock.loading.formats.probe.content import check_is_delimited
from penstock.loading.formats.probe.form import (
    choose_form,
    complete_options,
    count_title_lines,
    follows_copy_escapes,
    make_form,
    proves_copy_escapes,
    split_header,
    split_record,
    validate_options,
)
from penstock.loading.formats.probe.header import HeaderVerdict, are_row_names, check_is_utf8, judge_header
from penstock.loading.formats.probe.mangling import RecordSample, find_mangling, find_rival

if TYPE_CHECKING:
    from penstock._native import Record

# The first record is compared with at most this many records after it, to find out whether it is a header.
_COMPARED_RECORDS: Final = 100


@slotted
class ProbeResult:
    """What a sample of a file shows: the dialect, the header, and warnings."""

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
    """Find the dialect and the header of a file from its first block. What `options` give is not probed.

    `head` is decompressed, has no byte-order mark, and is in UTF-8 if its encoding is not ASCII-safe. `is_whole` says
    whether `head` is the whole file. `table_columns` is None if the table is yet to be created. `bom` is the encoding
    of the byte-order mark that was skipped. `first_line` is the line of the file on which `head` begins. `rejects` says
    whether the load rejects bad records. `compression` is that of the file; a hint names it.

    Raises UsageError for options that COPY refuses. Raises DataError if the file is not UTF-8 and no encoding is given,
    or if its header cannot be read. Raises OtherContent if the file is not delimited text and no format is given.
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
        try:
            check_is_utf8(head, is_whole=is_whole, rejects=rejects, uri=uri, locate=sample.locate)
        except DataError as error:
            latin = replace(dialect, encoding="LATIN1")
            for notice in _preamble_notices(sample, latin, options=options, table_columns=table_columns):
                error.hint = f"{error.hint} Also, {notice.message}. {notice.hint}"
            raise
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
            *_preamble_notices(sample, dialect, options=options, table_columns=table_columns),
            *(() if rival is None else (rival,)),
            *find_mangling(sample, dialect, bom=bom),
        ),
        reason=choice.reason,
    )


def read_header(
    sample: RecordSample, dialect: Dialect, *, options: DialectOptions, table_columns: Sequence[str] | None
) -> tuple[tuple[str, ...] | None, HeaderVerdict]:
    """Return the names in the first record, None if it is not a header, and how certain that is (see HeaderVerdict).

    Raises DataError if `options` say that the file has a header, and the sample does not contain all of the header.
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
    """Return the warning that line `line` of a file, such as sep=; is skipped."""
    message = "a line such as sep=; is skipped: it names the delimiter for Excel"
    return Notice(code="separator-line", message=message, uri=uri, line=line, hint="Use --delimiter if it is data.")


def _preamble_notices(
    sample: RecordSample, dialect: Dialect, *, options: DialectOptions, table_columns: Sequence[str] | None
) -> tuple[Notice, ...]:
    """Return a warning if the first lines are no records: they have too few fields, or fill one field at most.

    Lines with the right number of fields count only if the line after them looks like a header.
    """
    if options.header is not None:
        return ()
    whole, lead = sample.records.whole[:_COMPARED_RECORDS], count_title_lines(sample.texts, sample.form)
    filled = _find_filled(sample, dialect, after=lead, options=options, table_columns=table_columns)
    if not lead and not filled:
        return ()
    first, following = whole[0].line, whole[lead + filled].line
    is_one = following - first == 1
    lines = f"line {first}" if is_one else f"lines {first} to {following - 1}"
    usual, verb = sample.form.count_fields(whole[lead + filled].text), "does" if is_one else "do"
    message = f"{lines} {verb} not look like a header or records: {usual} fields begin on line {following}"
    if filled:
        verb = "fills" if is_one else "fill"
        message = f"{lines} {verb} at most 1 of {usual} fields, line {following} looks like the header"
    skipped = options.skip_lines + following - first
    hint = f"Use --skip-lines {skipped} to skip what stands before them, or --header or --no-header if it is data."
    return (Notice(code="preamble", message=message, uri=sample.uri, line=first, hint=hint),)


def _find_filled(
    sample: RecordSample,
    dialect: Dialect,
    *,
    after: int,
    options: DialectOptions,
    table_columns: Sequence[str] | None,
) -> int:
    """Return how many records fill one field at most, if the next one looks like a header; otherwise 0."""
    rows = _read_rows(sample, dialect, after=after)
    lead = next((at for at, row in enumerate(rows) if sum(bool((field or "").strip()) for field in row) > 1), 0)
    if not lead:
        return 0
    fields = rows[lead]
    spelled = [options.spell(field or "") for field in fields]
    verdict = judge_header(fields, rows[lead + 1 :], table_columns, spelled=spelled)
    # Of two fields, one is often filled.
    is_header = verdict == "certain" or (verdict == "likely" and len(fields) > 2)
    return lead if is_header else 0


def _header_notices(verdict: HeaderVerdict, uri: str, first_line: int) -> tuple[Notice, ...]:
    taken = {
        "likely": "first line is taken for a header but could be data",
        "possible": "first line looks like a header but is treated as data",
    }.get(verdict)
    if taken is None:
        return ()
    return (Notice(code="first-line", message=taken, uri=uri, line=first_line, hint="Use --header or --no-header."),)


# The part of the block that is read to compare its header with the first object's.
_HEADER_BYTES: Final = 8 * 1024
_LINE_SHOWN: Final = 120
_FIELDS_SHOWN: Final = 4
_ESCAPES: Final = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"})


@slotted
class Contradiction:
    """A line that the dialects of two objects read in different ways, where neither dialect is certain.

    One is the dialect of the target's first object, the other was found for the object that has the line.
    """

    line: int
    text: str
    # The reading with the first object's dialect.
    before: str
    # The reading with the dialect found for this object alone.
    here: str
    # The option that chooses the first reading, and the one that chooses the second.
    options: tuple[str, str]


def find_contradiction(
    head: bytes,
    *,
    is_whole: bool,
    dialect: Dialect,
    options: DialectOptions,
    header: Sequence[str] | None,
    table_columns: Sequence[str] | None,
    column_count: int,
) -> Contradiction | None:
    """Return the first line that an object's own dialect and that of the first object read differently, or None.

    `head` is the object's first block. `dialect`, `header` and `column_count`, the number of fields, are those of the
    first object. `table_columns` are the columns that this object's header may name. If they are None, this header must
    be the same as `header`. Parts of the dialect that `options` give are not checked. A block that no dialect can read
    is not checked either, because the load will report the error.
    """
    choice = choose_form(head, options=options, is_whole=is_whole, column_count=column_count)
    found = choice.form.delimiter.decode()
    form = make_form(dialect.format, dialect.delimiter, options)
    is_other = choice.is_divided if found != dialect.delimiter else choice.is_spelled
    if is_other and (choice.form.format, found) != (dialect.format, dialect.delimiter):
        records = choice.form.cut(head, is_whole=is_whole).whole
        # A single record often contains other delimiters. If the first object's delimiter divides it as expected,
        # another possible delimiter is not a contradiction.
        is_one = found != dialect.delimiter and len(records) == 1
        if not is_one or form.count_fields(records[0].text) != column_count:
            with suppress(UsageError):
                other = complete_options(options, format_name=choice.form.format, delimiter=found)
                return _compare(records, dialect=dialect, other=replace(other, encoding=dialect.encoding))
    if options.header is not None:
        return None
    is_whole = is_whole and len(head) <= _HEADER_BYTES
    head = head[:_HEADER_BYTES]
    sample = RecordSample(head=head, is_whole=is_whole, uri="", form=form, records=form.cut(head, is_whole=is_whole))
    with suppress(DataError):
        return _compare_header(sample, dialect, options=options, header=header, table_columns=table_columns)
    return None


def refuse_unclear_escapes(
    head: bytes, *, is_whole: bool, dialect: Dialect, options: DialectOptions, uri: str, first_line: int = 1
) -> None:
    """Raise DataError if the backslashes in a file may be COPY's escapes or data, and would be read differently.

    `head` is the file's first block. Nothing is raised if `options` give the format, or if the block shows what the
    backslashes are.
    """
    delimiter = dialect.delimiter.encode()
    if options.format is not None or dialect.format == "csv":
        return
    # Check all of the block, not only the part in which the format was found: later backslashes may be escapes.
    is_text = dialect.format == "text"
    if proves_copy_escapes(head, delimiter) if is_text else not follows_copy_escapes(head, delimiter):
        return
    text, tsv = (replace(dialect, format=name) for name in ("text", "tsv"))
    records = make_form("text", dialect.delimiter, dialect).cut(head, is_whole=is_whole)
    found = _compare(records.pieces, dialect=text, other=tsv)
    if found is not None:
        position = FileLocation(file=uri, line=first_line + found.line - 1)
        raise DataError(
            "backslashes may be escapes or data",
            detail=f"{position}: {found.text}\n"
            f"With --format=text, this is {found.before}.\n"
            f"With --format=tsv, this is {found.here}.",
            hint="Use --format=text if COPY wrote the files, or --format=tsv if their backslashes are data.",
            location=position,
        )


def _compare(records: Sequence[Record], *, dialect: Dialect, other: Dialect) -> Contradiction | None:
    """Return the first record that the two dialects split into different values, or None."""
    for record in records:
        before, here = _split(record.text, dialect), _split(record.text, other)
        if before == here:
            continue
        if dialect.delimiter != other.delimiter:
            spelled = [r"\t" if each.delimiter == "\t" else each.delimiter for each in (dialect, other)]
            ways = [f"--delimiter='{delimiter}'" for delimiter in spelled]
        else:
            ways = [f"--format={each.format}" for each in (dialect, other)]
        return Contradiction(
            line=record.line,
            text=_shorten(decode(record.text, "SQL_ASCII")),
            before=_describe(before),
            here=_describe(here),
            options=(ways[0], ways[1]),
        )
    return None


def _compare_header(
    sample: RecordSample,
    dialect: Dialect,
    *,
    options: DialectOptions,
    header: Sequence[str] | None,
    table_columns: Sequence[str] | None,
) -> Contradiction | None:
    """Return the object's first record if it is a header and the first object's is data, or the reverse."""
    if not sample.records.whole:
        return None
    first = sample.records.whole[0]
    fields = split_record(first.text, replace(dialect, nulls=()))
    is_header = header is not None and fields == list(header)
    if not is_header and (header is None or table_columns is not None):
        names, _ = read_header(sample, dialect, options=options, table_columns=table_columns or ())
        is_header = names is not None
    if is_header == dialect.has_header:
        return None
    readings = ("names of columns", f"a row of {_describe(fields)}")
    before, here = readings if dialect.has_header else readings[::-1]
    return Contradiction(
        line=1,
        text=_shorten(decode(first.text, "SQL_ASCII")),
        before=before,
        here=here,
        options=("--header", "--no-header"),
    )


def _split(raw: bytes, dialect: Dialect) -> list[str | None] | str:
    try:
        return split_record(raw, dialect)
    except DataError as exc:
        return f"an error: {exc.message}"


def _describe(fields: list[str | None] | str) -> str:
    r"""Return values as SQL literals, so that a backslash differs from the character that an escape stands for.

    >>> print(_describe(["C:\\new", "C:\new", None]))
    'C:\new', E'C:\new', NULL
    """
    if isinstance(fields, str):
        return fields
    shown = ", ".join("NULL" if field is None else _literal(_shorten(field)) for field in fields[:_FIELDS_SHOWN])
    more = len(fields) - _FIELDS_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def _literal(text: str) -> str:
    quoted = text.replace("'", "''")
    return f"'{quoted}'" if quoted.isprintable() else f"E'{quoted.translate(_ESCAPES)}'"


def _shorten(text: str) -> str:
    return text if len(text) <= _LINE_SHOWN else f"{text[:_LINE_SHOWN]}..."
