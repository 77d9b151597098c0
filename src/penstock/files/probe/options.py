"""Checks the dialect options of the user, as PostgreSQL's ProcessCopyOptions does, with the same messages.

Source: src/backend/commands/copy.c
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from penstock.errors import UsageError
from penstock.model.source.columnar import ColumnarFormat
from penstock.model.source.dialect import Dialect, DialectOptions, TextFormat

DEFAULT_ENCODING: Final = "UTF8"
DEFAULT_QUOTE: Final = '"'
DEFAULT_NULLS: Final = {"csv": ("",), "text": ("\\N",), "tsv": ("\\N",)}
DEFAULT_DELIMITER: Final = {"csv": ",", "text": "\t", "tsv": "\t"}
# COPY refuses these as delimiters of format text, because they have a meaning after a backslash.
_TEXT_FORBIDDEN: Final = "\\.abcdefghijklmnopqrstuvwxyz0123456789"
_LINE_ENDS: Final = "\r\n"


def complete_options(options: DialectOptions, *, format_name: TextFormat, delimiter: str) -> Dialect:
    """Return the dialect that the options give, with COPY's defaults for options that are not given.

    Raises UsageError if an option cannot be used with the format and the delimiter that were found.
    """
    quote, escape = options.quote, options.escape
    if format_name == "csv":
        quote = DEFAULT_QUOTE if quote is None else quote
        escape = quote if escape is None else escape
    validate_options(replace(options, format=format_name, delimiter=delimiter))
    return Dialect(
        format=format_name,
        delimiter=delimiter,
        quote=quote,
        escape=escape,
        nulls=options.null or DEFAULT_NULLS[format_name],
        has_header=bool(options.header),
        skip_lines=options.skip_lines,
        force_null=options.force_null,
        encoding=DEFAULT_ENCODING if options.encoding is None else options.encoding,
    )


def validate_options(options: DialectOptions) -> None:
    """Raise UsageError for given options that COPY would refuse, or that the format does not have."""
    if options.format == "jsonl":
        # json_lines.py checks these options, also if the format is found.
        return
    if options.format in ("parquet", "arrow"):
        refuse_text_options(options, options.format)
        return
    _check_character(options.delimiter, "delimiter")
    if options.delimiter is not None and options.delimiter in _LINE_ENDS:
        msg = "COPY delimiter cannot be newline or carriage return"
        raise UsageError(msg, hint="Use --delimiter with another character.")
    for null in options.null or ():
        _check_null(null)
    if options.force_null and len(options.null or ()) > 1:
        msg = "--force-null cannot be used with several --null"
        raise UsageError(msg, hint="Give --null once, or do not use --force-null.")
    if options.format == "csv" or (options.format is None and (options.quote, options.escape) != (None, None)):
        _check_quoting(options)
    elif options.text_format is not None:
        _check_unquoted(options, options.text_format)
    _check_delimiter_and_nulls(options)


def refuse_text_options(options: DialectOptions, file_format: ColumnarFormat) -> None:
    """Raise UsageError for a given option that columnar files do not have."""
    if (name := options.find_text_option()) is not None:
        raise UsageError(
            f"--{name.replace('_', '-')} cannot be used with format {file_format}",
            detail="It says how text is written.",
        )


def _check_character(character: str | None, name: str) -> None:
    """Raise UsageError if a character is not one ASCII character; other characters have several bytes in UTF-8."""
    if character is not None and (len(character) != 1 or not "\0" < character < "\x80"):
        msg = f"COPY {name} must be a single one-byte character"
        hint = f"Give one ASCII character; a tab is --{name}='\\t'."
        raise UsageError(msg, detail=f"It was given as {character!r}.", hint=hint)


def _check_null(null: str) -> None:
    if any(character in null for character in _LINE_ENDS):
        msg = "COPY null representation cannot use newline or carriage return"
        raise UsageError(msg, hint="Use --null with another string.")
    if "\0" in null:
        msg = "COPY null representation cannot hold a zero byte"
        raise UsageError(msg, hint="Use --null with another string.")


def _check_quoting(options: DialectOptions) -> None:
    """Check options that only csv has; the format is csv, or not given."""
    for character, name in ((options.quote, "quote"), (options.escape, "escape")):
        _check_character(character, name)
        # COPY accepts this, but then no record would ever end.
        if character is not None and character in _LINE_ENDS:
            msg = f"COPY {name} cannot be newline or carriage return"
            raise UsageError(msg, hint=f"Use --{name} with another character.")
    quote = DEFAULT_QUOTE if options.quote is None else options.quote
    if options.delimiter == quote:
        msg = "COPY delimiter and quote must be different"
        raise UsageError(msg, hint="Use --quote or --delimiter with another character.")
    if any(quote in null for null in options.null or ()):
        msg = "CSV quote character must not appear in the NULL specification"
        raise UsageError(msg, hint="A quoted field is never null: give --null without quotes.")


def _check_unquoted(options: DialectOptions, format_name: str) -> None:
    """Raise UsageError for options that formats text and tsv do not have."""
    given = ((options.quote, "QUOTE"), (options.escape, "ESCAPE"), (options.force_null or None, "FORCE_NULL"))
    for value, name in given:
        if value is not None:
            msg = f"COPY {name} requires CSV mode"
            hint = f"Use --format=csv, or do not use --{name.lower().replace('_', '-')}."
            raise UsageError(msg, detail=f"The format is {format_name}.", hint=hint)
    if options.delimiter is not None and options.delimiter in _TEXT_FORBIDDEN:
        msg = f'COPY delimiter cannot be "{options.delimiter}"'
        raise UsageError(msg, detail=f"The format is {format_name}.", hint="Use --delimiter with another character.")


def _check_delimiter_and_nulls(options: DialectOptions) -> None:
    default = () if options.text_format is None else DEFAULT_NULLS[options.text_format]
    if options.delimiter is not None and any(options.delimiter in null for null in options.null or default):
        msg = "COPY delimiter character must not appear in the NULL specification"
        raise UsageError(msg, hint="Use --null or --delimiter with another string.")
