"""Splits a sample into records and fields by the rules of PostgreSQL's copyfromparse.c.

Source: CopyReadLineText, CopyReadAttributesCSV, CopyReadAttributesText. The Rust module splits whole files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.errors import DataError, FilePlace
from penstock.files.encodings import client_encoding
from penstock.files.probe.options import DEFAULT_QUOTE

if TYPE_CHECKING:
    from penstock.model.source.dialect import Dialect, Format

_UNESCAPED: Final = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
# The characters of an escape are not delimiters, even if the delimiter is a letter from A to F.
_ESCAPE: Final = re.compile(rb"\\(?:x[0-9A-Fa-f]{1,2}|.)?", re.DOTALL)
_TEXT_ESCAPE: Final = re.compile(rb"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|(.?))", re.DOTALL)


# The end-of-data mark of COPY, in csv only before PostgreSQL 18; records after it are not checked here.
_END_OF_COPY: Final = b"\\."


class Record(NamedTuple):
    """Bytes [start, end) of the sample, without the line end; `line` counts the file's lines from 1.

    A tuple, because a sample has thousands of records, and creating a frozen dataclass takes a microsecond.
    """

    start: int
    end: int
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """A sample cut into records.

    `whole` are the records that end within the sample. `rest` is what is left: a record cut by the sample's end, or
    with a quoted field that begins at `open_quote` and never ends. `odd_line` is the first line with another line end
    than the first line's.
    """

    whole: tuple[Record, ...]
    rest: Record | None
    line_end: bytes | None
    odd_line: int | None
    open_quote: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The characters that decide where records and fields end, one byte each; only csv has quotes."""

    format: Format
    delimiter: bytes
    quote: bytes | None = None
    escape: bytes | None = None


def cut_records(head: bytes, form: Form, *, is_whole: bool) -> Records:
    """Return the sample's records; a last one without a line end is whole only if the sample `is_whole`."""
    special = [b"\r", b"\\" if form.format == "text" else form.quote, form.escape]
    if not any(token and token in head for token in special):
        return _cut_lines(head, is_whole=is_whole)
    cutter = _Cutter(form)
    # A carriage return at the very end may be half of a line end.
    end = len(head) - 1 if not is_whole and head.endswith(b"\r") else len(head)
    for match in _line_tokens(form).finditer(head, 0, end):
        cutter.take(match[0], match.start())
    return cutter.finish(len(head), is_whole=is_whole)


def count_from(first_line: int, records: Records) -> Records:
    """Return the records of a sample that begins on another line of its file than the first."""
    if first_line == 1:
        return records
    whole, rest = (
        tuple(record._replace(line=record.line + first_line - 1) for record in part)
        for part in (records.whole, () if records.rest is None else (records.rest,))
    )
    odd = None if records.odd_line is None else records.odd_line + first_line - 1
    return replace(records, whole=whole, rest=rest[0] if rest else None, odd_line=odd)


def _cut_lines(head: bytes, *, is_whole: bool) -> Records:
    """Return the records of a sample in which each newline ends one: four times as fast as token by token."""
    ends = [match.start() for match in re.finditer(b"\n", head)]
    starts = [0, *(end + 1 for end in ends)]
    whole = list(map(Record, starts, ends, range(1, len(starts))))
    rest = Record(start=starts[-1], end=len(head), line=len(starts)) if starts[-1] < len(head) else None
    if rest is not None and is_whole:
        whole.append(rest)
        rest = None
    line_end = b"\n" if ends else None
    return Records(whole=tuple(whole), rest=rest, line_end=line_end, odd_line=None, open_quote=None)


def _line_tokens(form: Form) -> re.Pattern[bytes]:
    """Return the pattern of what may end a record or keep it from ending."""
    if form.format == "text":
        return re.compile(rb"\r\n|[\r\n]|\\.?", re.DOTALL)
    if form.quote is None:
        return re.compile(rb"\r\n|[\r\n]")
    return re.compile(rb"\r\n|[\r\n" + re.escape(form.quote + (form.escape or b"")) + b"]")


class _Cutter:
    """The state of CopyReadLineText: in a quoted field or not, and how lines end."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self._records: list[Record] = []
        self._start = 0
        self._record_line = self._line = 1
        self._line_end: bytes | None = None
        self._odd_line: int | None = None
        self._open_quote: int | None = None
        self._escaped_at = -1

    def take(self, token: bytes, at: int) -> None:
        """Take the next token, which begins at offset `at`."""
        if token[0] in b"\r\n":
            self._take_line_end(token, at)
        elif self._form.quote is None:
            self._line += token == b"\\\n"
        else:
            self._take_quote(token, at)

    def _take_quote(self, token: bytes, at: int) -> None:
        if at == self._escaped_at:
            return
        if token == self._form.quote:
            self._open_quote = at if self._open_quote is None else None
        elif self._open_quote is not None:
            self._escaped_at = at + 1
        # If the quote is its own escape, a doubled quote closes the field and opens it again, which is right here.

    def _take_line_end(self, token: bytes, at: int) -> None:
        if self._open_quote is not None:
            self._line += 1
            return
        self._line_end = self._line_end or token
        if token != self._line_end and self._odd_line is None:
            self._odd_line = self._line
        # A lone carriage return or newline in a file with other line ends does not end a record: COPY refuses it.
        is_end = token == self._line_end or len(token) == 2 or (token == b"\n" and self._line_end == b"\r\n")
        self._line += is_end or token == b"\n"
        if is_end:
            self._records.append(Record(start=self._start, end=at, line=self._record_line))
            self._start = at + len(token)
            self._record_line = self._line

    def finish(self, end: int, *, is_whole: bool) -> Records:
        """Return what was cut from a sample of `end` bytes."""
        rest = Record(start=self._start, end=end, line=self._record_line) if self._start < end else None
        if rest is not None and is_whole and self._open_quote is None:
            self._records.append(rest)
            rest = None
        return Records(
            whole=tuple(self._records),
            rest=rest,
            line_end=self._line_end,
            odd_line=self._odd_line,
            open_quote=self._open_quote,
        )


def count_fields(record: bytes, form: Form) -> int:
    """Return how many fields a record, or the beginning of one, has."""
    if form.format == "text" and b"\\" in record:
        record = _ESCAPE.sub(b"", record)
    if form.quote is None or form.quote not in record:
        return record.count(form.delimiter) + 1
    if form.escape != form.quote:
        inside = re.escape(form.escape or b"")
        record = re.sub(_quoted_part(form.quote, inside), b"", record, flags=re.DOTALL)
    return sum(part.count(form.delimiter) for part in record.split(form.quote)[::2]) + 1


def _quoted_part(quote: bytes, escape: bytes) -> bytes:
    ended = re.escape(quote)
    return ended + b"(?:[^" + ended + escape + b"]|" + escape + b".?)*+(?:" + ended + rb"|\Z)"


def split_record(record: bytes, dialect: Dialect) -> list[str | None]:
    """Return one record's fields, unquoted and unescaped; null is None. `record` has no line end.

    Raises DataError for a quoted field that does not end, and for bytes that are invalid in the encoding.
    """
    form = _form_of(dialect)
    if dialect.format == "csv":
        return _split_csv(record, dialect, form)
    if dialect.format == "tsv":
        texts = [decode(raw, dialect.encoding) for raw in record.split(form.delimiter)]
        return [None if text in dialect.nulls else text for text in texts]
    return [_read_text_field(raw, dialect) for raw in _split_text(record, form.delimiter)]


def _form_of(dialect: Dialect) -> Form:
    delimiter = dialect.delimiter.encode()
    if dialect.format != "csv":
        return Form(format=dialect.format, delimiter=delimiter)
    quote = (dialect.quote or DEFAULT_QUOTE).encode()
    escape = quote if dialect.escape is None else dialect.escape.encode()
    return Form(format="csv", delimiter=delimiter, quote=quote, escape=escape)


def split_header(record: bytes, dialect: Dialect, *, uri: str, line: int = 1) -> list[str]:
    """Return the names of a header record. Raises DataError, which names the file and line."""
    try:
        return [name or "" for name in split_record(record, replace(dialect, nulls=()))]
    except DataError as exc:
        position = FilePlace(file=uri, line=line)
        raise DataError(exc.message, detail=f"{position}, the header.", hint=exc.hint, place=position) from exc


def find_header(head: bytes, dialect: Dialect, *, is_whole: bool, uri: str, line: int = 1) -> list[str] | None:
    """Return the names in a sample's first record, or None if the sample does not contain all of it.

    Raises DataError.
    """
    records = cut_records(head, _form_of(dialect), is_whole=is_whole).whole
    return split_header(head[records[0].start : records[0].end], dialect, uri=uri, line=line) if records else None


def find_misfit(head: bytes, dialect: Dialect, *, is_whole: bool, field_count: int) -> tuple[Record, int] | None:
    """Return a sample's first record with another number of fields, and that number, or None if all records fit."""
    form = _form_of(dialect)
    for record in cut_records(head, form, is_whole=is_whole).whole[int(dialect.has_header) :]:
        raw = head[record.start : record.end]
        if raw == _END_OF_COPY:
            return None
        if (count := count_fields(raw, form)) != field_count:
            return record, count
    return None


def _split_csv(record: bytes, dialect: Dialect, form: Form) -> list[str | None]:
    """Split a record as CopyReadAttributesCSV does: quotes may begin and end anywhere in a field."""
    quote = form.quote or b""
    special = re.compile(b"[" + re.escape(form.delimiter + quote) + b"]")
    fields: list[str | None] = []
    value = b""
    position = start = 0
    has_quotes = False
    while True:
        match = special.search(record, position)
        end = match.start() if match else len(record)
        value += record[position:end]
        position = end + 1
        if match and match[0] == quote:
            quoted, position = _read_quoted(record, position, form)
            value += quoted
            has_quotes = True
            continue
        is_null = not has_quotes and decode(record[start:end], dialect.encoding) in dialect.nulls
        fields.append(None if is_null else decode(value, dialect.encoding))
        if match is None:
            return fields
        value, start, has_quotes = b"", position, False


def _read_quoted(record: bytes, position: int, form: Form) -> tuple[bytes, int]:
    """Return the quoted part that begins at `position`, and the offset after its closing quote."""
    quote, escape = form.quote or b"", form.escape or b""
    special = re.compile(b"[" + re.escape(quote + escape) + b"]")
    parts = []
    while match := special.search(record, position):
        parts.append(record[position : match.start()])
        position = match.end()
        following = record[position : position + 1]
        if match[0] == escape and following and following in quote + escape:
            parts.append(following)
            position += 1
        elif match[0] == quote:
            return b"".join(parts), position
        else:
            parts.append(match[0])
    msg = "unterminated CSV quoted field"
    raise DataError(msg, hint="Check --quote and --escape, or use --format=tsv where quotes are data.")


def _split_text(record: bytes, delimiter: bytes) -> list[bytes]:
    fields = []
    start = 0
    for match in re.finditer(_ESCAPE.pattern + b"|" + re.escape(delimiter), record, re.DOTALL):
        if match[0] == delimiter:
            fields.append(record[start : match.start()])
            start = match.end()
    return [*fields, record[start:]]


def _read_text_field(raw: bytes, dialect: Dialect) -> str | None:
    if decode(raw, dialect.encoding) in dialect.nulls:
        return None
    return decode(_TEXT_ESCAPE.sub(_unescape, raw), dialect.encoding)


def _unescape(match: re.Match[bytes]) -> bytes:
    octal, hexadecimal, character = match.groups()
    if octal:
        return bytes([int(octal, 8) & 0xFF])
    if hexadecimal:
        return bytes([int(hexadecimal, 16)])
    return _UNESCAPED.get(character, character)


def decode(value: bytes, encoding: str) -> str:
    """Return a field's text; `encoding` is the file's (files in encodings that are not ASCII-safe arrive as UTF-8).

    Raises DataError for bytes that are invalid in the encoding.
    """
    name = client_encoding(encoding)
    codec, errors = _CODECS.get(name, (name.replace("WIN", "cp"), "strict"))
    try:
        return value.decode(codec, errors)
    except UnicodeDecodeError as exc:
        raise DataError(
            f'invalid byte sequence for encoding "{name}": {show_bytes(value[exc.start : exc.end])}',
            hint="Give the file's encoding with --encoding.",
        ) from exc


# Python's names of PostgreSQL's encodings, if they differ by more than WIN and cp. Python cannot decode the last three;
# for names of columns their ASCII part is enough.
_CODECS: Final = {
    "KOI8R": ("koi8_r", "strict"),
    "KOI8U": ("koi8_u", "strict"),
    "SQL_ASCII": ("utf-8", "replace"),
    "EUC_TW": ("ascii", "replace"),
    "MULE_INTERNAL": ("ascii", "replace"),
}


def show_bytes(value: bytes) -> str:
    """Return bytes as PostgreSQL's messages show them, for example 0xe9 0x20."""
    return " ".join(f"0x{byte:02x}" for byte in value)
