"""Finds the format and the delimiter of a sample.

If the options do not give them, they are those that divide all records into the same number of fields.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from penstock import _native
from penstock._native import Form, Records
from penstock.core.errors import DataError, FileLocation, UsageError
from penstock.core.slotted import slotted
from penstock.core.values.dialect import Dialect, DialectOptions, TextFormat
from penstock.core.values.source import ColumnarFormat
from penstock.loading.files.encodings import decode

DEFAULT_ENCODING: Final = "UTF8"
DEFAULT_QUOTE: Final = '"'
DEFAULT_NULLS: Final = {"csv": ("",), "text": ("\\N",), "tsv": ("\\N",)}
DEFAULT_DELIMITER: Final = {"csv": ",", "text": "\t", "tsv": "\t"}
# The characters that COPY refuses as delimiters of format text, because they have a meaning after a backslash.
_TEXT_FORBIDDEN: Final = "\\.abcdefghijklmnopqrstuvwxyz0123456789"
_LINE_ENDS: Final = "\r\n"


def complete_options(options: DialectOptions, *, format_name: TextFormat, delimiter: str) -> Dialect:
    """Return the dialect with a format and a delimiter that were found.

    Options that are given are part of it. For the others, it has COPY's defaults. Raises UsageError if an option cannot
    be used with this format or delimiter.
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
    """Raise UsageError for given options that COPY would refuse, or that their format does not have."""
    if options.format == "jsonl":
        # jsonl.py checks these options, also if the format is not given but found.
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
    """Check the options that only csv has. The format is csv, or is not given."""
    for character, name in ((options.quote, "quote"), (options.escape, "escape")):
        _check_character(character, name)
        # Refuse what COPY would accept, because no record would ever end.
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


# The delimiters that are tried. If two of them divide the records equally well, the first in this list is chosen. The
# comma is last, because it is often part of a value (a decimal comma as in 95,26). The other delimiters rarely are.
_DELIMITERS: Final = ("\t", "|", ";", ",")
# The part of the sample on which all delimiters are tried. It has enough room for hundreds of records.
_TRIAL_BYTES: Final = 32 * 1024
# The share of the records that must have the same number of fields. If fewer have it, the delimiter is probably only
# punctuation.
_AGREEMENT: Final = 0.8
# At most so many first lines are titles, and only if so many records after them are alike, or one less after a blank
# line.
_TITLE_FOLLOWERS: Final = 3
_MOST_TITLE_LINES: Final = 20
# Matches a field that is a number with a decimal comma.
_DECIMAL_COMMA: Final = re.compile(rb'\s*"?[+-]?[\d.]*\d,\d+"?\s*')
# The characters that COPY TO writes after a backslash in format text.
COPY_ESCAPES: Final = b"\\bfnrtv"


@slotted
class Choice:
    """The chosen form of a sample, which is its format, delimiter and quotes, and why it was chosen."""

    form: Form
    reason: str
    # Whether the delimiter divides the records into the same number of fields.
    is_divided: bool = False
    # Whether quotes or backslashes in the sample prove which of the formats with this delimiter it has.
    is_spelled: bool = False


@slotted
class _Trial:
    """The result of splitting the sample by a form."""

    form: Form
    is_spelled: bool
    # The most frequent number of fields.
    field_count: int
    # The share of the records with that number of fields.
    share: float
    matches_table: bool
    # Whether there are several records, and each has at least two fields.
    divides_all: bool
    # Whether all records after some title lines have that number of fields.
    follows_title: bool

    @property
    def rank(self) -> tuple[bool, bool, bool, float, int]:
        return self.is_likely, self.matches_table, not self.is_likely and self.divides_all, self.share, self.field_count

    @property
    def is_likely(self) -> bool:
        is_agreed = self.share >= _AGREEMENT or (self.matches_table and self.share > 0.5)
        return self.field_count > 1 and (is_agreed or self.follows_title)


def choose_form(head: bytes, *, options: DialectOptions, is_whole: bool, column_count: int | None) -> Choice:
    """Return the format, delimiter and quotes of a sample, and why they were chosen.

    What no option gives is found from the first 32 KiB of the sample. `column_count` is the number of the table's
    columns, None if the table is to be created.
    """
    sample, is_whole = head[:_TRIAL_BYTES], is_whole and len(head) <= _TRIAL_BYTES
    wanted = options.text_format or ("csv" if options.quote or options.escape else None)
    if options.delimiter is not None:
        found, is_spelled = (wanted, False) if wanted else _likely_format(options.delimiter, sample, is_whole=is_whole)
        form = make_form(found, options.delimiter, options)
        return Choice(form=form, reason=_explain(form, "the delimiter was given"), is_spelled=is_spelled)
    trials = [
        _try_form(sample, wanted, delimiter, options, is_whole=is_whole, column_count=column_count)
        for delimiter in _open_delimiters(options)
        if delimiter.encode() in sample
    ]
    best = max(trials, key=lambda trial: trial.rank, default=None)
    if best is not None and best.form.delimiter == b"," and not best.matches_table:
        best = next((trial for trial in trials if _has_decimal_commas(trial, best, sample)), best)
    if best is None or not best.is_likely or (column_count == 1 and best.share < 1):
        fallback: TextFormat = wanted or "csv"
        form = make_form(fallback, DEFAULT_DELIMITER[fallback], options)
        if column_count != 1 and best is not None and best.divides_all and best.form.delimiter != form.delimiter:
            return Choice(form=best.form, reason=_explain(best.form, "it divides every record, though not alike"))
        return Choice(form=form, reason=_explain(form, "no delimiter gives all records the same number of fields"))
    share = "every record has" if best.share == 1 else f"{best.share:.0%} of the records have"
    reason = _explain(best.form, f"{share} {best.field_count} fields")
    return Choice(form=best.form, reason=reason, is_divided=True, is_spelled=best.is_spelled)


def _has_decimal_commas(trial: _Trial, by_comma: _Trial, sample: bytes) -> bool:
    """Return whether a trial's fields are numbers with decimal commas. The comma divides each record in one field more.

    A last line that is not whole is not looked at.
    """
    is_as_likely = trial.is_likely and trial.share == by_comma.share
    if not is_as_likely or trial.field_count + 1 != by_comma.field_count:
        return False
    lines = [line.rstrip(b"\r") for line in sample.split(b"\n")[:-1]]
    fields = [field for line in lines if line for field in line.split(trial.form.delimiter)]
    return bool(fields) and all(map(_DECIMAL_COMMA.fullmatch, fields))


def make_form(form_format: TextFormat, delimiter: str, options: DialectOptions | Dialect) -> Form:
    """Return what cuts text of a format into records and fields.

    The quote and the escape of csv are those of `options`, or COPY's defaults.
    """
    if form_format != "csv":
        return Form(format=form_format, delimiter=delimiter.encode())
    quote = DEFAULT_QUOTE if options.quote is None else options.quote
    escape = quote if options.escape is None else options.escape
    return Form(format="csv", delimiter=delimiter.encode(), quote=quote.encode(), escape=escape.encode())


def find_escapes(sample: bytes, delimiter: bytes) -> Iterator[tuple[int, bytes]]:
    r"""Yield the offset of each backslash, and the character after it. Fields that are just \N or \. are left out."""
    for match in _find_backslashes(sample, delimiter):
        if match[1]:
            yield match.start(), match[1]


def _find_backslashes(sample: bytes, delimiter: bytes) -> Iterator[re.Match[bytes]]:
    r"""Yield a match for each backslash. Group 1 is the next character, or None if the whole field is \N or \."""
    edge = b"\r\n" + re.escape(delimiter)
    # The pattern begins with the backslash, because the search is then fast. So the look-behind includes the backslash.
    whole_field = rb"(?<![^" + edge + rb"]\\)[N.](?=[" + edge + rb"]|\Z)"
    return re.finditer(rb"\\(?:" + whole_field + rb"|(.))", sample, re.DOTALL)


def proves_copy_escapes(sample: bytes, delimiter: bytes) -> bool:
    r"""Return whether a sample is certainly COPY's format text: a field is \N or \., or a field has \\ inside.

    A field that begins with \\ proves nothing: it may be a UNC path.
    """
    edges = (b"", b"\r", b"\n", delimiter)
    return any(
        match[1] is None or (match[1] == b"\\" and sample[max(0, match.start() - 1) : match.start()] not in edges)
        for match in _find_backslashes(sample, delimiter)
    )


def follows_copy_escapes(sample: bytes, delimiter: bytes) -> bool:
    """Return whether a sample has backslashes, and COPY TO could have written all of them. Null fields do not count."""
    escaped = [character for _, character in find_escapes(sample, delimiter)]
    return bool(escaped) and all(character in COPY_ESCAPES for character in escaped)


def _open_delimiters(options: DialectOptions) -> list[str]:
    taken = "".join((options.quote or "", *(options.null or ())))
    return [delimiter for delimiter in _DELIMITERS if delimiter not in taken]


def _likely_format(delimiter: str, sample: bytes, *, is_whole: bool) -> tuple[TextFormat, bool]:
    """Return the format of a sample with this delimiter, and whether the sample proves the format.

    With tabs the format is csv, text or tsv. With any other delimiter it is csv.
    """
    if delimiter != "\t":
        return "csv", False
    quote = DEFAULT_QUOTE.encode()
    if quote in sample:
        csv = Form(format="csv", delimiter=b"\t", quote=quote, escape=quote)
        records = csv.cut(sample, is_whole=is_whole)
        has_runaway_quote = records.open_quote is not None and is_whole
        if not has_runaway_quote and csv.encloses_fields(_usable(records)):
            return "csv", True
    if follows_copy_escapes(sample, b"\t"):
        return "text", True
    return "tsv", quote in sample or any(True for _ in find_escapes(sample, b"\t"))


def _try_form(
    sample: bytes,
    wanted: TextFormat | None,
    delimiter: str,
    options: DialectOptions,
    *,
    is_whole: bool,
    column_count: int | None,
) -> _Trial:
    found, is_spelled = (wanted, False) if wanted else _likely_format(delimiter, sample, is_whole=is_whole)
    form = make_form(found, delimiter, options)
    texts = _usable(form.cut(sample, is_whole=is_whole))
    counts = Counter(form.count_fields(text) for text in texts if text)
    field_count, agreeing = counts.most_common(1)[0] if counts else (1, 1)
    if title_lines := count_title_lines(texts, form):
        field_count = form.count_fields(texts[title_lines])
        agreeing = counts[field_count]
    return _Trial(
        form=form,
        is_spelled=is_spelled,
        field_count=field_count,
        share=agreeing / max(1, counts.total()),
        matches_table=field_count == column_count,
        divides_all=counts.total() > 1 and min(counts) > 1,
        follows_title=title_lines > 0,
    )


def count_title_lines(texts: Sequence[bytes], form: Form) -> int:
    """Return how many records at the beginning are titles, which have fewer fields than all other records.

    A title has fewer than half as many fields as each of the others, which have the same number. If one of the first
    records is blank, it is enough that titles have one field, and the others two.
    """
    counts = [form.count_fields(text) for text in texts]
    usual = next((count for count, text in zip(reversed(counts), reversed(texts), strict=True) if text), 1)
    lead = counts.index(usual) if usual in counts else 0
    if usual == 1 or not 0 < lead <= _MOST_TITLE_LINES:
        return 0
    most, has_blank = max(counts[:lead]), b"" in texts[:lead]
    is_short = 2 * most < usual or (most == 1 and has_blank)
    following = [count for count, text in zip(counts[lead:], texts[lead:], strict=True) if text]
    is_followed = len(following) >= _TITLE_FOLLOWERS - has_blank and set(following) == {usual}
    return lead if is_short and is_followed else 0


def _usable(records: Records) -> list[bytes]:
    """Return the whole records, or the beginning of the first one if none is whole."""
    return [record.text for record in records.whole or records.pieces]


def _explain(form: Form, evidence: str) -> str:
    name = {b",": "comma", b"\t": "tab", b";": "semicolon", b"|": "pipe"}.get(form.delimiter)
    shown = name or f'"{form.delimiter.decode()}"'
    nature = {
        "csv": "quotes around fields are quoting",
        "text": "backslashes are COPY's escapes",
        "tsv": "quotes and backslashes are data",
    }[form.format]
    return f"{form.format}, delimiter {shown}: {evidence}; {nature}"


def split_record(record: bytes, dialect: Dialect) -> list[str | None]:
    """Return the fields of a record, without quotes and escapes. A null is None. `record` has no line end.

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
    """Return the names in a header record. Raises DataError, which names the file and the line."""
    try:
        return [name or "" for name in split_record(record, replace(dialect, nulls=()))]
    except DataError as exc:
        position = FileLocation(file=uri, line=line)
        raise DataError(exc.message, detail=f"{position}, the header.", hint=exc.hint, location=position) from exc


def find_header(head: bytes, dialect: Dialect, *, is_whole: bool, uri: str, line: int = 1) -> list[str] | None:
    """Return the names in a sample's first record, None if the sample does not contain the whole record.

    Raises DataError, which names the file and the line.
    """
    records = make_form(dialect.format, dialect.delimiter, dialect).cut(head, is_whole=is_whole).whole
    return split_header(records[0].text, dialect, uri=uri, line=line) if records else None
