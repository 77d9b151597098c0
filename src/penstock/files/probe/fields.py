"""Splits records into texts. The Rust core finds records and fields; this module decodes them and raises the errors."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from penstock import _native
from penstock.errors import DataError, FileLocation
from penstock.files.encodings import decode
from penstock.files.probe.form import make_form
from penstock.model.source.dialect import Dialect

# The end-of-data mark of COPY, in csv only before PostgreSQL 18; records after it are not checked here.
_END_OF_COPY: Final = b"\\."


def split_record(record: bytes, dialect: Dialect) -> list[str | None]:
    """Return one record's fields, unquoted and unescaped; null is None. `record` has no line end.

    Raises DataError for a quoted field that does not end, and for bytes that are invalid in the encoding.
    """
    nulls, encoding = dialect.nulls, dialect.encoding
    try:
        fields = make_form(dialect.format, dialect.delimiter, dialect).split(record)
    except _native.RecordError as exc:
        hint = "Check --quote and --escape, or use --format=tsv where quotes are data."
        raise DataError(exc.args[0], hint=hint) from exc
    return [
        None if raw is not None and decode(raw, encoding) in nulls else decode(value, encoding) for value, raw in fields
    ]


def split_header(record: bytes, dialect: Dialect, *, uri: str, line: int = 1) -> list[str]:
    """Return the names of a header record. Raises DataError, which names the file and line."""
    try:
        return [name or "" for name in split_record(record, replace(dialect, nulls=()))]
    except DataError as exc:
        position = FileLocation(file=uri, line=line)
        raise DataError(exc.message, detail=f"{position}, the header.", hint=exc.hint, location=position) from exc


def find_header(head: bytes, dialect: Dialect, *, is_whole: bool, uri: str, line: int = 1) -> list[str] | None:
    """Return the names in a sample's first record, or None if the sample does not contain all of it.

    Raises DataError.
    """
    records = make_form(dialect.format, dialect.delimiter, dialect).cut(head, is_whole=is_whole).whole
    return split_header(records[0].text, dialect, uri=uri, line=line) if records else None


def find_misfit(
    head: bytes, dialect: Dialect, *, is_whole: bool, field_count: int, ends_empty: bool = False
) -> tuple[_native.Record, int] | None:
    """Return a sample's first record with another number of fields, and that number, or None if all records fit.

    With `ends_empty` a record may have one more field, which is blank.
    """
    form = make_form(dialect.format, dialect.delimiter, dialect)
    for record in form.cut(head, is_whole=is_whole).whole[int(dialect.has_header) :]:
        if record.text == _END_OF_COPY:
            return None
        count = form.count_fields(record.text)
        if count != field_count and not (ends_empty and count == field_count + 1 and _ends_blank(form, record.text)):
            return record, count
    return None


def _ends_blank(form: _native.Form, record: bytes) -> bool:
    """Return whether the last field of a record is blank, in quotes or without."""
    try:
        return not form.split(record)[-1][0].strip()
    except _native.RecordError:
        return False
