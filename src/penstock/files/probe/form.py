"""Finds the format and the delimiter of a sample: those of the options, or those that divide its records equally."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from penstock._native import Form, Records
from penstock.files.probe.options import DEFAULT_DELIMITER, DEFAULT_QUOTE
from penstock.frozen import frozen
from penstock.model.source.dialect import Dialect, DialectOptions, TextFormat

# If two delimiters divide the records equally well, the first in this list is chosen. The comma is last, because it is
# often part of a value (a decimal comma as in 95,26); the others rarely are.
_DELIMITERS: Final = ("\t", "|", ";", ",")
# Enough for hundreds of records; all candidates are tried on it.
_TRIAL_BYTES: Final = 32 * 1024
# If less than this share of the records has the same number of fields, the delimiter is probably only punctuation.
_AGREEMENT: Final = 0.8
# The characters that COPY TO writes after a backslash in format text.
COPY_ESCAPES: Final = b"\\bfnrtv"


@frozen
class Choice:
    """A form, and why it was chosen.

    `is_divided`: its delimiter divides the records into the same number of fields. `is_spelled`: quotes or backslashes
    prove which of the formats with that delimiter it is.
    """

    form: Form
    reason: str
    is_divided: bool = False
    is_spelled: bool = False


@frozen
class _Trial:
    """The result of splitting the sample by a form: the most frequent field count, and the share of records with it.

    `divides_all`: there are several records, and each has at least two fields.
    """

    form: Form
    is_spelled: bool
    field_count: int
    share: float
    matches_table: bool
    divides_all: bool

    @property
    def rank(self) -> tuple[bool, bool, bool, float, int]:
        return self.is_likely, self.matches_table, not self.is_likely and self.divides_all, self.share, self.field_count

    @property
    def is_likely(self) -> bool:
        return self.field_count > 1 and (self.share >= _AGREEMENT or (self.matches_table and self.share > 0.5))


def choose_form(head: bytes, *, options: DialectOptions, is_whole: bool, column_count: int | None) -> Choice:
    """Return the form of the sample: what the options do not give is found from the first 32 KiB."""
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
    if best is None or not best.is_likely or (column_count == 1 and best.share < 1):
        fallback: TextFormat = wanted or "csv"
        form = make_form(fallback, DEFAULT_DELIMITER[fallback], options)
        if column_count != 1 and best is not None and best.divides_all and best.form.delimiter != form.delimiter:
            return Choice(form=best.form, reason=_explain(best.form, "it divides every record, though not alike"))
        return Choice(form=form, reason=_explain(form, "no delimiter gives all records the same number of fields"))
    share = "every record has" if best.share == 1 else f"{best.share:.0%} of the records have"
    reason = _explain(best.form, f"{share} {best.field_count} fields")
    return Choice(form=best.form, reason=reason, is_divided=True, is_spelled=best.is_spelled)


def make_form(form_format: TextFormat, delimiter: str, options: DialectOptions | Dialect) -> Form:
    """Return the form of a format and a delimiter, with the quotes of the options or COPY's defaults."""
    if form_format != "csv":
        return Form(format=form_format, delimiter=delimiter.encode())
    quote = DEFAULT_QUOTE if options.quote is None else options.quote
    escape = quote if options.escape is None else options.escape
    return Form(format="csv", delimiter=delimiter.encode(), quote=quote.encode(), escape=escape.encode())


def find_escapes(sample: bytes, delimiter: bytes) -> Iterator[tuple[int, bytes]]:
    r"""Yield the offset of each backslash and the character after it, except fields that are \N or \. alone."""
    for match in _find_backslashes(sample, delimiter):
        if match[1]:
            yield match.start(), match[1]


def _find_backslashes(sample: bytes, delimiter: bytes) -> Iterator[re.Match[bytes]]:
    r"""Yield a match for each backslash. Group 1 is the next character, or None if the whole field is \N or \."""
    edge = b"\r\n" + re.escape(delimiter)
    # The pattern begins with the backslash, which makes the search fast; so the look-behind includes it.
    whole_field = rb"(?<![^" + edge + rb"]\\)[N.](?=[" + edge + rb"]|\Z)"
    return re.finditer(rb"\\(?:" + whole_field + rb"|(.))", sample, re.DOTALL)


def proves_copy_escapes(sample: bytes, delimiter: bytes) -> bool:
    r"""Return whether the sample has a field that is \N or \., or \\ within a field.

    A field that begins with \\ proves nothing: it may be a UNC path.
    """
    edges = (b"", b"\r", b"\n", delimiter)
    return any(
        match[1] is None or (match[1] == b"\\" and sample[max(0, match.start() - 1) : match.start()] not in edges)
        for match in _find_backslashes(sample, delimiter)
    )


def follows_copy_escapes(sample: bytes, delimiter: bytes) -> bool:
    """Return whether the sample has backslashes, apart from null fields, and all are as COPY TO writes them."""
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
    counts = Counter(form.count_fields(text) for text in _usable(form.cut(sample, is_whole=is_whole)) if text)
    field_count, agreeing = counts.most_common(1)[0] if counts else (1, 1)
    return _Trial(
        form=form,
        is_spelled=is_spelled,
        field_count=field_count,
        share=agreeing / max(1, counts.total()),
        matches_table=field_count == column_count,
        divides_all=counts.total() > 1 and min(counts) > 1,
    )


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
