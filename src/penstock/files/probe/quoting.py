"""Finds how a sample uses quotes: around whole fields, as csv does, or anywhere, as data."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.files.probe.records import Form, Record

# A file is still taken as csv if at most one record in ten violates the rules of csv.
_STRAY_SHARE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Quoting:
    """How a sample's quotes look if it is read as csv.

    `quoted_records` contain a quote; `stray_records` of these have a quote where csv does not allow one: inside an
    unquoted field or after a quoted one. `needs_quotes`: some quoted field contains a delimiter, a line end or a
    doubled quote. `has_quoted_column`: some column is quoted in every record that has a value there.
    `has_quoted_header`: every field of the first record is quoted, and other records follow.
    """

    quoted_records: int
    stray_records: int
    needs_quotes: bool
    has_quoted_column: bool
    has_quoted_header: bool

    @property
    def is_csv(self) -> bool:
        """Whether the quotes are quoting, not data."""
        if self.stray_records > _STRAY_SHARE * self.quoted_records:
            return False
        return self.needs_quotes or self.has_quoted_column or self.has_quoted_header


def survey_quotes(head: bytes, records: Sequence[Record], form: Form) -> Quoting:
    """Return how the records use quotes; `form` is csv."""
    quote = form.quote or b""
    field = field_pattern(form)
    needed = re.compile(b"[" + re.escape(form.delimiter + b"\r\n" + quote) + b"]")
    kinds: dict[int, set[bool]] = defaultdict(set)
    quoted_records = stray_records = 0
    needs_quotes = has_quoted_header = False
    for index, record in enumerate(records):
        text = head[record.start : record.end]
        quoted_records += quote in text
        fields = list(_regular_fields(text, field))
        if not _reaches_end(fields, text):
            stray_records += 1
            continue
        if index == 0 < len(records) - 1:
            has_quoted_header = all(match[1] is not None for match in fields)
        for column, match in enumerate(fields):
            is_quoted = match[1] is not None
            needs_quotes |= is_quoted and needed.search(match[1], 1, len(match[1]) - 1) is not None
            # Skip the first record if there are others: a header may be quoted differently.
            if match[0] not in (b"", b"\\N") and (index or len(records) == 1):
                kinds[column].add(is_quoted)
    return Quoting(
        quoted_records=quoted_records,
        stray_records=stray_records,
        needs_quotes=needs_quotes,
        has_quoted_column={True} in kinds.values(),
        has_quoted_header=has_quoted_header,
    )


def find_stray_quote(record: bytes, form: Form) -> int | None:
    """Return the column, from 1, of the first field with a quote where csv does not allow one, or None."""
    fields = list(_regular_fields(record, field_pattern(form)))
    return None if _reaches_end(fields, record) else len(fields) + 1


def field_pattern(form: Form) -> re.Pattern[bytes]:
    """Return the pattern of one field that follows the rules of csv; group 1 is set for a quoted field."""
    quote, delimiter = re.escape(form.quote or b""), re.escape(form.delimiter)
    if form.escape == form.quote:
        inside = b"(?:[^" + quote + b"]|" + quote + quote + b")*+"
    else:
        escape = re.escape(form.escape or b"")
        inside = b"(?:[^" + quote + escape + b"]|" + escape + b".)*+"
    quoted = b"(" + quote + inside + quote + b")"
    unquoted = b"[^" + quote + delimiter + b"]*+"
    return re.compile(b"(?:" + quoted + b"|" + unquoted + b")(?=" + delimiter + rb"|\Z)", re.DOTALL)


def _regular_fields(record: bytes, field: re.Pattern[bytes]) -> Iterator[re.Match[bytes]]:
    """Yield each field's match, up to the first field that violates the rules of csv."""
    position = 0
    while position <= len(record) and (match := field.match(record, position)):
        yield match
        position = match.end() + 1


def _reaches_end(fields: Sequence[re.Match[bytes]], record: bytes) -> bool:
    return bool(fields) and fields[-1].end() == len(record)
