"""Splits records into texts. The Rust core finds records and fields; this module decodes them and raises the errors."""

from __future__ import annotations

from dataclasses import replace

from penstock import _native
from penstock.errors import DataError, FileLocation
from penstock.files.encodings import decode
from penstock.files.probe.form import make_form
from penstock.model.source.dialect import Dialect


def split_record(record: bytes, dialect: Dialect) -> list[str | None]:
    """Return one record's fields, unquoted and unescaped; null is None. `record` has no line end.

    Raises DataError for a quoted field that does not end, and for bytes that are invalid in the encoding.
    """
    nulls, encoding = dialect.nulls, dialect.encoding
    try:
        fields = make_form(dialect.format, dialect.delimiter, dialect).split(record)
    except _native.RecordError as exc:
        hint = r"Check --quote, use --escape '\\' if backslashes escape quotes, or --format tsv if quotes are data."
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
