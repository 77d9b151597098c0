"""Checks whether another object's first block has the dialect of the load's first object.

If not, shows both readings.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from penstock.core.errors import DataError, FileLocation, UsageError
from penstock.core.files.encodings import decode
from penstock.core.frozen import frozen
from penstock.loading.formats.probe.form import (
    choose_form,
    complete_options,
    follows_copy_escapes,
    make_form,
    proves_copy_escapes,
    split_record,
)
from penstock.loading.formats.probe.mangling import RecordSample
from penstock.loading.formats.probe.probing import read_header

if TYPE_CHECKING:
    from penstock._native import Record
    from penstock.core.values.dialect import Dialect, DialectOptions

# This is enough for the header and the records that the header is compared with.
_HEADER_BYTES: Final = 8 * 1024
_LINE_SHOWN: Final = 120
_FIELDS_SHOWN: Final = 4
_ESCAPES: Final = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"})


@frozen
class Contradiction:
    """A line that two dialects read in different ways, where neither dialect is certain."""

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
    """Return the first line where an object's first block contradicts the first object's dialect, or None.

    `header` is the first object's. `table_columns` are the columns that this object's header may name, None if it must
    be the same as the first object's. `column_count` is the number of fields of the first object. Parts of the dialect
    that `options` give are not checked. A block that no dialect can read is not checked either, because the load will
    report the error.
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
    """Raise DataError if backslashes may be COPY's escapes or data, and neither the options nor the block decide."""
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
