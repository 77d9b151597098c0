r"""Finds values in a sample that a dialect would change, and reports each as a Notice with line and column.

Nothing is refused here; the server or the Rust cutter refuses what cannot be loaded.
"""

from __future__ import annotations

import re
import shlex
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock import _native
from penstock.core.slotted import slotted
from penstock.core.units import format_bytes
from penstock.core.values.dialect import Dialect, TextFormat
from penstock.core.values.notice import Notice, WarningCode
from penstock.core.values.source import Compression
from penstock.loading.files.encodings import guess_utf16, is_ascii_safe, windows_page
from penstock.loading.formats.probe.content import Content, describe_conversion
from penstock.loading.formats.probe.form import (
    COPY_ESCAPES,
    DEFAULT_QUOTE,
    find_escapes,
    follows_copy_escapes,
    make_form,
)

if TYPE_CHECKING:
    from penstock._native import Form, LineEnd, Records

# The end-of-data mark of COPY, which csv has only before PostgreSQL 18. Records after it are not checked here.
_END_OF_COPY: Final = b"\\."

ESCAPE_HINT: Final = r"Backslashes stand before quotes: use --escape '\\' if they escape them."

# The hint for a record that has one field too many. The record may end with a delimiter.
ENDS_WITH_DELIMITER: Final = (
    "The record ends with a delimiter, behind which is one more field: name all fields with --columns, and skip that"
    " one with --skip."
)
# The state of awk's commands: whether a record goes on behind a line. For text, also behind COPY's end-of-data mark.
_AWK_STATES: Final = {"csv": '(q + gsub(/"/, "&")) % 2', "text": r"/\\\r?$|^\\\.\r?$/", "tsv": "0"}
_AWK_FILLED: Final = r"NF > 1 || !/^[ \t\r]*$/"


def find_misfit(
    head: bytes, dialect: Dialect, *, is_whole: bool, field_count: int, ends_empty: bool = False
) -> tuple[_native.Record, int] | None:
    """Return a sample's first record with a wrong number of fields, and that number. None if all whole records fit.

    `field_count` is the right number. With `ends_empty`, a record may have one more field if that one is blank.
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


def escapes_quotes(record: bytes, delimiter: bytes) -> bool:
    r"""Return whether a quoted field contains \" and would end correctly if the backslash were the escape.

    >>> escapes_quotes(rb'1,"say \"yes\", twice"', b","), escapes_quotes(rb'"C:\","D:\"', b",")
    (True, False)
    """
    edge = rb"[\r\n" + re.escape(delimiter) + rb"]"
    part = rb'(?:[^"\\]|\\.)*'
    field = rb"(?:\A|(?<=" + edge + rb'))"' + part + rb'\\"' + part + rb'"(?=' + edge + rb"|\Z)"
    return b'\\"' in record and re.search(field, record, re.DOTALL) is not None


def explain_misfit(
    record: bytes, dialect: Dialect, *, field_count: int, uri: str, compression: Compression = "none"
) -> str | None:
    """Return what to do about a record with another number of fields than expected, None if its cause is not clear.

    `record` has no line end. `field_count` is the expected number. `uri` and `compression` are those of the file.
    """
    if dialect.format == "jsonl":
        return None
    has_default = (dialect.quote, dialect.escape) == (DEFAULT_QUOTE, DEFAULT_QUOTE)
    if has_default and escapes_quotes(record, dialect.delimiter.encode()):
        return ESCAPE_HINT
    count = make_form(dialect.format, dialect.delimiter, dialect).count_fields(record)
    if count == field_count + 1 and record.endswith(dialect.delimiter.encode()):
        return ENDS_WITH_DELIMITER
    if count >= field_count:
        return None
    is_blank = count == 1 and not record.strip()
    found = _describe_blank(dialect) if is_blank else _describe_omitted(dialect, field_count)
    return describe_conversion(found, uri=uri, compression=compression)


def _describe_blank(dialect: Dialect) -> Content:
    return Content(
        name="a file with a blank line",
        advice="The line is blank. Reject it with --on-error reject, or remove such lines",
        command=_make_awk(dialect, f"open || {_AWK_FILLED}"),
        suffix=".filled",
    )


def _describe_omitted(dialect: Dialect, field_count: int) -> Content:
    """Return a hint to fill records that omit their last fields.

    awk also counts delimiters in quotes, and then fills too few fields.
    """
    null = dialect.nulls[0].replace("\\", "\\\\").replace('"', r"\"")
    program = (
        rf'{{ cr = sub(/\r$/, "") ? "\r" : "" }} !open && !q && ({_AWK_FILLED})'
        f' {{ while (NF < {field_count}) $(NF + 1) = "{null}" }} {{ print $0 cr }}'
    )
    return Content(
        name="a file whose records omit their last fields",
        advice="The record omits its last fields. Reject it with --on-error reject, or fill such records with nulls",
        command=_make_awk(dialect, program),
        suffix=".filled",
    )


def _make_awk(dialect: Dialect, program: str) -> str | None:
    """Return a command that runs a program of awk on each line, and knows in `open` whether a record goes on there.

    `q` is whether it goes on behind the line. Return None if awk would take other bytes for quotes or line ends.
    """
    is_read_alike = (dialect.quote, dialect.escape) in ((DEFAULT_QUOTE, DEFAULT_QUOTE), (None, None))
    if not is_read_alike or not is_ascii_safe(dialect.encoding):
        return None
    delimiter = {"\t": r"\t", "\\": r"\\"}.get(dialect.delimiter, dialect.delimiter)
    # awk divides at runs of blanks if the delimiter is a blank, and at tabs if it is a t.
    pattern = f"[{delimiter}]" if delimiter in (" ", "t") else delimiter
    whole = f"{{ open = q; q = {_AWK_STATES[dialect.format]} }} {program}"
    return f"awk -F {shlex.quote(pattern)} -v OFS={shlex.quote(delimiter)} {shlex.quote(whole)}"


_LINE_END_NAMES: Final[dict[LineEnd, str]] = {
    "lf": "newline",
    "crlf": "carriage return and newline",
    "cr": "carriage return",
}
# If a quoted field in a sample is this long, the quote is probably data.
_RUNAWAY_BYTES: Final = 64 * 1024
# Words that other programs write for null.
_NULL_WORDS: Final = ("\\N", "NULL", "null")
# Possible delimiters. Some are so rare that a notice mentions them, but they are never chosen.
_DELIMITERS: Final = (b":", b"^", b"\x01", b"\x1f", b"~", b"#", b"&", b" ", b";", b"|", b"\t", b",")
# How many records or fields must be alike. This many records rarely have the same number of fields by chance.
_ALIKE: Final = 3
_COMPARED_RECORDS: Final = 100


@slotted
class RecordSample:
    """A sample of a file, cut into records by the dialect that was found."""

    head: bytes
    is_whole: bool
    uri: str
    form: Form
    records: Records

    @property
    def texts(self) -> list[bytes]:
        """Return the first 100 whole records, each without its line end."""
        return [record.text for record in self.records.whole[:_COMPARED_RECORDS]]

    def locate(self, offset: int) -> tuple[int, int]:
        """Return the line and the field, both counted from 1, that contain the byte at an offset of the sample."""
        pieces = self.records.pieces
        index = max(0, bisect_right(pieces, offset, key=lambda record: record.start) - 1)
        if not pieces:
            return 1, 1
        before = self.head[pieces[index].start : offset]
        newline = b"\r" if self.records.line_end == "cr" else b"\n"
        return pieces[index].line + before.count(newline), self.form.count_fields(before)

    def is_quoted(self, offset: int) -> bool:
        """Return whether the byte at an offset of the sample is within the quotes of a field."""
        if self.form.quote is None:
            return False
        index = bisect_right(self.records.pieces, offset, key=lambda record: record.start) - 1
        start = self.records.pieces[index].start
        try:
            self.form.split(self.head[start:offset])
        except _native.RecordError:
            return True
        return False

    def notice(
        self, code: WarningCode, offset: int, message: str, hint: str, options: Mapping[str, Any] | None = None
    ) -> Notice:
        """Return a warning about the byte at an offset of the sample, with its line and field.

        `options` are options of the load that would change how the byte is read.
        """
        line, column = self.locate(offset)
        return Notice(code=code, message=message, uri=self.uri, line=line, column=column, hint=hint, options=options)


def find_mangling(sample: RecordSample, dialect: Dialect, *, bom: str | None) -> tuple[Notice, ...]:
    """Return a warning for each kind of value that is read otherwise than it was probably meant.

    Each names the line and the field of the first such value. `bom` is the encoding of the byte-order mark that was
    skipped, None without one.
    """
    found = [_byte_order_mark(sample, bom)]
    found += [find(sample) for find in _FINDERS[dialect.format]]
    found.append(_literal_null(sample, dialect.nulls))
    found.append(_control_bytes(sample, dialect.encoding))
    return tuple(notice for notice in found if notice is not None)


def _byte_order_mark(sample: RecordSample, bom: str | None) -> Notice | None:
    if bom is None:
        return None
    message = "byte-order mark skipped"
    return Notice(code="byte-order-mark", message=message, uri=sample.uri, line=1, column=1, hint=f"It is {bom}'s.")


def _mixed_line_ends(sample: RecordSample) -> Notice | None:
    if sample.records.odd_line is None or sample.records.line_end is None:
        return None
    return Notice(
        code="line-ends",
        message=f"line ends differ: the first line ends in {_LINE_END_NAMES[sample.records.line_end]}",
        uri=sample.uri,
        line=sample.records.odd_line,
        hint="COPY accepts one kind of line end per file; convert the file, or quote line ends that are data.",
    )


def _carriage_returns_only(sample: RecordSample) -> Notice | None:
    if sample.records.line_end != "cr":
        return None
    hint = "Check that the file is complete."
    message = "lines end in carriage return only"
    return Notice(code="carriage-returns", message=message, uri=sample.uri, line=1, hint=hint)


def _no_line_end(sample: RecordSample) -> Notice | None:
    """Find whether the first record does not end within the sample, although no quote is open."""
    if sample.is_whole or sample.records.whole or sample.records.open_quote is not None:
        return None
    message = f"the first record does not end within {format_bytes(len(sample.head))}"
    hint = "Check that the file is text, and its --format."
    return Notice(code="long-record", message=message, uri=sample.uri, line=1, hint=hint)


def _end_of_data_mark(sample: RecordSample) -> Notice | None:
    if b"\\." not in sample.head:
        return None
    for record in sample.records.pieces:
        if record.text == b"\\.":
            hint = "COPY ends there and ignores the rest (csv: before PostgreSQL 18); remove the line."
            return sample.notice("end-of-data", record.start, "a line is COPY's end-of-data mark, a lone \\.", hint)
    return None


def _zero_byte(sample: RecordSample) -> Notice | None:
    offset = sample.head.find(0)
    if offset < 0:
        return None
    wide = guess_utf16(sample.head)
    hint = f"The file looks like UTF-16: use --encoding={wide}." if wide else "Remove the zero bytes from the file."
    return sample.notice("zero-byte", offset, "zero byte, which PostgreSQL's text cannot hold", hint)


def _open_quote(sample: RecordSample) -> Notice | None:
    """Find a quoted field that does not end in a whole file, or is longer than 64 KiB in the sample."""
    opened = sample.records.open_quote
    if opened is None:
        return None
    if not sample.is_whole and len(sample.head) - opened < _RUNAWAY_BYTES:
        return None
    hint = r"Check --quote, use --escape '\\' if backslashes escape quotes, or --format tsv if quotes are data."
    return sample.notice("quote-open", opened, "quoted field does not end", hint)


def _stray_quote(sample: RecordSample) -> Notice | None:
    quote, delimiter = sample.form.quote or b"", sample.form.delimiter
    if quote not in sample.head:
        return None
    for record in sample.records.whole:
        if quote in record.text and (column := sample.form.find_stray_quote(record.text)) is not None:
            return Notice(
                code="quote-dropped",
                message="quote in the middle of a field: csv drops it and treats the rest as quoted",
                uri=sample.uri,
                line=record.line,
                column=column + 1,
                hint=ESCAPE_HINT
                if escapes_quotes(record.text, delimiter)
                else "Use --format=tsv if quotes are data, or --quote with a character that is not in the file.",
            )
    return None


def _control_bytes(sample: RecordSample, encoding: str) -> Notice | None:
    """Find bytes that ISO 8859 reads as control characters, and the code page of Windows as letters and signs."""
    page = windows_page(encoding)
    found = None if page is None else re.search(rb"[\x80-\x9f]", sample.head)
    if page is None or found is None:
        return None
    return sample.notice("control-bytes", found.start(), *explain_controls(encoding, page), {"encoding": page})


def explain_controls(encoding: str, page: str) -> tuple[str, str]:
    """Return the message and the hint of a warning: an encoding of ISO 8859 has control characters at 0x80 to 0x9F.

    `page` is the Windows code page that may be meant.
    """
    hint = f"Use --encoding {page} if they are letters or signs, such as \u20ac or \u201c \u201d."
    return f"bytes from 0x80 to 0x9f are control characters in {encoding}", hint


def _literal_null(sample: RecordSample, nulls: Sequence[str]) -> Notice | None:
    r"""Find a field that is \N or the word NULL, if the dialect reads it as text."""
    words = find_null_words(nulls, sample.form.format)
    found = [match for word in words if (match := _find_field(sample, re.escape(word.encode()))) is not None]
    if not found:
        return _quoted_null(sample)
    word = found[0][0].decode()
    too = " (with --null '' too, if empty fields do)" if "" in nulls else ""
    message, hint = f"{word} is not null in this dialect, but text", f"Use --null='{word}'{too}."
    return sample.notice("literal-null", found[0].start(), message, hint, {"null": (word,)})


def find_null_words(nulls: Sequence[str], format_name: TextFormat) -> list[str]:
    """Return the words that other programs write for null, and that a dialect with these null strings reads as text."""
    return [word for word in _NULL_WORDS if word not in nulls and (word != "\\N" or format_name == "csv")]


def _quoted_null(sample: RecordSample) -> Notice | None:
    """Find the word NULL in quotes in a file that quotes every field, where it probably means null."""
    quote = sample.form.quote
    if quote is None or not all(text.startswith(quote) and text.endswith(quote) for text in sample.texts):
        return None
    match = _find_field(sample, quote + b"(?:NULL|null)" + quote)
    if match is None:
        return None
    word = match[0].strip(quote).decode()
    message, hint = f"{word} in quotes is text", f"Use --null={word} --force-null='*' if it is null."
    return sample.notice("literal-null", match.start(), message, hint, {"null": (word,), "force_null": ("*",)})


def _kept_blanks(sample: RecordSample) -> Notice | None:
    """Return a notice if a blank follows every delimiter, as some programs write it for readability."""
    if not has_blanks(sample):
        return None
    message, hint = "blanks behind the delimiter are kept as data", "Remove them from the file if they are none."
    return sample.notice("blank-kept", sample.records.whole[0].start, message, hint)


def has_blanks(sample: RecordSample) -> bool:
    """Return whether each field, except the first of each record, begins with a blank.

    The result is false if one of these fields is empty.
    """
    delimiter = sample.form.delimiter
    parts = [part for text in sample.texts for part in text.split(delimiter)[1:]]
    return delimiter != b" " and len(parts) >= _ALIKE and all(part.startswith(b" ") for part in parts)


def _find_field(sample: RecordSample, content: bytes) -> re.Match[bytes] | None:
    """Return the first field of the whole records that matches a pattern, including its quotes.

    Text within quotes that looks like a field, such as an element of an array, does not count.
    """
    if not sample.records.whole:
        return None
    edge = rb"[\r\n" + re.escape(sample.form.delimiter) + rb"]"
    pattern = re.compile(rb"(?:\A|(?<=" + edge + rb"))(?:" + content + rb")(?=" + edge + rb"|\Z)")
    end = sample.records.whole[-1].end
    match = pattern.search(sample.head, 0, end)
    while match is not None and sample.is_quoted(match.start()):
        # Continue at the place where the quotes may close, because an array may have thousands of such elements.
        match = pattern.search(sample.head, sample.head.find(sample.form.quote or b"", match.end()), end)
    return match


def _kept_quotes(sample: RecordSample) -> Notice | None:
    """Find a field in quotes in a format without quoting; Excel quotes fields in tab-separated files."""
    return _find_quoted(sample, '"', "quotes around a field are kept as data", "Use --format=csv if they are quoting.")


def _single_quotes(sample: RecordSample) -> Notice | None:
    if sample.form.quote == b"'":
        return None
    hint = """Use --quote="'" if they are quoting."""
    return _find_quoted(sample, "'", "single quotes around a field are kept as data", hint)


def _find_quoted(sample: RecordSample, quote: str, message: str, hint: str) -> Notice | None:
    mark = quote.encode()
    if mark not in sample.head:
        return None
    match = _find_field(sample, mark + rb"[^\r\n" + re.escape(sample.form.delimiter) + rb"]*" + mark)
    return None if match is None else sample.notice("quote-kept", match.start(), message, hint)


def find_rival(sample: RecordSample, *, is_new: bool) -> Notice | None:
    """Return a warning that another character may be the delimiter, None if there is no such character.

    For a new table, this is a character in all records, if these would otherwise be a single column. For an existing
    table, it is a character that gives the same number of fields and occurs in several fields of each record: the
    colons of a time are in one field only. If the sample has quotes, the result is None.
    """
    texts = sample.texts
    delimiter = sample.form.delimiter
    width = sample.form.count_fields(texts[0]) if texts else 0
    if len(texts) < _ALIKE or b'"' in b"".join(texts) or any(sample.form.count_fields(text) != width for text in texts):
        return None
    for other in _DELIMITERS:
        if other == b" " and has_blanks(sample):
            continue
        counts = [text.count(other) for text in texts]
        if width == 1 and is_new and min(counts) and (other != b" " or min(counts) == max(counts)):
            return _rival_notice(sample, other, "whole lines are taken as one column")
        stands = [sum(other in part for part in text.split(delimiter)) for text in texts]
        if width > 2 and other != delimiter and set(counts) == {width - 1} and min(stands) > 1:
            return _rival_notice(sample, other, f"{delimiter.decode()!r} is taken for the delimiter")
    return None


def _rival_notice(sample: RecordSample, other: bytes, taken: str) -> Notice:
    shown = repr(other.decode())
    message, hint = f"{taken}, though {shown} divides them all", f"Use --delimiter={shown} if it stands between fields."
    return sample.notice("other-delimiter", sample.records.whole[0].start, message, hint)


def _lost_backslash(sample: RecordSample) -> Notice | None:
    r"""Find a backslash that COPY would decode although COPY TO never writes it."""
    allowed = COPY_ESCAPES + sample.form.delimiter
    for offset, escaped in find_escapes(sample.head, sample.form.delimiter):
        if escaped not in allowed:
            hint = "Use --format=tsv if backslashes are data."
            return sample.notice("backslash-escape", offset, "backslash that format text will decode", hint)
    return None


def _kept_escape(sample: RecordSample) -> Notice | None:
    """Find escapes of COPY, or escaped delimiters, in a file whose format has no escapes."""
    wanted = COPY_ESCAPES if follows_copy_escapes(sample.head, sample.form.delimiter) else b"".join(_DELIMITERS)
    escapes = find_escapes(sample.head, sample.form.delimiter)
    offset = next((offset for offset, escaped in escapes if escaped in wanted), None)
    if offset is None and (match := _find_field(sample, rb'\\"[^\r\n' + re.escape(sample.form.delimiter) + rb"]*")):
        # Look for an escaped quote only at the beginning of a field. Inside a field, the escape may be part of JSON.
        offset = match.start()
    if offset is None:
        return None
    hint = "Use --format=text if the file was written by COPY TO."
    return sample.notice(
        "backslash-kept", offset, f"backslash escape that format {sample.form.format} keeps as it is", hint
    )


_COMMON: Final[tuple[Callable[[RecordSample], Notice | None], ...]] = (
    _mixed_line_ends,
    _carriage_returns_only,
    _no_line_end,
    _end_of_data_mark,
    _zero_byte,
    _kept_blanks,
)
_FINDERS: Final = {
    "csv": (*_COMMON, _open_quote, _stray_quote, _single_quotes, _kept_escape),
    "text": (*_COMMON, _lost_backslash, _kept_quotes, _single_quotes),
    "tsv": (*_COMMON, _kept_escape, _kept_quotes, _single_quotes),
}
